"""What looks whether anything is lost sees each kind of loss, planted into a sound store."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from apcore_a2a_core.states import COMPLETED, INPUT_REQUIRED
from apcore_a2a_server.store.sqlite import SqliteStore
from apcore_a2a_server.store.testing.samples import begun, new_record, said_more, went_on

from .invariants import Told, Violated, check

NOTIFICATION = (
    "INSERT INTO outbox (task_id, config_id, version, owner, host, body, since, due, failure)"
    " VALUES ('done', 'hook', 4, 'ada', 'a.example', x'', 12.5, {}, '{}')"
)


async def fill(path: Path) -> None:
    """Have a sound store: one task has ended, and one has paused."""
    store = SqliteStore(path)
    await store.start()
    for task_id, skill in (("done", "once"), ("paused", "asks")):
        record = new_record(task_id)
        record.skill = skill
        record, lease = await begun(store, record)
        chunk = said_more(record, "more", lease)
        await store.change(chunk)
        state = COMPLETED if task_id == "done" else INPUT_REQUIRED
        await store.change(went_on(chunk.record, state, lease))
    await store.close()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a sound store, and notes of its module."""
    asyncio.run(fill(tmp_path / "agent.db"))
    (tmp_path / "starts").write_text("done begin 1.5 7\ndone end 2.5 7\n")
    return tmp_path


def told() -> Told:
    return Told(
        tasks={"done", "paused"}, ends={"done": "completed"}, seen={"done": [1, 2, 3, 4]},
        paused={"paused"},
    )  # fmt: skip


def sql(home: Path, *statements: str) -> None:
    with closing(sqlite3.connect(home / "agent.db")) as file, file:
        for statement in statements:
            file.execute(statement)


def found(home: Path, said: Told, *, spared: bool = False) -> list[str]:
    """The violations that are seen, without their number."""
    with pytest.raises(Violated) as raised:
        check(f"sqlite:///{home / 'agent.db'}", home, said, spared=spared)
    first, *lines = str(raised.value).splitlines()
    assert first == f"{len(lines)} violations"
    return lines


def test_of_a_sound_store_nothing_is_said(home: Path) -> None:
    sql(home, NOTIFICATION.format("NULL", "it answers 410"))
    check(f"sqlite:///{home / 'agent.db'}", home, told())


def test_a_task_that_was_acknowledged_and_is_lost(home: Path) -> None:
    said = told()
    said.tasks.add("t9")
    assert found(home, said) == ["t9: acknowledged, and lost"]


def test_a_task_that_is_left(home: Path) -> None:
    said = told()
    said.paused.clear()
    assert found(home, said) == ["paused (asks): left input-required"]


STATEMENTS: dict[str, tuple[list[str], list[str]]] = {
    "a gap": (
        ["DELETE FROM events WHERE task_id = 'done' AND version = 2"],
        ["read as [1, 2, 3, 4], and is [1, 3, 4]", "has gaps: [1, 3, 4] of 1 to 4"],
    ),
    "an end that is missing": (
        [
            "DELETE FROM events WHERE task_id = 'done' AND version = 4",
            "UPDATE tasks SET version = 3 WHERE id = 'done'",
        ],
        [
            "read as [1, 2, 3, 4], and is [1, 2, 3]",
            "ended 0 times, and is completed",
            "said working, and is completed",
        ],
    ),
    "a second end": (
        [
            "INSERT INTO events SELECT task_id, 5, body FROM events"
            " WHERE task_id = 'done' AND version = 4",
            "UPDATE tasks SET version = 5 WHERE id = 'done'",
        ],
        [
            "read as [1, 2, 3, 4], and is [1, 2, 3, 4, 5]",
            "ended 2 times, and is completed",
            "has events behind its end: 1",
        ],
    ),
    "a chunk behind the end": (
        [
            "INSERT INTO events SELECT task_id, 5, body FROM events"
            " WHERE task_id = 'done' AND version = 3",
            "UPDATE tasks SET version = 5 WHERE id = 'done'",
        ],
        [
            "read as [1, 2, 3, 4], and is [1, 2, 3, 4, 5]",
            "has events behind its end: 1",
        ],
    ),
    "another end than was told": (
        ["UPDATE tasks SET state = 4 WHERE id = 'done'"],
        ["told as completed, and is failed", "said completed, and is failed"],
    ),
}


@pytest.mark.parametrize("about", STATEMENTS)
def test_a_log_with(home: Path, about: str) -> None:
    statements, expected = STATEMENTS[about]
    sql(home, *statements)
    assert found(home, told()) == [f"done (once): {line}" for line in expected]


ROWS: dict[str, tuple[str, str]] = {
    "a lease of a task that has ended": (
        "UPDATE tasks SET expires = 12.5 WHERE id = 'done'",
        "done: has ended, and has a lease",
    ),
    "an end without a time": (
        "UPDATE tasks SET ended = NULL WHERE id = 'done'",
        "done: has the time of an end and none, or an end and no time of it",
    ),
    "a time without an end": (
        "UPDATE tasks SET ended = 12.5 WHERE id = 'paused'",
        "paused: has the time of an end and none, or an end and no time of it",
    ),
}


@pytest.mark.parametrize("about", ROWS)
def test_a_task_with(home: Path, about: str) -> None:
    statement, expected = ROWS[about]
    sql(home, statement)
    assert found(home, told()) == [expected]


def test_rows_of_a_task_that_is_not_there(home: Path) -> None:
    sql(
        home,
        NOTIFICATION.format("NULL", "gone"),
        "INSERT INTO webhooks (task_id, config_id, host, version, failure, body)"
        " VALUES ('done', 'hook', 'a.example', '1.0', '', x'')",
        "INSERT INTO sends VALUES ('ada', 'key', x'', 'done')",
        "DELETE FROM tasks WHERE id = 'done'",
    )
    tables = "events", "messages", "webhooks", "sends", "outbox"
    lost = ["done: acknowledged, and lost"]
    assert found(home, told()) == lost + [f"done: has {each}, and is not there" for each in tables]


def test_a_notification_that_still_waits(home: Path) -> None:
    sql(home, NOTIFICATION.format("12.5", ""))
    assert found(home, told()) == ["done: webhook hook has not been told of version 4"]


def test_a_webhook_that_was_never_told_of_the_end(home: Path) -> None:
    said = told()
    said.hooked.update(said.tasks)
    said.heard.add(("done", "working"))
    assert found(home, said) == ["done (once): its webhook was never told that it is completed"]


def test_a_module_that_was_started_twice_and_must_not_be(home: Path) -> None:
    with (home / "starts").open("a") as file:
        file.write("done begin 3.5 8\n")
    assert found(home, told()) == ["done (once): started 2 times"]


def test_a_task_that_should_wait_and_does_not(home: Path) -> None:
    said = told()
    said.paused.add("done")
    assert found(home, said) == ["done (once): should be paused, and is completed"]


def test_a_task_that_could_have_run_again_and_has_failed(home: Path) -> None:
    sql(home, "UPDATE tasks SET state = 4, skill = 'again' WHERE id = 'done'")
    said = told()
    said.ends.clear()
    lines = ["said completed, and is failed", "may run again, and is failed"]
    assert found(home, said, spared=True) == [f"done (again): {line}" for line in lines]


def test_all_that_is_wrong_is_said_at_once(home: Path) -> None:
    sql(home, "DELETE FROM events WHERE version = 2")
    assert [line.split()[0] for line in found(home, told())] == ["done", "done", "paused"]
