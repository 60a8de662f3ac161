"""What a check of a store looks at, and what it finds."""

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apcore_a2a_core.states import NAMES, TERMINAL
from google.protobuf.message import DecodeError

from .events import unpack

SHOWN = 20
"""How many examples of a fault are kept."""
DEPENDENT = ("events", "messages", "webhooks", "sends", "outbox")
ENDED = ", ".join(str(int(state)) for state in sorted(TERMINAL))
TASKS, EVENTS, LETTERS = "tasks", "events", "dead letters"

FIGURES = {
    TASKS: "SELECT state, count(*), min(status_at), max(status_at) FROM tasks GROUP BY state",
    EVENTS: "SELECT count(*) FROM events",
}
RULES = {
    "events are missing": """
        SELECT t.id, count(e.version) || ' of ' || (t.version - t.first_event + 1) || ' are there',
            count(*) OVER ()
        FROM tasks t LEFT JOIN events e
            ON e.task_id = t.id AND e.version BETWEEN t.first_event AND t.version
        GROUP BY t.id, t.version, t.first_event
        HAVING count(e.version) <> t.version - t.first_event + 1""",
    "events are outside the log": """
        SELECT e.task_id, 'version ' || e.version || ', and the log has ' || t.first_event
            || ' to ' || t.version, count(*) OVER ()
        FROM events e JOIN tasks t ON t.id = e.task_id
        WHERE e.version NOT BETWEEN t.first_event AND t.version""",
    "ended tasks are leased": f"""
        SELECT id, '', count(*) OVER () FROM tasks
        WHERE state IN ({ENDED}) AND expires IS NOT NULL""",
    "the time of the end is missing, or is that of a task that goes on": f"""
        SELECT id, '', count(*) OVER () FROM tasks
        WHERE (state IN ({ENDED})) <> (ended IS NOT NULL)""",
}
"""Each gives what breaks it: the task's id, what is the matter, and how many there are in all."""
ORPHANS = """
    SELECT x.task_id, count(*) || ' of them', count(*) OVER ()
    FROM {table} x LEFT JOIN tasks t ON t.id = x.task_id
    WHERE t.id IS NULL GROUP BY x.task_id"""
STATUSES = """
    SELECT e.task_id, e.version, e.body, t.version, t.state
    FROM events e JOIN tasks t ON t.id = e.task_id
    WHERE (substr(e.body, 1, 1) IN ({task}, {chunk})) IS NOT TRUE ORDER BY e.task_id, e.version"""
"""The events that may end a task: neither its beginning nor a chunk."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A rule that does not hold.

    Attributes:
        rule: what is wrong.
        count: how often it is.
        examples: the first of them: the task's id, and what is the matter.
    """

    rule: str
    count: int
    examples: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What is in a store, and what is wrong with it.

    Attributes:
        version: the version of its tables.
        size: bytes on the disk.
        tasks: how many there are in each state; None, as all figures, of a damaged file.
        events: how many there are.
        oldest: seconds since 1970 at the change of state that is the longest ago; None of no tasks.
        newest: the same of the latest.
        dead_letters: notifications that are not tried any more.
        faults: what is wrong.
    """

    version: int
    size: int
    tasks: Mapping[str, int] | None = None
    events: int | None = None
    oldest: float | None = None
    newest: float | None = None
    dead_letters: int | None = None
    faults: Sequence[Fault] = ()


class Ends:
    """How logs end. It is given their statuses in order, and remembers no more than the faults."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = defaultdict(int)
        self._examples: dict[str, list[tuple[str, str]]] = defaultdict(list)
        self._task: tuple[str, int, int] | None = None
        self._states: list[tuple[int, int]] = []

    def add(self, task_id: str, version: int, body: bytes, last: int, state: int) -> None:
        """The next status, with the version and the state that the task has."""
        if self._task != (task_id, last, state):
            self._close()
            self._task = task_id, last, state
        try:
            found: Any = unpack(body)
        except (DecodeError, IndexError):
            self._find("events can't be read", f"version {version}")
        else:
            self._states.append((version, found.status.state))

    def faults(self) -> Iterator[Fault]:
        """What is wrong with the logs that it was given."""
        self._close()
        for rule, count in self._counts.items():
            yield Fault(rule, count, self._examples[rule])

    def _close(self) -> None:
        """Judge the log that was given last."""
        if self._task is None or not self._states:
            return
        _, last, state = self._task
        ends = [version for version, state in self._states if state in TERMINAL]
        said, self._states = self._states[-1][1], []
        if len(ends) > 1:
            self._find("tasks end more than once", f"in versions {ends[0]} and {ends[1]}")
        if ends and ends[-1] < last:
            self._find("events are behind the end", f"version {last}, after the end in {ends[-1]}")
        if said != state:
            told = f"{_name(state)}, and {_name(said)} by its events"
            self._find("the state is not that of the events", told)

    def _find(self, rule: str, detail: str) -> None:
        assert self._task is not None
        self._counts[rule] += 1
        if len(self._examples[rule]) < SHOWN:
            self._examples[rule].append((self._task[0], detail))


def queries(tables: Container[str], more: Mapping[str, str]) -> dict[str, str]:
    """What to ask a store that has these tables, by its name; *more* are rules of its own."""
    orphans = {
        f"{table} have no task": ORPHANS.format(table=table)
        for table in DEPENDENT
        if table in tables
    }
    rules = {**RULES, **more, **orphans}
    asked = {rule: f"{sql} ORDER BY 1 LIMIT {SHOWN}" for rule, sql in rules.items()}
    letters = {LETTERS: "SELECT count(*) FROM outbox WHERE due IS NULL"}
    return {**FIGURES, **(letters if "outbox" in tables else {}), **asked}


def report(version: int, size: int, answers: Mapping[str, Sequence[Any]], ends: Ends) -> Report:
    """What the answers to `queries` mean, and how the logs end."""
    left = dict(answers)
    tasks, ((events,),) = left.pop(TASKS), left.pop(EVENTS)
    ((letters,),) = left.pop(LETTERS, [[0]])
    broken = [
        Fault(rule, rows[0][2], [(task_id, detail) for task_id, detail, _ in rows])
        for rule, rows in left.items()
        if rows
    ]
    return Report(
        version=version,
        size=size,
        tasks={_name(state): count for state, count, _, _ in sorted(tasks, key=lambda row: row[0])},
        events=events,
        oldest=min((oldest for _, _, oldest, _ in tasks), default=None),
        newest=max((newest for _, _, _, newest in tasks), default=None),
        dead_letters=letters,
        faults=[*broken, *ends.faults()],
    )


def _name(state: int) -> str:
    return NAMES.get(state, str(state))
