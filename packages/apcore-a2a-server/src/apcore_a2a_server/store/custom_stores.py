"""Adapters that turn task stores of users and of the SDK into a `Store`."""

import base64
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from typing import Any

from a2a.types import ListTasksRequest
from a2a.utils.errors import InvalidParamsError
from apcore_a2a_core import from_sdk, missing_methods, to_sdk
from apcore_a2a_core.data import Task
from apcore_a2a_core.records import TaskListResult, TaskRecord, TaskStore, Version
from msgspec.structs import replace

from .inprocess import PAGE_SIZE, InProcessStore
from .port import Store
from .queries import Page, Query
from .urls import open_store
from .webhooks import Webhook

logger = logging.getLogger("apcore_a2a.store")

RECORD_KEY = "apcoreRecord"
"""Key in a task's metadata for the fields of its record that a task of the SDK lacks."""
LIMITS_MESSAGE = (
    "Old tasks are never deleted from the task store %s. Events, leases and idempotency keys are "
    "kept in the memory of this process: after a restart, streams can't be resumed and running "
    "tasks are not taken over, and replicas can't share the store. %s"
)


class ScannedStore(InProcessStore):
    """An adapter for a store that can list tasks but not query them; a query reads every page.

    It keeps one webhook per task. A webhook's version, failure and trace, which a push config has
    no fields for, are stored in the config's `tenant`.

    Args:
        store: A store with the seven methods of FR-STR-001.
    """

    def __init__(self, store: TaskStore) -> None:
        super().__init__()
        self._store = store
        self._limits_args = type(store).__name__, "It keeps one webhook for each task"
        self._has_logged_limits = False

    async def open(self) -> None:
        """Log the limits of the store, once."""
        if not self._has_logged_limits:
            logger.info(LIMITS_MESSAGE, *self._limits_args, extra={"event": "task_store_limits"})
        self._has_logged_limits = True

    async def save(self, record: TaskRecord) -> None:
        """Save the record in the user's store."""
        await self._store.save(record)

    async def get(self, task_id: str, owner: str | None = None) -> TaskRecord | None:
        """Return the record from the user's store; None if it is unknown or not the owner's."""
        record = await self._store.get(task_id)
        return record if record is not None and owner in (None, record.owner) else None

    async def delete(self, task_id: str) -> bool:
        """Delete a task from the user's store; return False if there is none."""
        return await self._store.delete(task_id)

    async def owners(self, prefix: str) -> Sequence[str]:
        """Return the task owners whose names begin with a prefix; this reads all records."""
        records = self._scan(None, Query(None, owner_prefix=prefix))
        return [*dict.fromkeys([record.owner async for record in records])]

    async def query(self, query: Query) -> Page:
        """Return a page of the tasks that match *query*, by scanning its context or all tasks."""
        matching_records = [record async for record in self._scan(query.context_id, query)]
        if query.order == "updated":
            matching_records.sort(key=lambda record: record.status_at, reverse=True)
        start = _page_start(matching_records, query.cursor)
        page = matching_records[start : start + query.limit]
        has_more = len(matching_records) > start + query.limit
        return Page(page, page[-1].task.id if has_more else None, len(matching_records))

    async def read_webhooks(self, task_id: str) -> Sequence[Webhook]:
        """Return the task's webhook, if it has one."""
        stored_config = await self._store.get_push_config(task_id)
        if stored_config is None:
            return ()
        version, _, rest = stored_config.tenant.partition(" ")
        failure, _, trace = rest.partition("\n")
        config = replace(stored_config, tenant="")
        known_version: Version = "0.3" if version == "0.3" else "1.0"
        return (Webhook(config, known_version, failure, trace),)

    async def write_webhooks(self, task_id: str, webhooks: Sequence[Webhook]) -> None:
        """Replace the task's webhook.

        Raises:
            InvalidParamsError: There is more than one.
        """
        if len(webhooks) > 1:
            raise InvalidParamsError(
                "This agent keeps one push configuration for each task: delete it first"
            )
        if not webhooks:
            await self._store.delete_push_config(task_id)
        for webhook in webhooks:
            tenant = f"{webhook.version} {webhook.failure}\n{webhook.trace}"
            await self._store.save_push_config(task_id, replace(webhook.config, tenant=tenant))

    async def _scan(self, context_id: str | None, query: Query) -> AsyncIterator[TaskRecord]:
        """Yield the records of one context, or of all contexts, that match *query*."""
        cursor: str | None = None
        while True:
            result = await self._store.list(context_id or None, cursor, PAGE_SIZE)
            for record in result.records:
                if _matches(query, record):
                    yield record
            cursor = result.next_cursor
            if not cursor:
                return


def _matches(query: Query, record: TaskRecord) -> bool:
    task = record.task
    return query.matches(record.owner, task.context_id, task.status.state, record.status_at)


def _page_start(matching_records: list[TaskRecord], cursor: str | None) -> int:
    """Return the index after the task whose id is *cursor*; 0 without a cursor."""
    if cursor is None:
        return 0
    for index, record in enumerate(matching_records):
        if record.task.id == cursor:
            return index + 1
    raise InvalidParamsError("Invalid page cursor")


class ScannedSdkStore(ScannedStore):
    """An adapter for a store of the official SDK; webhooks are kept in memory.

    Args:
        store: An `a2a.server.tasks.TaskStore`.
    """

    def __init__(self, store: Any) -> None:
        adapter: Any = SdkStore(store)
        super().__init__(adapter)
        limits = "Webhooks are kept in memory too. Tasks are listed by their last change of state"
        self._limits_args = f"{type(store).__name__} of a2a-sdk", limits
        self._webhooks: OrderedDict[str, Sequence[Webhook]] = OrderedDict()

    async def read_webhooks(self, task_id: str) -> Sequence[Webhook]:
        """Return the task's webhooks, if they are still in memory."""
        return self._webhooks.get(task_id, ())

    async def write_webhooks(self, task_id: str, webhooks: Sequence[Webhook]) -> None:
        """Replace the task's webhooks.

        Webhooks are kept for at most `retention.max_logs` tasks: those written longest ago are
        dropped.
        """
        self._webhooks.pop(task_id, None)
        if webhooks:
            self._webhooks[task_id] = webhooks
            if len(self._webhooks) > self.retention.max_logs:
                self._webhooks.popitem(last=False)


class SdkStore:
    """An adapter that saves, gets, deletes and lists records in a task store of the official SDK.

    A task lacks some fields of a record: these, except the deadline, are stored in the task's
    metadata. Lists are sorted by the time of the last status.

    Args:
        store: An `a2a.server.tasks.TaskStore`.
    """

    def __init__(self, store: Any) -> None:
        from a2a.server.context import ServerCallContext

        self._store = store
        self._context = ServerCallContext()

    async def save(self, record: TaskRecord) -> None:
        """Save the task, and the record's other fields in the task's metadata."""
        resume = base64.b64encode(record.resume or b"").decode()
        other_fields = [record.owner, record.skill, record.version, resume, record.messages]
        metadata = {**record.task.metadata, RECORD_KEY: other_fields}
        await self._store.save(to_sdk(replace(record.task, metadata=metadata)), self._context)

    async def get(self, task_id: str) -> TaskRecord | None:
        """Return the record of a task; None if there is none, or the task is another program's."""
        task = await self._store.get(task_id, self._context)
        return None if task is None else _record_from(task)

    async def delete(self, task_id: str) -> bool:
        """Delete a task; return whether it existed."""
        exists = await self._store.get(task_id, self._context) is not None
        await self._store.delete(task_id, self._context)
        return exists

    async def list(self, context_id: str | None, cursor: str | None, limit: int) -> TaskListResult:
        """Return a page of records, the latest status first."""
        request = ListTasksRequest(
            context_id=context_id or "",
            page_token=cursor or "",
            page_size=min(limit, 100),
            include_artifacts=True,
        )
        response = await self._store.list(request, self._context)
        records = [record for record in map(_record_from, response.tasks) if record is not None]
        return TaskListResult(records, response.next_page_token or None)


def _record_from(stored_task: Any) -> TaskRecord | None:
    """Return the record of a stored task; None if another program has stored the task."""
    task: Task = from_sdk(stored_task)
    if RECORD_KEY not in task.metadata:
        return None
    owner, skill, version, resume, messages = task.metadata.pop(RECORD_KEY)
    return TaskRecord(task, owner, skill, version, base64.b64decode(resume) or None, messages)


def store_of(store: Any) -> Store:
    """Return a `Store` for an address, or for the task store of a user.

    Raises:
        TypeError: The object is not a task store; the message lists the methods it lacks.
        ValueError: The text is not the address of a store.
        ImportError: A package that the store needs is not installed.
    """
    if isinstance(store, str):
        return open_store(store)
    if isinstance(store, Store):
        return store
    if any(base.__module__.startswith("a2a.server.tasks") for base in type(store).__mro__):
        return ScannedSdkStore(store)
    missing = missing_methods(store, TaskStore)
    if missing:
        raise TypeError(f"task_store lacks the methods: {', '.join(missing)}")
    return ScannedStore(store)
