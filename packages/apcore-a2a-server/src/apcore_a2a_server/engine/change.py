"""The one function that changes tasks, and the updates it applies.

`change` compares the expected state with the actual one, gives every event the next version of
the task, and writes record and events in one transaction.
"""

import logging
from collections.abc import Collection

from apcore_a2a_core.authoring import USAGE, add_usage
from apcore_a2a_core.data import (
    Artifact,
    Json,
    Message,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from apcore_a2a_core.records import trim
from apcore_a2a_core.states import NAMES, PAUSED, SETTLED, TRANSITIONS, WORKING
from apcore_a2a_core.values import is_object, size_of
from msgspec import Struct, structs

from apcore_a2a_server.errors import InvalidStateTransitionError, StaleTaskError
from apcore_a2a_server.modules.tenants import principal_and_tenant
from apcore_a2a_server.store import Lease, Payload, SendKey, StaleError, TaskRecord, Webhook
from apcore_a2a_server.store.artifacts import join_texts
from apcore_a2a_server.store.live import LiveTasks
from apcore_a2a_server.store.port import PROGRESS, fold
from apcore_a2a_server.trace_context import dump_wait

from .messages import now

logger = logging.getLogger(__name__)


EVENT_SIZE = 200
"""Approximate size of an event without its parts or its message, in bytes."""


class Update(Struct, frozen=True):
    """A change of a task that results in one event."""

    def apply(self, record: TaskRecord) -> Payload:
        """Apply the change to the task of *record*, and return its event.

        The members of the task are replaced, not changed in place: readers may hold the old ones.
        Only the list of an artifact's parts grows in place; see `_successor`.
        """
        raise NotImplementedError

    @property
    def growth(self) -> int | None:
        """Approximate bytes that the update adds to task and event log, if known; else None."""
        return None


class NewState(Update, frozen=True):
    """A transition to a state, or a new status in the same state.

    Attributes:
        state: The new state.
        message: The agent's message in the new status.
        received: The client's message that caused the transition.
        resume: The packed call or pause, from which the task can continue.
        deadline: Time at which a paused task expires, in seconds since the epoch.
        skill_id: The skill that the client has chosen; None if the task had one before.
        metadata: Metadata that the module adds to the task.
        reply: The agent's message for the history, with the text of the module's output.
        decision: The act of another principal that caused the transition; see `Decision`.
    """

    state: TaskState
    message: Message | None = None
    received: Message | None = None
    resume: bytes | None = None
    deadline: float | None = None
    skill_id: str | None = None
    metadata: Json | None = None
    reply: Message | None = None
    decision: "Decision | None" = None

    def apply(self, record: TaskRecord) -> TaskStatusUpdateEvent:
        """Make the transition.

        Raises:
            InvalidStateTransitionError: The state machine does not allow it.
        """
        task, before = record.task, record.task.status.state
        if self.state not in TRANSITIONS.get(before, ()):
            names = NAMES[before], NAMES[self.state]
            event = {"event": "invalid_transition"}
            logger.error("Task %s: invalid transition %s -> %s", task.id, *names, extra=event)
            raise InvalidStateTransitionError
        return set_status(record, self)


class Decision(Struct, frozen=True):
    """An answer or a cancellation by another principal than the task's.

    Attributes:
        principal: The principal.
        act: `approved`, `rejected`, `answered` or `canceled`.
    """

    principal: str
    act: str


class NewProgress(Update, frozen=True):
    """A progress message: an event that changes nothing in the task."""

    message: Message

    def apply(self, record: TaskRecord) -> TaskStatusUpdateEvent:
        """Return the event."""
        task = record.task
        status = TaskStatus(state=task.status.state, message=self.message, timestamp=now())
        return TaskStatusUpdateEvent(
            task_id=task.id, context_id=task.context_id, status=status, metadata=PROGRESS
        )

    @property
    def growth(self) -> int:
        """The bytes of the event, which only the event log has."""
        return EVENT_SIZE + size_of(self.message)


class NewParts(Update, frozen=True):
    """Parts of the task's artifact: they replace it, or with `append` are added to it.

    Attributes:
        artifact: The parts, in an artifact.
        size: The size of the parts as JSON, in bytes.
        append: Whether the parts are added to the artifact instead of replacing it.
        last: Whether they are the last parts.
    """

    artifact: Artifact
    size: int
    append: bool = False
    last: bool = False

    def apply(self, record: TaskRecord) -> TaskArtifactUpdateEvent:
        """Add the parts, or replace the artifact with them."""
        artifact_update = TaskArtifactUpdateEvent(
            task_id=record.task.id,
            context_id=record.task.context_id,
            artifact=self.artifact,
            append=self.append,
            last_chunk=self.last,
            metadata={"apcore": {"timestamp": now()}},
        )
        fold(record.task, artifact_update)
        return artifact_update

    @property
    def growth(self) -> int:
        """The bytes of the parts, which both the artifact and the event log have.

        To measure a growing artifact for each chunk would take quadratic time.
        """
        return EVENT_SIZE + 2 * self.size


class Restart(Update, frozen=True):
    """A new run of a working task after failover; it drops the artifacts of the earlier run."""

    message: Message
    resume: bytes | None

    def apply(self, record: TaskRecord) -> TaskStatusUpdateEvent:
        """Drop the artifacts, set the status, and return an event that makes readers start over."""
        record.task.artifacts = []
        event = set_status(record, NewState(WORKING, self.message, resume=self.resume))
        event.metadata = {"apcore": {"restarted": True}}
        return event


def set_status(record: TaskRecord, update: NewState) -> TaskStatusUpdateEvent:
    """Set the status of a task.

    The message of the former status, the received message and the reply join the history.
    """
    task = record.task
    status = TaskStatus(state=update.state, message=update.message, timestamp=now())
    if "stateHistory" in task.metadata.get("apcore", ()):
        append_state_history(record)
    if update.decision is not None:
        add_decision(record, update.decision)
    if task.status.message is not None or update.received is not None:
        new_messages = filter(None, (task.status.message, update.received))
        task.history = [*task.history, *new_messages]
    record.messages += (update.received is not None) + (update.message is not None)
    if update.reply is not None:
        task.history = [*task.history, update.reply]
        record.messages += 1
    if task.artifacts and len(task.artifacts[0].parts) > 1 and update.state in SETTLED:
        join_texts(task)
    task.status = status
    if update.skill_id is not None:
        record.skill = update.skill_id
        task.metadata = {**task.metadata, "skillId": update.skill_id}
    record.resume, record.deadline = update.resume, update.deadline
    event = TaskStatusUpdateEvent(task_id=task.id, context_id=task.context_id, status=status)
    if update.metadata:
        metadata = update.metadata
        if USAGE in metadata:  # the usage of this run, added to that of earlier runs
            total = add_usage(task.metadata.get(USAGE), metadata[USAGE])
            metadata = {**metadata, USAGE: total}
        task.metadata = task.metadata | metadata
        event.metadata = metadata
    return event


MAX_STATE_HISTORY = 100
"""Maximum number of former states in the metadata of a task."""


def append_state_history(record: TaskRecord) -> None:
    """Add the current status, which is about to be replaced, to the task's state history."""
    status, metadata = record.task.status, record.task.metadata
    principal, _ = principal_and_tenant(record.owner, record.skill)
    former_state: dict[str, object] = {
        "state": NAMES[status.state],
        "timestamp": status.timestamp,
        "principal": principal,
    }
    if status.message is not None and status.message.parts:
        former_state["message"] = status.message.parts[0].text or ""
    state_history = [*metadata["apcore"]["stateHistory"], former_state]
    state_history = state_history[-MAX_STATE_HISTORY:]
    record.task.metadata = metadata | {
        "apcore": {**metadata["apcore"], "stateHistory": state_history}
    }


MAX_DECISIONS = 100
"""Maximum number of acts of other principals in the metadata of a task."""


def add_decision(record: TaskRecord, decision: Decision) -> None:
    """Add an act of another principal to the metadata of the task."""
    entry = {"principal": decision.principal, "act": decision.act, "timestamp": now()}
    members: Json = record.task.metadata.get("apcore", {})
    decisions = [*members.get("decisions", ()), entry][-MAX_DECISIONS:]
    metadata = {**record.task.metadata, "apcore": {**members, "decisions": decisions}}
    record.task.metadata = metadata


MAX_CHANGE_ATTEMPTS = 10
"""Maximum number of times that a change is tried while other replicas change the same task."""


async def create(
    tasks: LiveTasks,
    record: TaskRecord,
    webhook: Webhook | None = None,
    key: SendKey | None = None,
    client: str | None = None,
) -> Lease:
    """Store a new task with two events: submitted and working.

    Its creation time goes into its metadata: the status only has the time of the last change.

    Args:
        tasks: The live tasks of this process.
        record: The task.
        webhook: The push config of its message.
        key: The idempotency key of its message.
        client: The client that the task's memory is counted for while the task is live.

    Returns:
        The lease to run the task.

    Raises:
        StoreFullError: The task store has no room.
        RepeatedError: The idempotency key already belongs to the same message.
        KeyReusedError: The idempotency key already belongs to another message.
    """
    members = {"createdAt": record.task.status.timestamp, **record.task.metadata.get("apcore", {})}
    record.task.metadata = {**record.task.metadata, "apcore": members}
    submitted = structs.replace(record.task)
    record.messages = len(submitted.history)
    working = NewState(WORKING, resume=record.resume).apply(record)
    webhooks = () if webhook is None else (webhook,)
    return await tasks.create(record, [submitted, working], webhooks, key, client)


async def change(
    tasks: LiveTasks,
    task_id: str,
    *updates: Update,
    expect: Collection[TaskState],
    pause: bytes | None = None,
    lease: Lease | None = None,
    webhook: Webhook | None = None,
    spans: str = "",
) -> TaskRecord:
    """Apply *updates* to a task, all or none, and return its new record.

    Args:
        tasks: The live tasks of this process.
        task_id: The task's id.
        updates: The updates in order; each becomes one event.
        expect: The states in which the task may be before the change.
        pause: The packed pause that the task must be in; None if that does not matter.
        lease: The lease of the run that makes the change; None if any replica may make it.
        webhook: A push config to add in the same transaction.
        spans: The spans of the run that ends with the change, as text.

    Raises:
        StaleTaskError: The task is in another state or pause, is deleted, or no longer has *lease*;
            or other replicas keep changing it.
        InvalidStateTransitionError: The state machine does not allow an update.
        InvalidParamsError: The task has too many push configs.
    """
    is_restart = isinstance(updates[0], Restart)  # a restart is always the only update
    for _ in range(MAX_CHANGE_ATTEMPTS):
        live_task = tasks.current(task_id) or await tasks.open(task_id)
        if live_task is None:
            break
        # the lock orders changes within this process; the version in `write` detects changes
        # by other replicas. After such a change the preconditions may no longer hold, so the next
        # attempt reads the task again.
        await live_task.lock.acquire()
        try:  # `async with` would make three coroutines for each chunk
            current = live_task.record
            is_stale = lease not in (live_task.lease, None) or pause not in (None, current.resume)
            if is_stale or current.task.status.state not in expect:
                raise StaleTaskError
            new_record = _successor(current, len(updates))
            payloads = [update.apply(new_record) for update in updates]
            growth = updates[0].growth if len(updates) == 1 else None
            # a restart trims nothing: another restart may need the same message
            if not is_restart and new_record.task.history is not current.task.history:
                trim(new_record.task, tasks.max_history)
            try:
                await tasks.write(
                    live_task,
                    new_record,
                    payloads,
                    webhook,
                    restart=is_restart,
                    growth=growth,
                    spans=_wait_of(current) + spans,
                )
            except StaleError:
                continue
            return new_record
        finally:
            live_task.lock.release()
    raise StaleTaskError


def _wait_of(record: TaskRecord) -> str:
    """Return the span of a paused task's wait as text; empty if the task is not paused."""
    status = record.task.status
    if status.state not in PAUSED:
        return ""
    return dump_wait(wait_name(status.message), record.status_at)


def wait_name(message: Message | None) -> str:
    """Return what a paused task waits for, by its status message: approval or input."""
    return "approval" if is_approval_request(message) else "input"


def is_approval_request(message: Message | None) -> bool:
    """Return whether the message of a status requests approval."""
    parts = () if message is None else message.parts
    return any(is_object(part.data) and "approval" in part.data for part in parts)


def _successor(record: TaskRecord, update_count: int) -> TaskRecord:
    """Return a copy of *record* to which updates can be applied, with the version after them.

    The task is copied, because readers may hold the current one, but the members of the task are
    not: copying a growing artifact for each chunk would take quadratic time.
    """
    return TaskRecord(
        structs.replace(record.task),
        record.owner,
        record.skill,
        record.version + update_count,
        record.resume,
        record.messages,
        record.deadline,
    )
