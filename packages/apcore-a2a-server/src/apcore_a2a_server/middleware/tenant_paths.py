"""The tenant in the path of a request."""

from collections.abc import Collection

from starlette.types import ASGIApp, Receive, Scope, Send

from .errors import TENANT, path_of

AGENT_ROOT = "apcore_a2a.root_path"
"""ASGI scope key of the path at which the agent is mounted; set in requests to tenants."""


class TenantPaths:
    """ASGI middleware that moves the tenant from the path into the scope, like a mount.

    It comes first, so that all other middleware sees the path within the tenant. A first segment
    counts as a tenant even if the agent has no such tenant: authentication must treat unknown
    tenants like hidden ones.

    Args:
        app: The wrapped application.
        reserved: First segments of the agent's own paths.
    """

    def __init__(self, app: ASGIApp, reserved: Collection[str]) -> None:
        self._app = app
        self._reserved = frozenset(reserved)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, with the scope of its tenant."""
        if scope["type"] == "http":
            scope = self._in_tenant(scope)
        await self._app(scope, receive, send)

    def _in_tenant(self, scope: Scope) -> Scope:
        path = path_of(scope)
        name, separator, _ = path.removeprefix("/").partition("/")
        # message:send and .well-known, for example, are not tenants
        if not name or name in self._reserved or ":" in name or name.startswith("."):
            return scope
        # servers decode %2F, but it does not separate segments
        raw_path: bytes = (scope.get("raw_path") or b"").lower()
        if b"%2f" in raw_path and name.lower().encode() not in raw_path.split(b"/"):
            return scope
        # a proxy may have removed the root path: then the prefix is empty
        prefix = scope["path"].removesuffix(path)
        full_path = scope["path"] if separator else scope["path"] + "/"
        root_path = scope.get("root_path", "")
        members = {TENANT: name, AGENT_ROOT: root_path, "root_path": f"{prefix}/{name}"}
        return {**scope, **members, "path": full_path}


def agent_root_path(scope: Scope) -> str:
    """Return the path at which the agent is mounted, without the tenant."""
    root_path: str = scope.get(AGENT_ROOT, scope.get("root_path", ""))
    return root_path
