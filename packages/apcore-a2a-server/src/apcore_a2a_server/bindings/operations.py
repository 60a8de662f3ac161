"""The methods of both dialects: how params are decoded, operations called, results encoded."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias

from apcore_a2a_core.data import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    ListTasksResponse,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
)
from apcore_a2a_core.dialects import V03, V1, Json, decode
from apcore_a2a_core.states import SETTLED, TERMINAL
from apcore_a2a_core.values import dump_json

from apcore_a2a_server.engine.clients import Caller
from apcore_a2a_server.engine.handler import Handler, Request
from apcore_a2a_server.errors import DISK_FULL, StoreDownError
from apcore_a2a_server.modules.threads import value_thread
from apcore_a2a_server.store import DiskFullError, UnavailableError

from .http import Stream, dump

LARGE_PAGE = 1024 * 1024  # bytes
"""Size of the encoded tasks of a page above which further tasks are encoded in a thread."""

Operation: TypeAlias = Callable[[Handler, Request], Awaitable[Any]]

_TABLE: tuple[tuple[str, type[Any], Operation], ...] = (
    ("SendMessage message/send", SendMessageRequest, Handler.send),
    ("SendStreamingMessage message/stream", SendMessageRequest, Handler.stream),
    ("GetTask tasks/get", GetTaskRequest, Handler.get),
    ("CancelTask tasks/cancel", CancelTaskRequest, Handler.cancel),
    ("ListTasks", ListTasksRequest, Handler.list),
    ("tasks/list", ListTasksRequest, Handler.list_created),
    ("SubscribeToTask", SubscribeToTaskRequest, Handler.subscribe),
    ("tasks/resubscribe", SubscribeToTaskRequest, Handler.resubscribe),
    *(
        (f"{name} tasks/pushNotificationConfig/{verb_03}", request_type, Handler.push_config)
        for name, verb_03, request_type in (
            ("CreateTaskPushNotificationConfig", "set", TaskPushNotificationConfig),
            ("GetTaskPushNotificationConfig", "get", GetTaskPushNotificationConfigRequest),
            ("ListTaskPushNotificationConfigs", "list", ListTaskPushNotificationConfigsRequest),
            ("DeleteTaskPushNotificationConfig", "delete", DeleteTaskPushNotificationConfigRequest),
        )
    ),
    (
        "GetExtendedAgentCard agent/getAuthenticatedExtendedCard agentCard/get",
        GetExtendedAgentCardRequest,
        Handler.extended_card,
    ),
)
"""Names of a method in 1.0, 0.3 and our requirements specification (docs/internal/requirements.md),
the type of its params, and its operation."""
DIALECT_1 = V1()
DIALECT_03 = V03()
METHODS = {
    # names of 1.0 have no slash: the name decides the dialect
    name: (DIALECT_03 if "/" in name else DIALECT_1, request_type, operation)
    for names, request_type, operation in _TABLE
    for name in names.split()
}
"""The dialect of each method, the type of its params, and its operation."""


def read_params(method: str, params: Json) -> Any:
    """Decode the params of *method* into their type in `apcore_a2a_core.data`.

    Raises:
        InvalidParamsError: The params are invalid.
    """
    dialect, request_type, _ = METHODS[method]
    return decode(request_type, params, version=dialect.version)


async def perform(
    method: str, params: Any, handler: Handler, caller: Caller, dialect: V1 | None = None
) -> Any:
    """Call the operation of *method*, and convert its result to the dialect.

    Args:
        method: The name of the method, of 1.0 or 0.3.
        params: Its params.
        handler: Performs the operation.
        caller: The sender of the request.
        dialect: The dialect of the result, if it is not the method's.

    Returns:
        A value for `dump_json`, a task or page of tasks as bytes, or a `Stream`.

    Raises:
        A2AError: The operation refuses the request.
    """
    result = await call(method, params, handler, caller)
    dialect, length = dialect or METHODS[method][0], history_length(params)
    if isinstance(result, Task):
        # the type is compared because `isinstance` is slow for structs when it fails
        to_dialect = dialect.send_result if type(params) is SendMessageRequest else dialect.task
        return await dump(partial(to_dialect, history_length=length), result, caller.client)
    if isinstance(result, ListTasksResponse):
        return await _dump_page(dialect, params, result, length, caller.client)
    if not isinstance(result, AsyncGenerator):
        return result
    # a subscription stays open while the task is paused; other streams end at the pause
    until = TERMINAL if isinstance(params, SubscribeToTaskRequest) else SETTLED
    encode = partial(dialect.event, history_length=length, until=until)
    return Stream(result, encode, caller.client)


async def call(method: str, params: Any, handler: Handler, caller: Caller) -> Any:
    """Call the operation of *method*.

    Returns:
        The result of the operation, before it is adapted to the request and encoded.

    Raises:
        A2AError: The operation refuses the request.
    """
    dialect, _, operation = METHODS[method]
    if params.tenant:
        caller = await handler.enter_tenant(params.tenant, caller)
    request = Request(params, caller, _last_event_id(caller), dialect.version)
    try:
        return await operation(handler, request)
    except UnavailableError as error:
        raise store_down_error(error) from None


def store_down_error(error: UnavailableError) -> StoreDownError:
    """Return the error that clients get for *error*: UnavailableError has no JSON-RPC code."""
    return StoreDownError(DISK_FULL) if isinstance(error, DiskFullError) else StoreDownError()


async def _dump_page(
    dialect: V1,
    request: ListTasksRequest,
    page: ListTasksResponse,
    length: int | None,
    client: str,
) -> bytes:
    """Return a page as JSON; in 1.0, artifacts are left out unless requested (§3.1.4)."""
    artifacts = dialect.version == "0.3" or request.include_artifacts
    tasks: list[bytes] = []
    size = 0
    for task in page.tasks:
        encode = partial(_dump_task, dialect, task, length, artifacts=artifacts)
        is_large = size > LARGE_PAGE
        tasks.append(await value_thread.call(encode, client=client) if is_large else encode())
        size += len(tasks[-1])
    empty_page = dump_json({**_page_members(dialect, page), "tasks": []})
    return empty_page.removesuffix(b"]}") + b",".join(tasks) + b"]}"


def _dump_task(dialect: V1, task: Task, length: int | None, *, artifacts: bool) -> bytes:
    return dump_json(dialect.task(task, length, artifacts=artifacts))


def _page_members(dialect: V1, page: ListTasksResponse) -> Json:
    """Return the members of a page except its tasks; in 1.0 these members are always present."""
    if dialect.version == "0.3":
        return {"nextCursor": page.next_page_token} if page.next_page_token else {}
    return {
        "nextPageToken": page.next_page_token,
        "pageSize": page.page_size,
        "totalSize": page.total_size,
    }


def history_length(params: Any) -> int | None:
    """Return the maximum number of history messages in the answer (§3.2.4); None for all."""
    if type(params) is SendMessageRequest:
        params = params.configuration
    length: int | None = getattr(params, "history_length", None)
    return length


def _last_event_id(caller: Caller) -> int | None:
    """Return the version in the header `Last-Event-ID`; None if it is missing or not a version."""
    # other ids are ignored: a browser may send the id of an event from another server
    text = caller.headers.get("last-event-id", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None
