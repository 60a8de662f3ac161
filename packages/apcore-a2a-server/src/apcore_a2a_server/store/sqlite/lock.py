"""One process at a time."""

from collections.abc import Callable
from pathlib import Path

from filelock import FileLock, Timeout

from apcore_a2a_server.store.errors import UnavailableError


class InUseError(UnavailableError):
    """Another process has the file."""


def only_process(path: Path) -> Callable[[], None]:
    """Keep other processes from *path*, until what is returned is called, or this process ends.

    Raises:
        InUseError: Another process does so.
        UnavailableError: There is no such folder.
    """
    if not path.absolute().parent.is_dir():
        raise UnavailableError(f"There is no folder {path.absolute().parent}")
    lock = FileLock(f"{path}.lock", timeout=0, is_singleton=False)
    try:
        lock.acquire()
    except Timeout:
        raise InUseError(
            f"{path} is in use by another process. A file is for one process; "
            "several share a PostgreSQL database"
        ) from None
    return lock.release
