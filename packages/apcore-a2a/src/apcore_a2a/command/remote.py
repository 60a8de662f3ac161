"""`apcore-a2a card`, `call` and `tasks`: the commands that call agents."""

import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import click
from click.core import ParameterSource

EPILOG = """
Exit codes: 0 done, 1 wrong arguments, 2 the agent can't be reached or speaks no A2A, 3 it refused
(credentials, too) or the task failed, 4 the task waits for input, 130 interrupted.
"""
INTERRUPTED = 130
Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def content(text: str) -> Any:
    """The input that a command line means: what looks like JSON has to be JSON.

    Example:
        ```python
        from apcore_a2a.command.remote import content

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
        raise click.BadParameter(f"this is not JSON: {error}") from None


def secret(text: str) -> str:
    """A secret, or the file that has it."""
    found = (read(text) if text.startswith("@") else text).strip()
    if not found:
        raise click.BadParameter(f"{text or 'the value'} is empty")
    return found


def folder(path: str) -> Path:
    """A folder that is there, at the latest now."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.BadParameter(f"can't save in {path}: {error.strerror}") from None
    return Path(path)


def read(text: str) -> str:
    """*text*, or what stands in the file that it names after an `@`, or on standard input."""
    try:
        if text == "-":
            return sys.stdin.read().removeprefix("\ufeff")
        return Path(text[1:]).read_text(encoding="utf-8-sig") if text.startswith("@") else text
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise click.BadParameter(f"can't read {text}: {reason}") from None


def attached(path: str) -> Any:
    """The file at *path* as a part of a message."""
    from mimetypes import guess_type

    from apcore_a2a_client import Part

    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise click.BadParameter(f"can't read {path}: {error.strerror}") from None
    kind = guess_type(path)[0] or "application/octet-stream"
    return Part(raw=raw, filename=Path(path).name, media_type=kind)


def header(text: str) -> tuple[str, str]:
    """A header of the form `NAME:VALUE`."""
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise click.BadParameter("a header has the form NAME:VALUE")
    return name.strip(), value.strip()


def _flag(name: str, metavar: str, help: str, **settings: Any) -> Callable[[Decorated], Decorated]:
    return click.option(*name.split(), metavar=metavar, help=help, **settings)


def _switch(name: str, help: str) -> Callable[[Decorated], Decorated]:
    return click.option(*name.split(), is_flag=True, help=help)


_secret = {"show_envvar": True, "type": secret}
COMMON = (
    _switch("--json as_json", "Print JSON, as is done when piped."),
    click.option(
        "--protocol", type=click.Choice(["1.0", "0.3"]), help="Protocol version to speak."
    ),
    _flag("--timeout", "SECONDS", "Longest silence of the agent.", default=30.0, show_default=True),
    _flag(
        "--header headers",
        "NAME:VALUE",
        "HTTP header to send; may be repeated.",
        type=header,
        multiple=True,
    ),
    _flag(
        "--api-key",
        "KEY|@FILE",
        "API key, sent where the agent's card wants it.",
        envvar="APCORE_A2A_API_KEY",
        **_secret,
    ),
    _flag(
        "--auth",
        "TOKEN|@FILE",
        'Bearer token, or "SCHEME CREDENTIALS".',
        envvar="APCORE_A2A_AUTH",
        **_secret,
    ),
)
"""The options that all these commands have, the last one first."""


def connects(function: Callable[..., Any]) -> click.Command:
    """Make a command of a function, with the argument URL and the common options."""
    command = click.command(epilog=EPILOG)(function)
    own, command.params = command.params, []
    for option in COMMON:
        option(command)
    command.params = [click.Argument(["url"], metavar="URL"), *own, *reversed(command.params)]
    return command


output = _flag("--output", "DIR", "Folder to save the artifacts of the task in.", type=folder)


@connects
@_switch("--extended", "Show the card for authenticated callers.")
@click.pass_context
def card(ctx: click.Context, /, **_: Any) -> int:
    """Show what the agent at URL is and can do."""
    return _do(ctx, "card")


@connects
@click.argument("skill", metavar="SKILL")
@_flag("--input", "JSON|@FILE|-", "Input, as JSON or text (default: {}, or files).", type=content)
@_flag("--file files", "FILE", "File to send; may be repeated.", multiple=True, type=attached)
@_switch("--stream", "Print chunks of the result as they come.")
@_flag("--context", "ID", "Conversation that the call belongs to.")
@_flag("--task", "ID", "Task to answer, which waits for input.")
@output
@click.pass_context
def call(ctx: click.Context, /, **_: Any) -> int:
    """Call the skill SKILL, by its id as `card` shows it, of the agent at URL."""
    return _do(ctx, "call")


@connects
@click.argument("task", metavar="[TASK]", required=False)
@_flag("--context", "ID", "List only tasks of this conversation.")
@_flag("--state", "STATE", "List only tasks in this state.")
@_flag("--limit", "NUMBER", "Tasks per list.", default=20, show_default=True)
@_flag("--cursor", "CURSOR", "Where the last list ended.")
@_switch("--follow", "Wait until TASK ends or pauses.")
@_switch("--cancel", "Cancel TASK.")
@output
@click.pass_context
def tasks(ctx: click.Context, /, **_: Any) -> int:
    """List the tasks of the agent at URL; or show, follow or cancel TASK."""
    return _do(ctx, "tasks")


def outcome(error: BaseException) -> tuple[int, str]:
    """Return the exit code for an error, and what to say of it."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, ""
    if isinstance(error, TypeError | ValueError):
        return 1, str(error)
    return 2, f"This should not happen: {error!r}"


def _do(ctx: click.Context, command: str) -> int:
    """Import what the commands do, which `--help` does not need, and do one."""
    arguments = SimpleNamespace(command=command, **ctx.params)
    arguments.credentials = credentials(ctx)
    calls: Any = import_module(".calls", __package__)
    return int(calls.do(arguments))


def credentials(ctx: click.Context) -> Any:
    """Return the credentials for `SyncA2AClient`: those of a flag, else of its variable.

    Raises:
        ValueError: There are two.
    """
    from apcore_a2a_client import APIKey

    auth, key = ctx.params["auth"], ctx.params["api_key"]
    names = {"auth", "api_key"}
    flagged = {n for n in names if ctx.get_parameter_source(n) is ParameterSource.COMMANDLINE}
    if flagged == names:
        raise ValueError("--auth and --api-key exclude each other")
    return auth if "auth" in flagged or not key else APIKey(key)
