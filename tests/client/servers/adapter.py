"""Agent of a2a-adapter: a generator behind its `to_a2a`, over JSON-RPC 1.0.

`python adapter.py PORT` serves it on loopback, in a separate environment.

The first word of a message selects the action: echo, count, slow, fail. It asks no questions.
"""

# mypy: ignore-errors
# The library is in another environment.

import asyncio
import sys
from collections.abc import AsyncIterator

import uvicorn
from a2a_adapter import CallableAdapter, to_a2a

PORT = int(sys.argv[1])


async def answer(inputs: dict[str, str]) -> AsyncIterator[str]:
    """Run the action that the first word of the message selects."""
    word, _, rest = inputs["message"].partition(" ")
    if word == "fail":
        raise RuntimeError("it broke")
    if word == "slow":
        await asyncio.sleep(float(rest))
    for text in map(str, range(1, int(rest) + 1)) if word == "count" else [rest]:
        yield text


if __name__ == "__main__":
    adapter = CallableAdapter(
        answer, streaming=True, name="adapter", description="An agent of a2a-adapter"
    )
    application = to_a2a(adapter, url=f"http://127.0.0.1:{PORT}/")
    uvicorn.run(application, port=PORT, log_level="warning")
