"""Crews of CrewAI: the A2A task pauses for the user to review a result."""

# CrewAI is not installed where the types are checked, so its objects are Any.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import ExitStack, aclosing
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import uuid4

from apcore_a2a_core import Progress, Usage, to_json

from . import parts
from .agent import Agent, text_model
from .callables import output_schema_of
from .crewai_runs import Run, input_files, silence_crewai
from .parts import Json, is_mapping, text_of
from .turn import Turn

ACCEPTED = frozenset(
    ["", "accept", "accepted", "approve", "approved", "fine", "good", "ok", "okay", "y", "yes"]
)
"""Texts that accept a result; other texts are feedback."""
CHAT = "crew_chat_messages"
"""The input in which CrewAI expects the conversation."""
ROLES = {"user": "user", "agent": "assistant"}
MAX_NAME = 80
"""Maximum number of characters of a task's description that are shown in place of a name."""


def part_out(event: Any, turn: Turn) -> Any:
    """Convert an event or an output of CrewAI to chunks.

    Text stays text. Starts of tasks, agents, tools and flow methods become progress, token counts
    become usage, and typed outputs become data. Other events are dropped.
    """
    kind = getattr(event, "type", None)
    if kind == "llm_stream_chunk":
        return None if event.tool_call else event.chunk
    if kind == "llm_call_completed":
        return _usage_of(event.usage)
    if kind == "task_started":
        return Progress(f"Task: {name_of(event.task)}")
    if kind == "agent_execution_started":
        return Progress(f"{event.agent.role} has begun")
    if kind == "tool_usage_started":
        return Progress(f"{event.agent_role or 'The agent'} uses {event.tool_name}")
    if kind == "method_execution_started":
        return Progress(f"Step: {event.method_name}")
    if hasattr(event, "event_id"):
        return None
    if hasattr(event, "tasks_output"):  # a CrewOutput
        return parts.part_out(event.pydantic or event.json_dict or event.raw, turn)
    if hasattr(event, "outcome") and hasattr(event, "feedback"):  # the result of @human_feedback
        return part_out(event.output, turn)
    return parts.part_out(event, turn)


def name_of(task: Any) -> str:
    """Return the name of a task, or the beginning of its description."""
    description = " ".join(task.description.partition("\n\n")[0].split())
    shortened = description if len(description) <= MAX_NAME else f"{description[:MAX_NAME]}…"
    return str(task.name or shortened)


def _usage_of(counts: Json | None) -> Usage | None:
    from crewai.types.usage_metrics import UsageMetrics

    metrics = UsageMetrics.from_provider_dict(counts)
    return metrics and Usage(metrics.prompt_tokens, metrics.completion_tokens)


@dataclass(slots=True)
class _PausedCrew:
    """The inputs of a crew and the outputs of its tasks so far: the state of a pause, as JSON.

    Attributes:
        inputs: The inputs of the crew.
        outputs: The outputs of the finished tasks; the user reviews the last one.
    """

    inputs: Json
    outputs: list[Json] = field(default_factory=list[Json])


class CrewAIAgent(Agent):
    """A crew of CrewAI. Each turn runs a copy of it.

    If the crew's tasks and agents have a single placeholder, it gets the text of the message;
    several placeholders become the inputs of a typed skill. The crew gets the conversation as
    CrewAI's chat messages. After a crew's task with `human_input`, the A2A task pauses until the
    user accepts the result.

    Args:
        crew: The crew.
        options: Options of `Agent`.
    """

    default_part_out = staticmethod(part_out)

    def __init__(self, crew: Any, **options: Any) -> None:
        silence_crewai()
        names = sorted(n for n in crew.fetch_inputs() if n.isidentifier() and n != CHAT)
        roles = ", ".join(agent.role for agent in crew.agents)
        defaults: Json = {"name": crew.name or "crew", "description": f"A crew: {roles}."}
        if len(names) == 1:
            defaults["input_key"] = names[0]
        super().__init__(**{**defaults, **options})
        if len(names) > 1 and not options.get("input_key"):
            self.input_schema = text_model(*names)
        self._crew = crew
        self._has_placeholders = bool(names)
        last_task = crew.tasks[-1]
        output_type = last_task.output_pydantic or last_task.output_json
        if output_type:
            self.output_schema = output_schema_of(output_type)

    async def run(self, turn: Turn) -> AsyncIterator[Any]:
        """Run the crew to its end, or until a task asks for a review."""
        silence_crewai()
        paused, feedback = await self._load_paused(turn)
        # with feedback, the last finished task runs again
        done_count = len(paused.outputs) - (feedback is not None)
        review_indexes = [n for n, task in enumerate(self._crew.tasks) if task.human_input]
        stop_index = next((index for index in review_indexes if index >= done_count), None)
        crew = self._copy(paused, done_count, stop_index)
        if feedback is not None:
            _add_feedback(crew.tasks, done_count, paused.outputs[done_count]["raw"], feedback)
        is_last_run = stop_index is None
        streamed_task_id = str(crew.tasks[-1].id) if is_last_run and _can_stream(crew) else None

        async def start() -> Any:
            with ExitStack() as overrides:
                _stream_models(crew, overrides)
                return await crew.akickoff(inputs=paused.inputs, input_files=input_files(turn))

        run = Run(start, lambda e: e.type != "llm_stream_chunk" or e.task_id == streamed_task_id)
        streamed_text = ""
        async with aclosing(run.events()) as events:
            async for event in events:
                if event.type == "llm_stream_chunk" and not event.tool_call:
                    streamed_text += event.chunk
                yield event
        if stop_index is not None:
            paused.outputs = [_json_of(output) for output in run.result.tasks_output]
            _ask(turn, self._crew.tasks[stop_index], run.result.tasks_output[-1], paused)
        is_complete = streamed_text.rstrip().endswith(run.result.raw.strip())
        if not is_complete or not streamed_text:
            yield _rest_of(run.result, streamed_text)

    async def _load_paused(self, turn: Turn) -> tuple[_PausedCrew, str | None]:
        """Return the inputs and outputs so far, and the feedback on the last output, if any."""
        if turn.state is None:
            return _PausedCrew(await self._inputs(turn)), None
        answer = turn.answer
        text = text_of(answer)
        is_accepted = answer is True or text.strip().strip(".!").lower() in ACCEPTED
        return _PausedCrew(**turn.state), None if is_accepted else text

    async def _inputs(self, turn: Turn) -> Json:
        mapped_input = await self.mapped_input(turn)
        inputs = {**mapped_input} if is_mapping(mapped_input) else {self.input_key: mapped_input}
        if self.input_mapper is None:
            inputs.pop(CHAT, None)  # callers must not forge the conversation
        chat = [{"role": ROLES[m.role], "content": m.text} for m in turn.messages]
        if not self._has_placeholders:  # there is no other place for the text of the user
            text = mapped_input if isinstance(mapped_input, str) else turn.text
            chat.append({"role": "user", "content": text})
        return {CHAT: json.dumps(chat, ensure_ascii=False), **inputs} if chat else inputs

    def _copy(self, paused: _PausedCrew, done_count: int, stop_index: int | None) -> Any:
        """Return a copy of the crew that skips finished tasks.

        If *stop_index* is not None, the copy ends with that task.
        """
        from crewai.tasks.task_output import TaskOutput

        crew = self._crew.copy()
        crew.stream = False  # chunks come as events of the run
        crew._task_output_handler = _NoTaskOutputs()
        for task in crew.tasks:
            task.human_input = False
        for task, output in zip(crew.tasks[:done_count], paused.outputs, strict=False):
            data = output["pydantic"]
            typed = None if data is None else task.output_pydantic.model_validate(data)
            task.output = TaskOutput(**{**output, "pydantic": typed})
        if done_count:
            crew.checkpoint_kickoff_event_id = str(uuid4())  # CrewAI then skips tasks with output
        if stop_index is not None:
            crew.tasks = crew.tasks[: stop_index + 1]
            crew.after_kickoff_callbacks = []
        return crew


class _NoTaskOutputs:
    """A store of task outputs that keeps none: CrewAI's default is a file that all crews share."""

    def reset(self) -> None:
        """Do nothing."""

    def update(self, task_index: int, log: Json) -> None:
        """Do nothing."""


def _can_stream(crew: Any) -> bool:
    """Return whether the text that the last agent streams is the crew's output."""
    task = crew.tasks[-1]
    agent = task.agent
    if crew.process.value != "sequential" or agent is None:
        return False
    if task.output_pydantic or task.output_json or task.guardrail or task.guardrails:
        return False
    if getattr(agent, "reasoning", False) or getattr(agent, "planning_config", None):
        return False
    has_tools = task.tools or agent.tools or agent.allow_delegation or crew.memory
    supports_functions = getattr(agent.llm, "supports_function_calling", lambda: False)
    return not has_tools or supports_functions()


def _stream_models(crew: Any, overrides: ExitStack) -> None:
    """Let models stream in the context of a run, unless their `stream` is already set."""
    from crewai.llms.base_llm import BaseLLM, call_stream_override

    for agent in crew.agents:
        if isinstance(agent.llm, BaseLLM) and agent.llm.stream is None:
            overrides.enter_context(call_stream_override(agent.llm, True))


def _add_feedback(tasks: list[Any], index: int, result: str, feedback: str) -> None:
    """Let a task run again with its previous result and the user's feedback in its context."""
    from crewai import Task
    from crewai.tasks.task_output import TaskOutput

    text = f"Your result was:\n{result}\n\nRevise it. The user's feedback is:\n{feedback}"
    review = Task(description="Review the result", expected_output="Feedback")
    review.output = TaskOutput(description="Review", raw=text, agent="User")
    # if not a list, the context is None or CrewAI's marker for all earlier tasks
    context = tasks[index].context
    earlier_tasks = context if isinstance(context, list) else tasks[:index] if context else []
    tasks[index].context = [*earlier_tasks, review]


def _json_of(output: Any) -> Json:
    """Return a TaskOutput as JSON from which it can be created again."""
    typed = output.pydantic
    return {
        "description": output.description,
        "name": output.name,
        "expected_output": output.expected_output,
        "raw": output.raw,
        "json_dict": to_json(output.json_dict),
        "pydantic": None if typed is None else typed.model_dump(mode="json"),
        "agent": output.agent,
        "output_format": output.output_format.value,
    }


def _ask(turn: Turn, task: Any, output: Any, paused: _PausedCrew) -> None:
    question = f"{output.raw}\n\nIs this right? Answer ok, or say what to change."
    turn.ask(question, {"task": name_of(task), "agent": output.agent}, state=asdict(paused))


def _rest_of(output: Any, streamed_text: str) -> Any:
    """Return the output that was not streamed: all of it, or the rest of the text."""
    if output.pydantic is not None or output.json_dict is not None or not streamed_text:
        return output
    if output.raw.startswith(streamed_text):
        return output.raw[len(streamed_text) :]
    return f"\n\n{output.raw}"
