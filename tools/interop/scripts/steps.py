"""Run the steps of a client and print what the client's user sees.

Needs only the standard library.
"""

import asyncio
import json
import os
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

TIMEOUT = 60.0  # seconds that a step may take
URL, LOCKED_URL = sys.argv[1:]
"""URLs of the agent, and of an agent that requires a key. The clients have no key."""


class Unsupported(Exception):
    """The client can't do the step; the text says why."""


async def error_text(call: Awaitable[Any]) -> str:
    """Return the text of the exception that a call raises."""
    try:
        return f"no error, but {await call}"
    except Exception as error:  # of any type: only the text matters
        return str(error)


async def run_step(step: Callable[[str], Awaitable[Any]]) -> dict[str, Any]:
    """Run a step; return the texts that the user sees, or the reason why there are none."""
    try:
        return {"seen": await asyncio.wait_for(step(URL), TIMEOUT)}
    except Unsupported as reason:
        return {"unsupported": str(reason)}
    except Exception:  # reported in the result; the other steps still run
        return {"failed": traceback.format_exc()}


def run(*steps: Callable[[str], Awaitable[Any]]) -> None:
    """Run the steps, each in its own event loop, and print a line of JSON for each."""
    report = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the client prints goes to stderr: stdout has only results
    for step in steps:
        result = asyncio.run(run_step(step))
        print(json.dumps({"step": step.__name__, **result}), file=report, flush=True)
