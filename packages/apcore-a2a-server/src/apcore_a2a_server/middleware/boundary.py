"""Whatever goes wrong behind it ends here."""

import logging

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .answers import refuse

logger = logging.getLogger("apcore_a2a.guards")


class Boundary:
    """ASGI middleware: an exception that nobody caught is a 500 that tells nothing.

    Web sockets are refused: an agent has none.

    Args:
        app: The application behind.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def noting(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except Exception:  # the last place before the server's own answer
            logger.exception("A request failed")
            if not begun:
                await refuse(scope, receive, send, 500, "Internal error")
