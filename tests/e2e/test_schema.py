"""Every response is valid under the protocol's own definitions: 0.3's schema and 1.0's types."""

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import uuid4

import httpx
import pytest
from a2a import types as a2a
from google.protobuf.json_format import MessageToDict, ParseDict

from tests.e2e.bindings import BindingClient, JsonRpc, OldJsonRpc, Rest, check_details, schema_of
from tests.e2e.wire import Json, Rpc, parse

PUSH_CONFIG = {"taskId": "t", "id": "c", "url": "https://example.com/hook"}
FILE = {"raw": "aGk=", "filename": "hi.txt", "mediaType": "text/plain"}
LINK = {"url": "https://example.com/hi.txt", "filename": "hi.txt", "mediaType": "text/plain"}


def message(skill: str | None, *parts: Json, wait: bool = True, **members: str) -> Json:
    """Return the params of a send."""
    content = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [*parts], **members}
    params: Json = {"message": content, "configuration": {"returnImmediately": not wait}}
    return params if skill is None else {**params, "metadata": {"skillId": skill}}


def state(event: Json) -> str:
    """Return the state in a task or an event, as 0.3 spells it."""
    status_holder: Mapping[str, Any] = event.get("task") or event.get("statusUpdate") or event
    name: str = status_holder["status"]["state"]
    return name.removeprefix("TASK_STATE_").replace("_", "-").lower()


def task_id(event: Json) -> str:
    found_id: str = (event.get("task") or event)["id"]
    return found_id


def code(answer: Json) -> Any:
    """Return the code of an error: of JSON-RPC, or of HTTP."""
    return answer["error"]["code"]


@pytest.fixture
def http(agent: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=agent, timeout=20, trust_env=False) as http:
        yield http


@pytest.fixture(params=[OldJsonRpc, JsonRpc, Rest])
def wire(http: httpx.Client, request: pytest.FixtureRequest) -> BindingClient:
    wire: BindingClient = request.param(http)
    return wire


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
def test_a_task_with_any_parts_is_valid(wire: BindingClient, parts: list[Json]) -> None:
    task = wire.send(message("test.echo", *parts, contextId="c-schema"))
    assert state(task) == "completed"
    assert task["contextId"] == "c-schema"
    assert wire.ask("GetTask", {"id": task["id"]}) == task
    short = wire.ask("GetTask", {"id": task["id"], "historyLength": 0})
    assert "history" not in short


@pytest.mark.parametrize("skill", ["test.pack", "markdown.html", "text.stats"])
def test_a_stream_is_valid(wire: BindingClient, skill: str) -> None:
    first, *_, last = wire.read("SendStreamingMessage", message(skill, {"data": {"text": "tea"}}))
    assert (state(first), state(last)) == ("submitted", "completed")


def test_a_failing_stream_is_valid(wire: BindingClient) -> None:
    *_, last = wire.read("SendStreamingMessage", message("test.fail", {"data": {}}))
    assert state(last) == "failed"


def test_a_failed_task_is_valid(wire: BindingClient) -> None:
    assert state(wire.send(message("test.fail", {"data": {}}))) == "failed"


def test_a_paused_task_and_its_rejection_are_valid(wire: BindingClient) -> None:
    paused = wire.send(message("files.delete", {"data": {"path": "none.txt"}}))
    assert state(paused) == "input-required"
    unclear = wire.send(message(None, {"text": "perhaps"}, taskId=paused["id"]))
    assert state(unclear) == "input-required"
    *_, last = wire.read("SendStreamingMessage", message(None, {"text": "no"}, taskId=paused["id"]))
    assert state(last) == "rejected"


def test_a_subscription_and_a_cancellation_are_valid(wire: BindingClient) -> None:
    running = wire.send(message("test.wait", {"data": {"gate": "never"}}, wait=False))
    assert state(running) in {"submitted", "working"}
    with wire.open("SubscribeToTask", {"id": running["id"]}) as stream:
        assert task_id(next(stream)) == running["id"]
        canceled = wire.ask("CancelTask", {"id": running["id"]})
        assert state(canceled) == "canceled"
        *_, last = stream
    assert state(last) == "canceled"


def test_a_replay_repeats_the_events(wire: BindingClient) -> None:
    events = wire.read("SendStreamingMessage", message("text.stats", {"text": "a\n\nb"}))
    replayed = wire.read("SubscribeToTask", {"id": task_id(events[0])}, last_id=1)
    assert replayed == events[1:]


def test_a_list_of_tasks_is_valid(wire: BindingClient) -> None:
    context = str(uuid4())
    assert wire.ask("ListTasks", {"contextId": context})["tasks"] == []
    sent = [wire.send(message("test.echo", {"data": {}}, contextId=context)) for _ in range(3)]
    first = wire.ask("ListTasks", {"contextId": context, "pageSize": 2, "includeArtifacts": True})
    assert [task["id"] for task in first["tasks"]] == [task["id"] for task in sent[:0:-1]]


def test_an_empty_list_of_1_0_has_all_required_members(http: httpx.Client) -> None:
    for wire in (JsonRpc(http), Rest(http)):
        page = wire.ask("ListTasks", {"contextId": str(uuid4())})
        assert page == {"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0}


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
        ("CreateTaskPushNotificationConfig", PUSH_CONFIG, (-32003, 400)),
        ("GetTaskPushNotificationConfig", {"taskId": "t", "id": "c"}, (-32003, 400)),
        ("ListTaskPushNotificationConfigs", {"taskId": "t", "id": ""}, (-32003, 400)),
        ("DeleteTaskPushNotificationConfig", {"taskId": "t", "id": "c"}, (-32003, 400)),
    ],
)
def test_an_error_is_valid_and_has_the_right_code(
    wire: BindingClient, method: str, params: Json, codes: tuple[int, int]
) -> None:
    assert code(wire.ask(method, params)) == codes[isinstance(wire, Rest)]


def test_an_extended_card_that_is_not_declared_is_refused(wire: BindingClient) -> None:
    codes = {Rest: 400, OldJsonRpc: -32007}
    assert code(wire.ask("GetExtendedAgentCard", {})) == codes.get(type(wire), -32004)


def test_the_errors_about_a_finished_task_have_the_right_codes(wire: BindingClient) -> None:
    task = wire.send(message("test.echo", {"data": {}}))
    second_message = message("test.echo", {"data": {}}, taskId=task["id"])
    codes = [
        code(wire.ask("CancelTask", {"id": task["id"]})),
        code(wire.ask("SendMessage", second_message)),
    ]
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
def test_an_invalid_request_gets_a_valid_error(
    http: httpx.Client, body: bytes, expected: int
) -> None:
    answer = Rpc(http).post(body)
    schema_of("JSONRPCErrorResponse").validate(answer)
    assert code(answer) == expected
    answer = Rpc(http, a2a_version="1.0").post(body.replace(b"tasks/get", b"GetTask"))
    check_details(answer["error"]["data"])
    assert code(answer) == expected


def test_a_content_type_other_than_json_gets_a_valid_error(http: httpx.Client) -> None:
    answer = Rpc(http).post(b"{}", **{"content-type": "text/plain"})
    schema_of("JSONRPCErrorResponse").validate(answer)
    assert code(answer) == -32005


def paths(value: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of all members, without the indices of lists."""
    for name, item in value.items() if isinstance(value, dict) else ():
        yield f"{path}{name}"
        yield from paths(item, f"{path}{name}.")
    for item in value if isinstance(value, list) else ():
        yield from paths(item, path)


def test_the_card_is_valid_in_both_protocols(http: httpx.Client) -> None:
    card = parse(http.get("/.well-known/agent-card.json").text)
    schema_of("AgentCard", closed=False).validate(card)
    modern = ParseDict(card, a2a.AgentCard(), ignore_unknown_fields=True)
    paths_in_1_0 = set(paths(MessageToDict(modern, always_print_fields_with_no_presence=True)))
    assert {path for path in paths(card) if path not in paths_in_1_0 and "apcore" not in path} == {
        "url",
        "protocolVersion",
        "preferredTransport",
        "additionalInterfaces",
        "additionalInterfaces.url",
        "additionalInterfaces.transport",
        "capabilities.stateTransitionHistory",
        "skills.extensions",
    }
