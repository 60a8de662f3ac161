"""The methods of both dialects: how params are decoded, operations called, results encoded."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from a2a import types as a2a
from a2a.types import DeleteTaskPushNotificationConfigRequest
from apcore_a2a_core.dialects import V03, V1, Json, decode
from apcore_a2a_core.states import SETTLED, TERMINAL
from apcore_a2a_core.values import dump_json

from apcore_a2a_server.engine.clients import Caller
from apcore_a2a_server.engine.handler import Events, Handler, Request
from apcore_a2a_server.errors import DISK_FULL, StoreDownError
from apcore_a2a_server.modules.threads import large_values
from apcore_a2a_server.store import DiskFullError, Payload, UnavailableError

LARGE_RESULT = 64 * 1024  # bytes
"""Larger tasks and pages of tasks are encoded in a thread."""

Operation: TypeAlias = Callable[[Handler, Request], Awaitable[Any]]

_TABLE: tuple[tuple[str, type[Any], Operation], ...] = (
    ("SendMessage message/send", a2a.SendMessageRequest, Handler.send),
    ("SendStreamingMessage message/stream", a2a.SendMessageRequest, Handler.stream),
    ("GetTask tasks/get", a2a.GetTaskRequest, Handler.get),
    ("CancelTask tasks/cancel", a2a.CancelTaskRequest, Handler.cancel),
    ("ListTasks", a2a.ListTasksRequest, Handler.list),
    ("tasks/list", a2a.ListTasksRequest, Handler.list_created),
    ("SubscribeToTask", a2a.SubscribeToTaskRequest, Handler.subscribe),
    ("tasks/resubscribe", a2a.SubscribeToTaskRequest, Handler.resubscribe),
    *(
        (f"{name} tasks/pushNotificationConfig/{verb_03}", request_type, Handler.push_config)
        for name, verb_03, request_type in (
            ("CreateTaskPushNotificationConfig", "set", a2a.TaskPushNotificationConfig),
            ("GetTaskPushNotificationConfig", "get", a2a.GetTaskPushNotificationConfigRequest),
            ("ListTaskPushNotificationConfigs", "list", a2a.ListTaskPushNotificationConfigsRequest),
            ("DeleteTaskPushNotificationConfig", "delete", DeleteTaskPushNotificationConfigRequest),
        )
    ),
    (
        "GetExtendedAgentCard agent/getAuthenticatedExtendedCard agentCard/get",
        a2a.GetExtendedAgentCardRequest,
        Handler.extended_card,
    ),
)
"""Names of a method in 1.0 and 0.3, the SDK's type of its params, and its operation."""
DIALECT_1 = V1()
DIALECT_03 = V03()
METHODS = {
    # only the names of 0.3 have a slash, so that the name decides the dialect
    name: (DIALECT_03 if "/" in name else DIALECT_1, request_type, operation)
    for names, request_type, operation in _TABLE
    for name in names.split()
}
"""The dialect of each method, the SDK's type of its params, and its operation."""


class Stream(NamedTuple):
    """Events, and the function that converts one into JSON."""

    events: Events
    encode: Callable[[Payload], Json]


class Params(NamedTuple):
    """The params of a request: the SDK's message and, for a send, its parts as sent in JSON."""

    message: Any
    json_parts: Any


def read_params(method: str, params: Json) -> Params:
    """Decode the params of *method*.

    Raises:
        InvalidParamsError: They are invalid.
    """
    dialect, request_type, _ = METHODS[method]
    message = decode(request_type, params, version=dialect.version)
    is_send = request_type is a2a.SendMessageRequest
    return Params(message, params["message"].get("parts") if is_send else None)


async def perform(
    method: str, params: Params, handler: Handler, caller: Caller, dialect: V1 | None = None
) -> Any:
    """Call the operation of *method*, and encode its result.

    Args:
        method: The name of the method, of 1.0 or 0.3.
        params: Its params.
        handler: Performs the operation.
        caller: The sender of the request.
        dialect: The dialect of the result, if it is not the method's.

    Returns:
        A JSON value, a large one as bytes, or a `Stream`.

    Raises:
        A2AError: The operation refuses the request.
    """
    result = await call(method, params, handler, caller)
    dialect, message, length = dialect or METHODS[method][0], params.message, history_length(params)
    if isinstance(result, a2a.Task):
        is_send = isinstance(message, a2a.SendMessageRequest)
        encode = partial(dialect.sent if is_send else dialect.task, result, length)
        if result.ByteSize() > LARGE_RESULT:
            return await large_values.call(lambda: dump_json(encode()))
        return encode()
    if isinstance(result, a2a.ListTasksResponse):
        if result.ByteSize() > LARGE_RESULT:
            return await large_values.call(_dump_page, dialect, message, result, length)
        return _encode_page(dialect, message, result, length)
    if not isinstance(result, AsyncGenerator):
        return result
    # a subscription stays open while the task is paused; the stream of a send ends there
    until = TERMINAL if isinstance(message, a2a.SubscribeToTaskRequest) else SETTLED
    return Stream(result, partial(dialect.event, history_length=length, until=until))


async def call(method: str, params: Params, handler: Handler, caller: Caller) -> Any:
    """Call the operation of *method*.

    Returns:
        The result of the operation, before it is adapted to the request and encoded.

    Raises:
        A2AError: The operation refuses the request.
    """
    dialect, _, operation = METHODS[method]
    if params.message.tenant:
        caller = await handler.enter_tenant(params.message.tenant, caller)
    last_event_id = _last_event_id(caller)
    request = Request(params.message, caller, params.json_parts, last_event_id, dialect.version)
    try:
        return await operation(handler, request)
    except DiskFullError:  # errors of stores have no code in the protocol
        raise StoreDownError(DISK_FULL) from None
    except UnavailableError:
        raise StoreDownError from None


def _encode_page(
    dialect: V1, request: a2a.ListTasksRequest, page: a2a.ListTasksResponse, length: int | None
) -> Json:
    """Encode a page of tasks; in 1.0, artifacts are left out unless requested (§3.1.4)."""
    artifacts = dialect.version == "0.3" or request.include_artifacts
    tasks = [dialect.task(task, length, artifacts=artifacts) for task in page.tasks]
    return {"tasks": tasks, **_page_members(dialect, page)}


def _dump_page(
    dialect: V1, request: a2a.ListTasksRequest, page: a2a.ListTasksResponse, length: int | None
) -> bytes:
    """Return a page as JSON, encoded task by task so that other threads run in between."""
    artifacts = dialect.version == "0.3" or request.include_artifacts
    tasks = [dump_json(dialect.task(task, length, artifacts=artifacts)) for task in page.tasks]
    empty_page = dump_json({**_page_members(dialect, page), "tasks": []})
    return empty_page.removesuffix(b"]}") + b",".join(tasks) + b"]}"


def _page_members(dialect: V1, page: a2a.ListTasksResponse) -> Json:
    """Return the members of a page besides its tasks; in 1.0 they are always present."""
    if dialect.version == "0.3":
        return {"nextCursor": page.next_page_token} if page.next_page_token else {}
    return {
        "nextPageToken": page.next_page_token,
        "pageSize": page.page_size,
        "totalSize": page.total_size,
    }


def history_length(params: Params) -> int | None:
    """Return the number of history messages in the answer (§3.2.4); None for all."""
    message = params.message
    if isinstance(message, a2a.SendMessageRequest):
        message = message.configuration
    has_field = "history_length" in message.DESCRIPTOR.fields_by_name
    return message.history_length if has_field and message.HasField("history_length") else None


def _last_event_id(caller: Caller) -> int | None:
    """Return the version in the header `Last-Event-ID`; None if it is missing or not a version."""
    # other ids are ignored: a browser may send the id of an event from another server
    text = caller.headers.get("last-event-id", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None
