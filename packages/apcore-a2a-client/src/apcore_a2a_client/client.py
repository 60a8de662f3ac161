# pyright: reportPrivateUsage=false
# The functions that make the methods stand outside of the class.
"""The client for async programs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeAlias, TypeVar

import httpx

from .exchange import Close, Item, Items, Read, Sleep, Step, Steps, Todo, credentials, translated
from .operations import Operations
from .setup import Client

if TYPE_CHECKING:
    from .cards import AgentCard  # imported when there is a card

P = ParamSpec("P")
T = TypeVar("T")
Replies: TypeAlias = dict[httpx.Response, AsyncIterator[bytes]]
"""The responses that are open, and what is still to be read of them."""


def awaited(
    steps: Callable[Concatenate[Operations, P], Steps[T]],
) -> Callable[Concatenate[A2AClient, P], Coroutine[Any, Any, T]]:
    """A coroutine method that does the steps of an operation."""

    @wraps(steps)
    async def method(self: A2AClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        replies: Replies = {}
        todo = steps(self._operations, *args, **kwargs)
        try:
            result: T = await self._do(todo, replies)
            return result
        finally:
            await _close(todo, replies)

    method.__qualname__ = f"A2AClient.{steps.__name__}"
    return method


def iterated(
    source: Callable[Concatenate[Operations, P], Items[T]],
) -> Callable[Concatenate[A2AClient, P], AsyncGenerator[T, None]]:
    """An asynchronous generator method that gives what the source of an operation has."""

    @wraps(source)
    async def method(
        self: A2AClient, /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncGenerator[T, None]:
        replies: Replies = {}
        items = source(self._operations, *args, **kwargs)
        try:
            while item := await self._do(items, replies):
                yield item.value
        finally:
            await _close(items, replies)

    method.__qualname__ = f"A2AClient.{source.__name__}"
    return method


async def _close(todo: Todo, replies: Replies) -> None:
    todo.close()
    for response in replies:
        await response.aclose()


class A2AClient(Client[httpx.AsyncClient]):
    """A client of the A2A agent at a URL.

    Args:
        url: The agent's address; its card is looked for below `/.well-known/` there.
        auth: `"Bearer …"`, a function (async or not) that gives a fresh token for each request,
            an `APIKey`, or any `httpx.Auth`.
        timeout: Seconds for a whole answer, with all that is tried again, and for a sign of life
            on a stream; None waits for ever.
        card_ttl: Seconds for which the card counts.
        headers: Headers of every request.
        retries: How often what failed is tried again, where that is safe.
        http_client: The httpx client to use; it is not closed then.
        protocol: `"1.0"` or `"0.3"` to speak that version whatever the card says.
        max_bytes: How large an answer, or an event of a stream, may be.

    Raises:
        ValueError: The URL is no http(s) URL, or something else is not what it should be.

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

    _kind = httpx.AsyncClient

    get_card = awaited(Operations.get_card)
    extended_card = awaited(Operations.extended_card)
    send_message = awaited(Operations.send_message)
    stream_message = iterated(Operations.stream_message)
    subscribe = iterated(Operations.subscribe)
    get_task = awaited(Operations.get_task)
    cancel_task = awaited(Operations.cancel_task)
    list_tasks = awaited(Operations.list_tasks)
    iter_tasks = iterated(Operations.iter_tasks)
    set_push_config = awaited(Operations.set_push_config)
    get_push_config = awaited(Operations.get_push_config)
    list_push_configs = awaited(Operations.list_push_configs)
    delete_push_config = awaited(Operations.delete_push_config)
    call = awaited(Operations.call)
    stream = iterated(Operations.stream)
    reply = awaited(Operations.reply)
    follow = iterated(Operations.follow)
    wait = awaited(Operations.wait)

    @property
    def agent_card(self) -> Awaitable[AgentCard]:
        """The agent's card, to be awaited; as `get_card()`."""
        return self.get_card()

    async def aclose(self) -> None:
        """Close the connections, unless the httpx client was given."""
        if self._owns:
            await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _do(self, steps: Todo, replies: Replies) -> Any:
        """Do the steps up to the next item, or the result.

        What they open is added to *replies*, whose owner closes it.
        """
        try:
            step = next(steps)
            while not isinstance(step, Item):
                try:
                    given = await self._step(step, replies)
                except Exception as error:  # the steps know what to do about it
                    step = steps.throw(error)
                else:
                    step = steps.send(given)
        except StopIteration as end:
            return end.value
        return step

    async def _step(self, step: Step, replies: Replies) -> Any:
        from asyncio import sleep, timeout  # httpx imports it as late

        if isinstance(step, Sleep):
            return await sleep(step.seconds)
        if isinstance(step, Close):
            del replies[step.response]
            return await step.response.aclose()
        if isinstance(step, Read):
            with translated(step.response.url):
                async with timeout(step.timeout):
                    return await anext(replies[step.response], b"")
        with translated(step.request.url):
            async with timeout(step.timeout):
                response = await self._http.send(
                    step.request, auth=credentials(step), stream=True, follow_redirects=False
                )
        replies[response] = response.aiter_bytes()
        return response
