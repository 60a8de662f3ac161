"""JSON that is not a valid JSON-RPC 2.0 request (JSON-RPC 2.0 §4), or has an unknown method."""

import json
from typing import Any

import pytest

from .checking_client import Agent, Json

pytestmark = pytest.mark.rotating("agent", "rpc", "dialect")

ABSENT: Any = object()


def envelope(rpc: Agent, **members: Any) -> bytes:
    """Return a valid send with some *members* of its envelope replaced."""
    request = {"jsonrpc": "2.0", "id": 1, "method": rpc.method("send"), "params": rpc.params()}
    request |= members
    return json.dumps({k: v for k, v in request.items() if v is not ABSENT}).encode()


@pytest.mark.parametrize("value", [None, True, 1, 1.5, "text", [], [1], {}, {"a": 1}])
def test_json_that_is_not_a_request_is_an_invalid_request(rpc: Agent, value: object) -> None:
    answer = rpc.post(json.dumps(value).encode())
    assert (answer.code, answer.body["id"]) == (-32600, None)


@pytest.mark.parametrize("value", [None, True, 1, 1.5, "text", [], [{}]])
def test_json_that_is_not_an_object_is_invalid_in_rest(rest: Agent, value: object) -> None:
    assert rest.post(json.dumps(value).encode()).code == -32602


def test_a_batch_is_an_invalid_request(rpc: Agent) -> None:
    request = json.loads(envelope(rpc))
    assert rpc.post(json.dumps([request, request]).encode()).code == -32600


def test_a_notification_is_an_invalid_request(rpc: Agent) -> None:
    answer = rpc.post(envelope(rpc, id=ABSENT))
    assert (answer.code, answer.body["id"]) == (-32600, None)


@pytest.mark.parametrize(
    "request_id", ["a", "", "a\0\r\n", "ü" * 1000, 0, 1, -1, 1.5, -0.25, 2**53 + 1, 2**64, None]
)
def test_the_response_has_the_id_of_the_request(rpc: Agent, request_id: object) -> None:
    answer = rpc.post(envelope(rpc, id=request_id))
    assert answer.state == "completed"
    assert answer.body["id"] == request_id
    refusal = rpc.post(envelope(rpc, id=request_id, method="no/such"))
    assert (refusal.code, refusal.body["id"]) == (-32601, request_id)
    stream = rpc.post(envelope(rpc, id=request_id, method=rpc.method("stream")))
    assert f'"id":{json.dumps(request_id, ensure_ascii=False)},' in stream.response.text


@pytest.mark.parametrize("request_id", [True, False, [], [1], {}, {"a": 1}])
def test_an_id_that_is_not_a_string_number_or_null_is_an_invalid_request(
    rpc: Agent, request_id: object
) -> None:
    variants: list[Json] = [{}, {"method": "no/such"}, {"params": {}}]
    for members in variants:
        answer = rpc.post(envelope(rpc, id=request_id, **members))
        assert (answer.code, answer.body["id"]) == (-32600, None)


@pytest.mark.parametrize("request_id", ["1e999", "-1e999"])
def test_an_id_that_is_too_large_for_a_float_is_refused(rpc: Agent, request_id: str) -> None:
    answer = rpc.post(envelope(rpc, id="HOLE").replace(b'"HOLE"', request_id.encode()))
    assert answer.code in {-32600, -32700}
    assert answer.body["id"] is None


@pytest.mark.parametrize("params", [[], [{}], "text", "", 0, 5, 1.5, True, False])
def test_params_that_are_not_an_object_are_invalid_params(rpc: Agent, params: object) -> None:
    for operation in ("send", "stream", "get", "list", "push set", "card"):
        answer = rpc.post(envelope(rpc, method=rpc.method(operation), params=params))
        assert (answer.code, answer.body["id"]) == (-32602, 1)


@pytest.mark.parametrize("params", [None, ABSENT, {}])
def test_a_send_without_params_is_invalid_params(rpc: Agent, params: object) -> None:
    for operation in ("send", "stream"):
        answer = rpc.post(envelope(rpc, method=rpc.method(operation), params=params))
        assert answer.code == -32602
    assert rpc.post(envelope(rpc, method=rpc.method("list"), params=params)).code is None


@pytest.mark.parametrize("version", [ABSENT, None, "1.0", "2", "2.00", "", 2, 2.0, ["2.0"], {}])
def test_another_version_of_json_rpc_is_an_invalid_request(rpc: Agent, version: object) -> None:
    answer = rpc.post(envelope(rpc, jsonrpc=version))
    assert (answer.code, answer.body["id"]) == (-32600, 1)


@pytest.mark.parametrize("method", [ABSENT, None, 5, True, ["message/send"], {}])
def test_a_method_that_is_not_a_string_is_an_invalid_request(rpc: Agent, method: object) -> None:
    answer = rpc.post(envelope(rpc, method=method))
    assert (answer.code, answer.body["id"]) == (-32600, 1)


@pytest.mark.parametrize(
    "method",
    [
        "",
        "no/such",
        "message/send ",
        "Message/Send",
        "sendMessage",
        "rpc.discover",
        "__class__",
        "message/send\0",
        "a\r\nb",
        "tasks",
        "x" * 1_000_000,
    ],
)
def test_an_unknown_method_is_not_found(rpc: Agent, method: str) -> None:
    answer = rpc.post(envelope(rpc, method=method))
    assert (answer.code, answer.body["id"]) == (-32601, 1)
    assert len(answer.response.content) < 2000


def test_unknown_members_are_ignored(rpc: Agent) -> None:
    assert rpc.post(envelope(rpc, extra={"a": [1]}, auth=None)).state == "completed"


def test_a_refused_stream_is_answered_with_one_error(agent: Agent) -> None:
    """The error is JSON, or in 0.3 the only event of a stream."""
    for answer in (
        agent.ask("stream", {}),
        agent.stream("no.such"),
        agent.stream("order.total", agent.part(data={"customer": 1})),
        agent.stream("echo", agent.part(data={})),
        agent.ask("subscribe", {"id": "unknown"}),
    ):
        assert answer.code in {-32601, -32602, -32001}
        assert answer.is_json
