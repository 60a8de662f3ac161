"""Malformed responses of agents, which raise `A2AProtocolError`, and errors with any members."""

import copy
import sys
from collections.abc import Callable
from typing import Any

import pytest
from a2a.utils import errors as sdk_errors
from a2a.utils.error_handlers import build_error_details
from apcore_a2a_client import (
    A2AProtocolError,
    A2AServerError,
    AgentCard,
    Artifact,
    InvalidParamsError,
    Message,
    MethodNotFoundError,
    Part,
    PushNotificationConfig,
    ServerBusyError,
    SkillNotFoundError,
    Task,
    TaskArtifactUpdateEvent,
    TaskNotFoundError,
    TaskPage,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from apcore_a2a_client.codec import Model, dump, load
from apcore_a2a_client.errors import server_error
from apcore_a2a_client.tasks import read_event
from hypothesis import given
from hypothesis import strategies as st

from .shapes import MODELS, Json, few_examples, json_of, shapes, values

each_model = pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
json_values = values | st.sampled_from([{}, [], [None], [[]], {"": None}, 10**30, "x" * 99])
Reader = Callable[[Any], Any]

OTHER_NAMES = (
    *("kind", "type", "in", "file", "schemes", "security", "url", "preferredTransport"),
    *("protocolVersion", "additionalInterfaces", "supportsAuthenticatedExtendedCard"),
    *("pushNotificationConfig", "nextCursor", "nextPageToken", "metadata"),
)
"""Further JSON members that the models read."""


def check_reading(reader: Reader, data: Any) -> None:
    """Check that *data* is refused, or read as a model that survives a round trip."""
    try:
        model = reader(data)
    except A2AProtocolError:
        return
    assert type(model).from_dict(model.to_dict()) == model


@each_model
@few_examples
@given(data=json_values)
def test_any_json_is_read_as_a_model_or_refused(model: type[Model], data: Any) -> None:
    check_reading(model.from_dict, data)


@few_examples
@given(
    data=json_values | st.dictionaries(st.sampled_from(["kind", "task", "message"]), json_values)
)
def test_any_json_is_read_as_an_event_or_refused(data: Any) -> None:
    check_reading(read_event, data)


@each_model
@few_examples
@given(draw=st.data())
def test_a_model_with_one_changed_field_is_read_or_refused(
    model: type[Model], draw: st.DataObject
) -> None:
    data = json_of(draw.draw(shapes(MODELS[model])))
    container: Any = data
    while inner := [v for v in children(container) if isinstance(v, (dict, list)) and v]:
        if not draw.draw(st.booleans()):
            break
        container = draw.draw(st.sampled_from(inner))
    if isinstance(container, dict):
        name = draw.draw(st.sampled_from([*container, *OTHER_NAMES]))
        container[name] = draw.draw(json_values)
    else:
        container[0] = draw.draw(json_values)
    check_reading(model.from_dict, data)


def children(value: Any) -> list[Any]:
    return [*value.values()] if isinstance(value, dict) else [*value]


TASK: Json = {
    "id": "t",
    "status": {
        "state": "TASK_STATE_WORKING",
        "message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "hi"}]},
    },
    "artifacts": [{"artifactId": "a", "parts": [{"raw": "aGk="}]}],
}
CARD: Json = {
    "name": "a",
    "supportedInterfaces": [{"url": "u"}],
    "capabilities": {"streaming": True},
    "skills": [{"id": "s", "tags": ["x"]}],
    "securitySchemes": {"m": {"type": "mutualTLS"}},
}


def with_value(valid: Json, path: str, value: Any) -> Json:
    """Return a copy of *valid* with *value* at *path*: keys and indexes separated by spaces."""
    result = container = copy.deepcopy(valid)
    *steps, last = path.split()
    for step in steps:
        container = container[int(step)] if isinstance(container, list) else container[step]
    container[int(last) if isinstance(container, list) else last] = value
    return result


@pytest.mark.parametrize(
    ("model", "valid", "path", "value", "message"),
    [
        (Task, TASK, "id", 7, "id: it is not a string"),
        (Task, TASK, "status", "working", "status: TaskStatus is not an object"),
        (Task, TASK, "status", None, "Task has no status"),
        (Task, TASK, "status state", "TASK_STATE_DREAMING", "status: state: .*DREAMING"),
        (Task, TASK, "status state", 3, "status: state: "),
        (Task, TASK, "status state", [], "status: state: "),
        (Task, TASK, "status message role", "ROLE_KING", "status: message: role: .*ROLE_KING"),
        (Task, TASK, "status message parts", {}, "parts: it is not a list"),
        (Task, TASK, "status message parts 0", "hi", "parts: Part is not an object"),
        (Task, TASK, "status message parts 0", {"kind": "video"}, "parts: .*unknown kind: 'video'"),
        (Task, TASK, "status message parts 0", {"text": "", "raw": ""}, "parts: .*unknown kind"),
        (Task, TASK, "status message parts 0 text", {}, "parts: text: it is not a string"),
        (Task, TASK, "artifacts 0 parts 0 raw", "aGk*", "artifacts: parts: raw: .*base64"),
        (Task, TASK, "artifacts 0 parts 0 raw", "a", "raw: it is not base64"),
        (Task, TASK, "artifacts 0 parts 0 raw", "é", "raw: it is not base64"),
        (Task, TASK, "artifacts 0 parts 0 raw", 5, "raw: it is not a string"),
        (Task, TASK, "artifacts 0 parts 0 metadata", [], "metadata: it is not an object"),
        (Task, TASK, "artifacts", "a", "artifacts: it is not a list"),
        (Task, TASK, "history", [None], "history: Message is not an object"),
        (AgentCard, CARD, "name", None, "AgentCard has no name"),
        (AgentCard, CARD, "skills 0", {}, "skills: AgentSkill has no id"),
        (AgentCard, CARD, "skills 0 tags 0", 1, "skills: tags: it is not a string"),
        (AgentCard, CARD, "capabilities", [], "capabilities: AgentCapabilities is not an object"),
        (AgentCard, CARD, "capabilities streaming", 1, "streaming: it is not a boolean"),
        (
            AgentCard,
            CARD,
            "supportedInterfaces 0",
            {},
            "supportedInterfaces: AgentInterface has no",
        ),
        (AgentCard, CARD, "securitySchemes", [], "securitySchemes: it is not an object"),
        (AgentCard, CARD, "securitySchemes m", 1, "securitySchemes: SecurityScheme is not an obj"),
        (TaskPage, {}, "pageSize", True, "pageSize: it is not a number"),
        (TaskPage, {}, "totalSize", "5", "totalSize: it is not a number"),
        (TaskPage, {}, "nextPageToken", 5, "it is not a string"),
    ],
)
def test_an_error_names_the_malformed_field(
    model: type[Model], valid: Json, path: str, value: Any, message: str
) -> None:
    with pytest.raises(A2AProtocolError, match=message):
        model.from_dict(with_value(valid, path, value))


@pytest.mark.parametrize(
    ("reader", "data", "message"),
    [
        (Task.from_dict, None, "Task is not an object"),
        (Task.from_dict, {"status": {"state": "working"}}, "Task has no id"),
        (TaskStatus.from_dict, {}, "TaskStatus has no state"),
        (TaskStatusUpdateEvent.from_dict, {"taskId": "t"}, "has no status"),
        (TaskArtifactUpdateEvent.from_dict, {"taskId": "t"}, "has no artifact"),
        (PushNotificationConfig.from_dict, {"taskId": "t"}, "PushNotificationConfig has no url"),
        (Part.from_dict, {}, "unknown kind"),
        (Part.from_dict, {"kind": "file", "file": "x"}, "unknown kind: 'file'"),
        (Artifact.from_dict, {"parts": None, "extensions": [0]}, "extensions: it is not a string"),
        (Message.from_dict, {"metadata": 1}, "metadata: it is not an object"),
        (read_event, {}, "neither a task nor a message"),
        (read_event, [], "neither a task nor a message"),
        (read_event, {"kind": "joke"}, "neither a task nor a message"),
        (read_event, {"kind": []}, "neither a task nor a message"),
        (read_event, {"kind": "task"}, "Task has no id"),
        (read_event, {"message": 1}, "Message is not an object"),
    ],
)
def test_an_error_says_what_is_missing_or_malformed(
    reader: Reader, data: Any, message: str
) -> None:
    with pytest.raises(A2AProtocolError, match=message):
        reader(data)


def push_config(schemes: Any) -> Json:
    return {"taskId": "t", "url": "u", "authentication": {"schemes": schemes}}


@pytest.mark.parametrize("schemes", [5, True, {"Bearer": 1}, "Bearer", [5], [[]], [None]])
def test_invalid_authentication_schemes_are_refused_or_ignored(schemes: Any) -> None:
    try:
        config = PushNotificationConfig.from_dict(push_config(schemes))
    except A2AProtocolError:
        return
    assert config.authentication is None


def test_an_error_does_not_repeat_a_long_value() -> None:
    for reader, data in [
        (TaskStatus.from_dict, {"state": "x" * 10**6}),
        (Part.from_dict, {"kind": "x" * 10**6}),
    ]:
        with pytest.raises(A2AProtocolError) as caught:
            reader(data)
        assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"hello",
        b"{",
        b"{'a': 1}",
        b'{"a": 1,}',
        b'{"a": 1} x',
        b'{"a": NaN}',
        b"[Infinity]",
        b"-Infinity",
        b"1e999",
        b"9" * 5000,
        b'"\xff"',
        b'"\xc3"',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
    ],
    ids=lambda body: body[:10],
)
def test_invalid_json_is_refused(body: bytes) -> None:
    with pytest.raises(A2AProtocolError, match="not JSON"):
        load(body)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), b"x", {1}, "\ud800"])
def test_a_value_that_is_not_json_is_not_sent(value: Any) -> None:
    with pytest.raises(ValueError, match="can't be sent"):
        dump({"a": [value]})


def test_a_circular_value_is_not_sent() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(ValueError, match="can't be sent"):
        dump(circle)


DEEPEST_PATH = "tasks 0 status message parts 0"


@pytest.mark.parametrize(
    "reader",
    [
        lambda deep: TaskStatus.from_dict({"state": deep}),
        lambda deep: Part.from_dict({"kind": deep}),
        lambda deep: TaskPage.from_dict(
            with_value({"tasks": [TASK]}, DEEPEST_PATH, {"kind": deep})
        ),
        lambda deep: AgentCard.from_dict({"name": deep}),
        lambda deep: PushNotificationConfig.from_dict(push_config([deep])),
        lambda deep: read_event({"kind": deep}),
        lambda deep: server_error({"message": deep}, 200),
        lambda deep: server_error({"data": [{"reason": deep}]}, 200),
        lambda deep: server_error({"data": {"type": deep}}, 200),
        lambda deep: server_error(deep, 200),
    ],
)
def test_deep_json_that_python_can_load_raises_no_recursion_error(reader: Reader) -> None:
    for depth in range(sys.getrecursionlimit() - 200, sys.getrecursionlimit()):
        try:
            reader(load("[" * depth + "]" * depth))
        except A2AProtocolError as error:
            if "not JSON" in str(error):
                return


SDK_ERROR_CODES = {
    error_type: code
    for error_type, code in sdk_errors.JSON_RPC_ERROR_CODE_MAP.items()
    if code not in (-32700, -32600, -32603)
}


@pytest.mark.parametrize("error_type", SDK_ERROR_CODES, ids=lambda error_type: error_type.__name__)
def test_each_error_of_the_sdk_is_mapped_to_the_error_of_the_same_name(error_type: Any) -> None:
    details, code = build_error_details(error_type()), SDK_ERROR_CODES[error_type]
    by_code = server_error({"code": code, "message": "no"}, 200)
    over_rpc = server_error({"code": code, "message": "no", "data": details}, 200)
    over_rest = server_error({"code": 400, "message": "no", "details": details}, 400)
    assert {type(e).__name__ for e in (by_code, over_rpc, over_rest)} == {error_type.__name__}
    assert {e.code for e in (by_code, over_rpc, over_rest)} == {code}
    assert over_rpc.reason == over_rest.reason == sdk_errors.A2A_ERROR_REASONS[error_type]
    assert over_rest.status_code == 400
    assert over_rpc.data == details


@pytest.mark.parametrize("code", [-32700, -32600, -32603, -32000, -32099, -1, 17])
def test_an_error_with_a_generic_or_unknown_code_is_a_plain_server_error(code: int) -> None:
    error = server_error({"code": code, "message": "no"}, 200)
    assert type(error) is A2AServerError
    assert error.code == (code if code < 0 else -32603)
    assert (str(error), error.reason) == ("no", "")


@pytest.mark.parametrize(
    ("code", "data", "error_type"),
    [
        (-32601, None, MethodNotFoundError),
        (-32601, {"type": "MODULE_NOT_FOUND"}, SkillNotFoundError),
        (-32601, {"type": "ModuleNotFoundError"}, SkillNotFoundError),
        (-32601, [{"reason": "MODULE_DISABLED"}], SkillNotFoundError),
        (-32602, [{"reason": "SCHEMA_VALIDATION_ERROR"}], InvalidParamsError),
        (-32603, [{"reason": "SERVER_BUSY"}], ServerBusyError),
        (-32029, None, ServerBusyError),
        (-32001, [{"reason": "OUR_OWN_REASON"}], TaskNotFoundError),
        (-32001, "text", TaskNotFoundError),
        (-32001, [1, None, "x", []], TaskNotFoundError),
        (-32001, [{"@type": "other"}, {"reason": "TASK_NOT_FOUND"}], TaskNotFoundError),
        (-32001, {"errors": []}, TaskNotFoundError),
        ("-32001", None, A2AServerError),
        (None, [{"reason": "TASK_NOT_FOUND"}], TaskNotFoundError),
        (-32001.0, None, A2AServerError),
    ],
)
def test_the_type_of_an_error_follows_its_reason_or_else_its_code(
    code: Any, data: Any, error_type: type
) -> None:
    error = server_error({"code": code, "message": "no", "data": data}, 200)
    assert type(error) is error_type
    assert error.data == data
    assert isinstance(error.code, int)


@pytest.mark.parametrize(
    ("status", "error_type"),
    [(429, ServerBusyError), (503, ServerBusyError), (500, A2AServerError), (404, A2AServerError)],
)
def test_the_http_status_shows_whether_the_agent_is_busy(status: int, error_type: type) -> None:
    error = server_error({}, status)
    assert type(error) is error_type
    assert (str(error), error.status_code) == (f"HTTP {status}", status)


@few_examples
@given(error=json_values, status=st.sampled_from([200, 400, 429]))
def test_any_json_can_be_an_error(error: Any, status: int) -> None:
    assert isinstance(server_error(error, status), A2AServerError)


@few_examples
@given(
    error=st.fixed_dictionaries(
        {},
        optional={
            "code": json_values | st.sampled_from([-32602, -32001]),
            "message": json_values,
            "data": json_values,
            "details": json_values,
        },
    )
)
def test_an_error_may_have_any_members(error: Json) -> None:
    mapped_error = server_error(error, 200)
    assert isinstance(mapped_error.code, int)
    assert isinstance(mapped_error.reason, str)
    assert len(str(mapped_error)) <= 500
    if isinstance(mapped_error, InvalidParamsError):
        assert isinstance(mapped_error.errors, list)


FIELDS = [{"field": "a.b", "message": "too small"}, {"field": "", "message": "no"}]
VIOLATIONS = [{"field": "a.b", "description": "too small"}, {"description": "no"}, "odd"]


@pytest.mark.parametrize(
    ("data", "errors"),
    [
        ({"errors": FIELDS}, FIELDS),
        ({"errors": [*FIELDS, "odd"]}, FIELDS),
        ([{"reason": "INVALID_PARAMS"}, {"fieldViolations": VIOLATIONS}], FIELDS),
        ([{"fieldViolations": VIOLATIONS[:1]}, {"fieldViolations": VIOLATIONS[1:]}], FIELDS),
        ([{"fieldViolations": "odd"}], []),
        ({"errors": "odd"}, []),
        ({}, []),
        (None, []),
        ("odd", []),
        ([], []),
    ],
)
def test_an_invalid_params_error_lists_the_fields(data: Any, errors: list[Json]) -> None:
    error = server_error({"code": -32602, "message": "no", "data": data}, 200)
    assert isinstance(error, InvalidParamsError)
    assert error.errors == errors


def test_field_violations_of_the_sdk_are_read() -> None:
    details = build_error_details(
        sdk_errors.InvalidParamsError(data={"errors": [{"field": "a", "message": "b"}]})
    )
    error = server_error({"code": 400, "message": "no", "details": details}, 400)
    assert isinstance(error, InvalidParamsError)
    assert error.errors == [{"field": "a", "message": "b"}]


def test_a_state_of_0_3_is_read_and_unknown_states_are_refused() -> None:
    assert TaskState.read("input-required") is TaskState.INPUT_REQUIRED
    for state in ("WORKING", "Working", "task_state_working", "", None, True):
        with pytest.raises(A2AProtocolError):
            TaskState.read(state)
