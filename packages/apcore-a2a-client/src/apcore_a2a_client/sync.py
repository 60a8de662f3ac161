# pyright: reportPrivateUsage=false
# The functions that make the methods stand outside of the class.
"""The client for scripts and notebooks."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
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
Replies: TypeAlias = dict[httpx.Response, Iterator[bytes]]
"""The responses that are open, and what is still to be read of them."""


def done(
    steps: Callable[Concatenate[Operations, P], Steps[T]],
) -> Callable[Concatenate[SyncA2AClient, P], T]:
    """A method that does the steps of an operation."""

    @wraps(steps)
    def method(self: SyncA2AClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        replies: Replies = {}
        todo = steps(self._operations, *args, **kwargs)
        try:
            result: T = self._do(todo, replies)
            return result
        finally:
            _close(todo, replies)

    method.__qualname__ = f"SyncA2AClient.{steps.__name__}"
    return method


def iterated(
    source: Callable[Concatenate[Operations, P], Items[T]],
) -> Callable[Concatenate[SyncA2AClient, P], Generator[T, None, None]]:
    """A generator method that gives what the source of an operation has."""

    @wraps(source)
    def method(
        self: SyncA2AClient, /, *args: P.args, **kwargs: P.kwargs
    ) -> Generator[T, None, None]:
        replies: Replies = {}
        items = source(self._operations, *args, **kwargs)
        try:
            while item := self._do(items, replies):
                yield item.value
        finally:
            _close(items, replies)

    method.__qualname__ = f"SyncA2AClient.{source.__name__}"
    return method


def _close(todo: Todo, replies: Replies) -> None:
    todo.close()
    for response in replies:
        response.close()


class SyncA2AClient(Client[httpx.Client]):
    """`A2AClient` without `await`, for scripts and notebooks; its arguments are the same.

    The timeout counts for each piece of an answer that arrives: where a hostile agent sends
    the head of its answer byte by byte, `A2AClient` gives up in time, and this one does not.

    Args:
        url: The agent's address.
        auth: `"Bearer …"`, a function that gives a fresh token for each request, an `APIKey`,
            or any `httpx.Auth`.
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
        from apcore_a2a_client import SyncA2AClient

        with SyncA2AClient("http://127.0.0.1:8000") as client:
            print(client.call("text.stats", {"text": "To be, or not to be."}))
        ```
    """

    _kind = httpx.Client

    get_card = done(Operations.get_card)
    extended_card = done(Operations.extended_card)
    send_message = done(Operations.send_message)
    stream_message = iterated(Operations.stream_message)
    subscribe = iterated(Operations.subscribe)
    get_task = done(Operations.get_task)
    cancel_task = done(Operations.cancel_task)
    list_tasks = done(Operations.list_tasks)
    iter_tasks = iterated(Operations.iter_tasks)
    set_push_config = done(Operations.set_push_config)
    get_push_config = done(Operations.get_push_config)
    list_push_configs = done(Operations.list_push_configs)
    delete_push_config = done(Operations.delete_push_config)
    call = done(Operations.call)
    stream = iterated(Operations.stream)
    reply = done(Operations.reply)
    follow = iterated(Operations.follow)
    wait = done(Operations.wait)

    @property
    def agent_card(self) -> AgentCard:
        """The agent's card; as `get_card()`."""
        return self.get_card()

    def close(self) -> None:
        """Close the connections, unless the httpx client was given."""
        if self._owns:
            self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _do(self, steps: Todo, replies: Replies) -> Any:
        """Do the steps up to the next item, or the result.

        What they open is added to *replies*, whose owner closes it.
        """
        try:
            step = next(steps)
            while not isinstance(step, Item):
                try:
                    given = self._step(step, replies)
                except Exception as error:  # the steps know what to do about it
                    step = steps.throw(error)
                else:
                    step = steps.send(given)
        except StopIteration as end:
            return end.value
        return step

    def _step(self, step: Step, replies: Replies) -> Any:
        if isinstance(step, Sleep):
            return time.sleep(step.seconds)
        if isinstance(step, Close):
            del replies[step.response]
            return step.response.close()
        if isinstance(step, Read):
            with translated(step.response.url):
                return next(replies[step.response], b"")
        with translated(step.request.url):
            response = self._http.send(
                step.request, auth=credentials(step), stream=True, follow_redirects=False
            )
        replies[response] = response.iter_bytes()
        return response
