"""The SDK's `RequestHandler` interface on top of our handler, for its gRPC or REST routes.

Importing the SDK's server package takes most of a second, so no other module imports this one.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.types import (
    AgentCard,
    ListTaskPushNotificationConfigsResponse,
    TaskPushNotificationConfig,
)
from google.protobuf.empty_pb2 import Empty
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message
from starlette.applications import Starlette

from apcore_a2a_server.engine.clients import Caller, Connection
from apcore_a2a_server.engine.handler import Handler, Request

from .operations import Operation


def _unary_method(operation: Operation) -> Any:
    """Return a method of the SDK's interface that returns the result of *operation*."""

    async def method(self: "SdkRequestHandler", params: Any, context: ServerCallContext) -> Any:
        with Connection() as connection:
            return await operation(self.handler, _request(params, context, connection))

    return method


def _stream_method(operation: Operation) -> Any:
    """Return a method of the SDK's interface that yields the events of *operation*."""

    async def method(
        self: "SdkRequestHandler", params: Any, context: ServerCallContext
    ) -> AsyncGenerator[Any]:
        with Connection() as connection:
            events = await operation(self.handler, _request(params, context, connection))
            async with aclosing(events):
                async for event in events:
                    if event is not None:  # the SDK has its own signs of life
                        yield event.payload

    return method


def _json_method(response_type: type[Message], operation: Operation = Handler.push_config) -> Any:
    """Return a method of the SDK's interface that parses the JSON of *operation*."""

    async def parse(handler: Handler, request: Request) -> Message:
        document = await operation(handler, request)
        return ParseDict(document, response_type(), ignore_unknown_fields=True)

    return _unary_method(parse)


class SdkRequestHandler(RequestHandler):
    """The SDK's interface; each of its eleven methods calls one operation of our handler.

    Args:
        handler: The handler of the agent.
    """

    def __init__(self, handler: Handler) -> None:
        self.handler = handler

    on_message_send = _unary_method(Handler.send)
    on_message_send_stream = _stream_method(Handler.stream)
    on_get_task = _unary_method(Handler.get)
    on_list_tasks = _unary_method(Handler.list)
    on_cancel_task = _unary_method(Handler.cancel)
    on_subscribe_to_task = _stream_method(Handler.subscribe)
    on_create_task_push_notification_config = _json_method(TaskPushNotificationConfig)
    on_get_task_push_notification_config = _json_method(TaskPushNotificationConfig)
    on_list_task_push_notification_configs = _json_method(ListTaskPushNotificationConfigsResponse)
    on_delete_task_push_notification_config = _json_method(Empty)
    on_get_extended_agent_card = _json_method(AgentCard, Handler.extended_card)


def request_handler(app: Starlette) -> SdkRequestHandler:
    """Return the SDK's interface to an agent that `create_app` has built.

    The lifespan of *app* must run: it opens the store and delivers notifications.

    Example:
        ```python test="lint"
        from a2a.server.routes import create_rest_routes
        from apcore_a2a_server import create_app
        from apcore_a2a_server.bindings.compat import request_handler

        app = create_app("./extensions")
        routes = create_rest_routes(request_handler(app), path_prefix="/sdk")
        ```
    """
    return SdkRequestHandler(app.state.agent.handler)


def _request(params: Any, context: ServerCallContext, connection: Connection) -> Request:
    headers, auth = context.state.get("headers", {}), context.state.get("auth")
    # a user's own middleware may put objects that are no identity there
    identity = auth if hasattr(auth, "id") else None
    return Request(params, Caller(context.user.user_name, identity, headers, connection))
