"""What `card`, `call` and `tasks` take."""

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

EPILOG = (
    "APCORE_A2A_AUTH and APCORE_A2A_API_KEY stand for --auth and --api-key. Exit codes: 0 done, "
    "1 wrong arguments, 2 the agent can't be reached or speaks no A2A, 3 it refused (credentials, "
    "too) or the task failed, 4 the task waits for input, 130 interrupted."
)


def add_commands(commands: Any, do: Callable[[argparse.Namespace], int]) -> None:
    """Add the commands to argparse's *commands*; *do* does each."""
    _card(_command(commands, "card", "show what an agent is and can do", do))
    _call(_command(commands, "call", "call a skill of an agent", do))
    _tasks(_command(commands, "tasks", "list, show, follow or cancel an agent's tasks", do))


def _command(commands: Any, name: str, purpose: str, do: Any) -> argparse.ArgumentParser:
    result: argparse.ArgumentParser = commands.add_parser(
        name,
        help=purpose,
        description=purpose[0].upper() + purpose[1:] + ".",
        epilog=EPILOG,
        allow_abbrev=False,
    )
    result.set_defaults(do=do, command=name)
    result.add_argument("url", metavar="URL", help="the agent's address")
    return result


def _card(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--extended", action="store_true", help="the card for those it knows")
    _connection(parser)


def _call(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("skill", metavar="SKILL", help="the skill's id, as `card` shows it")
    parser.add_argument(
        "--input",
        metavar="JSON|@FILE|-",
        type=content,
        help="what the skill gets, as JSON or text (default: {}, or what --file gives)",
    )
    parser.add_argument(
        "--file", metavar="FILE", action="append", default=[], type=attached, help="send a file too"
    )
    parser.add_argument("--stream", action="store_true", help="print the chunks as they come")
    parser.add_argument("--context", metavar="ID", help="the conversation it belongs to")
    parser.add_argument("--task", metavar="ID", help="answer this task, which waits for input")
    parser.add_argument("--output", metavar="DIR", type=folder, help="save what comes of it there")
    _connection(parser)


def _tasks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", metavar="TASK", nargs="?", help="one task (default: list them)")
    parser.add_argument("--context", metavar="ID", help="list only those of this conversation")
    parser.add_argument("--state", metavar="STATE", help="list only those in this state")
    parser.add_argument("--limit", metavar="N", type=int, default=20, help="how many (default: 20)")
    parser.add_argument("--cursor", metavar="CURSOR", help="where the last list ended")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--follow", action="store_true", help="wait until the task ends or pauses")
    what.add_argument("--cancel", action="store_true", help="have the task canceled")
    parser.add_argument("--output", metavar="DIR", type=folder, help="save what came of it there")
    _connection(parser)


def _connection(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("connection and output")
    group.add_argument(
        "--auth", metavar="TOKEN|@FILE", type=secret, help='a bearer token, or "SCHEME CREDENTIALS"'
    )
    group.add_argument(
        "--api-key", metavar="KEY|@FILE", type=secret, help="put where the agent's card wants it"
    )
    group.add_argument(
        "--header", metavar="NAME:VALUE", type=header, action="append", default=[], help="send this"
    )
    group.add_argument(
        "--timeout", metavar="SECONDS", type=float, default=30.0, help="of a silent agent (30)"
    )
    group.add_argument("--protocol", choices=["1.0", "0.3"], help="whatever the card says")
    group.add_argument("--json", action="store_true", help="print JSON, as is done when piped")


def content(text: str) -> Any:
    """The input that a command line means: what looks like JSON has to be JSON.

    Example:
        ```python
        from apcore_a2a.remote.arguments import content

        print(content('{"n": 1}'), content("two words"))
        #> {'n': 1} two words
        ```
    """
    found = read(text)
    if not found.lstrip().startswith(("{", "[", '"')):
        return found
    try:
        return json.loads(found)
    except (ValueError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"this is not JSON: {error}") from None


def secret(text: str) -> str:
    """A secret, or the file that has it."""
    found = (read(text) if text.startswith("@") else text).strip()
    if not found:
        raise argparse.ArgumentTypeError(f"{text or 'the value'} is empty")
    return found


def folder(path: str) -> Path:
    """A folder that is there, at the latest now."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"can't save in {path}: {error.strerror}") from None
    return Path(path)


def read(text: str) -> str:
    """*text*, or what stands in the file that it names after an `@`, or on standard input."""
    try:
        if text == "-":
            return sys.stdin.read().removeprefix("\ufeff")
        return Path(text[1:]).read_text(encoding="utf-8-sig") if text.startswith("@") else text
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise argparse.ArgumentTypeError(f"can't read {text}: {reason}") from None


def attached(path: str) -> Any:
    """The file at *path* as a part of a message."""
    from mimetypes import guess_type

    from apcore_a2a_client import Part

    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"can't read {path}: {error.strerror}") from None
    kind = guess_type(path)[0] or "application/octet-stream"
    return Part(raw=raw, filename=Path(path).name, media_type=kind)


def header(text: str) -> tuple[str, str]:
    """A header of the form `NAME:VALUE`."""
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise argparse.ArgumentTypeError("a header has the form NAME:VALUE")
    return name.strip(), value.strip()


def credentials(arguments: argparse.Namespace) -> Any:
    """The credentials for `SyncA2AClient`: of a flag, else of its variable.

    Raises:
        ValueError: There are two, or a variable has none.
    """
    from apcore_a2a_client import APIKey

    if arguments.auth and arguments.api_key:
        raise ValueError("--auth and --api-key exclude each other")
    if arguments.auth:
        return arguments.auth
    key = arguments.api_key or _variable("APCORE_A2A_API_KEY")
    return APIKey(key) if key else _variable("APCORE_A2A_AUTH")


def _variable(name: str) -> str | None:
    value = os.environ.get(name)
    try:
        return secret(value) if value else None
    except argparse.ArgumentTypeError as error:
        raise ValueError(f"{name}: {error}") from None
