"""Lists of tasks: pages and totals match those of a plain search, and take constant time."""

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, get_args

import pytest
from apcore_a2a_core.data import Task, TaskState, TaskStatus, Timestamp
from apcore_a2a_core.records import TaskRecord
from apcore_a2a_core.states import COMPLETED, FAILED, INPUT_REQUIRED, TERMINAL, WORKING
from apcore_a2a_server.store import (
    InMemoryTaskStore,
    Query,
    StoreFullError,
    open_store,
    task_index,
)
from apcore_a2a_server.store.queries import Order
from apcore_a2a_server.store.rows import sql_conditions, with_conditions
from apcore_a2a_server.store.sqlite.schema import sql as statements
from hypothesis import given, settings
from hypothesis import strategies as st

STATES = (WORKING, INPUT_REQUIRED, COMPLETED, FAILED)
OWNERS = ("ada", "bob")
CAPACITY = 25
TTL = 1000.0


def record(task_id: str, owner: str, context: str, state: TaskState, seconds: float) -> TaskRecord:
    timestamp = datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
    status = TaskStatus(state=state, timestamp=Timestamp(timestamp))
    return TaskRecord(Task(id=task_id, context_id=context, status=status), owner)


@dataclass
class ModelTask:
    """A task in the model."""

    record: TaskRecord
    created: int
    updated: int
    saved_at: float

    @property
    def has_ended(self) -> bool:
        return self.record.task.status.state in TERMINAL

    @property
    def key(self) -> tuple[str, str]:
        return self.record.owner, self.record.task.context_id


@dataclass
class Model:
    """A model of the store that searches all of its tasks each time."""

    tasks: dict[str, ModelTask] = field(default_factory=dict)
    now: float = 0.0
    saves: int = 0

    def save(self, record: TaskRecord) -> None:
        self.expire()
        known = self.tasks.get(record.task.id)
        if known is None and len(self.tasks) == CAPACITY:
            ended = sorted(
                (task for task in self.tasks.values() if task.has_ended),
                key=lambda task: (task.record.owner != record.owner, task.updated),
            )
            if not ended:
                raise StoreFullError
            del self.tasks[ended[0].record.task.id]
        self.saves += 1
        created = known.created if known else self.saves
        self.tasks[record.task.id] = ModelTask(record, created, self.saves, self.now)

    def expire(self) -> None:
        """Delete the conversations that ended long ago."""
        for key in {task.key for task in self.tasks.values()}:
            tasks = [task for task in self.tasks.values() if task.key == key]
            last = max(task.saved_at for task in tasks)
            if all(task.has_ended for task in tasks) and last + TTL <= self.now:
                for task in tasks:
                    del self.tasks[task.record.task.id]

    def query(self, query: Query) -> list[str]:
        self.expire()
        matching = [
            task
            for task in self.tasks.values()
            if query.matches(*task.key, task.record.task.status.state, task.record.status_at)
        ]
        matching.sort(key=lambda task: getattr(task, query.order), reverse=True)
        return [task.record.task.id for task in matching]


def queries() -> Iterator[dict[str, Any]]:
    for owner in OWNERS:
        for context_id in ("", "c0", "c1", "unknown"):
            for state in (None, *STATES):
                for after in (None, 103.0, 110.0):
                    for order in get_args(Order):
                        yield {
                            "owner": owner,
                            "context_id": context_id,
                            "state": state,
                            "after": after,
                            "order": order,
                        }


async def pages(store: InMemoryTaskStore, query: dict[str, Any]) -> tuple[list[str], set[int]]:
    """Return the ids on all pages of a query, and their totals."""
    task_ids: list[str] = []
    totals: set[int] = set()
    cursor = None
    while True:
        page = await store.query(Query(**query, cursor=cursor, limit=3))
        task_ids += [record.task.id for record in page.records]
        totals.add(page.total)
        cursor = page.next_cursor
        if cursor is None:
            return task_ids, totals


SAVE = st.tuples(
    st.just("save"), st.integers(0, 39), st.sampled_from(STATES), st.sampled_from([1, 1, 0, -4])
)
STEP = st.one_of(
    *[SAVE] * 7,
    st.tuples(st.just("delete"), st.integers(0, 39)),
    st.tuples(st.just("evict"), st.sampled_from(OWNERS)),
    st.tuples(st.just("wait"), st.sampled_from([1.0, TTL / 4, TTL])),
)


@settings(max_examples=100, deadline=None)
@given(steps=st.lists(STEP, min_size=30, max_size=90))
def test_pages_and_totals_are_those_of_a_plain_search(steps: list[tuple[Any, ...]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_index, "MAX_BLOCK", 2)
        patch.setattr(task_index, "MAX_UNSORTED", 2)
        model = Model()
        patch.setattr("time.monotonic", lambda: model.now)
        asyncio.run(compare(model, steps))


async def compare(model: Model, steps: list[tuple[Any, ...]]) -> None:
    store = InMemoryTaskStore(ttl=TTL, max_capacity=CAPACITY)
    seconds = 100.0
    for step in steps:
        await store.query(Query("ada"))  # deletes expired tasks, as the timer does
        model.expire()
        match step:
            case "save", number, state, later:
                seconds += later
                saved = record(f"t{number}", OWNERS[number % 2], f"c{number % 3}", state, seconds)
                try:
                    model.save(saved)
                except StoreFullError:
                    with pytest.raises(StoreFullError):
                        await store.save(saved)
                else:
                    await store.save(saved)
            case "delete", number:
                known = model.tasks.pop(f"t{number}", None)
                assert await store.delete(f"t{number}") is (known is not None)
                if known is not None and not known.has_ended:
                    restart_expiry(model, known.key)
            case "evict", owner:
                ended = [task for task in model.tasks.values() if task.has_ended]
                own = [task for task in ended if task.record.owner == owner]
                if ended:
                    evicted = min(own or ended, key=lambda task: task.updated)
                    del model.tasks[evicted.record.task.id]
                store.evict(1, owner, ())
            case "wait", duration:
                model.now += duration
        assert len(store) == len(model.tasks) or step[0] == "wait"
    for query in queries():
        expected = model.query(Query(**query))
        assert await pages(store, query) == (expected, {len(expected)}), query


def restart_expiry(model: Model, key: tuple[str, str]) -> None:
    """Keep the rest of a conversation for a whole TTL from now."""
    for task in model.tasks.values():
        if task.key == key:
            task.saved_at = model.now


@pytest.mark.parametrize("order", get_args(Order))
def test_totals_are_right_after_the_clock_was_set_back(order: Order) -> None:
    async def totals() -> list[int]:
        store = InMemoryTaskStore()
        for number in range(1000):
            seconds = 1000.0 + number - (500 if number >= 700 else 0)
            await store.save(record(f"t{number}", "ada", "c", COMPLETED, seconds))
        queried = (Query("ada", after=after, order=order) for after in (1000.0, 1400.0, 2000.0))
        return [(await store.query(query)).total for query in queried]

    assert asyncio.run(totals()) == [1000, 400, 0]


@pytest.mark.clock
def test_a_page_takes_no_longer_among_many_tasks() -> None:
    """Two pages of 50,000 tasks take less than three times as long as two pages of 200."""

    async def fill(count: int) -> InMemoryTaskStore:
        store = InMemoryTaskStore(max_capacity=count)
        for number in range(count):
            state = STATES[2 + (number % 2)]
            owner = OWNERS[number // 2 % 2]
            await store.save(record(f"t{number}", owner, f"c{number // 200}", state, float(number)))
        return store

    async def seconds(store: InMemoryTaskStore, **query: Any) -> float:
        started_at = time.perf_counter()
        first = await store.query(Query("ada", limit=20, **query))
        await store.query(Query("ada", limit=20, cursor=first.next_cursor, **query))
        return time.perf_counter() - started_at

    async def ratios() -> list[float]:
        small, large = await fill(200), await fill(50_000)
        filters: list[dict[str, Any]] = [{}, {"state": FAILED}, {"after": 100.0}]
        measured: list[float] = []
        for query in (
            {**fields, "order": order} for fields in filters for order in get_args(Order)
        ):
            # with "after", a list in the order of creation is searched, so that its time grows
            if query["order"] == "updated" or "after" not in query:
                durations = [
                    (await seconds(large, **query), await seconds(small, **query))
                    for _ in range(30)
                ]
                large_median, small_median = (
                    median(times) for times in zip(*durations, strict=True)
                )
                measured.append(large_median / small_median)
        return measured

    assert max(asyncio.run(ratios())) < 3


@pytest.mark.parametrize(
    "query", [Query(**fields) for fields in queries() if fields["owner"] == "ada"]
)
def test_sqlite_reads_lists_in_the_order_of_an_index(tmp_path: Path, query: Query) -> None:
    """Lists need no scan and no sort; totals in the order of updates read only an index."""

    async def create() -> None:
        store = open_store(f"sqlite:///{tmp_path / 'agent.db'}")
        await store.start()
        await store.close()

    asyncio.run(create())
    _, conditions, parameters = sql_conditions(query, str, 17)
    with closing(sqlite3.connect(tmp_path / "agent.db")) as connection:
        plans = [
            "".join(
                detail
                for *_, detail in connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
            )
            for statement in (
                with_conditions(statements.list_tasks, conditions, query.order),
                with_conditions(statements.count_tasks, conditions, query.order),
            )
        ]
    assert "SEARCH tasks USING INDEX" in plans[0]
    assert "TEMP B-TREE" not in plans[0]
    assert query.order == "created" or "SEARCH tasks USING COVERING INDEX" in plans[1]
