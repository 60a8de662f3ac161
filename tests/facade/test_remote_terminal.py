"""The commands that call agents, as people see them on a terminal."""

import re
from pathlib import Path
from typing import Any

import pytest
from apcore_a2a.command.terminal import Terminal
from apcore_a2a_client import AgentCard, SyncA2AClient, Task, TaskPage

from tests.serving import running

from .processes import SIGNALS
from .remote import CARD, HOSTILE, RAW, Fake, Json, plain, screen, sends, task
from .remote import _elsewhere as _elsewhere
from .remote import agent as agent


@pytest.fixture
def terminal(
    _elsewhere: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Terminal:
    """What prints for people, where it is read as text."""
    monkeypatch.setenv("TERM", "dumb")
    return Terminal()


def read(capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """What was printed, without the spaces that end lines."""
    printed = capsys.readouterr()
    out, err = (re.sub(r" +$", "", text, flags=re.MULTILINE) for text in printed)
    return out, err


def model(*arguments: Any, **fields: Any) -> Task:
    return Task.from_dict(task(*arguments, **fields))


Read = pytest.CaptureFixture[str]


# The card


def test_the_card_shows_what_the_agent_is_and_can_do(terminal: Terminal, capsys: Read) -> None:
    skill = {"id": "a.b", "description": "Does [b]this[/b]", "tags": ["x", "y"], "examples": ["e"]}
    schemes = {
        "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Mine"}},
        "token": {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
    }
    can = {"streaming": True, "pushNotifications": True}
    card = {**CARD, "skills": [skill], "securitySchemes": schemes, "capabilities": can}
    terminal.card(AgentCard.from_dict(card))

    out, err = read(capsys)
    assert err == ""
    assert out.startswith("Fake  1\nAnswers what it is told to\n")
    assert re.search(r"JSONRPC 1\.0 +/\n", out)
    assert re.search(r"can +streaming, push notifications\n", out)
    assert re.search(r"credentials +key: apiKey X-Mine\n", out)
    assert re.search(r"credentials +token: http Bearer\n", out)
    assert re.search(r"a\.b +Does \[b\]this\[/b\] +x, y\n +e\n", out)
    assert "1 skill\n" in out


def test_a_card_without_skills_is_shown(terminal: Terminal, capsys: Read) -> None:
    terminal.card(AgentCard.from_dict({"name": "Bare"}))

    out, _ = read(capsys)
    assert out.startswith("Bare\n")
    assert "nothing optional" in out
    assert "0 skills" in out


# Results


@pytest.mark.parametrize(
    ("part", "shown"),
    [
        ({"text": "two [b]words[/b] :smile:"}, "two [b]words[/b] :smile:\n"),
        ({"text": "two\nlines\tof"}, "two\nlines"),
        ({"data": {"n": 1}}, '{\n  "n": 1\n}\n'),
        ({"data": None}, "null\n"),
        ({"url": "https://a/b"}, "https://a/b\n"),
        ({"raw": "AP8="}, "a file: 2 bytes, of unknown type (--output DIR saves it)\n"),
        (
            {"raw": "AP8=", "filename": "a.png", "mediaType": "image/png"},
            "a.png: 2 bytes, image/png (--output DIR saves it)\n",
        ),
        ({"text": "# Title\n\n* one", "mediaType": "text/markdown"}, "* one\n"),
        ({"text": "# no title", "mediaType": "text/plain"}, "# no title\n"),
    ],
)
def test_each_kind_of_result_is_shown(
    part: Json, shown: str, terminal: Terminal, capsys: Read
) -> None:
    terminal.result(model("COMPLETED", part))

    out, err = read(capsys)
    assert shown in out
    assert err == ""


def test_an_answer_without_artifacts_is_shown(terminal: Terminal, capsys: Read) -> None:
    terminal.result(model(said=[{"text": "hello"}]))

    assert read(capsys)[0] == "hello\n"


def test_long_lines_can_be_copied(terminal: Terminal, capsys: Read) -> None:
    line = "word " * 40 + "end"
    terminal.result(model("COMPLETED", {"text": line}, {"data": {"line": line}}))

    out = capsys.readouterr().out
    assert line in out
    assert out.count(line) == 2


def test_chunks_of_text_run_on_and_others_stand_alone(terminal: Terminal, capsys: Read) -> None:
    for chunk in ("one ", "[b]two[/b]", {"n": 1}, "three"):
        terminal.chunk(chunk)
    terminal.end()

    assert read(capsys)[0] == 'one [b]two[/b]\n{"n": 1}\nthree\n'


def test_a_failure_is_told_with_its_reason(terminal: Terminal, capsys: Read) -> None:
    terminal.failure(model("FAILED", said=[{"text": "no beans"}, {"data": {"code": -1}}]))

    out, err = read(capsys)
    assert out == ""
    assert "no beans" in err.splitlines()[0]


# Tasks


def test_tasks_are_shown_so_that_their_ids_can_be_copied(terminal: Terminal, capsys: Read) -> None:
    identity = "8c661950-01dc-4000-985a-9e7c41b6d65c"
    context = "b14ffd87-5c17-4531-95fc-9dc5428389b9"
    fields: Json = {"id": identity, "contextId": context, "metadata": {"skillId": "units.convert"}}
    page = {"tasks": [task("INPUT_REQUIRED", **fields)], "nextPageToken": "a b"}
    terminal.tasks(TaskPage.from_dict(page))

    out, err = read(capsys)
    for word in (identity, context, "units.convert", "input-required", "2026-01-02 03:04:05"):
        assert word in out
    assert "--cursor 'a b'" in err


def test_no_tasks_are_told(terminal: Terminal, capsys: Read) -> None:
    terminal.tasks(TaskPage())

    assert read(capsys) == ("No tasks.\n", "")


def test_one_task_is_shown_with_what_was_said(terminal: Terminal, capsys: Read) -> None:
    asked = {"role": "ROLE_USER", "messageId": "u", "parts": [{"text": "5 km"}]}
    shown = model("COMPLETED", {"data": {"n": 1}}, said=[{"text": "done"}], history=[asked])
    terminal.task(shown)

    out, _ = read(capsys)
    words = ["t-1 completed", "user:", "5 km", "agent:", "done", "result", '"n": 1']
    places = [out.find(word) for word in words]
    assert -1 not in places
    assert places == sorted(places)


def test_the_command_that_answers_stands_on_one_line(terminal: Terminal, capsys: Read) -> None:
    identity = "8c661950-01dc-4000-985a-9e7c41b6d65c"
    paused = model("INPUT_REQUIRED", said=[{"text": "Which?"}], id=identity)
    terminal.question(paused, "http://127.0.0.1:8000", "units.convert")

    out, err = read(capsys)
    assert out == ""
    assert "Which?" in err
    command = "apcore-a2a call http://127.0.0.1:8000 units.convert --task " + identity
    assert f"{command} --input" in err


# Text of agents


def test_no_hostile_text_drives_the_terminal(terminal: Terminal, capsys: Read) -> None:
    skill = {"id": HOSTILE, "description": HOSTILE, "tags": [HOSTILE], "examples": [HOSTILE]}
    schemes = {HOSTILE: {"apiKeySecurityScheme": {"location": "header", "name": HOSTILE}}}
    interface = {"url": HOSTILE, "protocolBinding": HOSTILE, "protocolVersion": HOSTILE}
    words = dict.fromkeys(("name", "description", "version"), HOSTILE)
    card = {**words, "skills": [skill], "securitySchemes": schemes}
    terminal.card(AgentCard.from_dict({**card, "supportedInterfaces": [interface]}))
    parts = [
        {"text": HOSTILE},
        {"text": HOSTILE, "mediaType": "text/markdown"},
        {"text": f"[{HOSTILE}](http://a/{HOSTILE})", "mediaType": "text/markdown"},
        {"data": {HOSTILE: [HOSTILE]}},
        {"raw": "AA==", "filename": HOSTILE, "mediaType": HOSTILE},
        {"url": HOSTILE},
    ]
    ids = {"id": HOSTILE, "contextId": HOSTILE, "metadata": {"skillId": HOSTILE}}
    said = {"role": "ROLE_AGENT", "messageId": HOSTILE, "parts": parts}
    hostile = model("WORKING", *parts, said=parts, history=[said], **ids)
    terminal.task(hostile)
    terminal.result(hostile)
    terminal.question(hostile, "http://a", "x")
    terminal.failure(hostile)
    terminal.chunk(HOSTILE)
    terminal.chunk({HOSTILE: HOSTILE})
    terminal.tasks(TaskPage((hostile,), HOSTILE))
    with terminal.progress() as tell:
        tell(hostile)

    printed = "".join(capsys.readouterr())
    found = RAW.search(printed)
    assert not found, ascii(printed[found.start() - 40 : found.end() + 40])


@pytest.mark.parametrize("field", ["timestamp", "name"])
def test_no_field_drives_the_terminal(field: str, terminal: Terminal, capsys: Read) -> None:
    shown = task("COMPLETED", {"text": "a"})
    (shown["status"] if field == "timestamp" else shown["artifacts"][0])[field] = HOSTILE
    terminal.task(Task.from_dict(shown))
    terminal.tasks(TaskPage((Task.from_dict(shown),)))

    assert not RAW.search("".join(capsys.readouterr()))


def test_half_a_character_is_shown_somehow(terminal: Terminal, capsys: Read) -> None:
    terminal.result(model("COMPLETED", {"text": "a\ud800"}, {"data": "b\ud800"}))

    out, _ = capsys.readouterr()
    assert out.encode()
    assert "a" in out


# On a real terminal


@pytest.mark.process
@pytest.mark.smoke
def test_a_question_is_answered_where_it_is_asked(agent: str, tmp_path: Path) -> None:
    with screen(tmp_path, "call", agent, "pays") as shown:
        shown.wait_for(r"Approval required for module pays[^?]*\?")
        shown.type("yes\n")
        assert shown.end() == 0

    assert '"paid": true' in plain(shown.text)


@pytest.mark.process
def test_a_question_is_asked_with_its_choices(agent: str, tmp_path: Path) -> None:
    with screen(tmp_path, "call", agent, "greets", TERM="dumb") as shown:
        shown.wait_for(r"Who are you\?")
        shown.wait_for(r"\n.*\? $")
        assert "Alan" in plain(shown.text)
        shown.type("Ada\n")
        assert shown.end() == 0

    assert '"hello": "Ada"' in plain(shown.text)


@pytest.mark.process
def test_the_task_is_kept_for_who_does_not_answer(agent: str, tmp_path: Path) -> None:
    with screen(tmp_path, "call", agent, "pays", TERM="dumb") as shown:
        shown.wait_for(r"\n\S*\? ")
        shown.type("\n")
        assert shown.end() == 4

    assert "Answer with: apcore-a2a call" in shown.text


@pytest.mark.process
def test_an_interrupt_at_the_question_says_how_to_answer_later(agent: str, tmp_path: Path) -> None:
    with screen(tmp_path, "call", agent, "pays", TERM="dumb") as shown:
        shown.wait_for(r"\n\S*\? ")
        shown.interrupt()
        assert shown.end() == 130

    assert "Traceback" not in shown.text
    assert re.search("--task|Canceled task", shown.text)


@pytest.mark.process
def test_the_progress_is_shown_and_an_interrupt_cancels(agent: str, tmp_path: Path) -> None:
    with screen(tmp_path, "call", agent, "waits", "--context", "shown") as shown:
        shown.wait_for("working  0 s")
        shown.wait_for("working  1 s")
        shown.process.send_signal(SIGNALS[1])
        assert shown.end() == 130

    with SyncA2AClient(agent) as client:
        (found,) = client.iter_tasks("shown")
    assert found.status.state == "canceled"
    assert f"Canceled task {found.id}" in plain(shown.text)
    assert shown.text.rstrip().rpartition("\x1b[?25")[2].startswith("h")  # the cursor is back


@pytest.mark.process
def test_without_colours_there_are_none(agent: str, tmp_path: Path) -> None:
    with screen(tmp_path, "card", agent, NO_COLOR="1", TERM="dumb") as shown:
        assert shown.end() == 0

    assert "\x1b" not in shown.text
    assert "Agent" in shown.text


@pytest.mark.process
def test_json_is_printed_on_a_terminal_if_it_is_asked_for(agent: str, tmp_path: Path) -> None:
    with screen(tmp_path, "call", agent, "greets", "--json") as shown:
        assert shown.end() == 4

    assert '"TASK_STATE_INPUT_REQUIRED"' in shown.text
    assert "\x1b" not in shown.text


@pytest.mark.process
def test_hostile_text_does_not_get_through_a_terminal(tmp_path: Path) -> None:
    hostile = sends(task("INPUT_REQUIRED", {"text": HOSTILE}, said=[{"text": HOSTILE}]))
    with (
        running(Fake(SendMessage=hostile).app) as url,
        screen(tmp_path, "call", url, "x", NO_COLOR="1", TERM="dumb") as shown,
    ):
        shown.wait_for(r"\n\S*\? ")
        shown.type("\n")
        assert shown.end() == 4

    assert not RAW.search(shown.text.replace("\r\n", "\n"))
