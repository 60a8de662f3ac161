"""What can't be converted, and what callers are told of errors.

ValueError          their texts are safe to show to a caller
├── PartError       a message's parts can't be a skill's input
└── OutputError     a module's output can't be carried by the protocol
"""

import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from a2a.utils.errors import A2A_ERROR_REASONS, JSON_RPC_ERROR_CODE_MAP, A2AError

from .schema import Object, Schema, is_array, is_object, object_of, pointed, properties_of

logger = logging.getLogger(__name__)


class PartError(ValueError):
    """A message's parts can't be the skill's input (FR-MSG-003)."""


class OutputError(ValueError):
    """A module's output can't be carried; its text tells what is in the way and where.

    Attributes:
        path: where it is, from the output on: ``.rows[3].price``.
    """

    def __init__(self, what: str, keys: Iterable[str | int] = ()) -> None:
        self.path = "".join(f"[{k}]" if isinstance(k, int) else f".{clean(k, 60)}" for k in keys)
        super().__init__(f"{what} at ${self.path}")


class Answer(NamedTuple):
    """What a caller is told: in JSON-RPC, and as the reason of A2A 1.0 (apcore's own code)."""

    code: int
    message: str
    reason: str
    shown: str = ""  # the type that hides what is denied, or switched off


MISSING, SAFETY = "Skill not found: {}", "Safety limit exceeded"
ANSWERS = {
    "ACLDeniedError": Answer(-32001, "Task not found", "ACL_DENIED", "TaskNotFoundError"),
    "ApprovalDeniedError": Answer(-32603, "Approval denied", "APPROVAL_DENIED"),
    "ApprovalTimeoutError": Answer(-32603, "Approval timed out", "APPROVAL_TIMEOUT"),
    "CallDepthExceededError": Answer(-32603, SAFETY, "CALL_DEPTH_EXCEEDED"),
    "CallFrequencyExceededError": Answer(-32603, SAFETY, "CALL_FREQUENCY_EXCEEDED"),
    "CircularCallError": Answer(-32603, SAFETY, "CIRCULAR_CALL"),
    "ExecutionCancelledError": Answer(-32603, "Canceled", "EXECUTION_CANCELLED"),
    "InternalError": Answer(-32603, "Internal error", "GENERAL_INTERNAL_ERROR"),
    "InvalidInputError": Answer(-32602, "Invalid input: {}", "GENERAL_INVALID_INPUT"),
    "ModuleDisabledError": Answer(-32601, MISSING, "MODULE_DISABLED", "ModuleNotFoundError"),
    "ModuleExecuteError": Answer(-32603, "Internal error", "MODULE_EXECUTE_ERROR"),
    "ModuleNotFoundError": Answer(-32601, MISSING, "MODULE_NOT_FOUND"),
    "ModuleTimeoutError": Answer(-32603, "Execution timed out", "MODULE_TIMEOUT"),
    "OutputError": Answer(-32603, "Module output can't be carried: {}", "OUTPUT_ERROR"),
    "PartError": Answer(-32602, "{}", "INVALID_PARAMS", "InvalidParamsError"),
    "SchemaValidationError": Answer(-32602, "Invalid params", "SCHEMA_VALIDATION_ERROR"),
}
PROTOCOL = {kind.__name__: reason for kind, reason in A2A_ERROR_REASONS.items()}
PROTOCOL["JSONParseError"] = "PARSE_ERROR"

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069]")
TRACEBACK = re.compile(r'^.*(?:Traceback \(most|File "|\bline \d+, in ).*$\n?', re.MULTILINE)
PATH = re.compile(r"/[^\s]+/[^\s]+|\b[A-Za-z]:[\\/][^\s]+|\\\\[^\s]+")
TELLING = re.compile(r"(?!\w+ should ).*['\"\[{]|-?\d|True|False|None|Value error|Assertion failed")
"""How validators' messages look that have the rejected value in them, or what a module says."""


def clean(text: str, limit: int = 1000) -> str:
    r"""*text* made fit for a log line: at most *limit* characters, none that controls.

    A line feed becomes a backslash and an n, so that nobody can forge a line (NFR-SEC-002).

    >>> print(clean("a\x1b[31m\nb"))
    a[31m\nb
    """
    plain = text[:limit].encode("utf-8", "replace").decode()
    return CONTROL.sub("", plain.replace("\n", "\\n"))[:limit]


def error_details(error: Mapping[str, Any]) -> list[Object]:
    """The ``data`` of an A2A 1.0 error, made of what `ErrorMapper` gives (A2A 1.0 §9.5).

    >>> error = {"code": -32001, "message": "", "data": {"type": "TaskNotFoundError"}}
    >>> error_details(error)[0]["reason"]
    'TASK_NOT_FOUND'
    """
    data: Object = {"type": "InternalError", **(error.get("data") or {})}
    kind, errors = str(data["type"]), data.pop("errors", ())
    known = PROTOCOL.get(kind) or (ANSWERS[kind].reason if kind in ANSWERS else None)
    info: Object = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": known or re.sub(r"\B(?=[A-Z])", "_", kind.removesuffix("Error")).upper(),
        "domain": "a2a-protocol.org" if kind in PROTOCOL else "apcore",
        "metadata": {key: str(value) for key, value in data.items()},
    }
    violations = [{"field": e["field"], "description": e["message"]} for e in errors]
    fields = {"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": violations}
    return [info, fields] if violations else [info]


class ErrorMapper:
    """Maps errors to JSON-RPC error objects, by the names and codes that apcore gives them.

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
    ) -> Object:
        """What the caller is told of *error*: ``{"code", "message", "data"}`` (FR-ERR-001..008).

        Args:
            error: anything that was raised, ``SystemExit`` included.
            skill: the skill that was called; what other modules refuse is not its caller's fault.
            inputs: the call's inputs, which tell what is missing.
            schema: the skill's input schema.
        """
        # one of the SDK's client is about another agent, which a module or a store has called
        if isinstance(error, A2AError) and not type(error).__module__.startswith("a2a.client"):
            said = protocol_error(error)
            return {**said, "message": self._sanitize_message(said["message"])}
        names = (kind.__name__ for kind in type(error).__mro__ if kind.__module__ != "builtins")
        raised = next((name for name in names if name in ANSWERS), "InternalError")
        told = ANSWERS[raised].code == -32603 or is_callers_fault(error, skill)
        name = raised if told else "ModuleExecuteError"
        log(error, raised, name, clean(skill or ""))
        answer = ANSWERS[name]
        data: Object = {"type": answer.shown or name}
        if name == "SchemaValidationError":
            data |= self._build_validation_data(error, inputs or {}, schema or {})
        named = object_of(error, "details").get("module_id", skill)
        text = self._sanitize_message(str(named) if answer.message is MISSING else text_of(error))
        return {"code": answer.code, "message": answer.message.format(text), "data": data}

    def _sanitize_message(self, message: str) -> str:
        """*message* without traceback lines and file paths, at most 500 characters."""
        return clean(PATH.sub("", TRACEBACK.sub("", message[:10_000])).strip(), 500)

    def _build_validation_data(
        self, error: BaseException, inputs: Schema, schema: Schema
    ) -> Object:
        """``{"errors": [{"field", "code", "message"}]}``, of both forms that apcore has."""
        known = properties_of(schema)
        missing = (name for name in schema.get("required", ()) if name not in inputs)
        unknown = (name for name in inputs if name not in known)
        errors: list[dict[str, str]] = []
        entries = object_of(error, "details").get("errors")
        for entry in filter(is_object, entries[:100] if is_array(entries) else ()):
            field = entry.get("field") or ".".join(pointed(entry.get("path", "")))
            code = str(entry.get("keyword") or entry.get("code") or "invalid")
            message = self._sanitize_message(str(entry.get("message", "")))
            if code in {"required", "missing"}:
                field, message = field or next(missing, ""), "Field required"
            elif code in {"additionalProperties", "extra_forbidden"}:
                field, message = field or next(unknown, ""), "Unknown field"
            elif TELLING.match(message):
                message = f"Invalid value ({code})"
            errors.append({"field": clean(field), "code": clean(code, 60), "message": message})
        return {"errors": errors}


def protocol_error(error: A2AError) -> Object:
    """The error object of one of the SDK's errors, or of ours that derive from them."""
    known: Mapping[type, int] = JSON_RPC_ERROR_CODE_MAP
    inherited = next((known[cls] for cls in type(error).__mro__ if cls in known), -32603)
    data: Object = {"type": type(error).__name__, **(getattr(error, "data", None) or {})}
    return {"code": getattr(error, "code", inherited), "message": error.message, "data": data}


def is_callers_fault(error: BaseException, skill: str | None) -> bool:
    """Whether *error* is about what the caller sent, not about what *skill* did with it.

    apcore has one class for both: of the caller is what names no other module, has no longer a
    call chain, and comes neither of the output's validation nor of a malformed chunk.
    """
    details = object_of(error, "details")
    nested = is_array(chain := details.get("call_chain")) and len(chain) > 1
    foreign = skill is not None and details.get("module_id", skill) != skill
    output = text_of(error).startswith("Output validation")
    return not (nested or foreign or output or details.get("code") == "STREAM_CHUNK_NOT_OBJECT")


def log(error: BaseException, raised: str, name: str, skill: str) -> None:
    """Tell the operator: denials with their details, what failed inside with its stack."""
    if raised == "ACLDeniedError":
        logger.warning("Access denied: skill=%s %s", skill, clean(str(object_of(error, "details"))))
    elif ANSWERS[name].code == -32603 and not name.startswith(("Approval", "ExecutionCancelled")):
        logger.error("Skill failed: %s", skill, exc_info=error)


def text_of(error: BaseException) -> str:
    """The message of *error*, without the code that apcore puts before it."""
    return str(getattr(error, "message", None) or error)
