"""What checks are made of."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from apcore_a2a_core.records import TaskRecord

from apcore_a2a_server.store.port import Store

Check: TypeAlias = Callable[[Store], Awaitable[None]]

CHECKS: list[Check] = []
"""All of them."""

LEASE = 0.2
"""Seconds that leases last in these checks."""


def check(function: Check) -> Check:
    CHECKS.append(function)
    return function


async def versions(store: Store, task_id: str, after: int = 0, limit: int = 1000) -> list[int]:
    events = await store.events(task_id, after, limit)
    assert events is not None, "the log does not reach back so far"
    return [event.version for event in events]


async def raises(error: type[Exception], call: Awaitable[object]) -> None:
    try:
        await call
    except error:
        return
    raise AssertionError(f"{error.__name__} was not raised")


async def kept(store: Store, task_id: str = "t1") -> TaskRecord:
    record = await store.get(task_id)
    assert record is not None, f"{task_id} is gone"
    return record
