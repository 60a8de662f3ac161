"""Tells of every answer."""

from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class CountAnswers:
    """ASGI middleware that tells *count* the status of every answer.

    Args:
        app: The application behind.
        count: Counts.
    """

    def __init__(self, app: ASGIApp, count: Callable[[int], None]) -> None:
        self._app = app
        self._count = count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and note the status of its answer."""

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._count(message["status"])
            await send(message)

        await self._app(scope, receive, noting if scope["type"] == "http" else send)
