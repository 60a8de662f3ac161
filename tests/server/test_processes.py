"""CPU-bound modules run in processes of their own."""

import asyncio
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from apcore import InvalidInputError, ModuleError
from apcore_a2a_server.modules import processes
from pydantic import BaseModel

from tests.facade.processes import agent_client, process, serve_command
from tests.serving import PATIENCE

from .inloop import (
    ActionModule,
    Peer,
    SyncActionModule,
    contents,
    serving,
    wait_until,
)
from .inloop import anyio_backend as anyio_backend
from .modules import Inputs, Module
from .principals import HeaderAuth, acting_as

pytestmark = [pytest.mark.anyio, pytest.mark.process]


class ComputingModule(Module):
    """A module that carries out the action in its input, and returns the id of its process."""

    resources: Any = {"cpu": True}  # noqa: RUF012  # instances have their own

    def __init__(self, path: Path | None = None, **resources: Any) -> None:
        self.path = path
        self.resources = {**self.resources, **resources}

    def execute(self, inputs: Inputs, context: Any) -> Inputs:
        action: Callable[[Inputs, Any], Any] = ACTIONS[inputs["do"]]
        return {"process": os.getpid(), "value": action({**inputs, "path": self.path}, context)}


def spin(inputs: Inputs, context: Any) -> None:
    """Write the id of the process to a file, and compute until it is killed."""
    Path(inputs["path"]).write_text(str(os.getpid()))
    while True:
        pass


def start_program(inputs: Inputs, context: Any) -> None:
    """Run a program that writes the id of its process to a file, and wait for its end."""
    command = ["sh", "-c", f"echo $$ > {inputs['path']}; sleep 60"]
    subprocess.run(command, check=True)


def refuse(inputs: Inputs, context: Any) -> None:
    raise InvalidInputError("n is odd")


def ask(inputs: Inputs, context: Any) -> None:
    raise ModuleError("INPUT_REQUIRED", "Which color?", {"data": {"colors": ["red", "blue"]}})


class TwoArgumentError(Exception):
    """An error whose constructor takes more than a message."""

    def __init__(self, one: object, two: object) -> None:
        super().__init__(one)


def crash(inputs: Inputs, context: Any) -> None:
    raise TwoArgumentError(object(), "hunter2")


def append_name(inputs: Inputs, context: Any) -> None:
    """Add a name to the file."""
    with Path(inputs["path"]).open("a") as file:
        file.write(f"{inputs['name']}\n")


def append_name_and_wait(inputs: Inputs, context: Any) -> None:
    """Add a name to the file, and wait until the test calls `release`."""
    append_name(inputs, context)
    while not Path(f"{inputs['path']}.go").exists():
        time.sleep(0.01)


def read_context(inputs: Inputs, context: Any) -> Any:
    context.cancel_token.check()
    names = ("ext.a2a.task_id", "ext.a2a.context_id", "ext.a2a.history", "ext.a2a.parts")
    return {name: context.data[name] for name in names} | {"services": context.services}


ACTIONS: dict[str, Callable[[Inputs, Any], Any]] = {
    "return": lambda inputs, context: inputs["value"],
    "spin": spin,
    "start": start_program,
    "refuse": refuse,
    "ask": ask,
    "crash": crash,
    "note": append_name,
    "note and wait": append_name_and_wait,
    "read context": read_context,
    "fork": lambda inputs, context: os.fork() and None,
    "exit": lambda inputs, context: os._exit(3),
    "die": lambda inputs, context: os.kill(os.getpid(), signal.SIGKILL),
    "die of a signal without a name": lambda inputs, context: os.kill(os.getpid(), 40),
    "return a function": lambda inputs, context: lambda: None,
}


def part(peer: Peer, do: str, **inputs: Any) -> Any:
    return peer.wire.part(data={"do": do, **inputs})


async def output(peer: Peer, do: str, **inputs: Any) -> Any:
    answer = await peer.send("work", part(peer, do, **inputs))
    assert answer.state == "completed", answer.body
    return answer.task["artifacts"][0]["parts"][0]["data"]


async def failure(peer: Peer, do: str) -> str:
    answer = await peer.send("work", part(peer, do))
    assert answer.state == "failed", answer.body
    text: str = answer.task["status"]["message"]["parts"][0]["text"]
    return text


def is_running(process_id: int) -> bool:
    """Return whether a process is running and not a zombie."""
    try:
        return ") Z " not in Path(f"/proc/{process_id}/stat").read_text()
    except FileNotFoundError:
        return False


def read_process_id(path: Path) -> int:
    """Return the process id in a file, or 0."""
    return int(path.read_text() or 0) if path.exists() else 0


async def wait_for_process_id(path: Path) -> int:
    await wait_until(lambda: read_process_id(path))
    return read_process_id(path)


@pytest.mark.smoke
async def test_a_module_that_computes_runs_in_a_process_that_is_kept_until_shutdown() -> None:
    async with serving({"work": ComputingModule()}) as peer:
        value = {"text": "é" * 100_000, "number": 2**50, "none": None}
        first = await output(peer, "return", value=value)
        second = await output(peer, "return", value=[])
        assert (first["value"], second["value"]) == (value, [])
        assert first["process"] == second["process"] != os.getpid()
        assert is_running(int(first["process"]))
    assert not is_running(int(first["process"]))


class Action(BaseModel):
    do: str
    value: Any = None


@pytest.mark.parametrize("schema", [Action, Action.model_json_schema()], ids=["model", "JSON"])
async def test_a_module_with_a_schema_runs_in_a_process_that_is_kept(schema: Any) -> None:
    module = ComputingModule()
    vars(module)["input_schema"] = schema
    async with serving({"work": module}) as peer:
        first, second = [await output(peer, "return", value=1) for _ in range(2)]
        assert first["process"] == second["process"] != os.getpid()


async def test_after_a_module_has_forked_later_calls_get_their_own_output() -> None:
    async with serving({"work": ComputingModule()}) as peer:
        for value in range(4):
            await peer.send("work", part(peer, "fork"))
            assert (await output(peer, "return", value=value))["value"] == value


@pytest.mark.smoke
async def test_a_module_in_a_process_sees_the_conversation_but_no_services() -> None:
    async with serving({"work": ComputingModule()}) as peer:
        answer = await peer.send("work", part(peer, "read context"), peer.wire.part(text="more"))
        context = answer.task["artifacts"][0]["parts"][0]["data"]["value"]
        assert context["ext.a2a.task_id"] == answer.task["id"]
        assert context["ext.a2a.context_id"] == answer.task["contextId"]
        assert context["ext.a2a.parts"][0]["text"] == "more"
        assert context["services"] is None


@pytest.mark.smoke
async def test_a_cancel_ends_the_process(tmp_path: Path) -> None:
    path = tmp_path / "id"
    async with serving({"work": ComputingModule(path)}) as peer:
        task_id = await peer.start("work", part(peer, "spin"))
        process_id = await wait_for_process_id(path)
        await peer.ask("cancel", {"id": task_id})
        await wait_until(lambda: not is_running(process_id))
        assert await output(peer, "return", value=1)


async def test_a_cancel_ends_programs_that_the_module_has_started(tmp_path: Path) -> None:
    path = tmp_path / "id"
    async with serving({"work": ComputingModule(path)}) as peer:
        task_id = await peer.start("work", part(peer, "start"))
        process_id = await wait_for_process_id(path)
        await peer.ask("cancel", {"id": task_id})
        await wait_until(lambda: not is_running(process_id))


async def test_a_timeout_ends_the_process(tmp_path: Path) -> None:
    path = tmp_path / "id"
    async with serving({"work": ComputingModule(path, cpu=1, timeout=1500)}) as peer:
        answer = await peer.send("work", part(peer, "spin"))
        assert answer.task["status"]["message"]["parts"][0]["text"] == "Execution timed out"
        assert not read_process_id(path) or not is_running(read_process_id(path))


@pytest.mark.parametrize(
    ("do", "reason"),
    [
        pytest.param("exit", "exited with 3", marks=pytest.mark.smoke),
        ("die", "was ended by SIGKILL"),
        ("die of a signal without a name", "was ended by signal 40"),
    ],
)
async def test_a_process_that_ends_fails_only_its_task(
    do: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving({"work": ComputingModule()}) as peer:
        assert await failure(peer, do) == "The process of the skill ended unexpectedly"
        assert await output(peer, "return", value=1)
    assert any(
        reason in str(record.exc_info) or reason in record.message for record in caplog.records
    )


@pytest.mark.smoke
async def test_errors_in_a_process_are_reported_like_errors_in_the_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving({"work": ComputingModule()}) as peer:
        assert await failure(peer, "refuse") == "Invalid input: n is odd"
        for do in ("crash", "return a function"):
            assert await failure(peer, do) == "Internal error"
        paused = await peer.send("work", part(peer, "ask"))
        assert paused.state == "input-required"
        assert "Which color?" in str(paused.body)
        assert "blue" in str(paused.body)
        await peer.send("work", part(peer, "return", value=1), taskId=paused.task["id"])
        await peer.until(paused.task["id"], "completed")
    assert "in crash" in caplog.text  # the traceback of the process


async def test_one_client_runs_no_more_modules_at_a_time_than_there_are_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "count_cores", lambda: 1)
    path = tmp_path / "id"
    async with serving({"work": ComputingModule(path)}) as peer:
        first = await peer.start("work", part(peer, "spin"))
        await wait_for_process_id(path)
        second = await peer.start("work", part(peer, "return", value=1))
        await asyncio.sleep(0.3)
        assert await peer.state(second) == "working"
        await peer.ask("cancel", {"id": first})
        await peer.until(second, "completed")


async def test_a_call_canceled_before_its_process_runs_does_not_disturb_later_ones() -> None:
    async with serving({"work": ComputingModule()}) as peer:
        for _ in range(3):
            task_id = await peer.start("work", part(peer, "return", value=1))
            await peer.ask("cancel", {"id": task_id})
        assert await output(peer, "return", value=1)


async def test_no_more_processes_than_cores_are_kept_of_calls_canceled_before_they_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_start, start = threading.Event(), processes._start
    attempts: list[int] = []
    started: list[subprocess.Popen[bytes]] = []

    def start_later(descriptor: int) -> "subprocess.Popen[bytes]":
        attempts.append(descriptor)
        may_start.wait(PATIENCE)
        started.append(start(descriptor))
        return started[-1]

    monkeypatch.setattr(processes, "count_cores", lambda: 1)
    monkeypatch.setattr(processes, "_start", start_later)
    async with serving({"work": ComputingModule()}) as peer:
        for _ in range(3):
            attempts.clear()
            task_id = await peer.start("work", part(peer, "return", value=1))
            await wait_until(lambda: attempts)
            await peer.ask("cancel", {"id": task_id})
        may_start.set()
        await wait_until(lambda: len(started) == 3)
        await wait_until(lambda: sum(is_running(worker.pid) for worker in started) == 1)
        assert await output(peer, "return", value=1)
        assert len(started) == 3
    assert not any(is_running(worker.pid) for worker in started)


# Clients


def names_in(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def release(path: Path) -> None:
    Path(f"{path}.go").touch()


@pytest.mark.smoke
async def test_clients_take_turns_at_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "count_cores", lambda: 1)
    path = tmp_path / "names"
    async with (
        serving({"work": ComputingModule(path)}, auth=HeaderAuth()) as peer,
        acting_as(peer, {"x-name": "ada"}) as ada,
        acting_as(peer, {"x-name": "bob"}) as bob,
    ):
        first = await ada.start("work", part(peer, "note and wait", name="ada"))
        await wait_until(lambda: names_in(path))
        ada_tasks = [await ada.start("work", part(peer, "note", name="ada")) for _ in range(4)]
        bob_tasks = [await bob.start("work", part(peer, "note", name="bob")) for _ in range(3)]
        for client, canceled in ((ada, ada_tasks.pop()), (bob, bob_tasks.pop(0))):
            await client.ask("cancel", {"id": canceled})
        release(path)
        for client, task_ids in ((ada, [first, *ada_tasks]), (bob, bob_tasks)):
            for task_id in task_ids:
                await client.until(task_id, "completed")
    assert names_in(path) == ["ada", "ada", "bob", "ada", "bob", "ada"]


async def test_a_client_that_occupies_all_processes_does_not_block_other_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "count_cores", lambda: 2)
    path = tmp_path / "names"
    async with (
        serving({"work": ComputingModule(path)}, auth=HeaderAuth()) as peer,
        acting_as(peer, {"x-name": "ada"}) as ada,
        acting_as(peer, {"x-name": "bob"}) as bob,
    ):
        parts = {name: part(peer, "note and wait", name=name) for name in ("ada", "bob")}
        tasks = [(ada, await ada.start("work", parts["ada"])) for _ in range(3)]
        await wait_until(lambda: names_in(path) == ["ada"] * 2)
        tasks.append((bob, await bob.start("work", parts["bob"])))
        await wait_until(lambda: names_in(path) == ["ada"] * 2 + ["bob"])
        release(path)
        ended = [await client.until(task_id, "completed") for client, task_id in tasks]
        process_ids = {int(task["artifacts"][0]["parts"][0]["data"]["process"]) for task in ended}
        assert len(process_ids) == 3
        await wait_until(lambda: sum(map(is_running, process_ids)) == 2)  # one per core is kept
    assert names_in(path).count("ada") == 3


SQUARES_SOURCE = """
import os
from pydantic import BaseModel

LOADED = []

class Number(BaseModel):
    n: int

class Result(BaseModel):
    n: int
    process: int

class SquareModule:
    description = "Squares a number"
    input_schema = Number
    output_schema = Result
    resources = {"cpu": 1}

    def on_load(self):
        LOADED.append(self)

    def execute(self, inputs, context):
        assert LOADED == [self]
        return {"n": inputs["n"] ** 2, "process": os.getpid()}
"""


async def test_modules_of_a_folder_are_loaded_from_their_files(tmp_path: Path) -> None:
    (tmp_path / "squares.py").write_text(SQUARES_SOURCE)
    async with serving(str(tmp_path)) as peer:
        answer = await peer.send("squares", peer.wire.part(data={"n": 7}))
        data = answer.task["artifacts"][0]["parts"][0]["data"]
        assert data["n"] == 49
        assert data["process"] != os.getpid()


RAISING_SOURCE = SQUARES_SOURCE.replace(
    "LOADED = []",
    """
from enum import Enum
from apcore import ModuleError

class Color(str, Enum):
    RED = "red"

LOADED = []
""",
)


@pytest.mark.parametrize(
    ("error", "state", "text"),
    [
        ("ValueError(Color.RED)", "failed", "Internal error"),
        (
            "ModuleError('INPUT_REQUIRED', 'Which?', {'data': {'colors': [Color.RED]}})",
            "input-required",
            "Which?",
        ),
    ],
)
async def test_an_error_with_values_of_the_modules_own_types_is_reported(
    error: str, state: str, text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = RAISING_SOURCE.replace("        return {", f"        raise {error}\n        return {{")
    (tmp_path / "squares.py").write_text(source)
    async with serving(str(tmp_path)) as peer:
        answer = await peer.send("squares", peer.wire.part(data={"n": 7}))
        assert answer.state == state
        message = answer.task["status"]["message"]
        assert message["parts"][0]["text"] == text
        assert "ModuleProcessError" not in caplog.text


async def test_inputs_that_cannot_be_sent_to_a_process_are_used_in_the_server() -> None:
    async def outer(inputs: Inputs, context: Any) -> Inputs:
        arguments = {"do": "return", "value": lambda: "called"}
        output = await context.executor.call_async("work", arguments, context)
        return {**output, "value": output["value"]()}

    async with serving({"work": ComputingModule(), "outer": ActionModule(outer)}) as peer:
        answer = await peer.send("outer", peer.part(data={}))
        assert contents(answer.task) == [{"process": os.getpid(), "value": "called"}]


async def test_stuck_threads_do_not_keep_modules_out_of_processes() -> None:
    release, started = threading.Event(), threading.Event()

    def hang(inputs: Inputs, context: Any) -> None:
        started.set()
        release.wait(PATIENCE)

    modules = {"hang": SyncActionModule(hang), "work": ComputingModule(), "odd": Unpicklable()}
    async with serving(modules, max_threads=1) as peer:
        try:
            task_id = await peer.start("hang")
            await asyncio.to_thread(started.wait)
            await peer.ask("cancel", {"id": task_id})
            assert (await output(peer, "return", value=1))["process"] != os.getpid()
            assert (await peer.send("odd", part(peer, "return", value=1))).code == -32029
        finally:
            release.set()


class Unpicklable(ComputingModule):
    """A module that can't be pickled."""

    def __init__(self) -> None:
        super().__init__()
        self.function = lambda: None


class Asynchronous(Module):
    """An asynchronous module that declares that it is CPU-bound."""

    resources: ClassVar[Any] = {"cpu": True}

    async def execute(self, inputs: Inputs, context: Any) -> Inputs:
        return {"process": os.getpid()}


class Unloadable(ComputingModule):
    """A module that can't be loaded in another process."""

    def __setstate__(self, state: Any) -> None:
        raise OSError("not here")


@pytest.mark.smoke
@pytest.mark.parametrize(
    "module",
    [Unpicklable(), Asynchronous(), Unloadable()],
    ids=lambda module: type(module).__name__,
)
async def test_a_module_that_cannot_run_in_a_process_runs_in_the_server_and_is_logged(
    module: Module, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with serving({"work": module}) as peer:
            for _ in range(2):
                assert (await output(peer, "return", value=1))["process"] == os.getpid()
    (record,) = [
        record for record in caplog.records if vars(record).get("event") == "module_not_portable"
    ]
    assert record.message.startswith(
        "work declares resources.cpu, but runs in the server's process"
    )


def test_a_process_ends_with_its_server(tmp_path: Path) -> None:
    folder, path = tmp_path / "extensions", tmp_path / "id"
    folder.mkdir()
    write_id = f"open({str(path)!r}, 'w').write(str(os.getpid()))"
    endless = f"{write_id}\n        while True: pass\n        return {{"
    (folder / "squares.py").write_text(SQUARES_SOURCE.replace("return {", endless))
    with process(serve_command(folder), tmp_path) as server, agent_client(server) as agent:
        agent.start("squares", parts=[{"data": {"n": 1}}])
        deadline = time.monotonic() + 60
        while not read_process_id(path):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process_id = read_process_id(path)
        server.kill()
        while is_running(process_id):
            assert time.monotonic() < deadline
            time.sleep(0.05)
