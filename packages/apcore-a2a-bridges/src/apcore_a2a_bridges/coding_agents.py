"""Claude Code and Codex, run by their commands."""

from __future__ import annotations

import mimetypes
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from apcore_a2a_core import Progress, Usage
from apcore_a2a_core.values import is_object

from .command import (
    SEPARATOR,
    Command,
    CommandAgent,
    CommandEvent,
    object_at,
    part_out,
    session_digest,
)
from .parts import Json
from .turn import Turn

MAX_SESSIONS = 10_000
"""Maximum number of Codex sessions that an agent remembers, one for each conversation."""
CLAUDE_INPUT_TOKENS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
"""Members that count input tokens: new ones, and those written to or read from the cache."""


def claude_part_out(event: Any, turn: Turn) -> Any:
    """Convert an event of Claude Code to chunks: text, the tools that it uses, and token counts."""
    if not isinstance(event, CommandEvent):
        return part_out(event, turn)
    value = event.value
    if value.get("type") == "stream_event":
        is_new_text = event.follows_text and _begins_text(value)
        return SEPARATOR if is_new_text else _delta_in(value) or None
    if value.get("type") == "assistant":
        content: list[Any] = object_at(value, "message").get("content") or []
        blocks = [block for block in content if is_object(block)]
        tool_uses = [block for block in blocks if block.get("type") == "tool_use"]
        return [Progress(f"Using {tool_use.get('name')}") for tool_use in tool_uses]
    if value.get("type") == "result":
        counts = object_at(value, "usage")
        inputs = sum(counts.get(name) or 0 for name in CLAUDE_INPUT_TOKENS)
        # only this event has the answers of Claude Code's own commands, such as /cost
        text = None if event.follows_text else value.get("result")
        return [text, Usage(inputs, counts.get("output_tokens") or 0)]
    return None


def codex_part_out(event: Any, turn: Turn) -> Any:
    """Convert an event of Codex to chunks: text, actions and token counts."""
    if not isinstance(event, CommandEvent):
        return part_out(event, turn)
    value = event.value
    if text := _message_in(value):
        return SEPARATOR + text if event.follows_text else text
    if value.get("type") == "item.started":
        item = object_at(value, "item")
        details = item.get("command") or item.get("tool") or item.get("query")
        return Progress(f"{item.get('type')}: {details}" if details else str(item.get("type")))
    if value.get("type") == "turn.completed":
        counts = object_at(value, "usage")
        return Usage(counts.get("input_tokens") or 0, counts.get("output_tokens") or 0)
    return None


class ClaudeCodeAgent(CommandAgent):
    """Claude Code, run by its command `claude`.

    Args:
        command: The command.
        args: Further arguments, such as `["--model", "sonnet", "--allowedTools", "Read"]`.
        options: Options of `CommandAgent` and `Agent`.
    """

    environment: Mapping[str, str] = {"DISABLE_TELEMETRY": "1", "DISABLE_ERROR_REPORTING": "1"}
    default_part_out = staticmethod(claude_part_out)

    def __init__(
        self,
        *,
        command: str | Sequence[str] = "claude",
        args: Sequence[str] = (),
        **options: Any,
    ) -> None:
        defaults: Json = {"name": "claude-code", "description": "Claude Code.", "output": "lines"}
        super().__init__(command, **{**defaults, **options})
        self._command += ["--print", "--verbose", "--output-format", "stream-json"]
        self._command += ["--include-partial-messages", *args]

    def commands(self, turn: Turn, text: str, paths: Sequence[Path]) -> Iterable[Command]:
        """Return a command that resumes the session and one that begins it, the likelier first."""
        session = str(UUID(session_digest(turn)))
        folder = ["--add-dir", str(paths[0].parent)] if paths else []
        flags = ["--resume", "--session-id"] if turn.messages else ["--session-id", "--resume"]
        return [Command([*self._command, *folder, flag, session], text) for flag in flags]

    def failure_in(self, value: Any) -> str:
        """Return the error in the result of Claude Code; empty if there is none."""
        if value.get("type") != "result" or not value.get("is_error"):
            return ""
        return str(value.get("result") or value.get("subtype"))

    def is_text(self, value: Any) -> bool:
        """Return whether an event has text for the user."""
        return bool(_delta_in(value))

    def is_session_problem_in(self, problem: str) -> bool:
        """Return whether the session to resume is missing, or the one to begin exists already."""
        return "No conversation found" in problem or "is already in use" in problem


class CodexAgent(CommandAgent):
    """Codex, run by its command `codex exec`.

    Codex chooses the id of its session. `CodexAgent` keeps the id, and the tokens used in the
    session, in memory: after a restart of the server, or on another replica, a new session gets the
    texts of the conversation.

    Args:
        command: The command.
        args: Further arguments, such as `["--sandbox", "workspace-write"]`.
        options: Options of `CommandAgent` and `Agent`.
    """

    default_part_out = staticmethod(codex_part_out)

    def __init__(
        self,
        *,
        command: str | Sequence[str] = "codex",
        args: Sequence[str] = (),
        **options: Any,
    ) -> None:
        defaults: Json = {"name": "codex", "description": "Codex.", "output": "lines"}
        super().__init__(command, **{**defaults, **options})
        self._command += ["exec", "--json", "-c", "analytics.enabled=false", *args]
        self._sessions: OrderedDict[str, _CodexSession] = OrderedDict()

    def commands(self, turn: Turn, text: str, paths: Sequence[Path]) -> Iterable[Command]:
        """Return a command that resumes the session, if known, and one that begins another."""
        images = [word for path in paths if _is_image(path) for word in ("--image", str(path))]
        session = self._sessions.get(turn.session_id)
        resume = [] if session is None else ["resume", session.thread_id]
        begin = Command([*self._command, *images], _with_history(text, turn))
        return [*([Command([*self._command, *resume, *images], text)] if resume else ()), begin]

    def take_value(self, value: Any, turn: Turn) -> Any:
        """Remember the session of Codex; count only the tokens of this turn."""
        session_id = turn.session_id
        if value.get("type") == "thread.started":
            session = self._sessions.pop(session_id, None)
            if session is None or session.thread_id != value["thread_id"]:
                session = _CodexSession(value["thread_id"])
            self._sessions[session_id] = session
            if len(self._sessions) > MAX_SESSIONS:
                self._sessions.popitem(last=False)
        elif value.get("type") == "turn.completed" and session_id in self._sessions:
            return {
                **value,
                "usage": self._sessions[session_id].count_new(object_at(value, "usage")),
            }
        return value

    def failure_in(self, value: Any) -> str:
        """Return the reason why the turn has failed; empty if it has not."""
        if value.get("type") != "turn.failed":  # after "error", Codex may still reconnect
            return ""
        return str(object_at(value, "error").get("message", "no reason given"))

    def is_text(self, value: Any) -> bool:
        """Return whether an event has text for the user."""
        return bool(_message_in(value))

    def is_session_problem_in(self, problem: str) -> bool:
        """Return whether the session is lost."""
        return "no rollout found" in problem


@dataclass(slots=True)
class _CodexSession:
    """A session of Codex, and the tokens that it has used."""

    thread_id: str
    usage: dict[str, int] = field(default_factory=dict[str, int])

    def count_new(self, usage: Json) -> dict[str, int]:
        """Return the tokens of this turn; Codex counts those of the whole session."""
        counts = {name: count for name, count in usage.items() if isinstance(count, int)}
        previous, self.usage = self.usage, counts
        return {name: max(0, count - previous.get(name, 0)) for name, count in counts.items()}


def _with_history(text: str, turn: Turn) -> str:
    """Return a text preceded by the conversation, which a new session does not know."""
    if not turn.messages:
        return text
    transcript = "\n\n".join(
        f"{message.role.capitalize()}: {message.text}" for message in turn.messages
    )
    return f"The conversation so far:\n\n{transcript}\n\nThe new message:\n\n{text}"


def _message_in(event: Json) -> str:
    """Return the text of a message in an event of Codex; empty if it has none."""
    item = object_at(event, "item") if event.get("type") == "item.completed" else {}
    return str(item.get("text", "")) if item.get("type") == "agent_message" else ""


def _stream_event_in(event: Json) -> Json:
    """Return the model's stream event in an event of Claude Code; empty for subagents."""
    return {} if event.get("parent_tool_use_id") else object_at(event, "event")


def _begins_text(event: Json) -> bool:
    """Return whether an event begins a text of the model."""
    is_start = _stream_event_in(event).get("type") == "content_block_start"
    return is_start and object_at(event, "event", "content_block").get("type") == "text"


def _delta_in(event: Json) -> str:
    """Return the piece of text in an event of Claude Code; empty if it has none."""
    delta = object_at(_stream_event_in(event), "delta")
    return str(delta.get("text", "")) if delta.get("type") == "text_delta" else ""


def _is_image(path: Path) -> bool:
    return str(mimetypes.guess_type(path.name)[0]).startswith("image/")
