"""Every answer held against the protocol's own definitions: 0.3's schema, and 1.0's types."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import httpx
import pytest
from a2a import types as a2a
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2  # type: ignore[import-untyped]
from jsonschema import Draft7Validator

from tests.e2e.wire import Json, Rpc, events, parse

SCHEMA = Path(__file__).parents[1] / "data" / "a2a-0.3.0.schema.json"
OLD = {
    "SendMessage": ("message/send", "SendMessageResponse"),
    "SendStreamingMessage": ("message/stream", "SendStreamingMessageResponse"),
    "GetTask": ("tasks/get", "GetTaskResponse"),
    "CancelTask": ("tasks/cancel", "CancelTaskResponse"),
    "SubscribeToTask": ("tasks/resubscribe", "SendStreamingMessageResponse"),
    "CreateTaskPushNotificationConfig": (
        "tasks/pushNotificationConfig/set",
        "SetTaskPushNotificationConfigResponse",
    ),
    "GetTaskPushNotificationConfig": (
        "tasks/pushNotificationConfig/get",
        "GetTaskPushNotificationConfigResponse",
    ),
    "ListTaskPushNotificationConfigs": (
        "tasks/pushNotificationConfig/list",
        "ListTaskPushNotificationConfigResponse",
    ),
    "DeleteTaskPushNotificationConfig": (
        "tasks/pushNotificationConfig/delete",
        "DeleteTaskPushNotificationConfigResponse",
    ),
    "GetExtendedAgentCard": (
        "agent/getAuthenticatedExtendedCard",
        "GetAuthenticatedExtendedCardResponse",
    ),
}
"""What the methods of 1.0 are called in 0.3, and the schema of their responses."""

RESULTS: dict[str, type[Message]] = {
    "SendMessage": a2a.SendMessageResponse,
    "SendStreamingMessage": a2a.StreamResponse,
    "GetTask": a2a.Task,
    "ListTasks": a2a.ListTasksResponse,
    "CancelTask": a2a.Task,
    "SubscribeToTask": a2a.StreamResponse,
}
"""The types of results in 1.0."""

ROUTES = {
    "SendMessage": ("POST", "/message:send"),
    "SendStreamingMessage": ("POST", "/message:stream"),
    "GetTask": ("GET", "/tasks/{id}"),
    "ListTasks": ("GET", "/tasks"),
    "CancelTask": ("POST", "/tasks/{id}:cancel"),
    "SubscribeToTask": ("POST", "/tasks/{id}:subscribe"),
    "CreateTaskPushNotificationConfig": ("POST", "/tasks/{taskId}/pushNotificationConfigs"),
    "GetTaskPushNotificationConfig": ("GET", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "ListTaskPushNotificationConfigs": ("GET", "/tasks/{taskId}/pushNotificationConfigs"),
    "DeleteTaskPushNotificationConfig": ("DELETE", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "GetExtendedAgentCard": ("GET", "/extendedAgentCard"),
}

PUSH = {"taskId": "t", "id": "c", "url": "https://example.com/hook"}
FILE = {"raw": "aGk=", "filename": "hi.txt", "mediaType": "text/plain"}
LINK = {"url": "https://example.com/hi.txt", "filename": "hi.txt", "mediaType": "text/plain"}


def schema_of(name: str, *, closed: bool = True) -> Draft7Validator:
    """A definition of 0.3; *closed*: without room for members that it does not name."""
    schema: Json = json.loads(SCHEMA.read_text(encoding="utf-8"))
    for definition in schema["definitions"].values() if closed else ():
        if "properties" in definition:
            definition["additionalProperties"] = False
    return Draft7Validator({**schema, "$ref": f"#/definitions/{name}"})


SCHEMAS = {name: schema_of(name) for name in {name for _, name in OLD.values()} | {"Task"}}


class Wire(ABC):
    """One binding. It is asked in the terms of 1.0, and checks every answer before it gives it."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    @abstractmethod
    def ask(self, method: str, params: Json) -> Json:
        """The result, or an object with the `error`."""

    @abstractmethod
    def open(
        self, method: str, params: Json, last_id: int | None = None
    ) -> AbstractContextManager[Iterator[Json]]:
        """The events of a stream, while it is open."""

    def read(self, method: str, params: Json, last_id: int | None = None) -> list[Json]:
        """All events of a stream."""
        with self.open(method, params, last_id) as stream:
            return list(stream)

    def send(self, params: Json) -> Json:
        """The task of a message."""
        result = self.ask("SendMessage", params)
        found: Json = result.get("task") or result
        return found


class JsonRpc(Wire):
    """1.0 over JSON-RPC."""

    headers: ClassVar = {"a2a-version": "1.0"}

    def __init__(self, http: httpx.Client) -> None:
        super().__init__(http)
        self.rpc = Rpc(http, **self.headers)

    def name(self, method: str) -> str:
        return method

    def old(self, params: Json) -> Json:
        return params

    def ask(self, method: str, params: Json) -> Json:
        return self.checked(method, self.rpc.call(self.name(method), self.old(params)))

    @contextmanager
    def open(
        self, method: str, params: Json, last_id: int | None = None
    ) -> Iterator[Iterator[Json]]:
        with self.rpc.stream(self.name(method), self.old(params), last_id) as stream:
            yield (self.checked(method, answer) for _, answer in stream)

    def checked(self, method: str, answer: Json) -> Json:
        """The result of a response, or its error."""
        assert set(answer) in ({"jsonrpc", "id", "result"}, {"jsonrpc", "id", "error"})
        if "error" in answer:
            check_details(answer["error"]["data"])
            return answer
        ParseDict(answer["result"], RESULTS[method]())
        result: Json = answer["result"]
        return result


class OldJsonRpc(JsonRpc):
    """0.3 over JSON-RPC."""

    headers: ClassVar = {}

    def name(self, method: str) -> str:
        return OLD[method][0] if method in OLD else "tasks/list"

    def old(self, params: Json) -> Json:
        """The params of 1.0 as 0.3 has them."""
        if "message" in params:
            parts = [old_part(part) for part in params["message"]["parts"]]
            base = {"kind": "message", "role": "user"}
            params = {**params, "message": {**params["message"], **base, "parts": parts}}
        if "configuration" in params:
            wait = not params["configuration"]["returnImmediately"]
            params = {**params, "configuration": {"blocking": wait}}
        if "url" in params:
            return {"taskId": params["taskId"], "pushNotificationConfig": {"url": params["url"]}}
        if "taskId" in params:
            return {"id": params["taskId"], "pushNotificationConfigId": params["id"]}
        return params

    def checked(self, method: str, answer: Json) -> Json:
        if method in OLD:
            SCHEMAS[OLD[method][1]].validate(answer)
        else:
            for task in answer["result"]["tasks"]:
                SCHEMAS["Task"].validate(task)
        result: Json = answer if "error" in answer else answer["result"]
        return result


class Rest(Wire):
    """1.0 over HTTP+JSON."""

    def ask(self, method: str, params: Json) -> Json:
        verb, url, options = self.request(method, params)
        response = self.http.request(verb, url, **options)
        assert response.headers["content-type"] == "application/a2a+json"
        answer: Json = parse(response.text)
        if response.is_error:
            error = answer["error"]
            assert set(error) == {"code", "status", "message", "details"}
            assert error["code"] == response.status_code
            assert code_pb2.Code.Value(error["status"])
            check_details(error["details"])
        else:
            ParseDict(answer, RESULTS[method]())
        return answer

    @contextmanager
    def open(
        self, method: str, params: Json, last_id: int | None = None
    ) -> Iterator[Iterator[Json]]:
        verb, url, options = self.request(method, params)
        headers = {} if last_id is None else {"last-event-id": str(last_id)}
        with self.http.stream(verb, url, headers=headers, **options) as response:
            yield (self.checked(method, event) for _, event in events(response))

    def checked(self, method: str, event: Json) -> Json:
        ParseDict(event, RESULTS[method]())
        return event

    def request(self, method: str, params: Json) -> tuple[str, str, Json]:
        verb, path = ROUTES[method]
        rest = {name: value for name, value in params.items() if f"{{{name}}}" not in path}
        options: Json = {"json": rest} if verb == "POST" else {"params": rest}
        return verb, path.format(**params), options


def check_details(details: list[Json]) -> None:
    """The details of an error are typed, the first an ErrorInfo (A2A 1.0 §9.5, §11.6)."""
    kind = error_details_pb2.ErrorInfo.DESCRIPTOR.full_name
    assert details[0]["@type"] == f"type.googleapis.com/{kind}"
    for detail in details:
        ParseDict(detail, AnyMessage())


def old_part(part: Json) -> Json:
    """A part as 0.3 has it."""
    if "text" in part or "data" in part:
        return {"kind": "text" if "text" in part else "data", **part}
    names = {"raw": "bytes", "url": "uri", "filename": "name", "mediaType": "mimeType"}
    return {"kind": "file", "file": {names[name]: value for name, value in part.items()}}


def message(skill: str | None, *parts: Json, wait: bool = True, **members: str) -> Json:
    """The params of a send."""
    content = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [*parts], **members}
    params: Json = {"message": content, "configuration": {"returnImmediately": not wait}}
    return params if skill is None else {**params, "metadata": {"skillId": skill}}


def state(event: Json) -> str:
    """The state that a task or an event tells of, as 0.3 writes it."""
    found: Mapping[str, Any] = event.get("task") or event.get("statusUpdate") or event
    name: str = found["status"]["state"]
    return name.removeprefix("TASK_STATE_").replace("_", "-").lower()


def task_id(event: Json) -> str:
    found: str = (event.get("task") or event)["id"]
    return found


def code(answer: Json) -> Any:
    """The code of an error: of JSON-RPC, or of HTTP."""
    return answer["error"]["code"]


@pytest.fixture
def http(agent: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=agent, timeout=20, trust_env=False) as http:
        yield http


@pytest.fixture(params=[OldJsonRpc, JsonRpc, Rest])
def wire(http: httpx.Client, request: pytest.FixtureRequest) -> Wire:
    found: Wire = request.param(http)
    return found


@pytest.mark.parametrize(
    "parts",
    [
        [{"text": '{"a": 1}'}],
        [{"data": {"whole": 2**53, "half": 0.5, "none": None, "deep": [[{"x": True}], []]}}],
        [{"data": {"n": 1}, "metadata": {"note": "é", "n": 3}}],
        [FILE],
        [LINK],
        [{"data": {}}, FILE, LINK, {"text": ""}],
    ],
)
def test_a_task_with_any_parts(wire: Wire, parts: list[Json]) -> None:
    task = wire.send(message("test.echo", *parts, contextId="c-schema"))
    assert state(task) == "completed"
    assert task["contextId"] == "c-schema"
    assert wire.ask("GetTask", {"id": task["id"]}) == task
    short = wire.ask("GetTask", {"id": task["id"], "historyLength": 0})
    assert "history" not in short


@pytest.mark.parametrize("skill", ["test.pack", "markdown.html", "text.stats"])
def test_a_stream(wire: Wire, skill: str) -> None:
    first, *_, last = wire.read("SendStreamingMessage", message(skill, {"data": {"text": "tea"}}))
    assert (state(first), state(last)) == ("submitted", "completed")


def test_a_stream_that_fails(wire: Wire) -> None:
    *_, last = wire.read("SendStreamingMessage", message("test.fail", {"data": {}}))
    assert state(last) == "failed"


def test_a_failed_task(wire: Wire) -> None:
    assert state(wire.send(message("test.fail", {"data": {}}))) == "failed"


def test_a_paused_task_and_its_refusal(wire: Wire) -> None:
    paused = wire.send(message("files.delete", {"data": {"path": "none.txt"}}))
    assert state(paused) == "input-required"
    unclear = wire.send(message(None, {"text": "perhaps"}, taskId=paused["id"]))
    assert state(unclear) == "input-required"
    *_, last = wire.read("SendStreamingMessage", message(None, {"text": "no"}, taskId=paused["id"]))
    assert state(last) == "rejected"


def test_a_subscription_and_a_cancellation(wire: Wire) -> None:
    running = wire.send(message("test.wait", {"data": {"gate": "never"}}, wait=False))
    assert state(running) in {"submitted", "working"}
    with wire.open("SubscribeToTask", {"id": running["id"]}) as stream:
        assert task_id(next(stream)) == running["id"]
        canceled = wire.ask("CancelTask", {"id": running["id"]})
        assert state(canceled) == "canceled"
        *_, last = stream
    assert state(last) == "canceled"


def test_a_replay(wire: Wire) -> None:
    told = wire.read("SendStreamingMessage", message("text.stats", {"text": "a\n\nb"}))
    again = wire.read("SubscribeToTask", {"id": task_id(told[0])}, last_id=1)
    assert again == told[1:]


def test_a_list_of_tasks(wire: Wire) -> None:
    context = str(uuid4())
    assert wire.ask("ListTasks", {"contextId": context})["tasks"] == []
    sent = [wire.send(message("test.echo", {"data": {}}, contextId=context)) for _ in range(3)]
    first = wire.ask("ListTasks", {"contextId": context, "pageSize": 2, "includeArtifacts": True})
    assert [task["id"] for task in first["tasks"]] == [task["id"] for task in sent[:0:-1]]


def test_a_list_in_1_0_has_all_its_required_members(http: httpx.Client) -> None:
    for wire in (JsonRpc(http), Rest(http)):
        found = wire.ask("ListTasks", {"contextId": str(uuid4())})
        assert found == {"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0}


@pytest.mark.parametrize(
    ("method", "params", "codes"),
    [
        ("SendMessage", message("no.such", {"data": {}}), (-32601, 404)),
        ("SendStreamingMessage", message("no.such", {"data": {}}), (-32601, 404)),
        ("SendMessage", message(None, {"data": {}}), (-32602, 400)),
        ("SendMessage", message("orders.price", {"data": {}}), (-32602, 400)),
        ("SendStreamingMessage", message("orders.price", {"data": {}}), (-32602, 400)),
        ("SendMessage", message("test.echo", {"data": {}}, taskId="no-such"), (-32001, 404)),
        ("GetTask", {"id": "no-such"}, (-32001, 404)),
        ("CancelTask", {"id": "no-such"}, (-32001, 404)),
        ("SubscribeToTask", {"id": "no-such"}, (-32001, 404)),
        ("CreateTaskPushNotificationConfig", PUSH, (-32003, 400)),
        ("GetTaskPushNotificationConfig", {"taskId": "t", "id": "c"}, (-32003, 400)),
        ("ListTaskPushNotificationConfigs", {"taskId": "t", "id": ""}, (-32003, 400)),
        ("DeleteTaskPushNotificationConfig", {"taskId": "t", "id": "c"}, (-32003, 400)),
        ("GetExtendedAgentCard", {}, (-32007, 400)),
    ],
)
def test_an_error(wire: Wire, method: str, params: Json, codes: tuple[int, int]) -> None:
    assert code(wire.ask(method, params)) == codes[isinstance(wire, Rest)]


def test_the_errors_of_a_finished_task(wire: Wire) -> None:
    task = wire.send(message("test.echo", {"data": {}}))
    more = message("test.echo", {"data": {}}, taskId=task["id"])
    codes = [code(wire.ask("CancelTask", {"id": task["id"]})), code(wire.ask("SendMessage", more))]
    assert codes == ([400, 400] if isinstance(wire, Rest) else [-32002, -32004])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b'{"jsonrpc": "2.0", "id": NaN}', -32700),
        (b"[]", -32600),
        (b"[1]", -32600),
        (b"null", -32600),
        (b'{"jsonrpc": "1.0", "id": 1, "method": "tasks/get"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": 5}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "no/such"}', -32601),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": []}', -32602),
        (b'{"jsonrpc": "2.0", "id": "x", "method": "tasks/get", "params": {"id": 5}}', -32602),
    ],
)
def test_what_is_no_request(http: httpx.Client, body: bytes, expected: int) -> None:
    answer = Rpc(http).post(body)
    schema_of("JSONRPCErrorResponse").validate(answer)
    assert code(answer) == expected
    answer = Rpc(http, a2a_version="1.0").post(body.replace(b"tasks/get", b"GetTask"))
    check_details(answer["error"]["data"])
    assert code(answer) == expected


def test_another_content_type(http: httpx.Client) -> None:
    answer = Rpc(http).post(b"{}", **{"content-type": "text/plain"})
    schema_of("JSONRPCErrorResponse").validate(answer)
    assert code(answer) == -32005


def paths(value: Any, path: str = "") -> Iterator[str]:
    """The paths of all members, without the indices of lists."""
    for name, item in value.items() if isinstance(value, dict) else ():
        yield f"{path}{name}"
        yield from paths(item, f"{path}{name}.")
    for item in value if isinstance(value, list) else ():
        yield from paths(item, path)


def test_the_card_is_one_of_both_protocols(http: httpx.Client) -> None:
    card = parse(http.get("/.well-known/agent-card.json").text)
    schema_of("AgentCard", closed=False).validate(card)
    modern = ParseDict(card, a2a.AgentCard(), ignore_unknown_fields=True)
    known = set(paths(MessageToDict(modern, always_print_fields_with_no_presence=True)))
    assert {path for path in paths(card) if path not in known and "apcore" not in path} == {
        "url",
        "protocolVersion",
        "preferredTransport",
        "additionalInterfaces",
        "additionalInterfaces.url",
        "additionalInterfaces.transport",
        "capabilities.stateTransitionHistory",
        "skills.extensions",
    }
