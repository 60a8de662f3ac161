"""Stores are brought up to date, checked and pruned by `apcore-a2a store`."""

import asyncio
import json
import os
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from importlib import import_module
from pathlib import Path

import pytest
from a2a.types import TaskPushNotificationConfig
from apcore_a2a.command.options import NAMESPACE
from apcore_a2a_core.states import COMPLETED, INPUT_REQUIRED
from apcore_a2a_server.store import SendKey, Store, Webhook, open_store
from apcore_a2a_server.store.testing.samples import begun, new_record, said_more, went_on
from apcore_a2a_server.store.testing.webhook_checks import drained

from tests.store.conftest import server as server
from tests.store.postgresql import Database
from tests.store.replicas import hold, replica

from .processes import COMMAND, PATIENCE, run
from .remote import Command, Outcome, plain, screen
from .remote import _elsewhere as _elsewhere
from .remote import do as do

LETTER = (
    "INSERT INTO {}outbox (task_id, config_id, version, owner, host, body, since, due, failure)"
    " VALUES ('{}', 'c', 9, {body}, 'a.example', {body}, {now}, {}, 'gone')"
)


class File:
    """A store in a file, and what is done to it behind its back."""

    now = "1e12"
    prefix = ""
    index = "tasks_created"

    def __init__(self, folder: Path) -> None:
        self.path = folder / "agent.db"
        self.address = f"sqlite:///{self.path}"

    def blob(self, data: bytes) -> str:
        return f"x'{data.hex()}'"

    def sql(self, *statements: str) -> None:
        connection = sqlite3.connect(self.path, isolation_level=None)
        for statement in statements:
            connection.execute(statement)
        connection.close()


class Tables:
    """The same of one in a database."""

    now = "clock_timestamp()"
    prefix = "apcore_a2a."
    index = "tasks_owner_created_idx"

    def __init__(self, server: Database) -> None:
        server.clear()
        self._server = server
        self.address = server.url

    def blob(self, data: bytes) -> str:
        return f"'\\x{data.hex()}'::bytea"

    def sql(self, *statements: str) -> None:
        self._server.sql("SET search_path TO apcore_a2a", *statements)


@pytest.fixture(params=["file", pytest.param("database", marks=pytest.mark.database)])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> File | Tables:
    """An empty store of each kind."""
    if request.param == "file":
        return File(tmp_path)
    return Tables(request.getfixturevalue("server"))


@pytest.fixture
def full(kept: File | Tables) -> File | Tables:
    """One with a task that is done, one that runs, and one that asks."""
    with_store(kept.address, fill)
    return kept


def letter(kept: File | Tables, task_id: str, due: str) -> str:
    """The statement that adds a notification, or a dead letter."""
    return LETTER.format(kept.prefix, task_id, due, body=kept.blob(b"n"), now=kept.now)


def with_store(address: str, work: Callable[[Store], Awaitable[None]]) -> None:
    async def main() -> None:
        store = open_store(address)
        await store.start()
        try:
            await work(store)
        finally:
            await store.close()

    asyncio.run(main())


async def fill(store: Store) -> None:
    webhook = Webhook(TaskPushNotificationConfig(id="c", url="https://a.example"))
    record, lease = await begun(store, new_record("done"), [webhook], SendKey("k", b"digest"))
    chunk = said_more(record, "so far", lease)
    await store.change(chunk)
    await store.change(went_on(chunk.record, COMPLETED, lease))
    await drained(store)
    await begun(store, new_record("runs", context_id="c2"))
    record, lease = await begun(store, new_record("asks", context_id="c3"))
    await store.change(went_on(record, INPUT_REQUIRED, lease))


async def end_many(store: Store, count: int = 50) -> None:
    for number in range(count):
        record, lease = await begun(store, new_record(f"t{number:02}", context_id=f"c{number}"))
        await store.change(went_on(record, COMPLETED, lease))


def checked(do: Command, kept: File | Tables, *options: str) -> Outcome:
    return do("store", "check", "--store", kept.address, *options)


# check


@pytest.mark.smoke
def test_a_report_counts_tasks_by_state(full: File | Tables, do: Command) -> None:
    done = checked(do, full)

    assert (done.code, done.err) == (0, "")
    lines = [line.split(maxsplit=1) for line in done.out.splitlines()]
    assert ["tasks", "3: 1 working, 1 completed, 1 input-required"] in lines
    assert done.out.endswith("All is well\n")


def test_a_report_is_printed_as_json(full: File | Tables, do: Command) -> None:
    done = checked(do, full, "--json")

    assert done.code == 0
    assert done.json["tasks"] == {"working": 1, "completed": 1, "input-required": 1}
    assert (done.json["dead_letters"], done.json["faults"]) == (0, [])


def test_dead_letters_are_counted_and_are_no_fault(full: File | Tables, do: Command) -> None:
    full.sql(letter(full, "runs", "NULL"))
    done = checked(do, full)

    assert done.code == 0
    assert ["dead", "letters", "1"] in [line.split() for line in done.out.splitlines()]


def test_a_table_and_an_index_that_are_missing_are_faults(full: File | Tables, do: Command) -> None:
    index = full.index
    full.sql(f"DROP INDEX {index}", "DROP TABLE sends")
    faults = [f"index {index} is missing", "table sends is missing"]
    found = checked(do, full, "--json")
    assert found.code == 1
    assert set(faults) <= set(found.json["faults"])
    assert found.json["tasks"] == {}

    done = checked(do, full)
    assert done.code == 1
    count = len(found.json["faults"])
    assert f"\n\n{count} faults:\n" in done.out
    for fault in faults:
        assert f"  {fault}\n" in done.out


def test_a_damaged_file_is_a_fault(tmp_path: Path, do: Command) -> None:
    kept = File(tmp_path)
    with_store(kept.address, end_many)
    with kept.path.open("r+b") as file:
        file.seek(5 * 4096)
        file.write(b"\xff" * 4096)
    done = checked(do, kept)

    assert done.code == 1
    assert "\n  the file is damaged: " in done.out
    assert "tasks   " not in done.out


@pytest.mark.process
def test_a_check_changes_nothing_and_disturbs_no_agent(
    kept: File | Tables, tmp_path: Path, do: Command
) -> None:
    with replica(tmp_path, kept.address) as agent:
        with agent.stream("steps", seconds=0.05, steps=20) as events:
            task_id = next(events)[1]["task"]["id"]
            for _ in range(5):
                once = agent.start("again", seconds=0)
                assert checked(do, kept).code == 0
                next(events)
                assert agent.ended(once) == ["completed"]
            seen = [number for number, _ in events]
        assert agent.ended(task_id) == ["completed"]
        hold(agent.events(task_id))
        assert seen[-1] == len(agent.events(task_id))
        assert checked(do, kept).code == 0
        assert "WARNING" not in agent.process.log.partition("Ctrl+C ends it")[2]


# migrate


def test_the_tables_are_made_once(kept: File | Tables, do: Command) -> None:
    if isinstance(kept, File):
        kept.path.touch()
    done = checked(do, kept)
    assert (done.code, done.out) == (2, "")
    assert done.err == "apcore-a2a: The store has no tables yet: apcore-a2a store migrate\n"

    made, again = (do("store", "migrate", "--store", kept.address) for _ in range(2))
    assert (made.code, again.code) == (0, 0)
    version = checked(do, kept, "--json").json["version"]
    assert made.out == f"The tables have been made (version {version})\n"
    assert again.out == f"The tables are up to date (version {version})\n"


def test_older_tables_are_told_and_brought_up_to_date(
    full: File | Tables, do: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = f"apcore_a2a_server.store.{'sqlite' if isinstance(full, File) else 'postgres'}"
    done = import_module(f"{package}.schema").MIGRATIONS
    old, new = len(done), len(done) + 1
    more = (*done, f"CREATE TABLE {full.prefix}later (number INTEGER)")
    monkeypatch.setattr(f"{package}.schema.MIGRATIONS", more)

    told = f"have version {old}, and this package knows {new}: apcore-a2a store migrate\n"
    for action in ("check", "prune"):
        refused = do("store", action, "--store", full.address)
        assert refused.code == 2
        assert refused.err.endswith(told)
    migrated = do("store", "migrate", "--store", full.address)
    assert migrated.out == f"The tables had version {old}, and have version {new} now\n"
    full.sql("INSERT INTO later VALUES (1)")
    assert checked(do, full, "--json").json["version"] == new


@pytest.mark.parametrize("action", ["migrate", "check", "prune"])
def test_newer_tables_are_refused(action: str, full: File | Tables, do: Command) -> None:
    newer = "PRAGMA user_version = 99"
    if isinstance(full, Tables):
        newer = "INSERT INTO migrations VALUES (99)"
    full.sql(newer)
    done = do("store", action, "--store", full.address)

    assert (done.code, done.out) == (2, "")
    assert "tables have version 99" in done.err
    assert "update apcore-a2a-server" in done.err


@pytest.mark.process
def test_tables_that_are_up_to_date_are_so_beside_an_agent(
    kept: File | Tables, tmp_path: Path, do: Command
) -> None:
    with replica(tmp_path, kept.address) as agent:
        agent.start("asks")
        done = do("store", "migrate", "--store", kept.address)

    assert done.code == 0
    assert "up to date" in done.out


# prune


def test_old_tasks_are_dropped_with_all_of_theirs(full: File | Tables, do: Command) -> None:
    kept = do("store", "prune", "--store", full.address)
    assert (kept.code, kept.out) == (0, "0 tasks dropped (task_ttl 3600 s, max_tasks 10000)\n")
    time.sleep(0.01)  # longer than the one below
    done = do("store", "prune", "--store", full.address, "--task-ttl", "0.001")
    assert (done.code, done.out) == (0, "1 task dropped (task_ttl 0.001 s, max_tasks 10000)\n")

    left = checked(do, full, "--json")
    assert left.code == 0
    assert left.json["tasks"] == {"working": 1, "input-required": 1}


def test_the_latest_tasks_stay(kept: File | Tables, do: Command) -> None:
    with_store(kept.address, end_many)
    done = do("store", "prune", "--store", kept.address, "--max-tasks", "20")

    assert done.out.startswith("30 tasks dropped ")
    assert checked(do, kept, "--json").json["tasks"] == {"completed": 20}


@pytest.mark.process
def test_a_file_is_not_pruned_beside_its_agent(tmp_path: Path, do: Command) -> None:
    kept = File(tmp_path)
    with replica(tmp_path, kept.address) as agent:
        agent.start("asks")
        done = do("store", "prune", "--store", kept.address)

    assert (done.code, done.out) == (2, "")
    assert "is in use by another process" in done.err


@pytest.mark.database
@pytest.mark.process
def test_a_database_is_pruned_beside_its_agents(
    server: Database, tmp_path: Path, do: Command
) -> None:
    kept = Tables(server)
    with replica(tmp_path, kept.address) as agent:
        agent.ended(*(agent.start("again", seconds=0) for _ in range(3)))
        runs = agent.start("once", seconds=0.5)
        done = do("store", "prune", "--store", kept.address, "--max-tasks", "1")
        assert agent.ended(runs) == ["completed"]

    assert done.out.startswith("2 tasks dropped ")


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--task-ttl", "0", "--task-ttl must be greater than 0"),
        ("--task-ttl", "nan", "--task-ttl must be greater than 0"),
        ("--task-ttl", "soon", "--task-ttl takes a number, not 'soon'"),
        ("--max-tasks", "0", "--max-tasks must be a whole number, 1 or more"),
        ("--max-tasks", "1.5", "--max-tasks takes a whole number, not '1.5'"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(
    option: str, value: str, told: str, full: File | Tables, do: Command
) -> None:
    done = do("store", "prune", "--store", full.address, option, value)

    assert (done.code, done.out) == (2, "")
    assert told in done.err
    assert checked(do, full, "--json").json["tasks"]["completed"] == 1


# Which store, and where it can't be used


def test_the_store_and_its_limits_are_found_where_serve_finds_them(
    tmp_path: Path, do: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = File(tmp_path)
    with_store(kept.address, end_many)
    settings = {NAMESPACE: {"store": kept.address, "max-tasks": 40}}
    (tmp_path / "mine.yaml").write_text(json.dumps({"apcore": {}, **settings}))
    assert do("store", "prune", "--config", "mine.yaml").out.startswith("10 tasks dropped ")
    monkeypatch.setenv("APCORE_A2A_CONFIG", "mine.yaml")
    monkeypatch.setenv("APCORE_A2A_MAX_TASKS", "30")
    assert do("store", "prune").out.startswith("10 tasks dropped ")
    monkeypatch.setenv("APCORE_A2A_STORE", f"sqlite:///{tmp_path / 'other.db'}")
    assert do("store", "check").err == f"apcore-a2a: There is no file {tmp_path / 'other.db'}\n"
    assert checked(do, kept).code == 0


NAMELESS: dict[str, tuple[list[str], str]] = {
    "no store": ([], "--store URL or APCORE_A2A_STORE"),
    "memory": (["--store", "memory"], "Tasks in memory end with their process"),
    "no address": (["--store", "agent.db"], "The store must be"),
    "an unknown option": (["--stroe", "sqlite:///agent.db"], "--store"),
}


@pytest.mark.parametrize("action", ["migrate", "check", "prune"])
@pytest.mark.parametrize("case", NAMELESS)
def test_who_names_no_store_is_told_how(case: str, action: str, do: Command) -> None:
    options, told = NAMELESS[case]
    done = do("store", action, *options)

    assert (done.code, done.out) == (2, "")
    assert told in done.err
    assert os.listdir() == []


@pytest.mark.parametrize("action", ["check", "prune"])
def test_a_file_that_is_not_there_is_not_made(action: str, tmp_path: Path, do: Command) -> None:
    done = do("store", action, "--store", "sqlite:///agent.db")

    assert (done.code, done.out) == (2, "")
    assert done.err == "apcore-a2a: There is no file agent.db\n"
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("action", ["migrate", "check", "prune"])
def test_what_is_no_database_is_told_and_left_as_it_is(
    action: str, tmp_path: Path, do: Command
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("These are no tasks.")
    folder = do("store", action, "--store", "sqlite:///folder")
    text = do("store", action, "--store", "sqlite:///text")

    assert (folder.code, folder.err) == (2, "apcore-a2a: folder is no file\n")
    assert (text.code, text.err) == (2, "apcore-a2a: text can't be read: file is not a database\n")
    assert (tmp_path / "text").read_text() == "These are no tasks."


def test_a_file_of_another_program_is_told(tmp_path: Path, do: Command) -> None:
    kept = File(tmp_path)
    kept.sql("CREATE TABLE songs (name)", "PRAGMA user_version = 1")
    done = checked(do, kept)

    assert (done.code, done.err) == (1, "")
    assert "  table tasks is missing\n" in done.out


SECRET = "s3cr3t"


@pytest.mark.database
@pytest.mark.parametrize("action", ["migrate", "check", "prune"])
@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("postgresql://agent:{}@127.0.0.1:1/postgres", "Connect call failed"),
        ("postgresql://agent:{}@nowhere.invalid/postgres", "not known"),
        ("postgresql://agent:{}/more@127.0.0.1/postgres", "address can't be read"),
        ("postgresql://agent:{}@127.0.0.1:{port}/missing", '"missing" does not exist'),
        ("postgresql://locked:{}@127.0.0.1:{port}/postgres", "password authentication failed"),
        ("postgresql:/agent:{}@127.0.0.1/postgres", "The store must be"),
    ],
)
def test_a_database_that_can_t_be_used_is_told_in_a_line_without_the_password(
    address: str, told: str, action: str, server: Database, do: Command
) -> None:
    server.clear()
    if "locked" in address:
        server.sql("DROP ROLE IF EXISTS locked", "CREATE ROLE locked LOGIN PASSWORD 'another'")
        server.ask_for_passwords("locked")
    done = do("store", action, "--store", address.format(SECRET, port=server.port))

    assert (done.code, done.out) == (2, "")
    assert told in done.err
    assert done.err.startswith("apcore-a2a: ")
    assert done.err.count("\n") == 1
    assert SECRET not in done.err


@pytest.mark.database
def test_who_may_not_read_the_tables_is_told(server: Database, do: Command) -> None:
    kept = Tables(server)
    with_store(kept.address, fill)
    kept.sql("DROP ROLE IF EXISTS other", "CREATE ROLE other LOGIN")
    done = do("store", "check", "--store", server.url.replace("agent@", "other@"))

    assert (done.code, done.out) == (2, "")
    assert "permission denied" in done.err


@pytest.mark.parametrize(
    ("module", "address", "told"),
    [
        ("asyncpg", "postgresql://a@127.0.0.1/b", "pip install 'apcore-a2a[postgres]'"),
        ("filelock", "sqlite:///agent.db", "pip install 'apcore-a2a[sqlite]'"),
        ("apcore_a2a_server", "sqlite:///agent.db", "pip install 'apcore-a2a[server]'"),
    ],
)
def test_what_is_missing_is_told_with_how_to_install_it(
    module: str, address: str, told: str
) -> None:
    code = (
        f"import sys; sys.modules[{module!r}] = None; from apcore_a2a.command.main import main;"
        f"sys.exit(main(['store', 'check', '--store', {address!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(f"{told}\n")
    assert done.stderr.count("\n") == 1


# On a terminal


@pytest.mark.database
@pytest.mark.process
def test_the_progress_is_shown_and_an_interrupt_ends_it(
    server: Database, tmp_path: Path, do: Command
) -> None:
    kept = Tables(server)
    with_store(kept.address, fill)
    holder = [sys.executable, "-c", HOLD, kept.address]
    with subprocess.Popen(holder, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with screen(tmp_path, "store", "check", "--store", kept.address) as shown:
            shown.wait_for("checking  0 s")
            shown.wait_for("checking  1 s")
            shown.interrupt()
            assert shown.end() == 130
        other.communicate()

    assert "Traceback" not in shown.text
    assert checked(do, kept).code == 0


HOLD = """
import asyncio, asyncpg, sys

async def main():
    connection = await asyncpg.connect(sys.argv[1])
    async with connection.transaction():
        await connection.execute("LOCK TABLE apcore_a2a.tasks IN ACCESS EXCLUSIVE MODE")
        print("held", flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


@pytest.mark.process
def test_a_report_is_read_on_a_terminal(full: File | Tables, tmp_path: Path) -> None:
    with screen(tmp_path, "store", "check", "--store", full.address) as shown:
        assert shown.end() == 0

    assert re.search(r" \w+  0 s", plain(shown.text))
    assert "All is well" in plain(shown.text)


def test_the_command_is_in_the_help_of_all(do: Command) -> None:
    assert re.search(r"^ +store +Migrate, check or prune", do("--help").out, re.MULTILINE)


@pytest.mark.parametrize("action", ["migrate", "check", "prune"])
def test_the_help_fits_a_terminal_and_names_the_exit_codes(action: str, do: Command) -> None:
    done = do("store", action, "--help")

    assert (done.code, done.err) == (0, "")
    assert max(map(len, done.out.splitlines())) <= 80
    words = " ".join(done.out.split())
    for code in ("0 done", "1 the check", "2 wrong", "130 inter"):
        assert code in words


@pytest.mark.process
@pytest.mark.smoke
def test_the_code_tells_of_faults_also_to_who_does_not_read_them(tmp_path: Path) -> None:
    kept = File(tmp_path)
    with_store(kept.address, end_many)
    kept.sql("DROP TABLE sends")
    command = [*COMMAND, "store", "check", "--store", kept.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as check:
        assert check.stdout is not None
        assert check.stderr is not None
        check.stdout.close()
        assert check.stderr.read() == b""
        assert check.wait(PATIENCE) == 1


@pytest.mark.process
def test_a_report_is_printed_in_any_encoding(tmp_path: Path) -> None:
    kept = File(tmp_path)
    kept.sql("CREATE TABLE f\u00fcr (x INTEGER)", "INSERT INTO f\u00fcr VALUES (1)")
    kept.sql(
        "PRAGMA user_version = 1",
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_schema SET sql = replace(sql, 'INTEGER', 'TEXT')",
    )
    done = run(["store", "check", "--store", kept.address], tmp_path, {"PYTHONIOENCODING": "ascii"})

    assert (done.returncode, done.stderr) == (1, "")
    assert r"value in f\xfcr.x" in done.stdout
