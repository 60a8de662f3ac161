"""What can go wrong in the server, beside the errors the protocol names.

A2AError                      (a2a-sdk)
├── TooMuchError              -32029, HTTP 429
│   ├── DrainingError         HTTP 503
│   └── StoreDownError        HTTP 503
└── InternalError             (a2a-sdk) -32603
    └── InvalidStateTransitionError
StaleTaskError                never leaves the server
"""

from typing import Any

from a2a.utils.errors import JSON_RPC_ERROR_CODE_MAP, A2AError, InternalError


class TooMuchError(A2AError):
    """The server has no room for this now; the client may try again later."""

    code = -32029
    message = "Too many requests"
    status = 429
    """The HTTP status that says so."""
    retry_after = 1
    """Seconds after which to try again (RFC 9110 §10.2.3)."""


class DrainingError(TooMuchError):
    """The server is about to end, and starts nothing any more."""

    message = "The server is shutting down"
    status = 503


class StoreDownError(TooMuchError):
    """The task store can't be reached."""

    message = "The task store can't be reached"
    status = 503


class InvalidStateTransitionError(InternalError):
    """The state machine has no such transition: a fault of the server (FR-TSK-001)."""


class StaleTaskError(Exception):
    """The task is no longer in the state a change was made for."""


_KINDS = {code: kind for kind, code in JSON_RPC_ERROR_CODE_MAP.items()} | {-32029: TooMuchError}


def refusal(error: dict[str, Any]) -> A2AError:
    """The exception that stands for a JSON-RPC error object.

    Example:
        ```python
        from apcore_a2a_server.errors import refusal

        print(repr(refusal({"code": -32001, "message": "Task not found", "data": None})))
        #> TaskNotFoundError(message='Task not found', data=None)
        ```
    """
    return _KINDS.get(error["code"], InternalError)(error["message"], error["data"])
