"""Sends with invalid messages and unknown skills."""

import json
from typing import Any

import pytest

from .checking_client import Agent, Json
from .modules import SECRET

pytestmark = pytest.mark.rotating("agent", "rpc", "dialect")

ABSENT: Any = object()
NOT_STRINGS: list[Any] = [5, 1.5, True, [], ["a"], {}, {"a": 1}]
NOT_OBJECTS: list[Any] = ["text", 5, True, [], [{}]]


def copy_with(params: Json, path: str, value: object) -> Json:
    """Return a copy of *params* with *value* at a path such as `message.parts.0.text`."""
    copy: Json = json.loads(json.dumps(params))
    *parents, name = path.split(".")
    container: Any = copy
    for parent in parents:
        container = container[int(parent) if parent.isdigit() else parent]
    if value is ABSENT:
        del container[name]
    else:
        container[int(name) if name.isdigit() else name] = value
    return copy


def with_member(agent: Agent, path: str, value: object) -> Json:
    """Return the params of a send with one member replaced."""
    return copy_with({**agent.params(), "configuration": {}}, path, value)


@pytest.mark.parametrize("skill", [ABSENT, None, "", *NOT_STRINGS])
def test_a_skill_id_must_be_a_non_empty_string(agent: Agent, skill: object) -> None:
    params = with_member(agent, "metadata.skillId", skill)
    assert agent.ask("send", params).code == -32602
    assert agent.ask("stream", params).code == -32602
    message = {
        **agent.params()["message"],
        "metadata": {} if skill is ABSENT else {"skillId": skill},
    }
    assert agent.ask("send", {"message": message}).code == -32602


@pytest.mark.parametrize(
    "skill",
    [
        "no.such",
        "echo ",
        "ECHO",
        "echo\0",
        "echo\r\n",
        "../../../passwd",
        "order/total",
        "order.total.",
        "order..total",
        "__class__",
        "execute",
        "%s%n{0}",
        "system.health",
        "system.control.toggle",
        "system.",
        "\x1b[31mred",
        "a\u202eb",
        "x" * 1_000_000,
    ],
)
def test_an_unknown_skill_is_not_found(agent: Agent, skill: str) -> None:
    for answer in (agent.send(skill), agent.stream(skill)):
        assert answer.code == -32601
        assert len(answer.response.content) < 2000
        assert not any(ord(letter) < 32 for letter in str(answer.error and answer.error["message"]))


@pytest.mark.rotating("agent", "member")
@pytest.mark.parametrize("member", ["message", "metadata", "configuration"])
@pytest.mark.parametrize("value", NOT_OBJECTS)
def test_members_that_are_not_objects_are_invalid_params(
    agent: Agent, member: str, value: object
) -> None:
    for operation in ("send", "stream"):
        assert agent.ask(operation, with_member(agent, member, value)).code == -32602


@pytest.mark.parametrize("value", [ABSENT, None])
def test_a_missing_message_is_invalid_params(agent: Agent, value: object) -> None:
    answer = agent.ask("send", with_member(agent, "message", value))
    assert answer.code == -32602
    assert answer.fields == ["params.message"]


@pytest.mark.rotating("agent", "member")
@pytest.mark.parametrize("member", ["messageId", "contextId", "taskId"])
@pytest.mark.parametrize("value", NOT_STRINGS)
def test_ids_that_are_not_strings_are_invalid_params(
    agent: Agent, member: str, value: object
) -> None:
    answer = agent.ask("send", with_member(agent, f"message.{member}", value))
    assert answer.code == -32602
    assert answer.fields == [f"params.message.{member}"]


@pytest.mark.parametrize("member", ["messageId", "contextId"])
def test_an_id_of_300_characters_is_kept_or_refused(agent: Agent, member: str) -> None:
    answer = agent.send("echo", **{member: "ü" * 300})
    assert answer.code in {None, -32602}
    if answer.code is None:
        assert answer.task["history"][0][member] == "ü" * 300


@pytest.mark.parametrize("member", ["messageId", "contextId"])
def test_an_id_of_100_000_characters_is_invalid_params(agent: Agent, member: str) -> None:
    assert agent.send("echo", **{member: "x" * 100_000}).code == -32602


def test_a_long_task_id_is_unknown_or_invalid(agent: Agent) -> None:
    for length in (300, 100_000):
        answer = agent.send("echo", taskId="x" * length)
        assert answer.code in {-32001, -32602}
        assert len(answer.response.content) < 2000


@pytest.mark.parametrize("role", ["system", "", "USER", 1, True, [], ["user"], {}, {"a": 1}])
def test_a_wrong_role_is_invalid_params(agent: Agent, role: object) -> None:
    answer = agent.ask("send", with_member(agent, "message.role", role))
    assert answer.code == -32602
    assert answer.fields == ["params.message.role"]


@pytest.mark.parametrize("parts", [ABSENT, None, []])
def test_a_message_without_parts_is_invalid_params(agent: Agent, parts: object) -> None:
    for operation in ("send", "stream"):
        answer = agent.ask(operation, with_member(agent, "message.parts", parts))
        assert answer.code == -32602


@pytest.mark.parametrize("parts", ["text", 5, True, {}, {"text": "hello"}])
def test_parts_that_are_not_an_array_are_invalid_params(agent: Agent, parts: object) -> None:
    assert agent.ask("send", with_member(agent, "message.parts", parts)).code == -32602


@pytest.mark.parametrize("part", [None, "text", 5, True, [], [{"text": "hello"}]])
def test_a_part_that_is_not_an_object_is_invalid_params(agent: Agent, part: object) -> None:
    assert agent.send("echo", part).code == -32602
    assert agent.send("echo", agent.part(text="hello"), part).code == -32602


@pytest.mark.parametrize(
    "part",
    [
        {},
        {"kind": "text"},
        {"kind": "text", "text": None},
        {"kind": "video", "video": "hello"},
        {"kind": "data"},
        {"kind": "file"},
        {"kind": "file", "file": None},
        {"kind": "file", "file": {}},
        {"kind": "file", "file": {"name": "a.txt"}},
        {"kind": "file", "file": "text"},
        {"kind": "file", "file": []},
        {"metadata": {}},
    ],
)
def test_a_part_without_content_is_invalid_params(agent: Agent, part: Json) -> None:
    assert agent.send("mirror", part).code == -32602
    assert agent.send("mirror", agent.part(data={"a": 1}), part).code == -32602


@pytest.mark.parametrize(
    "part",
    [
        {"text": "hello", "data": {}},
        {"text": "hello", "raw": "aGk="},
        {"raw": "aGk=", "url": "https://example.com"},
        {"kind": "text", "text": "hello", "file": {"bytes": "aGk="}},
        {"kind": "file", "file": {"bytes": "aGk=", "uri": "https://example.com"}},
    ],
)
def test_a_part_with_two_contents_is_invalid_params(agent: Agent, part: Json) -> None:
    assert agent.send("mirror", part).code == -32602


@pytest.mark.parametrize(
    "part",
    [
        {"text": "hello", "data": None, "raw": None, "url": None},
        {"text": None, "data": {"text": "hello"}},
        {"text": None, "data": None, "raw": "aGVsbG8="},
        {"kind": "file", "file": {"bytes": "aGVsbG8=", "uri": None, "name": None}},
        {"kind": "file", "file": {"bytes": None, "uri": "https://example.com/a.txt"}},
    ],
)
def test_a_null_content_counts_as_absent(agent: Agent, part: Json) -> None:
    """ProtoJSON requires it (A2A 1.0 §5.5), and SDKs of 0.3 write such nulls."""
    assert agent.send("mirror", part).state == "completed"


@pytest.mark.parametrize("kind", ["video", "", 5, [], {}, "data", "file"])
def test_a_part_whose_kind_does_not_fit_its_content_is_invalid_params_in_0_3(
    rpc_v03: Agent, kind: object
) -> None:
    assert rpc_v03.send("echo", {"kind": kind, "text": "hello"}).code == -32602


@pytest.mark.parametrize("text", NOT_STRINGS)
def test_a_text_that_is_not_a_string_is_invalid_params(agent: Agent, text: object) -> None:
    assert agent.send("echo", agent.part(text=text)).code == -32602


@pytest.mark.parametrize(
    "raw", ["!", "a", "aGk=aGk=", "aG k=", "héllo", "\0", "=", "aGk\n", 5, [], {}]
)
def test_files_that_are_not_base64_are_invalid_params(agent: Agent, raw: object) -> None:
    assert agent.send("mirror", agent.part(raw=raw)).code == -32602


@pytest.mark.parametrize("url", ["http://[::1", "https://[not-an-ip]/x", 5, [], {}])
def test_invalid_urls_are_invalid_params(agent: Agent, url: object) -> None:
    part = {"url": url} if agent.modern else {"kind": "file", "file": {"uri": url}}
    assert agent.send("mirror", part).code == -32602


@pytest.mark.rotating("agent", "member")
@pytest.mark.parametrize("member", ["name", "mimeType"])
@pytest.mark.parametrize("value", NOT_STRINGS)
def test_a_file_name_or_media_type_that_is_not_a_string_is_invalid_params(
    agent: Agent, member: str, value: object
) -> None:
    part: Json = {"kind": "file", "file": {"bytes": "aGk=", member: value}}
    modern_names = {"name": "filename", "mimeType": "mediaType"}
    if agent.modern:
        part = {"raw": "aGk=", modern_names[member]: value}
    assert agent.send("mirror", part).code == -32602


@pytest.mark.parametrize("metadata", NOT_OBJECTS)
def test_metadata_that_is_not_an_object_is_invalid_params(agent: Agent, metadata: object) -> None:
    assert agent.send("echo", metadata=metadata).code == -32602
    assert agent.send("echo", {**agent.part(text="hello"), "metadata": metadata}).code == -32602


@pytest.mark.rotating("agent", "member")
@pytest.mark.parametrize("member", ["extensions", "referenceTaskIds"])
@pytest.mark.parametrize("value", ["text", 5, True, {}, [5], [None], [[]], [{}]])
def test_members_that_are_not_lists_of_strings_are_invalid_params(
    agent: Agent, member: str, value: object
) -> None:
    assert agent.send("echo", **{member: value}).code == -32602


@pytest.mark.parametrize("length", [-1, 1.5, "1", "x", True, [], {}, 2**31, 10**30])
def test_a_history_length_that_is_not_a_count_is_invalid_params(
    agent: Agent, length: object
) -> None:
    wrong = with_member(agent, "configuration.historyLength", length)
    assert agent.ask("send", wrong).code == -32602
    if not agent.restful or length != "1":  # in a query, every value is text
        get = {"id": agent.send().task["id"], "historyLength": length}
        assert agent.ask("get", get).code == -32602


@pytest.mark.parametrize("value", ["text", 5, {}, [5], [None]])
def test_accepted_output_modes_that_are_not_strings_are_invalid_params(
    agent: Agent, value: object
) -> None:
    wrong = with_member(agent, "configuration.acceptedOutputModes", value)
    assert agent.ask("send", wrong).code == -32602


@pytest.mark.parametrize("value", ["true", 1, 0, [], {}])
def test_a_blocking_option_that_is_not_a_boolean_is_invalid_params(
    agent: Agent, value: object
) -> None:
    member = "returnImmediately" if agent.modern else "blocking"
    assert agent.ask("send", with_member(agent, f"configuration.{member}", value)).code == -32602


def test_wrong_inputs_are_named_in_the_errors(agent: Agent) -> None:
    data = {"customer": {"text": SECRET}, "items": [{"count": 1}, {"name": "x", "count": 0}]}
    for answer in (
        agent.send("order.total", agent.part(data=data)),
        agent.stream("order.total", agent.part(data=data)),
    ):
        assert answer.code == -32602
        # apcore does not name a missing nested field
        assert answer.fields == ["items.0", "items.1.count"]


def test_missing_inputs_are_named_in_the_errors(agent: Agent) -> None:
    answer = agent.send("order.total", agent.part(data={}))
    assert answer.code == -32602
    assert answer.fields == ["customer", "items"]


@pytest.mark.parametrize("data", [None, 5, True, "text", [], [{}]])
def test_data_that_is_not_an_object_is_invalid_params(agent: Agent, data: object) -> None:
    assert agent.send("order.total", agent.part(data=data)).code == -32602


def test_thousands_of_wrong_inputs_get_a_short_response(agent: Agent) -> None:
    data = {"customer": {"text": "x"}, "items": [{}] * 4900}
    answer = agent.send("order.total", agent.part(data=data))
    assert answer.code == -32602
    assert len(answer.response.content) < 100_000


def test_refused_values_are_not_echoed(agent: Agent) -> None:
    """The client checks each response for `SECRET`."""
    data: Json = {"customer": {"text": "x"}, "items": SECRET, SECRET: SECRET}
    answer = agent.send("order.total", agent.part(data=data))
    assert answer.code == -32602
    data = {"customer": {"text": "x"}, "items": [{"name": {"p": SECRET}, "count": SECRET}]}
    assert agent.send("order.total", agent.part(data=data)).code == -32602


def test_a_refused_send_creates_no_task(agent: Agent) -> None:
    context = f"refused-{agent.dialect}"
    refused: list[tuple[str, Json]] = [
        ("no.such", agent.part(text="hello")),
        ("order.total", agent.part(data={})),
        ("echo", {}),
    ]
    for skill, part in refused:
        assert agent.send(skill, part, contextId=context).code in {-32601, -32602}
        assert agent.stream(skill, part, contextId=context).code in {-32601, -32602}
    assert agent.ask("list", {"contextId": context}).result["tasks"] == []
