"""What a task has made, saved as files."""

import json
from pathlib import Path

import pytest
from apcore_a2a_client import SyncA2AClient

from tests.serving import running

from .remote import HOSTILE, Command, Fake, Json, Outcome, harmless, sends, task
from .remote import _elsewhere as _elsewhere
from .remote import agent as agent
from .remote import do as do


def saved(do: Command, folder: Path, *parts: Json) -> Outcome:
    with running(Fake(SendMessage=sends(task("COMPLETED", *parts))).app) as url:
        return do("call", url, "x", "--output", str(folder))


def test_each_part_is_saved_as_a_file(tmp_path: Path, do: Command) -> None:
    parts: list[Json] = [
        {"text": "ä", "mediaType": "text/markdown"},
        {"text": "b", "filename": "b.txt"},
        {"data": {"n": 1}, "mediaType": "application/json"},
        {"raw": "AP8=", "mediaType": "image/png"},
        {"raw": "AP8=", "filename": "chart"},
        {"url": "https://a/b"},
    ]
    done = saved(do, tmp_path / "new" / "made", *parts)

    folder = tmp_path / "new" / "made"
    names = ["result.md", "b.txt", "result.json", "result.png", "chart", "result-2.json"]
    assert (done.code, done.out.splitlines()) == (0, [str(folder / name) for name in names])
    assert (folder / "result.md").read_text("utf-8") == "ä"
    assert json.loads((folder / "result.json").read_text("utf-8")) == {"n": 1}
    assert (folder / "chart").read_bytes() == b"\x00\xff"
    assert json.loads((folder / "result-2.json").read_text("utf-8")) == {"url": "https://a/b"}


def test_no_file_is_overwritten(tmp_path: Path, do: Command) -> None:
    (tmp_path / "a.txt").write_text("mine")
    (tmp_path / "a-2.txt").symlink_to(tmp_path / "elsewhere")
    done = saved(do, tmp_path, {"text": "theirs", "filename": "a.txt"})

    assert done.out == f"{tmp_path / 'a-3.txt'}\n"
    assert (tmp_path / "a.txt").read_text() == "mine"
    assert not (tmp_path / "elsewhere").exists()


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
    ],
    ids=lambda name: ascii(name)[1:20],
)
def test_hostile_names_stay_in_the_folder(name: str, tmp_path: Path, do: Command) -> None:
    folder = tmp_path / "made"
    done = saved(do, folder, {"text": "theirs", "filename": name})

    assert (done.code, done.err) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == ["made"]
    (made,) = folder.iterdir()
    assert made.read_text() == "theirs"
    assert not made.name.startswith(".")
    assert done.out == f"{made}\n"
    harmless(done)


def test_a_long_name_keeps_its_ending(tmp_path: Path, do: Command) -> None:
    saved(do, tmp_path / "made", {"text": "theirs", "filename": "a" * 300 + ".txt"})

    (made,) = (tmp_path / "made").iterdir()
    assert made.suffix == ".txt"


def test_half_characters_in_data_are_saved(tmp_path: Path, do: Command) -> None:
    done = saved(do, tmp_path / "made", {"data": {"a": "\ud800"}})

    assert (done.code, done.err) == (0, "")
    assert json.loads((tmp_path / "made" / "result.json").read_text("utf-8"))


def test_an_answer_without_artifacts_is_not_lost_when_it_is_to_be_saved(
    tmp_path: Path, do: Command
) -> None:
    message = {"role": "ROLE_AGENT", "messageId": "m", "parts": [{"text": "hello"}]}
    with running(Fake(SendMessage={"result": {"message": message}}).app) as url:
        done = do("call", url, "x", "--output", "made")

    texts = [path.read_text() for path in (tmp_path / "made").iterdir()]
    assert "hello" in done.out or texts == ["hello"]


def test_what_a_task_has_made_is_saved_later(agent: str, tmp_path: Path, do: Command) -> None:
    with SyncA2AClient(agent) as client:
        ended = client.send_message({"what": "object and file"}, skill="gives")
    done = do("tasks", agent, ended.id, "--output", "made")

    assert done.code == 0
    assert (tmp_path / "made" / "chart.png").read_bytes() == b"\x89PNG"
