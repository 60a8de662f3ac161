"""The operations of A2A (1.0 §3.1) on the engine.

Streams carry the versions of events. The SDK's `RequestHandler` has no place for versions, so
`apcore_a2a_server.bindings.sdk_handler` implements that interface on top of `Handler`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from a2a.utils import errors
from apcore_a2a_core.data import (
    ListTasksRequest,
    ListTasksResponse,
    SendMessageRequest,
    Task,
    TaskState,
)
from apcore_a2a_core.dialects import invalid
from apcore_a2a_core.records import seconds_of
from apcore_a2a_core.states import NAMES, PAUSED, TERMINAL
from msgspec import Struct
from msgspec.structs import replace

from apcore_a2a_server.errors import RetryLaterError, StaleTaskError
from apcore_a2a_server.modules.tenants import Tenants
from apcore_a2a_server.push.configs import PushConfigs
from apcore_a2a_server.store import Query, TaskRecord, Version, Webhook
from apcore_a2a_server.store.live import LiveTasks
from apcore_a2a_server.store.queries import Order
from apcore_a2a_server.store.subscribers import EventBatches, follow, last_status, snapshot
from apcore_a2a_server.trace_context import Trace

from .admission import Admission
from .call import Call, Ticket
from .clients import Caller, Streams, Watchers
from .engine import Engine
from .operators import OperatorRules, audit, is_foreign

if TYPE_CHECKING:  # `spans` needs an extra
    from apcore_a2a_server.spans import Spans

DEFAULT_PAGE_SIZE = 50
"""Default number of tasks on a page."""
MAX_PAGE_SIZE = 100
"""Maximum number of tasks on a page of `ListTasks` (A2A 1.0 §3.1.4)."""
MAX_CREATED_PAGE_SIZE = 200
"""Maximum number of tasks on a page of `tasks/list`."""

EARLY_REFUSALS = (errors.InvalidParamsError, errors.ContentTypeNotSupportedError, RetryLaterError)
"""Errors with which a message may be refused before apcore checks access to the skill."""


class Request(Struct, frozen=True):
    """A decoded request.

    Attributes:
        params: The params of the operation, such as a `GetTaskRequest`.
        caller: The sender of the request.
        last_event_id: The version of the last event that the client has; None if the request
            resumes no stream.
        version: The protocol version of the request.
    """

    params: Any
    caller: Caller
    last_event_id: int | None = None
    version: Version = "1.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """The operations of the protocol, each a method that takes a decoded request.

    Attributes:
        engine: Runs calls.
        admission: Turns messages into calls, or refuses them.
        tasks: The live tasks of this process, and the store behind them.
        watchers: Counts the clients that wait for each task.
        streams: Limits open streams.
        keep_alive: Seconds without an event after which a stream sends a keep-alive.
        make_card: Makes the extended card for a caller; None if the agent has no authentication.
        push: The push configs of tasks; None if push notifications are off.
        tenants: The tenants; None if there are none.
        operator_rules: The rules for access to tasks of other principals.
    """

    engine: Engine
    admission: Admission
    tasks: LiveTasks
    watchers: Watchers
    streams: Streams
    keep_alive: float = 15
    make_card: Callable[[Caller], Awaitable[dict[str, Any]]] | None = None
    push: PushConfigs | None = None
    tenants: Tenants | None = None
    operator_rules: OperatorRules = field(default_factory=OperatorRules)

    async def enter_tenant(self, name: str, caller: Caller) -> Caller:
        """Return *caller* with the tenant that the params name.

        Raises:
            InvalidParamsError: The tenant is unknown, or differs from the one in the path.
        """
        if caller.tenant is not None and caller.tenant.name == name:
            return caller
        tenant = None
        if self.tenants is not None and caller.tenant is None:
            tenant = await self.tenants.find(name, caller.identity)
        if tenant is None:
            reason = "must be a tenant of this agent, and match the tenant in the path, if any"
            raise invalid("params.tenant", reason)
        return replace(caller, tenant=tenant)

    def admit(self, request: Request, *, streaming: bool) -> Awaitable[Ticket]:
        """Start or resume the task of a message.

        Raises:
            A2AError: The message is refused.
        """
        pending_ticket = self._admit(request, streaming=streaming)
        if self.admission.setup.spans is None:
            return pending_ticket
        return _in_span(self.admission.setup.spans, request.caller, pending_ticket)

    async def _admit(self, request: Request, *, streaming: bool) -> Ticket:
        """Start or resume the task of a message; see `admit`."""
        params: SendMessageRequest = request.params
        caller = request.caller
        config = params.configuration.task_push_notification_config
        push = None if config is None else self._push_configs()
        record = await self.admission.find_task(params, caller, request.version)
        if record is None:
            try:
                call = await self.admission.new_call(params, caller, streaming=streaming)
                webhook = await self._webhook(push, request, call.trace)
                try:
                    return await self.engine.start(_with_webhook(call, webhook))
                except asyncio.CancelledError:
                    self._count_canceled_client(call)
                    raise
            except EARLY_REFUSALS:
                # these errors could reveal something about the skill
                await self.admission.check_access(params, caller)
                raise
        params.message.task_id = record.task.id
        foreign_record = record if is_foreign(record, caller) else None
        if foreign_record is not None and push is not None:
            raise errors.UnsupportedOperationError("Only the requester can add a push config")
        webhook = await self._webhook(push, request, Trace.of_task(record.task.metadata))
        if record.task.status.state not in PAUSED:
            # a late answer: the client gets the task as it is, from the task's last event on
            await self.engine.add_webhook(record.task.id, webhook)
            return Ticket(record.task.id, record.version - 1, foreign_record=foreign_record)
        with self.operator_rules.hiding_reasons(record, caller):
            resumed_call = self.admission.resumed_call
            call, pause = await resumed_call(record, params, caller, streaming=streaming)
            resumption = self.engine.resume(record, _with_webhook(call, webhook), pause)
            # shielded: once given, an answer counts even if its client disconnects
            if foreign_record is not None:
                return replace(await asyncio.shield(resumption), foreign_record=foreign_record)
            try:
                return await asyncio.shield(resumption)
            except asyncio.CancelledError:
                self._count_canceled_client(call)
                raise

    def _count_canceled_client(self, call: Call) -> None:
        """Count the client of a canceled request as waiting for the task of *call*.

        Over gRPC, a disconnect cancels the request, perhaps before `send` or `stream` knows the
        task and counts the client.
        """
        self.watchers.enter(call.message.task_id, call.caller.connection)

    async def send(self, request: Request) -> Task:
        """Send a message (§3.1.1); return its task when the task has ended or paused.

        With `return_immediately`, return the task at once.

        Raises:
            ClientDisconnectedError: The client disconnected before the task ended or paused.
        """
        ticket = await self.admit(request, streaming=False)
        caller = request.caller
        if request.params.configuration.return_immediately:
            owner = caller.owner if ticket.foreign_record is None else ticket.foreign_record.owner
            return await self._current(ticket.task_id, owner, caller)
        if ticket.ended_record is not None:
            return self._view(ticket.ended_record, caller)
        if ticket.foreign_record is None:  # else the task does not depend on this client
            self.watchers.enter(ticket.task_id, caller.connection)
        with caller.connection.watched():
            return self._view(await self.tasks.wait_until_settled(ticket.task_id), caller)

    async def stream(self, request: Request) -> EventBatches:
        """Send a message (§3.1.2); return the events of its task from the message on.

        Raises:
            RetryLaterError: Too many streams are open.
        """
        self.streams.hold(request.caller.client, request.caller.connection)
        ticket = await self.admit(request, streaming=True)
        events = follow(self.tasks, ticket.task_id, ticket.after_version, idle=self.keep_alive)
        if ticket.foreign_record is not None:  # the task does not depend on this client
            return self.operator_rules.visible_events(events, ticket.foreign_record, request.caller)
        self.watchers.enter(ticket.task_id, request.caller.connection)
        return events

    async def subscribe(self, request: Request) -> EventBatches:
        """Return the events of a task from now on, or after the client's last event (§3.1.6).

        The stream stays open while the task is paused, and ends with the task. From a pause on, the
        client is an observer, whose disconnect alone does not cancel the task.

        Raises:
            UnsupportedOperationError: The task has ended, and the request resumes no stream.
            RetryLaterError: Too many streams are open.
        """
        record = await self._get_task_to_follow(request)
        if _has_nothing_to_follow(record, request):
            raise errors.UnsupportedOperationError("The task has ended")
        return self._subscribe(record, request)

    async def resubscribe(self, request: Request) -> EventBatches:
        """Subscribe as in 0.3: the stream of an ended task has its last status (FR-MSG-006.4)."""
        record = await self._get_task_to_follow(request)
        if _has_nothing_to_follow(record, request):
            return self.operator_rules.visible_events(last_status(record), record, request.caller)
        return self._subscribe(record, request)

    async def _get_task_to_follow(self, request: Request) -> TaskRecord:
        return await self.admission.get_visible_task(
            "SubscribeToTask", request.params.id, request.caller
        )

    def _subscribe(self, record: TaskRecord, request: Request) -> EventBatches:
        """Return the events of a task from now on, or after the client's last event."""
        resumes_stream = _resumes_stream(record, request)
        task_id, connection = record.task.id, request.caller.connection
        self.streams.hold(request.caller.client, connection)
        is_foreign_task = is_foreign(record, request.caller)
        observe = partial(self.watchers.observe, task_id, connection)
        if not is_foreign_task:  # else the task does not depend on this client
            self.watchers.enter(task_id, connection)
            if record.task.status.state in PAUSED:
                observe()
        events = follow(
            self.tasks,
            task_id,
            (request.last_event_id or 0) if resumes_stream else record.version,
            first=None if resumes_stream else snapshot(record),
            until=TERMINAL,
            on_pause=None if is_foreign_task else observe,
            idle=self.keep_alive,
        )
        return self.operator_rules.visible_events(events, record, request.caller)

    async def get(self, request: Request) -> Task:
        """Return the task as it is now (§3.1.3, FR-TSK-004)."""
        record = await self.admission.get_visible_task("GetTask", request.params.id, request.caller)
        return self._view(record, request.caller)

    async def list(self, request: Request) -> ListTasksResponse:
        """Return a page of the caller's tasks, latest status first (§3.1.4).

        An operator gets the tasks of all principals.
        """
        params: ListTasksRequest = request.params
        page_size = DEFAULT_PAGE_SIZE if params.page_size is None else params.page_size
        if not 1 <= page_size <= MAX_PAGE_SIZE:
            raise invalid("params.pageSize", f"must be from 1 to {MAX_PAGE_SIZE}")
        return await self._page(request, page_size, "updated")

    async def list_created(self, request: Request) -> ListTasksResponse:
        """Return a page of the caller's tasks, newest first: `tasks/list` (FR-TSK-006)."""
        page_size = min(request.params.page_size or DEFAULT_PAGE_SIZE, MAX_CREATED_PAGE_SIZE)
        return await self._page(request, page_size, "created")

    async def cancel(self, request: Request) -> Task:
        """Cancel a task that has not ended (§3.1.5, FR-TSK-005).

        Raises:
            TaskNotCancelableError: The task has ended.
            UnsupportedOperationError: The caller may only approve or reject requests for approval.
        """
        caller = request.caller
        record = await self.admission.get_visible_task("CancelTask", request.params.id, caller)
        if not self.operator_rules.may_operate(record, caller):
            raise errors.UnsupportedOperationError("An approver can't cancel the task")
        canceled_by = caller.principal if is_foreign(record, caller) else ""
        try:
            await asyncio.shield(self.engine.cancel(record, canceled_by))
        except StaleTaskError:
            task = await self._current(record.task.id, record.owner, caller)
            message = f"Task is not cancelable: current state is {NAMES[task.status.state]}"
            raise errors.TaskNotCancelableError(message) from None
        return await self._current(record.task.id, record.owner, caller)

    async def push_config(self, request: Request) -> Any:
        """Set, get, list or delete push configs of a task; return JSON (§3.1.7 to §3.1.10).

        Raises:
            PushNotificationNotSupportedError: Push notifications are off.
        """
        push, params = self._push_configs(), request.params
        record = await self.admission.get_own_task(params.task_id, request.caller)
        trace = Trace.of_task(record.task.metadata)
        return await push.answer(params, request.version, request.caller.principal, trace)

    async def extended_card(self, request: Request) -> dict[str, Any]:
        """Return the card for the caller, as JSON that is valid in A2A 0.3 and 1.0 (§3.1.11).

        Raises:
            UnsupportedOperationError: The agent has no authentication, so its public card declares
                no extended card (1.0 §3.3.4).
            ExtendedAgentCardNotConfiguredError: The same, for a request of version 0.3.
        """
        if self.make_card is None:
            if request.version == "1.0":
                raise errors.UnsupportedOperationError("This agent has no extended Agent Card")
            raise errors.ExtendedAgentCardNotConfiguredError
        return await self.make_card(request.caller)

    def _view(self, record: TaskRecord, caller: Caller) -> Task:
        """Return a task as *caller* may see it."""
        rules = self.operator_rules
        # the same as `not rules.are_set`, without a call: this runs for each message
        only_owners_have_access = rules.operators is None and rules.approvers is None
        return record.task if only_owners_have_access else rules.view(record, caller)

    def _push_configs(self) -> PushConfigs:
        if self.push is None:
            raise errors.PushNotificationNotSupportedError
        return self.push

    async def _webhook(
        self, push: PushConfigs | None, request: Request, trace: Trace | None
    ) -> Webhook | None:
        """Return the webhook that the message requests; None if *push* is None."""
        if push is None:
            return None
        principal = request.caller.principal
        return await push.requested_webhook(request.params, request.version, principal, trace)

    async def _current(self, task_id: str, owner: str, caller: Caller) -> Task:
        """Return a task as it is now, as *caller* may see it."""
        record = await self.tasks.get_own(task_id, owner)
        if record is None:
            raise errors.TaskNotFoundError
        return self._view(record, caller)

    async def _page(self, request: Request, size: int, order: Order) -> ListTasksResponse:
        params: ListTasksRequest = request.params
        query = Query(
            owner=request.caller.owner,
            context_id=params.context_id,
            state=None if params.status is TaskState.TASK_STATE_UNSPECIFIED else params.status,
            after=seconds_of(params.status_timestamp_after),
            order=order,
            cursor=params.page_token or None,
            limit=size,
        )
        if self.operator_rules.is_operator(request.caller):
            audit("ListTasks", request.caller)
            query = self.operator_rules.widened_query(query, request.caller)
        page = await self.tasks.store.query(query)
        return ListTasksResponse(
            tasks=[self._view(record, request.caller) for record in page.records],
            next_page_token=page.next_cursor or "",
            page_size=size,
            total_size=page.total,
        )


async def _in_span(spans: "Spans", caller: Caller, pending_ticket: Awaitable[Ticket]) -> Ticket:
    """Admit a message within a span."""
    with spans.span("admit", spans.SERVER, caller.trace):
        return await pending_ticket


def _with_webhook(call: Call, webhook: Webhook | None) -> Call:
    return call if webhook is None else replace(call, webhook=webhook)


def _resumes_stream(record: TaskRecord, request: Request) -> bool:
    """Return whether *request* resumes a stream after the last event that the client has."""
    # a Last-Event-ID beyond the log is not from this task's stream: ignore it
    return request.last_event_id is not None and request.last_event_id <= record.version


def _has_nothing_to_follow(record: TaskRecord, request: Request) -> bool:
    """Return whether a task has ended, and the request resumes no stream."""
    return record.task.status.state in TERMINAL and not _resumes_stream(record, request)
