"""The output of the commands that call agents, on a terminal."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from apcore_a2a.command.printers import ProgressLines
from apcore_a2a.command.terminal import LiveProgressLine, Terminal, format_progress
from apcore_a2a_client import AgentCard, SyncA2AClient, Task, TaskPage

from tests.serving import running

from .processes import PATIENCE, SIGNALS
from .remote import (
    CARD,
    CONTROL,
    HOSTILE,
    FakeAgent,
    Json,
    plain,
    report,
    screen,
    send_result,
    shown_lines,
    status,
    task,
    text_chunk,
)
from .remote import _clean_environment as _clean_environment
from .remote import agent as agent


@pytest.fixture
def terminal(
    _clean_environment: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Terminal:
    """Return the printer for a terminal without colors."""
    monkeypatch.setenv("TERM", "dumb")
    return Terminal()


def read(capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """Return the captured output without trailing spaces."""
    printed = capsys.readouterr()
    out, err = (re.sub(r" +$", "", text, flags=re.MULTILINE) for text in printed)
    return out, err


def parsed_task(*arguments: Any, **fields: Any) -> Task:
    return Task.from_dict(task(*arguments, **fields))


Capture = pytest.CaptureFixture[str]


# The card


def test_the_card_shows_the_agent_its_capabilities_and_its_skills(
    terminal: Terminal, capsys: Capture
) -> None:
    skill = {"id": "a.b", "description": "Does [b]this[/b]", "tags": ["x", "y"], "examples": ["e"]}
    schemes = {
        "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Mine"}},
        "token": {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
    }
    capabilities = {"streaming": True, "pushNotifications": True}
    card = {**CARD, "skills": [skill], "securitySchemes": schemes, "capabilities": capabilities}
    terminal.card(AgentCard.from_dict(card))

    out, err = read(capsys)
    assert err == ""
    assert out.startswith("Fake  1\nAnswers as prepared\n")
    assert re.search(r"JSONRPC 1\.0 +/\n", out)
    assert re.search(r"capabilities +streaming, push notifications\n", out)
    assert re.search(r"credentials +key: apiKey X-Mine\n", out)
    assert re.search(r"credentials +token: http Bearer\n", out)
    assert re.search(r"a\.b +Does \[b\]this\[/b\] +x, y\n +e\n", out)
    assert "1 skill\n" in out


def test_a_card_without_skills_is_shown(terminal: Terminal, capsys: Capture) -> None:
    terminal.card(AgentCard.from_dict({"name": "Bare"}))

    out, _ = read(capsys)
    assert out.startswith("Bare\n")
    assert re.search(r"capabilities +none", out)
    assert "0 skills" in out


# Results


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"text": "two [b]words[/b] :smile:"}, "two [b]words[/b] :smile:\n"),
        ({"text": "two\nlines\tof"}, "two\nlines"),
        ({"data": {"n": 1}}, '{\n  "n": 1\n}\n'),
        ({"data": None}, "null\n"),
        ({"url": "https://a/b"}, "https://a/b\n"),
        ({"raw": "AA=="}, "a file: 1 byte, unknown type (save it with --output DIR)\n"),
        ({"raw": "AP8="}, "a file: 2 bytes, unknown type (save it with --output DIR)\n"),
        (
            {"raw": "AP8=", "filename": "a.png", "mediaType": "image/png"},
            "a.png: 2 bytes, image/png (save it with --output DIR)\n",
        ),
        ({"text": "# Title\n\n* one", "mediaType": "text/markdown"}, "* one\n"),
        ({"text": "# no title", "mediaType": "text/plain"}, "# no title\n"),
    ],
)
def test_each_kind_of_result_is_shown(
    part: Json, expected: str, terminal: Terminal, capsys: Capture
) -> None:
    terminal.result(parsed_task("COMPLETED", part))

    out, err = read(capsys)
    assert expected in out
    assert err == ""


def test_an_answer_without_artifacts_is_shown(terminal: Terminal, capsys: Capture) -> None:
    terminal.result(parsed_task(status_parts=[{"text": "hello"}]))

    assert read(capsys)[0] == "hello\n"


def test_long_lines_are_not_wrapped(terminal: Terminal, capsys: Capture) -> None:
    line = "word " * 40 + "end"
    terminal.result(parsed_task("COMPLETED", {"text": line}, {"data": {"line": line}}))

    out = capsys.readouterr().out
    assert line in out
    assert out.count(line) == 2


def test_text_chunks_are_joined_and_data_chunks_get_their_own_lines(
    terminal: Terminal, capsys: Capture
) -> None:
    for chunk in ("one ", "[b]two[/b]", {"n": 1}, "three"):
        terminal.chunk(chunk)
    terminal.end_chunks()

    assert read(capsys)[0] == 'one [b]two[/b]\n{"n": 1}\nthree\n'


def test_a_failure_is_printed_with_its_reason(terminal: Terminal, capsys: Capture) -> None:
    terminal.failure(
        parsed_task("FAILED", status_parts=[{"text": "no beans"}, {"data": {"code": -1}}])
    )

    out, err = read(capsys)
    assert out == ""
    assert "no beans" in err.splitlines()[0]


# Tasks


def test_task_ids_are_shown_in_full(terminal: Terminal, capsys: Capture) -> None:
    task_id = "8c661950-01dc-4000-985a-9e7c41b6d65c"
    context = "b14ffd87-5c17-4531-95fc-9dc5428389b9"
    fields: Json = {"id": task_id, "contextId": context, "metadata": {"skillId": "units.convert"}}
    page = {"tasks": [task("INPUT_REQUIRED", **fields)], "nextPageToken": "a b"}
    terminal.tasks(TaskPage.from_dict(page))

    out, err = read(capsys)
    for word in (task_id, context, "units.convert", "input-required", "2026-01-02 03:04:05"):
        assert word in out
    assert "--cursor 'a b'" in err


def test_an_empty_list_says_that_there_are_no_tasks(terminal: Terminal, capsys: Capture) -> None:
    terminal.tasks(TaskPage())

    assert read(capsys) == ("No tasks.\n", "")


def test_a_task_is_shown_with_its_history_and_artifacts(
    terminal: Terminal, capsys: Capture
) -> None:
    message = {"role": "ROLE_USER", "messageId": "u", "parts": [{"text": "5 km"}]}
    completed = parsed_task(
        "COMPLETED", {"data": {"n": 1}}, status_parts=[{"text": "done"}], history=[message]
    )
    terminal.task(completed)

    out, _ = read(capsys)
    words = ["t-1 completed", "user:", "5 km", "agent:", "done", "result", '"n": 1']
    positions = [out.find(word) for word in words]
    assert -1 not in positions
    assert positions == sorted(positions)


def test_the_command_to_answer_is_on_one_line(terminal: Terminal, capsys: Capture) -> None:
    task_id = "8c661950-01dc-4000-985a-9e7c41b6d65c"
    paused = parsed_task("INPUT_REQUIRED", status_parts=[{"text": "Which?"}], id=task_id)
    terminal.question(paused, "http://127.0.0.1:8000", "units.convert")

    out, err = read(capsys)
    assert out == ""
    assert "Which?" in err
    command = "apcore-a2a call http://127.0.0.1:8000 units.convert --task " + task_id
    assert f"{command} --input" in err


@pytest.mark.parametrize(("count", "expected"), [(0, ""), (1, "  1 part"), (2, "  2 parts")])
def test_the_progress_counts_parts(count: int, expected: str) -> None:
    parts = [{"text": "a"}] * count

    assert format_progress(parsed_task("WORKING", *parts)) == f"working{expected}"


# Texts from agents


def test_hostile_text_does_not_control_the_terminal(terminal: Terminal, capsys: Capture) -> None:
    skill = {"id": HOSTILE, "description": HOSTILE, "tags": [HOSTILE], "examples": [HOSTILE]}
    schemes = {HOSTILE: {"apiKeySecurityScheme": {"location": "header", "name": HOSTILE}}}
    interface = {"url": HOSTILE, "protocolBinding": HOSTILE, "protocolVersion": HOSTILE}
    texts = dict.fromkeys(("name", "description", "version"), HOSTILE)
    card = {**texts, "skills": [skill], "securitySchemes": schemes}
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
    message = {"role": "ROLE_AGENT", "messageId": HOSTILE, "parts": parts}
    hostile = parsed_task("WORKING", *parts, status_parts=parts, history=[message], **ids)
    terminal.task(hostile)
    terminal.result(hostile)
    terminal.question(hostile, "http://a", "x")
    terminal.failure(hostile)
    terminal.chunk(HOSTILE)
    terminal.chunk({HOSTILE: HOSTILE})
    terminal.tasks(TaskPage((hostile,), HOSTILE))
    ProgressLines(terminal.progress).show(hostile)
    line = LiveProgressLine(is_eager=True)
    line.show(hostile)
    line.hide()

    printed = "".join(capsys.readouterr())
    match = CONTROL.search(printed)
    assert not match, ascii(printed[match.start() - 40 : match.end() + 40])


@pytest.mark.parametrize("field", ["timestamp", "name"])
def test_hostile_text_in_a_field_does_not_control_the_terminal(
    field: str, terminal: Terminal, capsys: Capture
) -> None:
    completed = task("COMPLETED", {"text": "a"})
    (completed["status"] if field == "timestamp" else completed["artifacts"][0])[field] = HOSTILE
    terminal.task(Task.from_dict(completed))
    terminal.tasks(TaskPage((Task.from_dict(completed),)))

    assert not CONTROL.search("".join(capsys.readouterr()))


def test_a_lone_surrogate_can_be_printed(terminal: Terminal, capsys: Capture) -> None:
    terminal.result(parsed_task("COMPLETED", {"text": "a\ud800"}, {"data": "b\ud800"}))

    out, _ = capsys.readouterr()
    assert out.encode()
    assert "a" in out


# On a real terminal


@pytest.mark.process
@pytest.mark.smoke
def test_an_approval_is_answered_on_the_terminal(agent: str, tmp_path: Path) -> None:
    with screen(tmp_path, "call", agent, "pays") as tty:
        tty.wait_for(r"Approval required for module pays[^?]*\?")
        tty.type("yes\n")
        assert tty.end() == 0

    assert '"paid": true' in plain(tty.text)


@pytest.mark.process
def test_a_question_is_shown_with_its_choices(agent: str, tmp_path: Path) -> None:
    with screen(tmp_path, "call", agent, "greets", TERM="dumb") as tty:
        tty.wait_for(r"Who are you\?")
        tty.wait_for(r"\n.*\? $")
        assert "Alan" in plain(tty.text)
        tty.type("Ada\n")
        assert tty.end() == 0

    assert '"hello": "Ada"' in plain(tty.text)


@pytest.mark.process
def test_refused_answers_are_requested_again_and_objects_one_property_at_a_time(
    agent: str, tmp_path: Path
) -> None:
    with screen(tmp_path, "call", agent, "books", TERM="dumb", NO_COLOR="1") as tty:
        tty.wait_for(r"How many guests\?\s+\? $")
        tty.type("a few\n")
        tty.wait_for(r"The answer must be a whole number\s+How many guests\?\s+\? $")
        tty.type("3\n")
        answers = [
            (r"How do you pay\?\s+card \(string\)\? $", "visa"),
            (r"amount \(number\)\? $", "5"),
            (r"note \(string, optional\)\? $", ""),
            (r"The answer does not fit: amount: [^?]*pay\?\s+card \(string\)\? $", "visa"),
            (r"amount \(number\)\? $", "twenty"),
            (r"amount must be a number\s+amount \(number\)\? $", "20"),
            (r"note \(string, optional\)\? $", ""),
        ]
        for prompt, answer in answers:
            tty.wait_for(prompt)
            tty.type(f"{answer}\n")
        assert tty.end() == 0

    result = plain(tty.text).rpartition('{\n  "booked"')[2]
    assert '"guests": 3' in result
    assert '"amount": 20' in result
    assert "note" not in result


@pytest.mark.process
def test_a_task_without_an_answer_stays_paused(agent: str, tmp_path: Path) -> None:
    with screen(tmp_path, "call", agent, "pays", TERM="dumb") as tty:
        tty.wait_for(r"\n\S*\? ")
        tty.type("\n")
        assert tty.end() == 4

    assert "Answer with: apcore-a2a call" in tty.text


@pytest.mark.process
def test_after_an_interrupt_at_the_question_the_command_says_how_to_answer_later(
    agent: str, tmp_path: Path
) -> None:
    with screen(tmp_path, "call", agent, "pays", TERM="dumb") as tty:
        tty.wait_for(r"\n\S*\? ")
        tty.interrupt()
        assert tty.end() == 130

    assert "Traceback" not in tty.text
    assert "--task" in tty.text
    assert "Canceled task" not in tty.text


@pytest.mark.process
def test_the_progress_is_shown_and_an_interrupt_cancels(agent: str, tmp_path: Path) -> None:
    with screen(tmp_path, "call", agent, "waits", "--context", "shown") as tty:
        tty.wait_for("working ")
        tty.wait_for(r"working .*0:00:01")
        tty.process.send_signal(SIGNALS[1])
        assert tty.end() == 130

    with SyncA2AClient(agent) as client:
        (listed,) = client.iter_tasks("shown")
    assert listed.status.state == "canceled"
    assert f"Canceled task {listed.id}" in plain(tty.text)
    assert tty.text.rstrip().rpartition("\x1b[?25")[2].startswith("h")  # the cursor is back


@pytest.mark.process
@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ([], ["The sources", "agree."]),
        (["--json"], ['"The sources agree."']),
        (["--stream"], ["The sources", "agree."]),
        (["--stream", "--json"], ['"The sources "', '"agree."']),
    ],
)
def test_progress_messages_are_shown_in_one_line(
    options: list[str], lines: list[str], tmp_path: Path
) -> None:
    was_shown = threading.Event()

    async def events() -> AsyncIterator[Json]:
        yield {"task": task("WORKING")}
        yield report("Reading", {"sources": 12})
        yield text_chunk("The sources ")
        yield report("Writing\nand more")
        await asyncio.to_thread(was_shown.wait, PATIENCE)
        yield text_chunk("agree.")
        yield status("COMPLETED")

    fake = FakeAgent(
        {"capabilities": {"streaming": True}},
        SendMessage=send_result(task("WORKING")),
        SubscribeToTask=events,
        SendStreamingMessage=events,
    )
    with (
        running(fake.app) as url,
        screen(tmp_path, "call", url, "x", *options, NO_COLOR="1") as tty,
    ):
        tty.wait_for(r"working .*Writing +0:00")
        was_shown.set()
        assert tty.end() == 0

    assert shown_lines(tty.text) == lines


@pytest.mark.process
def test_on_a_terminal_that_cannot_replace_lines_a_message_has_its_own_line(tmp_path: Path) -> None:
    events = [report("Reading"), text_chunk("The sources agree."), status("COMPLETED")]
    fake = FakeAgent({"capabilities": {"streaming": True}}, SendStreamingMessage=events)
    with (
        running(fake.app) as url,
        screen(tmp_path, "call", url, "x", "--stream", NO_COLOR="1", TERM="dumb") as tty,
    ):
        assert tty.end() == 0

    assert tty.text.replace("\r", "") == "working: Reading\nThe sources agree.\n"


@pytest.mark.process
def test_a_dumb_terminal_gets_no_escape_sequences(agent: str, tmp_path: Path) -> None:
    with screen(tmp_path, "card", agent, NO_COLOR="1", TERM="dumb") as tty:
        assert tty.end() == 0

    assert "\x1b" not in tty.text
    assert "Agent" in tty.text


@pytest.mark.process
def test_the_option_json_prints_json_on_a_terminal(agent: str, tmp_path: Path) -> None:
    with screen(tmp_path, "call", agent, "greets", "--json") as tty:
        assert tty.end() == 4

    assert '"TASK_STATE_INPUT_REQUIRED"' in tty.text
    assert "\x1b" not in tty.text


@pytest.mark.process
def test_hostile_text_does_not_control_a_real_terminal(tmp_path: Path) -> None:
    hostile = send_result(
        task("INPUT_REQUIRED", {"text": HOSTILE}, status_parts=[{"text": HOSTILE}])
    )
    with (
        running(FakeAgent(SendMessage=hostile).app) as url,
        screen(tmp_path, "call", url, "x", NO_COLOR="1", TERM="dumb") as tty,
    ):
        tty.wait_for(r"\n\S*\? ")
        tty.type("\n")
        assert tty.end() == 4

    assert not CONTROL.search(tty.text.replace("\r\n", "\n"))


# Credentials


@pytest.mark.process
@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("", 1), ("no", 1)])
def test_credentials_go_to_another_origin_only_after_a_yes(
    answer: str, code: int, tmp_path: Path
) -> None:
    done_agent = FakeAgent(SendMessage=send_result(task("COMPLETED", {"text": "done"})))
    with running(done_agent.app) as url:
        interface = {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        card = {"supportedInterfaces": [interface]}
        variables = {"NO_COLOR": "1", "TERM": "dumb", "APCORE_A2A_AUTH": "hunter2"}
        with (
            running(FakeAgent(card).app) as agent_url,
            screen(tmp_path, "call", agent_url, "x", **variables) as tty,
        ):
            tty.wait_for(r"Send them there\?")
            tty.type(f"{answer}\n")
            assert tty.end() == code
            text = " ".join(plain(tty.text).split())
    assert url in text
    assert "hunter2" not in text
    assert ("done" in text) == (len(done_agent.requests) == 1) == (code == 0)
    assert ("--credentials-for" in text) == (code == 1)
