"""Figures (counts and durations) of each skill, since the start and in the last hour.

Each worker has a place for each skill: cells that only this worker writes, in memory that all
workers share. Readers add up the places of a skill. So recording a change of a task costs only a
few additions, and nothing is sent between processes.
"""

import mmap
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import add
from struct import Struct, calcsize
from typing import Any, Literal, NamedTuple, TypeAlias

from apcore_a2a_core.data import TaskState
from apcore_a2a_core.states import (
    CANCELED,
    COMPLETED,
    FAILED,
    NAMES,
    PAUSED,
    REJECTED,
    TERMINAL,
    WORKING,
)

from apcore_a2a_server.engine.messages import failure_reason
from apcore_a2a_server.store import TaskRecord

Clock: TypeAlias = Callable[[], float]

PROMETHEUS_BOUNDS = (0.005, 0.025, 0.1, 0.5, 1, 5, 10, 30, 60, 120, 300)
"""Upper bounds of the Prometheus histogram in seconds; the last is the default limit of a run."""
MAX_SKILLS = 512
"""Maximum number of skills that have a place of their own; all further skills share one."""
OTHER = "(other)"
"""Id in reports for the skills that share a place, and for tasks without a skill."""
OTHER_CODE = "OTHER"
"""Code that stands for codes beyond `MAX_CODES`, and in counts for failures without a code."""
NO_ANSWER_CODE = "INPUT_TIMEOUT"
"""The code of paused tasks that failed because no answer arrived in time."""
MINUTES = 60
"""Minutes that are kept, the current one included."""
HOUR = 60 * MINUTES  # seconds
MAX_NOTABLE = 5
"""Maximum number of slowest runs, and of latest failures, that are kept for each skill."""
MAX_CODES = 8
"""Maximum number of failure codes that each place counts separately; all others share a count."""

# cells of a place, as floats: counts since the start, and the number of running tasks
STATES = (*NAMES,)
_STATE_CELLS = {state: position for position, state in enumerate(STATES)}
_RUNS = len(STATES)
_RUN_SECONDS = _RUNS + len(PROMETHEUS_BOUNDS) + 1
_RUNNING = _RUN_SECONDS + 1
_TOTALS_SIZE = _RUNNING + 1

# cells of a minute: unsigned integers
_STARTED = 1  # cell 0 is the stamp: the minute, counted from 1970
ENDED = {COMPLETED: 2, FAILED: 3, CANCELED: 4, REJECTED: 5}
"""The cells for the numbers of ended tasks, by final state."""
_ERRORS = 6
"""The first of the cells that count failures by code; the last of these cells counts the rest."""
_DURATIONS = _ERRORS + MAX_CODES + 1
PERCENTILE_BOUNDS: Sequence[float] = (*(0.001 * 1.25**power for power in range(69)),)
"""Upper bounds of the histogram for percentiles, from a millisecond to more than an hour."""
_MINUTE_SIZE = _DURATIONS + len(PERCENTILE_BOUNDS) + 1
_EMPTY_MINUTE = memoryview(bytes(4 * _MINUTE_SIZE)).cast("I")

# texts of a place: bytes
_NAME, _CODE, _RECORD = Struct("256p"), Struct("32p"), Struct("<ddB47p")
_CODES_AT = _NAME.size
_SLOWEST_AT = _CODES_AT + MAX_CODES * _CODE.size
_FAILURES_AT = _SLOWEST_AT + MAX_NOTABLE * _RECORD.size
_TEXTS_SIZE = _FAILURES_AT + MAX_NOTABLE * _RECORD.size


class NotableTask(NamedTuple):
    """One of the slowest runs, or one of the latest failures.

    Attributes:
        at: When it ended, in seconds since 1970.
        seconds: How long the run took; 0 if the task was not running when it failed.
        position: For a run, the position of its state in `STATES`. For a failure, the position of
            its code in the place, counted from 1, or 0 for none.
        task_id: The task.
    """

    at: float
    seconds: float
    position: int
    task_id: str


class _Place:
    """The cells that one worker writes for a skill.

    Attributes:
        totals: The counts since the start, and the number of running tasks.
        minutes: The cells of 60 minutes, each with a stamp; minute n since 1970 is at n modulo 60.
        slowest: The slowest recent runs, the slowest first; some may be more than an hour old.
        failures: The latest failures, the latest first.
        codes: The failure codes that have a cell of their own.
    """

    __slots__ = (
        "_texts",
        "_threshold",
        "_threshold_until",
        "codes",
        "failures",
        "minutes",
        "slowest",
        "totals",
    )

    def __init__(self, totals: Any, minutes: Any, texts: Any) -> None:
        self.totals = totals
        self.minutes = minutes
        self._texts = texts
        self.slowest = self._read(_SLOWEST_AT)
        self.failures = self._read(_FAILURES_AT)
        self._set_threshold()
        self.codes = [*self._read_codes()]  # read after the failures, which refer to them

    @property
    def name(self) -> str:
        """The id of the skill; empty for a free place, and for the shared one."""
        return str(_NAME.unpack_from(self._texts)[0], "utf-8", "replace")

    @name.setter
    def name(self, name: str) -> None:
        _NAME.pack_into(self._texts, 0, name.encode())

    def minute_start(self, now: float) -> int:
        """Return the position of the current minute's cells; clear an older minute first."""
        minute = int(now) // 60
        start = minute % MINUTES * _MINUTE_SIZE
        if self.minutes[start] != minute:
            self.minutes[start : start + _MINUTE_SIZE] = _EMPTY_MINUTE
            self.minutes[start] = minute
        return start

    def code_cell(self, text: str) -> int:
        """Return the number of a code's cell, or `MAX_CODES`, the shared cell, if none is free."""
        text = text[: _CODE.size - 1]
        if text not in self.codes:
            if len(self.codes) == MAX_CODES:
                return MAX_CODES
            _CODE.pack_into(self._texts, _CODES_AT + len(self.codes) * _CODE.size, text.encode())
            self.codes.append(text)
        return self.codes.index(text)

    def note_run(self, run: NotableTask) -> None:
        """Keep a run if it is one of the slowest of the last hour."""
        if run.seconds <= self._threshold and run.at < self._threshold_until:
            return
        recent_runs = (old for old in self.slowest if not _is_old(old, run.at))
        runs = sorted((*recent_runs, run), key=lambda run: -run.seconds)
        self.slowest = runs[:MAX_NOTABLE]
        self._write(_SLOWEST_AT, self.slowest)
        self._set_threshold()

    def _set_threshold(self) -> None:
        """Set the threshold that a run must exceed to be kept, and when the threshold ends."""
        self._threshold, self._threshold_until = 0.0, 0.0
        if len(self.slowest) == MAX_NOTABLE:
            self._threshold = self.slowest[-1].seconds
            self._threshold_until = min(run.at for run in self.slowest) + HOUR

    def note_failure(self, failure: NotableTask) -> None:
        """Keep a failure, and drop the oldest if there are more than `MAX_NOTABLE`."""
        self.failures = [failure, *self.failures[: MAX_NOTABLE - 1]]
        self._write(_FAILURES_AT, self.failures)

    def _read_codes(self) -> Iterator[str]:
        for (code,) in _CODE.iter_unpack(self._texts[_CODES_AT:_SLOWEST_AT]):
            if code:
                yield code.decode("utf-8", "replace")

    def _read(self, start: int) -> list[NotableTask]:
        end = start + MAX_NOTABLE * _RECORD.size
        cells = bytes(self._texts[start:end])
        while cells != (reread := bytes(self._texts[start:end])):  # the worker is still writing
            cells = reread
        records = (NotableTask(*record) for record in _RECORD.iter_unpack(cells) if record[0])
        return [record._replace(task_id=_text(record.task_id)) for record in records]

    def _write(self, start: int, records: Iterable[NotableTask]) -> None:
        packed = b"".join(_RECORD.pack(*record[:3], record.task_id.encode()) for record in records)
        size = MAX_NOTABLE * _RECORD.size  # the earlier list may have been longer
        self._texts[start : start + size] = packed.ljust(size, b"\0")


def _text(packed: Any) -> str:
    return str(packed, "utf-8", "replace")


def _is_old(record: NotableTask, now: float) -> bool:
    return record.at <= now - HOUR


@dataclass
class SkillHour:
    """Figures of a skill in the last hour, over all workers; lists by minute begin with the oldest.

    Attributes:
        skill: The id of the skill.
        running: The number of tasks that run now.
        started: The number of tasks that were started in each minute.
        ended: The number of tasks that ended in each minute, by their state.
        errors: The number of failures by code.
        durations: The numbers of runs in the buckets of `PERCENTILE_BOUNDS`, then of longer runs.
        slowest: The slowest runs, the slowest first.
        failures: The latest failures, the latest first, each with its code.
    """

    skill: str
    running: int = 0
    started: list[int] = field(default_factory=lambda: [0] * MINUTES)
    ended: dict[TaskState, list[int]] = field(
        default_factory=lambda: {state: [0] * MINUTES for state in ENDED}
    )
    errors: Counter[str] = field(default_factory=Counter[str])
    durations: list[int] = field(default_factory=lambda: [0] * (len(PERCENTILE_BOUNDS) + 1))
    slowest: list[NotableTask] = field(default_factory=list[NotableTask])
    failures: list[tuple[NotableTask, str | None]] = field(default_factory=list[Any])

    def percentile(self, share: float) -> float | None:
        """Return a time in seconds that this share of the runs has not exceeded; None without runs.

        The time is exact to the width of a bucket of `PERCENTILE_BOUNDS`.
        """
        totals = [*accumulate(self.durations)]
        if not totals[-1]:
            return None
        rank = share * totals[-1]
        bucket = bisect_left(totals, rank)
        longest = self.slowest[0].seconds if self.slowest else 0.0
        bounds = (0.0, *PERCENTILE_BOUNDS, max(longest, PERCENTILE_BOUNDS[-1]))
        low, high = bounds[bucket : bucket + 2]
        part = 1 - (totals[bucket] - rank) / self.durations[bucket]
        duration = low + part * (high - low)
        # workers keep only a few runs, so the slowest of the last hour may have been dropped
        last_bucket = bisect_left(totals, totals[-1])
        has_slowest = self.slowest and bisect_left(PERCENTILE_BOUNDS, longest) >= last_bucket
        return min(duration, longest) if has_slowest else duration

    def add(self, place: _Place, now: float) -> None:
        """Add the figures of one worker."""
        self.running += int(place.totals[_RUNNING])
        minute, cells = int(now) // 60, place.minutes.tolist()
        errors = [0] * (MAX_CODES + 1)
        for start in range(0, len(cells), _MINUTE_SIZE):
            age = minute - cells[start]
            if not 0 <= age < MINUTES:
                continue
            position = MINUTES - 1 - age
            self.started[position] += cells[start + _STARTED]
            for state, cell in ENDED.items():
                self.ended[state][position] += cells[start + cell]
            errors = [*map(add, errors, cells[start + _ERRORS : start + _DURATIONS])]
            durations = cells[start + _DURATIONS : start + _MINUTE_SIZE]
            self.durations = [*map(add, self.durations, durations)]
        for code, count in zip(
            [*place.codes, OTHER_CODE], _code_counts(errors, place), strict=True
        ):
            if count:
                self.errors[code] += count
        self._add_notable(place, now)

    def _add_notable(self, place: _Place, now: float) -> None:
        runs = [run for run in place.slowest if not _is_old(run, now)]
        self.slowest = sorted((*self.slowest, *runs), key=lambda run: -run.seconds)[:MAX_NOTABLE]
        codes = [None, *place.codes, OTHER_CODE]
        recent_failures = (failure for failure in place.failures if not _is_old(failure, now))
        with_codes = [(failure, codes[failure.position]) for failure in recent_failures]
        by_time = sorted((*self.failures, *with_codes), key=lambda pair: -pair[0].at)
        self.failures = by_time[:MAX_NOTABLE]


def _code_counts(errors: Sequence[int], place: _Place) -> list[int]:
    """Return the counts of the codes that a place has, and then of all other codes."""
    return [*errors[: len(place.codes)], errors[MAX_CODES]]


class SkillTotals(NamedTuple):
    """Figures of a skill since the start, over all workers.

    Attributes:
        states: The number of tasks that entered each state.
        runs: The numbers of runs in the buckets of `PROMETHEUS_BOUNDS`, then of longer runs.
        run_seconds: The total duration of all runs.
    """

    states: Mapping[TaskState, float]
    runs: Sequence[float]
    run_seconds: float


class SkillFigures:
    """The figures of all skills and workers.

    Create the object before the workers are forked.

    Args:
        workers: The number of workers.

    Example:
        ```python
        from apcore_a2a_core.data import Task, TaskState, TaskStatus
        from apcore_a2a_server.app.skill_figures import SkillFigures
        from apcore_a2a_server.store import TaskRecord

        figures = SkillFigures(workers=2)
        working = TaskStatus(TaskState.TASK_STATE_WORKING, timestamp="2026-11-24T10:00:00.000Z")
        task = TaskRecord(Task(id="t1", status=working), skill="tea.make")
        figures.recorder(worker=1).on_state(None, task)
        print({hour.skill: sum(hour.started) for hour in figures.hours()})
        #> {'tea.make': 1}
        ```
    """

    def __init__(self, workers: int = 1) -> None:
        self._workers = workers
        # untouched pages of mapped memory take no space
        self._totals = _cells("d", workers * _PLACES_PER_WORKER * _TOTALS_SIZE)
        self._minutes = _cells("I", workers * _PLACES_PER_WORKER * MINUTES * _MINUTE_SIZE)
        self._texts = _cells("B", workers * _PLACES_PER_WORKER * _TEXTS_SIZE)

    def recorder(self, worker: int, clock: Clock = time.time) -> "SkillRecorder":
        """Return a new recorder for a worker; each worker needs its own."""
        return SkillRecorder(self, worker, clock)

    def clear(self, worker: int) -> None:
        """Forget the running tasks of a worker that has ended; its counts stay."""
        for place in self.places(worker):
            place.totals[_RUNNING] = 0

    def place(self, worker: int, number: int) -> _Place:
        """Return a place of a worker; number 0 is the shared one."""
        index, minute_cells = worker * _PLACES_PER_WORKER + number, MINUTES * _MINUTE_SIZE
        return _Place(
            self._totals[index * _TOTALS_SIZE : (index + 1) * _TOTALS_SIZE],
            self._minutes[index * minute_cells : (index + 1) * minute_cells],
            self._texts[index * _TEXTS_SIZE : (index + 1) * _TEXTS_SIZE],
        )

    def places(self, worker: int) -> Iterator[_Place]:
        """Yield the places of a worker that are in use, the shared one first."""
        for number in range(_PLACES_PER_WORKER):
            place = self.place(worker, number)
            if number and not place.name:  # places are taken in order
                return
            yield place

    def hours(self, now: float | None = None) -> Iterator[SkillHour]:
        """Yield the last hour of each skill that has had tasks since the start, sorted by id.

        Args:
            now: The current time, in seconds since 1970.
        """
        now = time.time() if now is None else now
        for name, places in self._by_skill().items():
            hour = SkillHour(name)
            for place in places:
                hour.add(place, now)
            yield hour

    def totals(self) -> dict[str, SkillTotals]:
        """Return the figures since the start of each skill that has had tasks, by id."""
        totals: dict[str, SkillTotals] = {}
        for name, places in self._by_skill().items():
            cells = [
                sum(values) for values in zip(*(place.totals for place in places), strict=True)
            ]
            states = dict(zip(STATES, cells, strict=False))
            totals[name] = SkillTotals(states, cells[_RUNS:_RUN_SECONDS], cells[_RUN_SECONDS])
        return totals

    def _by_skill(self) -> dict[str, list[_Place]]:
        by_skill: dict[str, list[_Place]] = {}
        for worker in range(self._workers):
            for place in self.places(worker):
                if any(place.totals):
                    by_skill.setdefault(place.name or OTHER, []).append(place)
        return dict(sorted(by_skill.items()))


_PLACES_PER_WORKER = MAX_SKILLS + 1
"""Number of places of a worker: the shared one, and one for each skill."""


def _cells(cell_format: Literal["d", "I", "B"], count: int) -> Any:
    memory: Any = memoryview(mmap.mmap(-1, count * calcsize(cell_format)))
    return memory.cast(cell_format)


class SkillRecorder:
    """Recorder of the state changes of one worker's tasks.

    Args:
        figures: The figures of all workers.
        worker: The number of the worker.
        clock: Returns the current time, in seconds since 1970.
    """

    def __init__(self, figures: SkillFigures, worker: int, clock: Clock = time.time) -> None:
        self._figures = figures
        self._worker = worker
        self._clock = clock
        # if this worker replaces one that ended, its places already have figures
        self._shared_place, *places = figures.places(worker)
        self._places = {place.name: place for place in places}

    def on_state(self, before: TaskRecord | None, after: TaskRecord) -> None:
        """Count the state that a task entered; if a running task ended, also count how long it ran.

        An orphaned task that is started again enters the state working a second time.
        """
        place = self._places.get(after.skill) or self._add_place(after.skill)
        state = after.task.status.state
        place.totals[_STATE_CELLS[state]] += 1
        if before is None:
            place.minutes[place.minute_start(self._clock()) + _STARTED] += 1
        elif state in TERMINAL:
            self._count_end(place, before, after)

    def publish(self, running: Mapping[str, int]) -> None:
        """Write the number of running tasks of each skill, so that any worker can report it."""
        in_shared_place = (running[name] for name in running if name not in self._places)
        self._shared_place.totals[_RUNNING] = sum(in_shared_place)
        for name, place in self._places.items():
            place.totals[_RUNNING] = running.get(name, 0)

    def _add_place(self, skill: str) -> _Place:
        """Return a new place, or the shared one if none is left or *skill* is empty or too long."""
        is_long = len(skill.encode()) >= _NAME.size
        if not skill or is_long or len(self._places) == MAX_SKILLS:
            return self._shared_place
        place = self._figures.place(self._worker, len(self._places) + 1)
        place.name = skill
        self._places[skill] = place
        return place

    def _count_end(self, place: _Place, before: TaskRecord, after: TaskRecord) -> None:
        status, now, seconds = after.task.status, self._clock(), 0.0
        start = place.minute_start(now)
        place.minutes[start + ENDED[status.state]] += 1
        if before.task.status.state == WORKING:
            # the difference is negative if another replica, whose clock is ahead, started the task
            seconds = max(after.status_at - before.status_at, 0)
            place.totals[_RUNS + bisect_left(PROMETHEUS_BOUNDS, seconds)] += 1
            place.totals[_RUN_SECONDS] += seconds
            place.minutes[start + _DURATIONS + bisect_left(PERCENTILE_BOUNDS, seconds)] += 1
            place.note_run(NotableTask(now, seconds, _STATE_CELLS[status.state], after.task.id))
        if status.state == FAILED:
            was_paused = before.task.status.state in PAUSED
            code = NO_ANSWER_CODE if was_paused else failure_reason(status.message)
            cell = MAX_CODES if code is None else place.code_cell(code)
            place.minutes[start + _ERRORS + cell] += 1
            position = 0 if code is None else cell + 1
            place.note_failure(NotableTask(now, seconds, position, after.task.id))
