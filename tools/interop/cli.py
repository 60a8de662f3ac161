"""The command line of `tools/clients`."""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.e2e.environments import forget
from tools.interop.agent import serving
from tools.interop.clients import CLIENTS
from tools.interop.outcomes import Outcome, faults, outcome_of, read, table, write

RECORD = Path(__file__).with_name("record.json")
LAST_START = 15 * 60.0  # seconds after which no client is started; a client takes up to 15 minutes
SCRIPT_TIMEOUT = 300.0  # seconds

DESCRIPTION = """\
Call an agent with clients of other projects, and check what their users see: the agent's card, a
result, a stream, a question and its answer as text, a result that is data, and the reasons for
three refusals. Each client runs in an environment of its own in .cache/e2e; those in JavaScript
share one.

Fails if a step fails, if more than two clients do not run, or if a client or a step that worked
before (tools/interop/record.json) does not work now."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the clients; return the exit code."""
    options = _parser().parse_args(arguments)
    names = options.client or list(CLIENTS)
    if options.full:
        for name in names:
            forget(CLIENTS[name].environment)
    deadline = time.monotonic() + LAST_START
    with serving() as urls:
        outcomes = [_run(name, urls, deadline) for name in names]
    print(table(outcomes))
    record = read(RECORD)
    wrong = list(faults(outcomes, record))
    for line in wrong:
        print(f"wrong: {line}", file=sys.stderr)
    write(RECORD, record, outcomes)
    return 1 if wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "tools/clients",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    default = f"by default all: {', '.join(CLIENTS)}"
    parser.add_argument("client", nargs="*", type=_check_client, metavar="CLIENT", help=default)
    parser.add_argument("--full", action="store_true", help="install the packages again")
    return parser


def _check_client(name: str) -> str:
    if name not in CLIENTS:
        raise argparse.ArgumentTypeError(f"there is no client {name}")
    return name


def _run(name: str, urls: Sequence[str], deadline: float) -> Outcome:
    if time.monotonic() > deadline:
        return Outcome(name, not_run="there was no time left")
    print(f"{name} …", file=sys.stderr, flush=True)
    try:
        command = CLIENTS[name].install()
    except (pytest.skip.Exception, subprocess.TimeoutExpired) as failure:
        return Outcome(name, not_run=str(failure))
    with TemporaryDirectory() as folder:
        # A library must not read or write its files in the user's own home folder.
        environment = {**os.environ, "HOME": folder, "no_proxy": "127.0.0.1"}
        try:
            result = subprocess.run(
                [*command, *urls],
                capture_output=True,
                text=True,
                timeout=SCRIPT_TIMEOUT,
                env=environment,
                cwd=folder,
                check=False,
            )
        except subprocess.TimeoutExpired as failure:
            return outcome_of(name, "", str(failure))
    return outcome_of(name, result.stdout, result.stderr)
