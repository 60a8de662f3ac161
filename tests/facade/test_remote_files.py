"""Artifacts saved as files with --output."""

import json
import ntpath
import sys
from pathlib import Path, PureWindowsPath

import pytest
from apcore_a2a_client import SyncA2AClient

from tests.serving import running

from .remote import HOSTILE, Cli, FakeAgent, Json, Outcome, check_harmless, send_result, task
from .remote import _clean_environment as _clean_environment
from .remote import agent as agent
from .remote import cli as cli


def save(cli: Cli, folder: Path, *parts: Json) -> Outcome:
    with running(FakeAgent(SendMessage=send_result(task("COMPLETED", *parts))).app) as url:
        return cli("call", url, "x", "--output", str(folder))


def test_each_part_is_saved_as_a_file(tmp_path: Path, cli: Cli) -> None:
    parts: list[Json] = [
        {"text": "ä", "mediaType": "text/markdown"},
        {"text": "b", "filename": "b.txt"},
        {"data": {"n": 1}, "mediaType": "application/json"},
        {"raw": "AP8=", "mediaType": "image/png"},
        {"raw": "AP8=", "filename": "chart"},
        {"url": "https://a/b"},
    ]
    outcome = save(cli, tmp_path / "new" / "saved", *parts)

    folder = tmp_path / "new" / "saved"
    names = ["result.md", "b.txt", "result.json", "result.png", "chart", "result-2.json"]
    assert (outcome.code, outcome.out.splitlines()) == (0, [str(folder / name) for name in names])
    assert (folder / "result.md").read_text("utf-8") == "ä"
    assert json.loads((folder / "result.json").read_text("utf-8")) == {"n": 1}
    assert (folder / "chart").read_bytes() == b"\x00\xff"
    assert json.loads((folder / "result-2.json").read_text("utf-8")) == {"url": "https://a/b"}


def test_no_file_is_overwritten(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "a.txt").write_text("mine")
    (tmp_path / "a-2.txt").symlink_to(tmp_path / "elsewhere")
    outcome = save(cli, tmp_path, {"text": "theirs", "filename": "a.txt"})

    assert outcome.out == f"{tmp_path / 'a-3.txt'}\n"
    assert (tmp_path / "a.txt").read_text() == "mine"
    assert not (tmp_path / "elsewhere").exists()


def is_reserved(name: str) -> bool:
    """Return whether *name* is reserved for a device on Windows."""
    if sys.version_info >= (3, 13):
        return ntpath.isreserved(name)
    return PureWindowsPath(name).is_reserved()


@pytest.mark.parametrize(
    "name",
    [
        "../../up.txt",
        "/etc/up.txt",
        "..\\up.txt",
        "..",
        ".",
        "...",
        "/",
        ".bashrc",
        "a/",
        "C:up.txt",
        "\x00",
        "\ud800.txt",
        "a" * 300 + ".txt",
        "☃" * 100 + ".txt",
        "\U0001f600" * 100,
        HOSTILE,
        "-rf",
        "--help.txt",
        "-",
        "~",
        "~root",
        "~/.ssh/authorized_keys",
        ". -~.-x",
        "CON",
        "nul.txt",
        "com1.tar.gz",
        "LPT9 .txt",
        "COM\u00b9.txt",
        "CONIN$",
        "trailing. . .",
        "a.txt...",
        "a.- ",
        "-\u202e-x",
    ],
    ids=lambda name: ascii(name)[1:20],
)
def test_files_with_hostile_names_stay_in_the_folder(name: str, tmp_path: Path, cli: Cli) -> None:
    folder = tmp_path / "saved"
    outcome = save(cli, folder, {"text": "theirs", "filename": name})

    assert (outcome.code, outcome.err) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]
    (saved,) = folder.iterdir()
    assert saved.read_text() == "theirs"
    assert not saved.name.startswith((".", "-", "~", " "))
    assert not saved.name.endswith((".", " "))
    assert not is_reserved(saved.name.partition(".")[0])
    assert len(saved.name.encode()) <= 200
    assert outcome.out == f"{saved}\n"
    check_harmless(outcome)


def test_an_artifact_with_a_hostile_name_is_saved_in_the_folder(tmp_path: Path, cli: Cli) -> None:
    completed = task("COMPLETED", {"text": "theirs"})
    completed["artifacts"][0]["name"] = "~/../-rf"
    with running(FakeAgent(SendMessage=send_result(completed)).app) as url:
        cli("call", url, "x", "--output", "saved")

    assert [path.name for path in (tmp_path / "saved").iterdir()] == ["rf.txt"]


def test_names_that_are_equal_once_cleaned_get_numbers(tmp_path: Path, cli: Cli) -> None:
    names = ["x", "-x", "~x", "/x", "..\\x"]
    save(cli, tmp_path / "saved", *({"text": name, "filename": name} for name in names))

    saved = sorted(path.name for path in (tmp_path / "saved").iterdir())
    assert saved == ["x", "x-2", "x-3", "x-4", "x-5"]


def test_a_long_name_keeps_its_extension(tmp_path: Path, cli: Cli) -> None:
    save(cli, tmp_path / "saved", {"text": "theirs", "filename": "a" * 300 + ".txt"})

    (saved,) = (tmp_path / "saved").iterdir()
    assert saved.suffix == ".txt"


def test_data_with_lone_surrogates_is_saved_as_json(tmp_path: Path, cli: Cli) -> None:
    outcome = save(cli, tmp_path / "saved", {"data": {"a": "\ud800"}})

    assert (outcome.code, outcome.err) == (0, "")
    assert json.loads((tmp_path / "saved" / "result.json").read_text("utf-8"))


def test_a_message_instead_of_a_task_is_printed_and_not_saved(tmp_path: Path, cli: Cli) -> None:
    message = {"role": "ROLE_AGENT", "messageId": "m", "parts": [{"text": "hello"}]}
    with running(FakeAgent(SendMessage={"result": {"message": message}}).app) as url:
        outcome = cli("call", url, "x", "--output", "saved")

    texts = [path.read_text() for path in (tmp_path / "saved").iterdir()]
    assert ("hello" in outcome.out, texts) == (True, [])


def test_the_artifacts_of_a_finished_task_can_be_saved_later(
    agent: str, tmp_path: Path, cli: Cli
) -> None:
    with SyncA2AClient(agent) as client:
        completed = client.send_message({"what": "object and file"}, skill="gives")
    outcome = cli("tasks", agent, completed.id, "--output", "saved")

    assert outcome.code == 0
    assert (tmp_path / "saved" / "chart.png").read_bytes() == b"\x89PNG"
