"""Agent of a2a-sdk 1.x whose steps are controlled by messages: JSON-RPC 1.0 and 0.3, REST 1.0.

`python sdk1_steps.py PORT` serves it on loopback. `/jsonrpc`, `/rest` and `/v03` are base URLs, as
in `sdk1.py`.

`steps N KEY` streams the numbers up to N as chunks of one artifact. Each chunk waits for a message
`open KEY`, which the agent answers with a message.
"""

import asyncio
import sys
from collections import defaultdict

import uvicorn
from a2a.helpers import new_task, new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import (
    create_agent_card_routes,
    create_jsonrpc_routes,
    create_rest_routes,
)
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, TaskState
from starlette.applications import Starlette

PORT = sys.argv[1]
INTERFACES = {
    "jsonrpc": ("JSONRPC", "1.0"),
    "rest": ("HTTP+JSON", "1.0"),
    "v03": ("JSONRPC", "0.3"),
}


def card(*paths: str) -> AgentCard:
    """Return an Agent Card with the interfaces at these *paths*."""
    interfaces = [
        AgentInterface(
            protocol_binding=INTERFACES[path][0],
            protocol_version=INTERFACES[path][1],
            url=f"http://127.0.0.1:{PORT}/{path}",
        )
        for path in paths
    ]
    return AgentCard(
        name="steps",
        description="An agent of a2a-sdk 1.x",
        version="1.0.0",
        supported_interfaces=interfaces,
        capabilities=AgentCapabilities(streaming=True, push_notifications=False),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="steps", name="Steps", description="Counts", tags=["text"])],
    )


class Agent(AgentExecutor):
    """Agent that streams numbers on request."""

    def __init__(self) -> None:
        self.allowed = defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(0))

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Run the action that the first word of the message selects."""
        assert context.message
        assert context.task_id
        assert context.context_id
        word, *rest, key = context.get_user_input().split()
        if word == "open":
            self.allowed[key].release()
            opened = new_text_message("opened", context_id=context.context_id)
            await event_queue.enqueue_event(opened)
            return
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        submitted = TaskState.TASK_STATE_SUBMITTED
        task = new_task(context.task_id, context.context_id, submitted, history=[context.message])
        await event_queue.enqueue_event(task)
        await updater.start_work()
        last = int(rest[0])
        for number in range(1, last + 1):
            await self.allowed[key].acquire()
            await updater.add_artifact(
                [new_text_part(str(number))],
                artifact_id="numbers",
                append=number > 1,
                last_chunk=number == last,
            )
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Cancel the task; the SDK cancels `execute`."""
        assert context.task_id
        assert context.context_id
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def application() -> Starlette:
    """Return the application of the agent with all its interfaces."""
    full_card = card(*INTERFACES)
    handler = DefaultRequestHandler(Agent(), InMemoryTaskStore(), full_card)
    cards = [
        route
        for path in INTERFACES
        for route in create_agent_card_routes(
            card(path), card_url=f"/{path}/.well-known/agent-card.json"
        )
    ]
    return Starlette(
        routes=[
            *create_agent_card_routes(full_card),
            *cards,
            *create_jsonrpc_routes(handler, "/jsonrpc"),
            *create_jsonrpc_routes(handler, "/v03", enable_v0_3_compat=True),
            *create_rest_routes(handler, path_prefix="/rest"),
        ]
    )


if __name__ == "__main__":
    uvicorn.run(application(), port=int(PORT), log_level="warning")
