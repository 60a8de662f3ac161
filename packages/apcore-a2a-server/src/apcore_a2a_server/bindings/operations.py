"""The methods of both dialects: what each reads, does, and answers."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from a2a import types as a2a
from a2a.types import DeleteTaskPushNotificationConfigRequest
from apcore_a2a_core.dialects import V03, V1, Json, decode

from apcore_a2a_server.engine.clients import Caller
from apcore_a2a_server.engine.handler import Events, Handler, Request
from apcore_a2a_server.errors import StoreDownError
from apcore_a2a_server.store import Payload, UnavailableError

Do: TypeAlias = Callable[[Handler, Request], Awaitable[Any]]

_TABLE: tuple[tuple[str, type[Any], Do], ...] = (
    ("SendMessage message/send", a2a.SendMessageRequest, Handler.send),
    ("SendStreamingMessage message/stream", a2a.SendMessageRequest, Handler.stream),
    ("GetTask tasks/get", a2a.GetTaskRequest, Handler.get),
    ("CancelTask tasks/cancel", a2a.CancelTaskRequest, Handler.cancel),
    ("ListTasks", a2a.ListTasksRequest, Handler.list),
    ("tasks/list", a2a.ListTasksRequest, Handler.list_created),
    ("SubscribeToTask", a2a.SubscribeToTaskRequest, Handler.subscribe),
    ("tasks/resubscribe", a2a.SubscribeToTaskRequest, Handler.resubscribe),
    *(
        (f"{name} tasks/pushNotificationConfig/{old}", kind, Handler.push_config)
        for name, old, kind in (
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
DIALECT_1 = V1()
DIALECT_03 = V03()
METHODS = {
    name: (DIALECT_03 if "/" in name else DIALECT_1, kind, do)
    for names, kind, do in _TABLE
    for name in names.split()
}
"""Each method's dialect, the message that its params are, and what it does."""


class Stream(NamedTuple):
    """Events, and what makes the JSON of one."""

    events: Events
    encode: Callable[[Payload], Json]


async def perform(method: str, params: Json, handler: Handler, caller: Caller) -> Any:
    """Do what *method* says: its result as a JSON value, or a `Stream`.

    Raises:
        A2AError: Whatever stands against it.
    """
    dialect, kind, do = METHODS[method]
    asked: Any = decode(kind, params)
    sends = kind is a2a.SendMessageRequest
    parts = params["message"].get("parts") if sends else None
    asking = Request(asked, caller, parts, _last_event_id(caller), dialect.version)
    try:
        result = await do(handler, asking)
    except UnavailableError:
        raise StoreDownError from None
    length = _history_length(asked.configuration if sends else asked)
    if isinstance(result, a2a.Task):
        return dialect.sent(result, length) if sends else dialect.task(result, length)
    if isinstance(result, a2a.ListTasksResponse):
        return _page(dialect, asked, result, length)
    if not isinstance(result, AsyncGenerator):
        return result
    return Stream(result, partial(dialect.event, history_length=length))


def _page(
    dialect: V1, asked: a2a.ListTasksRequest, page: a2a.ListTasksResponse, length: int | None
) -> Json:
    """1.0 always has all four members, and artifacts only if asked for (§3.1.4)."""
    artifacts = dialect.version == "0.3" or asked.include_artifacts
    tasks = [dialect.task(task, length, artifacts=artifacts) for task in page.tasks]
    if dialect.version == "0.3":
        more = {"nextCursor": page.next_page_token} if page.next_page_token else {}
        return {"tasks": tasks, **more}
    return {
        "tasks": tasks,
        "nextPageToken": page.next_page_token,
        "pageSize": page.page_size,
        "totalSize": page.total_size,
    }


def _history_length(source: Any) -> int | None:
    """How much history the answer shall have (§3.2.4); None for all."""
    known = "history_length" in source.DESCRIPTOR.fields_by_name
    return source.history_length if known and source.HasField("history_length") else None


def _last_event_id(caller: Caller) -> int | None:
    """The event a reader saw last, from its `Last-Event-ID` header."""
    text = caller.headers.get("last-event-id", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None
