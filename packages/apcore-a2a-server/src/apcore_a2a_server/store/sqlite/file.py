"""The file of an SQLite store: one process at a time, one thread to write and one to read."""

import asyncio
import os
import sqlite3
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial, wraps
from pathlib import Path
from sqlite3 import Connection
from types import CoroutineType
from typing import Any, Concatenate, ParamSpec, TypeVar

from filelock import FileLock, Timeout

if sys.platform != "win32":
    import fcntl

from apcore_a2a_server.store.exceptions import StoreError, UnavailableError
from apcore_a2a_server.store.port import Store

from .schema import BUSY_TIMEOUT, migrate, sql
from .worker import Worker

AnyStore = TypeVar("AnyStore", bound="FileStore")
Parameters = ParamSpec("Parameters")
MethodResult = TypeVar("MethodResult")

IN_USE = (
    "{} is in use by another process. A file is for one process; "
    "several processes can share a PostgreSQL database"
)


def connect(path: Path) -> tuple[Connection, Connection]:
    """Open a file, migrate it and expire its leases; return connections to write and to read."""
    writer = _open_connection(path)
    try:
        migrate(writer)
        writer.execute(sql.expire_all)
        return writer, _open_connection(path)
    except BaseException:  # close a connection that no caller will get
        writer.close()
        raise


def _open_connection(path: Path) -> Connection:
    connection = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False
    )
    # In WAL mode, NORMAL does not sync the log at each commit: a power failure may lose commits.
    connection.execute("PRAGMA synchronous = FULL")
    connection.row_factory = sqlite3.Row
    return connection


class ProcessLock:
    """A lock that keeps other processes from using a file, whichever of its names they use.

    The lock file beside the real file keeps out processes that open the file by its name or by a
    symbolic link. Except on Windows, a lock on the file itself keeps out those that use a hard
    link.

    Args:
        path: The file. If it does not exist, it is created with access for its owner only, as it
            holds data of callers. SQLite gives its -wal and -shm files the same permissions.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock_file: FileLock | None = None
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Lock the file; the operating system unlocks it if the process ends without `release`.

        Raises:
            UnavailableError: Another process has locked it.
            OSError: The file can't be opened.
        """
        real_path = self._path.resolve()
        self._lock_file = FileLock(
            f"{real_path}.lock", timeout=0, is_singleton=False, mode=0o600, thread_local=False
        )
        try:
            self._lock_file.acquire()
            self._descriptor = os.open(real_path, os.O_RDWR | os.O_CREAT, 0o600)
            if sys.platform != "win32":
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (Timeout, BlockingIOError):
            raise UnavailableError(IN_USE.format(self._path)) from None

    def release(self) -> None:
        """Unlock the file; its connections must be closed already.

        Closing the descriptor drops the locks of all connections to the file in this process.
        """
        if self._descriptor is not None:
            os.close(self._descriptor)
        if self._lock_file is not None:
            self._lock_file.release()
        self._descriptor = self._lock_file = None


async def _connect_in_thread(path: Path, lock: ProcessLock) -> tuple[Connection, Connection]:
    """Call `connect` in a thread; after a cancellation, the thread releases the file."""
    pool = ThreadPoolExecutor(1, "open-sqlite")
    future = pool.submit(connect, path)
    pool.shutdown(wait=False)
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        # until the thread has migrated the file, no other process may use it
        future.add_done_callback(partial(_abandon, lock))
        raise


def _abandon(lock: ProcessLock, future: "Future[tuple[Connection, Connection]]") -> None:
    """Close the connections that no caller gets, if there are any, and release the file."""
    if not future.cancelled() and future.exception() is None:
        for connection in future.result():
            connection.close()
    lock.release()


class FileStore(Store):
    """A store in one file. While the store is open, no other process can use the file.

    Args:
        path: The file, which is created if it does not exist. Beside it are two files of SQLite,
            and a lock file.
        lease_seconds: Seconds after which a lease expires unless it is renewed.
    """

    is_durable = True
    _loop: asyncio.AbstractEventLoop

    def __init__(self, path: str | Path, *, lease_seconds: float = 15) -> None:
        self.path = Path(path)
        self.lease_seconds = lease_seconds
        self._writer: Worker | None = None
        self._reader: Worker | None = None
        self._lock = ProcessLock(self.path)

    async def open(self) -> None:
        """Open the file, and migrate its schema to the latest version.

        Raises:
            UnavailableError: Another process uses the file, it can't be opened, or its schema is
                too new.
        """
        if self._writer is not None:
            return
        folder = self.path.absolute().parent
        if not folder.is_dir():
            raise UnavailableError(f"There is no folder {folder}: create it first")
        lock = ProcessLock(self.path)
        try:
            lock.acquire()
            writer, reader = await _connect_in_thread(self.path, lock)
        except asyncio.CancelledError:  # the thread releases the file
            raise
        except BaseException as error:  # release the file whatever went wrong
            lock.release()
            if isinstance(error, sqlite3.Error | OSError) and not isinstance(error, StoreError):
                raise UnavailableError(f"{self.path} can't be used: {error}") from error
            raise
        self._lock = lock
        self._loop = asyncio.get_running_loop()
        self._writer = Worker(writer, self.path, writes=True)
        self._reader = Worker(reader, self.path, writes=False)
        self._writer.start()
        self._reader.start()

    async def close(self) -> None:
        """Finish pending writes, and close the file."""
        workers, self._writer, self._reader = [self._writer, self._reader], None, None
        for worker in workers:
            if worker is not None:
                await worker.close()
        self._lock.release()

    async def check(self) -> None:
        """Raise an exception if the file can't be used; after a failed write, try to write."""
        if self._writer is not None and self._writer.is_failing:
            await self._writer.call(lambda connection: None)
        await super().check()

    def wake_listener(self) -> None:
        """Let the event loop call the listener for due notifications.

        Methods call this in the writing thread before their changes are committed. The listener
        still gets the new notifications, because its claim is a later job of the same thread.
        """
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(super().wake_listener)

    def worker(self, *, writes: bool) -> Worker:
        """Return the thread that writes the file, or the one that reads it.

        Raises:
            StoreError: The store is not open.
        """
        worker = self._writer if writes else self._reader
        if worker is None:
            raise StoreError("The store is not open: call its `start` first")
        return worker


class InThread:
    """A decorator that runs a method in one of the file's threads, with that thread's connection.

    Args:
        writes: Whether to use the thread that writes.
    """

    def __init__(self, *, writes: bool) -> None:
        self._writes = writes

    def __call__(
        self, method: Callable[Concatenate[AnyStore, Connection, Parameters], MethodResult]
    ) -> Callable[Concatenate[AnyStore, Parameters], "CoroutineType[Any, Any, MethodResult]"]:
        """Return *method* as a coroutine function without the connection parameter."""

        @wraps(method)
        async def call(
            store: AnyStore, /, *args: Parameters.args, **kwargs: Parameters.kwargs
        ) -> MethodResult:
            worker = store.worker(writes=self._writes)
            return await worker.call(lambda connection: method(store, connection, *args, **kwargs))

        return call  # type: ignore[return-value]  # for mypy, `call` returns a Coroutine


reads = InThread(writes=False)
"""Run a method in the thread that reads the file."""
writes = InThread(writes=True)
"""Run a method in the thread that writes the file."""
