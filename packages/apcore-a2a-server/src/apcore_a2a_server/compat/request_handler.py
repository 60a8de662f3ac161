"""`a2a.server.request_handlers.RequestHandler`, for who wants the SDK's gRPC or REST routes."""

from collections.abc import AsyncGenerator
from typing import Any

from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler
from starlette.applications import Starlette

from apcore_a2a_server.admission import Caller
from apcore_a2a_server.handler import Events, Handler, Request


class SdkRequestHandler(RequestHandler):
    """The SDK's interface, each of its eleven methods one call of our handler.

    Args:
        handler: Our own handler.
    """

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    async def on_get_task(self, params: Any, context: ServerCallContext) -> Any:
        """The task as it is now."""
        return await self._handler.get(_request(params, context))

    async def on_list_tasks(self, params: Any, context: ServerCallContext) -> Any:
        """The caller's tasks, latest status first."""
        return await self._handler.list(_request(params, context))

    async def on_cancel_task(self, params: Any, context: ServerCallContext) -> Any:
        """The task, canceled."""
        return await self._handler.cancel(_request(params, context))

    async def on_message_send(self, params: Any, context: ServerCallContext) -> Any:
        """The task, when it has ended or paused."""
        return await self._handler.send(_request(params, context))

    async def on_message_send_stream(
        self, params: Any, context: ServerCallContext
    ) -> AsyncGenerator[Any, None]:
        """The events of the message's task."""
        async for payload in _payloads(await self._handler.stream(_request(params, context))):
            yield payload

    async def on_subscribe_to_task(
        self, params: Any, context: ServerCallContext
    ) -> AsyncGenerator[Any, None]:
        """The task as it is, and its events from now on."""
        async for payload in _payloads(await self._handler.subscribe(_request(params, context))):
            yield payload

    async def on_get_task_push_notification_config(
        self, params: Any, context: ServerCallContext
    ) -> Any:
        """Refused, as are the other push notification methods."""
        return await self._handler.push_config(_request(params, context))

    on_create_task_push_notification_config = on_get_task_push_notification_config
    on_list_task_push_notification_configs = on_get_task_push_notification_config
    on_delete_task_push_notification_config = on_get_task_push_notification_config

    async def on_get_extended_agent_card(self, params: Any, context: ServerCallContext) -> Any:
        """The extended card."""
        return await self._handler.extended_card(_request(params, context))


def request_handler(app: Starlette) -> SdkRequestHandler:
    """The SDK's interface to the agent that `create_app` has made.

    Example:
        ```python test="skip"
        from a2a.server.routes import create_rest_routes
        from apcore_a2a_server import create_app
        from apcore_a2a_server.compat import request_handler

        app = create_app("./extensions")
        routes = create_rest_routes(request_handler(app), path_prefix="/sdk")
        ```
    """
    return SdkRequestHandler(app.state.agent.handler)


def _request(params: Any, context: ServerCallContext) -> Request:
    headers = context.state.get("headers", {})
    return Request(params, Caller(owner=context.user.user_name, headers=headers))


async def _payloads(events: Events) -> AsyncGenerator[Any, None]:
    async for event in events:
        if event is not None:
            yield event.payload
