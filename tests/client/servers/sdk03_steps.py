"""Agent of a2a-sdk 0.3 whose steps are controlled by messages, over JSON-RPC.

`python sdk03_steps.py PORT` serves it on loopback, in the environment of `sdk03.py`.

`steps N KEY` streams the numbers up to N as chunks of one artifact. Each chunk waits for a message
`open KEY`, which the agent answers with a message.
"""

# mypy: ignore-errors
# a2a-sdk 0.3 is in another environment.

import asyncio
import sys
from collections import defaultdict

import uvicorn
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.apps import A2AStarletteApplication
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentSkill, Part, TextPart
from a2a.utils import new_agent_text_message, new_task

PORT = sys.argv[1]
CARD = AgentCard(
    name="steps",
    description="An agent of a2a-sdk 0.3",
    version="1.0.0",
    url=f"http://127.0.0.1:{PORT}/",
    capabilities=AgentCapabilities(streaming=True, push_notifications=False),
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    skills=[AgentSkill(id="steps", name="Steps", description="Counts", tags=["text"])],
)


class Agent(AgentExecutor):
    """Agent that streams numbers on request."""

    def __init__(self) -> None:
        self.allowed = defaultdict(lambda: asyncio.Semaphore(0))

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Run the action that the first word of the message selects."""
        word, *rest, key = context.get_user_input().split()
        if word == "open":
            self.allowed[key].release()
            await event_queue.enqueue_event(new_agent_text_message("opened", context.context_id))
            return
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await event_queue.enqueue_event(new_task(context.message))
        await updater.start_work()
        last = int(rest[0])
        for number in range(1, last + 1):
            await self.allowed[key].acquire()
            await updater.add_artifact(
                [Part(root=TextPart(text=str(number)))],
                artifact_id="numbers",
                append=number > 1,
                last_chunk=number == last,
            )
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Cancel the task; the SDK cancels `execute`."""
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


if __name__ == "__main__":
    handler = DefaultRequestHandler(Agent(), InMemoryTaskStore())
    application = A2AStarletteApplication(CARD, handler).build()
    uvicorn.run(application, port=int(PORT), log_level="warning")
