"""Errors of the server, in addition to those that the protocol defines.

A2AError                      (a2a-sdk)
├── RetryLaterError              -32029, HTTP 429
│   ├── DrainingError         HTTP 503
│   ├── NotStartedError       HTTP 503
│   ├── RateStorageDownError  HTTP 503
│   └── StoreDownError        HTTP 503
└── InternalError             (a2a-sdk) -32603
    └── InvalidStateTransitionError
StaleTaskError                never leaves the server
"""

from collections.abc import Sequence
from typing import Any, cast

from a2a.utils.errors import JSON_RPC_ERROR_CODE_MAP, A2AError, InternalError


class RetryLaterError(A2AError):
    """The server can't take this request now; also the base of the errors with status 503."""

    code = -32029
    message = "Too many requests"
    status = 429
    """The HTTP status of the response."""
    retry_after = 1
    """Value of the `Retry-After` header, in seconds (RFC 9110 §10.2.3)."""


class DrainingError(RetryLaterError):
    """The server is shutting down and starts no more tasks."""

    message = "The server is shutting down"
    status = 503


class NotStartedError(RetryLaterError):
    """The application has not been started: its lifespan is not running."""

    message = (
        "The agent has not been started: the application that mounts the agent must run "
        "the agent's lifespan, router.lifespan_context"
    )
    status = 503


class RateStorageDownError(RetryLaterError):
    """The storage of the rate limits is unavailable."""

    message = "The storage of the rate limits can't be reached"
    status = 503


DISK_FULL = "The disk of the task store is full"
"""Message for a store that can be read but not written."""


class StoreDownError(RetryLaterError):
    """The task store is unavailable."""

    message = "The task store can't be reached"
    status = 503


class InvalidStateTransitionError(InternalError):
    """A transition that the state machine does not allow: a bug in the server (FR-TSK-001)."""


class StaleTaskError(Exception):
    """A change of a task was not made or not saved, usually because another change came first."""


_ERRORS = {code: cls for cls, code in JSON_RPC_ERROR_CODE_MAP.items()} | {-32029: RetryLaterError}


def refusal(error: dict[str, Any]) -> A2AError:
    """Return the exception for a JSON-RPC error object.

    Example:
        ```python
        from apcore_a2a_server.errors import refusal

        print(repr(refusal({"code": -32001, "message": "Task not found", "data": None})))
        #> TaskNotFoundError(message='Task not found', data=None)
        ```
    """
    return _ERRORS.get(error["code"], InternalError)(error["message"], error["data"])


def forget_frames(error: BaseException) -> None:
    """Drop the tracebacks of an error that has been handled, and of the errors that led to it.

    The members of an exception group count as errors that led to the group.

    A traceback refers to the frames that it passed, with the request in their variables, and some
    of these frames refer to the error. Without this function, the request would stay in memory
    until the garbage collector finds the cycle.
    """
    errors, known_ids = [error], {id(error)}
    for handled in errors:  # grows during the loop
        handled.__traceback__ = None
        members: Sequence[BaseException] = ()
        if isinstance(handled, BaseExceptionGroup):
            members = cast("BaseExceptionGroup[BaseException]", handled).exceptions
        for cause in (handled.__cause__, handled.__context__, *members):
            # compared by identity, since errors of modules may define equality
            if cause is not None and id(cause) not in known_ids:
                known_ids.add(id(cause))
                errors.append(cause)
