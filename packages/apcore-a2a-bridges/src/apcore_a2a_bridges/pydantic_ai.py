"""Agents of pydantic-ai: deferred tools and tools that need approval pause the task."""

# pydantic-ai is not installed where the types are checked, so its objects are Any.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import reduce
from operator import or_
from types import UnionType
from typing import Any, NoReturn, Union, get_args, get_origin

from apcore_a2a_core import File, Usage

from . import parts
from .agent import Agent, maybe_await
from .callables import output_schema_of
from .parts import BINARY, DENIED, Json, text_of
from .turn import Turn, file_from


def part_in(part: Mapping[str, Any], turn: Turn) -> Any:
    """Convert a part of a message to content of a pydantic-ai user prompt; data becomes JSON text.

    >>> part_in({"text": "Hello"}, turn=None), part_in({"data": {"n": 1}}, turn=None)
    ('Hello', '{"n": 1}')
    """
    file = file_from(part)
    return text_of(part.get("text", part.get("data"))) if file is None else _content_of(file)


def part_out(event: Any, turn: Turn) -> Any:
    """Convert an event of `run_stream_events`, or an output, to chunks.

    Text and files are kept. Other events, such as tool calls and thinking, are dropped.
    """
    kind = getattr(event, "event_kind", None)
    if kind is None:
        return parts.part_out(event, turn)
    part: Any = getattr(event, "part", None)
    if kind == "part_start" and part.part_kind == "text":
        return part.content
    if kind == "part_start" and part.part_kind == "file":
        return File(part.content.data, media_type=part.content.media_type)
    if kind == "part_delta" and event.delta.part_delta_kind == "text":
        return event.delta.content_delta
    return None


class PydanticAIAgent(Agent):
    """An agent of pydantic-ai. It gets the texts of the conversation as its message history.

    If `DeferredToolRequests` is among the output types of the agent, a deferred tool pauses the
    task until the client sends the result, and a tool that needs approval pauses the task until the
    user says yes or no. The messages of the run are stored with the paused task.

    Args:
        agent: The agent.
        deps: The dependencies of each run, or a function of the turn that returns them.
        run_options: Other arguments of `run_stream_events`, such as `usage_limits`.
        options: Options of `Agent`.
    """

    default_part_in = staticmethod(part_in)
    default_part_out = staticmethod(part_out)

    def __init__(
        self,
        agent: Any,
        *,
        deps: Any = None,
        run_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        description = getattr(agent, "description", None)  # may be a template
        defaults: Json = {"name": agent.name or "agent"}
        if isinstance(description, str):
            defaults["description"] = description
        super().__init__(**{**defaults, **options})
        self._agent = agent
        self._deps = deps
        self._run_options = dict(run_options or {})
        specs = _output_specs(agent.output_type)
        self._has_text_output = str in specs
        are_types = all(isinstance(spec, type) for spec in specs)
        if specs and are_types and not self._has_text_output:
            self.output_schema = output_schema_of(reduce(or_, specs))

    async def run(self, turn: Turn) -> AsyncIterator[Any]:
        """Run the agent, or continue with the user's answers, and yield its events."""
        from pydantic_ai import AgentRunResultEvent, DeferredToolRequests

        run_options = dict(self._run_options)
        if self._deps is not None:
            run_options["deps"] = await maybe_await(
                self._deps(turn) if callable(self._deps) else self._deps
            )
        if turn.state is None:
            run_options["message_history"] = past_messages(turn)
            prompt = await self._prompt(turn)
        else:
            run = _PausedRun(**turn.state).with_answer(turn)
            if run.waiting:  # more calls need an answer
                run.pause(turn)
            run_options |= run.resume_options()
            prompt = None
        result: Any = None
        text = ""
        async with self._agent.run_stream_events(prompt, **run_options) as events:
            async for event in events:
                if isinstance(event, AgentRunResultEvent):
                    result = event.result
                    continue
                chunk = part_out(event, turn)
                if not isinstance(chunk, str):
                    yield event
                elif self._has_text_output:
                    text += chunk
                    yield event
        usage = result.usage
        yield Usage(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens)
        if isinstance(result.output, DeferredToolRequests):
            _PausedRun.of(result).pause(turn)
        # an output function may return a text that no event contained
        if not (isinstance(result.output, str) and text.endswith(result.output)):
            yield result.output

    async def _prompt(self, turn: Turn) -> Any:
        """Return the user prompt: a text, or a list if the message has other parts."""
        contents = await self.contents(turn)
        is_text = len(contents) == 1 and isinstance(contents[0], str)
        return contents[0] if is_text else contents


def past_messages(turn: Turn) -> list[Any]:
    """Return the texts of the conversation before the turn, as messages of pydantic-ai."""
    from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart

    return [
        ModelRequest(parts=[UserPromptPart(message.text)])
        if message.role == "user"
        else ModelResponse(parts=[TextPart(message.text)])
        for message in turn.messages
        if message.text
    ]


@dataclass(slots=True)
class _PausedRun:
    """A run that waits for the user; its fields are the JSON state of the pause.

    Attributes:
        messages: The messages of the run, as JSON of pydantic-ai.
        waiting: The tool calls without an answer: their ids, tools and arguments, and whether they
            need approval. The pause asks about the first call.
        results: The results of tools, by the id of the call.
        approvals: The yes or no of the user, by the id of the call.
    """

    messages: str
    waiting: list[Json]
    results: Json = field(default_factory=dict[str, Any])
    approvals: dict[str, bool] = field(default_factory=dict[str, bool])

    @classmethod
    def of(cls, result: Any) -> _PausedRun:
        """Return the paused run of a result with deferred calls."""
        requests = result.output
        calls = [*((call, True) for call in requests.approvals)]
        calls += [(call, False) for call in requests.calls]
        waiting = [
            {
                "id": call.tool_call_id,
                "tool": call.tool_name,
                "arguments": call.args_as_dict(),
                "needs_approval": needs_approval,
            }
            for call, needs_approval in calls
        ]
        return cls(result.all_messages_json().decode(), waiting)

    def with_answer(self, turn: Turn) -> _PausedRun:
        """Return the run after the user's answer about the first call that waits."""
        call, *other_calls = self.waiting
        results, approvals = dict(self.results), dict(self.approvals)
        if call["needs_approval"]:
            approvals[call["id"]] = turn.approved is True
        else:
            results[call["id"]] = turn.answer
        return _PausedRun(self.messages, other_calls, results, approvals)

    def pause(self, turn: Turn) -> NoReturn:
        """Ask the user about the first call that waits."""
        call, state = self.waiting[0], asdict(self)
        data = {"tool": call["tool"], "arguments": call["arguments"], "id": call["id"]}
        if call["needs_approval"]:
            turn.approve(f"May the agent call {call['tool']}?", data, state=state)
        turn.ask(f"What is the result of {call['tool']}?", data, state=state)

    def resume_options(self) -> Json:
        """Return the arguments of `run_stream_events` that continue the run."""
        from pydantic_ai import DeferredToolResults, ToolDenied
        from pydantic_ai.messages import ModelMessagesTypeAdapter

        approvals = {
            call_id: is_approved or ToolDenied(DENIED)
            for call_id, is_approved in self.approvals.items()
        }
        return {
            "message_history": ModelMessagesTypeAdapter.validate_json(self.messages),
            "deferred_tool_results": DeferredToolResults(calls=self.results, approvals=approvals),
        }


def _content_of(file: File) -> Any:
    from pydantic_ai import AudioUrl, BinaryContent, DocumentUrl, ImageUrl, VideoUrl

    media_type = file.media_type or BINARY
    if file.data is not None:
        return BinaryContent(file.data, media_type=media_type)
    kinds = {"audio": AudioUrl, "image": ImageUrl, "video": VideoUrl}
    kind = kinds.get(media_type.partition("/")[0], DocumentUrl)
    return kind(file.url, media_type=media_type if file.media_type else None)


def _output_specs(spec: Any) -> list[Any]:
    """Return the types and functions of an agent's outputs, without `DeferredToolRequests`."""
    from pydantic_ai import DeferredToolRequests

    specs = [*spec] if isinstance(spec, list | tuple) else [spec]
    types = [getattr(item, "output", item) for item in specs]  # a `ToolOutput` contains its type
    are_unions = [get_origin(kind) in (Union, UnionType) for kind in types]
    members = [
        member
        for kind, is_union in zip(types, are_unions, strict=True)
        for member in (get_args(kind) if is_union else (kind,))
    ]
    return [kind for kind in members if kind is not DeferredToolRequests]
