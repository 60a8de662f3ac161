"""The mapping of exceptions to JSON-RPC error objects, and of error objects to A2A 1.0 details."""

import logging
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from a2a.utils.errors import A2A_ERROR_REASONS, JSON_RPC_ERROR_CODE_MAP, A2AError

from .data import Json
from .errors import clean
from .schema import Schema, keys_of_pointer, properties_of
from .values import is_array, is_object, object_at, object_of

logger = logging.getLogger(__name__)


class ErrorTemplate(NamedTuple):
    """The JSON-RPC code and message for an error, and its reason in A2A 1.0.

    For an error of apcore, `reason` is the `code` of the exception, such as `APPROVAL_DENIED`. If
    `shown_type` is set, clients get that type and its reason instead.
    """

    code: int
    message: str
    reason: str
    shown_type: str = ""  # the protocol's type, or one that hides that the skill exists


NOT_FOUND, SAFETY_LIMIT = "Skill not found: {}", "Safety limit exceeded"
TEMPLATES = {
    "ACLDeniedError": ErrorTemplate(-32001, "Task not found", "ACL_DENIED", "TaskNotFoundError"),
    "AgentFailedError": ErrorTemplate(-32603, "{}", "AGENT_FAILED"),
    "AgentRejectedError": ErrorTemplate(-32603, "{}", "AGENT_REJECTED"),
    "ApiFailedError": ErrorTemplate(-32603, "{}", "API_FAILED"),
    "ApiRefusedError": ErrorTemplate(-32602, "{}", "API_REFUSED"),
    "ApprovalDeniedError": ErrorTemplate(-32603, "Approval denied", "APPROVAL_DENIED"),
    "ApprovalTimeoutError": ErrorTemplate(-32603, "Approval timed out", "APPROVAL_TIMEOUT"),
    "CallDepthExceededError": ErrorTemplate(-32603, SAFETY_LIMIT, "CALL_DEPTH_EXCEEDED"),
    "CallFrequencyExceededError": ErrorTemplate(-32603, SAFETY_LIMIT, "CALL_FREQUENCY_EXCEEDED"),
    "CircularCallError": ErrorTemplate(-32603, SAFETY_LIMIT, "CIRCULAR_CALL"),
    "ExecutionCancelledError": ErrorTemplate(-32603, "Canceled", "EXECUTION_CANCELLED"),
    "InternalError": ErrorTemplate(-32603, "Internal error", "GENERAL_INTERNAL_ERROR"),
    "InvalidInputError": ErrorTemplate(-32602, "Invalid input: {}", "GENERAL_INVALID_INPUT"),
    "MediaTypeError": ErrorTemplate(
        -32005, "{}", "CONTENT_TYPE_NOT_SUPPORTED", "ContentTypeNotSupportedError"
    ),
    "ModuleDisabledError": ErrorTemplate(
        -32601, NOT_FOUND, "MODULE_DISABLED", "ModuleNotFoundError"
    ),
    "ModuleExecuteError": ErrorTemplate(-32603, "Internal error", "MODULE_EXECUTE_ERROR"),
    "ModuleNotFoundError": ErrorTemplate(-32601, NOT_FOUND, "MODULE_NOT_FOUND"),
    "ModuleProcessError": ErrorTemplate(
        -32603, "The process of the skill ended unexpectedly", "MODULE_PROCESS_ENDED"
    ),
    "ModuleTimeoutError": ErrorTemplate(-32603, "Execution timed out", "MODULE_TIMEOUT"),
    "OutputError": ErrorTemplate(-32603, "Module output can't be sent: {}", "OUTPUT_ERROR"),
    "PartError": ErrorTemplate(-32602, "{}", "INVALID_PARAMS", "InvalidParamsError"),
    "RemoteFailedError": ErrorTemplate(-32603, "A remote agent failed", "REMOTE_FAILED"),
    "SchemaValidationError": ErrorTemplate(-32602, "Invalid params", "SCHEMA_VALIDATION_ERROR"),
}
PROTOCOL_REASONS = {cls.__name__: reason for cls, reason in A2A_ERROR_REASONS.items()}
PROTOCOL_REASONS["JSONParseError"] = "PARSE_ERROR"

EXPECTED_PREFIXES = ("AgentRejected", "Approval", "ExecutionCancelled")
"""Prefixes of the names of errors that are decisions, not faults."""

TRACEBACK = re.compile(r'^.*(?:Traceback \(most|File "|\bline \d+, in ).*$\n?', re.MULTILINE)
PATH = re.compile(r"/[^\s]+/[^\s]+|\b[A-Za-z]:[\\/][^\s]+|\\\\[^\s]+")
REVEALING = re.compile(
    r"(?!\w+ should ).*['\"\[{]|-?\d|True|False|None|Value error|Assertion failed"
)
"""Pattern for validation messages that contain the rejected value or a module's own text."""


def error_details(error: Mapping[str, Any]) -> list[Json]:
    """Return the `data` of an A2A 1.0 error, from an error object of `ErrorMapper` (A2A 1.0 §9.5).

    >>> error = {"code": -32001, "message": "", "data": {"type": "TaskNotFoundError"}}
    >>> error_details(error)[0]["reason"]
    'TASK_NOT_FOUND'
    """
    # a module may raise an `A2AError` with any data
    data: Json = {"type": "InternalError", **(object_at(error.get("data")) or {})}
    name, errors = str(data["type"]), data.pop("errors", ())
    reason = PROTOCOL_REASONS.get(name) or (TEMPLATES[name].reason if name in TEMPLATES else None)
    info: Json = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": reason or re.sub(r"\B(?=[A-Z])", "_", name.removesuffix("Error")).upper(),
        "domain": "a2a-protocol.org" if name in PROTOCOL_REASONS else "apcore",
        "metadata": {
            key: ", ".join(map(str, value)) if is_array(value) else str(value)
            for key, value in data.items()
        },
    }
    violations = [
        {"field": str(entry.get("field", "")), "description": str(entry.get("message", ""))}
        for entry in filter(is_object, errors if is_array(errors) else ())
    ]
    bad_request = {
        "@type": "type.googleapis.com/google.rpc.BadRequest",
        "fieldViolations": violations,
    }
    return [info, bad_request] if violations else [info]


class ErrorMapper:
    """A mapper from exceptions to JSON-RPC error objects, by the class name of the exception.

    >>> from apcore_a2a_core import PartError
    >>> ErrorMapper().to_jsonrpc_error(PartError("Invalid JSON in TextPart"))["code"]
    -32602
    """

    def to_jsonrpc_error(
        self,
        error: BaseException,
        *,
        skill: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        schema: Schema | None = None,
    ) -> Json:
        """Return the error object for the caller: `{"code", "message", "data"}`.

        FR-ERR-001..008 define the mapping. Denials of access and internal errors are logged.

        Args:
            error: Any exception, including `SystemExit`.
            skill: The skill that was called; an error of another module is not the caller's fault.
            inputs: The inputs of the call, to name missing and unknown fields.
            schema: The input schema of the skill.
        """
        # errors of the SDK's client are failures of a module that called another agent
        if isinstance(error, A2AError) and not type(error).__module__.startswith("a2a.client"):
            error_object = protocol_error(error)
            return {**error_object, "message": self._sanitize_message(error_object["message"])}
        names = (cls.__name__ for cls in type(error).__mro__ if cls.__module__ != "builtins")
        raised_type = next((name for name in names if name in TEMPLATES), "InternalError")
        is_type_kept = TEMPLATES[raised_type].code == -32603 or is_callers_fault(error, skill)
        reported_type = raised_type if is_type_kept else "ModuleExecuteError"
        log_failure(error, raised_type, reported_type, clean(skill or ""))
        template = TEMPLATES[reported_type]
        data: Json = {"type": template.shown_type or reported_type}
        if reported_type == "SchemaValidationError":
            data |= self._build_validation_data(error, inputs or {}, schema or {})
        module_id = object_of(error, "details").get("module_id", skill)
        detail = str(module_id) if template.message is NOT_FOUND else message_of(error)
        message = template.message.format(self._sanitize_message(detail))
        return {"code": template.code, "message": message, "data": data}

    def _sanitize_message(self, message: str) -> str:
        """Return *message* without traceback lines and file paths, at most 500 characters."""
        return clean(PATH.sub("", TRACEBACK.sub("", message[:10_000])).strip(), 500)

    def _build_validation_data(
        self, error: BaseException, inputs: Mapping[str, Any], schema: Schema
    ) -> Json:
        """Return `{"errors": [{"field", "code", "message"}]}` for a validation error.

        apcore has two formats for the details of such errors.
        """
        properties = properties_of(schema)
        missing = (name for name in schema.get("required", ()) if name not in inputs)
        unknown = (name for name in inputs if name not in properties)
        errors: list[dict[str, str]] = []
        entries = object_of(error, "details").get("errors")
        for entry in filter(is_object, entries[:100] if is_array(entries) else ()):
            field = str(entry.get("field") or ".".join(_keys_of(entry.get("path"))))
            code = str(entry.get("keyword") or entry.get("code") or "invalid")
            message = self._sanitize_message(str(entry.get("message", "")))
            if code in {"required", "missing"}:
                field, message = field or next(missing, ""), "Field required"
            elif code in {"additionalProperties", "extra_forbidden"}:
                field, message = field or next(unknown, ""), "Unknown field"
            elif REVEALING.match(message):
                message = f"Invalid value ({code})"
            errors.append({"field": clean(field), "code": clean(code, 60), "message": message})
        return {"errors": errors}


def _keys_of(path: object) -> list[str]:
    """Return the keys in a path, which may be a JSON pointer or an array."""
    if is_array(path):
        return [*map(str, path)]
    return keys_of_pointer(path) if isinstance(path, str) else []


def protocol_error(error: A2AError) -> Json:
    """Return the error object for an `A2AError`; a class without a code gets its base's code."""
    codes: Mapping[type, int] = JSON_RPC_ERROR_CODE_MAP
    inherited = next((codes[cls] for cls in type(error).__mro__ if cls in codes), -32603)
    data: Json = {"type": type(error).__name__, **object_of(error, "data")}
    return {"code": getattr(error, "code", inherited), "message": error.message, "data": data}


def is_callers_fault(error: BaseException, skill: str | None) -> bool:
    """Return whether *error* is due to the caller's message, and not to the skill itself.

    apcore uses the same classes for both causes. It is the skill's fault if the error names another
    module, has a call chain of several modules, or comes from validation of the output or from a
    malformed chunk.
    """
    details = object_of(error, "details")
    is_nested = is_array(chain := details.get("call_chain")) and len(chain) > 1
    is_foreign = skill is not None and details.get("module_id", skill) != skill
    is_output = message_of(error).startswith("Output validation")
    is_chunk = details.get("code") == "STREAM_CHUNK_NOT_OBJECT"
    return not (is_nested or is_foreign or is_output or is_chunk)


def log_failure(error: BaseException, raised_type: str, reported_type: str, skill: str) -> None:
    """Log denials of access with their details, and internal errors with their stack trace."""
    is_expected = reported_type.startswith(EXPECTED_PREFIXES)
    if raised_type == "ACLDeniedError":
        details, event = clean(str(object_of(error, "details"))), {"event": "access_denied"}
        logger.warning("Access denied: skill=%s %s", skill, details, extra=event)
    elif TEMPLATES[reported_type].code == -32603 and not is_expected:
        logger.error("Skill failed: %s", skill, exc_info=error, extra={"event": "skill_failed"})


def message_of(error: BaseException) -> str:
    """Return the message of *error* without the code that apcore puts before it."""
    return str(getattr(error, "message", None) or error)
