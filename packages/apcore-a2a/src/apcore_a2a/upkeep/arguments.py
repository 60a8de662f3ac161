"""What `store migrate`, `store check` and `store prune` take."""

import argparse
from collections.abc import Callable
from typing import Any

EPILOG = (
    "Options that are not given are found as `serve` finds them: as variables (APCORE_A2A_STORE), "
    "then in the config file. Exit codes: 0 done, and all is well, 1 the check has found faults, "
    "2 wrong arguments or a store that can't be used, 130 interrupted."
)
WRONG = 2
"""The exit code for wrong arguments: 1 is what `check` says of faults."""


def add_store(commands: Any, do: Callable[[argparse.Namespace], int]) -> None:
    """Add the command `store` to argparse's *commands*; *do* does each of its own."""
    purpose = "bring up to date, check or prune the store that keeps tasks"
    store = commands.add_parser("store", help=purpose, description=f"{_sentence(purpose)}.")
    store.wrong = WRONG
    actions = store.add_subparsers(required=True, metavar="ACTION", title="actions")
    _action(actions, "migrate", "bring the tables up to date, as an agent does at its start", do)
    check = _action(actions, "check", "check the schema and integrity of the store; only reads", do)
    check.add_argument("--json", action="store_true", default=False, help="print JSON")
    prune = _action(actions, "prune", "drop old tasks, as an agent does about every minute", do)
    prune.add_argument(
        "--task-ttl", metavar="SECONDS", help="how long ended tasks are kept (default: 3600)"
    )
    prune.add_argument(
        "--max-tasks", metavar="NUMBER", help="ended tasks that are kept (default: 10000)"
    )


def _action(actions: Any, name: str, purpose: str, do: Any) -> argparse.ArgumentParser:
    result: Any = actions.add_parser(
        name,
        help=purpose,
        description=f"{_sentence(purpose)}.",
        epilog=EPILOG,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    result.wrong = WRONG
    result.set_defaults(do=do, action=name)
    result.add_argument("--store", metavar="URL", help="sqlite:///FILE or postgresql://…")
    result.add_argument("--config", metavar="FILE", help="apcore config file")
    parser: argparse.ArgumentParser = result
    return parser


def _sentence(purpose: str) -> str:
    return purpose[0].upper() + purpose[1:]
