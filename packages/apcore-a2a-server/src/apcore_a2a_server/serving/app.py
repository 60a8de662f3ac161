"""Puts the application together."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Unpack

from a2a.utils.errors import MethodNotFoundError
from anyio import CapacityLimiter
from apcore_a2a_core import ErrorMapper, PartConverter, SchemaConverter
from apcore_a2a_modules import Skills, Threads, install_approval, install_steps
from apcore_a2a_store import InMemoryTaskStore, Journal, shelf_of
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.routing import Route

from apcore_a2a_server.admission import Admission
from apcore_a2a_server.clients.waiting import Streams, Watchers
from apcore_a2a_server.engine import Engine
from apcore_a2a_server.handler import Handler
from apcore_a2a_server.rpc import JsonRpc
from apcore_a2a_server.shared.setup import Setup

from .options import Options, Settings
from .origin import OriginGuard
from .pages import CardPage, HealthPage, no_extended_card
from .rest import Rest
from .source import executor_of

logger = logging.getLogger("apcore_a2a_server")

CARD_PATHS = ("/.well-known/agent-card.json", "/.well-known/agent.json")


@dataclass(frozen=True, slots=True)
class Agent:
    """The parts of a running agent that its process needs to know."""

    engine: Engine
    handler: Handler
    skills: Skills
    health: HealthPage
    shutdown_timeout: float

    async def drain(self) -> None:
        """Let the running tasks end, in the time that they have for it."""
        self.health.draining = True
        await self.engine.drain(self.shutdown_timeout)


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
    agent, routes, rest = _build(executor, settings)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        yield
        await agent.drain()
        if made_here and hasattr(executor, "close"):
            await asyncio.to_thread(executor.close)

    app = Starlette(routes=routes, middleware=_middleware(settings), lifespan=lifespan)
    app.router.default = rest  # behind the routes, whose 405 a catch-all route would hide
    app.state.agent = agent
    return app


async def async_serve(source: Any, **options: Unpack[Options]) -> Starlette:
    """`create_app` as a coroutine (FR-SRV-003)."""
    return create_app(source, **options)


def _build(executor: Any, settings: Settings) -> tuple[Agent, list[Route], Rest]:
    skills = _skills(executor, settings)
    setup = _setup(executor, settings)
    journal, mapper, engine = setup.journal, setup.mapper, Engine(setup)
    grace = settings.disconnect_grace if settings.cancel_on_disconnect else None
    watchers = Watchers(engine.abandon, grace)
    streams = Streams(settings.max_streams, settings.max_streams_per_client)
    admission = Admission(
        skills, journal, setup.converter, settings.default_skill, settings.max_parts
    )
    handler = Handler(engine, admission, journal, watchers, streams, keep_alive=settings.keep_alive)
    health = HealthPage(skills, journal)
    agent = Agent(engine, handler, skills, health, settings.shutdown_timeout)
    card = CardPage(skills, settings, streaming=hasattr(executor, "stream"))
    routes = [
        Route("/", JsonRpc(handler, mapper, max_body=settings.max_body)),
        *(Route(path, card.show) for path in CARD_PATHS),
        Route("/health", health.show),
        Route("/agent/authenticatedExtendedCard", no_extended_card),
    ]
    return agent, routes, Rest(handler, mapper, max_body=settings.max_body)


def _skills(executor: Any, settings: Settings) -> Skills:
    skills = Skills(executor.registry, memo=settings.schema_memo)
    if not len(skills):
        raise ValueError("There are no modules to serve: the registry is empty")
    if settings.default_skill is not None:
        try:
            skills.get(settings.default_skill)
        except MethodNotFoundError as error:
            raise ValueError(f"default_skill: {error}") from None
    return skills


def _journal(settings: Settings) -> Journal:
    kept, store = settings.max_history, settings.task_store
    if store is None:
        ttl, capacity = settings.task_ttl, settings.max_tasks
        store = InMemoryTaskStore(ttl=ttl, max_capacity=capacity, max_history=kept)
    return Journal(
        shelf_of(store),
        max_logs=settings.max_tasks,
        max_events=settings.max_events,
        max_history=kept,
    )


def _setup(executor: Any, settings: Settings) -> Setup:
    return Setup(
        executor=executor,
        journal=_journal(settings),
        converter=PartConverter(SchemaConverter()),
        mapper=ErrorMapper(),
        threads=Threads(settings.max_threads),
        preflights=CapacityLimiter(1),
        execution_timeout=settings.execution_timeout,
        input_timeout=settings.input_timeout,
        max_runs=settings.max_runs,
        max_artifact=settings.max_artifact,
        one_pass=install_steps(executor),
        has_gate=install_approval(executor),
        metadata={"apcore": {"stateHistory": []}} if settings.state_history else {},
    )


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
