"""The port behind the one change function: events, and what a task store must do.

A store is the truth about every task. It numbers nothing and decides nothing of its own: a change
says which version it was made from, and is taken whole or not at all.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from a2a import types as a2a
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError
from apcore_a2a_core.records import Payload, TaskRecord

from .errors import KeyReusedError, RepeatedError, StaleError
from .webhooks import Backlog, ClaimRequest, Edit, Notification, Webhook


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to a task; `version` is also its SSE id."""

    version: int
    payload: Payload


def fold(task: a2a.Task, chunk: a2a.TaskArtifactUpdateEvent) -> None:
    """Add a chunk to the task's artifact, or begin it with that."""
    if chunk.append and task.artifacts:
        task.artifacts[0].parts.extend(chunk.artifact.parts)
    else:
        del task.artifacts[:]
        task.artifacts.append(chunk.artifact)


_KINDS: tuple[type[Payload], ...] = (
    a2a.Task,
    a2a.TaskStatusUpdateEvent,
    a2a.TaskArtifactUpdateEvent,
)


def pack(payload: Payload) -> bytes:
    """The payload as bytes, behind one that tells its kind."""
    return bytes([_KINDS.index(type(payload))]) + payload.SerializeToString()


def unpack(data: bytes) -> Payload:
    """The payload again."""
    return _KINDS[data[0]].FromString(data[1:])


Order: TypeAlias = Literal["created", "updated"]
OnChange: TypeAlias = Callable[[str, int], None]
"""Takes the id of a task that another replica has changed, and the task's new version."""


@dataclass(frozen=True, slots=True)
class Query:
    """What to list: newest first by creation, or by the last change of state."""

    owner: str
    context_id: str = ""
    state: int | None = None
    after: float | None = None
    order: Order = "created"
    cursor: str | None = None
    limit: int = 50

    def takes(self, owner: str, context_id: str, state: int, seconds: float) -> bool:
        """Whether a task is asked for, by what its store knows of it."""
        return (
            owner == self.owner
            and self.context_id in ("", context_id)
            and self.state in (None, state)
            and seconds >= (self.after or 0)
        )


def number_of(cursor: str) -> int:
    """Return the number in a cursor that a client has sent: that of the last task on its page.

    Raises:
        InvalidParamsError: The cursor is none of ours.
    """
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
        raise InvalidParamsError("Invalid page cursor")
    return int(cursor)


@dataclass(frozen=True, slots=True)
class Page:
    """A page of records. `total`, of all pages, is counted in the order "updated" alone."""

    records: list[TaskRecord]
    next_cursor: str | None
    total: int = 0


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of one replica to run a task, until it expires by the store's clock.

    Attributes:
        task_id: the task's id.
        epoch: how often the task has been leased; a write under an older lease is refused.
    """

    task_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Claim:
    """A task that somebody should see to.

    Its replica has let its lease expire, or released it; or it is paused, and its deadline over.

    Attributes:
        record: the task as it was left.
        lease: the right to end it, or to run it again.
        attempts: how often it has been run in vain, since it began or was answered.
    """

    record: TaskRecord
    lease: Lease
    attempts: int


@dataclass(frozen=True, slots=True)
class SendKey:
    """An idempotency key of one owner, and the body that it was used for.

    Attributes:
        text: the key that the client has chosen.
        digest: what the body is known by.
    """

    text: str
    digest: bytes

    def refusal(self, digest: bytes, task_id: str) -> RepeatedError:
        """Return the error for another send with this key, whose body has *digest*."""
        return (RepeatedError if digest == self.digest else KeyReusedError)(task_id)


@dataclass(frozen=True, slots=True)
class NewTask:
    """A task that begins; it is kept with all of this, or not at all.

    Attributes:
        record: the task.
        events: its first events.
        webhooks: its webhooks, which get a notification of each of these events.
        key: the key of its send; no other task of the same owner has it.
    """

    record: TaskRecord
    events: Sequence[Event]
    webhooks: Sequence[Webhook] = ()
    key: SendKey | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a task, which is taken whole or not at all.

    Attributes:
        record: the task after it.
        base: the version that it was made from; the task must still have it.
        events: what happened, with the versions behind *base*.
        lease: the right to run the task that the writer has; None for what any replica may do.
        run: whether the writer runs the task from now on, under a new lease.
        webhook: what is added to the task's webhooks, in place of the one with the same id.
    """

    record: TaskRecord
    base: int
    events: Sequence[Event]
    lease: Lease | None = None
    run: bool = False
    webhook: Webhook | None = None

    @property
    def states(self) -> list[Event]:
        """Those of its events that tell of a state, and that webhooks are told of."""
        chunk = a2a.TaskArtifactUpdateEvent
        return [event for event in self.events if not isinstance(event.payload, chunk)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How much is kept of what has happened.

    A durable store drops a conversation whose tasks have all ended, with them and their logs;
    one in a process the logs alone.

    Attributes:
        max_logs: how many ended tasks, or logs of them.
        log_ttl: seconds since the end after which they may leave.
        max_events: how many of its latest events a log holds at least; when it has twice as
            many it is cut down to them, and who asks for older ones gets a snapshot.
    """

    max_logs: int = 10_000
    log_ttl: float = 3600
    max_events: int = 1000


class Store(ABC):
    """Keeps tasks, their events, their webhooks, and an outbox.

    With each change of a state the outbox gets a notification for each webhook of the task that
    has not failed. It stays there until it is settled or its webhook fails or is deleted.

    Attributes:
        is_durable: Whether tasks outlive the process, with their events.
        is_shared: Whether several processes may work with the same tasks.
        lease_seconds: How long a lease lasts that is not renewed.
        retention: How much is kept of what has happened.
    """

    is_durable: ClassVar[bool] = False
    is_shared: ClassVar[bool] = False
    lease_seconds: float = 15
    retention: Retention = Retention()
    _on_change: OnChange | None = None
    _on_notification: Callable[[], None] | None = None
    _backlog = Backlog()

    async def start(
        self, *, retention: Retention | None = None, on_change: OnChange | None = None
    ) -> None:
        """Get ready to work; called before everything else, and again without harm.

        Args:
            retention: How much to keep of what has happened; None for what was set before.
            on_change: Callback for changes made by other replicas. It is a hint: a store may call
                it never, and none calls it for every change.
        """
        self.retention = retention or self.retention
        self._on_change = on_change or self._on_change
        await self.open()

    async def open(self) -> None:  # noqa: B027 - many have nothing to open
        """Open what tasks are kept in, unless it is open; called by `start`."""

    async def close(self) -> None:  # noqa: B027 - as above
        """Give back what is held; after this nothing else is asked for."""

    async def check(self) -> None:
        """Raise when it can't be used, whatever the reason."""
        await self.get("00000000-0000-0000-0000-000000000000")

    @abstractmethod
    async def create(self, new: NewTask) -> Lease:
        """Keep a new task; return the lease of its creator.

        Raises:
            RepeatedError: There is a task of the key, from the same body.
            KeyReusedError: There is one from another body.
            StoreFullError: There is no room, and nothing that may be dropped.
        """

    @abstractmethod
    async def change(self, change: Change) -> Lease | None:
        """Make a change; the lease under which the writer runs the task, if it does.

        A task that comes into a state in which nobody runs it has no lease any more.

        Raises:
            StaleError: The task has another version than the change was made from, or is gone.
            LeaseLostError: The task has been leased to somebody else.
            NotSavedError: The task has ended, and is known to have only in this process.
            InvalidParamsError: The webhook of the change is one too many.
        """

    @abstractmethod
    async def get(self, task_id: str) -> TaskRecord | None:
        """A copy of the task's record, or None."""

    async def get_own(self, task_id: str, owner: str) -> TaskRecord | None:
        """The same of a task that is the owner's.

        A store that can tell owners without reading the whole task does better than this one:
        the time that an answer takes shall not tell that somebody else has such a task.
        """
        record = await self.get(task_id)
        return record if record is not None and record.owner == owner else None

    async def is_current(self, record: TaskRecord) -> bool:
        """Whether a record that was just read is not an old one, as slow stores may give."""
        return True

    @abstractmethod
    async def events(self, task_id: str, after: int, limit: int = 1000) -> list[Event] | None:
        """The next events of a task behind version *after*; None when some of them are gone."""

    async def versions(self, task_ids: Sequence[str]) -> Mapping[str, int]:
        """The versions of these tasks, as far as they are there."""
        found = [await self.get(task_id) for task_id in task_ids]
        return {record.task.id: record.version for record in found if record is not None}

    @abstractmethod
    async def query(self, query: Query) -> Page:
        """A page of what *query* asks for."""

    async def conversation(self, owner: str, context_id: str, limit: int) -> Sequence[a2a.Message]:
        """The latest messages of the owner's conversation in a context, in their order.

        This one puts together those of its latest *limit* tasks, task by task. A store
        that knows in which order messages came does better.
        """
        page = await self.query(Query(owner, context_id, limit=limit))
        said = [message for record in page.records[::-1] for message in record.said()]
        return said[-limit:]

    @abstractmethod
    async def webhooks(self, task_id: str) -> Sequence[Webhook]:
        """The webhooks of a task, oldest first."""

    @abstractmethod
    async def save_webhooks(
        self, task_id: str, webhooks: Sequence[Webhook], known: Sequence[Webhook] | None = None
    ) -> None:
        """Keep these as the webhooks of a task, for as long as the task is kept.

        What waits in an outbox for one that is gone is dropped; for one that has been set again
        it is due at once.

        Args:
            task_id: The task's id.
            webhooks: What they shall be.
            known: What they must have been, where other processes can change them; None for
                whatever they were.

        Raises:
            StaleError: They were others, or the task has left.
        """

    async def edit_webhooks(self, task_id: str, edit: Edit) -> None:
        """Replace the webhooks of a task by what *edit* makes of them.

        Raises:
            TaskNotFoundError: The task was deleted.
        """
        while True:
            known = await self.webhooks(task_id)
            webhooks = edit(known)
            if await self.get(task_id) is None:
                raise TaskNotFoundError
            try:
                await self.save_webhooks(task_id, webhooks, known)
            except StaleError:  # another request has edited them meanwhile
                continue
            return

    async def prune(self) -> int:
        """Drop what `retention` lets go of; how many tasks that were. Called now and then."""
        return 0

    @abstractmethod
    async def renew(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        """Have these leases last again for their whole time; returns those that are lost."""

    @abstractmethod
    async def release(self, leases: Sequence[Lease]) -> None:
        """Let others claim these tasks at once."""

    @abstractmethod
    async def claim(self, limit: int) -> Sequence[Claim]:
        """Lease up to *limit* tasks that somebody should see to, and nobody does."""

    def on_notification(self, listener: Callable[[], None]) -> None:
        """Have *listener* called when there may be something to claim that was not there before.

        It is not called for what other processes add, nor when something postponed is due.
        """
        self._on_notification = listener

    def ring(self) -> None:
        """Call the listener of notifications, if there is one."""
        if self._on_notification is not None:
            self._on_notification()

    @abstractmethod
    async def claim_notifications(self, request: ClaimRequest) -> Sequence[Notification]:
        """Claim notifications that are due: of each webhook the next one alone."""

    @abstractmethod
    async def settle(self, notification: Notification) -> None:
        """Forget a notification that has been delivered, and have the next one due."""

    @abstractmethod
    async def postpone(self, notification: Notification, seconds: float) -> None:
        """Have a notification due again in so many seconds."""

    @abstractmethod
    async def give_up(self, notification: Notification, reason: str) -> int:
        """Have its webhook fail, unless it was set again; return how much waited for it."""

    @property
    def backlog(self) -> Backlog:
        """The notifications that waited at the last count."""
        return self._backlog

    @abstractmethod
    async def limit_backlog(self, max_pending: int) -> int:
        """Count what waits, and have webhooks fail to which an owner has more than that.

        Returns:
            How many notifications were given up.
        """

    async def mark_due(self) -> None:  # noqa: B027 - durable stores leave it to others
        """Have due at once what no other process can deliver."""

    async def abandon_notifications(self) -> Sequence[tuple[Notification, int]]:
        """Forget what no other process can deliver.

        Returns:
            The next notification of each webhook, and how many waited for it.
        """
        return ()
