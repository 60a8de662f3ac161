"""Errors of remote agents as errors of apcore.

Callers see errors that they can act on: that an input is wrong, that a skill does not exist or may
not be called, that approval was denied, or that a call took too long. Any other error is a
`RemoteFailedError` without the agent's text, which is only logged.

ModuleError (apcore)
├── RemoteFailedError       the agent failed, refused, or cannot be reached; code REMOTE_FAILED
├── RemoteInputError        the agent refused the inputs, and says which; also an InvalidInputError
└── RemoteQuestion          the agent waits for an answer; also an InputRequiredError
"""

import logging
from collections.abc import Mapping
from math import inf
from typing import Any

from apcore import ModuleError
from apcore.approval import ApprovalResult
from apcore.errors import (
    ACLDeniedError,
    ApprovalDeniedError,
    InvalidInputError,
    ModuleNotFoundError,
    ModuleTimeoutError,
    SchemaValidationError,
)
from apcore_a2a_client import (
    A2AAuthError,
    A2AConnectionError,
    A2ATimeoutError,
    InvalidParamsError,
    Message,
    ServerBusyError,
    SkillNotFoundError,
    TaskNotFoundError,
    TaskState,
    TaskStatus,
)
from apcore_a2a_core import InputRequiredError, clean
from apcore_a2a_core.values import is_array, is_object

logger = logging.getLogger("apcore_a2a_remote")

REMOTE_FAILED = "REMOTE_FAILED"
MAX_LOGGED = 500
"""Maximum length of an agent's text in the log, in characters."""
MAX_FIELDS = 100
"""Maximum number of invalid fields that are passed on."""
INVALID_PARAMS = -32602
FORBIDDEN = 403


class RemoteFailedError(ModuleError):
    """A remote agent failed, refused a call, or can't be reached; the log says why."""

    def __init__(self, message: str = "The remote agent failed", **options: Any) -> None:
        super().__init__(REMOTE_FAILED, message, **options)


class RemoteInputError(SchemaValidationError, InvalidInputError):
    """A remote skill refused the inputs; `details["errors"]` lists the invalid fields.

    Args:
        errors: An object with `field`, `message` and perhaps `code` for each invalid field.
    """

    def __init__(self, errors: list[dict[str, Any]]) -> None:
        SchemaValidationError.__init__(self, "The remote skill refused its inputs", errors)


class RemoteQuestion(InputRequiredError, ModuleError):
    """A remote agent waits for input or approval.

    In a server of this project the task pauses. A program without a server answers with
    `RemoteAgent.reply`.

    Args:
        question: The agent's text.
        details: The details of `InputRequiredError`, such as `data`.
    """

    def __init__(self, question: str, **details: Any) -> None:
        ModuleError.__init__(self, self.code, question, {"data": None, **details})

    __str__ = ModuleError.__str__


def error_of(error: Exception, module_id: str, *, is_new: bool, seconds: float) -> ModuleError:
    """Return the error of apcore for an exception of the client.

    Args:
        error: The exception.
        module_id: The id of the skill's module.
        is_new: Whether the call starts a task, and the agent has not reported the task yet.
        seconds: Time limit of the call; infinite if it has none.
    """
    if isinstance(error, InvalidParamsError):
        return RemoteInputError(fields_of(error.errors))
    if isinstance(error, SkillNotFoundError):
        return ModuleNotFoundError(module_id)
    is_denied = isinstance(error, A2AAuthError) and error.status_code == FORBIDDEN
    # agents of this project refuse a forbidden call with TaskNotFoundError; if the call starts a
    # task, the error has no other meaning
    if is_denied or (is_new and isinstance(error, TaskNotFoundError)):
        return ACLDeniedError(None, module_id)
    if isinstance(error, A2ATimeoutError) and seconds < inf:
        return ModuleTimeoutError(module_id, int(seconds * 1000))
    is_retryable = isinstance(error, A2AConnectionError | ServerBusyError)
    log_failure(module_id, f"{type(error).__name__}: {error}")
    return RemoteFailedError(retryable=is_retryable)


def fields_of(errors: Any) -> list[dict[str, Any]]:
    """Return the invalid fields in the data of an error."""
    entries: list[Any] = errors if is_array(errors) else []
    return [
        {name: clean(str(entry.get(name) or ""), 200) for name in ("field", "message", "code")}
        for entry in entries[:MAX_FIELDS]
        if is_object(entry)
    ]


def error_of_status(status: TaskStatus, module_id: str, *, refused_by_caller: bool) -> ModuleError:
    """Return the error of apcore for a task that has ended without completing.

    Args:
        status: The task's status.
        module_id: The id of the skill's module.
        refused_by_caller: Whether the caller was asked for approval, and refused.
    """
    if status.state == TaskState.REJECTED and refused_by_caller:
        result = ApprovalResult(status="rejected", reason="Rejected by client")
        return ApprovalDeniedError(result, module_id)
    details = details_of(status.message)
    data = details.get("data")
    error_type = data.get("type") if is_object(data) else None
    if details.get("code") == INVALID_PARAMS and is_object(data):
        return RemoteInputError(fields_of(data.get("errors")))
    if error_type == "ModuleNotFoundError":
        return ModuleNotFoundError(module_id)
    if error_type == "ModuleTimeoutError":
        return ModuleTimeoutError(module_id, 0, cause=None)
    reason = text_of(status.message) or "no reason given"
    log_failure(module_id, f"task {status.state}: {reason}")
    return RemoteFailedError()


def details_of(message: Message | None) -> Mapping[str, Any]:
    """Return the error object in a status message; empty if there is none."""
    parts = message.parts if message else ()
    details: list[dict[str, Any]] = [part.data for part in parts if is_object(part.data)]
    return next((detail for detail in reversed(details) if "code" in detail), dict[str, Any]())


def text_of(message: Message | None) -> str:
    """Return the texts of a message, joined by line feeds."""
    parts = message.parts if message else ()
    return "\n".join(part.text for part in parts if part.text)


def log_failure(module_id: str, reason: str) -> None:
    """Log the reason why a call has failed, because the caller does not get the agent's text."""
    extra = {"event": "remote_call_failed"}
    logger.warning("%s failed: %s", module_id, clean(reason, MAX_LOGGED), extra=extra)
