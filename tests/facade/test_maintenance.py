"""`apcore-a2a store`: migrate, check and prune stores."""

import asyncio
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from importlib import import_module
from pathlib import Path

import pytest
from apcore_a2a.command.options import NAMESPACE
from apcore_a2a_core.data import TaskPushNotificationConfig
from apcore_a2a_core.states import COMPLETED, INPUT_REQUIRED
from apcore_a2a_server.store import SendKey, Store, Webhook, open_store
from apcore_a2a_server.store.sqlite.schema import MIGRATIONS
from apcore_a2a_server.store.testing.samples import begun, chunk_change, new_record, state_change
from apcore_a2a_server.store.testing.webhook_checks import settle_all

from tests.store.conftest import server as server
from tests.store.disks import read_only
from tests.store.postgresql import Database
from tests.store.replicas import check_log, replica

from .processes import COMMAND, PATIENCE, run
from .remote import Cli, Outcome, plain, screen
from .remote import _clean_environment as _clean_environment
from .remote import cli as cli

INSERT = (
    "INSERT INTO {}outbox (task_id, config_id, version, owner, host, body, since, due, failure)"
    " VALUES ('{}', 'c', 9, {body}, 'a.example', {body}, {since}, {}, 'gone')"
)


class FileStore:
    """An SQLite store, and SQL to change it directly."""

    since = "1e12"
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


class DatabaseStore:
    """A PostgreSQL store, and SQL to change it directly."""

    since = "clock_timestamp()"
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


AnyStore = FileStore | DatabaseStore
ACTIONS = ("migrate", "check", "prune")


@pytest.fixture(params=["file", pytest.param("database", marks=pytest.mark.database)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> AnyStore:
    """Return a store of each kind, which has no tables yet."""
    if request.param == "file":
        return FileStore(tmp_path)
    return DatabaseStore(request.getfixturevalue("server"))


@pytest.fixture
def filled_store(store: AnyStore) -> AnyStore:
    """Fill a store with a completed, a running and a paused task."""
    with_store(store.address, fill)
    return store


def insert_notification(store: AnyStore, task_id: str, due: str) -> str:
    """Return the SQL that adds a notification, or a dead letter if *due* is NULL."""
    return INSERT.format(store.prefix, task_id, due, body=store.blob(b"n"), since=store.since)


def with_store(address: str, action: Callable[[Store], Awaitable[None]]) -> None:
    async def main() -> None:
        store = open_store(address)
        await store.start()
        try:
            await action(store)
        finally:
            await store.close()

    asyncio.run(main())


async def fill(store: Store) -> None:
    webhook = Webhook(TaskPushNotificationConfig(id="c", url="https://a.example"))
    record, lease = await begun(store, new_record("done"), [webhook], SendKey("k", b"digest"))
    chunk = chunk_change(record, "so far", lease)
    await store.change(chunk)
    await store.change(state_change(chunk.record, COMPLETED, lease))
    await settle_all(store)
    await begun(store, new_record("runs", context_id="c2"))
    record, lease = await begun(store, new_record("asks", context_id="c3"))
    await store.change(state_change(record, INPUT_REQUIRED, lease))


async def add_completed_tasks(store: Store, count: int = 50) -> None:
    for number in range(count):
        record, lease = await begun(store, new_record(f"t{number:02}", context_id=f"c{number}"))
        await store.change(state_change(record, COMPLETED, lease))


def check(cli: Cli, store: AnyStore, *options: str) -> Outcome:
    return cli("store", "check", "--store", store.address, *options)


# check


@pytest.mark.smoke
def test_a_report_counts_tasks_by_state(filled_store: AnyStore, cli: Cli) -> None:
    outcome = check(cli, filled_store)

    assert (outcome.code, outcome.err) == (0, "")
    lines = [line.split(maxsplit=1) for line in outcome.out.splitlines()]
    assert ["tasks", "3: 1 working, 1 completed, 1 input-required"] in lines
    assert outcome.out.endswith("No faults found\n")


def test_a_report_is_printed_as_json(filled_store: AnyStore, cli: Cli) -> None:
    outcome = check(cli, filled_store, "--json")

    assert outcome.code == 0
    assert outcome.json["tasks"] == {"working": 1, "completed": 1, "input-required": 1}
    assert (outcome.json["dead_letters"], outcome.json["faults"]) == (0, [])


def test_dead_letters_are_counted_but_are_not_faults(filled_store: AnyStore, cli: Cli) -> None:
    filled_store.sql(insert_notification(filled_store, "runs", "NULL"))
    outcome = check(cli, filled_store)

    assert outcome.code == 0
    assert ["dead", "letters", "1"] in [line.split() for line in outcome.out.splitlines()]


def test_missing_tables_and_indexes_are_faults(filled_store: AnyStore, cli: Cli) -> None:
    index = filled_store.index
    filled_store.sql(f"DROP INDEX {index}", "DROP TABLE sends")
    faults = [f"index {index} is missing", "table sends is missing"]
    report = check(cli, filled_store, "--json")
    assert report.code == 1
    assert set(faults) <= set(report.json["faults"])
    assert report.json["tasks"] == {}

    outcome = check(cli, filled_store)
    assert outcome.code == 1
    count = len(report.json["faults"])
    assert f"\n\n{count} faults:\n" in outcome.out
    for fault in faults:
        assert f"  {fault}\n" in outcome.out


def test_a_damaged_file_is_a_fault(tmp_path: Path, cli: Cli) -> None:
    store = FileStore(tmp_path)
    with_store(store.address, add_completed_tasks)
    with store.path.open("r+b") as file:
        file.seek(5 * 4096)
        file.write(b"\xff" * 4096)
    outcome = check(cli, store)

    assert outcome.code == 1
    assert "\n  the file is damaged: " in outcome.out
    assert "tasks   " not in outcome.out


@pytest.mark.process
def test_a_check_does_not_affect_a_running_agent(store: AnyStore, tmp_path: Path, cli: Cli) -> None:
    with replica(tmp_path, store.address) as agent:
        with agent.stream("steps", seconds=0.05, steps=20) as events:
            task_id = next(events)[1]["task"]["id"]
            for _ in range(5):
                again_id = agent.start("again", seconds=0)
                assert check(cli, store).code == 0
                next(events)
                assert agent.wait_for_end(again_id) == ["completed"]
            versions = [number for number, _ in events]
        assert agent.wait_for_end(task_id) == ["completed"]
        check_log(agent.events(task_id))
        assert versions[-1] == len(agent.events(task_id))
        assert check(cli, store).code == 0
        assert "WARNING" not in agent.process.log.partition("Press Ctrl+C to stop")[2]


# prune --principal


def test_all_tasks_of_a_principal_are_deleted(filled_store: AnyStore, cli: Cli) -> None:
    async def add_others(store: Store) -> None:
        for owner in ("bob", "%tenant|tea|ada", "%tenant|tea|x|ada"):
            await begun(store, new_record(f"task of {owner}", owner, f"context of {owner}"))

    with_store(filled_store.address, add_others)
    options = ["store", "prune", "--store", filled_store.address, "--principal"]
    outcome = cli(*options, "ada")
    assert (outcome.code, outcome.err, outcome.out) == (0, "", "4 tasks of ada deleted\n")
    assert check(cli, filled_store, "--json").json["tasks"] == {"working": 2}
    assert cli(*options, "ada").out == "0 tasks of ada deleted\n"
    assert cli(*options, "bob").out == "1 task of bob deleted\n"
    assert cli(*options, "").out == "0 tasks of anonymous callers deleted\n"
    assert check(cli, filled_store, "--json").json["tasks"] == {"working": 1}


# Interrupted transactions and read-only files


KILLED_PROGRAM = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN IMMEDIATE")
connection.execute("CREATE TABLE tasks (body BLOB)")
for _ in range(200):
    connection.execute("INSERT INTO tasks VALUES (zeroblob(500))")
os.kill(os.getpid(), signal.SIGKILL)
"""


def kill_in_a_transaction(path: Path) -> None:
    """Kill a process while it creates tables, so that it leaves its journal beside the file."""
    outcome = subprocess.run([sys.executable, "-c", KILLED_PROGRAM, path], check=False)
    assert outcome.returncode == -signal.SIGKILL
    assert path.with_name("agent.db-journal").stat().st_size > 0
    assert path.stat().st_size > 0


@pytest.mark.parametrize("action", ["check", "migrate", "prune"])
def test_an_interrupted_creation_of_tables_is_undone(action: str, tmp_path: Path, cli: Cli) -> None:
    store = FileStore(tmp_path)
    kill_in_a_transaction(store.path)
    outcome = cli("store", action, "--store", store.address)

    if action == "migrate":
        assert (outcome.code, outcome.err) == (0, "")
        assert outcome.out.startswith("The tables were created (version ")
        assert check(cli, store).code == 0
    else:
        assert (outcome.code, outcome.out) == (2, "")
        assert (
            outcome.err == "apcore-a2a: The store has no tables yet: run apcore-a2a store migrate\n"
        )


def test_a_read_only_file_can_be_checked(tmp_path: Path, cli: Cli) -> None:
    store = FileStore(tmp_path)
    with_store(store.address, fill)
    store.path.chmod(0o400)
    before = store.path.read_bytes()
    assert check(cli, store).code == 0
    try:
        with read_only(tmp_path):
            outcome = check(cli, store)
    except PermissionError as error:
        pytest.skip(f"Can't mount a folder to be read only: {error}")
    assert (outcome.code, outcome.err) == (0, "")
    assert "3: 1 working, 1 completed, 1 input-required" in outcome.out
    assert store.path.read_bytes() == before


def test_a_file_that_needs_recovery_is_refused_in_a_read_only_folder(
    tmp_path: Path, cli: Cli
) -> None:
    store = FileStore(tmp_path)
    kill_in_a_transaction(store.path)
    try:
        with read_only(tmp_path):
            outcomes = [cli("store", action, "--store", store.address) for action in ACTIONS]
    except PermissionError as error:
        pytest.skip(f"Can't mount a folder to be read only: {error}")
    for outcome in outcomes:
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err.startswith(f"apcore-a2a: {store.path} can't be read: ")
        assert "as a user who may write" in outcome.err
        assert outcome.err.count("\n") == 1


@pytest.mark.process
def test_a_check_keeps_the_write_ahead_log_of_a_killed_agent(tmp_path: Path, cli: Cli) -> None:
    store = FileStore(tmp_path)
    with replica(tmp_path, store.address) as agent:
        completed_id = agent.start("again", seconds=0)
        agent.wait_for_end(completed_id)
        agent.process.signal(signal.SIGKILL)
        agent.process.end()
    try:
        with read_only(tmp_path):
            assert "1 completed" in check(cli, store).out
            assert cli("store", "migrate", "--store", store.address).code == 0
    except PermissionError as error:
        pytest.skip(f"Can't mount a folder to be read only: {error}")
    assert "1 completed" in check(cli, store).out
    with replica(tmp_path, store.address) as agent:
        assert agent.state(completed_id) == "completed"


# migrate


def test_migrate_creates_the_tables_once(store: AnyStore, cli: Cli) -> None:
    if isinstance(store, FileStore):
        store.path.touch()
    outcome = check(cli, store)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == "apcore-a2a: The store has no tables yet: run apcore-a2a store migrate\n"

    created, repeated = (cli("store", "migrate", "--store", store.address) for _ in range(2))
    assert (created.code, repeated.code) == (0, 0)
    version = check(cli, store, "--json").json["version"]
    assert created.out == f"The tables were created (version {version})\n"
    assert repeated.out == f"The tables are up to date (version {version})\n"


def test_older_tables_are_reported_and_migrated(
    filled_store: AnyStore, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = (
        f"apcore_a2a_server.store.{'sqlite' if isinstance(filled_store, FileStore) else 'postgres'}"
    )
    migrations = import_module(f"{package}.schema").MIGRATIONS
    old, new = len(migrations), len(migrations) + 1
    more_migrations = (*migrations, f"CREATE TABLE {filled_store.prefix}later (number INTEGER)")
    monkeypatch.setattr(f"{package}.schema.MIGRATIONS", more_migrations)

    message = f"have version {old}, but this package supports {new}: run apcore-a2a store migrate\n"
    for action in ("check", "prune"):
        refused = cli("store", action, "--store", filled_store.address)
        assert refused.code == 2
        assert refused.err.endswith(message)
    migrated = cli("store", "migrate", "--store", filled_store.address)
    assert migrated.out == f"The tables were upgraded from version {old} to version {new}\n"
    filled_store.sql("INSERT INTO later VALUES (1)")
    assert check(cli, filled_store, "--json").json["version"] == new


@pytest.mark.parametrize("action", ["migrate", "check", "prune"])
def test_newer_tables_are_refused(action: str, filled_store: AnyStore, cli: Cli) -> None:
    newer = "PRAGMA user_version = 99"
    if isinstance(filled_store, DatabaseStore):
        newer = "INSERT INTO migrations VALUES (99)"
    filled_store.sql(newer)
    outcome = cli("store", action, "--store", filled_store.address)

    assert (outcome.code, outcome.out) == (2, "")
    assert "tables have version 99" in outcome.err
    assert "update apcore-a2a-server" in outcome.err


@pytest.mark.process
def test_current_tables_can_be_migrated_while_an_agent_runs(
    store: AnyStore, tmp_path: Path, cli: Cli
) -> None:
    with replica(tmp_path, store.address) as agent:
        agent.start("asks")
        outcome = cli("store", "migrate", "--store", store.address)

    assert outcome.code == 0
    assert "up to date" in outcome.out


# prune


def test_old_tasks_are_pruned_with_their_data(filled_store: AnyStore, cli: Cli) -> None:
    unchanged = cli("store", "prune", "--store", filled_store.address)
    assert (unchanged.code, unchanged.out) == (
        0,
        "0 tasks dropped (task_ttl 3600 s, max_tasks 10000)\n",
    )
    time.sleep(0.01)  # longer than the time to live below
    outcome = cli("store", "prune", "--store", filled_store.address, "--task-ttl", "0.001")
    assert (outcome.code, outcome.out) == (
        0,
        "1 task dropped (task_ttl 0.001 s, max_tasks 10000)\n",
    )

    remaining = check(cli, filled_store, "--json")
    assert remaining.code == 0
    assert remaining.json["tasks"] == {"working": 1, "input-required": 1}


def test_pruning_keeps_only_max_tasks(store: AnyStore, cli: Cli) -> None:
    with_store(store.address, add_completed_tasks)
    outcome = cli("store", "prune", "--store", store.address, "--max-tasks", "20")

    assert outcome.out.startswith("30 tasks dropped ")
    assert check(cli, store, "--json").json["tasks"] == {"completed": 20}


@pytest.mark.process
def test_a_file_in_use_is_not_pruned(tmp_path: Path, cli: Cli) -> None:
    store = FileStore(tmp_path)
    with replica(tmp_path, store.address) as agent:
        agent.start("asks")
        outcome = cli("store", "prune", "--store", store.address)

    assert (outcome.code, outcome.out) == (2, "")
    assert "is in use by another process" in outcome.err


@pytest.mark.database
@pytest.mark.process
def test_a_database_in_use_is_pruned(server: Database, tmp_path: Path, cli: Cli) -> None:
    store = DatabaseStore(server)
    with replica(tmp_path, store.address) as agent:
        agent.wait_for_end(*(agent.start("again", seconds=0) for _ in range(3)))
        running_id = agent.start("once", seconds=0.5)
        outcome = cli("store", "prune", "--store", store.address, "--max-tasks", "1")
        assert agent.wait_for_end(running_id) == ["completed"]

    assert outcome.out.startswith("2 tasks dropped ")


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--task-ttl", "0", "--task-ttl must be greater than 0"),
        ("--task-ttl", "nan", "--task-ttl must be greater than 0"),
        ("--task-ttl", "soon", "--task-ttl takes a number, not 'soon'"),
        ("--max-tasks", "0", "--max-tasks must be a whole number, 1 or more"),
        ("--max-tasks", "1.5", "--max-tasks takes a whole number, not '1.5'"),
    ],
)
def test_an_invalid_limit_is_refused(
    option: str, value: str, message: str, filled_store: AnyStore, cli: Cli
) -> None:
    outcome = cli("store", "prune", "--store", filled_store.address, option, value)

    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err
    assert check(cli, filled_store, "--json").json["tasks"]["completed"] == 1


# Addresses and unusable stores


def test_the_store_and_its_limits_can_be_set_as_for_serve(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(tmp_path)
    with_store(store.address, add_completed_tasks)
    settings = {NAMESPACE: {"store": store.address, "max-tasks": 40}}
    (tmp_path / "mine.yaml").write_text(json.dumps({"apcore": {}, **settings}))
    assert cli("store", "prune", "--config", "mine.yaml").out.startswith("10 tasks dropped ")
    monkeypatch.setenv("APCORE_A2A_CONFIG", "mine.yaml")
    monkeypatch.setenv("APCORE_A2A_MAX_TASKS", "30")
    assert cli("store", "prune").out.startswith("10 tasks dropped ")
    monkeypatch.setenv("APCORE_A2A_STORE", f"sqlite:///{tmp_path / 'other.db'}")
    assert cli("store", "check").err == f"apcore-a2a: There is no file {tmp_path / 'other.db'}\n"
    assert check(cli, store).code == 0


WRONG_STORE_OPTIONS: dict[str, tuple[list[str], str]] = {
    "no store": ([], "--store URL or APCORE_A2A_STORE"),
    "memory": (["--store", "memory"], "Tasks in memory can't be maintained"),
    "not an address": (["--store", "agent.db"], "The store must be"),
    "an unknown option": (["--stroe", "sqlite:///agent.db"], "--store"),
}


@pytest.mark.parametrize("action", ["migrate", "check", "prune"])
@pytest.mark.parametrize("case", WRONG_STORE_OPTIONS)
def test_a_missing_or_invalid_store_is_explained(case: str, action: str, cli: Cli) -> None:
    options, message = WRONG_STORE_OPTIONS[case]
    outcome = cli("store", action, *options)

    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err
    assert os.listdir() == []


@pytest.mark.parametrize("action", ["check", "prune"])
def test_a_missing_file_is_not_created(action: str, tmp_path: Path, cli: Cli) -> None:
    outcome = cli("store", action, "--store", "sqlite:///agent.db")

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == "apcore-a2a: There is no file agent.db\n"
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("action", ["migrate", "check", "prune"])
def test_a_file_that_is_not_a_database_is_reported_and_not_changed(
    action: str, tmp_path: Path, cli: Cli
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("These are not tasks.")
    folder = cli("store", action, "--store", "sqlite:///folder")
    text = cli("store", action, "--store", "sqlite:///text")

    assert (folder.code, folder.err) == (2, "apcore-a2a: folder is not a file\n")
    assert (text.code, text.err) == (2, "apcore-a2a: text can't be read: file is not a database\n")
    assert (tmp_path / "text").read_text() == "These are not tasks."


def test_a_file_of_another_program_is_reported(tmp_path: Path, cli: Cli) -> None:
    store = FileStore(tmp_path)
    store.sql("CREATE TABLE songs (name)", f"PRAGMA user_version = {len(MIGRATIONS)}")
    outcome = check(cli, store)

    assert (outcome.code, outcome.err) == (1, "")
    assert "  table tasks is missing\n" in outcome.out


SECRET = "s3cr3t"


@pytest.mark.database
@pytest.mark.parametrize("action", ["migrate", "check", "prune"])
@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("postgresql://agent:{}@127.0.0.1:1/postgres", "Connect call failed"),
        ("postgresql://agent:{}@nowhere.invalid/postgres", "not known"),
        ("postgresql://agent:{}/more@127.0.0.1/postgres", "address is not a valid"),
        ("postgresql://agent:{}@127.0.0.1:{port}/missing", '"missing" does not exist'),
        ("postgresql://locked:{}@127.0.0.1:{port}/postgres", "password authentication failed"),
        ("postgresql:/agent:{}@127.0.0.1/postgres", "The store must be"),
    ],
)
def test_an_unusable_database_is_reported_in_one_line_without_the_password(
    address: str, message: str, action: str, server: Database, cli: Cli
) -> None:
    server.clear()
    if "locked" in address:
        server.sql("DROP ROLE IF EXISTS locked", "CREATE ROLE locked LOGIN PASSWORD 'another'")
        server.ask_for_passwords("locked")
    outcome = cli("store", action, "--store", address.format(SECRET, port=server.port))

    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err
    assert outcome.err.startswith("apcore-a2a: ")
    assert outcome.err.count("\n") == 1
    assert SECRET not in outcome.err


@pytest.mark.database
def test_missing_permissions_are_reported(server: Database, cli: Cli) -> None:
    store = DatabaseStore(server)
    with_store(store.address, fill)
    store.sql("DROP ROLE IF EXISTS other", "CREATE ROLE other LOGIN")
    outcome = cli("store", "check", "--store", server.url.replace("agent@", "other@"))

    assert (outcome.code, outcome.out) == (2, "")
    assert "permission denied" in outcome.err


@pytest.mark.parametrize(
    ("module", "address", "message"),
    [
        ("asyncpg", "postgresql://a@127.0.0.1/b", "pip install 'apcore-a2a[postgres]'"),
        ("filelock", "sqlite:///agent.db", "pip install 'apcore-a2a[sqlite]'"),
        ("apcore_a2a_server", "sqlite:///agent.db", "pip install 'apcore-a2a[server]'"),
    ],
)
def test_the_error_for_a_missing_package_says_how_to_install_it(
    module: str, address: str, message: str
) -> None:
    code = (
        f"import sys; sys.modules[{module!r}] = None; from apcore_a2a.command.main import main;"
        f"sys.exit(main(['store', 'check', '--store', {address!r}]))"
    )
    outcome = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )

    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert outcome.stderr.endswith(f"{message}\n")
    assert outcome.stderr.count("\n") == 1


# On a terminal


@pytest.mark.database
@pytest.mark.process
def test_the_progress_is_shown_and_an_interrupt_stops_the_check(
    server: Database, tmp_path: Path, cli: Cli
) -> None:
    store = DatabaseStore(server)
    with_store(store.address, fill)
    command = [sys.executable, "-c", LOCK_TABLE, store.address]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with screen(tmp_path, "store", "check", "--store", store.address) as terminal:
            terminal.wait_for("checking ")
            terminal.wait_for(r"checking .*0:00:01")
            terminal.interrupt()
            assert terminal.end() == 130
        holder.communicate()

    assert "Traceback" not in terminal.text
    assert check(cli, store).code == 0


LOCK_TABLE = """
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
def test_a_report_is_shown_on_a_terminal(filled_store: AnyStore, tmp_path: Path) -> None:
    with screen(tmp_path, "store", "check", "--store", filled_store.address) as terminal:
        assert terminal.end() == 0

    assert re.search(r" \w+ 0:00:0\d", plain(terminal.text))
    assert "No faults found" in plain(terminal.text)


def test_the_main_help_lists_store(cli: Cli) -> None:
    assert re.search(r"^ +store +Migrate, check or prune", cli("--help").out, re.MULTILINE)


@pytest.mark.parametrize("action", ["migrate", "check", "prune"])
def test_the_help_fits_a_terminal_and_names_the_exit_codes(action: str, cli: Cli) -> None:
    outcome = cli("store", action, "--help")

    assert (outcome.code, outcome.err) == (0, "")
    assert max(map(len, outcome.out.splitlines())) <= 80
    words = " ".join(outcome.out.split())
    for code in ("0 success", "1 `store check`", "2 wrong", "130 inter"):
        assert code in words


@pytest.mark.process
@pytest.mark.smoke
def test_a_closed_pipe_does_not_change_the_exit_code(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    with_store(store.address, add_completed_tasks)
    store.sql("DROP TABLE sends")
    command = [*COMMAND, "store", "check", "--store", store.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as check:
        assert check.stdout is not None
        assert check.stderr is not None
        check.stdout.close()
        assert check.stderr.read() == b""
        assert check.wait(PATIENCE) == 1


@pytest.mark.process
def test_a_report_is_printed_in_ascii_with_escapes(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    store.sql("CREATE TABLE f\u00fcr (x INTEGER)", "INSERT INTO f\u00fcr VALUES (1)")
    store.sql(
        f"PRAGMA user_version = {len(MIGRATIONS)}",
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_schema SET sql = replace(sql, 'INTEGER', 'TEXT')",
    )
    outcome = run(
        ["store", "check", "--store", store.address], tmp_path, {"PYTHONIOENCODING": "ascii"}
    )

    assert (outcome.returncode, outcome.stderr) == (1, "")
    assert r"value in f\xfcr.x" in outcome.stdout
