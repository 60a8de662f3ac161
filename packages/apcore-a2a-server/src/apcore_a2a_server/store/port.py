"""The interface of a task store, and the values that go through it.

A store holds the authoritative state of every task. It assigns no versions and makes no decisions:
a change names the version that it was made from, and is stored completely or refused.
"""

import time
from abc import abstractmethod
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Container,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from math import inf
from operator import attrgetter
from typing import ClassVar, TypeAlias

from a2a.utils.errors import TaskNotFoundError
from apcore_a2a_core.data import (
    Json,
    Message,
    Task,
    TaskArtifactUpdateEvent,
    TaskStatusUpdateEvent,
)
from apcore_a2a_core.records import (
    LARGE_MESSAGE,
    Payload,
    TaskRecord,
    fill,
    gaps,
    without_large,
)
from apcore_a2a_core.values import dump_json, read_json
from msgspec import Struct, structs

from .artifacts import append_parts
from .exceptions import KeyReusedError, RepeatedError, StaleError
from .operator_port import OperatorPort
from .outbox_port import OutboxPort
from .queries import Page, Query
from .replicas import Replica
from .webhooks import EditWebhooks, Webhook


class Event(Struct, frozen=True, gc=False):
    """An event of a task; `version` is also its SSE id."""

    version: int
    payload: Payload

    def without_large(self) -> "Event":
        """Return the event; if its payload is a task, with gaps for the large messages."""
        if not isinstance(self.payload, Task):
            return self
        task = without_large(self.payload)
        return self if task is self.payload else Event(self.version, task)

    @property
    def has_gaps(self) -> bool:
        """Whether the payload is a task that lacks large messages."""
        return isinstance(self.payload, Task) and bool(gaps(self.payload))

    def filled(self, record: TaskRecord | None) -> "Event":
        """Return this event, the first of its task, with the large messages that *record* has."""
        payload = structs.replace(self.payload)
        if isinstance(payload, Task):
            history, first = ((), 0) if record is None else (record.task.history, record.first)
            fill(payload, history, first)
        return Event(self.version, payload)


PROGRESS: Json = {"apcore": {"progress": True}}
"""Metadata of events that report progress, and no new state."""


def is_state(payload: Payload) -> bool:
    """Return whether a payload reports a state of its task: neither a chunk nor progress."""
    return not isinstance(payload, TaskArtifactUpdateEvent) and payload.metadata != PROGRESS


def fold(task: Task, chunk: TaskArtifactUpdateEvent) -> None:
    """Append a chunk to the task's artifact, or start the artifact with it."""
    if chunk.append and task.artifacts:
        append_parts(task.artifacts[0].parts, chunk.artifact.parts)
    else:
        # later chunks are appended to this copy, not to the list of the event
        parts = [*chunk.artifact.parts]
        task.artifacts = [structs.replace(chunk.artifact, parts=parts)]


_PAYLOAD_TYPES: tuple[type[Payload], ...] = (
    Task,
    TaskStatusUpdateEvent,
    TaskArtifactUpdateEvent,
)
"""Stored events hold an index into this tuple: types may only be added at the end."""
_PREFIXES = {cls: bytes([index]) for index, cls in enumerate(_PAYLOAD_TYPES)}


def pack_payload(payload: Payload) -> bytes:
    """Return the payload as bytes; the first byte is the index of its type."""
    return _PREFIXES[type(payload)] + dump_json(payload)


def pack_payloads(events: Sequence[Event]) -> tuple[bytes, ...]:
    """Return the payloads of events as bytes; see `pack_payload`."""
    return tuple(map(pack_payload, map(attrgetter("payload"), events)))


def unpack_payload(data: bytes) -> Payload:
    """Return the payload that `pack_payload` has converted to *data*."""
    return read_json(_PAYLOAD_TYPES[data[0]], data[1:])


OnChange: TypeAlias = Callable[[str, int], None]
"""Callback for the id and new version of a task that a replica, perhaps this one, has changed."""


class Lease(Struct, frozen=True):
    """The right of one replica to run a task; the right expires by the store's clock.

    Attributes:
        task_id: the task's id.
        epoch: how many times the task has been leased; a write under an older lease is refused.
    """

    task_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Claim:
    """A task that a replica has claimed, and must resume or end.

    The task was orphaned (its lease expired or was released), or it is paused and its deadline has
    passed.

    Attributes:
        record: the task as it was last saved.
        lease: the lease to run the task again, or to end it.
        attempts: how many times its module was started since the task began or got its last
            answer.
    """

    record: TaskRecord
    lease: Lease
    attempts: int


@dataclass(frozen=True, slots=True)
class SendKey:
    """An idempotency key, and the hash of the message body that it was used for.

    Attributes:
        text: the key that the client has chosen.
        digest: the hash of the body.
    """

    text: str
    digest: bytes

    def conflict(self, digest: bytes, task_id: str) -> RepeatedError:
        """Return the error to raise: task *task_id* has this key, for a body with hash *digest*."""
        return (RepeatedError if digest == self.digest else KeyReusedError)(task_id)


class NewTask(Struct, frozen=True):
    """A new task; all of it is stored, or nothing.

    Attributes:
        record: the task.
        events: its first events.
        webhooks: its webhooks, which get a notification of each of these events.
        key: the idempotency key of its send; no other task of the same owner has it.
        size: about how many bytes the task takes as JSON; infinite if that is not known.
    """

    record: TaskRecord
    events: Sequence[Event]
    webhooks: Sequence[Webhook] = ()
    key: SendKey | None = None
    size: float = inf

    def slim_events(self) -> list[Event]:
        """Return the events with gaps for the large messages of the task."""
        # A small task has no large messages. If the record's `first` is negative, its messages were
        # not counted, and large ones that are left out could not be found again.
        if self.size < LARGE_MESSAGE or self.record.first < 0:
            return [*self.events]
        return [event.without_large() for event in self.events]


class Change(Struct):
    """One change of a task, which is stored completely or refused.

    Attributes:
        record: the task after the change.
        base: the version that the change was made from; the task must still have it.
        events: the new events; their versions follow *base*.
        lease: the writer's lease; None for changes that any replica may make.
        run: whether the writer runs the task from now on, under a new lease.
        webhook: a webhook to add to the task; it replaces the one with the same id.
        restart: whether the writer starts the task's module again, under a lease that it claimed.
        known_messages: how many messages the task had before the change, if the writer knows that:
            a store need not add these.
        spans: spans to add to those of the task, as text; only with a change of state.
    """

    record: TaskRecord
    base: int
    events: Sequence[Event]
    lease: Lease | None = None
    run: bool = False
    webhook: Webhook | None = None
    restart: bool = False
    known_messages: int = 0
    spans: str = ""

    @property
    def state_events(self) -> list[Event]:
        """The events that report a state; only these are sent to webhooks."""
        return [event for event in self.events if is_state(event.payload)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How much history a store keeps.

    A durable store deletes conversations whose tasks all ended over `log_ttl` seconds ago, together
    with these tasks and their event logs. It also deletes the oldest ended tasks beyond `max_logs`.
    For an in-process store, these values apply to the logs, not to the tasks.

    Attributes:
        max_logs: the maximum number of ended tasks, or of their logs.
        log_ttl: seconds that an ended task, or its log, is kept.
        max_events: the number of latest events that a log always keeps. A log with more than twice
            as many is cut down to this number; readers that need older ones get a snapshot of the
            task.
    """

    max_logs: int = 10_000
    log_ttl: float = 3600
    max_events: int = 1000


Renew: TypeAlias = Callable[[Sequence[Lease], Replica], Awaitable[Sequence[Lease]]]
"""Function that renews leases, saves the report of their replica, and returns lost leases."""


class Store(OperatorPort, OutboxPort):
    """A store of tasks, their events and webhooks, and an outbox of notifications.

    For each event that reports a state, the outbox gets a notification for each active webhook of
    the task. A notification stays there until it is settled, or its webhook fails or is deleted.

    Attributes:
        is_durable: whether tasks and their events outlive the process.
        is_shared: whether several processes may work with the same tasks.
        counts_tasks: whether `kept_bytes` includes all tasks.
        lease_seconds: seconds after which a lease expires unless it is renewed.
        restart_pauses: seconds from each start of a module to the next one, if its replica is
            lost. The task fails if a replica is lost after the last of these starts.
        retention: how much history is kept.
        replica_id: the id of this replica; a shared store saves it with the replica's leases.
    """

    is_durable: ClassVar[bool] = False
    is_shared: ClassVar[bool] = False
    counts_tasks: ClassVar[bool] = False
    lease_seconds: float = 15
    restart_pauses: Sequence[float] = (1, 10, 60)
    retention: Retention = Retention()
    replica_id: str = ""
    _on_change: OnChange | None = None

    async def start(
        self,
        *,
        retention: Retention | None = None,
        on_change: OnChange | None = None,
        replica_id: str | None = None,
    ) -> None:
        """Open the store; a second call does no harm.

        Args:
            retention: How much history to keep; None to leave the setting as it is.
            on_change: Callback for changes made by other replicas, and perhaps by this one. Callers
                must poll as well: some stores never call it, and none calls it for every change.
            replica_id: The id of this replica; None for the one that was set before.
        """
        self.retention = retention or self.retention
        self._on_change = on_change or self._on_change
        self.replica_id = replica_id or self.replica_id
        await self.open()

    async def open(self) -> None:
        """Open files or connections unless they are open; called by `start`."""

    async def close(self) -> None:
        """Release all resources; after this, only `start` may be called."""

    async def check(self) -> None:
        """Raise an exception, of any kind, if the store can't be used."""
        await self.get("00000000-0000-0000-0000-000000000000")

    async def now(self) -> float:
        """Return the time by the store's clock, in seconds since 1970.

        Deadlines of paused tasks are compared with this time, as the clocks of replicas may differ.
        """
        return time.time()

    @abstractmethod
    async def create(self, new_task: NewTask) -> Lease:
        """Store a new task; return the lease of its creator.

        Raises:
            RepeatedError: A task with the same key exists, created from the same body.
            KeyReusedError: A task with the same key exists, created from another body.
            StoreFullError: The store is full, and has no task that it may delete.
        """

    @abstractmethod
    async def change(self, change: Change) -> Lease | None:
        """Store a change; return the lease under which the writer runs the task, if it does.

        A task that pauses or ends loses its lease.

        Raises:
            StaleError: The task no longer has the version `base` of the change, or was deleted.
            LeaseLostError: The task was leased again.
            NotSavedError: The task has ended in this process, but its end could not be saved.
            InvalidParamsError: The task has too many webhooks to add one.
        """

    @abstractmethod
    async def get(self, task_id: str, owner: str | None = None) -> TaskRecord | None:
        """Return a copy of the task's record; None if it is unknown or not the owner's.

        A store that can compare owners without reading the whole task does so: response times
        should not reveal to a caller that another owner has the task.
        """

    async def is_current(self, record: TaskRecord) -> bool:
        """Return whether a record that was just read is up to date.

        While a slow store reads a record, the task may change.
        """
        return True

    @abstractmethod
    async def events(self, task_id: str, after: int, limit: int = 1000) -> list[Event] | None:
        """Return the next events of a task after version *after*; None if the store lacks some."""

    async def versions(self, task_ids: Sequence[str]) -> Mapping[str, int]:
        """Return the versions of these tasks; tasks that do not exist are left out."""
        records = [await self.get(task_id) for task_id in task_ids]
        return {record.task.id: record.version for record in records if record is not None}

    @abstractmethod
    async def query(self, query: Query) -> Page:
        """Return a page of the tasks that match *query*."""

    async def conversation(self, owner: str, context_id: str, limit: int) -> Sequence[Message]:
        """Return the latest messages of the owner's conversation in a context, oldest first.

        This default joins the messages of the latest *limit* tasks, task by task. A store that
        knows the order of all messages overrides it.
        """
        page = await self.query(Query(owner, context_id, limit=limit))
        messages = [
            message for record in page.records[::-1] for message in record.stored_messages()
        ]
        return messages[-limit:]

    @abstractmethod
    async def webhooks(self, task_id: str) -> Sequence[Webhook]:
        """Return the webhooks of a task, oldest first."""

    @abstractmethod
    async def save_webhooks(
        self, task_id: str, webhooks: Sequence[Webhook], expected: Sequence[Webhook] | None = None
    ) -> None:
        """Replace the webhooks of a task.

        Notifications for removed webhooks are dropped; those for replaced ones are due at once.

        Args:
            task_id: The task's id.
            webhooks: The new webhooks.
            expected: The webhooks that the task must still have: other processes may have changed
                them. None to skip this check.

        Raises:
            StaleError: The task has other webhooks than *expected*, or was deleted.
        """

    async def edit_webhooks(self, task_id: str, edit: EditWebhooks) -> None:
        """Replace the webhooks of a task with the result of *edit*.

        Raises:
            TaskNotFoundError: The task was deleted.
        """
        while True:
            existing = await self.webhooks(task_id)
            webhooks = edit(existing)
            if await self.get(task_id) is None:
                raise TaskNotFoundError
            with suppress(StaleError):  # another request has edited them meanwhile: try again
                return await self.save_webhooks(task_id, webhooks, existing)

    @property
    def kept_bytes(self) -> int:
        """About how many bytes the store keeps in the memory of this process."""
        return 0

    def evict(
        self, size: int, owner: str, kept_ids: Container[str], share: int | None = None
    ) -> None:
        """Free *size* bytes of memory, as far as possible. Durable stores need not free any.

        Args:
            size: How many bytes.
            owner: The owner whose ended tasks go first, unless others exceed their shares.
            kept_ids: Ended tasks that stay.
            share: Owners whose ended tasks take more bytes than this lose tasks first; None for no
                shares.
        """

    async def prune(self) -> int:
        """Delete the history that `retention` does not keep; return the number of deleted tasks.

        Called about once a minute.
        """
        return 0

    async def renew(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        """Renew leases for `lease_seconds`; return those that are lost."""
        return await self.extend(leases, self.lease_seconds)

    async def release(self, leases: Sequence[Lease]) -> None:
        """Let other replicas claim the tasks of these leases at once."""
        await self.extend(leases, 0)

    @abstractmethod
    async def extend(self, leases: Sequence[Lease], seconds: float) -> Sequence[Lease]:
        """Make leases expire in *seconds*; return those that are lost."""

    @asynccontextmanager
    async def renewing(self) -> AsyncGenerator[Renew]:
        """Yield a function that renews leases.

        The function, and this method, run in the event loop of the heartbeat's thread. A shared
        store whose connections belong to one event loop opens other connections here. This default
        does not save the report of the replica.
        """

        async def renew(leases: Sequence[Lease], replica: Replica) -> Sequence[Lease]:
            return await self.renew(leases) if leases else ()

        yield renew

    @abstractmethod
    async def claim(self, limit: int, running: Collection[str] = ()) -> Sequence[Claim]:
        """Lease up to *limit* tasks that are orphaned, or paused past their deadline.

        An orphaned task that can be run again (its record has `resume`) is claimed only after the
        pause in `restart_pauses` that follows the last start of its module.

        Args:
            limit: Maximum number of tasks to claim.
            running: The ids of tasks that this process runs. A store that is not shared leaves
                them out, even if their leases have expired.
        """
