"""Change notifications from one replica to the others: LISTEN and NOTIFY.

A notification may be lost; the others poll, and see the change a little later. Notifications are
sent apart from the changes, and many at a time: a transaction that notifies waits for all others
that do.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from .database import sql

logger = logging.getLogger("apcore_a2a.store")

CHANNEL = "apcore_a2a_changes"
BATCH_PAUSE = 0.01  # seconds for which further notifications are held back, to go together
LARGEST_PAYLOAD = 7900  # bytes; PostgreSQL takes 8,000
RECONNECT_PAUSE = 1.0  # seconds before a lost connection is made anew
HEARTBEAT = 5.0  # seconds of silence after which a connection is tried


class ChangeNotifier:
    """Sends and receives change notifications.

    Args:
        connect: Returns a new connection to listen on.
        execute: Runs a statement on any connection.
        on_change: Is called with the id and the version of each task that has changed.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[Any]],
        execute: Callable[..., Awaitable[Any]],
        on_change: Callable[[str, int], None],
    ) -> None:
        self._connect = connect
        self._execute = execute
        self._on_change = on_change
        self._pending: dict[str, int] = {}
        self._sending: asyncio.Task[None] | None = None
        self._listening = asyncio.create_task(self._listen())

    def notify(self, task_id: str, version: int) -> None:
        """Send the version of a task that has changed."""
        self._pending[task_id] = version
        if self._sending is None:
            self._sending = asyncio.create_task(self._send())

    async def close(self) -> None:
        """Stop listening, and send what is pending."""
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)
        if self._sending is not None:
            await self._sending

    async def _send(self) -> None:
        while self._pending:
            pending, self._pending = self._pending, {}
            try:
                for payload in payloads(pending):
                    await self._execute(sql.notify, channel=CHANNEL, payload=payload)
            except Exception as error:  # the database may be gone: the others poll
                logger.debug("Change notifications were lost: %s", type(error).__name__)
            await asyncio.sleep(BATCH_PAUSE)
        self._sending = None

    async def _listen(self) -> None:
        """Listen, and connect again whenever the connection is lost."""
        while True:
            try:
                connection = await self._connect()
                try:
                    await connection.add_listener(CHANNEL, self._receive)
                    await _lost(connection)
                finally:
                    connection.terminate()
            except Exception as error:  # the database may be gone for now
                logger.debug("No change notifications arrive: %s", type(error).__name__)
            await asyncio.sleep(RECONNECT_PAUSE)

    def _receive(self, connection: Any, pid: int, channel: str, payload: str) -> None:
        for line in payload.splitlines():
            task_id, _, version = line.rpartition(" ")
            if version.isdigit():
                self._on_change(task_id, int(version))


async def _lost(connection: Any) -> None:
    """Return, or raise, when a connection is lost; nothing arrives from one that was cut."""
    ended = asyncio.Event()
    connection.add_termination_listener(partial(_end, ended))
    while not ended.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(HEARTBEAT):
                await ended.wait()
        await connection.execute("SELECT 1", timeout=HEARTBEAT)


def _end(ended: asyncio.Event, connection: Any) -> None:
    ended.set()


def payloads(pending: dict[str, int]) -> Iterator[str]:
    """Yield tasks and versions as lines, as many at a time as PostgreSQL takes."""
    lines: list[str] = []
    size = 0
    for task_id, version in pending.items():
        line = f"{task_id} {version}"
        if lines and size + len(line.encode()) + 1 > LARGEST_PAYLOAD:
            yield "\n".join(lines)
            lines, size = [], 0
        lines.append(line)
        size += len(line.encode()) + 1
    if lines:
        yield "\n".join(lines)
