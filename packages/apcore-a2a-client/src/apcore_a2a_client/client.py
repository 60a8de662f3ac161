# pyright: reportPrivateUsage=false
# The functions that create the methods are outside the class, and use its private members.
"""The client for asynchronous programs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import wraps
from inspect import isawaitable
from typing import Any, Concatenate, ParamSpec, Self, TypeAlias, TypeVar

import httpx

from .base import Client, copy_as_method
from .cards import AgentCard
from .exchange import (
    AnySteps,
    Close,
    Invoke,
    Item,
    Items,
    Read,
    Sleep,
    Step,
    Steps,
    translated_errors,
)
from .methods import Operations

P = ParamSpec("P")
T = TypeVar("T")
OpenResponses: TypeAlias = dict[httpx.Response, AsyncIterator[bytes]]
"""Open responses, each with an iterator over the rest of its body."""


def async_method(
    operation: Callable[Concatenate[Operations, P], Steps[T]],
) -> Callable[Concatenate[A2AClient, P], Coroutine[Any, Any, T]]:
    """Return a coroutine method that runs the steps of *operation*."""
    operation = copy_as_method(operation, "A2AClient")

    @wraps(operation)
    async def method(self: A2AClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        responses: OpenResponses = {}
        steps = operation(self._operations, *args, **kwargs)
        try:
            result: T = await self._run(steps, responses)
            return result
        finally:
            await _close(steps, responses)

    return method


def async_generator_method(
    operation: Callable[Concatenate[Operations, P], Items[T]],
) -> Callable[Concatenate[A2AClient, P], AsyncGenerator[T, None]]:
    """Return an asynchronous generator method that yields the items of *operation*."""
    operation = copy_as_method(operation, "A2AClient")

    @wraps(operation)
    async def method(
        self: A2AClient, /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncGenerator[T, None]:
        responses: OpenResponses = {}
        steps = operation(self._operations, *args, **kwargs)
        try:
            while item := await self._run(steps, responses):
                yield item.value
        finally:
            await _close(steps, responses)

    return method


async def _close(steps: AnySteps, responses: OpenResponses) -> None:
    # Called even if the operation failed or was cancelled: runs the generator's `finally` blocks,
    # and closes open responses, which frees their places in the connection pool.
    steps.close()
    for response in responses:
        await response.aclose()


class A2AClient(Client[httpx.AsyncClient]):
    """An asynchronous client for the A2A agent at a URL.

    Args:
        url: The agent's base URL, or the URL of its card (`…/.well-known/…`).
        auth: `"Bearer …"`, a function (async or not) that returns a fresh token for each request,
            an `APIKey`, `ClientCredentials`, or any other `httpx.Auth`.
        timeout: Seconds for a whole response including retries, and for silence on a stream;
            None for no limit.
        card_ttl: Seconds for which the card is cached.
        headers: Headers of every request, or a function (async or not) that returns them for
            each request.
        retries: Maximum number of retries of a failed request, where they are safe.
        http_client: The httpx client to use; `aclose` leaves it open.
        protocol: `"1.0"` or `"0.3"` to require that version, whatever the card says.
        max_bytes: Size limit of a response, and of an event of a stream.
        credentials_for: Further origins to which credentials may be sent, if the agent's card
            points there.
        verify_card: A function (async or not) that gets the JSON of each card that is fetched, and
            may raise an exception to refuse it, or return the JSON of a card to use instead.
        check_destination: A function that gets each `Destination` to which the agent's card or a
            redirect leads, and returns whether to connect to its address. It must not block, and
            is not called for the origins of *url* and `credentials_for`. Behind a proxy, it is
            called only for IP addresses in URLs.

    Raises:
        ValueError: The URL is not an http(s) URL, or another argument is invalid.
        TypeError: An argument has a type that is not supported.

    Example:
        ```python test="lint"
        import asyncio

        from apcore_a2a_client import A2AClient


        async def main():
            async with A2AClient("http://127.0.0.1:8000") as client:
                print((await client.agent_card).name)
                print(await client.call("text.stats", {"text": "To be, or not to be."}))


        asyncio.run(main())
        ```
    """

    _http_type = httpx.AsyncClient
    _is_async = True

    get_card = async_method(Operations.get_card)
    extended_card = async_method(Operations.extended_card)
    send_message = async_method(Operations.send_message)
    stream_message = async_generator_method(Operations.stream_message)
    subscribe = async_generator_method(Operations.subscribe)
    get_task = async_method(Operations.get_task)
    cancel_task = async_method(Operations.cancel_task)
    list_tasks = async_method(Operations.list_tasks)
    iter_tasks = async_generator_method(Operations.iter_tasks)
    set_push_config = async_method(Operations.set_push_config)
    get_push_config = async_method(Operations.get_push_config)
    list_push_configs = async_method(Operations.list_push_configs)
    delete_push_config = async_method(Operations.delete_push_config)
    list_webhooks = async_method(Operations.list_webhooks)
    test_webhook = async_method(Operations.test_webhook)
    redeliver_webhook = async_method(Operations.redeliver_webhook)
    call = async_method(Operations.call)
    stream = async_generator_method(Operations.stream)
    reply = async_method(Operations.reply)
    follow = async_generator_method(Operations.follow)
    wait = async_method(Operations.wait)

    @property
    def agent_card(self) -> Awaitable[AgentCard]:
        """The agent's card, to be awaited; the same as `get_card()`."""
        return self.get_card()

    async def aclose(self) -> None:
        """Close the connections, unless the httpx client was passed in."""
        if self._owns_http:
            await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _run(self, steps: AnySteps, responses: OpenResponses) -> Any:
        """Perform steps until the next item or the result, and return it.

        Responses that are opened are added to *responses*; the caller closes them.
        """
        try:
            step = next(steps)
            while not isinstance(step, Item):
                try:
                    outcome = await self._perform(step, responses)
                except Exception as error:  # the generator decides: retry, resume or raise
                    step = steps.throw(error)
                else:
                    step = steps.send(outcome)
        except StopIteration as end:
            return end.value
        return step

    async def _perform(self, step: Step, responses: OpenResponses) -> Any:
        from asyncio import sleep, timeout  # imported on first use, as httpx does, for a fast start

        if isinstance(step, Sleep):
            return await sleep(step.seconds)
        if isinstance(step, Invoke):
            result = step.function(*step.arguments)
            return await result if isawaitable(result) else result
        if isinstance(step, Close):
            chunks = responses.pop(step.response)
            if step.wait:
                with suppress(TimeoutError, httpx.HTTPError):
                    async with timeout(step.wait):
                        await anext(chunks, b"")
            return await step.response.aclose()
        if isinstance(step, Read):
            with translated_errors(step.response.url):
                async with timeout(step.timeout):
                    return await anext(responses[step.response], b"")
        with translated_errors(step.request.url):
            # The timeout of httpx applies to each read; this one covers everything before the body.
            async with timeout(step.timeout):
                response = await self._http.send(
                    step.request, auth=step.auth, stream=True, follow_redirects=False
                )
        responses[response] = response.aiter_bytes()
        return response
