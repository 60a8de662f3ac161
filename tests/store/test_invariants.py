"""The invariant checks detect each kind of damage in an otherwise sound store."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from apcore_a2a_core.states import COMPLETED, INPUT_REQUIRED
from apcore_a2a_server.store.sqlite import SqliteStore
from apcore_a2a_server.store.testing.samples import begun, chunk_change, new_record, state_change

from .invariants import Observed, Violated, check

NOTIFICATION = (
    "INSERT INTO outbox (task_id, config_id, version, owner, host, body, since, due, failure)"
    " VALUES ('done', 'hook', 4, 'ada', 'a.example', x'', 12.5, {}, '{}')"
)


async def fill(path: Path) -> None:
    """Create a sound store with one completed and one paused task."""
    store = SqliteStore(path)
    await store.start()
    for task_id, skill in (("done", "once"), ("paused", "asks")):
        record = new_record(task_id)
        record.skill = skill
        record, lease = await begun(store, record)
        chunk = chunk_change(record, "more", lease)
        await store.change(chunk)
        state = COMPLETED if task_id == "done" else INPUT_REQUIRED
        await store.change(state_change(chunk.record, state, lease))
    await store.close()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a folder with a sound store and the notes of one run."""
    asyncio.run(fill(tmp_path / "agent.db"))
    (tmp_path / "notes").write_text("done begin 1.5 7\ndone end 2.5 7\n")
    return tmp_path


def consistent_observations() -> Observed:
    return Observed(
        tasks={"done", "paused"}, ends={"done": "completed"}, versions_read={"done": [1, 2, 3, 4]},
        paused={"paused"},
    )  # fmt: skip


def sql(home: Path, *statements: str) -> None:
    with closing(sqlite3.connect(home / "agent.db")) as file, file:
        for statement in statements:
            file.execute(statement)


def violations(home: Path, observed: Observed, *, must_succeed: bool = False) -> list[str]:
    """Return the reported violations without their count."""
    with pytest.raises(Violated) as raised:
        check(f"sqlite:///{home / 'agent.db'}", home, observed, must_succeed=must_succeed)
    first, *lines = str(raised.value).splitlines()
    assert first == f"{len(lines)} violations"
    return lines


def test_a_sound_store_has_no_violations(home: Path) -> None:
    sql(home, NOTIFICATION.format("NULL", "it answers 410"))
    check(f"sqlite:///{home / 'agent.db'}", home, consistent_observations())


def test_a_lost_acknowledged_task_is_reported(home: Path) -> None:
    observed = consistent_observations()
    observed.tasks.add("t9")
    assert violations(home, observed) == ["t9: was acknowledged, but is lost"]


def test_an_unfinished_task_is_reported(home: Path) -> None:
    observed = consistent_observations()
    observed.paused.clear()
    assert violations(home, observed) == ["paused (asks): has not ended: it is input-required"]


DAMAGED_LOGS: dict[str, tuple[list[str], list[str]]] = {
    "a gap": (
        ["DELETE FROM events WHERE task_id = 'done' AND version = 2"],
        ["read as [1, 2, 3, 4], but stored as [1, 3, 4]", "has gaps: [1, 3, 4] instead of 1 to 4"],
    ),
    "a missing end": (
        [
            "DELETE FROM events WHERE task_id = 'done' AND version = 4",
            "UPDATE tasks SET version = 3 WHERE id = 'done'",
        ],
        [
            "read as [1, 2, 3, 4], but stored as [1, 2, 3]",
            "ended 0 times, but is completed",
            "its log ends with working, but it is completed",
        ],
    ),
    "a second end": (
        [
            "INSERT INTO events SELECT task_id, 5, body FROM events"
            " WHERE task_id = 'done' AND version = 4",
            "UPDATE tasks SET version = 5 WHERE id = 'done'",
        ],
        [
            "read as [1, 2, 3, 4], but stored as [1, 2, 3, 4, 5]",
            "ended 2 times, but is completed",
            "has events after its end: 1",
        ],
    ),
    "a chunk after the end": (
        [
            "INSERT INTO events SELECT task_id, 5, body FROM events"
            " WHERE task_id = 'done' AND version = 3",
            "UPDATE tasks SET version = 5 WHERE id = 'done'",
        ],
        [
            "read as [1, 2, 3, 4], but stored as [1, 2, 3, 4, 5]",
            "has events after its end: 1",
        ],
    ),
    "a different end from the one that clients saw": (
        ["UPDATE tasks SET state = 4 WHERE id = 'done'"],
        [
            "clients saw it completed, but it is failed",
            "its log ends with completed, but it is failed",
        ],
    ),
}


@pytest.mark.parametrize("damage", DAMAGED_LOGS)
def test_a_damaged_log_is_reported(home: Path, damage: str) -> None:
    statements, expected = DAMAGED_LOGS[damage]
    sql(home, *statements)
    assert violations(home, consistent_observations()) == [
        f"done (once): {line}" for line in expected
    ]


DAMAGED_TASKS: dict[str, tuple[str, str]] = {
    "a lease of a task that has ended": (
        "UPDATE tasks SET expires = 12.5 WHERE id = 'done'",
        "done: has ended, but has a lease",
    ),
    "an end without a time": (
        "UPDATE tasks SET ended = NULL WHERE id = 'done'",
        "done: has a final state or an end time, but not both",
    ),
    "a time without an end": (
        "UPDATE tasks SET ended = 12.5 WHERE id = 'paused'",
        "paused: has a final state or an end time, but not both",
    ),
}


@pytest.mark.parametrize("damage", DAMAGED_TASKS)
def test_a_damaged_task_is_reported(home: Path, damage: str) -> None:
    statement, expected = DAMAGED_TASKS[damage]
    sql(home, statement)
    assert violations(home, consistent_observations()) == [expected]


def test_rows_of_a_missing_task_are_reported(home: Path) -> None:
    sql(
        home,
        NOTIFICATION.format("NULL", "gone"),
        "INSERT INTO webhooks (task_id, config_id, host, version, failure, body)"
        " VALUES ('done', 'hook', 'a.example', '1.0', '', x'')",
        "INSERT INTO sends VALUES ('ada', 'key', x'', 'done')",
        "DELETE FROM tasks WHERE id = 'done'",
    )
    tables = "events", "messages", "webhooks", "sends", "outbox"
    loss = ["done: was acknowledged, but is lost"]
    assert violations(home, consistent_observations()) == loss + [
        f"done: has {table}, but does not exist" for table in tables
    ]


def test_an_undelivered_notification_is_reported(home: Path) -> None:
    sql(home, NOTIFICATION.format("12.5", ""))
    assert violations(home, consistent_observations()) == [
        "done: webhook hook was not notified of version 4"
    ]


def test_a_webhook_that_missed_the_end_is_reported(home: Path) -> None:
    observed = consistent_observations()
    observed.with_webhook.update(observed.tasks)
    observed.notified.add(("done", "working"))
    assert violations(home, observed) == ["done (once): its webhook never got the state completed"]


def test_a_second_start_of_an_unrepeatable_module_is_reported(home: Path) -> None:
    with (home / "notes").open("a") as file:
        file.write("done begin 3.5 8\n")
    assert violations(home, consistent_observations()) == ["done (once): started 2 times"]


def test_a_completed_task_that_should_be_paused_is_reported(home: Path) -> None:
    observed = consistent_observations()
    observed.paused.add("done")
    assert violations(home, observed) == ["done (once): should be paused, but is completed"]


def test_a_repeatable_task_that_has_failed_is_reported(home: Path) -> None:
    sql(home, "UPDATE tasks SET state = 4, skill = 'again' WHERE id = 'done'")
    observed = consistent_observations()
    observed.ends.clear()
    lines = ["its log ends with completed, but it is failed", "may run again, but has failed"]
    assert violations(home, observed, must_succeed=True) == [
        f"done (again): {line}" for line in lines
    ]


def test_all_violations_are_reported_together(home: Path) -> None:
    sql(home, "DELETE FROM events WHERE version = 2")
    assert [line.split()[0] for line in violations(home, consistent_observations())] == [
        "done",
        "done",
        "paused",
    ]
