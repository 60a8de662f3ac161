# pyright: reportPrivateUsage=false
# The functions that create the methods are outside the class, and use its private members.
"""The client for scripts and notebooks."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from functools import wraps
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
    invoke_without_await,
    translated_errors,
)
from .methods import Operations

P = ParamSpec("P")
T = TypeVar("T")
OpenResponses: TypeAlias = dict[httpx.Response, Iterator[bytes]]
"""Open responses, each with an iterator over the rest of its body."""


def sync_method(
    operation: Callable[Concatenate[Operations, P], Steps[T]],
) -> Callable[Concatenate[SyncA2AClient, P], T]:
    """Return a method that runs the steps of *operation*."""
    operation = copy_as_method(operation, "SyncA2AClient")

    @wraps(operation)
    def method(self: SyncA2AClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        responses: OpenResponses = {}
        steps = operation(self._operations, *args, **kwargs)
        try:
            result: T = self._run(steps, responses)
            return result
        finally:
            _close(steps, responses)

    return method


def generator_method(
    operation: Callable[Concatenate[Operations, P], Items[T]],
) -> Callable[Concatenate[SyncA2AClient, P], Generator[T, None, None]]:
    """Return a generator method that yields the items of *operation*."""
    operation = copy_as_method(operation, "SyncA2AClient")

    @wraps(operation)
    def method(
        self: SyncA2AClient, /, *args: P.args, **kwargs: P.kwargs
    ) -> Generator[T, None, None]:
        responses: OpenResponses = {}
        steps = operation(self._operations, *args, **kwargs)
        try:
            while item := self._run(steps, responses):
                yield item.value
        finally:
            _close(steps, responses)

    return method


def _close(steps: AnySteps, responses: OpenResponses) -> None:
    # Called even if the operation failed or was abandoned: runs the generator's `finally` blocks,
    # and closes open responses, which frees their places in the connection pool.
    steps.close()
    for response in responses:
        response.close()


class SyncA2AClient(Client[httpx.Client]):
    """The same as `A2AClient` without `await`, for scripts and notebooks.

    While the head of a response is read, the timeout applies to each read: an agent can exceed the
    timeout by sending the head byte by byte. `A2AClient` does not have this limitation.

    Args:
        url: The agent's base URL, or the URL of its card (`…/.well-known/…`).
        auth: `"Bearer …"`, a function that returns a fresh token for each request, an `APIKey`,
            `ClientCredentials`, or any other `httpx.Auth`.
        timeout: Seconds for a whole response including retries, and for silence on a stream;
            None for no limit.
        card_ttl: Seconds for which the card is cached.
        headers: Headers of every request, or a function that returns them for each request.
        retries: Maximum number of retries of a failed request, where they are safe.
        http_client: The httpx client to use; `close` leaves it open.
        protocol: `"1.0"` or `"0.3"` to require that version, whatever the card says.
        max_bytes: Size limit of a response, and of an event of a stream.
        credentials_for: Further origins to which credentials may be sent, if the agent's card
            points there.
        verify_card: A function that gets the JSON of each card that is fetched, and may raise an
            exception to refuse it, or return the JSON of a card to use instead.
        check_destination: A function that gets each `Destination` to which the agent's card or a
            redirect leads, and returns whether to connect to its address. It must not block, and
            is not called for the origins of *url* and `credentials_for`.

    Raises:
        ValueError: The URL is not an http(s) URL, or another argument is invalid.
        TypeError: An argument has a type that is not supported.

    Example:
        ```python test="lint"
        from apcore_a2a_client import SyncA2AClient

        with SyncA2AClient("http://127.0.0.1:8000") as client:
            print(client.call("text.stats", {"text": "To be, or not to be."}))
        ```
    """

    _http_type = httpx.Client

    get_card = sync_method(Operations.get_card)
    extended_card = sync_method(Operations.extended_card)
    send_message = sync_method(Operations.send_message)
    stream_message = generator_method(Operations.stream_message)
    subscribe = generator_method(Operations.subscribe)
    get_task = sync_method(Operations.get_task)
    cancel_task = sync_method(Operations.cancel_task)
    list_tasks = sync_method(Operations.list_tasks)
    iter_tasks = generator_method(Operations.iter_tasks)
    set_push_config = sync_method(Operations.set_push_config)
    get_push_config = sync_method(Operations.get_push_config)
    list_push_configs = sync_method(Operations.list_push_configs)
    delete_push_config = sync_method(Operations.delete_push_config)
    list_webhooks = sync_method(Operations.list_webhooks)
    test_webhook = sync_method(Operations.test_webhook)
    redeliver_webhook = sync_method(Operations.redeliver_webhook)
    call = sync_method(Operations.call)
    stream = generator_method(Operations.stream)
    reply = sync_method(Operations.reply)
    follow = generator_method(Operations.follow)
    wait = sync_method(Operations.wait)

    @property
    def agent_card(self) -> AgentCard:
        """The agent's card; the same as `get_card()`."""
        return self.get_card()

    def close(self) -> None:
        """Close the connections, unless the httpx client was passed in."""
        if self._owns_http:
            self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, steps: AnySteps, responses: OpenResponses) -> Any:
        """Perform steps until the next item or the result, and return it.

        Responses that are opened are added to *responses*; the caller closes them.
        """
        try:
            step = next(steps)
            while not isinstance(step, Item):
                try:
                    outcome = self._perform(step, responses)
                except Exception as error:  # the generator decides: retry, resume or raise
                    step = steps.throw(error)
                else:
                    step = steps.send(outcome)
        except StopIteration as end:
            return end.value
        return step

    def _perform(self, step: Step, responses: OpenResponses) -> Any:
        if isinstance(step, Sleep):
            return time.sleep(step.seconds)
        if isinstance(step, Invoke):
            return invoke_without_await(step)
        if isinstance(step, Close):
            del responses[step.response]
            return step.response.close()
        if isinstance(step, Read):
            with translated_errors(step.response.url):
                return next(responses[step.response], b"")
        with translated_errors(step.request.url):
            response = self._http.send(
                step.request, auth=step.auth, stream=True, follow_redirects=False
            )
        responses[response] = response.iter_bytes()
        return response
