"""Agents of Strands Agents (strands-agents)."""
# pyright: reportMissingImports=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# strands-agents is not installed where the types are checked, so its objects are Any.

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict
from typing import Any

from apcore_a2a_core import File, Progress, Usage, to_json
from apcore_a2a_core.values import is_object

from .agent import Agent
from .logs import hide_exception_texts
from .parts import Json, is_mapping, text_of
from .turn import Turn, file_from

MAX_SESSIONS = 1000
"""Maximum number of conversations whose messages and state an agent keeps in memory."""
KINDS = {"image": "image", "video": "video", "text": "document", "application": "document"}
"""Kinds of content blocks in Strands, by the part of the media type before the slash."""
FORMATS = {
    "plain": "txt",
    "markdown": "md",
    "msword": "doc",
    "vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "vnd.ms-excel": "xls",
    "vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "quicktime": "mov",
    "x-matroska": "mkv",
    "3gpp": "three_gp",
}
"""Names of formats in Strands that differ from the media subtype, by the subtype."""


class StrandsError(RuntimeError):
    """An agent has stopped before it had an answer."""


def part_in(part: Mapping[str, Any], turn: Turn) -> Any:
    """Convert a part of a message to a content block: text, an image, a video or a document.

    Data and links become text, and files of other types are left out.

    >>> part_in({"text": "Hello"}, turn=None)
    {'text': 'Hello'}
    """
    file = file_from(part)
    if file is None:
        return {"text": text_of(part.get("text", part.get("data")))}
    if file.url is not None:
        return {"text": file.url}
    media_type = file.media_type.partition(";")[0].strip().lower()
    kind, _, subtype = media_type.partition("/")
    if kind not in KINDS:
        return None
    block: Json = {"format": FORMATS.get(subtype, subtype), "source": {"bytes": file.data}}
    if KINDS[kind] == "document":
        # Bedrock allows only these characters in a document's name, and no two spaces in a row
        allowed = re.sub(r"[^a-zA-Z0-9\s()\[\]-]+", "-", file.name)
        block["name"] = re.sub(r"\s+", " ", allowed) or "document"
    return {KINDS[kind]: block}


def part_out(event: Any, turn: Turn) -> Any:
    """Convert an event of Strands to chunks: text, data, tools in use, images and token counts.

    >>> part_out({"data": "Hello"}, turn=None)
    'Hello'
    """
    if not is_mapping(event):
        return event
    if isinstance(event.get("data"), str):
        return event["data"]
    if is_object(inner := event.get("event")):
        counts = inner.get("metadata", {}).get("usage", {})
        return Usage(counts["inputTokens"], counts["outputTokens"]) if counts else None
    if is_object(message := event.get("message")) and message.get("role") == "assistant":
        blocks = message.get("content", ())
        used_tools = [Progress(f"Using {b['toolUse']['name']}") for b in blocks if "toolUse" in b]
        images = [b["image"] for b in blocks if "bytes" in b.get("image", {}).get("source", {})]
        files = [File(i["source"]["bytes"], media_type=f"image/{i['format']}") for i in images]
        return [*used_tools, *files]
    output = getattr(event.get("result"), "structured_output", None)
    return None if output is None else output.model_dump()


class StrandsAgent(Agent):
    """An agent of Strands, or a function that makes one.

    An agent of Strands has one conversation, and runs one turn at a time. Each turn therefore loads
    the messages and the state of its conversation, and turns of a single agent wait for each other.
    With a function, each turn gets a new agent, and turns run at the same time. Interrupts pause
    the task.

    Args:
        agent: The agent, or a function without parameters that returns a new one.
        options: Options of `Agent`.
    """

    default_part_in = staticmethod(part_in)
    default_part_out = staticmethod(part_out)

    def __init__(self, agent: Any, **options: Any) -> None:
        is_agent = hasattr(agent, "stream_async")
        self._make_agent: Callable[[], Any] | None = None if is_agent else agent
        self._agent = agent if is_agent else agent()
        defaults: Json = {
            "name": self._agent.name,
            "description": self._agent.description or "",
        }
        super().__init__(**{**defaults, **options})
        self._initial_snapshot = self._agent.take_snapshot(preset="session")
        self._lock = asyncio.Lock()
        self._sessions: OrderedDict[str, Any] = OrderedDict()

    async def run(self, turn: Turn) -> AsyncIterator[Any]:
        """Run the agent to the end of its events, then pause if it has been interrupted."""
        hide_exception_texts("strands")
        result: Any = None
        async with self._agent_for(turn) as agent:
            async with aclosing(agent.stream_async(await self._prompt(turn))) as events:
                async for event in events:
                    result = event.get("result", result)
                    yield event
            snapshot = agent.take_snapshot(preset="session")
        self._sessions[turn.session_id] = snapshot
        self._sessions.move_to_end(turn.session_id)
        if len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        if result is not None and result.stop_reason == "interrupt":
            self._ask(turn, result.interrupts, snapshot)
        if result is None or result.stop_reason in ("cancelled", "guardrail_intervened"):
            raise StrandsError(f"The agent has stopped: {getattr(result, 'stop_reason', None)}")

    @asynccontextmanager
    async def _agent_for(self, turn: Turn) -> AsyncGenerator[Any]:
        """Yield an agent with a turn's conversation; a shared agent serves one turn at a time."""
        if self._make_agent is not None:
            agent = self._make_agent()
            self._load(agent, turn)
            yield agent
            return
        async with self._lock:
            self._load(self._agent, turn)
            try:
                yield self._agent
            finally:
                self._agent.load_snapshot(self._initial_snapshot)

    def _load(self, agent: Any, turn: Turn) -> None:
        """Load a turn's conversation: from a paused task, from memory, or from message texts."""
        from strands.handlers.callback_handler import PrintingCallbackHandler, null_callback_handler
        from strands.types.session import decode_bytes_values

        if isinstance(agent.callback_handler, PrintingCallbackHandler):
            agent.callback_handler = null_callback_handler  # the default prints every answer
        if turn.state is not None:
            saved_snapshot = decode_bytes_values(turn.state["snapshot"])
            agent.load_snapshot(type(self._initial_snapshot)(**saved_snapshot))
            return
        snapshot = self._sessions.get(turn.session_id)
        is_interrupted = snapshot is not None and snapshot.data.get("interrupt_state", {}).get(
            "activated"
        )
        if snapshot is not None and not is_interrupted:
            agent.load_snapshot(snapshot)
            return
        # no snapshot, or one with an interrupt of another task, which this turn doesn't answer
        agent.load_snapshot(self._initial_snapshot)
        roles = {"user": "user", "agent": "assistant"}
        agent.messages.extend(
            {"role": roles[message.role], "content": [{"text": message.text}]}
            for message in turn.messages
            if message.text
        )

    async def _prompt(self, turn: Turn) -> Any:
        if turn.state is not None:
            return [_response_to(interrupt_id, turn) for interrupt_id in turn.state["interrupts"]]
        return await self.contents(turn)

    def _ask(self, turn: Turn, interrupts: Any, snapshot: Any) -> None:
        from strands.types.session import encode_bytes_values

        questions = [to_json({"id": i.id, "name": i.name, "reason": i.reason}) for i in interrupts]
        question = "\n".join(
            item["reason"] if isinstance(item["reason"], str) else item["name"]
            for item in questions
        )
        ids = [item["id"] for item in questions]
        encoded = encode_bytes_values(asdict(snapshot))  # files in the conversation are bytes
        state = {"interrupts": ids, "snapshot": to_json(encoded)}
        turn.ask(question, {"interrupts": questions}, state=state)


def _response_to(interrupt_id: str, turn: Turn) -> Json:
    """Return the user's answer as the response to an interrupt."""
    answer = turn.answer
    if is_object(answer) and interrupt_id in answer:  # the data has answers by interrupt id
        answer = answer[interrupt_id]
    return {"interruptResponse": {"interruptId": interrupt_id, "response": answer}}
