"""`tools/clients`: judging what clients print, the table, and the record of earlier runs."""

import json
import sys
from pathlib import Path

import pytest

from tools.interop import cli
from tools.interop.cli import RECORD, main
from tools.interop.clients import CLIENTS, SCRIPTS, STEPS, Client
from tools.interop.outcomes import Outcome, Record, faults, judge, outcome_of, read, table, write

ALL_OK = dict.fromkeys(STEPS, "ok")
UNSUPPORTED = {**ALL_OK, "question": "no: it sends no ids"}
BROKEN = {**ALL_OK, "send": "failed: boom"}


@pytest.mark.parametrize(
    "seen",
    [
        ["For which day?\n1. Friday", "Booked for Friday."],
        "For which day? Friday. Booked for Friday.",
    ],
)
def test_a_step_is_ok_if_the_client_shows_the_expected_texts_in_order(seen: object) -> None:
    assert judge("question", {"seen": seen}) == "ok"


@pytest.mark.parametrize(
    "seen",
    [
        [],
        "",
        ["For which day?"],
        ["Booked for Friday.", "For which day?"],
        ["For which day? Booked for Friday."],  # one text instead of two
    ],
)
def test_a_step_fails_if_an_expected_text_is_missing_or_out_of_order(seen: object) -> None:
    assert judge("question", {"seen": seen}) == f"failed: it shows {seen!r}"


def test_a_step_that_the_client_cannot_do_says_why() -> None:
    assert judge("question", {"unsupported": "it sends no ids"}) == "no: it sends no ids"


def test_an_exception_is_a_failure_with_its_last_line() -> None:
    trace = "Traceback (most recent call last):\n  …\nValueError: no card\n"
    assert judge("card", {"failed": trace}) == "failed: ValueError: no card"


def test_steps_that_a_script_does_not_reach_fail_with_its_last_error() -> None:
    output = 'a warning of the library\n{"step": "card", "seen": "Tea room"}\n'
    outcome = outcome_of("strands", output, "…\nImportError: no module\n")
    assert outcome.steps["card"] == "ok"
    assert outcome.failed == [step for step in STEPS if step != "card"]
    assert outcome.steps["send"] == "failed: ImportError: no module"


def test_a_script_without_any_output_fails() -> None:
    assert outcome_of("strands", "").steps["card"] == "failed: the script printed nothing"


@pytest.mark.parametrize(
    ("outcome", "recorded", "expected"),
    [
        (Outcome("beeai", ALL_OK), {}, []),
        (Outcome("beeai", UNSUPPORTED), {}, []),
        (Outcome("beeai", UNSUPPORTED), UNSUPPORTED, []),
        (Outcome("beeai", ALL_OK), UNSUPPORTED, []),
        (Outcome("beeai", BROKEN), {}, ["beeai, send: failed: boom"]),
        (
            Outcome("beeai", UNSUPPORTED),
            ALL_OK,
            ["beeai, question: it worked before, now no: it sends no ids"],
        ),
        (Outcome("beeai", not_run="no uv"), {}, []),
        (Outcome("beeai", not_run="no uv"), ALL_OK, ["beeai ran before, and did not run now"]),
    ],
)
def test_failures_and_regressions_are_faults(
    outcome: Outcome, recorded: dict[str, str], expected: list[str]
) -> None:
    record: Record = {"beeai": recorded} if recorded else {}
    assert list(faults([outcome], record)) == expected


def test_it_is_a_fault_if_more_than_two_clients_do_not_run() -> None:
    outcomes = [Outcome(name, not_run="no uv") for name in ("strands", "crewai", "beeai")]
    assert list(faults(outcomes[:2], {})) == []
    assert list(faults(outcomes, {})) == ["3 clients did not run, more than 2"]


def test_the_table_gives_a_reason_for_each_result_that_is_not_ok() -> None:
    outcomes = [
        Outcome("strands", UNSUPPORTED),
        Outcome("crewai", BROKEN),
        Outcome("beeai", not_run="uv is not installed"),
    ]
    title, header, *rows, empty, no, failed, not_run = table(outcomes).splitlines()
    assert title == "Clients of other projects"
    assert header.split() == ["client", *STEPS]
    assert [row.split()[0] for row in rows] == ["strands", "crewai", "beeai"]
    assert "no [1]" in rows[0]
    assert "failed [2]" in rows[1]
    assert "not run [3]" in rows[2]
    assert (empty, no) == ("", "[1] strands, question: it sends no ids")
    assert failed == "[2] crewai, send: boom"
    assert not_run == "[3] beeai: uv is not installed"


def test_the_record_keeps_what_worked_when_a_client_fails_or_does_not_run(tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    assert read(file) == {}
    write(file, {}, [Outcome("strands", ALL_OK), Outcome("crewai", BROKEN)])
    assert read(file) == {"strands": ALL_OK}
    write(file, read(file), [Outcome("strands", BROKEN), Outcome("beeai", UNSUPPORTED)])
    write(file, read(file), [Outcome("beeai", not_run="no uv")])
    assert read(file) == {"strands": ALL_OK, "beeai": UNSUPPORTED}


def test_a_better_result_replaces_the_record_and_a_worse_one_does_not(tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    write(
        file,
        {"strands": ALL_OK, "beeai": UNSUPPORTED},
        [Outcome("strands", UNSUPPORTED), Outcome("beeai", ALL_OK)],
    )
    assert read(file) == {"strands": ALL_OK, "beeai": ALL_OK}


def test_all_clients_are_recorded_with_all_steps() -> None:
    record = read(RECORD)
    assert record.keys() == CLIENTS.keys()
    assert all(list(steps) == list(STEPS) for steps in record.values())
    assert all((SCRIPTS / client.script).is_file() for client in CLIENTS.values())


class LocalClient(Client):
    """A client whose packages are in this environment."""

    def install(self) -> list[str]:
        return [sys.executable, str(SCRIPTS / self.script)]


class UninstallableClient(Client):
    """A client whose packages can't be installed."""

    def install(self) -> list[str]:
        pytest.skip("no such package")


@pytest.mark.process
@pytest.mark.smoke
def test_the_command_runs_clients_against_an_agent_and_records_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "record.json"
    monkeypatch.setattr(cli, "RECORD", record)
    sdk = CLIENTS["a2a-sdk-1.3"].script
    monkeypatch.setattr(
        cli, "CLIENTS", {"here": LocalClient([], sdk), "gone": UninstallableClient([], "gone.py")}
    )

    assert main([]) == 0
    printed = capsys.readouterr().out
    assert "not run [1]" in printed
    assert "[1] gone: no such package" in printed
    assert read(record) == {"here": ALL_OK}

    record.write_text(json.dumps({"gone": ALL_OK}), "utf-8")
    assert main(["gone"]) == 1
    assert "gone ran before, and did not run now" in capsys.readouterr().err


def test_an_unknown_client_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main(["telephone"])
    assert error.value.code == 2
    assert "there is no client telephone" in capsys.readouterr().err
