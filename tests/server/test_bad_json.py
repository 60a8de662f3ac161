"""Bodies that are invalid JSON, or valid JSON with unusual values."""

import json
from typing import Any

import pytest

from .checking_client import Agent
from .modules import deep

pytestmark = pytest.mark.rotating("agent", "rpc", "dialect")

HOLE = "HOLE"
SURROGATE = "\ud800"


def body(agent: Agent, raw_json: str, params: Any = None, **envelope: Any) -> bytes:
    """Return the body of a send, with *raw_json* in place of the string HOLE."""
    request: Any = agent.params() if params is None else params
    if not agent.restful:
        request = {"jsonrpc": "2.0", "id": 1, "method": agent.method("send"), "params": request}
        request |= envelope
    return json.dumps(request).replace(f'"{HOLE}"', raw_json).encode()


def params_with_hole(agent: Agent, skill: str = "mirror") -> Any:
    """Return the params of a send with the string HOLE in its data."""
    return agent.params(skill, agent.part(data={"value": HOLE}))


@pytest.mark.parametrize(
    "broken",
    [
        b" \r\n\t",
        b"{",
        b"{'a': 1}",
        b'{"a": 1}}',
        b'{"a": 1} {"a": 1}',
        b'{"a": tru}',
        b'{"a": 01}',
        b'{"a": "\n"}',
        b'{"a": "\\x"}',
        b"\xef\xbb\xbf{}",
        b"\xff\xfe{\x00}\x00",
        b"\x80",
        b'{"a": "\xc3\x28"}',
        b'{"a": "\xed\xa0\x80"}',
        b'{"a": "\xf5\x80\x80\x80"}',
        b"--boundary\r\nContent-Disposition: form-data\r\n",
    ],
)
def test_invalid_json_or_utf_8_is_a_parse_error(agent: Agent, broken: bytes) -> None:
    assert agent.post(broken).code == -32700


def test_an_empty_body_is_a_parse_error(rpc: Agent) -> None:
    answer = rpc.post(b"")
    assert (answer.code, answer.body["id"]) == (-32700, None)


def test_an_empty_body_is_a_send_without_a_message_in_rest(rest: Agent) -> None:
    assert rest.post(b"").code == -32602


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_constants_that_json_lacks_are_a_parse_error(agent: Agent, constant: str) -> None:
    assert agent.post(body(agent, constant, params_with_hole(agent))).code == -32700


@pytest.mark.parametrize("number", ["1e999", "-1e999"])
def test_numbers_that_no_double_can_hold_are_a_parse_error(agent: Agent, number: str) -> None:
    assert agent.post(body(agent, number, params_with_hole(agent))).code == -32700
    params = {**agent.params(), "metadata": {"skillId": "echo", "value": HOLE}}
    assert agent.post(body(agent, number, params)).code == -32700
    assert agent.post(body(agent, number, agent.params(metadata={"x": HOLE}))).code == -32700


def test_an_integer_of_5000_digits_is_a_parse_error(agent: Agent) -> None:
    assert agent.post(body(agent, "1" * 5000, params_with_hole(agent))).code == -32700


@pytest.mark.parametrize(
    ("written", "value"),
    [
        (str(2**53 + 1), 2**53 + 1),
        (str(2**60 + 1), 2**60 + 1),
        (str(10**400), 10**400),
        (str(-(2**63)), -(2**63)),
        ("1.0", 1),
        ("1e3", 1000),
        ("-0.5", -0.5),
        ('"\\u0000\\u001b\\ud83d\\ude00"', "\0\x1b😀"),
        ("null", None),
        ("[]", []),
    ],
)
def test_values_reach_the_module_exactly(agent: Agent, written: str, value: object) -> None:
    answer = agent.post(body(agent, written, params_with_hole(agent, "json")))
    assert json.loads(answer.data["json"])["value"] == value
    assert type(json.loads(answer.data["json"])["value"]) is type(value)


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
@pytest.mark.parametrize("levels", [65, 1000, 200_000])
def test_json_nested_deeper_than_64_is_not_parsed(agent: Agent, opening: str, levels: int) -> None:
    closing = {"[": "]", '{"a":': "}", '[{"a":': "}]"}[opening]
    nested = opening * levels + "1" + closing * levels
    assert agent.post(opening.encode() * levels).is_too_large
    assert agent.post(nested.encode()).is_too_large
    answer = agent.post(body(agent, nested, params_with_hole(agent)))
    assert answer.is_too_large
    assert answer.message.endswith((" 64", " 100000 values"))


@pytest.mark.parametrize("levels", [31, 40, 50])
def test_values_nested_too_deeply_are_invalid_params(agent: Agent, levels: int) -> None:
    nested = deep(levels)
    lists: Any = []
    for _ in range(levels):
        lists = [lists]
    for value in (nested, {"a": lists}):
        assert agent.send("mirror", agent.part(data=value)).code == -32602
        assert agent.send(metadata=value).code == -32602
        with_metadata = {**agent.part(text="hello"), "metadata": value}
        assert agent.send("echo", with_metadata).code == -32602
        params = agent.params()
        metadata = {**value, **params["metadata"]}
        assert agent.ask("send", {**params, "metadata": metadata}).code == -32602


@pytest.mark.rotating("agent", "location")
@pytest.mark.parametrize("levels", [10, 25, 26, 27, 28, 29])
@pytest.mark.parametrize("location", ["data", "message", "part"])
def test_accepted_nested_values_can_be_read_again(agent: Agent, location: str, levels: int) -> None:
    value, part = deep(levels), agent.part(data={"a": 1})
    if location == "data":
        part = agent.part(data=value)
    elif location == "part":
        part["metadata"] = value
    answer = agent.send("mirror", part, **({"metadata": value} if location == "message" else {}))
    assert answer.state == "completed"
    stored_task = agent.ask("get", {"id": answer.task["id"]}).task
    assert stored_task == answer.task
    assert json.dumps(value) in json.dumps(stored_task)
    listed = agent.ask("list", {"contextId": answer.task["contextId"]}).result["tasks"]
    assert [task["id"] for task in listed] == [stored_task["id"]]
    stream = agent.stream("mirror", part, **({"metadata": value} if location == "message" else {}))
    streamed_task = agent.ask("get", {"id": stream.task_id}).task
    assert json.dumps(value) in json.dumps(streamed_task)


def test_a_repeated_name_has_its_last_value(agent: Agent) -> None:
    answer = agent.post(body(agent, '{"a": 1, "b": 2, "a": 3}', params_with_hole(agent)))
    assert answer.task["artifacts"][0]["parts"][0]["data"]["value"] == {"a": 3, "b": 2}
    request = body(agent, '{"a": 1}', params_with_hole(agent))
    assert agent.post(request[:-1] + b', "params": {}, "message": {}}').code == -32602


STRINGS = ["messageId", "contextId", "taskId", "text", "name", "value", "skillId", "type"]


def params_with(agent: Agent, field: str, text: str) -> Any:
    """Return the params of a send with *text* in one of its strings."""
    members: dict[str, Any] = {}
    part, skill = agent.part(text="hello"), "mirror"
    if field in {"messageId", "contextId", "taskId"}:
        members = {field: text}
    elif field == "text":
        part = agent.part(text=text)
    elif field == "name":
        members = {"metadata": {text: 1}}
    elif field == "value":
        members = {"metadata": {"note": text}}
    elif field == "type":
        part = agent.part(raw="aGVsbG8=")
        part.get("file", part)["mediaType" if agent.modern else "mimeType"] = text
    else:
        skill = text
    return agent.params(skill, part, **members)


@pytest.mark.parametrize("field", STRINGS)
def test_lone_surrogates_are_a_parse_error_everywhere(agent: Agent, field: str) -> None:
    for text in (SURROGATE, "a\udfffb", "\ude00\ud83d"):
        assert agent.post(body(agent, "", params_with(agent, field, text))).code == -32700


def test_a_lone_surrogate_in_the_envelope_is_a_parse_error(rpc: Agent) -> None:
    assert rpc.ask("send", rpc.params(), id=SURROGATE).code == -32700
    assert rpc.ask("send", rpc.params(), method=SURROGATE).code == -32700
    assert rpc.ask("send", rpc.params(), **{SURROGATE: 1}).code == -32700


@pytest.mark.rotating("agent", "skill")
@pytest.mark.parametrize("skill", ["order.total", "anything"])
@pytest.mark.parametrize(
    "text",
    [
        '{"value": NaN}',
        '{"value": 1e999}',
        f'{{"value": {"1" * 5000}}}',
        '{"value": "\\ud800"}',
        '{"value": ' + "[" * 40 + "]" * 40 + "}",
        '{"value": ' + "[" * 100_000 + "]" * 100_000 + "}",
        "[1]",
        "1",
        "",
    ],
)
def test_text_that_is_not_an_acceptable_json_object_is_refused(
    agent: Agent, skill: str, text: str
) -> None:
    assert agent.send(skill, agent.part(text=text)).code == -32602


@pytest.mark.parametrize("field", STRINGS)
def test_control_characters_are_kept_or_refused_but_never_changed(agent: Agent, field: str) -> None:
    for text in ("a\0b", "\0", "a\r\nb", "\x1b[31m", "\x7f\x85\u2028\u202e"):
        answer = agent.ask("send", params_with(agent, field, text))
        expected = {"skillId": {-32601, -32602}, "taskId": {-32001, -32602}}
        assert answer.code in expected.get(field, {None, -32602})
        if answer.code is None:
            stored = agent.ask("get", {"id": answer.task["id"]})
            assert json.dumps(text)[1:-1] in json.dumps(stored.task), field


def test_an_object_of_500_000_keys_is_refused(agent: Agent) -> None:
    keys = json.dumps({str(number): 0 for number in range(500_000)})
    answer = agent.post(body(agent, keys, params_with_hole(agent)))
    assert answer.is_too_large
    assert "100000" in answer.message


@pytest.mark.parametrize("item", ["0", '""', "[]", "{}"])
def test_an_array_of_300_000_items_is_refused(agent: Agent, item: str) -> None:
    request = body(agent, "[" + ",".join([item] * 300_000) + "]", params_with_hole(agent, "echo"))
    assert agent.post(request).is_too_large


def test_commas_and_brackets_in_a_text_do_not_count(agent: Agent) -> None:
    for text in ("1,2,3\n" * 100_000, "[{" * 200_000, '\\"[,' * 100_000, "\\" * 100_001):
        answer = agent.send("mirror", agent.part(data={"value": text}))
        assert answer.data == {"value": text}


def test_a_body_of_99_000_values_is_parsed(rpc_v10: Agent) -> None:
    request = body(rpc_v10, "[" + "0," * 98_900 + "0]", params_with_hole(rpc_v10, "echo"))
    assert not rpc_v10.post(request).is_too_large


def test_a_message_of_100_000_parts_is_refused(rpc_v10: Agent) -> None:
    request = body(rpc_v10, "", rpc_v10.params("echo", *[rpc_v10.part(text="")] * 100_000))
    assert rpc_v10.post(request).is_too_large
