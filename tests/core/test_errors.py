"""Error answers for callers, made from errors of apcore and the SDK and from other exceptions."""

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from a2a.types import InvalidParamsError, TaskNotFoundError
from a2a.utils.errors import (
    JSON_RPC_ERROR_CODE_MAP,
    A2AError,
    InternalError,
    JSONParseError,
    UnsupportedOperationError,
)
from apcore import ACL, ACLRule, CancelToken, Context, Executor, Registry
from apcore import errors as apcore_errors
from apcore_a2a_core import ErrorMapper, OutputError, PartError, clean, error_details
from apcore_a2a_core.errors import CONTROL

from .conftest import CallbackModule, OrderModule

RaisedBy = Callable[..., BaseException]
NOT_FOUND = {"code": -32001, "message": "Task not found", "data": {"type": "TaskNotFoundError"}}
MODULE_FAILED = {
    "code": -32603,
    "message": "Internal error",
    "data": {"type": "ModuleExecuteError"},
}
to_answer = ErrorMapper().to_jsonrpc_error


def schema_of(registry: Registry, module_id: str) -> dict[str, Any]:
    definition = registry.get_definition(module_id)
    assert definition
    return definition.input_schema


def test_an_unknown_skill_is_method_not_found(raised_by: RaisedBy) -> None:
    error = raised_by("no.such")
    assert to_answer(error, skill="no.such") == {
        "code": -32601,
        "message": "Skill not found: no.such",
        "data": {"type": "ModuleNotFoundError"},
    }


def test_a_disabled_skill_gets_the_answer_of_an_unknown_one() -> None:
    disabled = to_answer(apcore_errors.ModuleDisabledError("a.b"), skill="a.b")
    assert disabled == to_answer(apcore_errors.ModuleNotFoundError("a.b"), skill="a.b")


def test_pythons_own_module_not_found_error_is_an_internal_error() -> None:
    assert to_answer(ModuleNotFoundError("numpy"))["code"] == -32603


def test_a_rejected_field_is_named_by_its_path(raised_by: RaisedBy, registry: Registry) -> None:
    inputs = {"items": [{"name": 7, "count": 1}]}
    error = raised_by("shop.order", inputs)
    answer = to_answer(error, skill="shop.order", inputs=inputs)
    assert (answer["code"], answer["message"]) == (-32602, "Invalid params")
    assert answer["data"]["type"] == "SchemaValidationError"
    [violation] = answer["data"]["errors"]
    assert violation["field"] == "items.0.name"
    assert violation["code"] == "type"
    assert "string" in violation["message"]


def test_a_missing_field_is_named_although_apcore_does_not_report_it(
    raised_by: RaisedBy, registry: Registry
) -> None:
    error = raised_by("shop.order", {"note": "x"})
    schema = schema_of(registry, "shop.order")
    answer = to_answer(error, skill="shop.order", inputs={"note": "x"}, schema=schema)
    assert [e["field"] for e in answer["data"]["errors"]] == ["items"]
    answer_without_schema = to_answer(error, skill="shop.order")
    assert [e["field"] for e in answer_without_schema["data"]["errors"]] == [""]


def test_rejected_values_are_not_in_messages(raised_by: RaisedBy, registry: Registry) -> None:
    inputs = {"items": [], "secret": "hunter2"}
    answer = to_answer(raised_by("shop.order", inputs), skill="shop.order", inputs=inputs)
    assert answer["data"]["errors"][0]["field"] == "secret"
    assert "hunter2" not in str(answer)


def test_messages_of_jsonschema_that_begin_with_the_value_are_replaced(
    raised_by: RaisedBy, registry: Registry
) -> None:
    module = OrderModule()
    properties = {"n": {"type": "integer"}, "s": {"type": "string", "maxLength": 3}}
    module.input_schema = {"type": "object", "properties": properties}
    registry.register("dict.schema", module)
    for inputs in ({"n": "hunter2"}, {"n": {"hunter2": 1}}, {"s": "hunter2"}, {"n": [1]}):
        answer = to_answer(raised_by("dict.schema", inputs), skill="dict.schema", inputs=inputs)
        assert answer["code"] == -32602
        assert "hunter2" not in str(answer)
        assert answer["data"]["errors"][0]["message"].startswith("Invalid value")


def test_violations_in_both_formats_of_apcore_are_read() -> None:
    errors = [
        {"field": "a.b", "code": "int_type", "message": "must be int"},
        {"field": "", "code": "missing", "message": "Field required"},
        {"path": "/a~1b/0/c~0d", "keyword": "type", "message": "Input should be 'x' or 'y'"},
        {},
    ]
    error = apcore_errors.SchemaValidationError("Input validation failed", errors=errors)
    answer = to_answer(error, inputs={}, schema={"required": ["name"]})
    assert answer["data"]["errors"] == [
        {"field": "a.b", "code": "int_type", "message": "must be int"},
        {"field": "name", "code": "missing", "message": "Field required"},
        {"field": "a/b.0.c~d", "code": "type", "message": "Input should be 'x' or 'y'"},
        {"field": "", "code": "invalid", "message": ""},
    ]


def test_violations_with_members_of_other_types_are_read() -> None:
    errors: list[Any] = [
        {"path": None},
        {"path": ["a", 0]},
        {"path": 5},
        {"field": 7, "message": None},
    ]
    error = apcore_errors.SchemaValidationError("Input validation failed", errors=errors)
    fields = [entry["field"] for entry in to_answer(error, inputs={})["data"]["errors"]]
    assert fields == ["", "a.0", "", "7"]


def test_an_output_that_fails_validation_is_an_internal_error(
    raised_by: RaisedBy, registry: Registry
) -> None:
    registry.register("shop.broken", OrderModule({"total": "hunter2"}))
    error = raised_by("shop.broken", {"items": []})
    assert type(error).__name__ == "SchemaValidationError"
    assert to_answer(error, skill="shop.broken", inputs={"items": []}) == MODULE_FAILED


def module_calling(module_id: str, inputs: dict[str, Any] | None = None) -> CallbackModule:
    async def body(context: Any) -> object:
        return await context.executor.call_async(module_id, inputs or {}, context)

    return CallbackModule(body)


def module_raising(error: BaseException) -> CallbackModule:
    async def body(context: Any) -> object:
        raise error

    return CallbackModule(body)


@pytest.mark.parametrize("inner", ["shop.order", "no.such"])
def test_a_rejected_nested_call_is_an_internal_error(
    raised_by: RaisedBy, registry: Registry, inner: str
) -> None:
    registry.register("outer.call", module_calling(inner))
    error = raised_by("outer.call")
    assert to_answer(error, skill="outer.call") == MODULE_FAILED
    assert to_answer(error) == MODULE_FAILED


def test_without_a_call_chain_a_foreign_module_id_marks_a_nested_call() -> None:
    error = apcore_errors.ModuleNotFoundError("inner.one")
    assert to_answer(error, skill="outer.call") == MODULE_FAILED


def test_a_nested_denial_is_an_internal_error_but_logged_as_a_denial(
    raised_by: RaisedBy, registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    registry.register("outer.call", module_calling("shop.order", {"items": []}))
    rules = [ACLRule(callers=["@external"], targets=["outer.*"], effect="allow")]
    error = raised_by("outer.call", acl=ACL(rules=rules, default_effect="deny"))
    assert type(error).__name__ == "ACLDeniedError"
    assert to_answer(error, skill="outer.call") == MODULE_FAILED
    assert [r.levelno for r in caplog.records if "denied" in r.message] == [logging.WARNING]


def test_a_denied_skill_and_an_unknown_task_get_the_same_answer(
    raised_by: RaisedBy, caplog: pytest.LogCaptureFixture
) -> None:
    error = raised_by("shop.order", {"items": []}, acl=ACL(rules=[], default_effect="deny"))
    caplog.clear()
    answer = to_answer(error, skill="shop.order")
    assert answer == NOT_FOUND
    assert repr(answer) == repr(to_answer(TaskNotFoundError()))
    assert error_details(answer) == error_details(to_answer(TaskNotFoundError()))
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "shop.order" in record.getMessage()
    assert "caller_id" in record.getMessage()


def test_details_of_a_module_error_are_logged_but_not_returned(
    raised_by: RaisedBy, registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    registry.register(
        "bad.module", module_raising(RuntimeError("db password=hunter2 in /etc/app/x.cfg"))
    )
    error = raised_by("bad.module")
    caplog.clear()
    assert to_answer(error, skill="bad.module") == MODULE_FAILED
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info
    assert "hunter2" in caplog.text


def test_the_message_of_a_timeout_does_not_state_the_time_limit() -> None:
    answer = to_answer(apcore_errors.ModuleTimeoutError("a.b", 1234), skill="a.b")
    assert answer == {
        "code": -32603,
        "message": "Execution timed out",
        "data": {"type": "ModuleTimeoutError"},
    }
    nested = apcore_errors.ModuleTimeoutError("inner.one", 1234)
    nested.details["call_chain"] = ["a.b", "inner.one"]
    assert to_answer(nested, skill="a.b") == answer


@pytest.mark.parametrize(
    "error", [TimeoutError("30 s"), SystemExit(3), KeyboardInterrupt(), ZeroDivisionError("x")]
)
def test_any_other_exception_is_an_internal_error(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    answer = to_answer(error, skill="a.b")
    assert answer == {
        "code": -32603,
        "message": "Internal error",
        "data": {"type": "InternalError"},
    }
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


def test_the_message_of_an_invalid_input_is_returned_without_paths(
    raised_by: RaisedBy, registry: Registry
) -> None:
    invalid_input = apcore_errors.InvalidInputError(
        "width must be positive, see /opt/app/limits.py"
    )
    registry.register("image.resize", module_raising(invalid_input))
    answer = to_answer(raised_by("image.resize"), skill="image.resize")
    assert answer["code"] == -32602
    assert answer["message"] == "Invalid input: width must be positive, see"
    assert answer["data"] == {"type": "InvalidInputError"}


@pytest.mark.anyio
async def test_a_malformed_chunk_is_an_internal_error(registry: Registry) -> None:
    class Streaming(CallbackModule):
        async def stream(self, inputs: dict[str, Any], context: Any) -> Any:
            yield "not an object"

    registry.register("text.count", Streaming(lambda context: context))
    with pytest.raises(apcore_errors.InvalidInputError) as caught:
        [chunk async for chunk in Executor(registry).stream("text.count", {})]
    assert to_answer(caught.value, skill="text.count") == MODULE_FAILED


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (apcore_errors.CallDepthExceededError(9, 8, ["a"]), "Safety limit exceeded"),
        (apcore_errors.CircularCallError("a", ["a", "b", "a"]), "Safety limit exceeded"),
        (apcore_errors.CallFrequencyExceededError("a", 4, 3, ["a"]), "Safety limit exceeded"),
        (apcore_errors.ApprovalDeniedError(SimpleNamespace(reason="no"), "a"), "Approval denied"),
        (apcore_errors.ApprovalTimeoutError(None, "a"), "Approval timed out"),
        (apcore_errors.InternalError("cfg /a/b"), "Internal error"),
        (apcore_errors.CircuitBreakerOpenError("a"), "Internal error"),
    ],
)
def test_other_errors_of_apcore_have_fixed_messages(error: Exception, message: str) -> None:
    answer = to_answer(error, skill="a.b")
    assert (answer["code"], answer["message"]) == (-32603, message)
    assert answer["data"] == {
        "type": type(error).__name__ if message != "Internal error" else "InternalError"
    }


def test_a_canceled_call_is_not_logged_as_an_error(
    raised_by: RaisedBy, caplog: pytest.LogCaptureFixture
) -> None:
    token = CancelToken()
    token.cancel()
    error = raised_by("shop.order", {"items": []}, context=Context.create(cancel_token=token))
    caplog.clear()
    answer = to_answer(error, skill="shop.order")
    assert answer["message"] == "Canceled"
    assert not caplog.records


def test_subclasses_are_mapped_like_their_base_classes() -> None:
    class TooWideError(apcore_errors.InvalidInputError):
        pass

    assert to_answer(TooWideError("too wide"))["message"] == "Invalid input: too wide"
    assert to_answer(apcore_errors.ModuleError("OWN_CODE", "x"))["message"] == "Internal error"


def test_an_error_that_is_its_own_cause_is_mapped(raised_by: RaisedBy) -> None:
    error = raised_by("shop.order", {})
    assert error.__cause__ is error
    assert to_answer(error, skill="shop.order")["code"] == -32602


def test_conversion_errors_of_parts_and_outputs_have_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert to_answer(PartError("Invalid JSON in TextPart")) == {
        "code": -32602,
        "message": "Invalid JSON in TextPart",
        "data": {"type": "InvalidParamsError"},
    }
    assert not caplog.records
    output = OutputError("a number that is not finite", ["a", 3])
    assert output.path == ".a[3]"
    answer = to_answer(output)
    assert answer["code"] == -32603
    assert answer["message"].startswith("Module output can't be sent: ")
    assert "$.a[3]" in answer["message"]
    assert answer["data"] == {"type": "OutputError"}


@pytest.mark.parametrize(("kind", "code"), JSON_RPC_ERROR_CODE_MAP.items())
def test_every_error_of_the_sdk_keeps_its_code(kind: type[A2AError], code: int) -> None:
    answer = to_answer(kind())
    assert answer == {"code": code, "message": kind.message, "data": {"type": kind.__name__}}


def test_subclasses_of_the_sdks_errors_keep_or_define_their_code() -> None:
    class PausedError(UnsupportedOperationError):
        message = "The task is paused"

    class RateLimitedError(A2AError):
        code = -32029
        message = "Too many requests"

    assert to_answer(PausedError())["code"] == -32004
    answer = to_answer(RateLimitedError(data={"retryAfter": 3}))
    assert answer["code"] == -32029
    assert answer["data"] == {"type": "RateLimitedError", "retryAfter": 3}
    [info] = error_details(answer)
    assert info["reason"] == "RATE_LIMITED"
    assert info["domain"] == "apcore"
    assert info["metadata"] == {"type": "RateLimitedError", "retryAfter": "3"}
    assert to_answer(A2AError())["code"] == -32603


@pytest.mark.parametrize(
    ("error", "reason", "domain"),
    [
        (TaskNotFoundError(), "TASK_NOT_FOUND", "a2a-protocol.org"),
        (InvalidParamsError(), "INVALID_PARAMS", "a2a-protocol.org"),
        (InternalError(), "INTERNAL_ERROR", "a2a-protocol.org"),
        (JSONParseError(), "PARSE_ERROR", "a2a-protocol.org"),
        (PartError("x"), "INVALID_PARAMS", "a2a-protocol.org"),
        (RuntimeError("x"), "INTERNAL_ERROR", "a2a-protocol.org"),
        (apcore_errors.ModuleNotFoundError("a"), "MODULE_NOT_FOUND", "apcore"),
        (apcore_errors.ModuleTimeoutError("a", 1), "MODULE_TIMEOUT", "apcore"),
        (apcore_errors.InvalidInputError("a"), "GENERAL_INVALID_INPUT", "apcore"),
    ],
)
def test_error_details_of_1_0_have_reason_and_domain(
    error: Exception, reason: str, domain: str
) -> None:
    answer = to_answer(error)
    [info] = error_details(answer)
    assert info["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"
    assert (info["reason"], info["domain"]) == (reason, domain)
    assert info["metadata"] == answer["data"]


def test_error_details_of_1_0_list_the_rejected_fields(raised_by: RaisedBy) -> None:
    inputs = {"items": [{"name": 7, "count": 1}]}
    answer = to_answer(raised_by("shop.order", inputs), skill="shop.order", inputs=inputs)
    info, violations = error_details(answer)
    assert info["reason"] == "SCHEMA_VALIDATION_ERROR"
    assert violations["@type"] == "type.googleapis.com/google.rpc.BadRequest"
    [violation] = violations["fieldViolations"]
    assert violation["field"] == "items.0.name"
    assert violation["description"]


@pytest.mark.parametrize(
    ("data", "metadata"),
    [
        ({"ids": [1, "b"]}, {"ids": "1, b"}),
        ({"errors": "many"}, {}),
        ({"errors": ["first", 2]}, {}),
        ([1], {}),
    ],
)
def test_any_data_of_a_module_error_has_details_of_1_0(data: Any, metadata: Any) -> None:
    [info] = error_details(to_answer(InvalidParamsError("x", data=data)))
    assert info["metadata"] == {"type": "InvalidParamsError", **metadata}
    [info] = error_details({"code": -32602, "message": "x", "data": data})
    assert info["metadata"] == {"type": "InternalError", **metadata}


def test_a_rejected_field_without_a_name_or_message_is_listed() -> None:
    _, violations = error_details(to_answer(InvalidParamsError("x", data={"errors": [{}]})))
    assert violations["fieldViolations"] == [{"field": "", "description": ""}]


def test_an_error_without_data_has_details() -> None:
    assert error_details({"code": -32603, "message": "x"})[0]["reason"] == "INTERNAL_ERROR"


@pytest.mark.parametrize(
    ("message", "cleaned"),
    [
        ("see /etc/app/secret.cfg now", "see  now"),
        (r"see C:\Users\me\x.py now", "see  now"),
        (r"see \\host\share now", "see  now"),
        ('Traceback (most recent call last):\n  File "a.py", line 3, in f\nboom', "boom"),
        ("a/b is fine", "a/b is fine"),
        ("x" * 900, "x" * 500),
    ],
)
def test_paths_and_tracebacks_are_removed_from_messages(message: str, cleaned: str) -> None:
    assert ErrorMapper()._sanitize_message(message) == cleaned


def test_clean_returns_one_short_line_that_can_be_encoded() -> None:
    assert clean("a\x00\x1b[31m\r\nb\tc\x7f\x85") == "a[31m\\nb\tc"
    assert clean("x" * 2000) == "x" * 1000
    assert clean("\n" * 10, 5) == "\\n\\n\\"
    assert clean("\ud800") == "?"


def test_clean_removes_control_characters_wherever_they_are() -> None:
    for code in (*range(0x3000), *range(0xD7F0, 0x11000)):
        character = chr(code)
        expected_character = "" if CONTROL.search(character) else character
        expected = {"\n": "\\n"}.get(
            character, expected_character.encode("utf-8", "replace").decode()
        )
        assert clean(character) == expected
        assert clean(f"a{character}b") == f"a{expected}b"
