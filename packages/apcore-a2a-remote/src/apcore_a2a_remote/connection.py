"""The connection to a remote agent, which all calls of its skills share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from inspect import isawaitable
from typing import Any, TypeAlias
from urllib.parse import urlsplit
from uuid import NAMESPACE_URL, uuid5

from apcore.errors import ModuleNotFoundError
from apcore.trace_context import TraceContext
from apcore_a2a_client import A2AClient, A2AError, AgentCard, Event, Message
from apcore_a2a_core import EXTENSION_URI, clean

from .destinations import DestinationRules
from .receiver import WebhookReceiver
from .waiting import poll_events

logger = logging.getLogger("apcore_a2a_remote")

Forward: TypeAlias = Callable[[Any], Mapping[str, str]]
"""Returns, for an apcore Context, headers that tell an agent on whose behalf it is called."""
HeaderSource: TypeAlias = Callable[[], Mapping[str, str]]
"""Returns the headers of a request."""
CANCEL_TIMEOUT = 5.0
"""Seconds for the agent to confirm that a task is canceled."""
CONTEXT_ID = "ext.a2a.context_id"
"""The member of `context.data` with the context id of the request to our server."""


class Connection:
    """A connection to a remote agent; `RemoteAgent` describes the arguments.

    Attributes:
        open_calls: The number of open calls of this agent's skills.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str,
        auth: Any,
        forward: Forward | None,
        approve: str,
        expose: bool,
        timeout: float | None,
        max_open: int,
        card_ttl: float,
        trust: str,
        verify_card: Callable[[dict[str, Any]], Any] | None,
        wait: str,
        receiver: WebhookReceiver | None,
        user_agent: str | None,
        private_hosts: Sequence[str],
        **client_options: Any,
    ) -> None:
        self.url = url
        self.name = name
        self.approve = approve
        self.expose = expose
        self.timeout = timeout
        self.max_open = max_open
        self.wait = wait
        self.receiver = receiver
        self.retries: int = client_options.get("retries", 3)
        self.open_calls = 0
        self._forward = forward
        self._trust = trust
        self._verifier = verify_card or (_new_verifier(trust, url) if trust != "off" else None)
        headers = client_options.pop("headers", {})
        if user_agent:
            headers = _with_user_agent(headers, user_agent)
        self._options: dict[str, Any] = {
            "check_destination": DestinationRules(private_hosts),
            **client_options,
            "auth": auth,
            # `RemoteAgent.watch` refreshes the card before it expires: calls need not fetch it
            "card_ttl": 2 * card_ttl,
            "headers": headers,
        }
        self._clients: dict[asyncio.AbstractEventLoop, A2AClient] = {}
        self._card: AgentCard | None = None
        self._background: set[asyncio.Task[None]] = set()
        self._new_client()  # reports invalid arguments now

    @property
    def client(self) -> A2AClient:
        """The client of the running event loop; event loops share no connections.

        Use it for operations that modules do not offer, such as
        `get_task(task_id, history_length=20)`.
        """
        loop = asyncio.get_running_loop()
        try:
            return self._clients[loop]
        except KeyError:
            for closed_loop in [key for key in self._clients if key.is_closed()]:
                del self._clients[closed_loop]
            self._clients[loop] = self._new_client()
            return self._clients[loop]

    @property
    def card(self) -> AgentCard | None:
        """The card that the modules were made from; None until a card has been fetched."""
        return self._card

    @property
    def is_apcore_a2a(self) -> bool:
        """Whether the agent is served by this project's server, which knows idempotency keys."""
        extensions = self._card.capabilities.extensions if self._card else ()
        return any(extension.uri == EXTENSION_URI for extension in extensions)

    def conversation_of(self, context: Any) -> str | None:
        """Return the id of a call's conversation at the agent; None if the call has none."""
        context_id = context.data.get(CONTEXT_ID)
        return conversation_id(self.url, context.identity, context_id) if context_id else None

    def headers_for(self, context: Any) -> dict[str, str]:
        """Return the headers of a call's request: trace headers, and those that `forward` returns.

        The headers are made for each request: a token in them may expire before the call has
        ended.
        """
        headers = trace_headers(context)
        return headers if self._forward is None else {**headers, **self._forward(context)}

    @contextmanager
    def count_call(self) -> Generator[None]:
        """Count a call while the block runs."""
        self.open_calls += 1
        try:
            yield
        finally:
            self.open_calls -= 1

    def check_exposed(self, module_id: str, context: Any) -> None:
        """Refuse a direct call by a client of our server, unless the modules are exposed.

        Raises:
            ModuleNotFoundError: Only this program's own code may call the module.
        """
        is_outermost = len(context.call_chain) <= 1
        # only a server sets CONTEXT_ID
        if is_outermost and not self.expose and CONTEXT_ID in context.data:
            raise ModuleNotFoundError(module_id)

    def events(
        self, message: Message, *, question_id: str, headers: HeaderSource, **options: Any
    ) -> AsyncGenerator[Event]:
        """Send a message, and yield the events of its task, as `wait` specifies.

        Args:
            message: The message.
            question_id: The id of the question that the message answers; empty if there is none.
            headers: Returns the headers of a request.
            options: Further arguments of `A2AClient.stream_message`.
        """
        if self.wait == "stream":
            return self.client.stream_message(message, headers=headers, **options)
        return poll_events(
            self.client,
            message,
            receiver=self.receiver if self.wait == "webhook" else None,
            question_id=question_id,
            headers=headers,
            **options,
        )

    async def cancel(self, task_id: str, headers: Mapping[str, str]) -> None:
        """Cancel a task of the agent; continue even if this coroutine is itself canceled."""
        cancellation = asyncio.create_task(self._cancel(task_id, headers))
        self._background.add(cancellation)
        cancellation.add_done_callback(self._background.discard)
        await asyncio.shield(cancellation)

    async def _cancel(self, task_id: str, headers: Mapping[str, str]) -> None:
        try:
            async with asyncio.timeout(CANCEL_TIMEOUT):
                await self.client.cancel_task(task_id, headers=headers)
        except (A2AError, TimeoutError) as error:
            extra = {"event": "remote_cancel_failed"}
            reason = type(error).__name__
            logger.info("A task of %s could not be canceled: %s", self.name, reason, extra=extra)

    def _new_client(self) -> A2AClient:
        options: dict[str, Any] = {**self._options}
        if self._verifier is not None:
            options["verify_card"] = self._verify_card
        return A2AClient(self.url, **options)

    async def _verify_card(self, card: dict[str, Any]) -> Any:
        """Verify a card, and return its signed members, if known.

        Raises:
            Exception: The card is not trusted, and `trust` is not `"warn"`.
        """
        assert self._verifier is not None
        try:
            result: Any = self._verifier(card)
            return await result if hasattr(result, "__await__") else result
        except Exception as error:  # the user's function may raise any exception to refuse a card
            if self._trust != "warn":
                raise
            extra = {"event": "remote_card_untrusted"}
            reason = clean(f"{type(error).__name__}: {error}", 300)
            logger.warning("The card of %s is not trusted: %s", self.name, reason, extra=extra)
            return None


def _new_verifier(trust: str, url: str) -> Any:
    """Return the verifier of cards that are signed with a key of the agent's own origin.

    Raises:
        ImportError: `apcore-a2a-auth` is not installed.
        ValueError: The URL has no valid origin.
    """
    parts = urlsplit(url)
    origin = f"{parts.scheme}://{parts.netloc}"
    return import_auth(f"trust={trust!r}").CardVerifier(jku_origins=[origin])


def import_auth(feature: str) -> Any:
    """Return the package `apcore_a2a_auth`.

    Raises:
        ImportError: It is not installed; the message says how to install it.
    """
    try:
        return import_module("apcore_a2a_auth")
    except ImportError as error:
        if error.name != "apcore_a2a_auth":
            raise
        message = f"{feature} needs the auth part: pip install 'apcore-a2a-remote[auth]'"
        raise ImportError(message, name=error.name) from None


def conversation_id(url: str, identity: Any, context_id: str) -> str:
    """Return the id of a conversation at a remote agent."""
    attributes: Any = getattr(identity, "attrs", None) or {}
    principal = "" if identity is None else f"{attributes.get('iss', '')}\n{identity.id}"
    return str(uuid5(NAMESPACE_URL, f"{url}\n{principal}\n{context_id}"))


def _with_user_agent(headers: Any, user_agent: str) -> Any:
    """Return headers, or the function that returns them, with a `User-Agent` header added."""
    if not callable(headers):
        return {**headers, "user-agent": user_agent}

    async def make_headers() -> dict[str, str]:
        result: Any = headers()
        original: Mapping[str, str] = await result if isawaitable(result) else result
        return {**original, "user-agent": user_agent}

    return make_headers


def trace_headers(context: Any) -> dict[str, str]:
    """Return the headers that continue the trace of a call (W3C Trace Context)."""
    return dict(TraceContext.inject(context))
