"""Deletion of all tasks of a principal, with everything that belongs to them."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

from apcore_a2a_core.data import Message, TaskState
from apcore_a2a_core.records import TaskRecord
from apcore_a2a_core.states import CANCELED, OPEN

from apcore_a2a_server.errors import StaleTaskError
from apcore_a2a_server.modules.tenants import OWNER_PREFIX, principal_and_tenant
from apcore_a2a_server.store import Query
from apcore_a2a_server.store.live import LiveTasks
from apcore_a2a_server.store.maintenance import open_durable

from .change import NewState, change
from .messages import agent_message

Cancel: TypeAlias = Callable[[TaskRecord], Awaitable[None]]
"""Function that cancels a task, and raises StaleTaskError if it has ended."""

PAGE_SIZE = 200
"""Number of open tasks that are read at a time."""
NOTICE_TIME = 1.0
"""Seconds for readers and other replicas to notice cancellations, before tasks are deleted."""


async def delete_tasks_of(tasks: LiveTasks, principal: str, cancel: Cancel) -> int | None:
    """Cancel the open tasks of a principal, in all tenants, and delete all of its tasks.

    Their events, messages, webhooks, pending notifications and idempotency keys are deleted too.
    Tasks that the principal starts meanwhile may stay.

    Args:
        tasks: The live tasks of this process, and the store behind them.
        principal: The principal; empty for anonymous callers.
        cancel: Cancels a task.

    Returns:
        The number of deleted tasks; None if the store can't delete them.
    """
    store, deleted = tasks.store, 0
    tenant_owners = [
        owner
        for owner in await store.owners(OWNER_PREFIX)
        if principal_and_tenant(owner, "")[0] == principal
    ]
    owners = (principal, *tenant_owners)
    canceled_counts = [
        await _cancel_all(tasks, owner, state, cancel) for owner in owners for state in OPEN
    ]
    if any(canceled_counts):
        await asyncio.sleep(NOTICE_TIME)
    for owner in owners:
        deleted_now = await store.delete_ended(owner)
        if deleted_now is None:
            return None
        deleted += deleted_now
    return deleted


async def _cancel_all(tasks: LiveTasks, owner: str, state: TaskState, cancel: Cancel) -> int:
    """Cancel an owner's tasks in a state; return how many there were."""
    cursor: str | None = None
    records: list[TaskRecord] = []
    while True:  # read all before canceling any: cancellations would move tasks between pages
        page = await tasks.store.query(Query(owner, state=state, cursor=cursor, limit=PAGE_SIZE))
        records += page.records
        cursor = page.next_cursor
        if cursor is None:
            break
    for record in records:
        with suppress(StaleTaskError):  # it has ended meanwhile
            await cancel(record)
    return len(records)


async def erase(address: str, principal: str) -> int:
    """Delete all tasks of a principal from a durable store, without an agent.

    With PostgreSQL, agents notice the cancellations and end their runs of these tasks. With SQLite,
    the agent must be stopped first.

    Args:
        address: The store's address, as `open_store` takes it.
        principal: The principal; empty for anonymous callers.

    Returns:
        The number of deleted tasks.

    Raises:
        ValueError: The address is not one of a durable store.
        ImportError: A package that the store needs is not installed.
        UnavailableError: The store can't be used, or has another schema version.
    """
    async with open_durable(address) as store:
        tasks = LiveTasks(store)

        async def cancel(record: TaskRecord) -> None:
            reply_to = Message(task_id=record.task.id, context_id=record.task.context_id)
            canceled = NewState(CANCELED, agent_message(reply_to, "Canceled by an operator"))
            await change(tasks, record.task.id, canceled, expect=OPEN)

        return await delete_tasks_of(tasks, principal, cancel) or 0
