"""The `apcore-a2a` command (FR-CMD-001, FR-CMD-002), and all of `apcore-a2a serve`.

Exit codes of that: 0 after a clean shutdown, 1 when the configuration is wrong, 2 when the server
could not run. What a flag does not say, its environment variable says, then the config
file, then the default.
"""

import argparse
import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from ._parts import part
from .config import NAMESPACE, ConfigurationError, load_config
from .remote.arguments import add_commands
from .security import authenticator
from .upkeep.arguments import add_store
from .webhooks import notifications

PREFIX = "APCORE_A2A_"
SECRETS = ("auth_key", "push_proxy", "push_secrets", "rate_limit_storage", "store")
"""Options whose values are not shown."""
INTERRUPTED = 130
"""The exit code that shells give to what SIGINT has ended."""
SEQUENCE: type[Any] = list
MAPPING: type[Any] = dict
"""What YAML makes of lists and of keys with values."""

ON = ("on", "yes", "true", "1")
ON_OR_OFF = {word: word in ON for word in (*ON, "off", "no", "false", "0")}
LEVELS = {level: level for level in ("debug", "info", "warning", "error")}


def _list(text: str) -> list[str]:
    return text.replace(",", " ").split()


def _list_of(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: [kind(item) for item in _list(text)]


def _one_of(words: Mapping[str, Any]) -> Callable[[str], Any]:
    return lambda text: words[text.lower()]


class Kind(NamedTuple):
    """What an option takes: how to read it, and how to tell it."""

    parse: Callable[[str], Any]
    wants: str
    many: bool = False


TEXT = Kind(str, "text")
WHOLE = Kind(int, "a whole number")
NUMBER = Kind(float, "a number")
SWITCH = Kind(_one_of(ON_OR_OFF), "on or off")
LIST = Kind(_list, "a list", many=True)
NUMBERS = Kind(_list_of(float), "numbers", many=True)
PORTS = Kind(_list_of(int), "whole numbers", many=True)
LEVEL = Kind(_one_of(LEVELS), "debug, info, warning or error")
FORMAT = Kind(_one_of({form: form for form in ("text", "json")}), "text or json")
WAY = Kind(_one_of({way: way for way in ("bearer", "apikey")}), "bearer or apikey")


class Option(NamedTuple):
    """One keyword of `serve`, as a flag, an environment variable and a config key.

    `default` is for the help alone; `serve` has its own.
    """

    name: str
    kind: Kind
    metavar: str
    help: str
    default: str = ""

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()

    def read(self, value: Any, source: str) -> Any:
        """*value* as it comes from *source*, as what the option takes."""
        items = value if self.kind.many and isinstance(value, SEQUENCE) else [value]
        try:
            if any(isinstance(item, (SEQUENCE, MAPPING)) for item in items):
                raise ValueError
            return self.kind.parse(",".join(map(str, items)))
        except (ValueError, KeyError):
            given = "what it was given" if self.name in SECRETS else repr(value)
            raise ConfigurationError(f"{source} takes {self.kind.wants}, not {given}") from None


GROUPS = {
    "this command": (
        Option("extensions_dir", TEXT, "DIR", "the apcore modules", "./extensions"),
        Option("config", TEXT, "FILE", "apcore config file (default: apcore's own)"),
        Option("log_level", LEVEL, "LEVEL", LEVEL.wants, "info"),
        Option("log_format", FORMAT, "FORMAT", "text for people, json for machines", "text"),
    ),
    "addresses": (
        Option("host", TEXT, "HOST", "address to listen at", "0.0.0.0"),
        Option("port", WHOLE, "PORT", "port to listen at", "8000"),
        Option("url", TEXT, "URL", "public address (default: made of host and port)"),
        Option("root_path", TEXT, "PATH", "prefix that a proxy strips"),
    ),
    "identity": (
        Option("name", TEXT, "NAME", "the agent's name (default: project.name)"),
        Option("description", TEXT, "TEXT", "what it does (default: project.description)"),
        Option("version", TEXT, "VERSION", "its version (default: project.version)"),
    ),
    "tasks": (
        Option("default_skill", TEXT, "SKILL", "skill for messages that name none"),
        Option("execution_timeout", NUMBER, "SECONDS", "longest run of a skill", "300"),
        Option("input_timeout", NUMBER, "SECONDS", "longest wait for an answer", "3600"),
        Option("shutdown_timeout", NUMBER, "SECONDS", "time to end in at shutdown", "30"),
        Option("keep_alive", NUMBER, "SECONDS", "longest silence on a stream", "15"),
        Option("cancel_on_disconnect", SWITCH, "", "let tasks go on without their clients", "yes"),
        Option("disconnect_grace", NUMBER, "SECONDS", "time for a client to come back in", "3"),
        Option("store", TEXT, "URL", "where tasks are: sqlite:///FILE, postgresql://…", "memory"),
        Option("task_ttl", NUMBER, "SECONDS", "how long ended tasks are kept", "3600"),
        Option("state_history", SWITCH, "", "let tasks remember their former states", "no"),
    ),
    "limits": (
        Option("max_tasks", WHOLE, "NUMBER", "tasks that are kept", "10000"),
        Option("max_runs", WHOLE, "NUMBER", "tasks that run at a time", "2000"),
        Option("max_runs_per_client", WHOLE, "NUMBER", "of them for one client (default: all)"),
        Option("max_runs_per_skill", WHOLE, "NUMBER", "of them for one skill (default: all)"),
        Option("max_threads", WHOLE, "NUMBER", "synchronous modules at a time", "64"),
        Option("max_streams", WHOLE, "NUMBER", "streams at a time", "1000"),
        Option("max_streams_per_client", WHOLE, "NUMBER", "streams of one client", "100"),
        Option("max_history", WHOLE, "NUMBER", "messages that a conversation holds", "100"),
        Option("max_events", WHOLE, "NUMBER", "events a reader may be behind", "1000"),
        Option("max_parts", WHOLE, "NUMBER", "parts of a message", "1000"),
        Option("max_body", WHOLE, "BYTES", "largest request", "10485760"),
        Option("max_artifact", WHOLE, "BYTES", "largest output", "33554432"),
        Option("rate_limit", TEXT, "RATE", "requests of one client: 600/minute (default: any)"),
        Option("skill_rate_limit", TEXT, "RATE", "its calls of one skill (default: any)"),
        Option("rate_limit_storage", TEXT, "URI", "where they are counted", "memory://"),
        Option("request_timeout", NUMBER, "SECONDS", "time for a request to arrive in", "10"),
    ),
    "operations": (
        Option("explorer", SWITCH, "", "serve a page to see and try the agent on", "no"),
        Option("explorer_path", TEXT, "PATH", "where that page is", "/explorer"),
        Option("metrics", SWITCH, "", "serve /metrics", "no"),
        Option("access_log", SWITCH, "", "log no requests", "yes"),
        Option("watch", SWITCH, "", "read modules again when their files change", "no"),
        Option("schema_memo", SWITCH, "", "make JSON Schemas anew for each call", "yes"),
    ),
    "authentication": (
        Option("auth_type", WAY, "TYPE", "bearer (tokens) or apikey (default: anybody may call)"),
        Option("auth_key", TEXT, "KEY", "secret or public key, or the API key; or a file of it"),
        Option("auth_jwks_url", TEXT, "URL", "where the issuer's keys are"),
        Option("auth_issuer", TEXT, "URL", "who issues the tokens; its keys are found by that"),
        Option("auth_audience", TEXT, "NAME", "whom tokens must be for"),
        Option("auth_algorithms", LIST, "NAME", "signatures to take (default: all for the key)"),
        Option("auth_roles_claim", TEXT, "CLAIM", "where tokens hold roles", "roles"),
    ),
    "security": (
        Option("acl", TEXT, "FILE", "apcore access rules (default: acl.root of the config)"),
        Option("cors_origins", LIST, "ORIGIN", "origins whose pages may call; * for all"),
        Option("allowed_hosts", LIST, "HOST", "Host headers to answer (default: all)"),
    ),
    "push notifications": (
        Option("push_notifications", SWITCH, "", "call webhooks", "no"),
        Option("dev", SWITCH, "", "let webhooks be http, and on this machine", "no"),
        Option("push_secrets", LIST, "SECRET", "what to sign with: whsec_… (default: unsigned)"),
        Option("push_retries", NUMBERS, "SECONDS", "waits before further attempts", "1 2 4"),
        Option("push_timeout", NUMBER, "SECONDS", "longest attempt", "10"),
        Option("push_allowed_hosts", LIST, "HOST", "hosts and networks to call", "* (if public)"),
        Option("push_ports", PORTS, "PORT", "their ports", "443 8443"),
        Option("push_proxy", TEXT, "URL", "proxy to call them through (default: none)"),
        Option("push_max_pending", WHOLE, "NUMBER", "notifications that wait", "10000"),
    ),
}
OPTIONS = {option.name: option for group in GROUPS.values() for option in group}


class Parser(argparse.ArgumentParser):
    """argparse, with the exit code for wrong configuration.

    Attributes:
        wrong: that code.
    """

    wrong = 1

    def parse_known_args(self, *arguments: Any, **options: Any) -> Any:
        """Refuse what is not known here, where the flags are known that may have been meant."""
        found, unknown = super().parse_known_args(*arguments, **options)
        if unknown:
            meant = _meant(unknown[0], [*self._option_string_actions])
            names = [word.partition("=")[0] for word in unknown if word.startswith("-")]
            self.error(f"unknown: {' '.join(names or unknown)}{meant}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and how to learn more."""
        self.exit(self.wrong, f"{self.prog}: {message}\nTry '{self.prog} --help'.\n")


def parser() -> Parser:
    """The command line."""
    result = Parser(
        prog="apcore-a2a", description="Serve apcore modules as an A2A agent, and call any agent."
    )
    ours = f"apcore-a2a {version('apcore-a2a')}"
    result.add_argument("--version", action="version", version=ours, help="print it and exit")
    commands = result.add_subparsers(required=True, metavar="COMMAND", title="commands")
    serve = commands.add_parser(
        "serve",
        help="serve the modules in a folder",
        usage="%(prog)s [OPTION ...]",
        description="Serve the apcore modules in a folder as an A2A agent, until Ctrl+C.",
        epilog=f"Each option is also a variable ({PREFIX}PORT=9000) and a key under "
        f"{NAMESPACE}: in the config file (port: 9000). Flags win over variables, variables over "
        "the file. --no-explorer and the like turn a switch off. Exit codes: 0 ended cleanly, "
        "1 wrong configuration, 2 could not run.",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=31),
    )
    for title, options in GROUPS.items():
        group = serve.add_argument_group(title)
        for option in options:
            _add(group, option)
    add_commands(commands, _remote)
    add_store(commands, _upkeep)
    return result


def _add(group: Any, option: Option) -> None:
    if option.kind is SWITCH:
        for flag, value in ((option.flag, True), ("--no-" + option.flag[2:], False)):
            usual = value is ON_OR_OFF[option.default]
            shown = argparse.SUPPRESS if usual else option.help
            group.add_argument(
                flag, dest=option.name, action="store_const", const=value, help=shown
            )
        return
    told = option.help + (f" (default: {option.default})" if option.default else "")
    many = {"nargs": "+", "action": "extend"} if option.kind.many else {}
    group.add_argument(option.flag, dest=option.name, metavar=option.metavar, help=told, **many)


def _meant(name: str, names: Sequence[str]) -> str:
    from difflib import get_close_matches

    found = get_close_matches(name.partition("=")[0], names, 1)
    return f" (is {found[0]} meant?)" if found else ""


def settings(
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    config: Any,
    names: Iterable[str] = OPTIONS,
) -> dict[str, Any]:
    """What each option is set to: by its flag, its variable or the config file, in this order.

    An empty variable and an empty key say nothing.

    Raises:
        ConfigurationError: A value is not what the option takes, or a key is no option.
    """
    section = _section(config)
    result: dict[str, Any] = {}
    for name, option in ((name, OPTIONS[name]) for name in names):
        if name in flags:
            result[name] = option.read(flags[name], option.flag)
        elif environ.get(option.variable):
            result[name] = option.read(environ[option.variable], option.variable)
        elif section.get(name) is not None:
            result[name] = option.read(section[name], f"{NAMESPACE}.{name} in the config file")
    return result


def _section(config: Any) -> dict[str, Any]:
    """What the config file says under our name, with the keys spelt as keywords."""
    found = config.get(NAMESPACE) if config else None
    if found is None:
        return {}
    if not isinstance(found, MAPPING):
        raise ConfigurationError(f"{NAMESPACE} in the config file takes keys, not {found!r}")
    section = {str(key).replace("-", "_"): value for key, value in found.items()}
    names = [name for name in OPTIONS if name != "config"]
    for key in section:
        if key not in names:
            meant = _meant(key, names)
            raise ConfigurationError(f"{NAMESPACE}.{key} in the config file is no option{meant}")
    return section


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: What stands behind the command's name; else that of this process.

    Returns:
        The exit code.
    """
    try:
        flags = parser().parse_args(arguments)
    except KeyboardInterrupt:  # while standard input is read
        return INTERRUPTED
    if hasattr(flags, "do"):
        return int(flags.do(flags))
    try:
        _serve(vars(flags))
    except KeyboardInterrupt:
        return 0
    except (ImportError, TypeError, ValueError) as error:
        return _fail(1, str(error))
    except OSError as error:
        return _fail(2, error.strerror or str(error))
    except (Exception, SystemExit) as error:
        # the command's own boundary: whatever ended the server is told
        return _fail(2, f"The server ended: {error!r}")
    return 0


def _remote(arguments: argparse.Namespace) -> int:
    """One of the commands that call agents; what they need is imported for them alone."""
    try:
        return int(import_module("apcore_a2a.remote.commands").do(arguments))
    except KeyboardInterrupt:
        return INTERRUPTED
    except (TypeError, ValueError) as error:
        return _fail(1, str(error))
    except Exception as error:  # the command's own boundary: whatever ended it is told
        return _fail(2, f"This should not happen: {error!r}")


def _upkeep(arguments: argparse.Namespace) -> int:
    """One of the commands for a store, which is found as `serve` finds it."""
    try:
        part("server", "apcore-a2a store")
        commands, flags = import_module("apcore_a2a.upkeep.commands"), vars(arguments)
        path = flags.get("config") or os.environ.get(f"{PREFIX}CONFIG")
        config = load_config(path) if path or find_spec("apcore") else None
        return int(commands.do(arguments, settings(flags, os.environ, config, commands.OPTIONS)))
    except KeyboardInterrupt:
        return INTERRUPTED
    except (ImportError, OSError, ValueError) as error:
        return _fail(2, str(error).partition("\n")[0])
    except Exception as error:  # its words may tell of the store's password
        return _fail(2, f"This should not happen: {type(error).__name__}")


def _fail(code: int, message: str) -> int:
    logging.getLogger("apcore_a2a").debug("Exit code %d", code, exc_info=True)
    print(f"apcore-a2a: {message}", file=sys.stderr)
    return code


def _serve(flags: Mapping[str, Any]) -> None:
    server = part("server", "apcore-a2a serve")
    config = load_config(flags.get("config") or os.environ.get(f"{PREFIX}CONFIG"))
    options = settings(flags, os.environ, config)
    root = config.get("extensions.root") if config else None
    folder = Path(options.pop("extensions_dir", None) or root or "./extensions")
    if not folder.is_dir():
        hint = "Make it, or name another with --extensions-dir."
        raise ConfigurationError(f"Extensions directory not found: {folder}\n{hint}")
    made = {"auth": authenticator(options), "push_notifications": notifications(options)}
    if store := options.pop("store", None):
        made["task_store"] = store
    server.serve(folder, **{**options, **made, "config": config})
