"""The methods of both dialects: what each reads, does, and answers."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from a2a import types as a2a
from apcore_a2a_core import card_to_dict

from .admission import Caller
from .decode import Json, decode
from .encode import V03, V1
from .handler import Handler
from .journal import Event

Events: TypeAlias = AsyncIterator[Event | None]


@dataclass(frozen=True, slots=True)
class Request:
    """A decoded request, with its JSON and the dialect it wants its answer in."""

    message: Any
    params: Json
    caller: Caller
    dialect: V1

    @property
    def history_length(self) -> int | None:
        """How much history the answer shall have (A2A 1.0 §3.2.4)."""
        source = getattr(self.message, "configuration", self.message)
        return source.history_length if source.HasField("history_length") else None

    @property
    def last_event_id(self) -> int | None:
        """The event a reader saw last, from its `Last-Event-ID` header."""
        text = self.caller.headers.get("last-event-id", "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


Do: TypeAlias = Callable[[Handler, Request], Awaitable[Any]]


async def send(handler: Handler, request: Request) -> Json:
    task = await handler.send(request.message, request.caller, _parts(request))
    return request.dialect.sent(task, request.history_length)


async def stream(handler: Handler, request: Request) -> Events:
    parts = _parts(request)
    ticket = await handler.admit(request.message, request.caller, parts, streaming=True)
    return handler.follow(ticket)


async def subscribe(handler: Handler, request: Request) -> Events:
    return await handler.attach(request.message, request.caller, request.last_event_id)


async def resubscribe(handler: Handler, request: Request) -> Events:
    last_id = request.last_event_id
    return await handler.attach(request.message, request.caller, last_id, ended=True)


async def get(handler: Handler, request: Request) -> Json:
    task = await handler.get(request.message, request.caller)
    return request.dialect.task(task, request.history_length)


async def cancel(handler: Handler, request: Request) -> Json:
    return request.dialect.task(await handler.cancel(request.message, request.caller))


async def list_updated(handler: Handler, request: Request) -> Json:
    """`ListTasks`: all four members are always there, artifacts only if asked for (§3.1.4)."""
    page = await handler.list(request.message, request.caller)
    artifacts = request.message.include_artifacts
    return {
        "tasks": [
            request.dialect.task(task, request.history_length, artifacts=artifacts)
            for task in page.tasks
        ],
        "nextPageToken": page.next_page_token,
        "pageSize": page.page_size,
        "totalSize": page.total_size,
    }


async def list_created(handler: Handler, request: Request) -> Json:
    """`tasks/list` of the SRS (FR-TSK-006)."""
    page = await handler.list_created(request.message, request.caller)
    tasks = [request.dialect.task(task, request.history_length) for task in page.tasks]
    more = {"nextCursor": page.next_page_token} if page.next_page_token else {}
    return {"tasks": tasks, **more}


async def push_config(handler: Handler, request: Request) -> Json:
    return request.dialect.message(await handler.push_config(request.message, request.caller))


async def extended_card(handler: Handler, request: Request) -> Json:
    return card_to_dict(await handler.extended_card(request.message, request.caller))


def _parts(request: Request) -> Any:
    """The message's parts as they came in JSON, where integers are exact."""
    return request.params["message"].get("parts")


_TABLE: tuple[tuple[str, type[Any], Do], ...] = (
    ("SendMessage message/send", a2a.SendMessageRequest, send),
    ("SendStreamingMessage message/stream", a2a.SendMessageRequest, stream),
    ("GetTask tasks/get", a2a.GetTaskRequest, get),
    ("CancelTask tasks/cancel", a2a.CancelTaskRequest, cancel),
    ("ListTasks", a2a.ListTasksRequest, list_updated),
    ("tasks/list", a2a.ListTasksRequest, list_created),
    ("SubscribeToTask", a2a.SubscribeToTaskRequest, subscribe),
    ("tasks/resubscribe", a2a.SubscribeToTaskRequest, resubscribe),
    (
        "CreateTaskPushNotificationConfig tasks/pushNotificationConfig/set",
        a2a.TaskPushNotificationConfig,
        push_config,
    ),
    (
        "GetTaskPushNotificationConfig tasks/pushNotificationConfig/get",
        a2a.GetTaskPushNotificationConfigRequest,
        push_config,
    ),
    (
        "ListTaskPushNotificationConfigs tasks/pushNotificationConfig/list",
        a2a.ListTaskPushNotificationConfigsRequest,
        push_config,
    ),
    (
        "DeleteTaskPushNotificationConfig tasks/pushNotificationConfig/delete",
        a2a.DeleteTaskPushNotificationConfigRequest,
        push_config,
    ),
    (
        "GetExtendedAgentCard agent/getAuthenticatedExtendedCard agentCard/get",
        a2a.GetExtendedAgentCardRequest,
        extended_card,
    ),
)

_V1 = V1()
_V03 = V03()
METHODS = {
    name: (_V03 if "/" in name else _V1, kind, do)
    for names, kind, do in _TABLE
    for name in names.split()
}
"""Each method's dialect, the message that its params are, and what it does."""


async def perform(method: str, params: Json, handler: Handler, caller: Caller) -> Json | Events:
    """Do what *method* says: its result as JSON, or the events of a stream.

    Raises:
        A2AError: Whatever stands against it.
    """
    dialect, kind, do = METHODS[method]
    result: Json | Events = await do(
        handler, Request(decode(kind, params), params, caller, dialect)
    )
    return result
