"""The routes of a tenant: the same bindings as the agent's, for one skill."""

from collections.abc import Sequence

from starlette.routing import BaseRoute, Match, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from apcore_a2a_server.middleware import caller_of
from apcore_a2a_server.middleware.errors import TENANT
from apcore_a2a_server.modules.tenants import Tenants

from .http import FOUND_TENANT
from .rest import not_found


class TenantRoute(BaseRoute):
    """Route for all paths in which `TenantPaths` has found the name of a tenant.

    Args:
        tenants: The tenants.
        routes: The routes of the agent; `/health` is left out, since it is for the whole agent.
        default: The application for paths of a tenant that match none of the routes.
    """

    def __init__(self, tenants: Tenants, routes: Sequence[Route], default: ASGIApp) -> None:
        self._tenants = tenants
        inner_routes = [route for route in routes if route.path != "/health"]
        self._router = Router(inner_routes, redirect_slashes=False, default=default)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match every request whose path names a tenant."""
        return (Match.FULL, {}) if TENANT in scope else (Match.NONE, {})

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request to its tenant; answer 404 if the tenant is unknown or forbidden."""
        _, identity = caller_of(scope)
        tenant = await self._tenants.find(scope[TENANT], identity)
        if tenant is None:
            await not_found()(scope, receive, send)
        else:
            await self._router({**scope, FOUND_TENANT: tenant}, receive, send)
