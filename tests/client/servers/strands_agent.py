"""Agent of Strands, served by its `A2AServer`: JSON-RPC 0.3.

`python strands_agent.py PORT` serves it on loopback, in a separate environment. The model
follows the first word of a message: echo, count, slow, fail. It asks no questions.
"""

# mypy: ignore-errors
# The library is in another environment.

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from strands import Agent
from strands.models import Model
from strands.multiagent.a2a import A2AServer

PORT = int(sys.argv[1])


class Script(Model):
    """Model that runs the action that the first word of the message selects."""

    def update_config(self, **model_config: Any) -> None: ...

    def get_config(self) -> dict[str, Any]:
        return {}

    def structured_output(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        """Yield the events of an answer."""
        word, _, rest = messages[-1]["content"][0]["text"].partition(" ")
        if word == "fail":
            raise RuntimeError("it broke")
        if word == "slow":
            await asyncio.sleep(float(rest))
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        for text in map(str, range(1, int(rest) + 1)) if word == "count" else [rest]:
            yield {"contentBlockDelta": {"delta": {"text": text}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}


def agent_of(context_id: str) -> Agent:
    """Return the agent of a conversation."""
    description = "An agent of Strands"
    return Agent(model=Script(), name="strands", description=description, callback_handler=None)


if __name__ == "__main__":
    server = A2AServer(
        agent_factory=agent_of, port=PORT, enable_a2a_compliant_streaming=True, skills=None
    )
    uvicorn.run(server.to_starlette_app(), port=PORT, log_level="warning")
