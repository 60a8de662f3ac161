"""Agents of the OpenAI Agents SDK: tools that need approval pause the task."""

# The SDK is not installed where the types are checked, so its objects are Any.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NoReturn

from apcore_a2a_core import File, Usage

from . import parts
from .agent import Agent, maybe_await
from .callables import output_schema_of
from .logs import hide_exception_texts
from .parts import BINARY, DENIED, Json, text_of
from .turn import Turn, file_from

ROLES = {"user": "user", "agent": "assistant"}


def part_in(part: Mapping[str, Any], turn: Turn) -> Json:
    """Convert a part of a message to content of the Responses API; data becomes JSON text.

    >>> part_in({"text": "Hello"}, turn=None)
    {'type': 'input_text', 'text': 'Hello'}
    """
    file = file_from(part)
    if file is not None:
        return _content_of(file)
    return {"type": "input_text", "text": text_of(part.get("text", part.get("data")))}


def part_out(event: Any, turn: Turn) -> Any:
    """Convert an event of `stream_events`, or a typed output, to chunks.

    Text deltas become text; other events, such as tool calls, are dropped.
    """
    kind = getattr(event, "type", None)
    if kind == "raw_response_event":
        is_text = event.data.type == "response.output_text.delta"
        return event.data.delta if is_text else None
    return (
        None if isinstance(kind, str) and kind.endswith("_event") else parts.part_out(event, turn)
    )


class OpenAIAgent(Agent):
    """An agent of the OpenAI Agents SDK; handoffs and guardrails work as usual.

    It gets the texts of the conversation, unless a *session* keeps them. Without a
    *run_config*, nothing is sent to OpenAI's tracing.

    Args:
        agent: The agent.
        session: Function of a turn's `session_id` that returns a `Session` of the SDK.
        context: The context of each run, or a function of the turn that returns it.
        run_config: The `RunConfig` of each run.
        run_options: Other arguments of `Runner.run_streamed`, such as `max_turns`.
        options: Options of `Agent`.
    """

    default_part_in = staticmethod(part_in)
    default_part_out = staticmethod(part_out)

    def __init__(
        self,
        agent: Any,
        *,
        session: Callable[[str], Any] | None = None,
        context: Any = None,
        run_config: Any = None,
        run_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        from agents import RunConfig

        description: Any = getattr(agent, "handoff_description", None) or ""
        defaults: Json = {"name": agent.name, "description": description}
        super().__init__(**{**defaults, **options})
        self._agent = agent
        self._session = session
        self._context = context
        self._run_options = {
            "run_config": run_config or RunConfig(tracing_disabled=True),
            **(run_options or {}),
        }
        self._has_text_output = agent.output_type in (None, str)
        if isinstance(agent.output_type, type) and not self._has_text_output:
            self.output_schema = output_schema_of(agent.output_type)

    async def run(self, turn: Turn) -> AsyncIterator[Any]:
        """Run the agent, or continue after the user's answer, and yield its events."""
        from agents import Runner

        hide_exception_texts("openai.agents")
        run_options = dict(self._run_options)
        if self._session is not None:
            run_options["session"] = await maybe_await(self._session(turn.session_id))
        context = self._context(turn) if callable(self._context) else self._context
        context, earlier_tokens = await maybe_await(context), (0, 0)
        if turn.state is None:
            run_input = await self._input(turn)
            run_options["context"] = context
        else:
            run_input = await self._resumed_state(turn, context)
            earlier_tokens = tuple(turn.state["usage"])
        result = Runner.run_streamed(self._agent, run_input, **run_options)
        try:
            async for event in result.stream_events():
                if self._has_text_output or event.type != "raw_response_event":
                    yield event
        except BaseException:  # whatever ends the turn must end the run
            result.cancel()  # the run is another asyncio task, which is not canceled with this one
            raise
        usage = result.context_wrapper.usage
        tokens = (usage.input_tokens, usage.output_tokens)  # including those before a pause
        yield Usage(
            input_tokens=tokens[0] - earlier_tokens[0],
            output_tokens=tokens[1] - earlier_tokens[1],
        )
        if result.interruptions:
            saved_run = result.to_state().to_string(context_serializer=_no_context)
            _pause(turn, result.interruptions, {"run": saved_run, "usage": tokens, "approved": []})
        if not self._has_text_output:
            yield result.final_output

    async def _input(self, turn: Turn) -> Any:
        """Return the input of a run: the message, and the conversation unless a session has it."""
        earlier_messages = () if self._session is not None else turn.messages
        items: list[Json] = [
            {"role": ROLES[m.role], "content": m.text} for m in earlier_messages if m.text
        ]
        return [*items, {"role": "user", "content": await self.contents(turn)}]

    async def _resumed_state(self, turn: Turn, context: Any) -> Any:
        """Return the `RunState` of the paused run, with the answers of the user.

        The user is asked about one call at a time; if there are more, the task pauses again.
        """
        from agents import RunState

        state = turn.state
        run = await RunState.from_string(self._agent, state["run"], context_override=context)
        calls, answers = run.get_interruptions(), [*state["approved"], turn.approved is True]
        if len(answers) < len(calls):
            _pause(turn, calls, {**state, "approved": answers})
        for call, is_approved in zip(calls, answers, strict=True):
            if is_approved:
                run.approve(call)
            else:
                run.reject(call, rejection_message=DENIED)
        return run


def _pause(turn: Turn, calls: Any, state: Json) -> NoReturn:
    """Ask the user about the first call without an answer; `state["approved"]` has the answers."""
    call = calls[len(state["approved"])]
    name = getattr(call, "name", None) or getattr(call, "tool_name", "a tool")
    arguments = getattr(call, "arguments", None)
    data = {"tool": name, "arguments": _parse_arguments(arguments)}
    turn.approve(f"May the agent call {name}?", data, state=state)


def _no_context(context: Any) -> Json:
    """Leave the context out of the saved state of a run: each turn passes a context."""
    return {}


def _parse_arguments(arguments: Any) -> Any:
    """Return the arguments of a call, parsed if they are JSON: models may write anything."""
    try:
        return json.loads(arguments)
    except (TypeError, ValueError):
        return arguments


def _content_of(file: File) -> Json:
    media_type = file.media_type or BINARY
    is_image = media_type.startswith("image/")
    if file.data is None:
        return (
            {"type": "input_image", "image_url": file.url, "detail": "auto"}
            if is_image
            else {"type": "input_file", "file_url": file.url}
        )
    url = f"data:{media_type};base64,{b64encode(file.data).decode()}"
    if is_image:
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    return {"type": "input_file", "file_data": url, "filename": file.name or "file"}
