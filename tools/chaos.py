"""The command line of `tools/chaos`: the scenarios of `tests/store/scenarios` at full size."""

import argparse
import random
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from tests.store.invariants import Violated
from tests.store.postgresql import Database, database, find
from tests.store.scenarios import cuts, files, kills, latency, outages, races, readers, sleeps
from tests.store.trials import Number, Scenario, Trial

SCENARIOS: Mapping[str, Scenario] = {
    "kill": Scenario(
        kills.kill_one_of_three, {"rounds": 20, "tasks": 200, "seconds": 3, "lease": 15}
    ),
    "sleep": Scenario(
        sleeps.sleep_past_the_lease, {"rounds": 3, "tasks": 200, "seconds": 3, "lease": 15}
    ),
    "outage": Scenario(
        outages.lose_the_database,
        {"rounds": 3, "tasks": 200, "seconds": 4, "lease": 15, "downtime": 3},
    ),
    "outage10": Scenario(
        outages.lose_the_database,
        {"rounds": 2, "tasks": 200, "seconds": 4, "lease": 15, "downtime": 10},
    ),
    "cut": Scenario(
        cuts.cut_one_off, {"rounds": 1, "tasks": 100, "seconds": 20, "lease": 15, "cut": 30}
    ),
    "latency": Scenario(latency.measure_latency, {"rounds": 200, "slack": 1}),
    "readers": Scenario(readers.cut_readers, {"cuts": 1000}),
    "race": Scenario(races.race, {"races": 2000}),
    "file": Scenario(files.kill_agent_with_sqlite_file, {"rounds": 200}),
}


@dataclass(frozen=True)
class Result:
    """Outcome of a scenario: its duration in seconds, its measurements, and its error."""

    name: str
    seconds: float
    trial: Trial
    error: Exception | None


def main(
    arguments: Sequence[str] | None = None, scenarios: Mapping[str, Scenario] = SCENARIOS
) -> int:
    """Run scenarios; return the exit code."""
    options = _parser(scenarios).parse_args(arguments)
    if find("initdb") is None:
        print("PostgreSQL is missing. Debian and Ubuntu: apt install postgresql", file=sys.stderr)
        return 1
    seed = random.randrange(10**6) if options.seed is None else options.seed
    names = options.scenarios or [*scenarios]
    print(f"{', '.join(names)}; --seed {seed}", flush=True)
    with database() as server:
        results = [_run(n, scenarios[n], server, seed, options.rounds) for n in names]
    print(table(results))
    return 1 if any(result.error for result in results) else 0


def _parser(scenarios: Mapping[str, Scenario]) -> argparse.ArgumentParser:
    lines = [
        f"  {name:8} {scenario.about}\n  {'':8} {_format_numbers(scenario.numbers)}"
        for name, scenario in scenarios.items()
    ]
    parser = argparse.ArgumentParser(
        prog="tools/chaos",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Break agents, databases and connections while tasks run, then compare the\n"
        "database with the responses that clients got: no task may be lost or left\n"
        "unfinished, and only repeatable ones may run twice. The scenarios:\n\n" + "\n".join(lines),
        epilog="Prints the measurements, and exits with 1 if a scenario fails. The tests run the\n"
        "same scenarios with smaller numbers. Needs PostgreSQL, and starts its own server.",
    )
    add = parser.add_argument
    help = "scenarios to run; default: all"
    add("scenarios", nargs="*", type=_scenario_name(scenarios), metavar="SCENARIO", help=help)
    add(
        "--rounds",
        type=_count,
        metavar="N",
        help="rounds of each scenario that has rounds, instead of the number shown above",
    )
    add("--seed", type=int, metavar="N", help="repeat the random choices of an earlier run")
    return parser


def _format_numbers(numbers: Mapping[str, Number]) -> str:
    return ", ".join(f"{name} {number}" for name, number in numbers.items())


def _scenario_name(scenarios: Mapping[str, Scenario]) -> Callable[[str], str]:
    def check(text: str) -> str:
        if text not in scenarios:
            raise argparse.ArgumentTypeError(
                f"unknown scenario: {text}; choose from {', '.join(scenarios)}"
            )
        return text

    return check


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"not a number of rounds: {text}")
    return int(text)


def _run(name: str, scenario: Scenario, server: Database, seed: int, rounds: int | None) -> Result:
    started = time.monotonic()

    def say(line: str) -> None:
        print(f"[{name} {time.monotonic() - started:6.1f} s] {line}", flush=True)

    numbers = dict(scenario.numbers)
    if rounds is not None and "rounds" in numbers:
        numbers["rounds"] = rounds
    say(f"{scenario.about}: {_format_numbers(numbers)}")
    server.clear()
    error = None
    with TemporaryDirectory(prefix="apcore-a2a-") as folder:
        trial = Trial(Path(folder), server, random.Random(seed), say)
        try:
            scenario.run(trial, **numbers)
        except Exception as raised:  # a failed scenario must not stop the others
            error = raised
            if not isinstance(raised, Violated):
                traceback.print_exc()
            say(f"WRONG: {type(raised).__name__}: {raised}")
    return Result(name, time.monotonic() - started, trial, error)


def table(results: Sequence[Result]) -> str:
    """Return a table of the results and their measurements."""
    lines = [
        "",
        f"{'scenario':10} {'measured':44} {'count':>5} {'median':>8} {'max':>8} {'limit':>8}",
    ]
    for result in results:
        outcome = "WRONG" if result.error else "passed"
        lines.append(f"{result.name:10} {outcome} in {result.seconds:.0f} s")
        for label, times in result.trial.times.items():
            limit = "" if times.limit is None else f"{times.limit:.2f} s"
            figures = f"{median(times.seconds):6.2f} s {max(times.seconds):6.2f} s {limit:>8}"
            lines.append(f"{'':10} {label:44} {len(times.seconds):5} {figures}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
