"""Commands that call agents (`apcore-a2a card`, `call`, `check`, `tasks`), and their options."""

import json
import os
import re
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
from click.core import ParameterSource

EPILOG = """
Exit codes: 0 success; 1 wrong arguments; 2 the agent can't be reached or does not speak A2A; 3 the
task, a check or a webhook test failed, the agent refused the request or the credentials, or there
is no OAuth 2 token; 4 the task waits for input; 130 interrupted.
"""


HEADER_VARIABLES = {"authorization": "APCORE_A2A_AUTH", "x-api-key": "APCORE_A2A_API_KEY"}
"""Headers that hold credentials, and the variables to set instead."""
CLIENT_SECRET_VARIABLE = "APCORE_A2A_CLIENT_SECRET"
HOST_AND_PORT = re.compile(r"([\w.-]+|\[[\da-fA-F:.]+\]):\d{1,5}(?=/|$)")
"""The beginning of a URL without a scheme."""


def parse_content(text: str) -> Any:
    """Parse the value of --input: text that looks like JSON must be JSON.

    Example:
        ```python
        from apcore_a2a.command.remote import parse_content

        print(parse_content('{"n": 1}'), parse_content("two words"))
        #> {'n': 1} two words
        ```
    """
    value = read_text(text)
    if not value.lstrip().startswith(("{", "[", '"')):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"this is not JSON: {error}") from None


def read_secret(text: str) -> str:
    """Return the secret in *text*, or in the file FILE if *text* is `@FILE`."""
    value = (read_text(text) if text.startswith("@") else text).strip()
    if not value:
        raise click.BadParameter(f"{text.strip() or 'the value'} is empty")
    return value


def parse_secret_option(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> str | None:
    """Return the secret that an option sets; warn if the secret is on the command line."""
    if value is None:
        return None
    if is_on_command_line(ctx, param) and not value.startswith("@"):
        warn_about_secret(param.opts[0], getattr(param, "envvar", ""))
    return read_secret(value)


def is_on_command_line(ctx: click.Context, param: click.Parameter) -> bool:
    """Return whether a parameter is on the command line, which other users can read."""
    return ctx.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE


def warn_about_secret(flag: str, variable: str) -> None:
    """Warn that a secret is on the command line, and name the variable to set instead."""
    print(
        f"apcore-a2a: Other users of this machine can read {flag} in the process list: "
        f"set {variable} instead",
        file=sys.stderr,
    )


def check_origin(text: str) -> str:
    """Check that *text* is an origin such as `https://agent.example.com`, and return it."""
    from apcore_a2a_client.agent_urls import parse_origin

    try:
        parse_origin(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return text


def complete_url(text: str) -> str:
    """Return the URL of an agent; `host:port` gets http:// on this machine, and https:// elsewhere.

    Example:
        ```python
        from apcore_a2a.command.remote import complete_url

        print(complete_url("localhost:8000"), complete_url("agent.example.com:8443"))
        #> http://localhost:8000 https://agent.example.com:8443
        ```
    """
    host = HOST_AND_PORT.match(text)
    if host is None:
        return text
    is_local = host[1].startswith("127.") or host[1] in ("localhost", "[::1]", "0.0.0.0")
    return f"{'http' if is_local else 'https'}://{text}"


def make_folder(path: str) -> Path:
    """Return the path of a folder, which is created if necessary."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.BadParameter(f"can't save in {path}: {error.strerror}") from None
    return Path(path)


def read_text(text: str) -> str:
    """Return *text*; for `@FILE` the content of FILE, and for `-` that of standard input."""
    try:
        if text == "-":
            return sys.stdin.read().removeprefix("\ufeff")
        return Path(text[1:]).read_text(encoding="utf-8-sig") if text.startswith("@") else text
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise click.BadParameter(f"can't read {text}: {reason}") from None


def read_attachment(path: str) -> Any:
    """Return the file at *path* as a part of a message."""
    from mimetypes import guess_type

    from apcore_a2a_client import Part

    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise click.BadParameter(f"can't read {path}: {error.strerror}") from None
    media_type = guess_type(path)[0] or "application/octet-stream"
    return Part(raw=raw, filename=Path(path).name, media_type=media_type)


def parse_header(text: str) -> tuple[str, str]:
    """Parse a header of the form `NAME:VALUE`."""
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise click.BadParameter("a header has the form NAME:VALUE")
    return name.strip(), value.strip()


def value_option(names: str, metavar: str, help: str, **settings: Any) -> click.Option:
    """Return an option with a value."""
    return click.Option(names.split(), metavar=metavar, help=help, **settings)


def _flag(names: str, help: str) -> click.Option:
    return click.Option(names.split(), is_flag=True, help=help)


_SECRET_SETTINGS = {"show_envvar": True, "callback": parse_secret_option}
COMMON_OPTIONS = (
    value_option(
        "--auth",
        "TOKEN|@FILE",
        'Bearer token, or "SCHEME CREDENTIALS".',
        envvar="APCORE_A2A_AUTH",
        **_SECRET_SETTINGS,
    ),
    value_option(
        "--api-key",
        "KEY|@FILE",
        "API key, sent as the Agent Card specifies.",
        envvar="APCORE_A2A_API_KEY",
        **_SECRET_SETTINGS,
    ),
    value_option(
        "--client-id",
        "ID",
        "Get tokens as this OAuth 2 client (client credentials grant); the secret comes from the "
        f"variable {CLIENT_SECRET_VARIABLE}.",
    ),
    value_option(
        "--token-url", "URL", "Token endpoint for --client-id, instead of the Agent Card's."
    ),
    value_option(
        "--issuer", "URL", "Authorization server for --client-id; its token endpoint is discovered."
    ),
    value_option("--scope", "SCOPES", "Scopes for --client-id, separated by spaces."),
    value_option(
        "--credentials-for",
        "ORIGIN",
        "Another origin to send the credentials to, if the Agent Card points there; may be "
        "repeated.",
        type=check_origin,
        multiple=True,
    ),
    value_option(
        "--header headers",
        "NAME:VALUE",
        "HTTP header to send; may be repeated.",
        type=parse_header,
        multiple=True,
    ),
    value_option(
        "--timeout",
        "SECONDS",
        "Timeout for a response, and for silence on a stream.",
        default=30.0,
        show_default=True,
    ),
    click.Option(
        ["--protocol"], type=click.Choice(["1.0", "0.3"]), help="Protocol version to use."
    ),
    _flag("--json as_json", "Print JSON, which is the default if the output is piped."),
)
"""The options of every command that calls agents."""


@click.pass_context
def _run(ctx: click.Context, /, **arguments: Any) -> int:
    """Run a command; import its implementation here, because `--help` does not need it."""
    for header, _ in arguments["headers"]:
        if header.lower() in HEADER_VARIABLES:
            warn_about_secret(f"--header {header}", HEADER_VARIABLES[header.lower()])
    calls: Any = import_module(".calls", __package__)
    command, secrets = ctx.command.name, credentials(ctx)
    return int(calls.run(SimpleNamespace(command=command, credentials=secrets, **arguments)))


def agent_command(name: str, help: str, *params: click.Parameter) -> click.Command:
    """Return a command that calls the agent at URL, with *params* and the common options."""
    url = click.Argument(["url"], metavar="URL", type=complete_url)
    all_params = [url, *params, *COMMON_OPTIONS]
    return click.Command(name, callback=_run, params=all_params, help=help, epilog=EPILOG)


output = value_option(
    "--output", "DIR", "Folder to save the artifacts of the task in.", type=make_folder
)
card = agent_command(
    "card",
    "Show the Agent Card of the agent at URL.",
    _flag("--extended", "Show the card for authenticated callers."),
)
call = agent_command(
    "call",
    "Call a skill of the agent at URL. SKILL is the id of the skill, as shown by `card`. Without "
    "SKILL, the agent's only skill is called; if there are several, the agent chooses one.",
    click.Argument(["skill"], metavar="[SKILL]", required=False),
    value_option(
        "--input",
        "JSON|@FILE|-",
        "Input as JSON or text (default: {} if there are no files).",
        type=parse_content,
    ),
    value_option(
        "--file files",
        "FILE",
        "File to send; may be repeated.",
        multiple=True,
        type=read_attachment,
    ),
    _flag("--stream", "Print chunks of the result as they arrive."),
    value_option("--context", "ID", "Conversation that the call belongs to."),
    value_option("--task", "ID", "Paused task to answer with the input."),
    output,
)
check = agent_command(
    "check",
    "Check whether the agent at URL conforms to the protocol. The command checks the agent's card "
    "and calls SKILL with --input. Without SKILL, it calls the agent's only skill, unless that is "
    "destructive or needs approval; if there are several, the agent chooses one. The default input "
    "is the first example of the skill, or Hello.",
    click.Argument(["skill"], metavar="[SKILL]", required=False),
    value_option("--input", "JSON|@FILE|-", "Input as JSON or text.", type=parse_content),
)
tasks = agent_command(
    "tasks",
    "List the tasks of the agent at URL; or show, follow or cancel TASK.",
    click.Argument(["task"], metavar="[TASK]", required=False),
    value_option("--context", "ID", "List only tasks of this conversation."),
    value_option("--state", "STATE", "List only tasks in this state."),
    value_option("--limit", "NUMBER", "Number of tasks to list.", default=20, show_default=True),
    value_option(
        "--cursor", "CURSOR", "Cursor of the next page, as printed at the end of the previous page."
    ),
    _flag("--follow", "Wait until TASK ends or pauses."),
    _flag("--cancel", "Cancel TASK."),
    output,
)


def credentials(ctx: click.Context) -> Any:
    """Return the credentials for `SyncA2AClient`; flags override variables.

    Raises:
        ValueError: The flags contradict each other or are incomplete, or a URL is not valid.
    """
    from apcore_a2a_client import APIKey

    auth, key = ctx.params["auth"], ctx.params["api_key"]
    names = {"auth", "api_key"}
    flags = {n for n in names if ctx.get_parameter_source(n) is ParameterSource.COMMANDLINE}
    if flags == names:
        raise ValueError("--auth and --api-key cannot be combined")
    if (oauth_credentials := client_credentials(ctx)) is not None:
        if flags:
            raise ValueError("--client-id cannot be combined with --auth or --api-key")
        return oauth_credentials
    return auth if "auth" in flags or not key else APIKey(key)


def client_credentials(ctx: click.Context) -> Any:
    """Return the OAuth 2 credentials for --client-id; None without this flag.

    Raises:
        ValueError: The secret is missing, a flag is set that needs --client-id, a URL is not
            valid, or --token-url and --issuer are combined.
    """
    from apcore_a2a_client import ClientCredentials

    details = {name: ctx.params[name] for name in ("token_url", "issuer", "scope")}
    client_id = ctx.params["client_id"]
    client_secret = os.environ.get(CLIENT_SECRET_VARIABLE, "").strip()
    if not client_id:
        if names := [name for name, value in details.items() if value]:
            raise ValueError(f"--{names[0].replace('_', '-')} needs --client-id")
        return None
    if not client_secret:
        raise ValueError(f"--client-id needs the secret in the variable {CLIENT_SECRET_VARIABLE}")
    return ClientCredentials(client_id=client_id, client_secret=client_secret, **details)
