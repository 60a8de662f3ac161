"""Agent of google-adk, served by its `to_a2a`: JSON-RPC 1.0, and 0.3 at the same URL.

`python adk.py PORT` serves it on loopback, in a separate environment. There is no model.

The first word of a message selects the action: echo, count, slow, ask, fail; data is sent back.
Any other word makes the agent raise an error. Limits of `to_a2a`:

- An answer is always a task, never a message.
- Artifacts are not streamed in chunks: `count` sends each number as the message of a status
  "working", and the artifact has only the last one. Clients that request ADK's own extension get
  the chunks.
- Questions are not text: input is requested by a part with a function call, here `choose`.
"""

# mypy: ignore-errors
# The library is in another environment.

import asyncio
import sys
from collections.abc import AsyncGenerator

import uvicorn
from google.adk.a2a.utils.agent_to_a2a import to_a2a
from google.adk.agents import BaseAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events import Event
from google.genai.types import Content, FunctionCall, Part

PORT = int(sys.argv[1])
Events = AsyncGenerator[Event, None]


class Agent(BaseAgent):
    """Agent without a model."""

    async def _run_async_impl(self, ctx: InvocationContext) -> Events:
        """Run the action that the first word of the message selects."""
        async for event in self.events(ctx):
            event.invocation_id = ctx.invocation_id
            yield event

    def events(self, ctx: InvocationContext) -> Events:
        """Return the events in answer to the message."""
        part = ctx.user_content.parts[0]
        word, _, rest = (part.text or "").partition(" ")
        if any(event.long_running_tool_ids for event in ctx.session.events):
            return self.echo(f"got: {part.text}")
        if part.inline_data:
            return self.data(part)
        return getattr(self, word)(rest)

    def speak(self, *parts: Part, **more: object) -> Event:
        """Return an event with content of the agent."""
        content = Content(role="model", parts=list(parts))
        return Event(author=self.name, content=content, **more)

    async def data(self, part: Part) -> Events:
        """Send back the data part, which ADK treats as bytes."""
        yield self.speak(part)

    async def echo(self, text: str) -> Events:
        """Answer with the text."""
        yield self.speak(Part(text=text))

    async def count(self, last: str) -> Events:
        """Count to a number; each number is an event, as from a streaming model."""
        for number in range(1, int(last) + 1):
            yield self.speak(Part(text=str(number)), partial=number < int(last))

    async def slow(self, seconds: str) -> Events:
        """Answer after some seconds."""
        await asyncio.sleep(float(seconds))
        yield self.speak(Part(text="done"))

    async def ask(self, _: str) -> Events:
        """Call a long-running function; the next message of the context is its answer."""
        call = FunctionCall(id="call-1", name="choose", args={"question": "Which one?"})
        yield self.speak(Part(function_call=call), long_running_tool_ids={"call-1"})

    async def fail(self, _: str) -> Events:
        """Fail with an error message."""
        yield Event(author=self.name, error_code="BROKEN", error_message="it broke")


if __name__ == "__main__":
    agent = Agent(name="adk", description="An agent of google-adk")
    uvicorn.run(to_a2a(agent, host="127.0.0.1", port=PORT), port=PORT, log_level="warning")
