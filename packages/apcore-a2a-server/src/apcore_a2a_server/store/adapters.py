"""Task stores of users and of the SDK, made to fit the tasks."""

import base64
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from typing import Any

from a2a.types import ListTasksRequest, Task, TaskPushNotificationConfig
from a2a.utils.errors import InvalidParamsError
from apcore_a2a_core import from_value, missing_methods, to_value
from apcore_a2a_core.records import TaskListResult, TaskRecord, TaskStore, Version

from .inprocess import InProcessStore
from .port import Page, Query, Store
from .urls import open_store
from .webhooks import Webhook

logger = logging.getLogger("apcore_a2a.stores")

PAGE = 200
RECORD = "apcoreRecord"
LACKS = (
    "The task store %s keeps tasks, and nothing is ever dropped from it. Events, leases and the "
    "keys of sends live in this process: after a restart streams don't resume and what ran is not "
    "taken over, and replicas can't share it. %s"
)


class ScannedStore(InProcessStore):
    """Queries over a store that can only list: it is read page by page, and sifted.

    It keeps one webhook for each task. What a configuration has no place for (the version it was
    set in, and why it has failed) travels in its `tenant`.

    Args:
        store: A store with the seven methods of FR-STR-001.
    """

    def __init__(self, store: TaskStore) -> None:
        super().__init__()
        self._store = store
        self._lacks = type(store).__name__, "It keeps one webhook for each task"
        self._told = False

    async def open(self) -> None:
        """Tell, once, what the store lacks."""
        if not self._told:
            logger.info(LACKS, *self._lacks)
        self._told = True

    async def save(self, record: TaskRecord) -> None:
        """Hand the record to the store."""
        await self._store.save(record)

    async def get(self, task_id: str) -> TaskRecord | None:
        """The store's record."""
        return await self._store.get(task_id)

    async def query(self, query: Query) -> Page:
        """A page of what *query* asks for; reads all records of the context."""
        found = [record async for record in self._scan(query.context_id) if _takes(query, record)]
        if query.order == "updated":
            found.sort(
                key=lambda record: record.task.status.timestamp.ToNanoseconds(), reverse=True
            )
        first = _position(found, query.cursor)
        page = found[first : first + query.limit]
        more = len(found) > first + query.limit
        return Page(page, page[-1].task.id if more else None, len(found))

    async def read_webhooks(self, task_id: str) -> Sequence[Webhook]:
        """The task's webhook, if it has one."""
        kept = await self._store.get_push_config(task_id)
        if kept is None:
            return ()
        config = TaskPushNotificationConfig()
        config.CopyFrom(kept)
        version, _, failure = config.tenant.partition(" ")
        config.ClearField("tenant")
        known: Version = "0.3" if version == "0.3" else "1.0"
        return (Webhook(config, known, failure),)

    async def write_webhooks(self, task_id: str, webhooks: Sequence[Webhook]) -> None:
        """Keep this as the task's webhook.

        Raises:
            InvalidParamsError: There is more than one.
        """
        if len(webhooks) > 1:
            raise InvalidParamsError("This agent keeps one push configuration for each task")
        if not webhooks:
            await self._store.delete_push_config(task_id)
        for webhook in webhooks:
            config = TaskPushNotificationConfig()
            config.CopyFrom(webhook.config)
            config.tenant = f"{webhook.version} {webhook.failure}"
            await self._store.save_push_config(task_id, config)

    async def _scan(self, context_id: str) -> AsyncIterator[TaskRecord]:
        cursor: str | None = None
        while True:
            result = await self._store.list(context_id or None, cursor, PAGE)
            for record in result.records:
                yield record
            cursor = result.next_cursor
            if not cursor:
                return


def _takes(query: Query, record: TaskRecord) -> bool:
    task = record.task
    return query.takes(record.owner, task.context_id, task.status.state, record.status_at)


def _position(found: list[TaskRecord], cursor: str | None) -> int:
    """Where the page behind *cursor*, the id of its last task, begins."""
    if cursor is None:
        return 0
    for index, record in enumerate(found):
        if record.task.id == cursor:
            return index + 1
    raise InvalidParamsError("Invalid page cursor")


class ScannedSdkStore(ScannedStore):
    """The same over a store of the official SDK; webhooks are kept in memory.

    Args:
        store: An `a2a.server.tasks.TaskStore`.
    """

    def __init__(self, store: Any) -> None:
        tasks: Any = SdkStore(store)
        super().__init__(tasks)
        name, limits = f"{type(store).__name__} of a2a-sdk", "Webhooks live in this process"
        self._lacks = name, f"{limits}, and tasks are listed by their last change of state"
        self._webhooks: OrderedDict[str, Sequence[Webhook]] = OrderedDict()

    async def read_webhooks(self, task_id: str) -> Sequence[Webhook]:
        """The task's webhooks, as far as this process knows them."""
        return self._webhooks.get(task_id, ())

    async def write_webhooks(self, task_id: str, webhooks: Sequence[Webhook]) -> None:
        """Keep the task's webhooks, and those of as many other tasks as logs are kept."""
        self._webhooks.pop(task_id, None)
        if webhooks:
            self._webhooks[task_id] = webhooks
            if len(self._webhooks) > self.retention.max_logs:
                self._webhooks.popitem(last=False)


class SdkStore:
    """A task store of the official SDK, with the methods of one that keep and find tasks.

    What it has no place for (owner, skill, version, the paused call) travels in the task's
    metadata. It lists by the time of the last status; push configurations it has none.

    Args:
        store: An `a2a.server.tasks.TaskStore`.
    """

    def __init__(self, store: Any) -> None:
        from a2a.server.context import ServerCallContext

        self._store = store
        self._context = ServerCallContext()

    async def save(self, record: TaskRecord) -> None:
        """Save the task with the record in its metadata."""
        task = Task()
        task.CopyFrom(record.task)
        resume = base64.b64encode(record.resume or b"").decode()
        kept = [record.owner, record.skill, record.version, resume, record.messages]
        task.metadata.fields[RECORD].CopyFrom(to_value(kept))
        await self._store.save(task, self._context)

    async def get(self, task_id: str) -> TaskRecord | None:
        """The record of a task that was saved here."""
        task = await self._store.get(task_id, self._context)
        return None if task is None else _record(task)

    async def list(self, context_id: str | None, cursor: str | None, limit: int) -> TaskListResult:
        """A page of records, the latest status first."""
        params = ListTasksRequest(
            context_id=context_id or "",
            page_token=cursor or "",
            page_size=min(limit, 100),
            include_artifacts=True,
        )
        response = await self._store.list(params, self._context)
        records = [_record(task) for task in response.tasks]
        return TaskListResult(records, response.next_page_token or None)


def _record(stored: Task) -> TaskRecord:
    task = Task()
    task.CopyFrom(stored)
    owner, skill, version, resume, messages = from_value(task.metadata.fields[RECORD])
    del task.metadata.fields[RECORD]
    return TaskRecord(task, owner, skill, version, base64.b64decode(resume) or None, messages)


def store_of(store: Any) -> Store:
    """Return a store of our own for whatever store a user brings.

    Raises:
        TypeError: It is no task store; the message lists the methods it lacks.
        ValueError: It is a text, and no address of a store.
    """
    if isinstance(store, str):
        return open_store(store)
    if isinstance(store, Store):
        return store
    if _is_sdk_store(store):
        return ScannedSdkStore(store)
    missing = missing_methods(store, TaskStore)
    if missing:
        raise TypeError(f"task_store lacks the methods: {', '.join(missing)}")
    return ScannedStore(store)


def _is_sdk_store(store: Any) -> bool:
    return any(kind.__module__.startswith("a2a.server.tasks") for kind in type(store).__mro__)
