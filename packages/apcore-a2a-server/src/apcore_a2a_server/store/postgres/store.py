"""The store over a PostgreSQL database."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import asyncpg
from a2a import types as a2a
from apcore_a2a_core.records import TaskRecord
from apcore_a2a_core.states import SETTLED

from apcore_a2a_server.store.errors import (
    LeaseLostError,
    StaleError,
    StoreError,
)
from apcore_a2a_server.store.port import (
    Change,
    Claim,
    Event,
    Lease,
    NewTask,
    Page,
    Query,
    SendKey,
    pack,
    unpack,
)
from apcore_a2a_server.store.retry import retry_while_unavailable
from apcore_a2a_server.store.rows import before_cursor, conditions, page_of

from .batching import BatchedStatement
from .database import LONGEST_TIMEOUT, REFUSALS, Database, refusal, select, sql
from .notify import ChangeNotifier
from .outbox import DatabaseOutbox, add_webhook
from .rows import added_chunks, changed_state, new_task, owner_bytes, record_of
from .schema import migrate

TIMEOUT_FRACTION_OF_LEASE = 0.2  # for a statement: renewing a lease must leave time to retry
SHORTEST_TIMEOUT = 3.0  # seconds
PRUNE_BATCH = 500  # tasks deleted at a time, so that other statements need not wait long


class PostgresStore(DatabaseOutbox):
    """Keeps tasks in a database, for any number of processes.

    Args:
        url: The database: `postgresql://user:password@host:5432/name`.
        connections: How many connections it may open at a time.
        lease_seconds: How long a lease lasts that is not renewed: what has happened to a replica
            that says nothing is found out by that time.
    """

    is_durable = True
    is_shared = True

    def __init__(self, url: str, *, connections: int = 10, lease_seconds: float = 15) -> None:
        self.lease_seconds = lease_seconds
        self._database = Database(url, connections, self._timeout)
        self._notifier: ChangeNotifier | None = None
        self._creates, self._changes, self._chunks = (
            BatchedStatement(partial(self._database.fetch_each, statement))
            for statement in (sql.create, sql.change_state, sql.add_chunks)
        )

    def _timeout(self) -> float:
        return max(TIMEOUT_FRACTION_OF_LEASE * self.lease_seconds, SHORTEST_TIMEOUT)

    async def open(self) -> None:
        """Connect, and bring the schema up to date.

        Raises:
            UnavailableError: The database can't be reached, or its schema is too new.
        """
        database = self._database
        if database.is_open:
            return
        try:
            await database.open()
            async with database.session() as session:
                await migrate(session.connection)
            self._notifier = ChangeNotifier(database.connect, database.execute, self._report_change)
        except REFUSALS as error:
            await self.close()
            raise refusal(error) from None

    async def close(self) -> None:
        """Close all connections."""
        notifier, self._notifier = self._notifier, None
        if notifier is not None:
            await notifier.close()
        await self._database.close()

    async def check(self) -> None:
        """Raise when the database can't be used, or can only be read."""
        await self._database.execute(sql.ping)

    async def clear(self) -> None:
        """Delete everything."""
        await self._database.execute(sql.clear)

    async def create(self, new: NewTask) -> Lease:
        """Keep a new task, with all that belongs to it."""
        values = new_task(new)
        try:
            await self._creates.fetch_row({**values, "lease_seconds": self.lease_seconds})
        except asyncpg.UniqueViolationError:
            if new.key is not None:
                await self._check_key(new.record.owner, new.key)
            raise
        if new.webhooks:
            self.ring()
        return Lease(new.record.task.id, 1)

    async def _check_key(self, owner: str, key: SendKey) -> None:
        """Raise the error for a key that is taken."""
        known = await self._database.fetch_row(sql.get_key, owner=owner_bytes(owner), key=key.text)
        if known is not None:
            raise key.refusal(known["digest"], known["task_id"])

    async def change(self, change: Change) -> Lease | None:
        """Make a change, also when the database is gone for a while."""
        record, task_id = change.record, change.record.task.id

        async def attempt(is_retry: bool) -> Any:
            row = await self._write(change)
            # when the answer to an earlier attempt was lost, that one may have made it stale
            return await self._made(change) if row is None and is_retry else row

        row = await retry_while_unavailable(attempt, self.lease_seconds)
        if row is None:
            raise await self._refusal(change)
        if self._notifier is not None:
            self._notifier.notify(task_id, record.version)
        if row["missed"]:
            await self.add_missed(task_id, [event.version for event in change.states])
        if row["missed"] or row["behind"]:
            await self.mark_next_due(task_id)
        if row["missed"] or row["notifies"]:
            self.ring()
        await self._trim(record, row["first_event"])
        if record.task.status.state in SETTLED:
            return None
        return Lease(task_id, row["epoch"]) if change.run else change.lease

    async def _write(self, change: Change) -> Any:
        """Make a change; return nothing if it is stale."""
        if not change.states:
            return await self._chunks.fetch_row(added_chunks(change))
        values = {**changed_state(change), "lease_seconds": self.lease_seconds}
        if change.webhook is None:
            return await self._changes.fetch_row(values)
        with suppress(StaleError):  # then the webhook is not added either
            async with self._database.transaction() as session:
                await add_webhook(session, change.record.task.id, change.webhook)
                row = await session.fetch_row(sql.change_state, **values, place=0)
                if row is None:
                    raise StaleError
                return row
        return None

    async def _made(self, change: Change) -> Any:
        """Return the row of a change that was made already; None if it was not."""
        last, task_id = change.events[-1], change.record.task.id
        row = await self._database.fetch_row(
            sql.get_last_change, task_id=task_id, version=last.version
        )
        return row if row is not None and row["body"] == pack(last.payload) else None

    async def _refusal(self, change: Change) -> StoreError:
        known = await self._database.fetch_row(sql.get_version, task_id=change.record.task.id)
        if known is not None and change.lease is not None and known["epoch"] != change.lease.epoch:
            return LeaseLostError()
        return StaleError()

    async def _trim(self, record: TaskRecord, first_event: int) -> None:
        """Cut the log down to its latest events when it has twice as many as it should."""
        limit = self.retention.max_events
        if record.version - first_event + 1 > 2 * limit:
            await self._database.execute(
                sql.trim,
                task_id=record.task.id,
                first=record.version - limit + 1,
                version=record.version,
                body=record.task.SerializeToString(),
            )

    async def get(self, task_id: str) -> TaskRecord | None:
        """Return the task's record."""
        row = await self._database.fetch_row(sql.get, task_id=task_id)
        return None if row is None else record_of(row)

    async def get_own(self, task_id: str, owner: str) -> TaskRecord | None:
        """Return the record if the task is the owner's; others' are not read."""
        row = await self._database.fetch_row(sql.get_own, task_id=task_id, owner=owner_bytes(owner))
        return None if row is None else record_of(row)

    async def events(self, task_id: str, after: int, limit: int = 1000) -> list[Event] | None:
        """Return the next events of a task; None when some of them are gone."""
        rows = await self._database.fetch(sql.events, task_id=task_id, after=after, limit=limit)
        if not rows or after < rows[0]["first_event"] - 1:
            return None
        return [Event(version, unpack(body)) for _, version, body in rows if body is not None]

    async def versions(self, task_ids: Sequence[str]) -> Mapping[str, int]:
        """Return the versions of these tasks, as far as they are there."""
        return dict(await self._database.fetch(sql.get_versions, ids=task_ids))

    async def query(self, query: Query) -> Page:
        """Return a page of what *query* asks for."""
        where, values = conditions(query, owner_bytes(query.owner))
        total = 0
        if query.order == "updated":
            total = await self._database.fetch_value(select(sql.count_tasks, where), **values)
        behind, cursor = before_cursor(query)
        rows = await self._database.fetch(
            select(sql.list_tasks, (*where, *behind), query.order),
            **values,
            **cursor,
            limit=query.limit + 1,
        )
        return page_of(rows, query, total, record_of)

    async def conversation(self, owner: str, context_id: str, limit: int) -> Sequence[a2a.Message]:
        """Return the latest messages of a conversation in their order."""
        rows = await self._database.fetch(
            sql.conversation, owner=owner_bytes(owner), context_id=context_id, limit=limit
        )
        return [a2a.Message.FromString(row["body"]) for row in rows]

    async def prune(self) -> int:
        """Delete conversations that are over, and surplus tasks."""
        kept, pruned = self.retention, 0
        values = {"ttl": float(kept.log_ttl), "kept": kept.max_logs, "limit": PRUNE_BATCH}
        await self.dead_letter()
        while True:
            async with self._database.session(LONGEST_TIMEOUT) as session:
                found = int(await session.fetch_value(sql.prune, **values))
            if not found:
                return pruned
            pruned += found

    async def renew(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        """Have these leases last again for their whole time; return those that are lost."""
        return await self._renew(leases, self.lease_seconds)

    async def release(self, leases: Sequence[Lease]) -> None:
        """Let other replicas claim these tasks at once."""
        await self._renew(leases, 0)

    async def _renew(self, leases: Sequence[Lease], seconds: float) -> list[Lease]:
        rows = await self._database.fetch(
            sql.renew,
            ids=[lease.task_id for lease in leases],
            epochs=[lease.epoch for lease in leases],
            lease_seconds=seconds,
        )
        held = {Lease(row["id"], row["epoch"]) for row in rows}
        return [lease for lease in leases if lease not in held]

    async def claim(self, limit: int) -> Sequence[Claim]:
        """Lease up to *limit* tasks whose lease or deadline has expired."""
        rows = await self._database.fetch(sql.claim, limit=limit, lease_seconds=self.lease_seconds)
        records = [record_of(row) for row in rows]
        return [
            Claim(record, Lease(record.task.id, row["epoch"]), row["attempts"])
            for record, row in zip(records, rows, strict=True)
        ]

    def _report_change(self, task_id: str, version: int) -> None:
        if self._on_change is not None:
            self._on_change(task_id, version)
