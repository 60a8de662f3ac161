"""Word of changes, from one process to the others: LISTEN and NOTIFY.

Word may be lost; then others see for themselves a little later. It is sent apart from the
changes, and many at a time: a transaction that notifies waits for all others that do.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

logger = logging.getLogger("apcore_a2a.store")

CHANNEL = "apcore_a2a_changes"
TOGETHER = 0.01
"""Seconds after some word for which more of it is held back, to go together."""
SAY = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)"
"""Word that may be lost need not wait for the disk."""
MAX_BYTES = 7900
"""PostgreSQL takes 8,000 bytes."""
RETRY = 1.0
"""Seconds after which a lost connection is made anew."""
BEAT = 5.0
"""Seconds after which it is looked whether a connection on which nothing comes is still one."""


class Hints:
    """Sends word, and hears it.

    Args:
        connect: Makes a connection to listen on.
        execute: Runs a statement on any connection.
        on_hint: Is told of each task and its version.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[Any]],
        execute: Callable[..., Awaitable[Any]],
        on_hint: Callable[[str, int], None],
    ) -> None:
        self._connect = connect
        self._execute = execute
        self._on_hint = on_hint
        self._pending: dict[str, int] = {}
        self._sending: asyncio.Task[None] | None = None
        self._listening = asyncio.create_task(self._listen())

    def tell(self, task_id: str, version: int) -> None:
        """Say that a task has come to a version."""
        self._pending[task_id] = version
        if self._sending is None:
            self._sending = asyncio.create_task(self._send())

    async def close(self) -> None:
        """Say what is still to be said, and listen no more."""
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)
        if self._sending is not None:
            await self._sending

    async def _send(self) -> None:
        while self._pending:
            pending, self._pending = self._pending, {}
            try:
                for payload in payloads(pending):
                    await self._execute(SAY, CHANNEL, payload)
            except Exception as error:  # the database may be gone: others see for themselves
                logger.debug("Word of changes was lost: %s", type(error).__name__)
            await asyncio.sleep(TOGETHER)
        self._sending = None

    async def _listen(self) -> None:
        """Listen, again and again."""
        while True:
            try:
                connection = await self._connect()
                try:
                    await connection.add_listener(CHANNEL, self._hear)
                    await _lost(connection)
                finally:
                    connection.terminate()
            except Exception as error:  # the database may be gone for now
                logger.debug("No word of changes comes: %s", type(error).__name__)
            await asyncio.sleep(RETRY)

    def _hear(self, connection: Any, pid: int, channel: str, payload: str) -> None:
        for line in payload.splitlines():
            task_id, _, version = line.rpartition(" ")
            if version.isdigit():
                self._on_hint(task_id, int(version))


async def _lost(connection: Any) -> None:
    """Return, or raise, when a connection is none any more; one that is cut says nothing."""
    ended = asyncio.Event()
    connection.add_termination_listener(partial(_end, ended))
    while not ended.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(BEAT):
                await ended.wait()
        await connection.execute("SELECT 1", timeout=BEAT)


def _end(ended: asyncio.Event, connection: Any) -> None:
    ended.set()


def payloads(pending: dict[str, int]) -> Iterator[str]:
    """Tasks and versions as lines, as many together as PostgreSQL takes."""
    lines: list[str] = []
    size = 0
    for task_id, version in pending.items():
        line = f"{task_id} {version}"
        if lines and size + len(line.encode()) + 1 > MAX_BYTES:
            yield "\n".join(lines)
            lines, size = [], 0
        lines.append(line)
        size += len(line.encode()) + 1
    if lines:
        yield "\n".join(lines)
