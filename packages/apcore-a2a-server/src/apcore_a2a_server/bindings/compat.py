"""The official SDK's `RequestHandler` on top of this server's, for its gRPC or REST routes.

Importing the SDK's server package takes most of a second, so nothing else here imports this.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
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

Do = Callable[[Handler, Request], Awaitable[Any]]


def _answer(do: Do) -> Any:
    """A method of the SDK's interface that answers with what *do* returns."""

    async def method(self: "SdkRequestHandler", params: Any, context: ServerCallContext) -> Any:
        with Connection() as connection:
            return await do(self.handler, _request(params, context, connection))

    return method


def _stream(do: Do) -> Any:
    """A method of the SDK's interface that yields the events *do* leads to."""

    async def method(
        self: "SdkRequestHandler", params: Any, context: ServerCallContext
    ) -> AsyncGenerator[Any]:
        with Connection() as connection:
            events = await do(self.handler, _request(params, context, connection))
            async with aclosing(events):
                async for event in events:
                    if event is not None:
                        yield event.payload

    return method


def _configs(kind: type[Message]) -> Any:
    """A method about push configurations, which answers with a *kind*."""

    async def do(handler: Handler, request: Request) -> Message:
        return ParseDict(await handler.push_config(request), kind(), ignore_unknown_fields=True)

    return _answer(do)


async def _extended_card(handler: Handler, request: Request) -> AgentCard:
    document = await handler.extended_card(request)
    return ParseDict(document, AgentCard(), ignore_unknown_fields=True)


class SdkRequestHandler(RequestHandler):
    """The SDK's interface, each of its eleven methods one call of our handler.

    Args:
        handler: Our own handler.
    """

    def __init__(self, handler: Handler) -> None:
        self.handler = handler

    on_message_send = _answer(Handler.send)
    on_message_send_stream = _stream(Handler.stream)
    on_get_task = _answer(Handler.get)
    on_list_tasks = _answer(Handler.list)
    on_cancel_task = _answer(Handler.cancel)
    on_subscribe_to_task = _stream(Handler.subscribe)
    on_create_task_push_notification_config = _configs(TaskPushNotificationConfig)
    on_get_task_push_notification_config = _configs(TaskPushNotificationConfig)
    on_list_task_push_notification_configs = _configs(ListTaskPushNotificationConfigsResponse)
    on_delete_task_push_notification_config = _configs(Empty)
    on_get_extended_agent_card = _answer(_extended_card)


def request_handler(app: Starlette) -> SdkRequestHandler:
    """The SDK's interface to the agent that `create_app` has made.

    The application's lifespan has to run: it opens the store and delivers to webhooks.

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
    identity = auth if hasattr(auth, "id") else None  # another's middleware has others there
    return Request(params, Caller(context.user.user_name, identity, headers, connection))
