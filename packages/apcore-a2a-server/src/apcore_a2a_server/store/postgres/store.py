"""The store over a PostgreSQL database."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import asyncpg
from a2a import types as a2a
from apcore_a2a_core.records import TaskRecord
from apcore_a2a_core.states import SETTLED, TERMINAL

from apcore_a2a_server.store.errors import (
    KeyReusedError,
    LeaseLostError,
    RepeatedError,
    StaleError,
    StoreError,
    UnavailableError,
)
from apcore_a2a_server.store.events import Event, pack, unpack
from apcore_a2a_server.store.patience import patiently
from apcore_a2a_server.store.port import (
    Change,
    Claim,
    Lease,
    OnChange,
    Page,
    Query,
    Retention,
    SendKey,
    Store,
)
from apcore_a2a_server.store.postgres import listing, outbox, sql
from apcore_a2a_server.store.webhooks import Backlog, Notification, Wanted, Webhook

from .hints import Hints
from .refusals import REFUSALS, refusal
from .rows import event_columns, moment, owner_bytes, record_of, webhook_columns
from .schema import TABLES, migrate
from .together import Together

LOST = (
    OSError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.PostgresSystemError,
    asyncpg.ReadOnlySQLTransactionError,
)
"""What says that the database can't be reached, ends, has a full disk, or is a standby by now."""
ANSWER = 0.2
"""The part of a lease for which a statement is waited for: what the keeper leaves of it."""
LEAST = 3.0
"""Seconds for which it is waited for at least."""
LONGEST = 10.0
"""Seconds for one that nobody waits for."""
OPTIONS: dict[str, Any] = {
    "timeout": 5,
    "command_timeout": LONGEST,
    "server_settings": {"application_name": "apcore-a2a"},
}
"""Seconds to connect in, and for any statement; how the database knows the connections."""
driver: Any = asyncpg
"""Its types are partly unknown."""
PRUNED = 500
"""How many tasks are dropped at a time, so that nobody waits for it long."""


class PostgresStore(Store):
    """Keeps tasks in a database, for any number of processes.

    Args:
        url: The database: `postgresql://user:password@host:5432/name`.
        connections: How many connections it may open at a time.
        lease_seconds: How long a lease lasts that is not renewed: what has happened to a replica
            that says nothing is found out by that time.
    """

    keeps_webhooks = True
    keeps_outbox = True
    is_durable = True
    is_shared = True

    def __init__(self, url: str, *, connections: int = 10, lease_seconds: float = 15) -> None:
        self.lease_seconds = lease_seconds
        self._url = url
        self._connections = connections
        self._pool: Any = None
        self._hints: Hints | None = None
        self._creates, self._changes, self._chunks = (
            Together(partial(self._ask, "fetchmany", statement))
            for statement in (sql.CREATE, sql.CHANGE_STATE, sql.ADD_CHUNKS)
        )

    async def start(
        self, *, retention: Retention | None = None, on_change: OnChange | None = None
    ) -> None:
        """Connect, and bring the database up to date.

        Raises:
            UnavailableError: It can't be reached, or is newer than this package.
        """
        await super().start(retention=retention, on_change=on_change)
        if self._pool is not None:
            return
        try:
            self._pool = await driver.create_pool(
                self._url, min_size=0, max_size=self._connections, reset=_keep, **OPTIONS
            )
            async with self._pool.acquire() as connection:
                await migrate(connection)
            connect = partial(driver.connect, self._url, **OPTIONS)
            self._hints = Hints(connect, partial(self._ask, "execute"), self._on_hint)
        except REFUSALS as error:
            await self.close()
            raise refusal(error) from None

    async def close(self) -> None:
        """Close all connections."""
        hints, self._hints = self._hints, None
        if hints is not None:
            await hints.close()
        pool, self._pool = self._pool, None
        if pool is not None:
            with suppress(TimeoutError):  # then the pool has cut them off
                async with asyncio.timeout(LEAST):
                    await pool.close()

    async def check(self) -> None:
        """Raise when the database can't be used, or can only be read."""
        await self._ask("fetchval", "SELECT nextval('apcore_a2a.updates')")

    async def clear(self) -> None:
        """Forget everything."""
        tables = ", ".join(f"apcore_a2a.{name}" for name in TABLES)
        await self._ask("execute", f"TRUNCATE {tables}")

    async def create(
        self,
        record: TaskRecord,
        events: Sequence[Event],
        webhooks: Sequence[Webhook] = (),
        key: SendKey | None = None,
    ) -> Lease:
        """Keep a new task, with all that belongs to it."""
        task = record.task
        config_ids, hosts, versions, failures, configs = webhook_columns(webhooks)
        values = (
            *(task.id, owner_bytes(record.owner), task.context_id, record.skill),
            *(task.status.state, moment(task), record.version, record.messages),
            *(task.SerializeToString(), record.resume, self.lease_seconds),
            *event_columns(events),
            [message.SerializeToString() for message in record.said()[-record.messages :]],
            *(config_ids, hosts, versions),
            *((None, None) if key is None else (key.text, key.digest)),
            *(failures, configs),
        )
        try:
            await self._creates.ask(*values)
        except asyncpg.UniqueViolationError:
            if key is not None:
                await self._check(record.owner, key)
            raise
        return Lease(task.id, 1)

    async def _check(self, owner: str, key: SendKey) -> None:
        """Raise what is to be said of a key that is taken."""
        query = "SELECT digest, task_id FROM apcore_a2a.sends WHERE owner = $1 AND key = $2"
        known = await self._ask("fetchrow", query, owner_bytes(owner), key.text)
        if known is not None:
            same = known["digest"] == key.digest
            raise (RepeatedError if same else KeyReusedError)(known["task_id"])

    async def change(self, change: Change) -> Lease | None:
        """Make a change."""
        record, state = change.record, change.record.task.status.state
        known = await self._made(change)
        if known is None:
            raise await self._refusal(change)
        if self._hints is not None:
            self._hints.tell(record.task.id, record.version)
        if known["missed"]:
            versions = [event.version for event in change.states]
            await self._ask("execute", sql.TELL, record.task.id, versions)
        if known["missed"] or known["behind"]:
            await outbox.hurry(self._ask, record.task.id)
        limit = self.retention.max_events
        if record.version - known["first_event"] + 1 > 2 * limit:
            first, body = record.version - limit + 1, record.task.SerializeToString()
            await self._ask("execute", sql.TRIM, record.task.id, first, record.version, body)
        if state in SETTLED:
            return None
        return Lease(record.task.id, known["epoch"]) if change.run else change.lease

    async def _made(self, change: Change) -> Any:
        """Make a change, also when the database is gone for a while; nothing if it is stale."""
        make = self._change_state if change.states else self._add_chunks

        async def attempt(again: bool) -> Any:
            known = await make(change)
            return await self._is_made(change) if known is None and again else known

        return await patiently(attempt, self.lease_seconds)

    async def _is_made(self, change: Change) -> Any:
        """Whether it was this change that has made it stale: its answer may have been lost."""
        query = (
            "SELECT t.epoch, t.first_event, e.body, false AS missed, true AS behind"
            " FROM apcore_a2a.tasks t"
            " JOIN apcore_a2a.events e ON e.task_id = t.id AND e.version = $2 WHERE t.id = $1"
        )
        last = change.events[-1]
        found = await self._ask("fetchrow", query, change.record.task.id, last.version)
        return found if found is not None and found["body"] == pack(last.payload) else None

    async def _change_state(self, change: Change) -> Any:
        record, task = change.record, change.record.task
        state = task.status.state
        return await self._changes.ask(
            *(task.id, change.base, None if change.lease is None else change.lease.epoch),
            *(record.version, state, moment(task), record.messages, task.SerializeToString()),
            *(record.resume, state in SETTLED, int(change.run), self.lease_seconds),
            state in TERMINAL,
            *event_columns(change.events),
            [message.SerializeToString() for message in record.said()],
            record.deadline,
            [event.version for event in change.states],
        )

    async def _add_chunks(self, change: Change) -> Any:
        return await self._chunks.ask(
            *(change.record.task.id, change.base),
            *(None if change.lease is None else change.lease.epoch, change.record.version),
            *event_columns(change.events),
        )

    async def _refusal(self, change: Change) -> StoreError:
        query = "SELECT version, epoch FROM apcore_a2a.tasks WHERE id = $1"
        known = await self._ask("fetchrow", query, change.record.task.id)
        if known is not None and change.lease is not None and known["epoch"] != change.lease.epoch:
            return LeaseLostError()
        return StaleError()

    async def get(self, task_id: str) -> TaskRecord | None:
        """The task's record."""
        row = await self._ask(
            "fetchrow", f"SELECT {sql.COLUMNS} FROM apcore_a2a.tasks t WHERE id = $1", task_id
        )
        return None if row is None else record_of(row)

    async def get_own(self, task_id: str, owner: str) -> TaskRecord | None:
        """The same of a task that is the owner's; one of others is not read."""
        row = await self._ask(
            "fetchrow",
            f"SELECT {sql.COLUMNS} FROM apcore_a2a.tasks t WHERE id = $1 AND owner = $2",
            task_id,
            owner_bytes(owner),
        )
        return None if row is None else record_of(row)

    async def events(self, task_id: str, after: int, limit: int = 1000) -> list[Event] | None:
        """The next events of a task; None when some of them are gone."""
        rows = await self._ask("fetch", sql.EVENTS, task_id, after, limit)
        if not rows or after < rows[0]["first_event"] - 1:
            return None
        return [Event(v, unpack(body)) for _, v, body in rows if body is not None]

    async def versions(self, task_ids: Sequence[str]) -> Mapping[str, int]:
        """The versions of these tasks, as far as they are there."""
        query = "SELECT id, version FROM apcore_a2a.tasks WHERE id = ANY($1::text[])"
        return dict(await self._ask("fetch", query, task_ids))

    async def query(self, query: Query) -> Page:
        """A page of what *query* asks for."""
        return await listing.page(self._ask, query)

    async def conversation(self, owner: str, context_id: str, limit: int) -> Sequence[a2a.Message]:
        """The latest messages of a conversation, in the order in which they came."""
        rows = await self._ask("fetch", sql.CONVERSATION, owner_bytes(owner), context_id, limit)
        return [a2a.Message.FromString(row["body"]) for row in rows]

    async def webhooks(self, task_id: str) -> Sequence[Webhook]:
        """The webhooks of a task, oldest first."""
        return await outbox.webhooks(self._ask, task_id)

    async def save_webhooks(
        self, task_id: str, webhooks: Sequence[Webhook], known: Sequence[Webhook] | None = None
    ) -> None:
        """Keep these as the webhooks of a task."""
        async with self._connected() as connection, connection.transaction():
            await outbox.save_webhooks(connection, task_id, webhooks, known)

    async def claim_notifications(self, wanted: Wanted) -> Sequence[Notification]:
        """Take what is due, the next of each webhook."""
        return await outbox.claim(self._ask, wanted)

    async def settle(self, notification: Notification) -> None:
        """It has been delivered."""
        await outbox.settle(self._ask, notification)

    async def postpone(self, notification: Notification, seconds: float) -> None:
        """It may be taken again in so many seconds."""
        await outbox.postpone(self._ask, notification, seconds)

    async def give_up(self, notification: Notification, reason: str) -> int:
        """Its webhook has failed."""
        async with self._connected() as connection, connection.transaction():
            return await outbox.give_up(connection, notification, reason)

    async def backlog(self, most: int) -> Backlog:
        """What waits; the webhooks to which an owner has more than *most* of it fail."""
        return await outbox.backlog(self._ask, most)

    async def prune(self) -> int:
        """Drop conversations that are over, and what is too much."""
        kept = self.retention
        values = float(kept.log_ttl), kept.max_logs, PRUNED
        await outbox.bury(self._ask)
        pruned = 0
        while found := int(await self._ask("fetchval", sql.PRUNE, *values, seconds=LONGEST)):
            pruned += found
        return pruned

    async def renew(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        """Have these leases last again for their whole time; returns those that are lost."""
        return await self._renew(leases, self.lease_seconds)

    async def release(self, leases: Sequence[Lease]) -> None:
        """Let others claim these tasks at once."""
        await self._renew(leases, 0)

    async def _renew(self, leases: Sequence[Lease], seconds: float) -> list[Lease]:
        names = [lease.task_id for lease in leases]
        rows = await self._ask("fetch", sql.RENEW, names, [each.epoch for each in leases], seconds)
        held = {Lease(row["id"], row["epoch"]) for row in rows}
        return [lease for lease in leases if lease not in held]

    async def claim(self, limit: int) -> Sequence[Claim]:
        """Lease up to *limit* tasks that somebody should see to."""
        rows = await self._ask("fetch", sql.CLAIM, limit, self.lease_seconds)
        records = [record_of(row) for row in rows]
        return [
            Claim(record, Lease(record.task.id, row["epoch"]), row["attempts"])
            for record, row in zip(records, rows, strict=True)
        ]

    def _on_hint(self, task_id: str, version: int) -> None:
        if self._on_change is not None:
            self._on_change(task_id, version)

    async def _ask(self, method: str, *values: Any, seconds: float = 0) -> Any:
        """Run a statement on any connection.

        Raises:
            UnavailableError: The database can't be reached, or has not answered in so many
                seconds; whether the statement was run is not known.
        """
        async with self._connected(seconds) as connection:
            return await getattr(connection, method)(*values)

    @asynccontextmanager
    async def _connected(self, seconds: float = 0) -> AsyncGenerator[Any]:
        """Any connection, for so many seconds.

        Raises:
            UnavailableError: The database can't be reached; whether anything was done is not known.
        """
        if self._pool is None:
            raise StoreError("The store is not open")
        try:
            async with asyncio.timeout(seconds or max(ANSWER * self.lease_seconds, LEAST)):
                connection = await self._pool.acquire()
                try:
                    yield connection
                except (TimeoutError, asyncio.CancelledError):
                    # the driver would ask the database to cancel, and wait for that
                    connection.terminate()
                    raise
                finally:
                    await self._pool.release(connection)
        except LOST as error:
            await self._pool.expire_connections()  # the others are as dead
            raise UnavailableError(f"The database can't be reached: {error}") from error


async def _keep(connection: Any) -> None:
    """Give a connection back as it is: no statement here leaves anything behind in it."""
