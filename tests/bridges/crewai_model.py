"""A model of CrewAI that follows a script."""

# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

import asyncio
import threading
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import pytest
from apcore_a2a_bridges.crewai_runs import Run
from pydantic import PrivateAttr

from tests.serving import PATIENCE

with warnings.catch_warnings(action="ignore"):  # CrewAI warns when it is imported
    from crewai import Agent
    from crewai.events.types.llm_events import LLMCallType
    from crewai.llms.base_llm import BaseLLM, llm_call_context

USAGE = {"prompt_tokens": 7, "completion_tokens": 3}


class Llm(BaseLLM):  # type: ignore[misc]  # not installed here
    """Calls a function with the texts of the messages, and streams the pieces that it yields."""

    _answer: Callable[..., AsyncIterator[str]] = PrivateAttr()
    _loop: Any = PrivateAttr()

    def __init__(self, answer: Callable[..., AsyncIterator[str]], **options: Any) -> None:
        super().__init__(model="scripted", **options)
        self._answer = answer
        self._loop = asyncio.get_running_loop()

    def call(
        self,
        messages: Any,
        tools: Any = None,
        callbacks: Any = None,
        available_functions: Any = None,
        from_task: Any = None,
        from_agent: Any = None,
        response_model: Any = None,
    ) -> str:
        origin = {"from_task": from_task, "from_agent": from_agent}
        pieces: list[str] = []
        with llm_call_context():
            self._emit_call_started_event(messages, **origin)
            answer = self._answer(*(message["content"] for message in messages))
            while (piece := self._next(answer)) is not None:
                pieces.append(piece)
                if self._effective_stream():
                    self._emit_stream_chunk_event(piece, **origin, call_type=LLMCallType.LLM_CALL)
            text = "".join(pieces)
            self._emit_call_completed_event(text, LLMCallType.LLM_CALL, **origin, usage=USAGE)
        return text

    def _next(self, answer: AsyncIterator[str]) -> str | None:
        """Return the next piece, which comes from the event loop of the test; None at the end."""

        async def piece() -> str | None:
            return await anext(answer, None)

        return asyncio.run_coroutine_threadsafe(piece(), self._loop).result()


def record_stops(monkeypatch: pytest.MonkeyPatch, module: str) -> list[Run]:
    """Return a list that gets each run of a module of the bridge when the run is stopped."""
    stopped: list[Run] = []

    class RecordingRun(Run):
        async def events(self) -> AsyncGenerator[Any]:
            try:
                async for event in super().events():
                    yield event
            finally:
                stopped.append(self)

    monkeypatch.setattr(f"{module}.Run", RecordingRun)
    return stopped


async def runs_ended() -> None:
    """Wait for the threads of runs, whose models need the event loop of the test."""
    for thread in threading.enumerate():
        if thread.name == "crewai":
            await asyncio.to_thread(thread.join, PATIENCE)


def text_of(message: Any) -> str:
    """Return the text of an A2A message; empty if there is no message."""
    return "".join(part.text or "" for part in message.parts) if message else ""


def agent_of(answer: Callable[..., AsyncIterator[str]], **options: Any) -> Agent:
    fields = {"role": "Helper", "goal": "Help", "backstory": "Helpful", **options}
    return Agent(llm=Llm(answer), **fields)
