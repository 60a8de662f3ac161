"""Tasks: how a message becomes a task, and how tasks are read and listed."""

import json
import time
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from apcore import Registry, module
from apcore_a2a_core import ErrorMapper
from apcore_a2a_core.data import Task, TaskState, TaskStatus
from apcore_a2a_core.states import (
    CANCELED,
    COMPLETED,
    FAILED,
    INPUT_REQUIRED,
    NAMES,
    REJECTED,
    SUBMITTED,
    WORKING,
)
from apcore_a2a_server import InMemoryTaskStore
from apcore_a2a_server.engine.change import NewState, change
from apcore_a2a_server.errors import InvalidStateTransitionError
from apcore_a2a_server.store import TaskRecord
from apcore_a2a_server.store.live import LiveTasks
from pydantic import BaseModel

from .checking_client import Agent, Json, state_of
from .inloop import (
    DIALECTS,
    NEEDS_APPROVAL,
    ActionModule,
    Gate,
    always,
    contents,
    echo,
    metadata_of,
    serving,
)
from .inloop import anyio_backend as anyio_backend

pytestmark = [pytest.mark.anyio, pytest.mark.rotating("agent", "rpc", "dialect")]


class Color(Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: float


class Count(BaseModel):
    count: int


def is_new_id(text: str) -> bool:
    """Return whether *text* is a UUID of version 7 that was made in the last hour."""
    uuid = UUID(text)
    age = time.time() - (uuid.int >> 80) / 1000
    return uuid.version == 7 and str(uuid) == text and -1 < age < 3600


def texts(task: Json) -> list[str]:
    """Return the first text of each message in the history."""
    return [message["parts"][0]["text"] for message in task.get("history", [])]


def test_a_send_waits_until_the_task_has_completed(agent: Agent) -> None:
    task = agent.send("echo").task
    assert state_of(task) == "completed"
    assert contents(task) == [{"text": "hello"}]
    assert agent.ask("get", {"id": task["id"]}).task == task


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_send_without_waiting_returns_a_working_task(dialect: str) -> None:
    gate = Gate()
    async with serving({"work": ActionModule(gate)}, dialect) as peer:
        task_id = await peer.start()
        assert await peer.state(task_id) == "working"
        assert "artifacts" not in await peer.get(task_id)
        async with peer.subscribe(task_id) as stream:
            gate.opened.set()
            await stream.rest()
        assert contents(await peer.get(task_id)) == [{"done": True}]


def test_a_task_has_ids_a_timestamp_and_its_first_message(agent: Agent) -> None:
    before = datetime.now().astimezone()
    task = agent.send("echo", messageId="the first").task
    assert is_new_id(task["id"])
    assert is_new_id(task["contextId"])
    timestamp = datetime.fromisoformat(task["status"]["timestamp"])
    assert timestamp.utcoffset() == timedelta(0)
    assert abs(timestamp - before) < timedelta(seconds=20)
    (message,) = task["history"]
    assert message["messageId"] == "the first"
    assert (message["taskId"], message["contextId"]) == (task["id"], task["contextId"])
    assert metadata_of(task) == {"skillId": "echo"}


def test_a_message_without_an_id_gets_one(rpc_v03: Agent) -> None:
    message = {"role": "user", "parts": [{"type": "text", "text": "hello"}]}
    params = {"message": message, "metadata": {"skillId": "echo"}}
    (message,) = rpc_v03.ask("send", params).task["history"]
    assert is_new_id(message["messageId"])


def test_the_context_of_the_message_is_kept(agent: Agent) -> None:
    tasks = [agent.send("echo", contextId="my context").task for _ in range(2)]
    assert {task["contextId"] for task in tasks} == {"my context"}
    assert tasks[0]["id"] != tasks[1]["id"]


def test_a_context_outside_the_message_is_kept(rpc: Agent) -> None:
    params = {**rpc.params("echo"), "contextId": "beside"}
    assert rpc.ask("send", params).task["contextId"] == "beside"


def test_the_skill_id_is_in_the_params_or_else_in_the_message(agent: Agent) -> None:
    params = agent.params("echo")
    message_with_skill = {**params["message"], "metadata": {"skillId": "mirror"}}
    answer = agent.ask("send", {"message": message_with_skill, "metadata": {"skillId": "echo"}})
    assert answer.task["metadata"]["skillId"] == "echo"
    second_answer = agent.ask("send", {"message": message_with_skill})
    assert second_answer.task["metadata"]["skillId"] == "mirror"


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_default_skill_gets_messages_without_a_skill_id(dialect: str) -> None:
    modules = {"work": always({"by": "work"}), "other": always({"by": "other"})}
    async with serving(modules, dialect, default_skill="other") as peer:
        message = peer.wire.params()["message"]
        assert (await peer.ask("send", {"message": message})).data == {"by": "other"}
        assert (await peer.send("work")).data == {"by": "work"}


def test_text_is_the_input_of_a_module_without_a_schema(agent: Agent) -> None:
    assert agent.send("mirror", agent.part(text="[1]")).data == {"text": "[1]"}


def test_json_text_is_the_input_of_a_module_with_an_object_schema(agent: Agent) -> None:
    order = {"customer": {"text": "me"}, "items": [{"name": "x", "count": 2}]}
    answer = agent.send("order.total", agent.part(text=json.dumps(order)))
    assert answer.data == {"total": 2}


def test_integers_are_exact_in_both_directions(agent: Agent) -> None:
    numbers = {"n": [2**53, -(2**53), 2**53 - 1, 0, 1.5, -0.1, 1e300]}
    assert agent.send("mirror", agent.part(data=numbers)).data == numbers
    assert '"n":[9007199254740992,-9007199254740992,9007199254740991,0,1.5,' in (
        agent.send("mirror", agent.part(data=numbers)).response.text
    )


def test_a_whole_number_written_as_a_float_is_an_integer(agent: Agent) -> None:
    order = {"customer": {"text": "me"}, "items": [{"name": "x", "count": 3.0}]}
    answer = agent.send("order.total", agent.part(data=order))
    assert answer.data == {"total": 3}
    assert '"total":3}' in answer.response.text


def test_a_file_with_a_url_becomes_an_object_with_name_and_type(agent: Agent) -> None:
    part: Json = {"url": "https://example.com/a/b.csv", "mediaType": "text/csv"}
    if not agent.modern:
        part = {"kind": "file", "file": {"uri": part["url"], "mimeType": "text/csv"}}
    expected = {"uri": "https://example.com/a/b.csv", "name": "b.csv", "mimeType": "text/csv"}
    assert agent.send("mirror", part).data == expected


def test_a_file_with_bytes_becomes_an_object_with_base64(agent: Agent) -> None:
    part: Json = {"raw": "aGk=", "filename": "a.txt"}
    if not agent.modern:
        part = {"kind": "file", "file": {"bytes": "aGk=", "name": "a.txt"}}
    expected = {"bytes": "aGk=", "name": "a.txt", "mimeType": "text/plain"}
    assert agent.send("mirror", part).data == expected


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_first_valid_part_is_the_input_and_the_others_are_available(dialect: str) -> None:
    gate = Gate()
    gate.opened.set()
    modules = {"work": ActionModule(gate, input_schema=Count)}
    async with serving(modules, dialect) as peer:
        parts = [
            peer.part(text="please"),
            peer.part(data={"count": 2}),
            peer.part(data={"n": 2**53}),
        ]
        await peer.send("work", *parts)
    (context,) = gate.contexts
    assert gate.calls == [{"count": 2}]
    assert context.data["ext.a2a.parts"] == [{"text": "please"}, {"data": {"n": 2**53}}]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_module_sees_its_task_and_context_ids(dialect: str) -> None:
    gate = Gate()
    gate.opened.set()
    async with serving({"work": ActionModule(gate)}, dialect) as peer:
        task = (await peer.send(contextId="ours")).task
    data = gate.contexts[0].data
    assert (data["ext.a2a.task_id"], data["ext.a2a.context_id"]) == (task["id"], "ours")
    assert data["ext.a2a.parts"] == []


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_module_continues_the_callers_trace(dialect: str) -> None:
    gate, trace = Gate(), "0af7651916cd43dd8448eb211c80319c"
    gate.opened.set()
    async with serving({"work": ActionModule(gate)}, dialect) as peer:
        headers = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
        await peer.ask("send", peer.wire.params("work"), headers)
        await peer.send()
    assert gate.contexts[0].trace_id == trace
    assert gate.contexts[1].trace_id not in ("", trace)


OUTPUTS: dict[str, tuple[Any, Any]] = {
    "object": ({"a": {"b": [1, None, True, "x"]}}, {"a": {"b": [1, None, True, "x"]}}),
    "empty": ({}, {}),
    "date": ({"day": date(2026, 1, 2)}, {"day": "2026-01-02"}),
    "time": ({"at": datetime(2026, 1, 2, 3, 4, 5)}, {"at": "2026-01-02T03:04:05"}),
    "span": ({"took": timedelta(minutes=1)}, {"took": 60}),
    "uuid": ({"id": UUID(int=1)}, {"id": "00000000-0000-0000-0000-000000000001"}),
    "enum": ({"color": Color.RED}, {"color": "red"}),
    "dataclass": ({"at": Point(1, 2.5)}, {"at": {"x": 1, "y": 2.5}}),
    "model": ({"is": Count(count=1)}, {"is": {"count": 1}}),
    "set": ({"only": {1}, "pair": (1, 2)}, {"only": [1], "pair": [1, 2]}),
    "inner bytes": ({"in": {"x": b"hi"}}, {"in": {"x": "aGk="}}),
}


@pytest.mark.parametrize("name", OUTPUTS)
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_output_of_a_module_is_the_artifact(dialect: str, name: str) -> None:
    output, expected = OUTPUTS[name]
    async with serving({"work": always(output)}, dialect) as peer:
        assert contents((await peer.send()).task) == [expected]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_bytes_in_an_output_become_files_named_by_their_keys(dialect: str) -> None:
    output = {"a.png": b"\x89PNG\r\n\x1a\n", "n": 1, "b": b"b"}
    async with serving({"work": always(output)}, dialect) as peer:
        (artifact,) = (await peer.send()).task["artifacts"]
    first, *files = artifact["parts"]
    assert first["data"] == {"n": 1}
    if dialect == "0.3":
        files = [part["file"] for part in files]
    assert [file.get("filename") or file["name"] for file in files] == ["a.png", "b"]
    assert [file.get("raw") or file["bytes"] for file in files] == ["iVBORw0KGgo=", "Yg=="]
    kinds = [file.get("mediaType") or file["mimeType"] for file in files]
    assert kinds == ["image/png", "application/octet-stream"]


def text() -> str:
    return "hello"


def raw() -> bytes:
    return b"hi"


def functions() -> Registry:
    """Return a registry of functions whose return values apcore wraps in an object."""
    registry = Registry()
    for function in (text, raw):
        module(id=function.__name__, description="Returns a value", registry=registry)(function)
    return registry


async def test_functions_that_return_text_or_bytes_produce_text_or_a_file() -> None:
    async with serving(functions()) as peer:
        assert contents((await peer.send("text", {"data": {}})).task) == ["hello"]
        assert contents((await peer.send("raw", {"data": {}})).task) == ["aGk="]


class FixedOutputExecutor:
    """An executor with a fixed output of any type, unlike apcore's."""

    def __init__(self, output: Any) -> None:
        self.registry = Registry()
        self.registry.register("work", always(output))
        self._output = output

    async def call_async(self, module_id: str, inputs: Any = None, context: Any = None) -> Any:
        return self._output

    async def stream(self, module_id: str, inputs: Any = None, context: Any = None) -> Any:
        yield self._output

    def validate(self, module_id: str, inputs: Any = None, context: Any = None) -> None:
        return None


NOT_OBJECTS: list[tuple[Any, list[Any]]] = [
    ("text", ["text"]),
    (b"hi", ["aGk="]),
    ([1, {"a": None}], [[1, {"a": None}]]),
    (5, [5]),
]


@pytest.mark.parametrize(("output", "expected"), NOT_OBJECTS)
async def test_outputs_that_are_not_objects_become_parts_of_their_kind(
    output: Any, expected: Any
) -> None:
    async with serving(FixedOutputExecutor(output)) as peer:
        assert contents((await peer.send()).task) == expected
        async with peer.stream() as stream:
            frames = await stream.rest()
        assert [frame.parts for frame in frames if frame.kind == "artifact"] == [expected]


async def test_an_output_of_none_completes_without_parts() -> None:
    async with serving(FixedOutputExecutor(None)) as peer:
        task = (await peer.send()).task
        assert state_of(task) == "completed"
        assert [artifact.get("parts") for artifact in task.get("artifacts", [])] in ([], [[]])
        async with peer.stream() as stream:
            frames = await stream.rest()
        assert [str(frame) for frame in frames][-1] == "status completed"


QUESTION = "Approval required for module work\ntext: call"


async def approved_task_id(peer: Any) -> str:
    """Create a task with a call, an approval request and an answer, and return its id."""
    task = (await peer.send("work", peer.part(text="call"))).task
    await peer.send("work", peer.part(text="yes"), taskId=task["id"])
    task_id: str = task["id"]
    return task_id


@pytest.mark.parametrize(
    ("length", "kept"),
    [
        (None, ["call", QUESTION, "yes"]),
        (0, []),
        (1, ["yes"]),
        (1.0, ["yes"]),
        (2, [QUESTION, "yes"]),
        (50, ["call", QUESTION, "yes"]),
    ],
)
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_task_has_as_much_history_as_requested(
    dialect: str, length: float | None, kept: list[str]
) -> None:
    modules = {"work": ActionModule(echo, annotations=NEEDS_APPROVAL)}
    async with serving(modules, dialect) as peer:
        task_id = await approved_task_id(peer)
        options = {} if length is None else {"historyLength": length}
        read_back = await peer.ask("get", {"id": task_id, **options})
        (listed,) = (await peer.ask("list", options)).result["tasks"]
        assert texts(read_back.task) == texts(listed) == kept
        assert ("history" in read_back.task) == bool(kept)


@pytest.mark.parametrize(("length", "kept"), [(None, 3), (0, 0), (1, 1), (2, 2), (9, 3)])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_send_returns_as_much_history_as_requested(
    dialect: str, length: int | None, kept: int
) -> None:
    modules = {"work": ActionModule(echo, annotations=NEEDS_APPROVAL)}
    async with serving(modules, dialect) as peer:
        task_id = (await peer.send()).task["id"]
        params = peer.wire.params("work", peer.part(text="yes"), taskId=task_id)
        options = {} if length is None else {"historyLength": length}
        answer = await peer.ask("send", {**params, "configuration": options})
        assert len(texts(answer.task)) == kept


def test_tasks_are_listed_by_context_newest_first(rpc: Agent) -> None:
    context = f"listed {rpc.dialect}"
    created = [rpc.send("echo", contextId=context).task for _ in range(3)]
    other = rpc.send("echo").task
    tasks = rpc.ask("list", {"contextId": context}).result["tasks"]
    assert [task["id"] for task in tasks] == [task["id"] for task in reversed(created)]
    everything = rpc.ask("list", {}).result["tasks"]
    assert everything[0]["id"] == other["id"]


async def test_a_list_of_1_0_is_ordered_by_update_and_omits_artifacts() -> None:
    gate = Gate()
    async with serving({"work": ActionModule(gate), "echo": ActionModule(echo)}) as peer:
        first = await peer.start()
        second = (await peer.send("echo")).task["id"]
        before = (await peer.ask("list")).result
        assert [task["id"] for task in before["tasks"]] == [second, first]
        async with peer.subscribe(first) as stream:
            gate.opened.set()
            await stream.rest()
        after = (await peer.ask("list", {"pageSize": 1})).result
        assert [task["id"] for task in after["tasks"]] == [first]
        assert (after["pageSize"], after["totalSize"]) == (1, 2)
        assert "artifacts" not in after["tasks"][0]
        full = (await peer.ask("list", {"includeArtifacts": True})).result
        assert all("artifacts" in task for task in full["tasks"])
        assert full["nextPageToken"] == ""
        params = {"pageSize": 1, "pageToken": after["nextPageToken"]}
        (last,) = (await peer.ask("list", params)).result["tasks"]
        assert last["id"] == second
        in_v03 = await peer.in_dialect("0.3").ask("list")
        assert [task["id"] for task in in_v03.result["tasks"]] == [second, first]
        assert all("artifacts" in task for task in in_v03.result["tasks"])


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_tasks_are_listed_by_state_and_time(dialect: str) -> None:
    gate = Gate()
    async with serving({"work": ActionModule(gate), "echo": ActionModule(echo)}, dialect) as peer:
        working = await peer.start()
        task = (await peer.send("echo")).task
        name = "TASK_STATE_WORKING" if peer.wire.modern else "working"
        answer = await peer.ask("list", {"status": name})
        assert [listed["id"] for listed in answer.result["tasks"]] == [working]
        since = {"statusTimestampAfter": task["status"]["timestamp"]}
        answer = await peer.ask("list", since)
        assert task["id"] in [listed["id"] for listed in answer.result["tasks"]]
        answer = await peer.ask("list", {"statusTimestampAfter": "2100-01-01T00:00:00Z"})
        assert answer.result["tasks"] == []


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_state_history_is_recorded_if_configured(dialect: str) -> None:
    modules = {"work": ActionModule(echo, annotations=NEEDS_APPROVAL)}
    async with serving(modules, dialect, state_history=True) as peer:
        task = await peer.get(await approved_task_id(peer))
        history = task["metadata"]["apcore"]["stateHistory"]
        assert [entry["state"] for entry in history] == [
            "submitted",
            "working",
            "input-required",
            "working",
        ]
        times = [datetime.fromisoformat(entry["timestamp"]) for entry in history]
        assert times == sorted(times)
        assert {entry["principal"] for entry in history} == {""}
        assert [entry.get("message") for entry in history] == [
            None,
            None,
            QUESTION,
            None,
        ]
        card = (await peer.client.get("/.well-known/agent-card.json")).json()
        assert card["capabilities"]["stateTransitionHistory"] is True


async def test_the_state_history_is_not_recorded_by_default() -> None:
    async with serving({"work": ActionModule(echo)}) as peer:
        assert metadata_of((await peer.send()).task) == {"skillId": "work"}
        card = (await peer.client.get("/.well-known/agent-card.json")).json()
        assert card["capabilities"]["stateTransitionHistory"] is False


ALLOWED_TRANSITIONS = {
    SUBMITTED: {WORKING, CANCELED, FAILED, REJECTED},
    WORKING: {COMPLETED, FAILED, CANCELED, REJECTED, INPUT_REQUIRED},
    INPUT_REQUIRED: {WORKING, CANCELED, FAILED, REJECTED, INPUT_REQUIRED},
}
FINAL_STATES = [COMPLETED, FAILED, CANCELED, REJECTED]
EVERY_STATE = [*ALLOWED_TRANSITIONS, *FINAL_STATES]


@pytest.mark.parametrize("old", EVERY_STATE, ids=NAMES.get)
async def test_a_task_makes_only_the_transitions_of_the_state_machine(
    old: TaskState, caplog: pytest.LogCaptureFixture
) -> None:
    for new in EVERY_STATE:
        tasks = LiveTasks(InMemoryTaskStore())
        task = Task(id="t", context_id="c", status=TaskStatus(state=old))
        await tasks.create(TaskRecord(task), [task])
        caplog.clear()
        if new in ALLOWED_TRANSITIONS.get(old, ()):
            record = await change(tasks, "t", NewState(new), expect=EVERY_STATE)
            assert (record.task.status.state, record.version) == (new, 2)
            assert not caplog.records
            continue
        with pytest.raises(InvalidStateTransitionError):
            await change(tasks, "t", NewState(new), expect=EVERY_STATE)
        assert [log_record.levelname for log_record in caplog.records] == ["ERROR"]
        stored = await tasks.get("t")
        assert stored is not None
        assert (stored.task.status.state, stored.version) == (old, 1)


def test_an_invalid_transition_is_an_internal_error_to_clients() -> None:
    error = ErrorMapper().to_jsonrpc_error(InvalidStateTransitionError())
    assert (error["code"], error["message"]) == (-32603, "Internal error")
