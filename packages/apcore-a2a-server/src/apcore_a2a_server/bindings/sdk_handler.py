"""The SDK's `RequestHandler` interface over our handler, for the SDK's servicer or REST routes.

Importing the SDK's server package takes most of a second, so only the gRPC binding imports this
module.
"""

from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, contextmanager
from typing import Any

from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.types import (
    AgentCard,
    ListTaskPushNotificationConfigsResponse,
    TaskPushNotificationConfig,
)
from a2a.utils.errors import InvalidParamsError
from apcore_a2a_core import to_sdk
from apcore_a2a_core.data import ListTasksResponse, Task
from apcore_a2a_core.records import shortened
from apcore_a2a_core.sdk import json_of
from apcore_a2a_core.values import size_of
from google.protobuf.empty_pb2 import Empty
from google.protobuf.json_format import Error as ParseError
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message
from starlette.applications import Starlette

from apcore_a2a_server.engine.clients import Caller, Connection
from apcore_a2a_server.engine.handler import Handler
from apcore_a2a_server.modules.threads import value_thread
from apcore_a2a_server.trace_context import received_trace

from .http import LARGE_BODY
from .operations import call, history_length, read_params

CALLER = "apcore_a2a.caller"
"""Key of the caller in the state of a `ServerCallContext` that our gRPC binding has made."""


def _unary_method(name: str, response_type: type[Message] = Empty) -> Any:
    """Return a method of the SDK's interface that returns the result of an operation.

    Args:
        name: The name of the operation.
        response_type: The SDK's type for the result, if the operation returns it as JSON.
    """

    async def method(self: "SdkRequestHandler", message: Any, context: ServerCallContext) -> Any:
        with _caller(context) as caller:
            params = await _read(name, message, caller)
            result = await call(name, params, self.handler, caller)
            if isinstance(result, Task | ListTasksResponse):
                return await _adapt_result(result, params, caller)
            return ParseDict(result, response_type(), ignore_unknown_fields=True)

    return method


def _stream_method(name: str) -> Any:
    """Return a method of the SDK's interface that yields the events of an operation."""

    async def method(
        self: "SdkRequestHandler", message: Any, context: ServerCallContext
    ) -> AsyncGenerator[Any]:
        with _caller(context) as caller:
            params = await _read(name, message, caller)
            events = await call(name, params, self.handler, caller)
            async with aclosing(events):
                async for batch in events:
                    for event in batch:
                        yield await _adapt_result(event.payload, params, caller)

    return method


class SdkRequestHandler(RequestHandler):
    """The SDK's interface; each of its eleven methods calls one operation of our handler.

    Args:
        handler: The handler of the agent.
    """

    def __init__(self, handler: Handler) -> None:
        self.handler = handler

    on_message_send = _unary_method("SendMessage")
    on_message_send_stream = _stream_method("SendStreamingMessage")
    on_get_task = _unary_method("GetTask")
    on_list_tasks = _unary_method("ListTasks")
    on_cancel_task = _unary_method("CancelTask")
    on_subscribe_to_task = _stream_method("SubscribeToTask")
    on_create_task_push_notification_config = _unary_method(
        "CreateTaskPushNotificationConfig", TaskPushNotificationConfig
    )
    on_get_task_push_notification_config = _unary_method(
        "GetTaskPushNotificationConfig", TaskPushNotificationConfig
    )
    on_list_task_push_notification_configs = _unary_method(
        "ListTaskPushNotificationConfigs", ListTaskPushNotificationConfigsResponse
    )
    on_delete_task_push_notification_config = _unary_method("DeleteTaskPushNotificationConfig")
    on_get_extended_agent_card = _unary_method("GetExtendedAgentCard", AgentCard)


def request_handler(app: Starlette) -> SdkRequestHandler:
    """Return the SDK's interface to an agent that `create_app` has built.

    The lifespan of *app* must run: it opens the store and delivers notifications.

    Example:
        ```python test="lint"
        from a2a.server.routes import create_rest_routes
        from apcore_a2a_server import create_app
        from apcore_a2a_server.bindings.sdk_handler import request_handler

        app = create_app("./extensions")
        routes = create_rest_routes(request_handler(app), path_prefix="/sdk")
        ```
    """
    return SdkRequestHandler(app.state.agent.handler)


async def _read(method: str, message: Message, caller: Caller) -> Any:
    """Decode a protobuf request as if it had come as JSON; a large one in a thread.

    Raises:
        InvalidParamsError: The request is invalid.
    """
    if message.ByteSize() > LARGE_BODY:
        return await value_thread.call(_decode, method, message, client=caller.client)
    return _decode(method, message)


def _decode(method: str, message: Message) -> Any:
    try:
        document = json_of(message)
    except (ParseError, ValueError):
        reason = "a number is not finite, or a time is out of range"
        raise InvalidParamsError(f"Invalid params: {reason}") from None
    return read_params(method, document)


async def _adapt_result(result: Any, params: Any, caller: Caller) -> Any:
    """Return the result in the SDK's types, shortened as the request asks (§3.2.4)."""
    length = history_length(params)
    if isinstance(result, Task):
        result = shortened(result, length)
    elif isinstance(result, ListTasksResponse):
        artifacts = params.include_artifacts
        result.tasks = [shortened(task, length, artifacts=artifacts) for task in result.tasks]
    if size_of(result) > LARGE_BODY:
        return await value_thread.call(to_sdk, result, client=caller.client)
    return to_sdk(result)


@contextmanager
def _caller(context: ServerCallContext) -> Generator[Caller]:
    """Yield the caller that our binding has set, or the one that the SDK's routes describe."""
    if CALLER in context.state:
        yield context.state[CALLER]
        return
    headers, auth = context.state.get("headers", {}), context.state.get("auth")
    # a user's own middleware may set objects that are not identities
    identity = auth if hasattr(auth, "id") else None
    principal = context.user.user_name
    with Connection() as connection:
        trace = received_trace({name.lower(): value for name, value in headers.items()})
        yield Caller(principal, identity, headers, connection, client=principal, trace=trace)
