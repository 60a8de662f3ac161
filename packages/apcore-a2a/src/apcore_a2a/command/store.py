"""`apcore-a2a store`: `migrate`, `check` and `prune` for the store that keeps tasks."""

from typing import Any

import click

from .options import OptionsCommand, flags, given

EPILOG = """
Options that are not given are found as `serve` finds them: as variables (APCORE_A2A_STORE), then
in the config file.

Exit codes: 0 done, and all is well, 1 the check has found faults, 2 wrong arguments or a store that
can't be used, 130 interrupted.
"""
INTERRUPTED, FAILED = 130, 2


@click.group(no_args_is_help=False)
def store() -> None:
    """Migrate, check or prune the task store of an agent."""


@store.command(cls=OptionsCommand, params=flags("store"), epilog=EPILOG)
@click.pass_context
def migrate(ctx: click.Context, /, **_: Any) -> int:
    """Bring the tables up to date, as an agent does at its start."""
    from .maintenance import migrate_store  # --help does without what it imports

    return migrate_store(**given(ctx))


@store.command(cls=OptionsCommand, params=flags("store"), epilog=EPILOG)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def check(ctx: click.Context, /, as_json: bool, **_: Any) -> int:
    """Check the schema and integrity of the store; only reads."""
    from .maintenance import check_store

    return check_store(given(ctx).get("store", ""), as_json=as_json)


@store.command(cls=OptionsCommand, params=flags("store", "task_ttl", "max_tasks"), epilog=EPILOG)
@click.pass_context
def prune(ctx: click.Context, /, **_: Any) -> int:
    """Drop old tasks, as an agent does about every minute."""
    from .maintenance import prune_store

    return prune_store(**given(ctx))


def outcome(error: BaseException) -> tuple[int, str]:
    """Return the exit code for an error, and what to say of it."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, ""
    if isinstance(error, OSError | ValueError):
        return FAILED, str(error).partition("\n")[0]
    # its text may contain the store's password
    return FAILED, f"This should not happen: {type(error).__name__}"
