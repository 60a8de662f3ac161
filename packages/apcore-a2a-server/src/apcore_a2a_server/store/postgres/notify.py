"""Change notifications between replicas with LISTEN and NOTIFY.

If a change notification is lost, replicas see the change a little later, because they also poll.
Change notifications are sent in batches, not in the transactions of the changes: PostgreSQL
commits transactions with notifications one after the other.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from .database import sql

logger = logging.getLogger("apcore_a2a.store")

CHANNEL = "apcore_a2a_changes"
BATCH_PAUSE = 0.01  # seconds between two batches
LINES_PER_PAYLOAD = 100  # with a UUID and a version each; PostgreSQL allows 7,999 bytes
RECONNECT_PAUSE = 1.0  # seconds before a lost connection is replaced
HEARTBEAT_INTERVAL = 5.0  # seconds between two tests of the connection


class ChangeNotifier:
    """A sender and receiver of change notifications.

    Args:
        connect: Returns a new connection to listen on.
        execute: Runs a statement on any connection.
        on_change: Callback for the id and the version of each task that has changed.
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
        self._send_task: asyncio.Task[None] | None = None
        self._listen_task = asyncio.create_task(self._listen())

    def notify(self, task_id: str, version: int) -> None:
        """Notify all replicas of a task's new version."""
        # Replicas need only the latest version: it replaces one that was not sent yet.
        self._pending[task_id] = version
        if self._send_task is None:
            self._send_task = asyncio.create_task(self._send())

    async def close(self) -> None:
        """Stop listening, and send the pending change notifications."""
        self._listen_task.cancel()
        await asyncio.gather(self._listen_task, return_exceptions=True)
        if self._send_task is not None:
            await self._send_task

    async def _send(self) -> None:
        while self._pending:
            pending, self._pending = self._pending, {}
            lines = [f"{task_id} {version}" for task_id, version in pending.items()]
            try:
                for start in range(0, len(lines), LINES_PER_PAYLOAD):
                    payload = "\n".join(lines[start : start + LINES_PER_PAYLOAD])
                    await self._execute(sql.notify, channel=CHANNEL, payload=payload)
            except Exception as error:  # the database may be unavailable; other replicas poll
                logger.debug("Change notifications were lost: %s", type(error).__name__)
            await asyncio.sleep(BATCH_PAUSE)
        self._send_task = None

    async def _listen(self) -> None:
        """Listen, and reconnect whenever the connection is lost."""
        while True:
            try:
                connection = await self._connect()
                try:
                    await connection.add_listener(CHANNEL, self._receive)
                    await _wait_until_lost(connection)
                finally:
                    connection.terminate()
            except Exception as error:  # the database may be unavailable for now
                logger.debug("Change notifications can't be received: %s", type(error).__name__)
            await asyncio.sleep(RECONNECT_PAUSE)

    def _receive(self, connection: Any, pid: int, channel: str, payload: str) -> None:
        for line in payload.splitlines():
            task_id, _, version = line.rpartition(" ")
            if version.isdigit():
                self._on_change(task_id, int(version))


async def _wait_until_lost(connection: Any) -> None:
    """Return, or raise an error, once a connection is lost.

    A connection that the network has dropped looks like one without notifications. A statement
    therefore tests the connection at intervals.
    """
    terminated = asyncio.Event()

    def on_termination(connection: Any) -> None:
        terminated.set()

    connection.add_termination_listener(on_termination)
    while not terminated.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(HEARTBEAT_INTERVAL):
                await terminated.wait()
        await connection.execute("SELECT 1", timeout=HEARTBEAT_INTERVAL)
