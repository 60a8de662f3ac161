"""`apcore-a2a new`: a folder that can be served and tested without changes."""

import subprocess
import sys
from pathlib import Path

import pytest
from apcore_a2a.command.main import main

from .processes import COMMAND, SIGNALS, environment, process, run


@pytest.fixture(autouse=True)
def _empty_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.process
def test_a_new_folder_can_be_served_called_and_tested(tmp_path: Path) -> None:
    new_result = run(["new", "my-agent"], tmp_path)
    folder = tmp_path / "my-agent"
    assert (new_result.returncode, new_result.stderr) == (0, "")
    assert "apcore-a2a serve" in new_result.stdout

    with process([*COMMAND, "serve", "--host=127.0.0.1", "--port=0"], folder) as agent:
        call_result = run(["call", agent.url, "my_agent", "--input", '{"name": "Ada"}'], tmp_path)
        assert agent.end(SIGNALS[0]) == 0
    assert (call_result.returncode, call_result.stdout) == (0, '"Hello, Ada!"\n')
    assert "Can't load" not in agent.log

    test_result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)],
        check=False,
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
    )
    assert test_result.returncode == 0, test_result.stdout
    assert len((folder / "README.md").read_text().splitlines()) <= 10


def test_an_existing_folder_is_refused_and_not_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hello").mkdir()

    assert main(["new", "hello"]) == 1
    assert capsys.readouterr().err == ("apcore-a2a: hello exists already: choose another name\n")
    assert [*(tmp_path / "hello").iterdir()] == []


@pytest.mark.parametrize("name", ["class", "system", "1st", "Hello", "two words", "..", ""])
def test_a_name_that_no_skill_can_have_is_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", name]) == 1
    assert "can't be the name of a skill" in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []


def test_the_error_shows_the_folder_that_cannot_be_created(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()

    assert main(["new", "file/hello"]) == 2
    assert capsys.readouterr().err == "apcore-a2a: file/hello: Not a directory\n"


def test_the_next_steps_can_be_pasted_into_a_shell(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "my agents/hello"]) == 0
    assert "  cd 'my agents/hello' && apcore-a2a serve" in capsys.readouterr().out
