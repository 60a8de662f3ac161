"""The `apcore-a2a` command (FR-CMD-001, FR-CMD-002).

Exit codes: 0 after a clean shutdown, 1 when the configuration is wrong, 2 when the server
could not run. What a flag does not say, its environment variable says, then the config
file, then the default.
"""

import argparse
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

from ._parts import part

PREFIX = "APCORE_A2A_"
NAMESPACE = "apcore-a2a"
LEVELS = ("debug", "info", "warning", "error")


class ConfigurationError(Exception):
    """What was asked for can't be done as it was asked."""


def _number(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError
    return value


def _whole(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError
    return value


def _port(text: str) -> int:
    value = int(text)
    if not 0 <= value < 65536:
        raise ValueError
    return value


def _switch(text: str) -> bool:
    value = {"1": True, "true": True, "yes": True, "on": True}.get(text.lower())
    if value is None and text.lower() not in ("0", "false", "no", "off", ""):
        raise ValueError
    return bool(value)


def _names(text: str) -> list[str]:
    return [name for name in text.replace(",", " ").split() if name]


def _level(text: str) -> str:
    if text.lower() not in LEVELS:
        raise ValueError
    return text.lower()


@dataclass(frozen=True, slots=True)
class Option:
    """One keyword of `serve`, as a flag, an environment variable and a config key."""

    name: str
    parse: Callable[[str], Any]
    metavar: str
    help: str

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()

    def read(self, value: object, source: str) -> Any:
        """*value* as it comes from *source*, as what the option takes."""
        text = " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        try:
            return self.parse(text)
        except ValueError:
            raise ConfigurationError(
                f"{source}: {text!r} is not a valid {self.metavar.lower()}"
            ) from None


OPTIONS = (
    Option("extensions_dir", str, "DIR", "folder with the apcore modules (default: ./extensions)"),
    Option("host", str, "HOST", "address to listen at (default: 0.0.0.0)"),
    Option("port", _port, "PORT", "port to listen at (default: 8000)"),
    Option("url", str, "URL", "public address for the Agent Card (default: made of host and port)"),
    Option("root_path", str, "PATH", "path that a proxy puts before ours"),
    Option("name", str, "NAME", "the agent's name (default: project.name, or apcore-agent)"),
    Option("description", str, "TEXT", "what the agent does (default: project.description)"),
    Option("version", str, "VERSION", "the agent's version (default: project.version, or 0.0.0)"),
    Option("default_skill", str, "SKILL", "skill for messages that name none"),
    Option("execution_timeout", _number, "SECONDS", "longest run of a skill (default: 300)"),
    Option(
        "shutdown_timeout", _number, "SECONDS", "time for tasks to end at shutdown (default: 30)"
    ),
    Option(
        "keep_alive", _number, "SECONDS", "silence on a stream before a sign of life (default: 15)"
    ),
    Option("state_history", _switch, "SWITCH", "let tasks remember their former states"),
    Option("task_ttl", _number, "SECONDS", "how long ended tasks are kept (default: 3600)"),
    Option("max_tasks", _whole, "NUMBER", "how many tasks are kept (default: 10000)"),
    Option("max_body", _whole, "BYTES", "largest request body (default: 10485760)"),
    Option("max_threads", _whole, "NUMBER", "synchronous modules at a time (default: 64)"),
    Option("schema_memo", _switch, "SWITCH", "remember the modules' JSON Schemas (default: on)"),
    Option("cors_origins", _names, "ORIGINS", "origins whose web pages may call, or *"),
    Option("allowed_hosts", _names, "HOSTS", "Host headers that are answered (default: all)"),
    Option("push_notifications", _switch, "SWITCH", "send webhooks (not in this version)"),
    Option("explorer", _switch, "SWITCH", "serve the explorer page (not in this version)"),
    Option("metrics", _switch, "SWITCH", "serve /metrics (not in this version)"),
    Option("log_level", _level, "LEVEL", "debug, info, warning or error (default: info)"),
)
SWITCHES = frozenset(option.name for option in OPTIONS if option.parse is _switch)
LISTS = frozenset(option.name for option in OPTIONS if option.parse is _names)


class Parser(argparse.ArgumentParser):
    """argparse, with the exit code for wrong configuration."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and how to learn more."""
        self.exit(1, f"{self.prog}: {message}\nTry '{self.prog} --help'.\n")


def parser() -> Parser:
    """The command line."""
    result = Parser(prog="apcore-a2a", description="Serve apcore modules as an A2A agent.")
    number = version("apcore-a2a")
    result.add_argument("--version", action="version", version=f"apcore-a2a {number}")
    commands = result.add_subparsers(dest="command", required=True, metavar="COMMAND")
    serve = commands.add_parser(
        "serve",
        help="serve a folder of modules",
        description="Serve the apcore modules in a folder as an A2A agent.",
        epilog=f"Each option can also be given as {PREFIX}… in the environment "
        f"({PREFIX}PORT=9000), or under {NAMESPACE}: in the config file.",
        argument_default=argparse.SUPPRESS,
    )
    serve.add_argument(
        "--config", metavar="FILE", help="apcore config file (default: apcore's own)"
    )
    for option in OPTIONS:
        _add(serve, option)
    return result


def _add(command: argparse.ArgumentParser, option: Option) -> None:
    if option.name in SWITCHES:
        action = argparse.BooleanOptionalAction
        command.add_argument(option.flag, dest=option.name, action=action, help=option.help)
        return
    nargs = "+" if option.name in LISTS else None
    command.add_argument(
        option.flag, dest=option.name, metavar=option.metavar, nargs=nargs, help=option.help
    )


def settings(flags: Mapping[str, Any], environ: Mapping[str, str], config: Any) -> dict[str, Any]:
    """What each option is set to: by its flag, its variable or the config file, in this order.

    Raises:
        ConfigurationError: A value is not what the option takes.
    """
    section = config.get(NAMESPACE) if config is not None else None
    section = section if isinstance(section, dict) else {}
    result: dict[str, Any] = {}
    for option in OPTIONS:
        if option.name in flags:
            result[option.name] = option.read(flags[option.name], option.flag)
        elif option.variable in environ:
            result[option.name] = option.read(environ[option.variable], option.variable)
        elif option.name in section:
            key = f"{NAMESPACE}.{option.name}"
            result[option.name] = option.read(section[option.name], key)
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: What stands behind the command's name; else that of this process.

    Returns:
        The exit code.
    """
    flags = vars(parser().parse_args(arguments))
    try:
        return _serve(flags)
    except ConfigurationError as error:
        print(f"apcore-a2a: {error}", file=sys.stderr)
        return 1
    except Exception as error:  # the command's own boundary: whatever ended the server is told
        logging.getLogger("apcore_a2a").debug("The server ended", exc_info=True)
        print(f"apcore-a2a: the server ended: {error}", file=sys.stderr)
        return 2


def _serve(flags: dict[str, Any]) -> int:
    del flags["command"]
    config = _config(flags.pop("config", None))
    options = settings(flags, os.environ, config)
    folder = Path(options.pop("extensions_dir", "extensions"))
    if not folder.is_dir():
        raise ConfigurationError(f"Extensions directory not found: {folder}")
    logging.basicConfig(
        level=options.setdefault("log_level", "info").upper(),
        format="%(asctime)s %(levelname)-7s %(message)s",
        datefmt="%H:%M:%S",
    )
    try:
        serve = part("server", "apcore-a2a serve").serve
    except ImportError as error:
        raise ConfigurationError(str(error)) from None
    try:
        serve(folder, config=config, **options)
    except (ValueError, TypeError) as error:
        raise ConfigurationError(str(error)) from None
    return 0


def _config(path: str | None) -> Any:
    """The apcore Config in the file at *path*, or where apcore looks for one; None without one.

    Raises:
        ConfigurationError: The file is missing or can't be read.
    """
    if path is not None and not Path(path).is_file():
        raise ConfigurationError(f"Config file not found: {path}")
    if path is None and not any(Path(name).is_file() for name in _places()):
        return None
    import apcore

    try:
        return apcore.Config.load(path) if path else apcore.Config.load()
    except (apcore.ModuleError, ValueError, OSError) as error:
        raise ConfigurationError(f"Config file: {error}") from None


def _places() -> list[str]:
    home = Path.home()
    return [
        os.environ.get("APCORE_CONFIG_FILE", ""),
        *("project.yaml", "project.yml", "apcore.yaml", "apcore.yml"),
        str(home / ".config" / "apcore" / "config.yaml"),
        str(home / ".apcore" / "config.yaml"),
    ]
