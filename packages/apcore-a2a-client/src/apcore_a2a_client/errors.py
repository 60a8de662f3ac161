"""Exceptions of the client.

A2AError
├── A2AConnectionError                      cannot connect, or connection lost; `sent`
│   └── A2ATimeoutError                     no response, or the task took too long
├── A2ADiscoveryError                       no usable card; `status_code`, `url`
│   └── CardRefusedError                    the caller's function refused the card
├── A2AProtocolError                        the response is not A2A
├── CredentialsRefusedError                 the card leads to another origin; `agent`, `foreign`
├── DestinationRefusedError                 `check_destination` refused a host; `address`, `foreign`
├── TokenUnavailableError                   no OAuth 2 token; `error`, `status_code`
├── A2AAuthError                            HTTP 401 or 403; `status_code`, `challenge`
├── A2AServerError                          request refused; `code`, `data`, `reason`, `status_code`
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
├── TaskFailedError                         raised by `call` and `stream`; `task`, `code`, `data`
├── StreamRestartedError                    raised by `stream`: values would repeat; `task`
└── InputRequired                           raised by `call` and `stream`; `task`
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeAlias, TypeGuard

Json: TypeAlias = dict[str, Any]
MAX_QUOTED = 500
"""Maximum length of an agent's text in the message of an exception, in characters."""


class A2AError(Exception):
    """Base class of all errors in communication with an agent."""

    def __reduce__(self) -> tuple[Any, ...]:
        # By default, pickle calls the class with `args`, but subclasses take other parameters.
        return Exception.__new__, (type(self), *self.args), vars(self)


class A2AConnectionError(A2AError):
    """The agent cannot be reached, or the connection was lost (FR-CLI-003.4).

    Attributes:
        sent: Whether the request may have reached the agent.
    """

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class A2ATimeoutError(A2AConnectionError):
    """The agent did not respond, or the task did not end or pause, within the timeout."""


class A2ADiscoveryError(A2AError):
    """The agent has no card that this client can use (FR-CLI-002.4).

    Attributes:
        url: The URL of the card that was requested last; the agent's base URL if the card has no
            interface that this client supports, or if the extended card was refused.
        status_code: The HTTP status of the response; None if the response could not be read,
            `verify_card` refused the card, or the card has no interface that this client supports.
    """

    def __init__(self, message: str, *, url: str, status_code: int | None = None) -> None:
        super().__init__(message if url in message else f"{message} ({url})")
        self.url = url
        self.status_code = status_code


class CardRefusedError(A2ADiscoveryError):
    """The function passed as `verify_card` refused the card, so nothing else was sent.

    `__cause__` is the exception that the function raised, or the `A2AProtocolError` for an invalid
    card that it returned.
    """

    def __init__(self, message: str, *, url: str, status_code: int | None = None) -> None:
        reason = message[:MAX_QUOTED]
        super().__init__(f"Agent card refused: {reason}", url=url, status_code=status_code)


class A2AProtocolError(A2AError):
    """The agent's response is not A2A, or the request is not valid HTTP."""


class CredentialsRefusedError(A2AError):
    """The agent's card leads to another origin, which must not receive the credentials.

    Nothing was sent there. To allow that origin, pass `credentials_for=[error.foreign]`.

    Attributes:
        agent: The origin that the credentials are for.
        foreign: The other origin.
    """

    def __init__(self, agent: str, foreign: str) -> None:
        super().__init__(
            f"The credentials are for {agent}, but the agent's card leads to {foreign}: "
            f"to send them there, pass credentials_for=[{foreign!r}]"
        )
        self.agent = agent
        self.foreign = foreign


class DestinationRefusedError(A2AError):
    """The agent's card or a redirect leads to a host that `check_destination` does not allow.

    Nothing was sent there.

    Attributes:
        foreign: The origin in the card or the redirect.
        address: The IP address of that origin's host.
    """

    def __init__(self, foreign: str, address: str) -> None:
        super().__init__(
            f"The agent's card or a redirect leads to {foreign}, "
            f"whose IP address {address} is not allowed"
        )
        self.foreign = foreign
        self.address = address


class TokenUnavailableError(A2AError):
    """No access token could be obtained for a request to the agent.

    Attributes:
        error: The error code of OAuth 2 (RFC 6749 §5.2), such as `invalid_client`; may be empty.
        status_code: The HTTP status of the authorization server's response; may be None.
    """

    def __init__(self, message: str, *, error: str = "", status_code: int | None = None) -> None:
        super().__init__(message)
        self.error = error
        self.status_code = status_code


class A2AAuthError(A2AError):
    """The agent requires credentials, or refuses those that were sent.

    Attributes:
        status_code: 401 or 403.
        challenge: The `WWW-Authenticate` header of the response (RFC 9110 §11.6.1).
    """

    def __init__(self, status_code: int, challenge: str = "") -> None:
        problem = "refuses these credentials" if status_code == 403 else "requires credentials"
        super().__init__(f"HTTP {status_code}: the agent {problem}")
        self.status_code = status_code
        self.challenge = challenge


class A2AServerError(A2AError):
    """The agent refused a request (A2A 1.0 §9.5, §11.6).

    Attributes:
        code: The JSON-RPC code of the error, even over HTTP+JSON.
        data: The `data` or `details` of the error object.
        reason: The reason of the `ErrorInfo` in `data`, such as `TASK_NOT_FOUND`, or else the
            `type` in `data`; empty if there is neither.
        status_code: The HTTP status.
    """

    code = -32603

    def __init__(self, message: str, code: int, data: Any, status_code: int) -> None:
        super().__init__(message[:MAX_QUOTED])
        self.code = code
        self.data = data
        self.reason = _reason(data)
        self.status_code = status_code


class TaskNotFoundError(A2AServerError):
    """The task does not exist, or belongs to another principal."""

    code = -32001


class TaskNotCancelableError(A2AServerError):
    """The task cannot be canceled, since it has ended."""

    code = -32002


class PushNotificationNotSupportedError(A2AServerError):
    """The agent does not send push notifications."""

    code = -32003


class UnsupportedOperationError(A2AServerError):
    """The agent does not support the operation, or not for this task."""

    code = -32004


class MethodNotFoundError(UnsupportedOperationError):
    """The agent does not know the method."""

    code = -32601


class ContentTypeNotSupportedError(A2AServerError):
    """The agent does not accept this type of content."""

    code = -32005


class InvalidAgentResponseError(A2AServerError):
    """The agent behind the server returned an invalid response."""

    code = -32006


class ExtendedAgentCardNotConfiguredError(A2AServerError):
    """The agent has no extended card."""

    code = -32007


class ExtensionSupportRequiredError(A2AServerError):
    """The agent requires an extension of the protocol."""

    code = -32008


class VersionNotSupportedError(A2AServerError):
    """The agent does not support this version of the protocol."""

    code = -32009


class InvalidParamsError(A2AServerError):
    """The agent refused the parameters, or the skill refused its input.

    Attributes:
        errors: An object `{"field": …, "message": …}` for each invalid field.
    """

    code = -32602

    @property
    def errors(self) -> list[dict[str, Any]]:
        """The invalid fields, each as `{"field": …, "message": …}`."""
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
    """The agent is overloaded, or a limit is reached.

    Attributes:
        retry_after: Seconds to wait before a retry (RFC 9110 §10.2.3); None if unknown.
    """

    code = -32029

    retry_after: float | None = None


class TaskFailedError(A2AError):
    """The task failed, or was rejected or canceled.

    Attributes:
        task: The task in its final state.
        code: The JSON-RPC code in the agent's last message; None if it has no code.
        data: The details that accompany the code.
    """

    def __init__(self, message: str, task: Any, details: Json) -> None:
        super().__init__(message[:MAX_QUOTED])
        self.task = task
        self.code = details.get("code")
        self.data = details.get("data")


class StreamRestartedError(A2AError):
    """The task was restarted, so the values of its stream would repeat.

    To continue the stream instead, pass `on_restart=`, a function that discards the values so far.
    The task itself continues: use `wait` or `follow` to get its result.

    Attributes:
        task: The task.
    """

    def __init__(self, task: Any) -> None:
        super().__init__("The task was restarted: discard its values so far, or pass on_restart=")
        self.task = task


class InputRequired(A2AError):
    """The task waits for input; answer it with `client.reply(error.task, …)`.

    Attributes:
        task: The paused task; its `status.message` says what is needed.
    """

    def __init__(self, message: str, task: Any) -> None:
        super().__init__(message[:MAX_QUOTED])
        self.task = task


@cache
def upper_snake(name: str) -> str:
    """Convert a name such as `TaskNotFound` to `TASK_NOT_FOUND`."""
    return "".join(f"_{c}" if c.isupper() else c.upper() for c in name).lstrip("_")


REASONS: dict[str, type[A2AServerError]] = {
    upper_snake(error.__name__.removesuffix("Error")): error
    for error in (*A2AServerError.__subclasses__(), *UnsupportedOperationError.__subclasses__())
} | {
    "MODULE_NOT_FOUND": SkillNotFoundError,
    "MODULE_DISABLED": SkillNotFoundError,
    "ModuleNotFoundError": SkillNotFoundError,
    "SCHEMA_VALIDATION_ERROR": InvalidParamsError,
}
"""Exceptions by the `reason` in an error (A2A 1.0 §5.4), or by apcore's name for the error."""
CODES = {error.code: error for error in REASONS.values() if error is not SkillNotFoundError}
"""Exceptions by JSON-RPC code: for -32601, `MethodNotFoundError` and not `SkillNotFoundError`."""


def server_error(error: Any, http_status: int, retry_after: float | None = None) -> A2AServerError:
    """Return the exception for a JSON-RPC error or a `google.rpc.Status` (§9.5, §11.6)."""
    details: Json = error if is_object(error) else {"message": str(error)}
    data = details.get("data", details.get("details"))
    code = details.get("code")
    default: type[A2AServerError] = ServerBusyError if http_status in (429, 503) else A2AServerError
    if details.get("status") == "INVALID_ARGUMENT":
        default = InvalidParamsError
    numeric_code = code if isinstance(code, int) else 0
    error_type = REASONS.get(_reason(data)) or CODES.get(numeric_code, default)
    # In HTTP+JSON the code is the HTTP status, which is positive; JSON-RPC codes are negative.
    if not isinstance(code, int) or code > 0:
        code = error_type.code
    message = str(details.get("message") or f"HTTP {http_status}")
    exception = error_type(message, code, data, http_status)
    if isinstance(exception, ServerBusyError):
        exception.retry_after = retry_after
    return exception


def is_object(value: Any) -> TypeGuard[Json]:
    """Return whether *value* is a JSON object."""
    return isinstance(value, dict)


def is_list(value: Any) -> TypeGuard[list[Any]]:
    """Return whether *value* is a JSON list."""
    return isinstance(value, list)


def objects(value: Any) -> list[Json]:
    """Return the JSON objects in *value*; none if it is not a list."""
    items: list[Any] = value if is_list(value) else []
    return [item for item in items if is_object(item)]


def _reason(data: Any) -> str:
    if is_object(data):
        reasons = [data.get("type")]
    else:
        reasons = [detail.get("reason") for detail in objects(data)]
    return next((reason for reason in reasons if isinstance(reason, str)), "")
