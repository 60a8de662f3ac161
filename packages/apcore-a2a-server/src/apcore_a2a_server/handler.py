"""The operations of A2A (1.0 §3.1) on the engine.

Streams carry the versions of events, which the SDK's `RequestHandler` has no room for;
`apcore_a2a_server.compat` puts that interface on top of this one.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, NoReturn

from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    GetExtendedAgentCardRequest,
    GetTaskRequest,
    ListTasksRequest,
    ListTasksResponse,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
)
from a2a.utils.errors import (
    ExtendedAgentCardNotConfiguredError,
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

from .admission import Admission, Caller
from .decode import invalid
from .engine import Engine, Ticket
from .errors import StaleTaskError
from .ids import new_id
from .journal import Event, Journal, Order, Query
from .states import NAMES, TERMINAL
from .subscribers import attach, ending, follow

DEFAULT_PAGE = 50
MAX_PAGE = 100
MAX_CREATED_PAGE = 200


class Handler:
    """Answers requests that have been decoded.

    Args:
        engine: Runs calls.
        admission: Decides which messages may run.
        journal: Where tasks live.
        keep_alive: Seconds of silence after which a stream says that it is alive.
    """

    def __init__(
        self, engine: Engine, admission: Admission, journal: Journal, *, keep_alive: float = 15
    ) -> None:
        self._engine = engine
        self._admission = admission
        self._journal = journal
        self._keep_alive = keep_alive

    async def admit(
        self,
        request: SendMessageRequest,
        caller: Caller,
        parts: Sequence[Any] | None = None,
        *,
        streaming: bool = False,
    ) -> Ticket:
        """Start the message's task, or go on with it; everything that refuses it is raised.

        Args:
            request: The message and its configuration.
            caller: Who sends it.
            parts: The message's parts as JSON, where integers are exact.
            streaming: Whether the module's own stream is wanted.
        """
        message = request.message
        if not message.parts:
            raise InvalidParamsError("Message must contain at least one Part")
        if request.configuration.HasField("task_push_notification_config"):
            raise PushNotificationNotSupportedError
        message.message_id = message.message_id or new_id()
        record = await self._admission.paused(request, caller)
        if record is not None:
            return await self._engine.resume(record, message, caller, streaming=streaming)
        call = self._admission.call(request, caller, parts, streaming=streaming)
        return await self._engine.start(call)

    def follow(self, ticket: Ticket) -> AsyncIterator[Event | None]:
        """The events of an admitted message."""
        return follow(self._journal, ticket.task_id, ticket.since, idle=self._keep_alive)

    async def send(
        self, request: SendMessageRequest, caller: Caller, parts: Sequence[Any] | None = None
    ) -> Task:
        """Send a message; the task when it has ended or paused, or at once if so asked for."""
        ticket = await self.admit(request, caller, parts)
        if not request.configuration.return_immediately:
            await self._journal.settled(ticket.task_id)
        return await self._task(ticket.task_id)

    async def attach(
        self,
        request: SubscribeToTaskRequest,
        caller: Caller,
        last_id: int | None = None,
        *,
        ended: bool = False,
    ) -> AsyncIterator[Event | None]:
        """The events of a task from now on, or all that came behind version *last_id*.

        Args:
            request: Names the task.
            caller: Who asks.
            last_id: The last version that the reader has.
            ended: Whether a task that has ended is answered with its last status.

        Raises:
            TaskNotFoundError: There is no such task, or it is somebody else's.
            UnsupportedOperationError: The task has ended.
        """
        record = await self._admission.own_task(request.id, caller)
        if last_id is not None and last_id <= record.version:
            return follow(self._journal, request.id, last_id, idle=self._keep_alive)
        if record.task.status.state not in TERMINAL:
            return attach(self._journal, record, idle=self._keep_alive)
        if not ended:
            raise UnsupportedOperationError("The task has ended")
        return ending(record)

    async def get(self, request: GetTaskRequest, caller: Caller) -> Task:
        """The task as it is now (§3.1.3, FR-TSK-004)."""
        return (await self._admission.own_task(request.id, caller)).task

    async def list(self, request: ListTasksRequest, caller: Caller) -> ListTasksResponse:
        """The caller's tasks, latest status first (§3.1.4)."""
        size = request.page_size if request.HasField("page_size") else DEFAULT_PAGE
        if not 1 <= size <= MAX_PAGE:
            raise invalid("params.pageSize", f"must be from 1 to {MAX_PAGE}")
        return await self._list(request, caller, "updated", size)

    async def list_created(self, request: ListTasksRequest, caller: Caller) -> ListTasksResponse:
        """The caller's tasks, newest first: `tasks/list` (FR-TSK-006)."""
        size = min(request.page_size or DEFAULT_PAGE, MAX_CREATED_PAGE)
        return await self._list(request, caller, "created", size)

    async def _list(
        self, request: ListTasksRequest, caller: Caller, order: Order, size: int
    ) -> ListTasksResponse:
        after = (
            request.status_timestamp_after if request.HasField("status_timestamp_after") else None
        )
        query = Query(
            owner=caller.owner,
            context_id=request.context_id,
            state=request.status or None,
            after=after and after.seconds + after.nanos / 1e9,
            order=order,
            cursor=request.page_token or None,
            limit=size,
        )
        page = await self._journal.page(query)
        return ListTasksResponse(
            tasks=[record.task for record in page.records],
            next_page_token=page.next_cursor,
            page_size=size,
            total_size=page.total,
        )

    async def cancel(self, request: CancelTaskRequest, caller: Caller) -> Task:
        """Cancel a task that has not ended (§3.1.5, FR-TSK-005).

        Raises:
            TaskNotCancelableError: It has ended.
        """
        record = await self._admission.own_task(request.id, caller)
        try:
            if record.task.status.state in TERMINAL:
                raise StaleTaskError
            await asyncio.shield(self._engine.cancel(record))
        except StaleTaskError:
            state = NAMES[(await self._admission.own_task(request.id, caller)).task.status.state]
            raise TaskNotCancelableError(
                f"Task is not cancelable: current state is {state}"
            ) from None
        return await self._task(request.id)

    async def push_config(self, request: object, caller: Caller) -> NoReturn:
        """Push notifications are not there (§3.3.4)."""
        raise PushNotificationNotSupportedError

    async def extended_card(
        self, request: GetExtendedAgentCardRequest, caller: Caller
    ) -> AgentCard:
        """There is no extended card without authentication (§3.1.11)."""
        raise ExtendedAgentCardNotConfiguredError

    async def _task(self, task_id: str) -> Task:
        record = await self._journal.get(task_id)
        if record is None:
            raise TaskNotFoundError
        return record.task
