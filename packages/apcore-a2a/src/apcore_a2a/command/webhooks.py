"""`apcore-a2a webhooks`: the webhooks of an agent's tasks, and the secrets of receivers."""

import click

from apcore_a2a._parts import import_part

from .remote import agent_command, value_option

TASK = click.Argument(["task"], metavar="TASK")
CONFIG = click.Argument(["config"], metavar="ID")
PURPOSES = {
    "list": "List the webhooks of your tasks, or of all tasks if you are an operator.",
    "show": "Show the webhooks of a task with their last attempts.",
    "test": "Send a test notification to a webhook.",
    "redeliver": "Reactivate a failed webhook, and deliver the notifications that it missed.",
    "secret": "Print the secret that verifies notifications to a URL.",
}
COMMANDS = {
    "list": agent_command(
        "list",
        "List the webhooks of your tasks on the agent at URL, those of the newest tasks first. "
        "Operators see the webhooks of all tasks.",
        click.Option(
            ["--state"],
            type=click.Choice(["active", "failed"]),
            help="List only webhooks in this state.",
        ),
        value_option(
            "--limit", "NUMBER", "Number of webhooks to list.", default=50, show_default=True
        ),
    ),
    "show": agent_command(
        "show", "Show the webhooks of TASK with their last attempts, the newest first.", TASK
    ),
    "test": agent_command(
        "test",
        "Send the current status of TASK, marked as a test, to its webhook with the id ID. The "
        "command makes one attempt; the result does not change the webhook.",
        TASK,
        CONFIG,
    ),
    "redeliver": agent_command(
        "redeliver",
        "Reactivate the failed webhook with the id ID, and deliver the notifications of TASK that "
        "it missed.",
        TASK,
        CONFIG,
    ),
}


class WebhookCommands(click.Group):
    """The subcommands, of which only `secret` needs the server to be installed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the subcommands."""
        return [*PURPOSES]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a subcommand."""
        if cmd_name != "secret":
            return COMMANDS.get(cmd_name)
        import_part("server", "apcore-a2a webhooks secret")
        from .webhook_secret import secret

        return secret

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of subcommands."""
        with formatter.section("Commands"):
            formatter.write_dl([*PURPOSES.items()])


@click.command(cls=WebhookCommands, no_args_is_help=False)
def webhooks() -> None:
    """List, test or reactivate the webhooks of an agent's tasks; print a receiver's secret."""
