"""An agent of google-adk, as its `to_a2a` serves it: JSON-RPC 1.0, and 0.3 at the same URL.

`python adk.py PORT` serves it on loopback, in an environment of its own. There is no model.

The first word of a message tells what to do: echo, count, slow, ask, fail; or a data part. Any
other word makes the agent raise an error. What `to_a2a` does not let an agent do:

- answer with a message: there is always a task;
- stream chunks of an artifact: a number of `count` is the message of a status "working", and the
  artifact has the last number only. A client that asks for ADK's own extension gets the chunks;
- ask a question in words: input is required by a part with a call of a function, here `choose`.
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
    """The agent."""

    async def _run_async_impl(self, ctx: InvocationContext) -> Events:
        """Do what the first word of the message tells."""
        async for event in self.answers(ctx):
            event.invocation_id = ctx.invocation_id
            yield event

    def answers(self, ctx: InvocationContext) -> Events:
        """The events for the message."""
        part = ctx.user_content.parts[0]
        word, _, rest = (part.text or "").partition(" ")
        if any(event.long_running_tool_ids for event in ctx.session.events):
            return self.echo(f"got: {part.text}")
        if part.inline_data:
            return self.data(part)
        return getattr(self, word)(rest)

    def said(self, *parts: Part, **more: object) -> Event:
        """An event of what the agent said."""
        content = Content(role="model", parts=list(parts))
        return Event(author=self.name, content=content, **more)

    async def data(self, part: Part) -> Events:
        """Say the data part, which is bytes to ADK."""
        yield self.said(part)

    async def echo(self, text: str) -> Events:
        """Say the text."""
        yield self.said(Part(text=text))

    async def count(self, last: str) -> Events:
        """Count to a number, an event for each, as those of a model that streams."""
        for number in range(1, int(last) + 1):
            yield self.said(Part(text=str(number)), partial=number < int(last))

    async def slow(self, seconds: str) -> Events:
        """Work for some seconds."""
        await asyncio.sleep(float(seconds))
        yield self.said(Part(text="done"))

    async def ask(self, _: str) -> Events:
        """Call a function that takes long; the next message of the context is its answer."""
        call = FunctionCall(id="call-1", name="choose", args={"question": "Which one?"})
        yield self.said(Part(function_call=call), long_running_tool_ids={"call-1"})

    async def fail(self, _: str) -> Events:
        """Fail, and say so."""
        yield Event(author=self.name, error_code="BROKEN", error_message="it broke")


if __name__ == "__main__":
    agent = Agent(name="adk", description="An agent of google-adk")
    uvicorn.run(to_a2a(agent, host="127.0.0.1", port=PORT), port=PORT, log_level="warning")
