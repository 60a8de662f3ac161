"""Agent of a2a-sdk 1.x: JSON-RPC 1.0, REST 1.0, and both for clients of 0.3.

`python sdk1.py PORT` serves it on loopback. The card at the base URL lists three interfaces, which
share their tasks; `/jsonrpc`, `/rest`, `/v03` and `/rest03` are base URLs whose cards list one
interface each.

The first word of a message selects the action: echo, count, slow, ask, fail, message; data is
sent back. Any other word makes the agent raise an error.
"""

import asyncio
import sys

import uvicorn
from a2a.helpers import get_data_parts, new_data_part, new_task, new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import (
    create_agent_card_routes,
    create_jsonrpc_routes,
    create_rest_routes,
)
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Message,
    Part,
    TaskState,
)
from starlette.applications import Starlette
from starlette.routing import BaseRoute, Mount

PORT = sys.argv[1]
URL = f"http://127.0.0.1:{PORT}"
INTERFACES = {
    "jsonrpc": AgentInterface(
        protocol_binding="JSONRPC", protocol_version="1.0", url=f"{URL}/jsonrpc"
    ),
    "rest": AgentInterface(protocol_binding="HTTP+JSON", protocol_version="1.0", url=f"{URL}/rest"),
    "v03": AgentInterface(protocol_binding="JSONRPC", protocol_version="0.3", url=f"{URL}/v03"),
    "rest03": AgentInterface(
        protocol_binding="HTTP+JSON", protocol_version="0.3", url=f"{URL}/rest03"
    ),
}


def card(*names: str) -> AgentCard:
    """Return an Agent Card with the interfaces of these *names*."""
    return AgentCard(
        name="sdk1",
        description="An agent of a2a-sdk 1.x",
        version="1.0.0",
        supported_interfaces=[INTERFACES[name] for name in names],
        capabilities=AgentCapabilities(streaming=True, push_notifications=False),
        default_input_modes=["text/plain", "application/json"],
        default_output_modes=["text/plain", "application/json"],
        skills=[AgentSkill(id="echo", name="Echo", description="Echoes a text", tags=["text"])],
    )


class Run:
    """Run of the agent for one message."""

    def __init__(self, updater: TaskUpdater, rest: str) -> None:
        self.updater = updater
        self.rest = rest

    def message(self, text: str) -> Message:
        """Return a message of the agent about the task."""
        return self.updater.new_agent_message([new_text_part(text)])

    async def finish(self, part: Part) -> None:
        """Complete the task with an artifact of one *part*."""
        await self.updater.add_artifact([part], name="output", last_chunk=True)
        await self.updater.complete()

    async def echo(self) -> None:
        """Complete the task with the text."""
        await self.finish(new_text_part(self.rest))

    async def count(self) -> None:
        """Count to a number; each number is a chunk of one artifact."""
        last = int(self.rest)
        for number in range(1, last + 1):
            await self.updater.add_artifact(
                [new_text_part(str(number))],
                artifact_id="numbers",
                append=number > 1,
                last_chunk=number == last,
            )
        await self.updater.complete()

    async def slow(self) -> None:
        """Complete the task after some seconds."""
        await asyncio.sleep(float(self.rest))
        await self.finish(new_text_part("done"))

    async def ask(self) -> None:
        """Ask a question; the answer starts another run of the same task."""
        await self.updater.requires_input(self.message("Which one?"))

    async def fail(self) -> None:
        """Fail with a message."""
        await self.updater.failed(self.message("it broke"))


class Agent(AgentExecutor):
    """Agent that runs the actions."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Run the action that the first word of the message selects."""
        assert context.message
        assert context.task_id
        assert context.context_id
        text = context.get_user_input()
        word, _, rest = text.partition(" ")
        if word == "message":
            await event_queue.enqueue_event(new_text_message(rest, context_id=context.context_id))
            return
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        run = Run(updater, rest)
        if context.current_task:
            await run.finish(new_text_part(f"got: {text}"))
            return
        submitted = TaskState.TASK_STATE_SUBMITTED
        task = new_task(context.task_id, context.context_id, submitted, history=[context.message])
        await event_queue.enqueue_event(task)
        await updater.start_work()
        if data := get_data_parts(context.message.parts):
            await run.finish(new_data_part(data[0]))
        else:
            await getattr(run, word)()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Cancel the task; the SDK cancels `execute`."""
        assert context.task_id
        assert context.context_id
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def rest_routes_for_03(handler: DefaultRequestHandler) -> list[BaseRoute]:
    """Return the routes of REST for 0.3, without the one for tenants, which matches all paths."""
    routes = create_rest_routes(handler, path_prefix="/rest03", enable_v0_3_compat=True)
    return [route for route in routes if not isinstance(route, Mount)]


def application() -> Starlette:
    """Return the application of the agent with all its interfaces."""
    full_card = card("jsonrpc", "rest", "v03")
    handler = DefaultRequestHandler(Agent(), InMemoryTaskStore(), full_card)
    cards = [
        route
        for name in INTERFACES
        for route in create_agent_card_routes(
            card(name), card_url=f"/{name}/.well-known/agent-card.json"
        )
    ]
    return Starlette(
        routes=[
            *create_agent_card_routes(full_card),
            *cards,
            *create_jsonrpc_routes(handler, "/jsonrpc"),
            *create_jsonrpc_routes(handler, "/v03", enable_v0_3_compat=True),
            *rest_routes_for_03(handler),
            *create_rest_routes(handler, path_prefix="/rest"),
        ]
    )


if __name__ == "__main__":
    uvicorn.run(application(), port=int(PORT), log_level="warning")
