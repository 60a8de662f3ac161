"""The Starlette application of an agent, with direct ways for the most frequent requests."""

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from apcore_a2a_server.middleware.errors import TENANT, path_of

DirectRoutes = Mapping[tuple[str, str], Route]
"""Routes by method and exact path."""


class AgentApplication(Starlette):
    """A Starlette application that does not search its routes for the most frequent requests.

    Everything else is Starlette's: other requests, routes and middleware that users add.

    Args:
        middleware: The agent's middleware, the outermost first. It answers unhandled exceptions.
        direct_routes: The routes that are found without a search.
        options: Arguments of `Starlette`.
    """

    def __init__(
        self, *, middleware: Sequence[Middleware], direct_routes: DirectRoutes, **options: Any
    ) -> None:
        direct = Middleware(DirectRouter, routes=direct_routes)
        super().__init__(middleware=[*middleware, direct], **options)
        self._own_middleware = [*self.user_middleware]

    def build_middleware_stack(self) -> ASGIApp:
        """Return the middleware around the router, without `ServerErrorMiddleware` if possible.

        Only exceptions of middleware that users have added can reach that one.
        """
        stack: Any = super().build_middleware_stack()
        app: ASGIApp = stack.app if self.user_middleware == self._own_middleware else stack
        return app


class DirectRouter:
    """ASGI middleware that passes requests directly to some routes, and others to Starlette.

    It comes last, so that the routes are behind all other middleware.

    Args:
        app: Starlette's router, in its handler of exceptions.
        routes: The routes.
    """

    def __init__(self, app: ASGIApp, routes: DirectRoutes) -> None:
        self._app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the connection on."""
        route = None
        if scope["type"] == "http" and TENANT not in scope:
            route = self._routes.get((scope["method"], path_of(scope)))
        if route is None:
            await self._app(scope, receive, send)
            return
        # for users' middleware, as the router does
        scope["route"], scope["endpoint"] = route, route.endpoint
        await route.app(scope, receive, send)
