"""The command line of `tools/fuzz`, which checks many generated cases.

`tests/server/test_fuzz.py` and `tests/middleware/test_storms.py` check fewer.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Flaky
from hypothesis.strategies import SearchStrategy

from tests.middleware.storms import Credentials, Hosts, hosts, storms
from tests.server.bodies import LoadedAgent, bodies
from tests.server.fuzzing import TASK_PLACEHOLDERS, cases
from tests.server.test_fuzz import Defect, FuzzedAgent

ROUND = 1000
"""Cases per run of hypothesis, which keeps all cases of a run in memory."""


Target: TypeAlias = FuzzedAgent | LoadedAgent | Hosts | Credentials
TARGETS: dict[str, tuple[type[LoadedAgent | Hosts | Credentials], SearchStrategy[Any]]] = {
    "bodies": (LoadedAgent, bodies),
    "hosts": (Hosts, hosts),
    "credentials": (Credentials, storms()),
}
"""The kinds of cases besides requests, each with its target and its strategy."""


def main(
    arguments: Sequence[str] | None = None, make_agent: Callable[[], FuzzedAgent] = FuzzedAgent
) -> int:
    """Fuzz; return the exit code."""
    options = _parser().parse_args(arguments)
    first_seed = random.randrange(10**6) if options.seed is None else options.seed
    print(f"{options.cases:,} cases, --seed {first_seed}", flush=True)
    make_target, strategy = TARGETS.get(options.kind, (make_agent, cases()))
    with make_target() as target:
        try:
            _fuzz(target, strategy, options.cases, first_seed)
        except KeyboardInterrupt:
            print(f"interrupted after {target.outcomes.total():,} responses, nothing found")
            return 130
        except Exception as error:  # any failed check ends the run
            print(_report(error, target.defect))
            return 1
    print("nothing found")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tools/fuzz",
        description="Generate requests from the protocol's schemas, corrupt them, send them to an "
        "agent in this process, and check its responses as tests/server/test_fuzz.py does. Some "
        "requests have inputs that Python's `re` would take years to validate.",
        epilog="If a response is wrong, prints the request, reduced as far as possible, and "
        "exits with 1. 100,000 cases take about seven minutes.",
    )
    add = parser.add_argument
    add(
        "--cases",
        type=_count,
        default=100_000,
        metavar="N",
        help="number of cases; default: 100,000",
    )
    add(
        "--kind",
        choices=["requests", *TARGETS],
        default="requests",
        help="what to generate: requests, bodies of up to 10 MB that are costly to read, Host "
        "headers, or many requests with valid, wrong and no credentials; default: requests",
    )
    add("--seed", type=int, metavar="N", help="repeat the cases of an earlier run")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"not a number of cases: {text}")
    return int(text)


def _fuzz(target: Target, strategy: SearchStrategy[Any], case_count: int, first_seed: int) -> None:
    started = time.monotonic()
    for done in range(0, case_count, ROUND):
        profile = settings(
            max_examples=min(ROUND, case_count - done),
            deadline=None,
            database=None,
            report_multiple_bugs=False,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        )
        seed(first_seed + done)(profile(given(strategy)(target.check)))()
        _show(target, time.monotonic() - started)
    target.check_leftovers()


def _show(target: Target, seconds: float) -> None:
    """Print a line about the responses so far."""
    total = target.outcomes.total()
    shares = [f"{name} {100 * n / total:.0f} %" for name, n in target.outcomes.most_common(6)]
    print(f"{total:9,} responses {seconds:6.0f} s   {', '.join(shares)}", flush=True)


def _report(error: Exception, defect: Defect | None) -> str:
    """Describe the error and the request that causes it."""
    if defect is None:
        notes: list[str] = getattr(error, "__notes__", [])  # Hypothesis shows the case
        return "\n".join([f"\nCheck failed: {_short(error)}", *notes])
    names = [name for name in TASK_PLACEHOLDERS if name.encode() in defect.case.body]
    lines = [
        "where {} is the id of a task of skill {} in state {}".format(
            name, *TASK_PLACEHOLDERS[name]
        )
        for name in names
    ]
    if isinstance(error, Flaky):
        lines.append("(the request alone does not cause the error: earlier requests matter)")
    reply = f"HTTP {defect.reply.status} {defect.reply.body.decode(errors='replace')[:2000]}"
    return "\n".join(
        ["", f"Wrong: {_short(defect.error)}", "", defect.case.curl(), *lines, "", reply]
    )


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:2000]


if __name__ == "__main__":
    sys.exit(main())
