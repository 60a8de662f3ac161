"""A remote A2A agent, whose skills are apcore modules."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, Self, TypeAlias

from apcore.errors import ModuleError
from apcore_a2a_client import A2AError, Event, Message, Task
from apcore_a2a_client.params import Content
from apcore_a2a_client.tasks import apply_event
from apcore_a2a_core import clean

from .calls import Pending
from .connection import CANCEL_TIMEOUT, Connection, Forward
from .errors import RemoteFailedError, RemoteQuestion
from .receiver import WebhookReceiver
from .skills import entries_of, module_for

logger = logging.getLogger("apcore_a2a_remote")

Registered: TypeAlias = dict[str, tuple[Any, Any]]
"""Modules by id, each with the entry of its skill on the card."""

FIRST_RETRY_DELAY, MAX_RETRY_DELAY = 1.0, 60.0
"""Seconds before an agent that can't be reached is tried again; doubled up to the maximum."""
START_TIMEOUT = 2.0
"""Seconds for which a starting server waits for the card; skills may also be added later."""
NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


class RemoteAgent(Connection):
    """A remote A2A agent, each of whose skills becomes an apcore module.

    A module has the id `remote.<name>.<skill>`. It is typed if the card of the agent has the
    schemas of the skill, as with agents of this project; otherwise it takes and returns text.

    In a server, pass this object as one of the `companions`. A program without a server calls
    `register`, and closes this object at the end.

    Args:
        url: The agent's base URL.
        name: Its name in the ids of its modules.
        auth: Credentials for the agent, as for `A2AClient`; its card is fetched with them.
        forward: Function that takes the apcore Context of a call, and returns further headers, such
            as a token that identifies the caller. The caller's own `Authorization` is never
            passed on.
        approve: Who asks for approval of calls. With `"remote"`, the agent asks, and this
            program passes its request on. With `"local"`, this program asks before it calls the
            agent, and then answers the agent's request for approval itself.
        expose: Whether our own server offers the modules as skills. Otherwise the server's clients
            can't call them, but other modules and our own code can.
        timeout: Seconds for a call; None for no limit except the caller's deadline.
        max_open: Maximum number of open calls of one trace, and of agents that a call has passed
            through, so that agents cannot call each other in a circle forever.
        card_ttl: Seconds after which `watch`, which servers run, fetches the card again.
        trust: Whether the signature of the card is verified: `"off"`, `"warn"` or `"require"`.
        verify_card: Function, async or not, that raises an exception to refuse a card; it is called
            even if `trust` is `"off"`. By default, unless `trust` is `"off"`, a `CardVerifier` of
            `apcore_a2a_auth` for keys that the agent's own origin serves.
        wait: How the end of a task is awaited: on its stream, by polling, or by a notification.
        receiver: Receives the notifications for `wait="webhook"`.
        user_agent: The header `User-Agent` of requests.
        private_hosts: Names, addresses and networks in your private network to which the card of a
            public agent may lead; `*` for any. The origin of *url* and those in `credentials_for`
            are always allowed.
        client_options: Further arguments of `A2AClient`.

    Raises:
        ValueError: An argument is invalid.
        ImportError: The card must be verified, but `apcore-a2a-auth` is not installed.

    Example:
        ```python test="lint"
        import asyncio

        from apcore import Executor, Registry
        from apcore_a2a_remote import RemoteAgent


        async def main():
            registry = Registry()
            async with RemoteAgent("https://agent.example.com", name="weather") as agent:
                print(await agent.register(registry))
                executor = Executor(registry)
                print(await executor.call_async("remote.weather.today", {"city": "Berlin"}))


        asyncio.run(main())
        ```
    """

    def __init__(
        self,
        url: str,
        *,
        name: str,
        auth: Any = None,
        forward: Forward | None = None,
        approve: Literal["remote", "local"] = "remote",
        expose: bool = False,
        timeout: float | None = None,
        max_open: int = 8,
        card_ttl: float = 300,
        trust: Literal["off", "warn", "require"] = "off",
        verify_card: Callable[[dict[str, Any]], Any] | None = None,
        wait: Literal["stream", "poll", "webhook"] = "stream",
        receiver: WebhookReceiver | None = None,
        user_agent: str | None = None,
        private_hosts: Sequence[str] = (),
        **client_options: Any,
    ) -> None:
        if not NAME.fullmatch(name):
            expected = "at most 64 lower-case letters, digits and _, beginning with a letter"
            raise ValueError(f"name must be {expected}, not {name!r}")
        _check_choice("approve", approve, ("remote", "local"))
        _check_choice("trust", trust, ("off", "warn", "require"))
        _check_choice("wait", wait, ("stream", "poll", "webhook"))
        if max_open < 1:
            raise ValueError("max_open must be at least 1")
        if timeout is not None and timeout <= 0:
            raise ValueError("timeout must be more than 0 seconds")
        if wait == "webhook" and receiver is None:
            raise ValueError('wait="webhook" needs a receiver=WebhookReceiver(…)')
        super().__init__(
            url,
            name=name,
            auth=auth,
            forward=forward,
            approve=approve,
            expose=expose,
            timeout=timeout,
            max_open=max_open,
            card_ttl=card_ttl,
            trust=trust,
            verify_card=verify_card,
            wait=wait,
            receiver=receiver,
            user_agent=user_agent,
            private_hosts=private_hosts,
            **client_options,
        )
        self._card_ttl = card_ttl
        self._registries: list[tuple[Any, Registered]] = []
        self._is_up = False
        self._watch_task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<RemoteAgent {self.name}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def register(self, registry: Any) -> list[str]:
        """Register the agent's skills as modules, and return their ids.

        Args:
            registry: An apcore Registry; `refresh` keeps the agent's modules in it up to date.

        Raises:
            A2AError: The agent can't be reached, or has no card that can be used.
        """
        await self._fetch()
        registered = self._track_registry(registry)
        self._apply(registry, registered)
        return sorted(registered)

    def _track_registry(self, registry: Any) -> Registered:
        """Return the agent's modules in *registry*; from now on, `refresh` updates them."""
        for known_registry, registered in self._registries:
            if known_registry is registry:
                return registered
        self._registries.append((registry, {}))
        return self._registries[-1][1]

    async def refresh(self) -> list[str]:
        """Fetch the card again, and register its skills; return the ids of their modules.

        Modules are added for new skills, and removed for skills that the card no longer lists.
        Running calls continue. If the card can't be fetched, all modules stay.

        Raises:
            A2AError: The agent can't be reached, or has no card that can be used.
        """
        await self._fetch()
        for registry, registered in self._registries:
            self._apply(registry, registered)
        return sorted({module_id for _, registered in self._registries for module_id in registered})

    async def watch(self) -> None:
        """Refresh every `card_ttl` seconds until canceled; retry failures with a backoff."""
        delay = FIRST_RETRY_DELAY
        while True:
            await asyncio.sleep(max(self._card_ttl, FIRST_RETRY_DELAY) if self._is_up else delay)
            was_up = self._is_up
            try:
                await self.refresh()
            except A2AError as error:
                delay = FIRST_RETRY_DELAY if was_up else min(2 * delay, MAX_RETRY_DELAY)
                if was_up:
                    self._log_down(error)
            else:
                delay = FIRST_RETRY_DELAY

    async def start(self, registry: Any) -> None:
        """Register the skills and keep them up to date; if the agent is down, retry later.

        Servers call this for their companions.
        """
        self._track_registry(registry)
        first_attempt = asyncio.Event()
        self._watch_task = asyncio.create_task(self._start(first_attempt))
        with suppress(TimeoutError):
            async with asyncio.timeout(START_TIMEOUT):
                await first_attempt.wait()

    async def _start(self, first_attempt: asyncio.Event) -> None:
        try:
            await self.refresh()
        except A2AError as error:
            self._log_down(error)
        first_attempt.set()
        await self.watch()

    async def aclose(self) -> None:
        """Stop watching, wait for pending cancellations, and close this loop's connections."""
        if self._watch_task is not None:
            self._watch_task.cancel()
            await asyncio.wait([self._watch_task])
            self._watch_task = None
        loop = asyncio.get_running_loop()
        pending = [task for task in self._background if task.get_loop() is loop]
        if pending:
            await asyncio.wait(pending, timeout=CANCEL_TIMEOUT)
        client = self._clients.pop(loop, None)
        if client is not None:
            await client.aclose()

    def is_ready(self) -> bool:
        """Return whether the last attempt to fetch the card succeeded."""
        return self._is_up

    def figures(self) -> dict[str, float]:
        """Return the number of open calls for the metrics."""
        return {"open_remote_calls": self.open_calls}

    def routes(self) -> Mapping[str, Any]:
        """Return the ASGI application that receives notifications, by its path, if there is one."""
        return {} if self.receiver is None else {self.receiver.path: self.receiver}

    def public_keys(self) -> Sequence[Mapping[str, Any]]:
        """Return the keys that verify tokens minted by `forward`; our server publishes them."""
        read_keys: Any = getattr(self._forward, "public_keys", None)
        keys: Sequence[Mapping[str, Any]] = () if read_keys is None else read_keys()
        return keys

    async def send(
        self,
        skill: str,
        content: Content,
        *,
        on_event: Callable[[Event], Any] | None = None,
        context_id: str | None = None,
        task_id: str | None = None,
    ) -> Task:
        """Send a message to a skill, and return the task once it has ended or is paused.

        Args:
            skill: The id of the skill at the agent; empty if the agent's card lists no skills.
            content: A str, a dict (data), a list of parts, or a `Message`.
            on_event: Function, async or not, that is called with each event as it arrives. If the
                function raises an exception, the task is canceled.
            context_id: The conversation.
            task_id: The paused task that the message answers.

        Raises:
            A2AError: The agent can't be reached, or refuses the message.
            RemoteFailedError: The agent ended its response without a task.
        """
        task: Task | None = None
        message = Message.of(content)
        events = self.client.stream_message(
            message, skill=skill or None, context_id=context_id, task_id=task_id
        )
        try:
            async for event in events:
                task = apply_event(task, event)
                result: Any = on_event(event) if on_event is not None else None
                if hasattr(result, "__await__"):
                    await result
        except BaseException:  # `on_event` may raise anything; the task must not continue
            if task is not None and task.id and not task.status.state.is_terminal:
                await self.cancel(task.id, {})
            raise
        finally:
            await events.aclose()
        if task is None:
            raise RemoteFailedError
        return task

    async def reply(self, question: RemoteQuestion, answer: Content) -> Task:
        """Answer a question, and return the task once it has ended or is paused again.

        For programs without a server.

        Args:
            question: The exception that a call raised.
            answer: A str, dict (data) or list of parts; to approve or refuse, `"yes"` or `"no"`.

        Raises:
            ValueError: The question comes from another agent.
            A2AError: The agent can't be reached, or refuses the answer.
        """
        pending = Pending.read(question.details.get("state"))
        if pending is None or pending.remote != self.name:
            raise ValueError("The question comes from another agent")
        task = await self.client.get_task(pending.task)
        return await self.client.reply(task, answer)

    async def history(self, context: Any, history_length: int = 20) -> Sequence[Message]:
        """Return the last messages of a conversation at the agent, oldest first.

        Args:
            context: The apcore Context of a call in the conversation.
            history_length: The maximum number of messages.
        """
        conversation = self.conversation_of(context)
        if conversation is None:
            return []
        page = await self.client.list_tasks(conversation, history_length=history_length)
        messages = [message for task in reversed(page.tasks) for message in task.history]
        return messages[-history_length:]

    async def _fetch(self) -> None:
        """Fetch the card, or the extended card if the agent has one and we have credentials.

        Raises:
            A2AError: The agent can't be reached, or has no card that can be used.
        """
        try:
            card = await self.client.get_card(refresh=True)
            if card.capabilities.extended_agent_card and self._options["auth"] is not None:
                with suppress(A2AError):
                    card = await self.client.extended_card()
        except A2AError:
            self._is_up = False
            raise
        self._card, self._is_up = card, True

    def _apply(self, registry: Any, registered: Registered) -> None:
        """Register the skills of the card.

        Nothing is awaited, so no call of this event loop misses a module that is being replaced.
        """
        assert self._card is not None
        entries = entries_of(self._card, self.name, self.url)
        for module_id in registered.keys() - entries.keys():
            registry.unregister(module_id)
            del registered[module_id]
            logger.info("Removed %s", module_id, extra={"event": "module_removed"})
        for module_id, entry in entries.items():
            registration = registered.get(module_id)
            if registration is not None and registration[1] == entry:
                continue
            if registration is not None:
                registry.unregister(module_id)
                del registered[module_id]
            module = module_for(self, module_id, entry)
            try:
                registry.register(module_id, module)
            except ModuleError as error:  # for example, another module has the id
                extra = {"event": "remote_skill_skipped"}
                reason = clean(str(error), 300)
                logger.warning("Can't register %s: %s", module_id, reason, extra=extra)
                continue
            registered[module_id] = (module, entry)
            event = "module_added" if registration is None else "module_reloaded"
            logger.info("Registered %s", module_id, extra={"event": event})

    def _log_down(self, error: A2AError) -> None:
        extra = {"event": "remote_down"}
        reason = clean(f"{type(error).__name__}: {error}", 300)
        logger.warning("Remote agent %s is down: %s", self.name, reason, extra=extra)


def _check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
