"""The store over an SQLite file (https://sqlite.org/wal.html)."""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from a2a import types as a2a
from apcore_a2a_core.records import TaskRecord

from apcore_a2a_server.store.errors import StoreError, UnavailableError
from apcore_a2a_server.store.port import (
    Change,
    Claim,
    Event,
    Lease,
    OnChange,
    Page,
    Query,
    Retention,
    SendKey,
    Store,
)
from apcore_a2a_server.store.retry import retry_while_unavailable
from apcore_a2a_server.store.sqlite import outbox, tasks
from apcore_a2a_server.store.webhooks import Backlog, ClaimRequest, Notification, Webhook

from .file import connect, lock
from .schema import sql
from .worker import Worker

Result = TypeVar("Result")


class SqliteStore(Store):
    """Keeps tasks in one file, for one process; what it has said that it has is on the disk.

    Args:
        path: The file; it and two beside it are made when they are not there.
        lease_seconds: How long a lease lasts that is not renewed.

    Example:
        ```python
        import asyncio
        from pathlib import Path
        from tempfile import mkdtemp

        from apcore_a2a_server.store.sqlite import SqliteStore


        async def main() -> None:
            store = SqliteStore(Path(mkdtemp()) / "agent.db")
            await store.start()
            print(await store.get("t1"))
            #> None
            await store.close()


        asyncio.run(main())
        ```
    """

    is_durable = True

    def __init__(self, path: str | Path, *, lease_seconds: float = 15) -> None:
        self.path = Path(path)
        self.lease_seconds = lease_seconds
        self._writer: Worker | None = None
        self._reader: Worker | None = None
        self._release: Callable[[], None] = lambda: None

    async def start(
        self, *, retention: Retention | None = None, on_change: OnChange | None = None
    ) -> None:
        """Open the file, and bring it up to date.

        Raises:
            StoreError: Another process has it, it can't be opened, or it is too new.
        """
        await super().start(retention=retention, on_change=on_change)
        if self._writer is not None:
            return
        try:
            self._release = lock(self.path)
            connections = await asyncio.to_thread(connect, self.path)
        except BaseException as error:  # whatever it is, the file is nobody's then
            self._release()
            if isinstance(error, sqlite3.Error | OSError) and not isinstance(error, StoreError):
                raise UnavailableError(f"{self.path} can't be used: {error}") from error
            raise
        self._writer, self._reader = (
            Worker(connection, self.path, writes=writes)
            for connection, writes in zip(connections, (True, False), strict=True)
        )
        self._writer.start()
        self._reader.start()

    async def close(self) -> None:
        """Write what is still to be written, and close the file."""
        workers, self._writer, self._reader = [self._writer, self._reader], None, None
        for worker in workers:
            if worker is not None:
                await worker.close()
        self._release()

    async def check(self) -> None:
        """Raise when the file can't be used; one that could not be written is tried again."""
        if self._writer is not None and self._writer.fails:
            await self._write(lambda connection: None)
        await super().check()

    async def create(
        self,
        record: TaskRecord,
        events: Sequence[Event],
        webhooks: Sequence[Webhook] = (),
        key: SendKey | None = None,
    ) -> Lease:
        """Keep a new task, with all that belongs to it."""
        expires = time.monotonic() + self.lease_seconds
        lease = await self._write(partial(tasks.create, record, events, webhooks, key, expires))
        if webhooks:
            self.ring()
        return lease

    async def change(self, change: Change) -> Lease | None:
        """Make a change, also when the disk is full for a while."""

        async def attempt(is_retry: bool) -> tuple[Lease | None, bool]:
            expires, limit = time.monotonic() + self.lease_seconds, self.retention.max_events
            return await self._write(partial(tasks.change, change, expires, limit))

        lease, notifies = await retry_while_unavailable(attempt, self.lease_seconds)
        if notifies:
            self.ring()
        return lease

    async def get(self, task_id: str) -> TaskRecord | None:
        """The task's record."""
        return await self._read(partial(tasks.get, sql.get, {"task_id": task_id}))

    async def get_own(self, task_id: str, owner: str) -> TaskRecord | None:
        """The same of a task that is the owner's; one of others is not read."""
        values = {"task_id": task_id, "owner": owner}
        return await self._read(partial(tasks.get, sql.get_own, values))

    async def events(self, task_id: str, after: int, limit: int = 1000) -> list[Event] | None:
        """The next events of a task; None when some of them are gone."""
        return await self._read(partial(tasks.events, task_id, after, limit))

    async def query(self, query: Query) -> Page:
        """A page of what *query* asks for."""
        return await self._read(partial(tasks.query, query))

    async def conversation(self, owner: str, context_id: str, limit: int) -> Sequence[a2a.Message]:
        """The latest messages of a conversation, in the order in which they came."""
        return await self._read(partial(tasks.conversation, owner, context_id, limit))

    async def webhooks(self, task_id: str) -> Sequence[Webhook]:
        """The webhooks of a task, oldest first."""
        return await self._read(partial(outbox.webhooks, task_id))

    async def save_webhooks(
        self, task_id: str, webhooks: Sequence[Webhook], known: Sequence[Webhook] | None = None
    ) -> None:
        """Keep these as the webhooks of a task."""
        await self._write(partial(outbox.replace, task_id, webhooks, known))
        self.ring()

    async def prune(self) -> int:
        """Drop conversations that are over, and what is too much."""
        pruned = 0
        await self._write(outbox.dead_letter)
        while found := await self._write(partial(tasks.prune, self.retention)):
            pruned += found
        return pruned

    async def renew(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        """Have these leases last again for their whole time; returns those that are lost."""
        return await self._write(
            partial(tasks.renew, leases, time.monotonic() + self.lease_seconds)
        )

    async def release(self, leases: Sequence[Lease]) -> None:
        """Let others claim these tasks at once."""
        await self._write(partial(tasks.renew, leases, 0))

    async def claim(self, limit: int) -> Sequence[Claim]:
        """Lease up to *limit* tasks that somebody should see to."""
        now = time.monotonic()
        return await self._write(partial(tasks.claim, limit, now, now + self.lease_seconds))

    async def claim_notifications(self, request: ClaimRequest) -> Sequence[Notification]:
        """Take what is due, the next of each webhook."""
        return await self._write(partial(outbox.claim, request))

    async def settle(self, notification: Notification) -> None:
        """It has been delivered."""
        await self._write(partial(outbox.settle, notification))

    async def postpone(self, notification: Notification, seconds: float) -> None:
        """It may be taken again in so many seconds."""
        await self._write(partial(outbox.postpone, notification, seconds))

    async def give_up(self, notification: Notification, reason: str) -> int:
        """Its webhook has failed."""
        return await self._write(partial(outbox.give_up, notification, reason))

    async def limit_backlog(self, max_pending: int) -> int:
        """Count what waits, and have webhooks fail to which an owner has more than that."""
        counts = await self._read(outbox.counted)
        owners = [owner for owner, count, _ in counts if count > max_pending]
        dead = 0
        if owners:
            dead = await self._write(partial(outbox.give_up_surplus, owners, max_pending))
        pending = sum(count for _, count, _ in counts)
        age = time.time() - min((since for _, _, since in counts), default=time.time())
        self._backlog = Backlog(pending - dead, max(age, 0))
        return dead

    async def _write(self, job: Callable[[sqlite3.Connection], Result]) -> Result:
        return await self._do(self._writer, job)

    async def _read(self, job: Callable[[sqlite3.Connection], Result]) -> Result:
        return await self._do(self._reader, job)

    async def _do(
        self, worker: Worker | None, job: Callable[[sqlite3.Connection], Result]
    ) -> Result:
        if worker is None:
            raise StoreError("The store is not open")
        return await worker.do(job)
