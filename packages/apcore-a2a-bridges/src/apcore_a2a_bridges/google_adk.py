"""Agents of Google's Agent Development Kit (google-adk)."""

# google-adk is not installed where the types are checked, so its objects are Any.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from hashlib import sha256
from typing import Any

from apcore_a2a_core import File, Usage, to_json
from apcore_a2a_core.values import is_object

from .agent import Agent
from .logs import hide_exception_texts
from .parts import BINARY, Json, meta_key, text_of
from .turn import Turn, file_from

MAX_SESSION_ID = 128
"""Maximum length of a session's id in ADK's databases, in characters."""
CONFIRMATION = "adk_request_confirmation"
"""The name of the function call by which ADK asks whether a tool may run."""
FUNCTION_CALL = "function_call"
"""The value of the metadata `adk_type` in parts with a function call, for clients of ADK."""
FUNCTION_RESPONSE = "function_response"
"""The value of the metadata `adk_type` in parts by which clients of ADK answer such a call."""


class ADKError(RuntimeError):
    """A model has answered with an error."""


def user_id_of(turn: Turn) -> str:
    """Return the id of the user in ADK: the principal or, without one, an id per conversation.

    `identity.id` is not enough: callers with the same id from two issuers would share ADK's
    `user:` state.
    """
    return turn.principal or f"A2A_USER_{turn.context_id}"


def part_in(part: Mapping[str, Any], turn: Turn) -> Any:
    """Convert a part of a message to a `Part` of google-genai: text, a file, or data as JSON."""
    from google.genai import types

    file = file_from(part)
    if file is None:
        return types.Part(text=text_of(part.get("text", part.get("data"))))
    name, media_type = file.name or None, file.media_type or BINARY
    if file.url is not None:
        data = types.FileData(file_uri=file.url, mime_type=media_type, display_name=name)
        return types.Part(file_data=data)
    blob = types.Blob(data=bytes(file.data or b""), mime_type=media_type, display_name=name)
    return types.Part(inline_data=blob)


def part_out(event: Any, turn: Turn) -> Any:
    """Convert an event of ADK to chunks: texts, files and token counts; thoughts are left out."""
    if not hasattr(event, "long_running_tool_ids"):  # typed output, not an event
        return event
    chunks: list[Any] = []
    for part in _parts_of(event):
        blob, link = part.inline_data, part.file_data
        if part.text and not part.thought:
            chunks.append(part.text)
        elif blob and blob.data is not None:
            media_type = blob.mime_type or ""
            chunks.append(File(blob.data, name=blob.display_name or "", media_type=media_type))
        elif link and link.file_uri:
            name, media_type = link.display_name or "", link.mime_type or ""
            chunks.append(File(url=link.file_uri, name=name, media_type=media_type))
    usage = event.usage_metadata
    if usage is not None and not event.partial:
        chunks.append(Usage(usage.prompt_token_count or 0, usage.candidates_token_count or 0))
    return chunks


class ADKAgent(Agent):
    """An agent of google-adk: an `LlmAgent` or any other `BaseAgent`.

    Each conversation of a caller has a session. A long-running tool, and a tool that has to be
    confirmed, pause the task. The skill has the agent's input schema, and the agent's output schema
    if it is a class.

    Args:
        agent: The agent.
        runner: The runner to use, with its services; by default, a new one.
        session_service: The service for sessions if *runner* is None; by default, one in memory.
        app_name: The name of the application if *runner* is None; by default, the agent's name.
        run_config: The `RunConfig` of each run; the default streams text.
        options: Options of `Agent`.
    """

    default_part_in = staticmethod(part_in)
    default_part_out = staticmethod(part_out)

    def __init__(
        self,
        agent: Any,
        *,
        runner: Any = None,
        session_service: Any = None,
        app_name: str = "",
        run_config: Any = None,
        **options: Any,
    ) -> None:
        defaults: Json = {"name": agent.name, "description": agent.description}
        super().__init__(**{**defaults, **options})
        self._agent = agent
        self._runner = runner
        self._owns_runner = runner is None
        self._sessions_are_in_memory = runner is None and session_service is None
        self._session_service = session_service
        self._app_name = runner.app_name if runner is not None else app_name or agent.name
        self._run_config = run_config
        if getattr(agent, "input_schema", None) is not None and not options.get("input_key"):
            self.input_schema = agent.input_schema
        self._has_typed_output = isinstance(getattr(agent, "output_schema", None), type)
        if self._has_typed_output:
            self.output_schema = agent.output_schema

    async def run(self, turn: Turn) -> AsyncIterator[Any]:
        """Run the agent and yield all its events; then pause if tools wait for answers."""
        from google.genai import types

        runner, user_id, session_id = self._get_runner(), user_id_of(turn), _session_id(turn)
        await self._restore(runner, turn)
        message = types.Content(role="user", parts=await self._message_parts(turn))
        hide_exception_texts("google_adk")
        events = runner.run_async(
            user_id=user_id,
            session_id=session_id,
            new_message=message,
            run_config=self._config(),
        )
        waiting_calls: dict[str, Any] = {}
        failure, final_text = "", ""
        streaming_sources: set[Any] = set()  # agents may run in parallel
        async with aclosing(events):
            async for event in events:
                failure = failure or _failure_in(event)
                waiting_calls |= _long_running_calls(event)
                self._add_metadata(turn, event)
                # the event that follows an agent's partial events repeats their texts
                source, new_event = (event.branch, event.author), event
                if event.partial:
                    streaming_sources.add(source)
                elif source in streaming_sources:
                    streaming_sources.remove(source)
                    new_event = _without_texts(event)
                if self._has_typed_output:
                    final_text = final_text if event.partial else _event_text(event) or final_text
                    new_event = _without_texts(event)
                yield new_event
        if failure:
            raise ADKError(failure)
        if waiting_calls:
            await self._pause(runner, turn, [*waiting_calls.values()])
        if self._has_typed_output and final_text:
            yield json.loads(final_text)

    async def close(self) -> None:
        """Close the runner, unless it was passed as an option."""
        if self._runner is not None and self._owns_runner:
            await self._runner.close()
            self._runner = None

    def _get_runner(self) -> Any:
        """Return the runner; if none was passed, the first turn makes one."""
        if self._runner is None:
            from google.adk.runners import Runner
            from google.adk.sessions import InMemorySessionService

            service = self._session_service or InMemorySessionService()
            self._runner = Runner(
                app_name=self._app_name, agent=self._agent, session_service=service
            )
        return self._runner

    def _config(self) -> Any:
        from google.adk.agents.run_config import RunConfig, StreamingMode

        return self._run_config or RunConfig(streaming_mode=StreamingMode.SSE)

    async def _message_parts(self, turn: Turn) -> list[Any]:
        """Return the parts for the agent: those of the message, or responses to function calls."""
        from google.genai import types

        if turn.state is None:
            return await self.contents(turn)
        return [
            types.Part(
                function_response=types.FunctionResponse(
                    id=call["id"], name=call["tool"], response=_response_to(call, turn)
                )
            )
            for call in turn.state["calls"]
        ]

    async def _restore(self, runner: Any, turn: Turn) -> None:
        """If the session of a turn is missing, create it from a paused task or past messages."""
        from google.adk.events import Event
        from google.genai import types

        service, app_name = runner.session_service, runner.app_name
        key = {"app_name": app_name, "user_id": user_id_of(turn), "session_id": _session_id(turn)}
        if await service.get_session(**key) is not None:
            return
        saved_session: Json = {} if turn.state is None else turn.state.get("session", {})
        session = await service.create_session(**key, state=saved_session.get("state"))
        if saved_session:
            for event in saved_session["events"]:
                await service.append_event(session, Event.model_validate(event))
            return
        for message in turn.messages:
            is_user = message.role == "user"
            role, author = ("user", "user") if is_user else ("model", self._agent.name)
            content = types.Content(role=role, parts=[types.Part(text=message.text)])
            await service.append_event(session, Event(author=author, content=content))

    async def _pause(self, runner: Any, turn: Turn, calls: list[Any]) -> None:
        """Ask for answers to function calls, or for approval if all of them are confirmations."""
        state: Json = {"calls": [{"id": call.id, "tool": call.name} for call in calls]}
        if self._sessions_are_in_memory:
            session = await runner.session_service.get_session(
                app_name=runner.app_name, user_id=user_id_of(turn), session_id=_session_id(turn)
            )
            events = [e.model_dump(mode="json", exclude_none=True) for e in session.events]
            state["session"] = {"state": to_json(session.state), "events": events}
        tools = [_describe_call(call) for call in calls]
        question = "\n".join(tool.pop("hint", "") or _format_call(tool) for tool in tools)
        data, parts = {"tools": tools}, [_call_part(call) for call in calls]
        if all(call.name == CONFIRMATION for call in calls):
            turn.approve(question, data, state=state, parts=parts)  # raises, as `ask` does
        turn.ask(question, data, state=state, parts=parts)

    def _add_metadata(self, turn: Turn, event: Any) -> None:
        """Fill the metadata of the task with the members that clients of ADK expect."""
        details = {
            "app_name": self._app_name,
            "user_id": user_id_of(turn),
            "session_id": turn.context_id,
            "invocation_id": event.invocation_id,
            "author": event.author,
        }
        if event.usage_metadata is not None:
            usage = event.usage_metadata.model_dump(mode="json", exclude_none=True, by_alias=True)
            details["usage_metadata"] = usage
        turn.metadata.update({meta_key("adk", name): value for name, value in details.items()})


def _session_id(turn: Turn) -> str:
    session_id = turn.session_id
    if len(session_id) <= MAX_SESSION_ID:
        return session_id
    return sha256(session_id.encode()).hexdigest()


def _parts_of(event: Any) -> list[Any]:
    return (event.content.parts or []) if event.content else []


def _event_text(event: Any) -> str:
    return "".join(part.text for part in _parts_of(event) if part.text and not part.thought)


def _without_texts(event: Any) -> Any:
    """Return an event without its texts, which are sent in chunks or as typed output."""
    if not event.content:
        return event
    other_parts = [part for part in _parts_of(event) if not part.text]
    content = event.content.model_copy(update={"parts": other_parts})
    return event.model_copy(update={"content": content})


def _failure_in(event: Any) -> str:
    return f"{event.error_code}: {event.error_message}" if event.error_code else ""


def _long_running_calls(event: Any) -> dict[str, Any]:
    """Return the long-running function calls of an event, by id."""
    ids = event.long_running_tool_ids or ()
    calls = [part.function_call for part in _parts_of(event) if part.function_call]
    return {call.id: call for call in calls if call.id in ids}


def _call_part(call: Any) -> Json:
    """Return a function call as clients of ADK expect it: a part with metadata."""
    metadata = {meta_key("adk", "type"): FUNCTION_CALL, meta_key("adk", "is_long_running"): True}
    members = call.model_dump(mode="json", exclude_none=True, by_alias=True)
    return {"data": members, "mediaType": "application/json", "metadata": metadata}


def _describe_call(call: Any) -> Json:
    """Return a function call as JSON; for a confirmation, the call to confirm."""
    arguments: Json = to_json(call.args or {})
    if call.name != CONFIRMATION:
        return {"tool": call.name, "arguments": arguments, "id": call.id}
    original = arguments.get("originalFunctionCall", {})
    hint = arguments.get("toolConfirmation", {}).get("hint", "")
    tool = {"tool": original.get("name"), "arguments": original.get("args", {}), "id": call.id}
    return {**tool, "hint": hint}


def _format_call(tool: Json) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in tool["arguments"].items())
    return f"{tool['tool']}({arguments})"


def _response_to(call: Json, turn: Turn) -> Json:
    """Return the response to a function call, made from the answer of the user."""
    if call["tool"] == CONFIRMATION and turn.approved is not None:
        return {"confirmed": turn.approved}
    for part in turn.answer_parts or ():
        data, metadata = part.get("data"), part.get("metadata") or {}
        is_response = metadata.get(meta_key("adk", "type")) == FUNCTION_RESPONSE
        if is_response and is_object(data) and data.get("id") == call["id"]:
            response = data.get("response")
            return {**response} if is_object(response) else {"result": response}
    answer = turn.answer
    if is_object(answer) and call["id"] in answer:  # answers to several calls, by id
        answer = answer[call["id"]]
    return {**answer} if is_object(answer) else {"result": answer}
