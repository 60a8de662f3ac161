"""The commands that call agents, as scripts use them: what they print, how they end."""

import asyncio
import io
import json
import re
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from tests.serving import running

from .processes import free_port, run
from .remote import CARD, Command, Fake, Json, sends, task
from .remote import _elsewhere as _elsewhere
from .remote import agent as agent
from .remote import do as do

RECORD = {"text": "hi"}
COMMANDS = ("card", "call", "tasks")


def called(do: Command, result: Json, *options: str) -> Any:
    """What `call` does when this comes of the task."""
    with running(Fake(SendMessage=sends(result)).app) as url:
        return do("call", url, "x", *options)


# card


def test_the_card_is_printed_as_json(agent: str, do: Command) -> None:
    done = do("card", agent)

    assert (done.code, done.err) == (0, "")
    assert done.json["name"] == "Agent"
    assert "echo" in [skill["id"] for skill in done.json["skills"]]


def test_the_address_of_the_card_is_as_good_as_that_of_the_agent(agent: str, do: Command) -> None:
    assert do("card", f"{agent}/.well-known/agent-card.json").json == do("card", agent).json


def test_an_agent_without_an_extended_card_refuses(agent: str, do: Command) -> None:
    done = do("card", agent, "--extended")

    assert (done.code, done.out) == (3, "")
    assert done.err == "apcore-a2a: Authenticated Extended Card is not configured\n"


def test_the_extended_card_is_printed(do: Command) -> None:
    extended = {"result": {**CARD, "name": "For you"}}
    with running(Fake(GetExtendedAgentCard=extended).app) as url:
        assert do("card", url, "--extended").json["name"] == "For you"


# call: what comes of it


def test_an_object_is_printed_as_json(agent: str, do: Command) -> None:
    done = do("call", agent, "gives", "--input", '{"what": "object"}')

    assert (done.code, done.err) == (0, "")
    assert done.json == {"n": 1, "text": "é"}
    assert "é" in done.out


def test_files_are_printed_in_base64(agent: str, do: Command) -> None:
    done = do("call", agent, "gives", "--input", '{"what": "object and file"}')

    assert done.json == {"n": 1, "chart.png": b64encode(b"\x89PNG").decode()}


@pytest.mark.parametrize(
    ("parts", "value"),
    [
        ([{"text": "two\nlines"}], "two\nlines"),
        ([{"text": "a"}, {"text": "b"}], "ab"),
        ([{"raw": "AP8="}], "AP8="),
        ([{"data": [1, None]}], [1, None]),
        ([{"data": None}], None),
        ([{"url": "https://a/b"}], "https://a/b"),
        ([{"text": "a"}, {"raw": "AP8="}], ["a", "AP8="]),
        ([], None),
    ],
)
def test_each_kind_of_value_is_printed_as_json(parts: list[Json], value: Any, do: Command) -> None:
    done = called(do, task("COMPLETED", *parts))

    assert (done.code, done.json, done.err) == (0, value, "")


def test_an_answer_without_a_task_is_printed(do: Command) -> None:
    message = {"role": "ROLE_AGENT", "messageId": "m", "parts": [{"text": "hello"}]}
    with running(Fake(SendMessage={"result": {"message": message}}).app) as url:
        done = do("call", url, "x")

    assert (done.code, done.json) == (0, "hello")


def test_chunks_are_printed_line_by_line(agent: str, do: Command) -> None:
    done = do("call", agent, "counts", "--stream")

    assert (done.code, done.lines, done.err) == (0, [{"one": 1}, {"two": 2}], "")


def test_a_stream_without_chunks_ends_with_the_result(agent: str, do: Command) -> None:
    done = do("call", agent, "echo", "--input", "hi", "--stream")

    assert (done.code, done.lines) == (0, [RECORD])


def test_an_agent_that_has_no_streams_can_be_called_with_stream(do: Command) -> None:
    done = called(do, task("COMPLETED", {"text": "all"}), "--stream")

    assert (done.code, done.lines) == (0, ["all"])


def test_a_task_that_takes_long_is_waited_for_without_streams(do: Command) -> None:
    ended = {"result": task("COMPLETED", {"text": "late"})}
    fake = Fake(SendMessage=sends(task("WORKING")), GetTask=ended)
    with running(fake.app) as url:
        done = do("call", url, "x")

    assert (done.code, done.json) == (0, "late")
    assert fake.bodies[0]["params"]["configuration"] == {"returnImmediately": True}


@pytest.mark.parametrize("options", [[], ["--stream"]])
def test_a_task_that_fails_ends_with_3_and_says_why(
    options: list[str], agent: str, do: Command
) -> None:
    done = do("call", agent, "fails", "--input", '{"what": "no beans"}', *options)

    assert (done.code, done.out) == (3, "")
    assert re.match("apcore-a2a: The task .*failed.*no beans", done.err)


@pytest.mark.parametrize("state", ["FAILED", "REJECTED", "CANCELED"])
def test_a_task_that_ends_without_a_word_ends_with_3(state: str, do: Command) -> None:
    done = called(do, task(state))

    assert (done.code, done.out) == (3, "")
    assert done.err == f"apcore-a2a: The task is {state.lower()}\n"


def test_the_data_of_a_failure_is_told_too(do: Command) -> None:
    done = called(do, task("FAILED", said=[{"text": "broken"}, {"data": {"code": -1}}]))

    assert "broken" in done.err
    assert '{"code": -1}' in done.err


def test_a_paused_task_ends_with_4_and_can_be_answered(agent: str, do: Command) -> None:
    paused = do("call", agent, "greets")

    assert (paused.code, paused.err) == (4, "")
    assert paused.json["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert paused.json["status"]["message"]["parts"][0]["text"] == "Who are you?"

    done = do("call", agent, "greets", "--task", paused.json["id"], "--input", "Ada")
    assert (done.code, done.json) == (0, {"hello": "Ada"})


@pytest.mark.parametrize("options", [[], ["--stream"]])
def test_a_no_rejects_the_task(options: list[str], agent: str, do: Command) -> None:
    paused = do("call", agent, "pays", *options).json
    arguments = ["--task", paused["id"], "--context", paused["contextId"], "--input", "no"]

    done = do("call", agent, "pays", *arguments, *options)
    assert (done.code, done.out) == (3, "")
    assert "The task is rejected" in done.err


def test_a_call_belongs_to_its_conversation(agent: str, do: Command) -> None:
    do("call", agent, "echo", "--input", "hi", "--context", "talk-1")
    listed = do("tasks", agent, "--context", "talk-1").json["tasks"]

    assert [found["contextId"] for found in listed] == ["talk-1"]


# call: what it is given


@pytest.mark.parametrize("text", ['{"text": "hi"}', ' {"text":"hi"}', "hi", '"hi"'])
def test_the_input_is_json_or_text(text: str, agent: str, do: Command) -> None:
    assert do("call", agent, "echo", "--input", text).json == RECORD


@pytest.mark.parametrize("text", ["-5", "null", "12", "true", "a [b]", "ünï\n☃"])
def test_what_only_may_be_json_is_text(text: str, agent: str, do: Command) -> None:
    assert do("call", agent, "echo", f"--input={text}").json == {"text": text}


def test_without_an_input_there_is_an_empty_object(agent: str, do: Command) -> None:
    assert do("call", agent, "mirror").json == {}


@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_the_input_may_stand_in_a_file(start: str, agent: str, tmp_path: Path, do: Command) -> None:
    (tmp_path / "in.json").write_text(start + '{\n"text": "hi"}\n', encoding="utf-8")

    assert do("call", agent, "echo", "--input", "@in.json").json == RECORD


def test_the_input_may_come_from_standard_input(
    agent: str, do: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"text": "hi"}'))

    assert do("call", agent, "echo", "--input", "-").json == RECORD


def test_files_are_sent(agent: str, tmp_path: Path, do: Command) -> None:
    (tmp_path / "é.csv").write_text("a\n1\n")
    fake = Fake(SendMessage=sends(task()))
    with running(fake.app) as url:
        assert do("call", url, "x", "--file", "é.csv", "--file", "é.csv").code == 0
        assert do("call", url, "x", "--input", "{}", "--file", "é.csv").code == 0

    part = {"raw": b64encode(b"a\n1\n").decode(), "filename": "é.csv", "mediaType": "text/csv"}
    sent = [body["params"]["message"]["parts"] for body in fake.bodies]
    assert sent == [[part, part], [{"data": {}}, part]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--input", '{"text": '], "this is not JSON"),
        (["--input", "[1,]"], "this is not JSON"),
        (["--input", "[" * 100_000], "this is not JSON"),
        (["--input", "@nope.json"], "can't read @nope.json: No such file or directory"),
        (["--input", "@."], "can't read @.: Is a directory"),
        (["--input", "@bytes"], "can't read @bytes: it is not UTF-8 text"),
        (["--file", "nope"], "can't read nope: No such file or directory"),
        (["--file", "."], "can't read .: Is a directory"),
        (["--header", "X-Key"], "a header has the form NAME:VALUE"),
        (["--header", ":x"], "a header has the form NAME:VALUE"),
        (["--header", "X-Key:é"], "header"),
        (["--timeout", "soon"], "--timeout"),
        (["--timeout", "0"], "timeout takes seconds, more than 0"),
        (["--timeout", "nan"], "timeout takes seconds"),
        (["--timeout", "inf"], "timeout takes seconds"),
        (["--timeout", "1e300"], "timeout takes seconds"),
        (["--protocol", "2.0"], "--protocol"),
        (["--sream"], "--stream"),
        (["--auth", "a", "--api-key", "b"], "--auth and --api-key exclude each other"),
        (["--auth", "two\nlines"], "characters that no header can have"),
        (["--output", "bytes"], "bytes"),
        (["--output", "bytes/below"], "bytes"),
        (["--input", '{"n": NaN}'], "JSON"),
        (["--input", '"\\ud800"'], "JSON"),
    ],
)
def test_wrong_arguments_end_with_1_before_anything_is_called(
    options: list[str], message: str, tmp_path: Path, do: Command
) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff")
    fake = Fake(SendMessage=sends(task("COMPLETED", {"text": "done"})))
    with running(fake.app) as url:
        done = do("call", url, "x", *options)

    assert (done.code, done.out, fake.methods) == (1, "", [])
    assert message in done.err
    assert done.err.startswith("apcore-a2a")


def test_what_is_wrong_with_the_input_is_told_field_by_field(agent: str, do: Command) -> None:
    given = {"customer": {"text": 1}, "items": [{"name": "a", "count": 0}]}
    done = do("call", agent, "order", "--input", json.dumps(given))

    assert (done.code, done.out) == (3, "")
    first, *fields = done.err.splitlines()
    assert first == "apcore-a2a: Invalid params"
    assert sorted(line.partition(":")[0] for line in fields) == [
        "  customer.text",
        "  items.0.count",
    ]


def test_an_unknown_skill_ends_with_3(agent: str, do: Command) -> None:
    done = do("call", agent, "ehco", "--input", "hi")

    assert (done.code, done.out, done.err) == (
        3,
        "",
        "apcore-a2a: Skill not found: ehco (is echo meant?)\n",
    )


# Where there is no agent


def web_page() -> Any:
    from starlette.responses import HTMLResponse

    return HTMLResponse("<h1>Not an agent</h1>")


@pytest.mark.parametrize("arguments", [["card"], ["call", "x"], ["tasks"], ["tasks", "t"]])
def test_an_agent_that_can_t_be_reached_ends_with_2(arguments: list[str], do: Command) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    done = do(arguments[0], url, *arguments[1:])

    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"apcore-a2a: Can't connect to {url}")
    assert done.err.count("\n") == 1


def test_what_is_no_agent_ends_with_2(do: Command) -> None:
    with running(web_page()) as url:
        done = do("card", url)

    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("apcore-a2a: No agent card: ")


@pytest.mark.parametrize("url", ["", "localhost:8000", "agent", "ftp://a", "http://", "http://a b"])
def test_what_is_no_url_ends_with_1(url: str, do: Command) -> None:
    done = do("card", url)

    assert (done.code, done.out) == (1, "")
    assert re.match(r"apcore-a2a: (An agent has|Not) .*URL", done.err)


def test_answers_that_are_no_a2a_end_with_2(do: Command) -> None:
    with running(Fake(SendMessage={"result": {"strange": 1}}).app) as url:
        done = do("call", url, "x")

    assert (done.code, done.out) == (2, "")
    assert "neither a task nor a message" in done.err


def test_a_silent_agent_is_waited_for_as_long_as_is_said(do: Command) -> None:

    async def silent() -> Json:
        await asyncio.Event().wait()
        return {}

    with running(Fake(SendMessage=silent).app) as url:
        done = do("call", url, "x", "--timeout", "0.2")

    assert (done.code, done.out) == (2, "")
    assert "in time" in done.err


# Help


@pytest.mark.process
@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_fits_a_terminal_and_names_the_exit_codes(command: str, tmp_path: Path) -> None:
    done = run([command, "--help"], tmp_path, {"COLUMNS": "80"})

    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) <= 80
    words = " ".join(done.stdout.split())
    for code in ("0 done", "1 wrong", "2 the agent", "3 it refused", "4 the task", "130 inter"):
        assert code in words


@pytest.mark.process
def test_the_commands_are_in_the_help_of_all(tmp_path: Path) -> None:
    printed = run(["--help"], tmp_path).stdout

    assert all(re.search(rf"^ +{command} +\w", printed, re.MULTILINE) for command in COMMANDS)


def test_options_may_stand_anywhere(agent: str, do: Command) -> None:
    done = do("call", "--json", "--input", "hi", agent, "--timeout", "5", "echo", "--stream")

    assert (done.code, done.lines) == (0, [RECORD])


def test_the_old_protocol_is_spoken_if_asked_for(agent: str, do: Command) -> None:
    done = do("call", agent, "echo", "--input", "hi", "--protocol", "0.3")
    assert (done.code, done.json) == (0, RECORD)

    done = do("call", agent, "counts", "--stream", "--protocol", "0.3")
    assert (done.code, done.lines) == (0, [{"one": 1}, {"two": 2}])

    fake = Fake(**{"message/send": {"result": {**task(), "kind": "task"}}})
    with running(fake.app) as url:
        do("call", url, "x", "--protocol", "0.3")
    assert fake.methods == ["message/send"]
