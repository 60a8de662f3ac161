"""A program that imitates a command-line agent, for the tests of its bridge.

It sends the prompt to the test over a socket, and writes the answer in the format of the imitated
program. Its arguments are the name of that program, the port, and that program's arguments.
"""

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

imitated, port, *arguments = sys.argv[1:]


def argument_after(name: str) -> str | None:
    """Return the argument after a name; None without it."""
    return arguments[arguments.index(name) + 1] if name in arguments else None


def write(value: Any) -> None:
    """Write a line at once."""
    print(value if isinstance(value, str) else json.dumps(value), flush=True)


def write_piece(piece: str, *, is_first: bool) -> None:
    """Write a piece of the answer, if the imitated program streams."""
    if imitated == "text":
        print(piece, end="", flush=True)
    elif imitated == "claude":
        if is_first:
            start_event = {
                "type": "content_block_start",
                "content_block": {"type": "text", "text": ""},
            }
            write({"type": "stream_event", "event": start_event, "parent_tool_use_id": None})
        delta = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": piece}}
        write({"type": "stream_event", "event": delta, "parent_tool_use_id": None})


def write_end(text: str) -> None:
    """Write the whole answer and the usage, as agents do at the end; nothing for plain text."""
    if imitated == "openclaw":
        usage = {"input": 7, "output": 3}
        write("Config loaded.\n")
        write({"payloads": [{"text": text}], "meta": {"agentMeta": {"usage": usage}}})
    elif imitated == "claude":
        content = [{"type": "text", "text": text}]
        write({"type": "assistant", "message": {"content": content}})
        usage = {"input_tokens": 5, "cache_read_input_tokens": 2, "output_tokens": 3}
        write({"type": "result", "subtype": "success", "result": text, "usage": usage})
    elif imitated == "codex":
        write({"type": "item.completed", "item": {"type": "agent_message", "text": text}})
        write({"type": "turn.completed", "usage": thread_usage()})


def thread_usage() -> dict[str, int]:
    """Return the tokens of all turns of the thread, as Codex counts them."""
    turns = Path(session).read_text().count("turn")
    return {"input_tokens": 7 * turns, "output_tokens": 3 * turns}


def fail(text: str) -> None:
    """End as the imitated program does when it fails."""
    if imitated == "openclaw":
        write({"ok": False, "error": {"message": text}})
    elif imitated == "claude":
        write({"type": "result", "subtype": "error_during_execution", "is_error": True})
    elif imitated == "codex":
        write({"type": "turn.failed", "error": {"message": text}})
    print(text, file=sys.stderr)
    raise SystemExit(1)


def begin_session() -> str:
    """Add a turn to the file of the session, and return the name of the file."""
    if imitated == "codex":
        thread = argument_after("resume") or f"thread-{os.getpid()}"
        if "resume" in arguments and not Path(thread).exists():
            fail(f"thread/resume failed: no rollout found for thread id {thread}")
        write({"type": "thread.started", "thread_id": thread})
    elif imitated == "claude":
        resumed_id, new_id = argument_after("--resume"), argument_after("--session-id")
        thread = resumed_id or new_id or ""
        if resumed_id and not Path(thread).exists():
            fail(f"No conversation found with session ID: {thread}")
        if new_id and Path(thread).exists():
            fail(f"Error: Session ID {thread} is already in use.")
    else:
        thread = argument_after("--session-id") or "none"
    with Path(thread).open("a") as file:
        file.write("turn\n")
    return thread


session = begin_session()
prompt = argument_after("--message")
if prompt is None:
    prompt = sys.stdin.read()
with socket.create_connection(("127.0.0.1", int(port))) as connection:
    connection.sendall(json.dumps({"session": session, "prompt": prompt}).encode() + b"\n")
    answer = ""
    for line in connection.makefile():
        message = json.loads(line)
        if "failure" in message:
            fail(message["failure"])
        write_piece(message["piece"], is_first=not answer)
        answer += message["piece"]
write_end(answer)
