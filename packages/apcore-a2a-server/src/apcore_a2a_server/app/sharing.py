"""Checks that the processes of a server can share the task store."""

from collections.abc import Callable, Mapping
from inspect import currentframe
from typing import Any, TypeAlias

from apcore_a2a_server.fields import OptionError
from apcore_a2a_server.store import Store

CountProcesses: TypeAlias = Callable[[Mapping[str, Any]], int]
"""A function that reads the number of processes from the local variables of a stack frame."""

STORE_NAMES = {"InMemoryTaskStore": "the memory store", "SqliteStore": "SQLite"}


def _count_uvicorn(variables: Mapping[str, Any]) -> int:
    config = variables["config"]
    return 1 if config.should_reload else int(config.workers)


def _count_gunicorn(variables: Mapping[str, Any]) -> int:
    return int(variables["self"].num_workers)


def _count_hypercorn(variables: Mapping[str, Any]) -> int:
    return int(variables["config"].workers)


def _count_granian(variables: Mapping[str, Any]) -> int:
    return int(variables["worker_id"])  # a process knows only its own number, from 1


SERVERS: Mapping[tuple[str, str], tuple[str, CountProcesses]] = {
    ("uvicorn._subprocess", "subprocess_started"): ("uvicorn", _count_uvicorn),
    ("gunicorn.arbiter", "spawn_worker"): ("gunicorn", _count_gunicorn),
    ("hypercorn.asyncio.run", "asyncio_worker"): ("hypercorn", _count_hypercorn),
    ("hypercorn.asyncio.run", "uvloop_worker"): ("hypercorn", _count_hypercorn),
    ("granian.server.mp", "wrapped"): ("granian", _count_granian),
}
"""Servers, and how to count their processes, by the module and the name of a function.

The function is on the call stack of each process of the server. Its local variables are the only
way for an application to learn the number of processes.
"""


def check_workers(store: Store) -> None:
    """Check that the workers of `serve` can share a store.

    Raises:
        OptionError: The workers can't share it.
    """
    if not store.is_shared:
        problem = f"must be 1 with {_name(store)}, which processes can't share"
        raise OptionError("workers", f"{problem}; for more, set the store to postgresql://…")


def check_server(store: Store) -> None:
    """Check that the application's server has one process, or processes that can share the store.

    Otherwise each process would have its own tasks, and report those of others as unknown.

    Raises:
        ValueError: The server has several processes, which can't share the store.
    """
    server, processes = server_processes()
    if processes > 1 and not store.is_shared:
        raise ValueError(
            f"{server} starts several processes, which can't share {_name(store)}: tasks of one "
            "would be unknown to the others. Start one process (--workers 1), or set task_store "
            "to postgresql://…"
        )


def server_processes() -> tuple[str, int]:
    """Return the server that has started this process: its name and its number of processes.

    The count is 1 for an unknown server or version, and for uvicorn with `--reload`. With granian,
    it is the number of this process, from 1: only the last process returns the true count.
    """
    frame = currentframe()
    while frame is not None:
        entry = SERVERS.get((frame.f_globals.get("__name__", ""), frame.f_code.co_name))
        if entry is not None:
            server, count_processes = entry
            try:
                return server, count_processes(frame.f_locals)
            except (AttributeError, KeyError, TypeError, ValueError):  # an unknown version
                return server, 1
        frame = frame.f_back
    return "", 1


def _name(store: Store) -> str:
    return STORE_NAMES.get(type(store).__name__, "this task store")
