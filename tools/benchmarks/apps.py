"""The applications to compare."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import import_module
from typing import Any, cast

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from uvicorn import Server

from tools.benchmarks import bridge_apps, peer_apps

CARD_PATH = "/.well-known/agent-card.json"
LOGGED = "ours, logged"
"""The name of this project's server with its access log."""
OUR_SERVERS = ("ours", LOGGED)
"""The names of this project's server, without and with its access log."""


async def bare() -> Starlette:
    """Build the baseline: echo a JSON body; answer a GET with fixed bytes."""

    async def echo(request: Request) -> Response:
        return JSONResponse(await request.json())

    async def card(request: Request) -> Response:
        return Response(b'{"name":"bare","skills":[]}', media_type="application/json")

    return Starlette(routes=[Route("/", echo, methods=["POST"]), Route(CARD_PATH, card)])


async def ours(store: object = None) -> Starlette:
    """Build this project's server, with tasks in memory unless another store is given."""
    from apcore_a2a_server import create_app

    from tools.benchmarks.modules import registry

    return create_app(registry(), task_store=store)


async def logged() -> Starlette:
    """Build this project's server with its access log."""
    from apcore_a2a_server.middleware import set_up_logging

    set_up_logging("info")
    return await ours()


def our_server(name: str, store: object = None) -> Server:
    """Return the server that `serve` runs; *name* is one of `OUR_SERVERS`.

    Tasks are in memory unless a store is given.
    """
    from apcore_a2a_server.app.options import ServeSettings
    from apcore_a2a_server.app.serve import Server as OwnServer
    from apcore_a2a_server.middleware import set_up_logging

    from tools.benchmarks.modules import registry

    is_logged = name == LOGGED
    set_up_logging("info" if is_logged else "warning")
    settings = ServeSettings(host="127.0.0.1", access_log=is_logged, task_store=store)
    return OwnServer.of(registry(), settings, announce=lambda _: None)


async def old() -> Starlette:
    """Build the server of the published apcore-a2a 0.8, which needs its own environment."""
    from tools.benchmarks.modules import registry

    facade = import_module("apcore_a2a")  # 0.8, not this checkout's
    return cast("Starlette", await facade.async_serve(registry()))


async def sdk() -> Starlette:
    """Build a server with a2a-sdk alone, as its documentation shows, for A2A 1.0 and 0.3."""
    from a2a.server.request_handlers import DefaultRequestHandler
    from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
    from a2a.server.tasks import InMemoryTaskStore
    from a2a.types import AgentCapabilities, AgentCard, AgentInterface

    card = AgentCard(
        name="sdk",
        description="No-op",
        version="1",
        supported_interfaces=[
            AgentInterface(
                url="http://127.0.0.1", protocol_binding="JSONRPC", protocol_version=version
            )
            for version in ("1.0", "0.3")
        ],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["application/json"],
        default_output_modes=["application/json"],
    )
    handler = DefaultRequestHandler(_executor(), InMemoryTaskStore(), card)
    return Starlette(
        routes=create_agent_card_routes(card)
        + create_jsonrpc_routes(handler, "/", enable_v0_3_compat=True)
    )


def _executor() -> Any:
    from a2a.helpers import new_task_from_user_message
    from a2a.server.agent_execution import AgentExecutor, RequestContext
    from a2a.server.events import EventQueue
    from a2a.server.tasks import TaskUpdater

    class NoopExecutor(AgentExecutor):
        async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
            assert context.message is not None
            task = context.current_task or new_task_from_user_message(context.message)
            if context.current_task is None:
                await event_queue.enqueue_event(task)
            updater = TaskUpdater(event_queue, task.id, task.context_id)
            await _answer(context, updater)
            await updater.complete()

        async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
            raise NotImplementedError

    return NoopExecutor()


async def _answer(context: Any, updater: Any) -> None:
    """Answer as the modules of the benchmark do."""
    from a2a.helpers import get_data_parts, new_data_part

    (inputs,) = get_data_parts(context.message.parts)
    match context.metadata["skillId"]:
        case "bench.chunks":
            async for stamp in _stamps(int(inputs["count"]), inputs["pause"]):
                await updater.add_artifact([new_data_part({"at": stamp})], "a")
        case "bench.sleep":
            await asyncio.sleep(inputs["seconds"])
            await updater.add_artifact([new_data_part(inputs)])
        case _:
            await updater.add_artifact([new_data_part(inputs)])


async def _stamps(count: int, pause: float) -> AsyncIterator[float]:
    for _ in range(count):
        yield time.monotonic()
        await asyncio.sleep(pause)


APPS: dict[str, Callable[[], Awaitable[Starlette]]] = {
    "bare": bare,
    "sdk": sdk,
    "ours": ours,
    LOGGED: logged,
    "old": old,
    "fasta2a": peer_apps.fasta2a,
    "a2a-adapter": peer_apps.a2a_adapter,
    **bridge_apps.APPS,
}
