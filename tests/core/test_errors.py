"""What callers are told of errors, on errors that a real apcore raises."""

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

from .conftest import Calling, OrderModule

Failing = Callable[..., BaseException]
NOT_FOUND = {"code": -32001, "message": "Task not found", "data": {"type": "TaskNotFoundError"}}
INSIDE = {"code": -32603, "message": "Internal error", "data": {"type": "ModuleExecuteError"}}
mapped = ErrorMapper().to_jsonrpc_error


def schema_of(registry: Registry, module_id: str) -> dict[str, Any]:
    definition = registry.get_definition(module_id)
    assert definition
    return definition.input_schema


def test_an_unknown_skill_is_a_method_not_found(failing: Failing) -> None:
    error = failing("no.such")
    assert mapped(error, skill="no.such") == {
        "code": -32601,
        "message": "Skill not found: no.such",
        "data": {"type": "ModuleNotFoundError"},
    }


def test_a_disabled_skill_is_answered_as_an_unknown_one() -> None:
    disabled = mapped(apcore_errors.ModuleDisabledError("a.b"), skill="a.b")
    assert disabled == mapped(apcore_errors.ModuleNotFoundError("a.b"), skill="a.b")


def test_pythons_own_module_not_found_error_is_no_missing_skill() -> None:
    assert mapped(ModuleNotFoundError("numpy"))["code"] == -32603


def test_a_rejected_field_is_named_with_dots(failing: Failing, registry: Registry) -> None:
    inputs = {"items": [{"name": 7, "count": 1}]}
    error = failing("shop.order", inputs)
    answer = mapped(error, skill="shop.order", inputs=inputs)
    assert (answer["code"], answer["message"]) == (-32602, "Invalid params")
    assert answer["data"]["type"] == "SchemaValidationError"
    [violation] = answer["data"]["errors"]
    assert violation["field"] == "items.0.name"
    assert violation["code"] == "type"
    assert "string" in violation["message"]


def test_a_missing_field_gets_its_name_though_apcore_keeps_it_to_itself(
    failing: Failing, registry: Registry
) -> None:
    error = failing("shop.order", {"note": "x"})
    schema = schema_of(registry, "shop.order")
    answer = mapped(error, skill="shop.order", inputs={"note": "x"}, schema=schema)
    assert [e["field"] for e in answer["data"]["errors"]] == ["items"]
    without = mapped(error, skill="shop.order")
    assert [e["field"] for e in without["data"]["errors"]] == [""]


def test_rejected_values_stay_out_of_messages(failing: Failing, registry: Registry) -> None:
    inputs = {"items": [], "secret": "hunter2"}
    answer = mapped(failing("shop.order", inputs), skill="shop.order", inputs=inputs)
    assert answer["data"]["errors"][0]["field"] == "secret"
    assert "hunter2" not in str(answer)


def test_json_schemas_messages_which_begin_with_the_value_are_replaced(
    failing: Failing, registry: Registry
) -> None:
    module = OrderModule()
    properties = {"n": {"type": "integer"}, "s": {"type": "string", "maxLength": 3}}
    module.input_schema = {"type": "object", "properties": properties}
    registry.register("dict.schema", module)
    for inputs in ({"n": "hunter2"}, {"n": {"hunter2": 1}}, {"s": "hunter2"}, {"n": [1]}):
        answer = mapped(failing("dict.schema", inputs), skill="dict.schema", inputs=inputs)
        assert answer["code"] == -32602
        assert "hunter2" not in str(answer)
        assert answer["data"]["errors"][0]["message"].startswith("Invalid value")


def test_the_older_form_of_violations_is_read_too() -> None:
    errors = [
        {"field": "a.b", "code": "int_type", "message": "must be int"},
        {"field": "", "code": "missing", "message": "Field required"},
        {"path": "/a~1b/0/c~0d", "keyword": "type", "message": "Input should be 'x' or 'y'"},
        {},
    ]
    error = apcore_errors.SchemaValidationError("Input validation failed", errors=errors)
    answer = mapped(error, inputs={}, schema={"required": ["name"]})
    assert answer["data"]["errors"] == [
        {"field": "a.b", "code": "int_type", "message": "must be int"},
        {"field": "name", "code": "missing", "message": "Field required"},
        {"field": "a/b.0.c~d", "code": "type", "message": "Input should be 'x' or 'y'"},
        {"field": "", "code": "invalid", "message": ""},
    ]


def test_an_output_that_fails_validation_is_not_the_callers_fault(
    failing: Failing, registry: Registry
) -> None:
    registry.register("shop.broken", OrderModule({"total": "hunter2"}))
    error = failing("shop.broken", {"items": []})
    assert type(error).__name__ == "SchemaValidationError"
    assert mapped(error, skill="shop.broken", inputs={"items": []}) == INSIDE


def calling(module_id: str, inputs: dict[str, Any] | None = None) -> Calling:
    async def body(context: Any) -> object:
        return await context.executor.call_async(module_id, inputs or {}, context)

    return Calling(body)


def raising(error: BaseException) -> Calling:
    async def body(context: Any) -> object:
        raise error

    return Calling(body)


@pytest.mark.parametrize("inner", ["shop.order", "no.such"])
def test_what_a_nested_call_refuses_is_not_the_callers_fault(
    failing: Failing, registry: Registry, inner: str
) -> None:
    registry.register("outer.call", calling(inner))
    error = failing("outer.call")
    assert mapped(error, skill="outer.call") == INSIDE
    assert mapped(error) == INSIDE


def test_a_foreign_module_tells_a_nested_call_when_there_is_no_call_chain() -> None:
    error = apcore_errors.ModuleNotFoundError("inner.one")
    assert mapped(error, skill="outer.call") == INSIDE


def test_a_nested_denial_is_an_internal_error_and_still_logged_as_denial(
    failing: Failing, registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    registry.register("outer.call", calling("shop.order", {"items": []}))
    rules = [ACLRule(callers=["@external"], targets=["outer.*"], effect="allow")]
    error = failing("outer.call", acl=ACL(rules=rules, default_effect="deny"))
    assert type(error).__name__ == "ACLDeniedError"
    assert mapped(error, skill="outer.call") == INSIDE
    assert [r.levelno for r in caplog.records if "denied" in r.message] == [logging.WARNING]


def test_a_denied_skill_and_an_unknown_task_get_the_same_answer(
    failing: Failing, caplog: pytest.LogCaptureFixture
) -> None:
    error = failing("shop.order", {"items": []}, acl=ACL(rules=[], default_effect="deny"))
    caplog.clear()
    answer = mapped(error, skill="shop.order")
    assert answer == NOT_FOUND
    assert repr(answer) == repr(mapped(TaskNotFoundError()))
    assert error_details(answer) == error_details(mapped(TaskNotFoundError()))
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "shop.order" in record.getMessage()
    assert "caller_id" in record.getMessage()


def test_a_module_error_tells_nothing_to_the_caller_and_all_to_the_operator(
    failing: Failing, registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    registry.register("bad.module", raising(RuntimeError("db password=hunter2 in /etc/app/x.cfg")))
    error = failing("bad.module")
    caplog.clear()
    assert mapped(error, skill="bad.module") == INSIDE
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info
    assert "hunter2" in caplog.text


def test_a_timeout_is_told_without_its_length() -> None:
    answer = mapped(apcore_errors.ModuleTimeoutError("a.b", 1234), skill="a.b")
    assert answer == {
        "code": -32603,
        "message": "Execution timed out",
        "data": {"type": "ModuleTimeoutError"},
    }
    nested = apcore_errors.ModuleTimeoutError("inner.one", 1234)
    nested.details["call_chain"] = ["a.b", "inner.one"]
    assert mapped(nested, skill="a.b") == answer


@pytest.mark.parametrize(
    "error", [TimeoutError("30 s"), SystemExit(3), KeyboardInterrupt(), ZeroDivisionError("x")]
)
def test_anything_else_is_an_internal_error(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    answer = mapped(error, skill="a.b")
    assert answer == {
        "code": -32603,
        "message": "Internal error",
        "data": {"type": "InternalError"},
    }
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


def test_an_invalid_input_tells_why_but_no_path(failing: Failing, registry: Registry) -> None:
    told = apcore_errors.InvalidInputError("width must be positive, see /opt/app/limits.py")
    registry.register("image.resize", raising(told))
    answer = mapped(failing("image.resize"), skill="image.resize")
    assert answer["code"] == -32602
    assert answer["message"] == "Invalid input: width must be positive, see"
    assert answer["data"] == {"type": "InvalidInputError"}


@pytest.mark.anyio
async def test_a_malformed_chunk_is_the_modules_fault(registry: Registry) -> None:
    class Streaming(Calling):
        async def stream(self, inputs: dict[str, Any], context: Any) -> Any:
            yield "no object"

    registry.register("text.count", Streaming(lambda context: context))
    with pytest.raises(apcore_errors.InvalidInputError) as caught:
        [chunk async for chunk in Executor(registry).stream("text.count", {})]
    assert mapped(caught.value, skill="text.count") == INSIDE


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
def test_the_other_errors_of_apcore_have_fixed_messages(error: Exception, message: str) -> None:
    answer = mapped(error, skill="a.b")
    assert (answer["code"], answer["message"]) == (-32603, message)
    assert answer["data"] == {
        "type": type(error).__name__ if message != "Internal error" else "InternalError"
    }


def test_a_canceled_call_is_not_logged_as_an_error(
    failing: Failing, caplog: pytest.LogCaptureFixture
) -> None:
    token = CancelToken()
    token.cancel()
    error = failing("shop.order", {"items": []}, context=Context.create(cancel_token=token))
    caplog.clear()
    answer = mapped(error, skill="shop.order")
    assert answer["message"] == "Canceled"
    assert not caplog.records


def test_errors_are_known_by_their_base_classes() -> None:
    class TooWideError(apcore_errors.InvalidInputError):
        pass

    assert mapped(TooWideError("too wide"))["message"] == "Invalid input: too wide"
    assert mapped(apcore_errors.ModuleError("OWN_CODE", "x"))["message"] == "Internal error"


def test_an_error_that_is_its_own_cause_is_mapped(failing: Failing) -> None:
    error = failing("shop.order", {})
    assert error.__cause__ is error
    assert mapped(error, skill="shop.order")["code"] == -32602


def test_parts_and_outputs_that_dont_convert_have_their_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert mapped(PartError("Invalid JSON in TextPart")) == {
        "code": -32602,
        "message": "Invalid JSON in TextPart",
        "data": {"type": "InvalidParamsError"},
    }
    assert not caplog.records
    output = OutputError("a number that is not finite", ["a", 3])
    assert output.path == ".a[3]"
    answer = mapped(output)
    assert answer["code"] == -32603
    assert answer["message"].startswith("Module output can't be carried: ")
    assert "$.a[3]" in answer["message"]
    assert answer["data"] == {"type": "OutputError"}


@pytest.mark.parametrize(("kind", "code"), JSON_RPC_ERROR_CODE_MAP.items())
def test_every_error_of_the_sdk_keeps_its_code(kind: type[A2AError], code: int) -> None:
    answer = mapped(kind())
    assert answer == {"code": code, "message": kind.message, "data": {"type": kind.__name__}}


def test_errors_that_derive_from_the_sdks_keep_or_choose_their_code() -> None:
    class PausedError(UnsupportedOperationError):
        message = "The task is paused"

    class RateLimitedError(A2AError):
        code = -32029
        message = "Too many requests"

    assert mapped(PausedError())["code"] == -32004
    answer = mapped(RateLimitedError(data={"retryAfter": 3}))
    assert answer["code"] == -32029
    assert answer["data"] == {"type": "RateLimitedError", "retryAfter": 3}
    [info] = error_details(answer)
    assert info["reason"] == "RATE_LIMITED"
    assert info["domain"] == "apcore"
    assert info["metadata"] == {"type": "RateLimitedError", "retryAfter": "3"}
    assert mapped(A2AError())["code"] == -32603


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
def test_the_details_of_protocol_1_name_reason_and_domain(
    error: Exception, reason: str, domain: str
) -> None:
    answer = mapped(error)
    [info] = error_details(answer)
    assert info["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"
    assert (info["reason"], info["domain"]) == (reason, domain)
    assert info["metadata"] == answer["data"]


def test_the_details_of_protocol_1_carry_the_fields_that_were_rejected(failing: Failing) -> None:
    inputs = {"items": [{"name": 7, "count": 1}]}
    answer = mapped(failing("shop.order", inputs), skill="shop.order", inputs=inputs)
    info, violations = error_details(answer)
    assert info["reason"] == "SCHEMA_VALIDATION_ERROR"
    assert violations["@type"] == "type.googleapis.com/google.rpc.BadRequest"
    [violation] = violations["fieldViolations"]
    assert violation["field"] == "items.0.name"
    assert violation["description"]


def test_an_error_without_data_still_has_details() -> None:
    assert error_details({"code": -32603, "message": "x"})[0]["reason"] == "INTERNAL_ERROR"


@pytest.mark.parametrize(
    ("message", "kept"),
    [
        ("see /etc/app/secret.cfg now", "see  now"),
        (r"see C:\Users\me\x.py now", "see  now"),
        (r"see \\host\share now", "see  now"),
        ('Traceback (most recent call last):\n  File "a.py", line 3, in f\nboom', "boom"),
        ("a/b is fine", "a/b is fine"),
        ("x" * 900, "x" * 500),
    ],
)
def test_messages_lose_paths_and_tracebacks(message: str, kept: str) -> None:
    assert ErrorMapper()._sanitize_message(message) == kept


def test_cleaning_leaves_one_short_line_that_can_be_encoded() -> None:
    assert clean("a\x00\x1b[31m\r\nb\tc\x7f\x85") == "a[31m\\nb\tc"
    assert clean("x" * 2000) == "x" * 1000
    assert clean("\n" * 10, 5) == "\\n\\n\\"
    assert clean("\ud800") == "?"
