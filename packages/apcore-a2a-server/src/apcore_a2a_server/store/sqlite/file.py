"""The file of an SQLite store: one process at a time, and a thread to read and one to write."""

import asyncio
import sqlite3
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from sqlite3 import Connection
from types import CoroutineType
from typing import Any, Concatenate, ParamSpec, TypeVar

from filelock import FileLock, Timeout

from apcore_a2a_server.store.errors import StoreError, UnavailableError
from apcore_a2a_server.store.port import Store

from .schema import BUSY_TIMEOUT, migrate, sql
from .worker import Worker

AnyStore = TypeVar("AnyStore", bound="FileStore")
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class InUseError(UnavailableError):
    """Another process has the file."""


def lock(path: Path) -> Callable[[], None]:
    """Keep other processes from *path* until the returned function is called, or this one ends.

    Raises:
        InUseError: Another process has the lock.
        UnavailableError: The folder does not exist.
    """
    if not path.absolute().parent.is_dir():
        raise UnavailableError(f"There is no folder {path.absolute().parent}")
    file_lock = FileLock(f"{path}.lock", timeout=0, is_singleton=False)
    try:
        file_lock.acquire()
    except Timeout:
        raise InUseError(
            f"{path} is in use by another process. A file is for one process; "
            "several share a PostgreSQL database"
        ) from None
    return file_lock.release


def connect(path: Path) -> tuple[Connection, Connection]:
    """Open a file and bring its schema up to date; return connections to write and to read."""
    writer = _connect(path)
    try:
        migrate(writer)
        writer.execute(sql.expire_all)
        return writer, _connect(path)
    except BaseException:  # close a connection that no caller will get
        writer.close()
        raise


def _connect(path: Path) -> Connection:
    connection = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA synchronous = FULL")
    connection.row_factory = sqlite3.Row
    return connection


class FileStore(Store):
    """A store over one file, which other processes are kept from while it is open.

    Args:
        path: The file; it and two beside it are made when they are not there.
        lease_seconds: How long a lease lasts that is not renewed.
    """

    is_durable = True

    def __init__(self, path: str | Path, *, lease_seconds: float = 15) -> None:
        self.path = Path(path)
        self.lease_seconds = lease_seconds
        self._writer: Worker | None = None
        self._reader: Worker | None = None
        self._release: Callable[[], None] = lambda: None

    async def open(self) -> None:
        """Open the file, and bring it up to date.

        Raises:
            StoreError: Another process has it, it can't be opened, or it is too new.
        """
        if self._writer is not None:
            return
        try:
            self._release = lock(self.path)
            writer, reader = await asyncio.to_thread(connect, self.path)
        except BaseException as error:  # release the file whatever went wrong
            self._release()
            if isinstance(error, sqlite3.Error | OSError) and not isinstance(error, StoreError):
                raise UnavailableError(f"{self.path} can't be used: {error}") from error
            raise
        self._writer = Worker(writer, self.path, writes=True)
        self._reader = Worker(reader, self.path, writes=False)
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
            await self._writer.do(lambda connection: None)
        await super().check()

    def worker(self, *, writes: bool) -> Worker:
        """Return the thread that writes the file, or the one that reads it.

        Raises:
            StoreError: The store is not open.
        """
        worker = self._writer if writes else self._reader
        if worker is None:
            raise StoreError("The store is not open")
        return worker


def in_thread(
    method: Callable[Concatenate[AnyStore, Connection, Parameters], Result], *, writes: bool
) -> Callable[Concatenate[AnyStore, Parameters], "CoroutineType[Any, Any, Result]"]:
    """Have a method called in one of the file's threads, with the connection of that."""

    @wraps(method)
    async def call(store: AnyStore, /, *args: Parameters.args, **rest: Parameters.kwargs) -> Result:
        worker = store.worker(writes=writes)
        return await worker.do(lambda connection: method(store, connection, *args, **rest))

    return call  # type: ignore[return-value]  # mypy takes async functions for Coroutines only


def reads(
    method: Callable[Concatenate[AnyStore, Connection, Parameters], Result],
) -> Callable[Concatenate[AnyStore, Parameters], "CoroutineType[Any, Any, Result]"]:
    """Have a method called in the thread that reads the file."""
    return in_thread(method, writes=False)


def writes(
    method: Callable[Concatenate[AnyStore, Connection, Parameters], Result],
) -> Callable[Concatenate[AnyStore, Parameters], "CoroutineType[Any, Any, Result]"]:
    """Have a method called in the thread that writes; it changes all that it should, or nothing."""
    return in_thread(method, writes=True)
