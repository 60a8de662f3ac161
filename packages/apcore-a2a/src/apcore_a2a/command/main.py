"""The `apcore-a2a` command (FR-CMD-001, FR-CMD-002), which loads subcommands on first use."""

import logging
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

import click

from apcore_a2a._parts import import_part

PROGRAM = "apcore-a2a"
OTHER_ERROR = 2
"""The exit code for errors that have no other code."""


class Subcommand(NamedTuple):
    """A subcommand, and the exit codes and messages for its errors.

    Attributes:
        module: The module of this package with the command, in an attribute of the command's name.
        purpose: A sentence for the help text.
        wrong_arguments_code: The exit code for wrong arguments.
        interrupted_code: The exit code after Ctrl+C.
        argument_errors: Exceptions with messages for the user about wrong arguments, or about a
            missing extra (ImportError).
        unexpected_message: Format string for the message of any other exception except OSError.
    """

    module: str
    purpose: str
    wrong_arguments_code: int = 1
    interrupted_code: int = 130
    argument_errors: tuple[type[Exception], ...] = (ImportError, TypeError, ValueError)
    unexpected_message: str = "Unexpected error: {!r}"


SUBCOMMANDS = {
    "serve": Subcommand(
        "serve",
        "Serve modules as an A2A agent.",
        interrupted_code=0,
        unexpected_message="The server crashed: {!r}",
    ),
    "new": Subcommand("new", "Create a folder with a first skill and its test."),
    "card": Subcommand("remote", "Show the Agent Card of an agent."),
    "call": Subcommand("remote", "Call a skill of an agent."),
    "tasks": Subcommand("remote", "List, show, follow or cancel tasks of an agent."),
    "check": Subcommand("remote", "Check whether an agent conforms to the protocol."),
    "explore": Subcommand(
        "explore",
        "Show any agent in the explorer.",
        interrupted_code=0,
        unexpected_message="{}",
    ),
    "store": Subcommand(
        "store",
        "Migrate, check or prune the task store of an agent.",
        wrong_arguments_code=2,
        # the message of any other error may contain the store's password
        argument_errors=(ImportError, ValueError),
        unexpected_message="Unexpected error: {.__class__.__name__}",
    ),
    "webhooks": Subcommand(
        "webhooks",
        "List, test or reactivate the webhooks of an agent's tasks; print a receiver's secret.",
        # the message of any other error may contain a secret
        argument_errors=(ImportError, ValueError),
        unexpected_message="Unexpected error: {.__class__.__name__}",
    ),
}


class Commands(click.Group):
    """The subcommands, each imported when it is called, so that `--help` is fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the subcommands."""
        return [*SUBCOMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a subcommand."""
        if cmd_name not in SUBCOMMANDS:
            return None
        ctx.meta[PROGRAM] = cmd_name  # for `invoke`
        command: click.Command = getattr(_import_module_of(cmd_name), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of subcommands."""
        with formatter.section("Commands"):
            commands = [(name, command.purpose) for name, command in SUBCOMMANDS.items()]
            formatter.write_dl(commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a subcommand and report its errors, except those of click; return the exit code."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit):
            raise
        except BaseException as error:  # every error gets an exit code
            logging.getLogger("apcore_a2a").debug("%s failed", ctx.meta[PROGRAM], exc_info=True)
            return _report_error(SUBCOMMANDS[ctx.meta[PROGRAM]], error)


@click.command(cls=Commands, no_args_is_help=False)
@click.version_option(package_name=PROGRAM, message="%(prog)s %(version)s")
def commands() -> None:
    """Serve apcore modules as an A2A agent, and call any A2A agent."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: The arguments; by default those of the process.

    Returns:
        The exit code.
    """
    args = None if arguments is None else [*arguments]
    try:
        return int(commands.main(args, PROGRAM, standalone_mode=False) or 0)
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        path: str = context.command_path if context else PROGRAM
        _print_error(error.format_message())
        print(f"Try '{path} --help'.", file=sys.stderr)
        _, _, names = path.partition(" ")
        return SUBCOMMANDS[names.partition(" ")[0]].wrong_arguments_code if names else 1


def _import_module_of(name: str) -> Any:
    module = SUBCOMMANDS[name].module
    # these modules can be imported without the server
    if module not in ("explore", "new", "remote", "webhooks"):
        import_part("server", f"{PROGRAM} {name}")
    return import_module(f".{module}", __package__)


def _report_error(subcommand: Subcommand, error: BaseException) -> int:
    """Print a message for an error; return the exit code."""
    if isinstance(error, KeyboardInterrupt):
        return subcommand.interrupted_code
    if isinstance(error, subcommand.argument_errors):
        _print_error(str(error))
        return subcommand.wrong_arguments_code
    if isinstance(error, OSError):
        place = f"{error.filename}: " if isinstance(error.filename, str) else ""
        _print_error(place + (error.strerror or str(error)).partition("\n")[0])
    else:
        _print_error(subcommand.unexpected_message.format(error))
    return OTHER_ERROR


def _print_error(message: str) -> None:
    print(f"{PROGRAM}: {message}", file=sys.stderr)
