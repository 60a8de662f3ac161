"""Outcomes of the clients: verdicts, the table, and the comparison with earlier runs."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import shorten
from typing import Any

from tools.benchmarks.report import Table
from tools.interop.clients import STEPS

OK = "ok"
MAX_NOT_RUN = 2  # clients
MAX_REASON = 100  # characters

Record = dict[str, dict[str, str]]
"""For each client, the verdict on each of its steps."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verdicts on a client's steps, or the reason why the client did not run."""

    client: str
    steps: Mapping[str, str] = field(default_factory=dict)
    """`ok`, `no: …` if the client can't do the step, or `failed: …`."""
    not_run: str = ""

    @property
    def failed(self) -> list[str]:
        """The steps that failed."""
        return [step for step, verdict in self.steps.items() if verdict.startswith("failed")]


def judge(step: str, result: Mapping[str, Any]) -> str:
    """Return the verdict on a step; *result* is what the script prints for the step.

    Example:
        >>> judge("send", {"seen": "You said: hello"})
        'ok'
        >>> judge("send", {"seen": ["nothing"]})
        "failed: it shows ['nothing']"
    """
    if "unsupported" in result:
        return f"no: {result['unsupported']}"
    if "failed" in result:
        return f"failed: {result['failed'].strip().splitlines()[-1]}"
    seen, expected = result["seen"], STEPS[step]
    is_complete = isinstance(seen, str) or len(seen) >= len(expected)
    if is_complete and _in_order(expected, seen if isinstance(seen, str) else "\n".join(seen)):
        return OK
    return f"failed: it shows {seen!r}"


def _in_order(expected: Sequence[str], text: str) -> bool:
    position = 0
    for phrase in expected:
        position = text.find(phrase, position)
        if position < 0:
            return False
        position += len(phrase)
    return True


def outcome_of(client: str, output: str, error: str = "") -> Outcome:
    """Return the outcome of a client from the output of its script, one line for each step."""
    lines = [line for line in output.splitlines() if line.startswith('{"step":')]
    results = {result["step"]: result for result in map(json.loads, lines)}
    last_error = (error.strip().splitlines() or ["the script printed nothing"])[-1]
    missing = {"failed": last_error}
    return Outcome(client, {step: judge(step, results.get(step, missing)) for step in STEPS})


def faults(outcomes: Sequence[Outcome], record: Record) -> Iterator[str]:
    """Yield the faults: failed steps, regressions, and too many clients that did not run."""
    not_run = [outcome.client for outcome in outcomes if outcome.not_run]
    if len(not_run) > MAX_NOT_RUN:
        yield f"{len(not_run)} clients did not run, more than {MAX_NOT_RUN}"
    for outcome in outcomes:
        before = record.get(outcome.client, {})
        if outcome.not_run and before:
            yield f"{outcome.client} ran before, and did not run now"
        for step, verdict in outcome.steps.items():
            if step in outcome.failed:
                yield f"{outcome.client}, {step}: {verdict}"
            elif verdict != OK and before.get(step) == OK:
                yield f"{outcome.client}, {step}: it worked before, now {verdict}"


def table(outcomes: Sequence[Outcome]) -> str:
    """Return a table of the verdicts, and below it the reasons for those that are not ok."""
    notes: list[str] = []
    rows = [_row(outcome, notes) for outcome in outcomes]
    lines = Table("Clients of other projects", ["client", *STEPS], rows).text()
    return "\n".join([lines, "", *notes]) if notes else lines


def _row(outcome: Outcome, notes: list[str]) -> list[str]:
    if outcome.not_run:
        notes.append(f"[{len(notes) + 1}] {outcome.client}: {shorten(outcome.not_run, MAX_REASON)}")
        return [outcome.client, f"not run [{len(notes)}]", *[""] * (len(STEPS) - 1)]
    return [outcome.client, *(_cell(outcome, step, notes) for step in STEPS)]


def _cell(outcome: Outcome, step: str, notes: list[str]) -> str:
    verdict = outcome.steps[step]
    if verdict == OK:
        return verdict
    word, _, reason = verdict.partition(": ")
    notes.append(f"[{len(notes) + 1}] {outcome.client}, {step}: {reason}")
    return f"{word} [{len(notes)}]"


def read(file: Path) -> Record:
    """Return the record of earlier runs."""
    return json.loads(file.read_text("utf-8")) if file.exists() else {}


def write(file: Path, record: Record, outcomes: Sequence[Outcome]) -> None:
    """Record the clients without failed steps; a step recorded as ok stays ok in the record."""
    record = dict(record)
    for outcome in outcomes:
        if outcome.steps and not outcome.failed:
            worked = {
                step: OK for step, before in record.get(outcome.client, {}).items() if before == OK
            }
            record[outcome.client] = {**outcome.steps, **worked}
    file.write_text(f"{json.dumps(record, indent=2)}\n", "utf-8")
