"""Agents that call each other, in the test's own event loop, each on a real port."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from apcore import Registry
from apcore_a2a_client import A2AClient
from apcore_a2a_core import Services
from apcore_a2a_remote import RemoteAgent
from starlette.applications import Starlette

from tests.server.inloop import app_of, listening, registry_of
from tests.serving import PATIENCE

CHAINS = ["c", "bc"]
"""Chains of remote agents by their names, one letter each: one agent, and two in a row."""


@dataclass(frozen=True)
class Agent:
    """An agent that is served, and a client of it.

    Attributes:
        remotes: The agents that it calls, by name.
    """

    url: str
    client: A2AClient
    app: Starlette
    registry: Registry
    remotes: Mapping[str, RemoteAgent]


@asynccontextmanager
async def serving(
    modules: Mapping[str, object], *remotes: RemoteAgent, **options: Any
) -> AsyncIterator[Agent]:
    """Serve modules, with *remotes* as companions."""
    registry = registry_of(modules)
    app = app_of(registry, companions=remotes, **{"url": None, **options})
    agents_by_name = {remote.name: remote for remote in remotes}
    async with (
        listening(app) as url,
        A2AClient(url, timeout=PATIENCE) as client,
        asyncio.timeout(PATIENCE),
    ):
        yield Agent(url, client, app, registry, agents_by_name)


@asynccontextmanager
async def chain(
    modules: Mapping[str, object], names: str = "bc", **options: Any
) -> AsyncIterator[list[Agent]]:
    """Serve modules as the last of several agents, each of which serves the skills of the next.

    Args:
        modules: The modules of the last agent.
        names: The names of the remote agents, one letter each, in the order of the calls.
        options: Arguments of each `RemoteAgent`.

    Yields:
        The agents, the first of which is the one to call.
    """
    async with AsyncExitStack() as stack:
        agents = [await stack.enter_async_context(serving(modules))]
        for name in reversed(names):
            remote = RemoteAgent(agents[0].url, name=name, expose=True, **options)
            agents.insert(0, await stack.enter_async_context(serving({}, remote)))
        yield agents


class Asker:
    """A module that asks for a day, and then returns its inputs and the answer."""

    description = "Asks for a day."
    input_schema = output_schema = None

    def __init__(self, **question: Any) -> None:
        self.question = question
        self.answers: list[Any] = []
        self.abandoned = asyncio.Event()

    async def execute(self, inputs: dict[str, Any], context: Any) -> dict[str, Any]:
        services: Services = context.services
        if services.answer is None:
            services.ask("Which day?", **self.question)
        self.answers.append(services.answer)
        return {"inputs": inputs, "answer": list(services.answer)}

    async def on_abandoned(self, inputs: dict[str, Any], context: Any) -> None:
        self.abandoned.set()
