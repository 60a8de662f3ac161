"""Agents and teams of Agno: a run that needs something from the user pauses the task."""

# Agno is not installed where the types are checked, so its objects are Any.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from importlib.util import find_spec
from typing import Any, NoReturn

from apcore_a2a_core import File, Progress, Usage, to_json
from apcore_a2a_core.values import is_object

from . import parts
from .agent import Agent
from .callables import output_schema_of
from .logs import log_at_debug
from .parts import DENIED, Json, text_of
from .turn import TextMessage, Turn, file_from

JSON_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
"""JSON Schema types, by the names of the Python types that tools declare for user input."""
LOGGERS = ("agno", "agno-team", "agno-workflow")
MEDIA = {"image": "images", "audio": "audio", "video": "videos"}
"""The arguments of a run that take files, by main media type; other files go into `files`."""
ROLES = {"user": "user", "agent": "assistant"}
TELEMETRY = "AGNO_TELEMETRY"
"""The environment variable that turns Agno's telemetry on or off."""


class AgnoError(RuntimeError):
    """A run has failed, or has ended before it had an answer."""


def part_in(part: Mapping[str, Any], turn: Turn) -> Any:
    """Convert a part of a message to text, or to an image, audio, video or file of Agno.

    Data becomes JSON text. A link becomes text too, so that Agno does not load URLs from clients.

    >>> part_in({"text": "Hello"}, turn=None), part_in({"data": {"n": 1}}, turn=None)
    ('Hello', '{"n": 1}')
    """
    file = file_from(part)
    if file is None:
        return text_of(part.get("text", part.get("data")))
    return file.url if file.data is None else _media_of(file)


def part_out(event: Any, turn: Turn) -> Any:
    """Convert an event or an output of Agno to chunks.

    Text stays text, tools become progress, tokens become usage, and files that the run has made
    become files. Other events, such as reasoning and the texts of team members, are dropped.
    """
    kind = getattr(event, "event", None)
    if not isinstance(kind, str):
        return parts.part_out(event, turn)
    kind = kind.removeprefix("Team")
    if kind == "ModelRequestCompleted":
        return Usage(event.input_tokens or 0, event.output_tokens or 0)
    if kind == "ToolCallStarted":
        return Progress(f"Using {event.tool.tool_name}")
    if event.parent_run_id:  # the event of a team member
        return None
    if kind == "RunContent":
        return event.content if isinstance(event.content, str) else None
    if kind == "RunCompleted":
        media_lists = [event.images, event.videos, event.audio, event.files, [event.response_audio]]
        return [
            _file_of(media) for group in media_lists for media in group or () if media is not None
        ]
    return None


class AgnoAgent(Agent):
    """An agent or a team of Agno.

    With a database and `add_history_to_context`, Agno keeps the conversation in a session;
    otherwise, a new run gets the texts of the conversation. Tools that need a confirmation,
    user input, or execution elsewhere pause the task and Agno's run.

    Args:
        agent: The agent or team.
        run_options: Further arguments of `arun` and `acontinue_run`, such as `dependencies`.
        options: Options of `Agent`.
    """

    default_part_in = staticmethod(part_in)
    default_part_out = staticmethod(part_out)

    def __init__(
        self, agent: Any, *, run_options: Mapping[str, Any] | None = None, **options: Any
    ) -> None:
        os.environ.setdefault(TELEMETRY, "false")  # Agno reads it in each run
        description = agent.description or getattr(agent, "role", None) or ""
        defaults: Json = {"name": agent.name or "agent", "description": description}
        super().__init__(**{**defaults, **options})
        self._agent = agent
        self._is_team = hasattr(agent, "members")
        self._run_options = dict(run_options or {})
        self._has_memory = agent.db is not None and agent.add_history_to_context
        self._has_text_output = agent.output_schema is None
        if isinstance(agent.output_schema, type):
            self.output_schema = output_schema_of(agent.output_schema)
        if isinstance(agent.input_schema, type) and not options.get("input_key"):
            self.input_schema = agent.input_schema

    async def run(self, turn: Turn) -> AsyncIterator[Any]:
        """Run the agent, or continue with the user's answer; yield its events and its output."""
        _hide_log_records()
        if turn.state is None:
            events = self._agent.arun(**await self._arguments(turn))
        else:
            paused_run = _run_of(turn.state)
            _resolve(_open_requirements(paused_run)[0], turn)
            _ask_if_needed(turn, paused_run)
            events = self._agent.acontinue_run(paused_run, **self._common_arguments(turn))
        output, streamed_text = None, ""
        async with aclosing(events):
            async for event in events:
                kind = getattr(event, "event", None)
                if not isinstance(kind, str):
                    output = event
                    continue
                if kind.removeprefix("Team") in {"RunError", "RunCancelled"}:
                    _fail(event)
                if not _is_text(event):
                    yield event
                elif self._has_text_output:
                    streamed_text += event.content
                    yield event
        if output is None:
            raise AgnoError("The run has ended without an output")
        _ask_if_needed(turn, output)
        content = output.content
        if not (isinstance(content, str) and streamed_text.endswith(content)):
            yield content

    def _common_arguments(self, turn: Turn) -> Json:
        """Return the arguments that `arun` and `acontinue_run` have in common."""
        return {
            "session_id": turn.session_id,
            "user_id": turn.principal or turn.session_id,
            "stream": True,
            "stream_events": True,
            "yield_run_output": True,
            **self._run_options,
        }

    async def _arguments(self, turn: Turn) -> Json:
        """Return the arguments of `arun`; `input` may begin with the texts of the conversation."""
        from agno.models.message import Message

        inputs: list[Any] = []
        media: dict[str, list[Any]] = {}
        if self.input_mapper is None and self.takes_text:
            contents = await self.contents(turn)
        else:
            inputs.append(await self.mapped_input(turn))
            contents = await self.convert_parts(turn.parts, turn)
        for content in contents:
            if isinstance(content, str):
                inputs.append(content)
            else:
                media.setdefault(_argument_of(content), []).append(content)
        # Agno takes text or one other value, which can only be the `mapped_input` at index 0
        is_text = all(isinstance(value, str) for value in inputs)
        prompt = "\n".join(inputs) if is_text else inputs[0]
        earlier_messages = [] if self._has_memory or not is_text else turn.messages
        if earlier_messages and self._is_team:  # a team takes no list of messages
            prompt = f"{_transcript(earlier_messages)}\n\n{prompt}"
        if not earlier_messages or self._is_team:
            return {"input": prompt, **media, **self._common_arguments(turn)}
        messages = [Message(role=ROLES[m.role], content=m.text) for m in earlier_messages]
        messages.append(Message(role="user", content=prompt, **media))
        return {"input": messages, **self._common_arguments(turn)}


def _transcript(messages: list[TextMessage]) -> str:
    lines = [f"{message.role.capitalize()}: {message.text}" for message in messages]
    return "\n".join(["The conversation so far:", *lines])


def _is_text(event: Any) -> bool:
    """Return whether an event is text of the agent or the team, not of a team member."""
    is_content = event.event.removeprefix("Team") == "RunContent" and not event.parent_run_id
    return is_content and isinstance(event.content, str)


def _fail(event: Any) -> NoReturn:
    reason = getattr(event, "content", None) or getattr(event, "reason", None)
    raise AgnoError(reason or event.event)


def _hide_log_records() -> None:
    """Log Agno's records at DEBUG: they contain texts of exceptions."""
    spec = find_spec("agno")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for name in LOGGERS:
            log_at_debug(name, folder)


def _run_of(state: Json) -> Any:
    """Return the run that a pause has saved."""
    from agno.run.agent import RunOutput
    from agno.run.team import TeamRunOutput

    kind = TeamRunOutput if state["is_team"] else RunOutput
    return kind.from_dict(state["run"])


def _open_requirements(run: Any) -> list[Any]:
    return [item for item in run.requirements or () if not item.is_resolved()]


def _resolve(requirement: Any, turn: Turn) -> None:
    """Resolve a requirement of a run with the user's answer."""
    answer = turn.answer
    text = text_of(answer)
    if requirement.needs_confirmation:
        requirement.confirm() if turn.approved else requirement.reject(DENIED)
    elif requirement.needs_user_feedback:
        question = _open_question(requirement)
        selected_labels = text.split(",") if isinstance(answer, str) else answer
        labels = [label.strip() for label in selected_labels] if question.multi_select else [text]
        requirement.provide_user_feedback({question.question: labels})
    elif requirement.needs_user_input:
        names = [field.name for field in _open_fields(requirement)]
        values = answer if is_object(answer) else {names[0]: answer}
        requirement.provide_user_input(values)
    else:
        requirement.set_external_execution_result(text)


def _ask_if_needed(turn: Turn, run: Any) -> None:
    """Pause the task if a run needs something from the user; ask about one thing at a time."""
    requirements = _open_requirements(run)
    # a loaded run has two copies of a tool call; only the copy in the requirement has the answer
    own_requirements = [item for item in run.requirements or () if item.member_run_id is None]
    tools = {item.tool_execution.tool_call_id: item.tool_execution for item in own_requirements}
    run.tools = [tools.get(tool.tool_call_id, tool) for tool in run.tools or ()]
    if not requirements:
        return
    requirement = requirements[0]
    tool = requirement.tool_execution
    data = {"tool": tool.tool_name, "arguments": to_json(tool.tool_args), "id": tool.tool_call_id}
    state = {"is_team": hasattr(run, "team_id"), "run": to_json(run.to_dict())}
    if requirement.needs_confirmation:
        turn.approve(f"May the agent call {tool.tool_name}?", data, state=state)
    if requirement.needs_user_feedback:
        question = _open_question(requirement)
        labels = [option.label for option in question.options or ()]
        choices = None if question.multi_select else labels or None
        turn.ask(question.question, {**data, "options": labels}, choices=choices, state=state)
    if requirement.needs_user_input:
        fields = _open_fields(requirement)
        names = ", ".join(field.description or field.name for field in fields)
        question_text = f"{tool.tool_name} needs: {names}"
        turn.ask(question_text, data, schema=_schema_of(fields), state=state)
    turn.ask(f"What is the result of {tool.tool_name}?", data, state=state)


def _open_question(requirement: Any) -> Any:
    return next(q for q in requirement.user_feedback_schema if q.selected_options is None)


def _open_fields(requirement: Any) -> list[Any]:
    return [field for field in requirement.user_input_schema or () if field.value is None]


def _schema_of(fields: list[Any]) -> Json:
    """Return the schema of the answer: of the only field, or of an object with all fields."""
    properties: Json = {}
    for field in fields:
        name = getattr(field.field_type, "__name__", "")
        schema: Json = {"type": JSON_TYPES[name]} if name in JSON_TYPES else {}
        properties[field.name] = {**schema, "description": field.description or field.name}
    if len(fields) == 1:
        return {**properties[fields[0].name]}
    return {"type": "object", "properties": properties, "required": [*properties]}


def _argument_of(media: Any) -> str:
    return MEDIA.get(type(media).__name__.lower(), "files")


def _media_of(file: File) -> Any:
    from agno import media

    kind = file.media_type.partition("/")[0]
    arguments: Json = {"content": file.data, "mime_type": file.media_type or None}
    if kind in MEDIA:
        return getattr(media, kind.capitalize())(
            **arguments, format=file.media_type.partition("/")[2]
        )
    if file.media_type not in media.File.valid_mime_types():
        arguments["mime_type"] = None  # Agno refuses other types
    return media.File(**arguments, filename=file.name or None)


def _file_of(media: Any) -> File:
    """Convert an image, audio, video or file that a run has made."""
    name = getattr(media, "filename", None) or ""
    kind = type(media).__name__.lower()
    type_from_format = f"{kind}/{media.format}" if media.format and kind in MEDIA else ""
    media_type = media.mime_type or type_from_format
    content = media.content
    if content is None and media.url is None:
        content = media.get_content_bytes()  # from its path
    if content is not None:
        return File(content, name=name, media_type=media_type)
    return File(url=media.url, name=name, media_type=media_type)
