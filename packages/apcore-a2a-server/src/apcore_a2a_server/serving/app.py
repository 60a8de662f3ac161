"""Puts the application together."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator
from os import PathLike
from pathlib import Path
from typing import Any, Unpack

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.routing import Route

from apcore_a2a_server.rpc import JsonRpc

from .agent import Agent, build
from .options import Options, Settings
from .origin import OriginGuard
from .pages import CardPage, no_extended_card
from .rest import Rest
from .source import executor_of

logger = logging.getLogger("apcore_a2a_server")

CARD_PATHS = ("/.well-known/agent-card.json", "/.well-known/agent.json")


def create_app(source: Any, **options: Unpack[Options]) -> Starlette:
    """An ASGI application that is an A2A agent; nothing is started and no port is bound.

    Args:
        source: An apcore Registry or Executor, or the path of a folder of modules.
        options: See `Settings`. Give `url`, so that the Agent Card tells the right address.

    Raises:
        ValueError: There are no modules, or an option makes no sense.
        TypeError: *source* or an option lacks the methods it must have.

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
    settings = Settings(**options)
    executor, made_here = executor_of(source)
    if settings.watch and not isinstance(source, str | PathLike):
        raise ValueError("watch needs a folder of modules, not a registry or an executor")
    agent = build(executor, settings)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        agent.start()
        watching = asyncio.ensure_future(_watch(executor.registry, source, settings))
        yield
        watching.cancel()
        await agent.drain()
        if made_here and hasattr(executor, "close"):
            await asyncio.to_thread(executor.close)

    middleware = _middleware(settings)
    app = Starlette(routes=_routes(agent, settings), middleware=middleware, lifespan=lifespan)
    # behind the routes, whose 405 a catch-all route would hide
    app.router.default = Rest(agent.handler, agent.setup.mapper, max_body=settings.max_body)
    if settings.metrics:
        _add_metrics(app, agent)
    app.state.agent = agent
    return app


async def _watch(registry: Any, folder: Any, settings: Settings) -> None:
    if settings.watch:
        from apcore_a2a_modules.watch import watch

        await watch(registry, Path(folder))


async def async_serve(source: Any, **options: Unpack[Options]) -> Starlette:
    """`create_app` as a coroutine (FR-SRV-003)."""
    return create_app(source, **options)


def _routes(agent: Agent, settings: Settings) -> list[Route]:
    streaming = hasattr(agent.setup.executor, "stream")
    card = CardPage(agent.skills, settings, streaming=streaming)
    return [
        Route("/", JsonRpc(agent.handler, agent.setup.mapper, max_body=settings.max_body)),
        *(Route(path, card.show) for path in CARD_PATHS),
        Route("/health", agent.health.show),
        Route("/agent/authenticatedExtendedCard", no_extended_card),
    ]


def _add_metrics(app: Starlette, agent: Agent) -> None:
    from .metrics import CountRequests, Metrics  # takes 30 ms, and most do without

    metrics = Metrics(agent.gauges())
    agent.setup.journal.listeners.append(metrics.on_change)
    app.router.routes.append(Route("/metrics", metrics.show))
    app.add_middleware(CountRequests, metrics=metrics)


def _middleware(settings: Settings) -> list[Middleware]:
    origins = list(settings.cors_origins or ())
    if "*" in origins:
        logger.warning("cors_origins=['*'] lets web pages of any origin call this agent")
    found: list[Middleware] = []
    if settings.allowed_hosts:
        found.append(Middleware(TrustedHostMiddleware, allowed_hosts=[*settings.allowed_hosts]))
    if origins:
        cors: dict[str, Any] = {
            "allow_origins": origins,
            "allow_methods": ["GET", "POST", "DELETE"],
            "allow_headers": ["*"],
            "expose_headers": ["ETag", "Retry-After"],
        }
        found.append(Middleware(CORSMiddleware, **cors))
    return [*found, Middleware(OriginGuard, allowed=origins)]
