"""`a2a.server.request_handlers.RequestHandler`, for who wants the SDK's gRPC or REST routes."""

from collections.abc import AsyncGenerator

from a2a.server.context import ServerCallContext
from a2a.server.events.event_queue import Event
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
)
from starlette.applications import Starlette

from apcore_a2a_server.admission import Caller
from apcore_a2a_server.handler import Handler


class SdkRequestHandler(RequestHandler):
    """The eleven methods of the SDK's interface, each one call of our handler.

    Args:
        handler: Our own handler.
    """

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> Task | None:
        """The task as it is now."""
        return await self._handler.get(params, caller_of(context))

    async def on_list_tasks(
        self, params: ListTasksRequest, context: ServerCallContext
    ) -> ListTasksResponse:
        """The caller's tasks, latest status first."""
        return await self._handler.list(params, caller_of(context))

    async def on_cancel_task(
        self, params: CancelTaskRequest, context: ServerCallContext
    ) -> Task | None:
        """The task, canceled."""
        return await self._handler.cancel(params, caller_of(context))

    async def on_message_send(self, params: SendMessageRequest, context: ServerCallContext) -> Task:
        """The task, when it has ended or paused."""
        return await self._handler.send(params, caller_of(context))

    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event, None]:
        """The events of the message's task."""
        ticket = await self._handler.admit(params, caller_of(context), streaming=True)
        async for event in self._handler.follow(ticket):
            if event is not None:
                yield event.payload

    async def on_subscribe_to_task(
        self, params: SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event, None]:
        """The task as it is, and its events from now on."""
        async for event in await self._handler.attach(params, caller_of(context)):
            if event is not None:
                yield event.payload

    async def on_create_task_push_notification_config(
        self, params: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        """Refused."""
        return await self._handler.push_config(params, caller_of(context))

    async def on_get_task_push_notification_config(
        self, params: GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        """Refused."""
        return await self._handler.push_config(params, caller_of(context))

    async def on_list_task_push_notification_configs(
        self, params: ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> ListTaskPushNotificationConfigsResponse:
        """Refused."""
        return await self._handler.push_config(params, caller_of(context))

    async def on_delete_task_push_notification_config(
        self, params: DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        """Refused."""
        await self._handler.push_config(params, caller_of(context))

    async def on_get_extended_agent_card(
        self, params: GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> AgentCard:
        """The extended card."""
        return await self._handler.extended_card(params, caller_of(context))


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


def caller_of(context: ServerCallContext) -> Caller:
    """The caller that the SDK's routes have found."""
    headers = context.state.get("headers", {})
    return Caller(owner=context.user.user_name, headers=headers)
