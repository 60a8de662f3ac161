"""The operations of A2A (1.0 §3.1) on the engine.

Streams carry the versions of events, which the SDK's `RequestHandler` has no room for;
`apcore_a2a_server.bindings.compat` puts that interface on top of this one.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from a2a import types as a2a
from a2a.utils import errors
from apcore_a2a_core.dialects import invalid
from apcore_a2a_core.states import NAMES, PAUSED, TERMINAL

from apcore_a2a_server.errors import StaleTaskError, TooMuchError
from apcore_a2a_server.push.configs import PushConfigs
from apcore_a2a_server.store import Event, Query, Version
from apcore_a2a_server.store.live import LiveTasks
from apcore_a2a_server.store.port import Order
from apcore_a2a_server.store.subscribers import attach, ending, follow

from .admission import Admission
from .call import Ticket
from .clients import Caller, Streams, Watchers
from .engine import Engine

Events: TypeAlias = AsyncGenerator[Event | None]

DEFAULT_PAGE = 50
MAX_PAGE = 100
MAX_CREATED_PAGE = 200


@dataclass(frozen=True, slots=True)
class Request:
    """A request that has been decoded.

    Attributes:
        message: The request in the SDK's types, such as `a2a.types.GetTaskRequest`.
        caller: Who sends it.
        parts: The parts of a message as they came in JSON, where integers are exact.
        last_id: The last event that a reader has.
        version: The version of the protocol that it came in.
    """

    message: Any
    caller: Caller
    parts: Sequence[Any] | None = None
    last_id: int | None = None
    version: Version = "1.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """Answers requests that have been decoded.

    Attributes:
        engine: Runs calls.
        admission: Decides which messages may run.
        tasks: Where tasks live.
        watchers: Knows who waits for which task.
        streams: Limits the streams that are open.
        keep_alive: Seconds of silence after which a stream says that it is alive.
        card: Makes the card for a caller; None when nothing authenticates.
        push: The webhooks of tasks; None when none are called.
    """

    engine: Engine
    admission: Admission
    tasks: LiveTasks
    watchers: Watchers
    streams: Streams
    keep_alive: float = 15
    card: Callable[[Caller], Awaitable[dict[str, Any]]] | None = None
    push: PushConfigs | None = None

    async def admit(self, request: Request, *, streaming: bool) -> Ticket:
        """Start the message's task, or go on with it; everything that refuses it is raised."""
        send: a2a.SendMessageRequest = request.message
        caller, parts = request.caller, request.parts
        wish = send.configuration.HasField("task_push_notification_config")
        push = self._webhooks() if wish else None
        record = await self.admission.addressed(send, caller)
        if record is None:
            try:
                call = self.admission.call(send, caller, parts, streaming=streaming)
                if push is not None:
                    webhook = await push.wish(send, request.version, caller.owner)
                    call = replace(call, webhook=webhook)
                return await self.engine.start(call)
            except (errors.InvalidParamsError, TooMuchError):
                await self.admission.check_access(send, caller)
                raise
        send.message.task_id = record.task.id
        added = None if push is None else await push.wish(send, request.version, caller.owner)
        if record.task.status.state not in PAUSED:
            if push is not None and added is not None:
                await push.set(record.task.id, added)
            return Ticket(record.task.id, record.version - 1)
        call, pause = self.admission.reply(record, send, caller, parts, streaming=streaming)
        call = replace(call, webhook=added)
        return await asyncio.shield(self.engine.resume(record, call, pause))

    async def send(self, request: Request) -> a2a.Task:
        """Send a message (§3.1.1): the task when it has settled, or at once if so asked for.

        Raises:
            HungUpError: The client has gone before the task has settled.
        """
        ticket = await self.admit(request, streaming=False)
        if request.message.configuration.return_immediately:
            return await self._task(ticket.task_id, request)
        self.watchers.enter(ticket.task_id, request.caller.connection)
        with request.caller.connection.watched():
            return (await self.tasks.settled(ticket.task_id)).task

    async def stream(self, request: Request) -> Events:
        """Send a message (§3.1.2): the events of its task from here on.

        Raises:
            TooMuchError: Too many streams are open.
        """
        self.streams.enter(request.caller.client, request.caller.connection)
        ticket = await self.admit(request, streaming=True)
        self.watchers.enter(ticket.task_id, request.caller.connection)
        return follow(self.tasks, ticket.task_id, ticket.since, idle=self.keep_alive)

    async def subscribe(self, request: Request) -> Events:
        """A task's events from now on, or all behind the last that the reader has (§3.1.6).

        Raises:
            UnsupportedOperationError: The task has ended, and the reader tells no last event.
            TooMuchError: Too many streams are open.
        """
        record = await self.admission.own_task(request.message.id, request.caller)
        missed = request.last_id is not None and request.last_id <= record.version
        if record.task.status.state in TERMINAL and not missed:
            raise errors.UnsupportedOperationError("The task has ended")
        self.streams.enter(request.caller.client, request.caller.connection)
        self.watchers.enter(record.task.id, request.caller.connection)
        if missed:
            after = request.last_id or 0
            return follow(self.tasks, record.task.id, after, idle=self.keep_alive)
        return attach(self.tasks, record, idle=self.keep_alive)

    async def resubscribe(self, request: Request) -> Events:
        """The same for 0.3, where a task that has ended tells its last status (FR-MSG-006.4)."""
        try:
            return await self.subscribe(request)
        except errors.UnsupportedOperationError:
            return ending(await self.admission.own_task(request.message.id, request.caller))

    async def get(self, request: Request) -> a2a.Task:
        """The task as it is now (§3.1.3, FR-TSK-004)."""
        return await self._task(request.message.id, request)

    async def list(self, request: Request) -> a2a.ListTasksResponse:
        """The caller's tasks, latest status first (§3.1.4)."""
        asked: a2a.ListTasksRequest = request.message
        size = asked.page_size if asked.HasField("page_size") else DEFAULT_PAGE
        if not 1 <= size <= MAX_PAGE:
            raise invalid("params.pageSize", f"must be from 1 to {MAX_PAGE}")
        return await self._page(request, size, "updated")

    async def list_created(self, request: Request) -> a2a.ListTasksResponse:
        """The caller's tasks, newest first: `tasks/list` (FR-TSK-006)."""
        size = min(request.message.page_size or DEFAULT_PAGE, MAX_CREATED_PAGE)
        return await self._page(request, size, "created")

    async def cancel(self, request: Request) -> a2a.Task:
        """Cancel a task that has not ended (§3.1.5, FR-TSK-005).

        Raises:
            TaskNotCancelableError: It has ended.
        """
        record = await self.admission.own_task(request.message.id, request.caller)
        try:
            await asyncio.shield(self.engine.cancel(record))
        except StaleTaskError:
            state = NAMES[(await self.get(request)).status.state]
            message = f"Task is not cancelable: current state is {state}"
            raise errors.TaskNotCancelableError(message) from None
        return await self.get(request)

    async def push_config(self, request: Request) -> Any:
        """Set, get, list or delete webhooks of a task, as JSON (§3.1.7 to §3.1.10).

        Raises:
            PushNotificationNotSupportedError: No webhooks are called.
        """
        push, asked = self._webhooks(), request.message
        await self.admission.own_task(asked.task_id, request.caller)
        return await push.answer(asked, request.version, request.caller.owner)

    async def extended_card(self, request: Request) -> dict[str, Any]:
        """The card for who calls, as JSON of both versions (§3.1.11).

        Raises:
            ExtendedAgentCardNotConfiguredError: Nothing authenticates.
        """
        if self.card is None:
            raise errors.ExtendedAgentCardNotConfiguredError
        return await self.card(request.caller)

    def _webhooks(self) -> PushConfigs:
        if self.push is None:
            raise errors.PushNotificationNotSupportedError
        return self.push

    async def _task(self, task_id: str, request: Request) -> a2a.Task:
        return (await self.admission.own_task(task_id, request.caller)).task

    async def _page(self, request: Request, size: int, order: Order) -> a2a.ListTasksResponse:
        asked: a2a.ListTasksRequest = request.message
        after = asked.status_timestamp_after
        query = Query(
            owner=request.caller.owner,
            context_id=asked.context_id,
            state=asked.status or None,
            after=after.seconds + after.nanos / 1e9,
            order=order,
            cursor=asked.page_token or None,
            limit=size,
        )
        page = await self.tasks.store.query(query)
        return a2a.ListTasksResponse(
            tasks=[record.task for record in page.records],
            next_page_token=page.next_cursor,
            page_size=size,
            total_size=page.total,
        )
