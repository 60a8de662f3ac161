"""`jobs.countdown`: a long job that reports its progress and can be canceled."""

import asyncio
from collections.abc import AsyncIterator
from time import monotonic
from typing import Any

from apcore import Context, ModuleAnnotations, ModuleExample
from pydantic import BaseModel, ConfigDict, Field

MAX_SECONDS = 300.0
POLL_INTERVAL = 0.05  # seconds between checks of the cancel token


class CountdownInput(BaseModel):
    """Duration of the countdown, and of its steps."""

    model_config = ConfigDict(extra="forbid")

    seconds: float = Field(description="Duration of the countdown.", gt=0, le=MAX_SECONDS)
    step: float = Field(
        default=1.0,
        description="Seconds between two reports of progress.",
        ge=POLL_INTERVAL,
        le=MAX_SECONDS,
    )


class CountdownOutput(BaseModel):
    """Progress of the countdown. A stream sends a report at each step."""

    elapsed: float = Field(description="Seconds since the start.")
    remaining: float = Field(description="Seconds left.")
    progress: float = Field(description="Completed part of the countdown, from 0 to 1.")
    done: bool = Field(description="Whether the countdown has reached zero.")


class Countdown:
    """Count down to zero."""

    name = "Countdown"
    description = (
        "Count down to zero in real time. Streams the progress at each step, and stops at once "
        "when canceled. An example of a long job."
    )
    version = "1.0.0"
    tags = ["jobs", "time", "streaming"]
    annotations = ModuleAnnotations(readonly=True, open_world=False, streaming=True)
    examples = [
        ModuleExample(
            title="Three seconds",
            inputs={"seconds": 3},
            output={"elapsed": 3.0, "remaining": 0.0, "progress": 1.0, "done": True},
        )
    ]
    resources = {"timeout": 310_000}  # milliseconds: the longest countdown, and a margin
    input_schema = CountdownInput
    output_schema = CountdownOutput

    async def execute(self, inputs: dict[str, Any], context: "Context[Any]") -> dict[str, Any]:
        """Return the last report of the stream."""
        return [report async for report in self.stream(inputs, context)][-1]

    async def stream(
        self, inputs: dict[str, Any], context: "Context[Any]"
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield the progress: at the start, after each step, and at zero."""
        arguments = CountdownInput.model_validate(inputs)
        start, elapsed = monotonic(), 0.0
        while elapsed < arguments.seconds:
            yield _report(elapsed, arguments.seconds)
            elapsed = min(elapsed + arguments.step, arguments.seconds)
            await _sleep_until(start + elapsed, context)
        yield _report(arguments.seconds, arguments.seconds)


def _report(elapsed: float, seconds: float) -> dict[str, Any]:
    return {
        "elapsed": round(elapsed, 3),
        "remaining": round(seconds - elapsed, 3),
        "progress": round(elapsed / seconds, 3),
        "done": elapsed == seconds,
    }


async def _sleep_until(moment: float, context: "Context[Any]") -> None:
    while (remaining := moment - monotonic()) > 0:
        if context.cancel_token:
            context.cancel_token.check()
        await asyncio.sleep(min(remaining, POLL_INTERVAL))
