"""What can go wrong with a remote agent.

A2AError
├── A2AConnectionError                      it can't be reached, or was lost; `sent`
│   └── A2ATimeoutError                     it took too long
├── A2ADiscoveryError                       it has no usable card; `status_code`, `url`
├── A2AProtocolError                        what it answered is not A2A
├── A2AAuthError                            HTTP 401 or 403; `status_code`, `challenge`
├── A2AServerError                          it refused; `code`, `data`, `reason`, `status_code`
│   ├── TaskNotFoundError                   -32001
│   ├── TaskNotCancelableError              -32002
│   ├── PushNotificationNotSupportedError   -32003
│   ├── UnsupportedOperationError           -32004
│   │   └── MethodNotFoundError             -32601
│   ├── ContentTypeNotSupportedError        -32005
│   ├── InvalidAgentResponseError           -32006
│   ├── ExtendedAgentCardNotConfiguredError -32007
│   ├── ExtensionSupportRequiredError       -32008
│   ├── VersionNotSupportedError            -32009
│   ├── InvalidParamsError                  -32602; `errors`
│   ├── SkillNotFoundError                  -32601
│   └── ServerBusyError                     -32029, HTTP 429 or 503; `retry_after`
├── TaskFailedError                         of `call`: the task failed; `task`, `code`, `data`
└── InputRequired                           of `call`: the task waits for input; `task`
"""

from __future__ import annotations

from typing import Any, TypeAlias, TypeGuard

Json: TypeAlias = dict[str, Any]
LONGEST = 500
"""Characters of an agent's own text that a message of ours repeats."""


class A2AError(Exception):
    """Anything that goes wrong with a remote agent."""

    def __reduce__(self) -> tuple[Any, ...]:
        """What makes the same error in another process."""
        return _again, (type(self), self.args, vars(self))


class A2AConnectionError(A2AError):
    """The agent can't be reached, or the connection broke (FR-CLI-003.4).

    Attributes:
        sent: Whether the request may have reached the agent.
    """

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class A2ATimeoutError(A2AConnectionError):
    """The agent took longer than the timeout."""


class A2ADiscoveryError(A2AError):
    """The agent has no card that this client can use (FR-CLI-002.4).

    Attributes:
        url: Where the card was looked for.
        status_code: The HTTP status of the answer; None when that was not what was wrong.
    """

    def __init__(self, message: str, *, url: str, status_code: int | None = None) -> None:
        super().__init__(f"{message} ({url})")
        self.url = url
        self.status_code = status_code


class A2AProtocolError(A2AError):
    """What the agent answered is not A2A."""


class A2AAuthError(A2AError):
    """The agent wants other credentials than it got.

    Attributes:
        status_code: 401 or 403.
        challenge: The answer's `WWW-Authenticate` (RFC 9110 §11.6.1).
    """

    def __init__(self, status_code: int, challenge: str = "") -> None:
        means = "refuses these credentials" if status_code == 403 else "wants credentials"
        super().__init__(f"HTTP {status_code}: the agent {means}")
        self.status_code = status_code
        self.challenge = challenge


class A2AServerError(A2AError):
    """The agent refused a request (A2A 1.0 §9.5, §11.6).

    Attributes:
        code: The JSON-RPC code; over HTTP+JSON, the one that means the same.
        data: What the agent tells beside its message.
        reason: The reason of the `ErrorInfo` in `data`, such as `TASK_NOT_FOUND`.
        status_code: The HTTP status.
    """

    code = -32603

    def __init__(self, message: str, code: int, data: Any, status_code: int) -> None:
        super().__init__(message[:LONGEST])
        self.code = code
        self.data = data
        self.reason = _reason(data)
        self.status_code = status_code


class TaskNotFoundError(A2AServerError):
    """There is no such task, or it is another principal's."""

    code = -32001


class TaskNotCancelableError(A2AServerError):
    """The task has ended."""

    code = -32002


class PushNotificationNotSupportedError(A2AServerError):
    """The agent calls no webhooks."""

    code = -32003


class UnsupportedOperationError(A2AServerError):
    """The agent does not do this, or not with this task."""

    code = -32004


class MethodNotFoundError(UnsupportedOperationError):
    """The agent does not know the method."""

    code = -32601


class ContentTypeNotSupportedError(A2AServerError):
    """The agent does not take this kind of content."""

    code = -32005


class InvalidAgentResponseError(A2AServerError):
    """The agent behind the server answered nonsense."""

    code = -32006


class ExtendedAgentCardNotConfiguredError(A2AServerError):
    """The agent has no extended card."""

    code = -32007


class ExtensionSupportRequiredError(A2AServerError):
    """The agent insists on an extension."""

    code = -32008


class VersionNotSupportedError(A2AServerError):
    """The agent does not speak this version of the protocol."""

    code = -32009


class InvalidParamsError(A2AServerError):
    """The agent does not accept the params, or the skill not the input.

    Attributes:
        errors: For each field that is wrong `{"field": …, "message": …}`.
    """

    code = -32602

    @property
    def errors(self) -> list[dict[str, Any]]:
        """What is wrong with each field."""
        if is_object(self.data):
            return objects(self.data.get("errors"))
        return [
            {"field": entry.get("field", ""), "message": entry.get("description", "")}
            for detail in objects(self.data)
            for entry in objects(detail.get("fieldViolations"))
        ]


class SkillNotFoundError(A2AServerError):
    """The agent has no such skill."""

    code = -32601


class ServerBusyError(A2AServerError):
    """The agent has no room now.

    Attributes:
        retry_after: Seconds after which to try again, if the agent tells (RFC 9110 §10.2.3).
    """

    code = -32029

    retry_after: float | None = None


class TaskFailedError(A2AError):
    """The task failed, was rejected or canceled.

    Attributes:
        task: The task as it ended.
        code: The JSON-RPC code in its status message, if there is one.
        data: What stands beside the code.
    """

    def __init__(self, message: str, task: Any, details: Json) -> None:
        super().__init__(message[:LONGEST])
        self.task = task
        self.code = details.get("code")
        self.data = details.get("data")


class InputRequired(A2AError):
    """The task waits for input; `client.reply(error.task, …)` gives it.

    Attributes:
        task: The paused task; its `status.message` has the question.
    """

    def __init__(self, message: str, task: Any) -> None:
        super().__init__(message[:LONGEST])
        self.task = task


def _again(kind: type[A2AError], args: tuple[Any, ...], attributes: Json) -> A2AError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


def snake(name: str) -> str:
    """`TaskNotFound` as `TASK_NOT_FOUND`."""
    return "".join(f"_{c}" if c.isupper() else c.upper() for c in name).lstrip("_")


KINDS: dict[str, type[A2AServerError]] = {
    snake(kind.__name__.removesuffix("Error")): kind
    for kind in (*A2AServerError.__subclasses__(), *UnsupportedOperationError.__subclasses__())
}
"""The exceptions by the reasons that agents give (A2A 1.0 §5.4)."""
KINDS.update(
    {
        "MODULE_NOT_FOUND": SkillNotFoundError,
        "MODULE_DISABLED": SkillNotFoundError,
        "ModuleNotFoundError": SkillNotFoundError,
        "SCHEMA_VALIDATION_ERROR": InvalidParamsError,
    }
)
CODES = {kind.code: kind for kind in KINDS.values() if kind is not SkillNotFoundError}


def server_error(error: Any, status: int) -> A2AServerError:
    """The exception for a JSON-RPC error object, or for a `google.rpc.Status` (§9.5, §11.6)."""
    told: Json = error if is_object(error) else {"message": str(error)}
    data = told.get("data", told.get("details"))
    code = told.get("code")
    busy: type[A2AServerError] = ServerBusyError if status in (429, 503) else A2AServerError
    if told.get("status") == "INVALID_ARGUMENT":
        busy = InvalidParamsError
    kind = KINDS.get(_reason(data)) or CODES.get(code if isinstance(code, int) else 0, busy)
    if not isinstance(code, int) or code > 0:  # HTTP+JSON has the status there
        code = kind.code
    return kind(str(told.get("message") or f"HTTP {status}"), code, data, status)


def is_object(value: Any) -> TypeGuard[Json]:
    """Whether *value* is a JSON object."""
    return isinstance(value, dict)


def is_list(value: Any) -> TypeGuard[list[Any]]:
    """Whether *value* is a JSON list."""
    return isinstance(value, list)


def objects(value: Any) -> list[Json]:
    """The JSON objects in a list."""
    items: list[Any] = value if is_list(value) else []
    return [item for item in items if is_object(item)]


def _reason(data: Any) -> str:
    if is_object(data):
        told = [data.get("type")]
    else:
        told = [detail.get("reason") for detail in objects(data)]
    return next((reason for reason in told if isinstance(reason, str)), "")
