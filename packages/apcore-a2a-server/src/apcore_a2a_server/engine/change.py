"""The one function through which a task changes.

It holds the change against what the task is then, gives every event the task's next
version, and writes record and events to the journal in one go.
"""

from collections.abc import Collection
from dataclasses import replace

from a2a import types as a2a
from apcore_a2a_core.states import WORKING

from apcore_a2a_server.errors import StaleTaskError
from apcore_a2a_server.store import Journal, Lease, SendKey, StaleError, TaskRecord, Webhook, trim

from .updates import NewParts, NewState, Update

ATTEMPTS = 10
"""How often a change is made anew, when other processes have changed the task meanwhile."""


async def create(
    journal: Journal,
    record: TaskRecord,
    webhook: Webhook | None = None,
    key: SendKey | None = None,
) -> Lease:
    """Store a new task: submitted, and at once working, as its first two events.

    Returns:
        The right to run it.

    Raises:
        StoreFullError: The task store has no room.
        RepeatedError: The send that it comes from has come before.
    """
    submitted = a2a.Task()
    submitted.CopyFrom(record.task)
    record.messages = len(submitted.history)
    working = NewState(WORKING, resume=record.resume).apply(record)
    webhooks = () if webhook is None else (webhook,)
    return await journal.create(record, [submitted, working], webhooks, key)


async def change(
    journal: Journal,
    task_id: str,
    *updates: Update,
    expect: Collection[a2a.TaskState],
    pause: bytes | None = None,
    lease: Lease | None = None,
    webhook: Webhook | None = None,
) -> TaskRecord:
    """Apply *updates* to a task, all or none, and return its new record.

    Args:
        journal: Where the task lives.
        task_id: The task's id.
        updates: What changes, in order; each becomes one event.
        expect: The states the task must be in for this change to make sense.
        pause: The paused call that the change is about, when it is about one.
        lease: The right to run the task, of who makes the change because of that.
        webhook: What is added to the task's webhooks with the change, or not at all.

    Raises:
        StaleTaskError: The task is in another state or pause (somebody was faster), or gone;
            or somebody else runs it.
        InvalidStateTransitionError: The state machine has no such way.
        InvalidParamsError: The webhook is one too many.
    """
    for _ in range(ATTEMPTS):
        entry = await journal.open(task_id)
        if entry is None:
            break
        async with entry.lock:
            record = entry.record
            stale = lease not in (entry.lease, None) or pause not in (None, record.resume)
            if stale or record.task.status.state not in expect:
                raise StaleTaskError
            record = _successor(record, updates)
            payloads = [update.apply(record) for update in updates]
            trim(record.task, journal.max_history)
            try:
                await journal.write(entry, record, payloads, webhook)
            except StaleError:  # another process has changed it: look again
                continue
            return record
    raise StaleTaskError


def _successor(record: TaskRecord, updates: tuple[Update, ...]) -> TaskRecord:
    """The record the updates are made in: a copy, unless parts are added to one of our own."""
    task = record.task
    if not all(isinstance(update, NewParts) and update.append for update in updates):
        task = a2a.Task()
        task.CopyFrom(record.task)
    return replace(record, task=task, version=record.version + len(updates))
