"""Agent of a2a-sdk 0.3, over JSON-RPC.

`python sdk03.py PORT` serves it on loopback, in a separate environment.

The first word of a message selects the action: echo, count, slow, ask, fail, message; data is
sent back. Any other word makes the agent raise an error.

This SDK neither sends a cancellation to the open streams of a task nor ends them.
"""

# mypy: ignore-errors
# a2a-sdk 0.3 is in another environment.

import asyncio
import sys

import uvicorn
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.apps import A2AStarletteApplication
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentSkill, DataPart, Message, Part, TextPart
from a2a.utils import new_agent_text_message, new_task

PORT = sys.argv[1]
CARD = AgentCard(
    name="sdk03",
    description="An agent of a2a-sdk 0.3",
    version="1.0.0",
    url=f"http://127.0.0.1:{PORT}/",
    capabilities=AgentCapabilities(streaming=True, push_notifications=False),
    default_input_modes=["text/plain", "application/json"],
    default_output_modes=["text/plain", "application/json"],
    skills=[AgentSkill(id="echo", name="Echo", description="Echoes a text", tags=["text"])],
)


def text_part(text: str) -> Part:
    """Return a part with *text*."""
    return Part(root=TextPart(text=text))


class Run:
    """Run of the agent for one message."""

    def __init__(self, updater: TaskUpdater, rest: str) -> None:
        self.updater = updater
        self.rest = rest

    def message(self, text: str) -> Message:
        """Return a message of the agent about the task."""
        return self.updater.new_agent_message([text_part(text)])

    async def finish(self, part: Part) -> None:
        """Complete the task with an artifact of one *part*."""
        await self.updater.add_artifact([part], name="output", last_chunk=True)
        await self.updater.complete()

    async def echo(self) -> None:
        """Complete the task with the text."""
        await self.finish(text_part(self.rest))

    async def count(self) -> None:
        """Count to a number; each number is a chunk of one artifact."""
        last = int(self.rest)
        for number in range(1, last + 1):
            await self.updater.add_artifact(
                [text_part(str(number))],
                artifact_id="numbers",
                append=number > 1,
                last_chunk=number == last,
            )
        await self.updater.complete()

    async def slow(self) -> None:
        """Complete the task after some seconds."""
        await asyncio.sleep(float(self.rest))
        await self.finish(text_part("done"))

    async def ask(self) -> None:
        """Ask a question; the answer starts another run of the same task."""
        await self.updater.requires_input(self.message("Which one?"), final=True)

    async def fail(self) -> None:
        """Fail with a message."""
        await self.updater.failed(self.message("it broke"))


class Agent(AgentExecutor):
    """Agent that runs the actions."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Run the action that the first word of the message selects."""
        text = context.get_user_input()
        word, _, rest = text.partition(" ")
        if word == "message":
            await event_queue.enqueue_event(new_agent_text_message(rest, context.context_id))
            return
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        run = Run(updater, rest)
        if context.current_task:
            await run.finish(text_part(f"got: {text}"))
            return
        await event_queue.enqueue_event(new_task(context.message))
        await updater.start_work()
        first = context.message.parts[0].root
        if isinstance(first, DataPart):
            await run.finish(Part(root=DataPart(data=first.data)))
        else:
            await getattr(run, word)()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Cancel the task; the SDK cancels `execute`."""
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


if __name__ == "__main__":
    handler = DefaultRequestHandler(Agent(), InMemoryTaskStore())
    application = A2AStarletteApplication(CARD, handler).build()
    uvicorn.run(application, port=int(PORT), log_level="warning")
