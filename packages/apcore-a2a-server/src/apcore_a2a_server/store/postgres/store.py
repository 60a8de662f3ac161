"""The store in a PostgreSQL database."""

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import asyncpg
from apcore_a2a_core.data import Message
from apcore_a2a_core.records import TaskRecord
from apcore_a2a_core.states import SETTLED
from apcore_a2a_core.values import read_json

from apcore_a2a_server.store.exceptions import (
    LeaseLostError,
    StaleError,
    StoreError,
    UnavailableError,
)
from apcore_a2a_server.store.operator_port import OpenTasks
from apcore_a2a_server.store.page_tokens import PageTokens
from apcore_a2a_server.store.port import (
    Change,
    Claim,
    Event,
    Lease,
    NewTask,
    Renew,
    SendKey,
    pack_payload,
)
from apcore_a2a_server.store.queries import Page, Query
from apcore_a2a_server.store.replicas import REPLICA_TTL_IN_LEASE_DURATIONS, Replica
from apcore_a2a_server.store.retry import retry_while_unavailable
from apcore_a2a_server.store.rows import (
    open_tasks_from,
    page_from,
    prefix_end,
    sql_conditions,
    task_columns,
)

from .batching import BatchedStatement
from .database import (
    BACKGROUND_TIMEOUT,
    DATABASE_ERRORS,
    Database,
    fill_conditions,
    sql,
    unavailable_error,
)
from .notify import ChangeNotifier
from .outbox import DatabaseOutbox, add_webhook
from .rows import (
    chunk_parameters,
    create_parameters,
    owner_bytes,
    owner_text,
    record_of,
    replica_from,
    replica_parameters,
    state_parameters,
)
from .schema import is_latest, migrate

TIMEOUT_FRACTION_OF_LEASE = 0.2  # timeout of a statement, so that a renewal can be retried
SHORTEST_TIMEOUT = 3.0  # seconds
PRUNE_BATCH = 500  # tasks deleted at a time, so that other statements need not wait long


class PostgresStore(DatabaseOutbox):
    """A store of tasks in a PostgreSQL database, for any number of replicas.

    Args:
        url: The database: `postgresql://user:password@host:5432/name`.
        connections: Maximum number of connections in each replica's pool. A replica needs two
            more: to listen for changes, and to renew leases.
        lease_seconds: Seconds after which a lease expires unless it is renewed: the time until the
            tasks of a replica that has crashed are taken over.
    """

    is_durable = True
    is_shared = True

    def __init__(self, url: str, *, connections: int = 10, lease_seconds: float = 15) -> None:
        self.lease_seconds = lease_seconds
        self._url = url
        self._database = Database(url, connections, self._timeout)
        self._notifier: ChangeNotifier | None = None
        self._page_tokens: PageTokens | None = None
        self._creates, self._changes, self._chunks = (
            BatchedStatement(partial(self._database.fetch_batch, statement))
            for statement in (sql.create, sql.change_state, sql.add_chunks)
        )

    def _timeout(self) -> float:
        return max(TIMEOUT_FRACTION_OF_LEASE * self.lease_seconds, SHORTEST_TIMEOUT)

    async def open(self) -> None:
        """Connect to the database, and migrate its schema to the latest version.

        Raises:
            UnavailableError: The database can't be reached, or its schema is too new.
        """
        if self._notifier is not None:
            return
        database = self._database
        try:
            await database.open()
            await self._migrate()
            self._notifier = ChangeNotifier(database.connect, database.execute, self._report_change)
        except DATABASE_ERRORS as error:
            await self.close()
            raise unavailable_error(error) from None

    async def _migrate(self) -> None:
        """Migrate the schema, unless it has the latest version already."""
        async with self._database.session() as session:
            if await is_latest(session.connection):
                return
        # Migrating a large database takes minutes; replicas that wait for the lock need as long.
        connection = await self._database.connect(command_timeout=None)
        try:
            await migrate(connection)
        finally:
            connection.terminate()

    async def close(self) -> None:
        """Close all connections."""
        notifier, self._notifier = self._notifier, None
        if notifier is not None:
            await notifier.close()
        await self._database.close()

    async def check(self) -> None:
        """Raise an exception if the database can't be used, or can only be read."""
        await self._database.execute(sql.ping)

    async def now(self) -> float:
        """Return the time by the database's clock; retry while the database is unavailable."""

        async def attempt(is_retry: bool) -> float:
            return float(await self._database.fetch_value(sql.now))

        return await retry_while_unavailable(attempt, self.lease_seconds)

    async def clear(self) -> None:
        """Delete all tasks with everything that belongs to them, and the reports of replicas."""
        await self._database.execute(sql.clear)

    async def create(self, new_task: NewTask) -> Lease:
        """Store a new task with everything that belongs to it."""
        parameters = create_parameters(new_task)
        try:
            await self._creates.fetch_row({**parameters, **self._new_lease()})
        except asyncpg.UniqueViolationError:
            if new_task.key is not None:
                await self._check_key(new_task.record.owner, new_task.key)
            raise
        if new_task.webhooks:
            self.wake_listener()
        return Lease(new_task.record.task.id, 1)

    def _new_lease(self) -> dict[str, Any]:
        """Return the parameters of a lease of this replica."""
        return {"lease_seconds": self.lease_seconds, "holder": self.replica_id}

    async def _check_key(self, owner: str, send_key: SendKey) -> None:
        """Raise an error if another task has the key."""
        columns = {"owner": owner_bytes(owner), "key": send_key.text}
        row = await self._database.fetch_row(sql.get_key, **columns)
        if row is not None:
            raise send_key.conflict(row["digest"], row["task_id"])

    async def change(self, change: Change) -> Lease | None:
        """Store a change; retry while the database is unavailable."""
        record, task_id = change.record, change.record.task.id

        async def attempt(is_retry: bool) -> Any:
            row = await self._write(change)
            # The reply to an earlier attempt may have been lost after the change was stored. The
            # retry is then stale because of this very change, and must not be refused.
            if row is None and is_retry:
                row = await self._find_stored(change)
            # Missed notifications take a second transaction: a statement does not see the webhooks
            # that another transaction commits while the statement runs.
            if row is not None and row["missed"]:
                state_versions = [event.version for event in change.state_events]
                await self.add_missed_notifications(task_id, state_versions)
            return row

        row = await retry_while_unavailable(attempt, self.lease_seconds)
        if row is None:
            raise await self._refusal(change)
        if self._notifier is not None:
            self._notifier.notify(task_id, record.version)
        if row["missed"] or row["behind"]:
            await self.mark_next_due(task_id)
        if row["missed"] or row["notifies"]:
            self.wake_listener()
        await self._trim(record, row["first_event"])
        if record.task.status.state in SETTLED:
            return None
        return Lease(task_id, row["epoch"]) if change.run else change.lease

    async def _write(self, change: Change) -> Any:
        """Store a change; return the row of the statement, or None if the change is refused."""
        if not change.state_events:
            return await self._chunks.fetch_row(chunk_parameters(change))
        parameters = {**state_parameters(change), **self._new_lease()}
        if change.webhook is None:
            return await self._changes.fetch_row(parameters)
        with suppress(StaleError):  # the transaction is rolled back, with the added webhook
            async with self._database.transaction() as session:
                await add_webhook(session, change.record.task.id, change.webhook)
                row = await session.fetch_row(sql.change_state, **parameters, call_index=0)
                if row is None:
                    raise StaleError
                return row
        return None

    async def _find_stored(self, change: Change) -> Any:
        """Return the row for a change if an earlier attempt has stored it, else None."""
        last_event, task_id = change.events[-1], change.record.task.id
        columns = {"task_id": task_id, "version": last_event.version}
        row = await self._database.fetch_row(sql.get_last_change, **columns)
        is_stored = row is not None and row["body"] == pack_payload(last_event.payload)
        return row if is_stored else None

    async def _refusal(self, change: Change) -> StoreError:
        """Return the error for a change that was refused."""
        row = await self._database.fetch_row(sql.get_version, task_id=change.record.task.id)
        if row is not None and change.lease is not None and row["epoch"] != change.lease.epoch:
            return LeaseLostError()
        return StaleError()

    async def _trim(self, record: TaskRecord, first_event: int) -> None:
        """Keep only the latest `max_events` events once there are more than twice as many."""
        limit = self.retention.max_events
        if record.version - first_event + 1 > 2 * limit:
            with suppress(UnavailableError):  # the change is stored; the next one trims the log
                await self._database.execute(
                    sql.trim,
                    task_id=record.task.id,
                    first=record.version - limit + 1,
                    version=record.version,
                    body=task_columns(record)["body"],
                )

    async def get(self, task_id: str, owner: str | None = None) -> TaskRecord | None:
        """Return the task's record; if *owner* is given, only a task of that owner is read."""
        stored_owner = None if owner is None else owner_bytes(owner)
        row = await self._database.fetch_row(sql.get, task_id=task_id, owner=stored_owner)
        return None if row is None else await self._record(row)

    async def _record(self, row: Any) -> TaskRecord:
        """Return the record of a row, with the large messages that its body lacks."""
        record = record_of(row)
        await self.add_large_messages(record.task, record.first)
        return record

    async def spans(self, task_id: str) -> str:
        """Return the spans of a task."""
        return str(await self._database.fetch_value(sql.get_spans, task_id=task_id) or "")

    async def events(self, task_id: str, after: int, limit: int = 1000) -> list[Event] | None:
        """Return the next events of a task; None if the task or some of them were deleted."""
        rows = await self._database.fetch(sql.events, task_id=task_id, after=after, limit=limit)
        if not rows or after < rows[0]["first_event"] - 1:
            return None
        # a task without further events gives one row without a body
        events = (row for row in rows if row["body"] is not None)
        return [Event(version, await self.read_payload(body)) for _, version, body in events]

    async def versions(self, task_ids: Sequence[str]) -> Mapping[str, int]:
        """Return the versions of these tasks; tasks that do not exist are left out."""
        return dict(await self._database.fetch(sql.get_versions, ids=task_ids))

    async def query(self, query: Query) -> Page:
        """Return a page of the tasks that match *query*."""
        if self._page_tokens is None:
            self._page_tokens = PageTokens(await self._database.fetch_value(sql.get_page_key))
        tokens, position = self._page_tokens, self._page_tokens.open(query)
        conditions, page_conditions, parameters = sql_conditions(query, owner_bytes, position)
        total = 0
        if query.order == "updated":
            count_tasks = fill_conditions(sql.count_tasks, conditions)
            total = await self._database.fetch_value(count_tasks, **parameters)
        list_tasks = fill_conditions(sql.list_tasks, page_conditions, query.order)
        rows = await self._database.fetch(list_tasks, **parameters)
        page = page_from(rows, query, total, tokens, record_of)
        for record in page.records:
            await self.add_large_messages(record.task, record.first)
        return page

    async def open_tasks(self) -> OpenTasks:
        """Count the open tasks of all replicas by state, with the time of the oldest status."""
        return open_tasks_from(await self._database.fetch(sql.open_tasks))

    async def count_failed_webhooks(self) -> int:
        """Return how many webhooks of all tasks have failed."""
        return int(await self._database.fetch_value(sql.count_failed_webhooks))

    async def conversation(self, owner: str, context_id: str, limit: int) -> Sequence[Message]:
        """Return the latest messages of a conversation, oldest first."""
        rows = await self._database.fetch(
            sql.conversation, owner=owner_bytes(owner), context_id=context_id, limit=limit
        )
        return [read_json(Message, row["body"]) for row in rows]

    async def prune(self) -> int:
        """Delete expired conversations, and ended tasks beyond the number to keep."""
        ttl, kept = float(self.retention.log_ttl), self.retention.max_logs
        total = 0
        await self.dead_letter()
        await self._database.execute(sql.prune_replicas, seconds=self._replica_ttl())
        while True:
            async with self._database.session(BACKGROUND_TIMEOUT) as session:
                pruned = await session.fetch_value(sql.prune, ttl=ttl, kept=kept, limit=PRUNE_BATCH)
            if not pruned:
                return total
            total += int(pruned)

    async def owners(self, prefix: str) -> Sequence[str]:
        """Return the task owners whose names begin with a prefix; none for an empty prefix."""
        bounds = {"owner": owner_bytes(prefix), "owner_end": owner_bytes(prefix_end(prefix))}
        return [owner_text(owner) for (owner,) in await self._database.fetch(sql.owners, **bounds)]

    async def delete_ended(self, owner: str) -> int:
        """Delete an owner's tasks that have ended, with everything that belongs to them."""
        parameters = {"owner": owner_bytes(owner), "limit": PRUNE_BATCH}
        total = 0
        while True:
            async with self._database.session(BACKGROUND_TIMEOUT) as session:
                deleted = await session.fetch_value(sql.delete_ended, **parameters)
            if not deleted:
                return total
            total += int(deleted)

    async def extend(self, leases: Sequence[Lease], seconds: float) -> Sequence[Lease]:
        """Make leases expire in *seconds*; return those that are lost."""
        return await _extend(self._database, leases, seconds)

    @asynccontextmanager
    async def renewing(self) -> AsyncGenerator[Renew]:
        """Yield a function that renews leases and saves the replica's report."""
        database = Database(self._url, 1, self._timeout)
        await database.open()

        async def renew(leases: Sequence[Lease], replica: Replica) -> Sequence[Lease]:
            lost_leases = await _extend(database, leases, self.lease_seconds) if leases else ()
            with suppress(UnavailableError):  # the leases are renewed; the next call reports again
                await database.execute(sql.save_replica, **replica_parameters(replica))
            return lost_leases

        try:
            yield renew
        finally:
            await database.close()

    def _replica_ttl(self) -> float:
        return float(REPLICA_TTL_IN_LEASE_DURATIONS * self.lease_seconds)

    async def replicas(self) -> Sequence[Replica]:
        """Return the replicas that share the database, the longest running first."""
        rows = await self._database.fetch(sql.replicas, seconds=self._replica_ttl())
        return [replica_from(row) for row in rows]

    async def remove_replica(self, replica_id: str) -> None:
        """Remove a replica that shuts down."""
        await self._database.execute(sql.remove_replica, replica_id=replica_id)

    async def lease_holders(self, task_ids: Sequence[str]) -> Mapping[str, str]:
        """Return the ids of the replicas that have a lease of these tasks, by task id."""
        return dict(await self._database.fetch(sql.lease_holders, ids=task_ids))

    async def claim(self, limit: int, running: Collection[str] = ()) -> Sequence[Claim]:
        """Lease up to *limit* tasks that are orphaned, or paused past their deadline."""
        pauses = [float(seconds) for seconds in self.restart_pauses]
        rows = await self._database.fetch(
            sql.claim, limit=limit, pauses=pauses, **self._new_lease()
        )
        return [
            Claim(await self._record(row), Lease(row["id"], row["epoch"]), row["attempts"])
            for row in rows
        ]

    def _report_change(self, task_id: str, version: int) -> None:
        if self._on_change is not None:
            self._on_change(task_id, version)


async def _extend(database: Database, leases: Sequence[Lease], seconds: float) -> Sequence[Lease]:
    rows = await database.fetch(
        sql.extend,
        ids=[lease.task_id for lease in leases],
        epochs=[lease.epoch for lease in leases],
        lease_seconds=seconds,
    )
    held_leases = {Lease(row["id"], row["epoch"]) for row in rows}
    return [lease for lease in leases if lease not in held_leases]
