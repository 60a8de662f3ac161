"""A program in its own process group, so that a cancellation ends all processes of the group."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

READ_SIZE = 64 * 1024
"""Maximum number of bytes that are read at once."""
MAX_LINE_BYTES = 16 * 1024 * 1024
"""Maximum size of a line of the output, in bytes."""
MAX_ERROR_BYTES = 4096
"""Maximum number of bytes that a message quotes from the end of the error output."""
OUTPUT_TIMEOUT = 1.0
"""Seconds to wait for output before checking whether the program has ended."""


class CommandError(RuntimeError):
    """A program could not be run, or has failed."""


class Program:
    """A running program, in a process group with all the processes that it starts.

    Args:
        process: The process, the leader of the group.
        grace: Seconds to wait between SIGTERM and SIGKILL.
        max_error_bytes: Maximum number of bytes to keep from the end of the error output.
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        grace: float,
        max_error_bytes: int = MAX_ERROR_BYTES,
    ) -> None:
        self._process = process
        self._grace = grace
        self._max_error_bytes = max_error_bytes
        self.error_output = bytearray()
        self._pipe_tasks = [asyncio.create_task(self._read_errors())]

    @classmethod
    async def start(
        cls,
        arguments: Sequence[str],
        grace: float,
        max_error_bytes: int = MAX_ERROR_BYTES,
        **options: Any,
    ) -> Program:
        """Start a program; the options are those of `asyncio.create_subprocess_exec`.

        Raises:
            CommandError: The program can't be started.
        """
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                *(argument.replace("\0", "") for argument in arguments),
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                start_new_session=True,
                limit=MAX_LINE_BYTES,
                **options,
            )
        except OSError as error:
            raise CommandError(f"{arguments[0]} can't be run: {error}") from error
        return cls(process, grace, max_error_bytes)

    @property
    def error_text(self) -> str:
        """The end of the error output, for messages."""
        return self.error_output[-MAX_ERROR_BYTES:].decode(errors="replace").strip()

    def write(self, text: str) -> None:
        """Start a task that writes the input and closes it."""
        self._pipe_tasks.append(asyncio.create_task(self._write(text)))

    async def read(self) -> bytes:
        """Return the next bytes of the output; empty at its end."""
        return await self._read_output(lambda output: output.read(READ_SIZE))

    async def readline(self) -> bytes:
        """Return the next line of the output; empty at its end."""
        line = await self._read_output(asyncio.StreamReader.readline)
        # a last line without a line feed is still unread if another process keeps the pipe open
        return line or await self._read_output(lambda output: output.read(MAX_LINE_BYTES))

    async def exit_code(self) -> int:
        """Wait for the end of the program and return its exit code.

        The error output then gets up to `OUTPUT_TIMEOUT` more seconds to arrive.
        """
        code = await self._process.wait()
        await asyncio.wait(self._pipe_tasks, timeout=OUTPUT_TIMEOUT)
        return code

    async def end(self) -> None:
        """End the program, and the other processes of its group.

        This runs in a separate task, which continues even if the caller is canceled.
        """
        task = asyncio.create_task(self._end())
        _ending_tasks.add(task)
        task.add_done_callback(_ending_tasks.discard)
        await asyncio.shield(task)

    async def _end(self) -> None:
        try:
            if self._process.returncode is None:
                self._signal(signal.SIGTERM)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._process.wait(), self._grace)
        finally:
            self._signal(signal.SIGKILL)
            for task in self._pipe_tasks:
                task.cancel()
            await self._process.wait()
            # asyncio would close the pipes itself, but perhaps only after the event loop has ended
            transport: Any = getattr(self._process, "_transport", None)
            if transport is not None:
                transport.close()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):  # the group is empty
            os.killpg(self._process.pid, number)

    async def _read_output(self, read: Callable[[asyncio.StreamReader], Awaitable[bytes]]) -> bytes:
        """Return what *read* returns; empty if the program has ended but the pipe stays open."""
        output = self._process.stdout
        if output is None:
            return b""
        reading = asyncio.ensure_future(read(output))
        try:
            while not (await asyncio.wait({reading}, timeout=OUTPUT_TIMEOUT))[0]:
                if self._process.returncode is not None:
                    return b""
            return await reading
        finally:
            reading.cancel()

    async def _read_errors(self) -> None:
        errors = self._process.stderr
        while errors is not None and (data := await errors.read(READ_SIZE)):
            self.error_output += data
            del self.error_output[: -self._max_error_bytes]

    async def _write(self, text: str) -> None:
        stdin = self._process.stdin
        if stdin is not None:
            with suppress(BrokenPipeError, ConnectionResetError):  # the program ignores its input
                stdin.write(text.encode(errors="replace"))
                await stdin.drain()
            stdin.close()


_ending_tasks: set[asyncio.Task[None]] = set()
"""Tasks that end programs; an event loop has only weak references to its tasks."""
