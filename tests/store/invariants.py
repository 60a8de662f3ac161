"""Checks of the tasks in a store, for tests in which replicas may fail.

The checks compare the contents of the database with the observations of clients and webhooks, and
with the notes of modules.
"""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import asyncpg
from apcore_a2a_core.data import TaskArtifactUpdateEvent
from apcore_a2a_core.states import NAMES, NUMBERS, TERMINAL
from apcore_a2a_server.store.port import unpack_payload

from .replicas import notes

Rows: TypeAlias = list[tuple[Any, ...]]

UNREPEATABLE = ("once", "asks", "wants")
"""The skills that must not run twice for a task."""
REPEATABLE = ("again", "steps")
"""The skills that may run again."""
TASKS = "SELECT id, skill, state, version, first_event FROM {}tasks ORDER BY created"
EVENTS = "SELECT task_id, version, body FROM {}events ORDER BY task_id, version"
OUTBOX = "SELECT task_id, config_id, version FROM {}outbox WHERE due IS NOT NULL"
TERMINAL_STATES = ", ".join(str(NUMBERS[state]) for state in sorted(TERMINAL))
RULES = {
    "has ended, but has a lease": (
        f"SELECT id FROM {{0}}tasks WHERE state IN ({TERMINAL_STATES}) AND expires IS NOT NULL"
    ),
    "has a final state or an end time, but not both": (
        f"SELECT id FROM {{0}}tasks WHERE (state IN ({TERMINAL_STATES})) <> (ended IS NOT NULL)"
    ),
    **{
        f"has {table}, but does not exist": (
            f"SELECT DISTINCT task_id FROM {{0}}{table}"
            " WHERE task_id NOT IN (SELECT id FROM {0}tasks)"
        )
        for table in ("events", "messages", "webhooks", "sends", "outbox")
    },
}
"""For each kind of violation, the query for its tasks."""
QUERIES = (TASKS, EVENTS, OUTBOX, *RULES.values())

driver: Any = asyncpg


class Violated(AssertionError):
    """Some invariants do not hold; the message has a line for each violation."""


@dataclass(frozen=True)
class StoredTask:
    """A stored task.

    Attributes:
        skill: the id of its skill.
        state: its state, as the protocol spells it.
        version: the version of its latest event.
        first_version: the version of the first stored event.
        events: its log: the version of each event, and its state, or "" for a chunk.
    """

    skill: str
    state: str
    version: int
    first_version: int = 1
    events: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED


ENDED = {NAMES[state] for state in TERMINAL}
NAMES_BY_NUMBER = {number: NAMES[state] for state, number in NUMBERS.items()}


@dataclass(frozen=True)
class Observed:
    """Observations of clients and webhooks.

    Attributes:
        tasks: the ids of acknowledged tasks.
        ends: the final states that clients have read, by the tasks' ids.
        versions_read: the versions of the events in streams read to the end, by the tasks' ids.
        paused: the tasks that should be waiting for an answer.
        with_webhook: the tasks that have a webhook.
        notified: the tasks and states that webhooks were notified of.
    """

    tasks: set[str] = field(default_factory=set[str])
    ends: dict[str, str] = field(default_factory=dict[str, str])
    versions_read: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    paused: set[str] = field(default_factory=set[str])
    with_webhook: set[str] = field(default_factory=set[str])
    notified: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])


@dataclass(frozen=True)
class StoreContents:
    """The contents of a database.

    Attributes:
        tasks: its tasks.
        pending_notifications: the notifications that are not delivered yet.
        broken_rules: the ids of tasks found by the queries in `RULES`, each with its violation.
    """

    tasks: dict[str, StoredTask]
    pending_notifications: Rows
    broken_rules: list[tuple[str, str]]

    @property
    def unfinished(self) -> list[str]:
        """The tasks that have not ended."""
        return [task_id for task_id, task in self.tasks.items() if not task.has_ended]


def check(address: str, home: Path, observed: Observed, *, must_succeed: bool = False) -> None:
    """Check the invariants of the store at *address* and of the modules' notes in *home*.

    Args:
        address: The database's address.
        home: The folder with the modules' notes.
        observed: Observations of clients and webhooks.
        must_succeed: Whether a failed repeatable task is a violation, because none was
            interrupted often enough to be given up.

    Raises:
        Violated: Some invariants do not hold.
    """
    contents = read(address)
    lines = [*violations(contents, observed, start_counts(home))]
    lines += failures(contents) if must_succeed else ()
    if lines:
        raise Violated("\n".join([f"{len(lines)} violations", *lines]))


def start_counts(home: Path) -> Counter[str]:
    """Return how often a module has started for each task."""
    return Counter(note.task_id for note in notes(home) if note.event == "begin")


def violations(contents: StoreContents, observed: Observed, starts: Counter[str]) -> Iterator[str]:
    """Yield a line for each violation."""
    for task_id in sorted(observed.tasks - set(contents.tasks)):
        yield f"{task_id}: was acknowledged, but is lost"
    for task_id, task in contents.tasks.items():
        for line in (*_violations_of_state(task_id, task, observed), *_violations_of_log(task)):
            yield f"{task_id} ({task.skill}): {line}"
        if task.skill in UNREPEATABLE and starts[task_id] > 1:
            yield f"{task_id} ({task.skill}): started {starts[task_id]} times"
    for task_id, line in contents.broken_rules:
        yield f"{task_id}: {line}"
    yield from _violations_of_webhooks(contents.tasks, contents.pending_notifications, observed)


def failures(contents: StoreContents) -> Iterator[str]:
    """Yield a line for each repeatable task that has failed."""
    for task_id, task in contents.tasks.items():
        if task.skill in REPEATABLE and task.state == "failed":
            yield f"{task_id} ({task.skill}): may run again, but has failed"


def _violations_of_state(task_id: str, task: StoredTask, observed: Observed) -> Iterator[str]:
    if not task.has_ended and task_id not in observed.paused:
        yield f"has not ended: it is {task.state}"
    if task_id in observed.paused and task.state != "input-required":
        yield f"should be paused, but is {task.state}"
    if observed.ends.get(task_id, task.state) != task.state:
        yield f"clients saw it {observed.ends[task_id]}, but it is {task.state}"
    versions = [version for version, _ in task.events]
    if observed.versions_read.get(task_id, versions) != versions:
        yield f"read as {observed.versions_read[task_id]}, but stored as {versions}"


def _violations_of_webhooks(
    tasks: dict[str, StoredTask], pending_notifications: Rows, observed: Observed
) -> Iterator[str]:
    for task_id, config_id, version in pending_notifications:
        yield f"{task_id}: webhook {config_id} was not notified of version {version}"
    for task_id in sorted(observed.with_webhook & set(tasks)):
        task = tasks[task_id]
        if task.has_ended and (task_id, task.state) not in observed.notified:
            yield f"{task_id} ({task.skill}): its webhook never got the state {task.state}"


def _violations_of_log(task: StoredTask) -> Iterator[str]:
    versions = [version for version, _ in task.events]
    if versions != [*range(task.first_version, task.version + 1)]:
        yield f"has gaps: {versions} instead of {task.first_version} to {task.version}"
    ends = [version for version, state in task.events if state in ENDED]
    if len(ends) != task.has_ended:
        yield f"ended {len(ends)} times, but is {task.state}"
    if ends and ends[0] != versions[-1]:
        yield f"has events after its end: {versions[-1] - ends[0]}"
    states = [state for _, state in task.events if state]
    if states[-1:] not in ([], [task.state]):
        yield f"its log ends with {states[-1]}, but it is {task.state}"


def read(address: str) -> StoreContents:
    """Return the contents of the database at *address*."""
    if address.startswith("sqlite:///"):
        return _contents(*_read_file(Path(address.removeprefix("sqlite:///"))))
    return _contents(*asyncio.run(_read_postgres(address)))


def count_unfinished(address: str) -> tuple[int, int]:
    """Return the numbers of unfinished tasks and pending notifications in a PostgreSQL store."""
    return asyncio.run(_count(address))


def _contents(
    tasks: Rows, events: Rows, pending_notifications: Rows, *rows_by_rule: Rows
) -> StoreContents:
    stored = {
        task_id: StoredTask(skill, NAMES_BY_NUMBER[state], version, first)
        for task_id, skill, state, version, first in tasks
    }
    for task_id, version, body in events:
        if task_id in stored:
            stored[task_id].events.append((version, _state(bytes(body))))
    broken_rules = [
        (task_id, rule)
        for rule, rows in zip(RULES, rows_by_rule, strict=True)
        for (task_id,) in rows
    ]
    return StoreContents(stored, pending_notifications, broken_rules)


def _state(body: bytes) -> str:
    """Return the state in an event, or "" if it is a chunk."""
    payload = unpack_payload(body)
    if isinstance(payload, TaskArtifactUpdateEvent):
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
    ended = [NUMBERS[state] for state in TERMINAL]
    try:
        sql = "SELECT count(*) FROM apcore_a2a.tasks WHERE state <> ALL($1)"
        tasks: int = await connection.fetchval(sql, ended)
        sql = f"SELECT count(*) FROM ({OUTBOX.format('apcore_a2a.')}) waiting"
        waiting: int = await connection.fetchval(sql)
    finally:
        await connection.close()
    return tasks, waiting
