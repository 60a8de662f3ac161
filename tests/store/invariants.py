"""What must hold of the tasks in a store, whatever has happened to the processes that ran them.

Both sides are heard: the truth, read from the database itself, and what clients were told.
"""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import asyncpg
from a2a import types as a2a
from apcore_a2a_core.states import NAMES, TERMINAL
from apcore_a2a_server.store.port import unpack

from .replicas import notes

Rows: TypeAlias = list[tuple[Any, ...]]

ONCE = ("once", "asks", "wants")
"""The skills that are not idempotent."""
AGAIN = ("again", "steps")
"""Those that are."""
TASKS = "SELECT id, skill, state, version, first_event FROM {}tasks ORDER BY created"
EVENTS = "SELECT task_id, version, body FROM {}events ORDER BY task_id, version"
OUTBOX = "SELECT task_id, config_id, version FROM {}outbox WHERE due IS NOT NULL"
TERMINAL_STATES = ", ".join(str(int(state)) for state in sorted(TERMINAL))
ROWS = {
    "has ended, and has a lease": (
        f"SELECT id FROM {{0}}tasks WHERE state IN ({TERMINAL_STATES}) AND expires IS NOT NULL"
    ),
    "has the time of an end and none, or an end and no time of it": (
        f"SELECT id FROM {{0}}tasks WHERE (state IN ({TERMINAL_STATES})) <> (ended IS NOT NULL)"
    ),
    **{
        f"has {table}, and is not there": (
            f"SELECT DISTINCT task_id FROM {{0}}{table}"
            " WHERE task_id NOT IN (SELECT id FROM {0}tasks)"
        )
        for table in ("events", "messages", "webhooks", "sends", "outbox")
    },
}
"""Rows that must not be there: for each rule, the query for the tasks that break it."""
QUERIES = (TASKS, EVENTS, OUTBOX, *ROWS.values())

driver: Any = asyncpg


class Violated(AssertionError):
    """Some of what must hold does not; the text has a line for each."""


@dataclass(frozen=True)
class Kept:
    """A task as it is kept.

    Attributes:
        skill: what it runs.
        state: its state, as clients write it.
        version: the number of its latest change.
        first: that of the first event that is kept.
        events: its log: versions, and the states that they tell of, if any.
    """

    skill: str
    state: str
    version: int
    first: int = 1
    events: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])

    @property
    def is_over(self) -> bool:
        return self.state in ENDED


ENDED = {NAMES[state] for state in TERMINAL}


@dataclass(frozen=True)
class Told:
    """What clients were told.

    Attributes:
        tasks: the tasks that they know to have begun.
        ends: the states in which they know tasks to have ended.
        seen: the versions of the events that they have read to the end, in their order.
        paused: the tasks that are meant to wait for an answer.
        hooked: the tasks that have a webhook.
        heard: the tasks and states that webhooks were told of.
    """

    tasks: set[str] = field(default_factory=set[str])
    ends: dict[str, str] = field(default_factory=dict[str, str])
    seen: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    paused: set[str] = field(default_factory=set[str])
    hooked: set[str] = field(default_factory=set[str])
    heard: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])


@dataclass(frozen=True)
class Truth:
    """The contents of a database.

    Attributes:
        tasks: its tasks.
        waiting: the notifications that are still to be delivered.
        wrong: the tasks of rows that must not be there, and what is wrong with each.
    """

    tasks: dict[str, Kept]
    waiting: Rows
    wrong: list[tuple[str, str]]

    @property
    def working(self) -> list[str]:
        """The tasks that have not ended."""
        return [task_id for task_id, task in self.tasks.items() if not task.is_over]


def check(address: str, home: Path, told: Told, *, spared: bool = False) -> None:
    """Hold the store at *address*, and the modules' notes in *home*, against all that must hold.

    Args:
        address: The database's.
        home: Where modules have left their notes.
        told: What clients were told.
        spared: Whether no task was hit so often that it was given up: what may run again has
            succeeded then.

    Raises:
        Violated: Something does not hold.
    """
    truth = read(address)
    found = [*violations(truth, told, begun(home)), *(failures(truth) if spared else ())]
    if found:
        raise Violated("\n".join([f"{len(found)} violations", *found]))


def begun(home: Path) -> Counter[str]:
    """How often a module has begun for each task."""
    return Counter(note.task_id for note in notes(home) if note.what == "begin")


def violations(truth: Truth, told: Told, begun: Counter[str]) -> Iterator[str]:
    """A line for each thing that does not hold."""
    for task_id in sorted(told.tasks - set(truth.tasks)):
        yield f"{task_id}: acknowledged, and lost"
    for task_id, task in truth.tasks.items():
        for line in (*_of_state(task_id, task, told), *_of_log(task)):
            yield f"{task_id} ({task.skill}): {line}"
        if task.skill in ONCE and begun[task_id] > 1:
            yield f"{task_id} ({task.skill}): started {begun[task_id]} times"
    for task_id, line in truth.wrong:
        yield f"{task_id}: {line}"
    yield from _of_webhooks(truth.tasks, truth.waiting, told)


def failures(truth: Truth) -> Iterator[str]:
    """A line for each task that could have run again, and has not succeeded."""
    for task_id, task in truth.tasks.items():
        if task.skill in AGAIN and task.state == "failed":
            yield f"{task_id} ({task.skill}): may run again, and is failed"


def _of_state(task_id: str, task: Kept, told: Told) -> Iterator[str]:
    if not task.is_over and task_id not in told.paused:
        yield f"left {task.state}"
    if task_id in told.paused and task.state != "input-required":
        yield f"should be paused, and is {task.state}"
    if told.ends.get(task_id, task.state) != task.state:
        yield f"told as {told.ends[task_id]}, and is {task.state}"
    versions = [version for version, _ in task.events]
    if told.seen.get(task_id, versions) != versions:
        yield f"read as {told.seen[task_id]}, and is {versions}"


def _of_webhooks(tasks: dict[str, Kept], waiting: Rows, told: Told) -> Iterator[str]:
    for task_id, config_id, version in waiting:
        yield f"{task_id}: webhook {config_id} has not been told of version {version}"
    for task_id in sorted(told.hooked & set(tasks)):
        task = tasks[task_id]
        if task.is_over and (task_id, task.state) not in told.heard:
            yield f"{task_id} ({task.skill}): its webhook was never told that it is {task.state}"


def _of_log(task: Kept) -> Iterator[str]:
    versions = [version for version, _ in task.events]
    if versions != [*range(task.first, task.version + 1)]:
        yield f"has gaps: {versions} of {task.first} to {task.version}"
    ends = [version for version, state in task.events if state in ENDED]
    if len(ends) != task.is_over:
        yield f"ended {len(ends)} times, and is {task.state}"
    if ends and ends[0] != versions[-1]:
        yield f"has events behind its end: {versions[-1] - ends[0]}"
    states = [state for _, state in task.events if state]
    if states[-1:] not in ([], [task.state]):
        yield f"said {states[-1]}, and is {task.state}"


def read(address: str) -> Truth:
    """What the database at *address* holds."""
    if address.startswith("sqlite:///"):
        return _truth(*_read_file(Path(address.removeprefix("sqlite:///"))))
    return _truth(*asyncio.run(_read_postgres(address)))


def unfinished(address: str) -> tuple[int, int]:
    """How many tasks in a PostgreSQL have not ended, and how many notifications wait."""
    return asyncio.run(_count(address))


def _truth(tasks: Rows, events: Rows, waiting: Rows, *wrong: Rows) -> Truth:
    found = {
        task_id: Kept(skill, NAMES[state], version, first)
        for task_id, skill, state, version, first in tasks
    }
    for task_id, version, body in events:
        if task_id in found:
            found[task_id].events.append((version, _state(bytes(body))))
    lines = [(task_id, rule) for rule, rows in zip(ROWS, wrong, strict=True) for (task_id,) in rows]
    return Truth(found, waiting, lines)


def _state(body: bytes) -> str:
    """The state that an event tells of; nothing if it is a chunk."""
    payload = unpack(body)
    if isinstance(payload, a2a.TaskArtifactUpdateEvent):
        return ""
    return NAMES[payload.status.state]


def _read_file(path: Path) -> list[Rows]:
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("BEGIN")
        return [file.execute(sql.format("")).fetchall() for sql in QUERIES]


async def _read_postgres(address: str) -> list[Rows]:
    connection = await driver.connect(address)
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            return [
                [tuple(row) for row in await connection.fetch(sql.format("apcore_a2a."))]
                for sql in QUERIES
            ]
    finally:
        await connection.close()


async def _count(address: str) -> tuple[int, int]:
    connection = await driver.connect(address)
    ended: Collection[int] = [*TERMINAL]
    try:
        sql = "SELECT count(*) FROM apcore_a2a.tasks WHERE state <> ALL($1)"
        tasks: int = await connection.fetchval(sql, ended)
        sql = f"SELECT count(*) FROM ({OUTBOX.format('apcore_a2a.')}) waiting"
        waiting: int = await connection.fetchval(sql)
    finally:
        await connection.close()
    return tasks, waiting
