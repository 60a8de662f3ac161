"""The `apcore-a2a` command (FR-CMD-001, FR-CMD-002), whose subcommands load on first use."""

import logging
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

import click

from apcore_a2a._parts import part

PROGRAM = "apcore-a2a"


class Home(NamedTuple):
    """Where a subcommand is: an attribute of its name in a module of this package.

    Attributes:
        module: The module, which also has a function `outcome` for errors.
        purpose: What the command does.
        wrong: The exit code for wrong arguments.
    """

    module: str
    purpose: str
    wrong: int = 1


HOMES = {
    "serve": Home("serve", "Serve the modules in a folder as an A2A agent."),
    "card": Home("remote", "Show what an agent is and can do."),
    "call": Home("remote", "Call a skill of an agent."),
    "tasks": Home("remote", "List, show, follow or cancel tasks of an agent."),
    "store": Home("store", "Migrate, check or prune the task store of an agent.", wrong=2),
}


class Commands(click.Group):
    """The subcommands, each imported when it is called: `--help` needs none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the subcommands."""
        return [*HOMES]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a subcommand."""
        if cmd_name not in HOMES:
            return None
        ctx.meta[PROGRAM] = cmd_name
        command: click.Command = getattr(_module(cmd_name), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of subcommands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, home.purpose) for name, home in HOMES.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run a subcommand; return its exit code, also when it fails."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit):
            raise
        except BaseException as error:  # the command's own boundary: every error is reported
            return _fail(ctx.meta[PROGRAM], error)


@click.command(cls=Commands, no_args_is_help=False)
@click.version_option(package_name=PROGRAM, message="%(prog)s %(version)s")
def commands() -> None:
    """Serve apcore modules as an A2A agent, and call any A2A agent."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: The arguments; by default those of this process.

    Returns:
        The exit code.
    """
    given = None if arguments is None else [*arguments]
    try:
        return int(commands.main(given, PROGRAM, standalone_mode=False) or 0)
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        path: str = context.command_path if context else PROGRAM
        _say(error.format_message())
        print(f"Try '{path} --help'.", file=sys.stderr)
        _, _, name = path.partition(" ")
        return HOMES[name.partition(" ")[0]].wrong if name else 1


def _module(name: str) -> Any:
    home = HOMES[name]
    if home.module != "remote":
        part("server", f"{PROGRAM} {name}")
    return import_module(f".{home.module}", __package__)


def _fail(name: str, error: BaseException) -> int:
    logging.getLogger("apcore_a2a").debug("%s failed", name, exc_info=True)
    if isinstance(error, ImportError):
        code, message = HOMES[name].wrong, str(error)
    else:
        code, message = _module(name).outcome(error)
    if message:
        _say(message)
    return code


def _say(message: str) -> None:
    print(f"{PROGRAM}: {message}", file=sys.stderr)
