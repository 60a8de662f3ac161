"""The ASGI application of an agent, put together from its parts."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import apcore
from apcore_a2a_core.agent_card import DEFAULT_NAME
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route
from starlette.types import ASGIApp

from apcore_a2a_server.bindings.http import DirectRouter, DirectRoutes
from apcore_a2a_server.bindings.jsonrpc import JsonRpc
from apcore_a2a_server.bindings.landing import LandingPage
from apcore_a2a_server.bindings.own_routes import PATH as OWN_PATH
from apcore_a2a_server.bindings.own_routes import OwnRoutes
from apcore_a2a_server.bindings.rest import Rest
from apcore_a2a_server.bindings.rest03 import Rest03
from apcore_a2a_server.bindings.tenant_route import TenantRoute
from apcore_a2a_server.fields import OptionError, configured_by
from apcore_a2a_server.middleware import build_middleware
from apcore_a2a_server.modules.bridges import close_modules
from apcore_a2a_server.modules.source import agent_owns, executor_of
from apcore_a2a_server.modules.targets import folder_of

from .agent import Agent, reserved_names
from .card_keys import PATH as KEYS_PATH
from .card_keys import KeySetPage
from .explorer import explorer_routes
from .figures import Figures
from .operate import counts_as_operator, own_routes
from .options import Settings
from .trace_page import TracePage
from .webhook_pages import webhook_routes

logger = logging.getLogger("apcore_a2a_server")

CARD_PATHS = ("/.well-known/agent-card.json", "/.well-known/agent.json")
PUBLIC = ("/", *CARD_PATHS, KEYS_PATH, "/health", "/metrics")
"""Exact paths that can be read without authentication; a POST to `/` needs it."""


@configured_by(Settings, other_source="openapi")
def create_app(source: Any, settings: Settings) -> Starlette:
    """Build the ASGI application of an A2A agent, without starting anything or binding a port.

    Args:
        source: An apcore Registry, Executor or APCore, a module, a target such as
            `package.module` or the path of a folder, or a list of these.
        settings: The options, as keywords. Without `url`, the Agent Card has the host that
            the request names.

    Raises:
        ValueError: There are no modules, or an option has an invalid value.
        TypeError: *source* or an option lacks required methods, or a keyword is not an option.
        ImportError: An option, such as `explorer`, needs a part that is not installed.

    Example:
        ```python
        from apcore import Registry
        from apcore_a2a_server import create_app


        class Hello:
            description = "Says hello."
            input_schema = output_schema = None

            def execute(self, inputs, context):
                return {"greeting": f"Hello {inputs['text']}"}


        registry = Registry()
        registry.register("hello", Hello())
        app = create_app(registry, url="https://agent.example.com")
        print([route.path for route in app.routes][:2])
        #> ['/', '/.well-known/agent-card.json']
        ```
    """
    _warn_if_all_hosts_are_served(settings)
    return build_app(source, settings)


@configured_by(Settings, other_source="openapi")
async def async_serve(source: Any, settings: Settings) -> Starlette:
    """Build the application of `create_app` in a coroutine (FR-SRV-003)."""
    _warn_if_all_hosts_are_served(settings)
    return build_app(source, settings)


def _warn_if_all_hosts_are_served(settings: Settings) -> None:
    """Warn if the agent serves requests for all host names; `serve` has its own checks."""
    if settings.auth is None and not settings.allowed_hosts:
        message = (
            "Neither auth= nor allowed_hosts= is set: any web page can call this agent through a "
            "browser that can reach it (DNS rebinding)"
        )
        logger.warning(message, extra={"event": "any_host_served"})


def build_app(source: Any, settings: Settings, figures: Figures | None = None) -> Starlette:
    """Build the application of an agent with these settings.

    Args:
        source: Modules: a registry, an executor, or targets; see `executor_of`.
        settings: The options.
        figures: Counters and gauges that worker processes share; None if there is only one process.
    """
    api_registry, api_connections = _api(settings)
    executor, is_new_executor = executor_of(
        source if api_connections is None else [source, api_registry],
        settings.acl,
        settings.config,
        allow_empty=settings.allow_empty or bool(settings.companions),
    )
    folder = folder_of(source)
    if settings.watch and folder is None:
        raise OptionError("watch", "needs a folder of modules as the only source")
    agent = Agent(executor, settings, figures)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        async with contextlib.AsyncExitStack() as stack:  # runs all callbacks, even if one raises
            if isinstance(executor, apcore.Executor) and is_new_executor:
                stack.push_async_callback(asyncio.to_thread, executor.close)
            if api_connections is not None:
                stack.push_async_callback(api_connections.close)
            if agent_owns(source):
                stack.push_async_callback(_close_all_modules, executor.registry)
            await agent.start()
            stack.push_async_callback(agent.close)
            watch_task = asyncio.ensure_future(_watch(executor.registry, folder, settings))
            drain_timeout: float | None = 0  # stays 0 if the application around this one fails
            try:
                yield
                drain_timeout = None
            finally:
                watch_task.cancel()
                await agent.drain(drain_timeout)

    routes = _routes(agent, settings)
    rest = Rest(agent.handler, agent.setup.mapper, **_body_limits(agent))
    tenants = agent.handler.tenants
    tenant_routes = [] if tenants is None else [TenantRoute(tenants, routes, rest)]
    # The routes that are added from here on are not served for tenants.
    routes.append(Route(OWN_PATH, _own_endpoint(agent, settings)))
    if agent.metrics is not None:
        routes.append(Route("/metrics", agent.metrics.show))
    public_routes = explorer_routes(settings.explorer_path, routes) if settings.explorer else []
    public_routes += _companion_routes(agent, [*routes, *public_routes])
    app = AgentApplication(
        routes=[*tenant_routes, *routes, *public_routes],
        middleware=_middleware(agent, settings, public_routes),
        direct_routes=_direct_routes(routes),
        lifespan=lifespan,
    )
    # Starlette would redirect /health/ to the host that the request names, which may be foreign.
    app.router.redirect_slashes = False
    app.router.default = rest  # a catch-all route would hide the 405 of other routes
    app.state.agent = agent
    app.state.explorer = public_routes[0].path if settings.explorer else None
    return app


def _api(settings: Settings) -> tuple[Any, Any]:
    """Return a registry of the operations in `openapi`, and the connections for calling them.

    Both are None if `openapi` is not set.

    Raises:
        ImportError: apcore-toolkit is not installed.
        TargetError: The document can't be read, or has no operations that can be called.
    """
    if settings.openapi is None:
        return None, None
    try:
        from apcore_a2a_server.modules.openapi import load_api
    except ModuleNotFoundError as error:
        message = "openapi needs the openapi part: pip install 'apcore-a2a[openapi]'"
        raise ImportError(message, name=error.name) from None
    return load_api(settings.openapi, settings.openapi_server)


async def _close_all_modules(registry: Any) -> None:
    await close_modules({name: registry.get(name) for name in registry.list()})


async def _watch(registry: Any, folder: Path | None, settings: Settings) -> None:
    if settings.watch and folder is not None:
        from apcore_a2a_server.modules.watch import watch

        await watch(registry, folder)


def _body_limits(agent: Agent) -> dict[str, Any]:
    settings = agent.settings
    return {
        "memory": agent.setup.memory,
        "max_body": settings.max_body,
        "max_values": settings.limits.max_values,
    }


def _routes(agent: Agent, settings: Settings) -> list[Route]:
    explorer_path = settings.explorer_path if settings.explorer else None
    name = settings.name or settings.project("name") or DEFAULT_NAME
    landing = LandingPage(name, explorer_path)
    mapper = agent.setup.mapper
    return [
        Route("/", JsonRpc(agent.handler, mapper, landing, **_body_limits(agent))),
        *(Route(path, agent.cards, methods=["GET"]) for path in CARD_PATHS),
        *_key_routes(agent),
        Route("/health", agent.health.show),
        Route("/agent/authenticatedExtendedCard", agent.cards.show_extended),
        Route("/v1/{path:path}", Rest03(agent.handler, mapper, **_body_limits(agent))),
    ]


def _own_endpoint(agent: Agent, settings: Settings) -> OwnRoutes:
    is_operator = partial(counts_as_operator, settings, agent.handler.operator_rules)
    routes = [*own_routes(agent, settings), *webhook_routes(agent, settings)]
    routes += TracePage(agent, settings).routes()
    return OwnRoutes(routes, is_operator, agent.handler, agent.setup.mapper, **_body_limits(agent))


def _companion_routes(agent: Agent, agent_routes: Sequence[Route]) -> list[Route]:
    """Return the routes of the companions.

    Raises:
        OptionError: A path belongs to the agent itself, or has two applications.
    """
    taken_paths = {route.path for route in agent_routes}
    routes = agent.companions.routes()
    if conflicts := taken_paths & routes.keys():
        path = min(conflicts)
        raise OptionError("companions", f"has an application at {path}, a path of the agent")
    return [Route(path, app) for path, app in routes.items()]


def _key_routes(agent: Agent) -> list[Route]:
    """Return the route of the page with public keys, if the agent or a companion has any."""
    signer, companions = agent.cards.signer, agent.companions
    if signer is None and not companions.public_keys():
        return []
    return [Route(KEYS_PATH, KeySetPage(signer, companions).show)]


def _direct_routes(routes: Sequence[Route]) -> DirectRoutes:
    """Return the routes of the most frequent requests: messages, cards and health checks."""
    return {
        (method, route.path): route
        for route in routes
        for method in (("POST",) if route.path == "/" else ("GET", "HEAD"))
        if route.path in ("/", *CARD_PATHS, "/health")
    }


def _middleware(
    agent: Agent, settings: Settings, public_routes: Sequence[Route]
) -> list[Middleware]:
    return build_middleware(
        public=[*PUBLIC, *(route.path for route in public_routes)],
        url=settings.url,
        auth=settings.auth,
        cors_origins=settings.cors_origins or (),
        allowed_hosts=settings.allowed_hosts or (),
        limiter=agent.limiter,
        auth_limiter=agent.auth_limiter,
        client_key=settings.client_key,
        access_log=settings.access_log,
        reserved_names=reserved_names(settings) if settings.tenants else None,
        on_response=None if agent.metrics is None else agent.metrics.on_response,
    )


class AgentApplication(Starlette):
    """A Starlette application that routes the most frequent requests without a search.

    Starlette routes other requests. Users may add routes and middleware as usual.

    Args:
        middleware: The agent's middleware, the outermost first; one of them answers unhandled
            exceptions.
        direct_routes: The routes that are found without a search.
        options: Arguments of `Starlette`.
    """

    def __init__(
        self, *, middleware: Sequence[Middleware], direct_routes: DirectRoutes, **options: Any
    ) -> None:
        direct = Middleware(DirectRouter, routes=direct_routes)
        super().__init__(middleware=[*middleware, direct], **options)
        self._agent_middleware = [*self.user_middleware]

    def build_middleware_stack(self) -> ASGIApp:
        """Return the middleware around the router, without `ServerErrorMiddleware` if possible.

        Only exceptions of middleware that users have added can reach `ServerErrorMiddleware`.
        """
        stack: Any = super().build_middleware_stack()
        app: ASGIApp = stack.app if self.user_middleware == self._agent_middleware else stack
        return app
