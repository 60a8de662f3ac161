"""Processes for synchronous modules that declare `resources = {"cpu": True}`.

A thread that computes shares the interpreter lock with the server. A process does not share it, and
can be ended. The processes run the code of `process_worker`.
"""

import asyncio
import inspect
import json
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from apcore import ModuleError

from .fairness import FairSemaphore
from .process_worker import SIZE, FileModule, NotLoaded, PortableContext, PortableError
from .threads import count_cores

logger = logging.getLogger("apcore_a2a.skills")

START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]);"
    "from apcore_a2a_server.modules.process_worker import main; main(int(sys.argv[1]))"
)
"""Code for a process. Its arguments are the descriptor of a socket and the server's import path."""
EXIT_TIMEOUT = 5.0  # seconds for a process to end after it has closed its socket

BeginCallback: TypeAlias = Callable[[], Awaitable[None]]
"""Callback that is called when the call gets a process, just before the module is called."""


class ModuleProcessError(ModuleError):
    """The process of a module ended before the module returned."""

    def __init__(self, exit_code: int) -> None:
        description = f"exited with {exit_code}"
        if exit_code < 0:
            description = f"was ended by {signal_name(-exit_code)}"
        super().__init__("MODULE_PROCESS_ENDED", f"The module's process {description}")


def signal_name(number: int) -> str:
    """Return the name of a signal, or its number if it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have no name
        return f"signal {number}"


class NotPortableError(Exception):
    """A module can't run in another process."""


def check_portable(module_id: str, module: object) -> bool:
    """Return whether a module that computes can run in another process; if not, log a warning."""
    try:
        _pack(module)
    except NotPortableError as error:
        _warn(module_id, error)
        return False
    return True


def _warn(module_id: str, error: NotPortableError) -> None:
    message = "%s declares resources.cpu, but runs in the server's process: %s"
    logger.warning(message, module_id, error, extra={"event": "module_not_portable"})


def _pack(module: object) -> bytes:
    """Serialize a module for other processes.

    apcore imports the files of a folder without adding them to `sys.modules`, so pickle would not
    find their classes. For such a class, the other process loads the file again.

    Raises:
        NotPortableError: The module can't run in another process.
    """
    module_class = type(module)
    if os.name != "posix":
        raise NotPortableError("this operating system does not pass sockets to processes")
    if inspect.iscoroutinefunction(getattr(module, "execute", None)) or hasattr(module, "stream"):
        raise NotPortableError("it is asynchronous, or streams")
    if module_class.__module__ == "__main__":  # importing the main program may start a server
        raise NotPortableError("it is defined in the main program")
    portable = module if module_class.__module__ in sys.modules else _file_of(module_class)
    return _dump(portable)


def _dump(value: object) -> bytes:
    try:
        return pickle.dumps(value)
    except Exception as error:  # an object's own pickling may raise anything
        raise NotPortableError(f"it can't be pickled ({type(error).__name__})") from None


def _file_of(module_class: type) -> FileModule:
    execute: Any = getattr(module_class, "execute", None)
    path = getattr(getattr(execute, "__code__", None), "co_filename", "")
    if "<locals>" in module_class.__qualname__ or not os.path.isfile(path):
        raise NotPortableError("its file is unknown")
    modified = os.stat(path).st_mtime_ns
    return FileModule(path, module_class.__module__, module_class.__qualname__, modified)


class _Worker:
    """A process that handles one call at a time.

    Args:
        process: The process.
        reader: Reads its replies.
        writer: Writes calls to it.
    """

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer

    @classmethod
    async def start(cls) -> "_Worker":
        """Start a process in a new session, so that Ctrl+C does not signal it."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.to_thread(_start, theirs.fileno())
        return cls(process, *await asyncio.open_connection(sock=ours))

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    async def call(self, payload: bytes) -> bytes:
        """Send a call, and return its reply.

        Raises:
            ModuleProcessError: The process ended.
        """
        try:
            self._writer.write(SIZE.pack(len(payload)) + payload)
            await self._writer.drain()
            (size,) = SIZE.unpack(await self._reader.readexactly(SIZE.size))
            return await self._reader.readexactly(size)
        except (EOFError, ConnectionError):
            raise ModuleProcessError(await self._exit_code()) from None

    async def _exit_code(self) -> int:
        try:
            return await asyncio.to_thread(self._process.wait, EXIT_TIMEOUT)
        except subprocess.TimeoutExpired:  # it still runs, but has closed its socket
            return await self.end()

    async def end(self) -> int:
        """Kill the process and, if it still runs, its children; return its exit code."""
        self._writer.close()
        if not self.has_ended:
            os.killpg(self._process.pid, signal.SIGKILL)
        return await asyncio.to_thread(self._process.wait)


def _start(descriptor: int) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-c", START, str(descriptor), json.dumps(sys.path)]
    return subprocess.Popen(
        command, pass_fds=[descriptor], stdin=subprocess.DEVNULL, start_new_session=True
    )


class ProcessPool:
    """A pool of processes for modules that compute.

    A process is started when none is idle, and kept for further calls. A process whose call is
    canceled or times out is ended. At most *limit* idle processes are kept.

    Clients with waiting calls take turns. While one client uses more than its share of the
    processes, additional processes may be started for other clients.

    Args:
        limit: Maximum number of processes without the additional ones; by default, the number of
            cores.
        share: The fraction of all processes that each client can count on; None for no shares.
    """

    def __init__(self, limit: int | None = None, *, share: float | None = None) -> None:
        self._limit = limit or count_cores()
        self._share = share
        self._places = FairSemaphore(self._limit, share=share)
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._not_loaded: set[bytes] = set()
        """Packed modules that could not be loaded in a process."""
        self._starting: set[asyncio.Task[Any]] = set()
        """Tasks that start processes, or release them if their call was canceled meanwhile."""

    async def run(
        self,
        module: object,
        inputs: object,
        context: Any,
        begin: BeginCallback,
        *,
        client: str = "",
    ) -> Any:
        """Call a module in a process, as soon as one is free; cancellation ends the process.

        Args:
            module: The module.
            inputs: Its inputs.
            context: The apcore Context of the call.
            begin: Called just before the module.
            client: The client that made the call.

        Raises:
            ModuleProcessError: The process ended before the module returned.
            NotPortableError: The module can't run in another process, or its inputs can't be sent
                there. The module was not called.
        """
        packed_module = _pack(module)
        if packed_module in self._not_loaded:
            raise NotPortableError
        async with self._places.place(client):
            # not earlier: a call that waits needs no copy of its inputs
            payload = _dump((packed_module, inputs, PortableContext.of(context)))
            worker = await self._idle_worker()
            self._busy.add(worker)
            try:
                await begin()
                reply = await worker.call(payload)
            except BaseException:  # a module must not continue after its call was canceled
                await asyncio.shield(worker.end())
                raise
            finally:
                self._busy.discard(worker)
            await self._release(worker)
        outcome = pickle.loads(reply)  # safe, because modules are trusted
        if isinstance(outcome, NotLoaded):
            self._not_loaded.add(packed_module)
            error = NotPortableError(f"it can't be loaded in another process\n{outcome.trace}")
            _warn(context.call_chain[-1], error)
            raise error
        if isinstance(outcome, PortableError):
            raise outcome.restore()
        return outcome

    async def _idle_worker(self) -> _Worker:
        """Return an idle process; start one if there is none."""
        while self._idle:
            worker = self._idle.pop()
            if not worker.has_ended:
                return worker
            await worker.end()
        start_task = asyncio.create_task(_Worker.start())
        self._keep_until_done(start_task)
        try:
            return await asyncio.shield(start_task)
        except asyncio.CancelledError:  # the next call gets the process
            self._keep_until_done(asyncio.create_task(self._release_late(start_task)))
            raise

    def _keep_until_done(self, task: "asyncio.Task[Any]") -> None:
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _release(self, worker: _Worker) -> None:
        """Keep a process for further calls, or end it if enough are idle."""
        if len(self._idle) < self._limit:
            self._idle.append(worker)
        else:
            await worker.end()

    async def _release_late(self, start_task: "asyncio.Task[_Worker]") -> None:
        await asyncio.wait([start_task])
        if not start_task.cancelled() and start_task.exception() is None:
            await self._release(start_task.result())

    async def close(self) -> None:
        """End all processes; the pool can be used again."""
        await asyncio.gather(*self._starting, return_exceptions=True)
        workers, self._idle = [*self._idle, *self._busy], []
        await asyncio.gather(*(worker.end() for worker in workers))
        self._places = FairSemaphore(self._limit, share=self._share)
