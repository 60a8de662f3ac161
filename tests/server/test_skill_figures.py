"""Figures by skill: the last hour, percentiles, the runs that are kept, and sums over workers."""

import os
from itertools import pairwise
from random import Random

import pytest
from apcore_a2a_core.data import Message, Part, Task, TaskState, TaskStatus, Timestamp
from apcore_a2a_core.states import CANCELED, COMPLETED, FAILED, INPUT_REQUIRED, NAMES, WORKING
from apcore_a2a_server.app.operate import timestamp
from apcore_a2a_server.app.skill_figures import (
    MAX_CODES,
    MAX_NOTABLE,
    MAX_SKILLS,
    MINUTES,
    NO_ANSWER_CODE,
    OTHER,
    OTHER_CODE,
    PERCENTILE_BOUNDS,
    SkillFigures,
    SkillHour,
    SkillRecorder,
)
from apcore_a2a_server.store import TaskRecord

START = 1_800_000_000.0  # at the beginning of a minute
SKILL = "tea.make"


class Worker:
    """A worker that records runs, with a clock that the test sets."""

    def __init__(self, figures: SkillFigures, number: int = 0) -> None:
        self.now = START
        self.recorder: SkillRecorder = figures.recorder(number, lambda: self.now)
        self._number = number
        self._tasks = 0

    def run(
        self,
        seconds: float = 1,
        state: TaskState = COMPLETED,
        skill: str = SKILL,
        *,
        code: str = "",
        last: TaskState = WORKING,
    ) -> str:
        """Run a task that ends now; *last* is its last state before the end."""
        self._tasks += 1
        task_id = f"{self._number}-{self._tasks}"
        started = record(task_id, skill, WORKING, self.now - seconds)
        self.recorder.on_state(None, started)
        before = record(task_id, skill, last, self.now - seconds)
        self.recorder.on_state(before, record(task_id, skill, state, self.now, code))
        return task_id


def record(task_id: str, skill: str, state: TaskState, at: float, code: str = "") -> TaskRecord:
    error = {"code": -32603, "message": "…", "data": {"type": code}}
    message = Message(parts=[Part(text="…"), Part(data=error)]) if code else None
    status = TaskStatus(state, message, Timestamp(timestamp(at)))
    return TaskRecord(Task(id=task_id, status=status), skill=skill)


def hour_of(figures: SkillFigures, now: float, skill: str = SKILL) -> SkillHour:
    return {hour.skill: hour for hour in figures.hours(now)}[skill]


def ended_in(hour: SkillHour) -> int:
    return sum(map(sum, hour.ended.values()))


def test_each_minute_counts_until_an_hour_has_passed() -> None:
    figures = SkillFigures()
    worker = Worker(figures)
    worker.run(state=COMPLETED)
    worker.now += 60
    for state in (FAILED, CANCELED):
        worker.run(state=state)

    hour = hour_of(figures, worker.now + 1)
    assert hour.started[-3:] == [0, 1, 2]
    assert [hour.ended[state][-1] for state in (COMPLETED, FAILED, CANCELED)] == [0, 1, 1]
    assert hour.ended[COMPLETED][-2] == 1

    hour = hour_of(figures, START + 60 * MINUTES - 1)
    assert (hour.started[:2], ended_in(hour)) == ([1, 2], 3)
    hour = hour_of(figures, START + 60 * MINUTES)
    assert (hour.started[:2], ended_in(hour)) == ([2, 0], 2)
    hour = hour_of(figures, START + 120 * MINUTES)
    assert (hour.started, ended_in(hour), hour.errors) == ([0] * MINUTES, 0, {})
    assert (hour.slowest, hour.failures, hour.percentile(0.5)) == ([], [], None)


def test_a_minute_starts_empty_an_hour_later() -> None:
    figures = SkillFigures()
    worker = Worker(figures)
    for _ in range(3):
        worker.run(state=FAILED)
    worker.now += 60 * MINUTES
    worker.run(seconds=0.002)
    hour = hour_of(figures, worker.now)
    assert (sum(hour.started), ended_in(hour), sum(hour.durations)) == (1, 1, 1)
    assert hour.errors == {}


def test_setting_the_clock_back_loses_no_figures() -> None:
    figures = SkillFigures()
    worker = Worker(figures)
    worker.now += 120
    worker.run()
    worker.now -= 60
    worker.run()
    assert ended_in(hour_of(figures, START + 120)) == 2


def test_percentiles_are_exact_within_an_eighth() -> None:
    random, figures = Random(7), SkillFigures()
    worker = Worker(figures)
    times = sorted(round(random.lognormvariate(0, 2), 3) + 0.001 for _ in range(1000))
    for seconds in times:
        worker.run(seconds)
    hour = hour_of(figures, worker.now)
    for share in (0.5, 0.95, 0.99):
        exact = times[int(share * len(times)) - 1]
        assert hour.percentile(share) == pytest.approx(exact, rel=1 / 8)


@pytest.mark.parametrize("seconds", [0, 0.0004, 0.02, 7, 3000, 2 * PERCENTILE_BOUNDS[-1]])
def test_the_percentile_of_a_single_run_is_close_to_its_duration(seconds: float) -> None:
    figures = SkillFigures()
    worker = Worker(figures)
    worker.run(seconds)
    percentile = hour_of(figures, worker.now).percentile(0.99)
    assert percentile is not None
    assert 0.75 * seconds - 0.001 <= percentile <= seconds + 0.001


def test_the_slowest_runs_and_the_latest_failures_are_kept() -> None:
    figures = SkillFigures()
    worker = Worker(figures)
    ids = {seconds: worker.run(seconds) for seconds in (3, 9, 1, 7, 5, 8, 2)}
    failed = [worker.run(0, FAILED, code="ModuleTimeoutError") for _ in range(MAX_NOTABLE + 2)]
    hour = hour_of(figures, worker.now)
    assert [run.task_id for run in hour.slowest] == [ids[seconds] for seconds in (9, 8, 7, 5, 3)]
    assert [failure.task_id for failure, _ in hour.failures] == failed[: -MAX_NOTABLE - 1 : -1]


def test_a_slow_run_of_an_hour_ago_makes_room_for_a_faster_one() -> None:
    figures = SkillFigures()
    worker = Worker(figures)
    for _ in range(MAX_NOTABLE):
        worker.run(100)
    worker.now += 60 * MINUTES
    last_task_id = worker.run(1)
    assert [run.task_id for run in hour_of(figures, worker.now).slowest] == [last_task_id]


def test_a_run_is_kept_once_when_slower_ones_become_old() -> None:
    figures = SkillFigures()
    worker = Worker(figures)
    for seconds in (100, 99):
        worker.run(seconds)
    worker.now += 60 * MINUTES / 2
    for seconds in (5, 4):
        worker.run(seconds)
    worker.now += 60 * MINUTES / 2
    worker.run(3)
    assert [run.seconds for run in hour_of(figures, worker.now).slowest] == [5, 4, 3]


def test_a_short_run_does_not_hide_longer_ones_that_are_not_kept() -> None:
    figures = SkillFigures()
    worker = Worker(figures)
    for _ in range(MAX_NOTABLE):
        worker.run(10)
    worker.now += 60 * MINUTES / 2
    for _ in range(20):
        worker.run(9)  # not among the slowest runs
    worker.now += 60 * MINUTES / 2
    worker.run(0.01)
    hour = hour_of(figures, worker.now)
    assert [run.seconds for run in hour.slowest] == [pytest.approx(0.01)]
    assert hour.percentile(0.5) == pytest.approx(9, rel=1 / 8)


def test_short_runs_have_percentiles_without_a_recent_slowest_run() -> None:
    figures = SkillFigures()
    worker = Worker(figures)
    for seconds in [0.0009] * MAX_NOTABLE + [0.0005] * 100:
        worker.run(seconds)
    hour = hour_of(figures, worker.now + 60 * MINUTES - 1)
    hour.slowest.clear()
    percentile = hour.percentile(0.99)
    assert percentile is not None
    assert 0 < percentile <= 0.001


def test_failures_are_counted_by_code() -> None:
    figures = SkillFigures()
    worker = Worker(figures)
    worker.run(state=FAILED, code="ModuleTimeoutError")
    worker.run(state=FAILED, code="ModuleTimeoutError")
    worker.run(state=FAILED)
    worker.run(state=FAILED, last=INPUT_REQUIRED)
    hour = hour_of(figures, worker.now)
    assert hour.errors == {"MODULE_TIMEOUT": 2, OTHER_CODE: 1, NO_ANSWER_CODE: 1}
    assert [code for _, code in hour.failures] == [
        NO_ANSWER_CODE,
        None,
        "MODULE_TIMEOUT",
        "MODULE_TIMEOUT",
    ]
    assert sum(hour.durations) == 3  # without the task that failed while it waited for an answer


def test_error_codes_beyond_the_maximum_are_counted_together() -> None:
    figures = SkillFigures()
    worker = Worker(figures)
    for number in range(MAX_CODES + 3):
        # codes are cut to 31 characters, so the long ones count as one
        worker.run(state=FAILED, code=f"Own{'Long' * 8}{chr(65 + number)}Error"[:40])
        worker.run(state=FAILED, code=f"{chr(65 + number)}Error")
    errors = hour_of(figures, worker.now).errors
    assert len(errors) == MAX_CODES + 1
    assert errors.total() == 2 * MAX_CODES + 6


def test_skills_beyond_the_maximum_are_counted_together() -> None:
    figures = SkillFigures()
    worker = Worker(figures)
    for number in range(MAX_SKILLS + 2):
        worker.run(skill=f"skill.{number}")
    worker.run(skill="")
    worker.run(skill="x" * 300)
    ended = {hour.skill: ended_in(hour) for hour in figures.hours(worker.now)}
    assert len(ended) == MAX_SKILLS + 1
    assert ended[OTHER] == 4
    assert figures.totals()[OTHER].states[COMPLETED] == 4


def test_the_figures_of_all_workers_are_added_up() -> None:
    figures = SkillFigures(2)
    first, second = Worker(figures, 0), Worker(figures, 1)
    for worker, seconds in (
        (first, 1),
        (second, 2),
        (first, 3),
        (second, 4),
        (first, 5),
        (second, 6),
    ):
        worker.run(seconds, FAILED, code=f"{'AB'[worker is second]}Error")
    first.run(skill="only.one")
    first.recorder.publish({SKILL: 3})
    second.recorder.publish({SKILL: 4, "not.seen": 2})
    hour = hour_of(figures, START)
    assert (hour.running, sum(hour.started), ended_in(hour)) == (7, 6, 6)
    assert hour.errors == {"A": 3, "B": 3}
    assert [run.seconds for run in hour.slowest] == [6, 5, 4, 3, 2]
    assert len(hour.failures) == MAX_NOTABLE
    assert hour_of(figures, START, OTHER).running == 2
    totals = figures.totals()[SKILL]
    assert (totals.states[FAILED], sum(totals.runs), totals.run_seconds) == (6, 6, 21)
    assert [*figures.totals()] == [OTHER, "only.one", SKILL]


def test_a_worker_continues_from_the_figures_of_its_predecessor() -> None:
    figures = SkillFigures(2)
    first = Worker(figures, 1)
    slow_task_id = first.run(9, FAILED, code="AError")
    first.recorder.publish({SKILL: 3})
    figures.clear(1)
    second = Worker(figures, 1)
    second.run(1, FAILED, code="BError")
    second.run(1, FAILED, code="AError")
    hour = hour_of(figures, START)
    assert (hour.running, ended_in(hour)) == (0, 3)
    assert hour.errors == {"A": 2, "B": 1}
    assert hour.slowest[0].task_id == slow_task_id
    assert [code for _, code in hour.failures] == ["A", "B", "A"]


def test_another_process_sees_what_a_worker_records() -> None:
    figures = SkillFigures(2)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            Worker(figures, 1).run(2, FAILED, code="ModuleTimeoutError")
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    hour = hour_of(figures, START)
    assert (hour.ended[FAILED][-1], hour.errors) == (1, {"MODULE_TIMEOUT": 1})
    assert [(run.task_id, run.seconds) for run in hour.slowest] == [("1-1", 2)]


def test_a_task_that_is_started_again_or_pauses_has_not_ended() -> None:
    figures = SkillFigures()
    worker = Worker(figures)
    states = (WORKING, WORKING, INPUT_REQUIRED, WORKING, COMPLETED)
    records = [record("t", SKILL, state, START) for state in states]
    for before, after in pairwise([None, *records]):
        if after is not None:
            worker.recorder.on_state(before, after)
    counts = {NAMES[state]: n for state, n in figures.totals()[SKILL].states.items() if n}
    assert counts == {"working": 3, "input-required": 1, "completed": 1}
    assert ended_in(hour_of(figures, START)) == 1
