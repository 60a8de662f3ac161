"""The commands that call agents, as scripts use them: JSON output and exit codes."""

import asyncio
import io
import json
import re
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from apcore_a2a_client import SyncA2AClient

from tests.serving import running

from .processes import free_port, run
from .remote import (
    CARD,
    HOSTILE,
    Cli,
    FakeAgent,
    Json,
    check_harmless,
    report,
    send_result,
    status,
    task,
    text_chunk,
)
from .remote import _clean_environment as _clean_environment
from .remote import agent as agent
from .remote import cli as cli

ECHOED = {"text": "hi"}
COMMANDS = ("card", "call", "tasks")


def call_with_result(cli: Cli, result: Json, *options: str) -> Any:
    """Run `call` against an agent that answers with this task."""
    with running(FakeAgent(SendMessage=send_result(result)).app) as url:
        return cli("call", url, "x", *options)


# card


def test_the_card_is_printed_as_json(agent: str, cli: Cli) -> None:
    outcome = cli("card", agent)

    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.json["name"] == "Agent"
    assert "echo" in [skill["id"] for skill in outcome.json["skills"]]


def test_the_url_of_the_card_is_accepted_too(agent: str, cli: Cli) -> None:
    assert cli("card", f"{agent}/.well-known/agent-card.json").json == cli("card", agent).json


def test_a_missing_extended_card_is_reported(agent: str, cli: Cli) -> None:
    outcome = cli("card", agent, "--extended")

    assert (outcome.code, outcome.out) == (3, "")
    assert outcome.err == "apcore-a2a: This agent has no extended Agent Card\n"


def test_the_extended_card_is_printed(cli: Cli) -> None:
    extended = {"result": {**CARD, "name": "For you"}}
    with running(FakeAgent(GetExtendedAgentCard=extended).app) as url:
        assert cli("card", url, "--extended").json["name"] == "For you"


# call: results


def test_an_object_is_printed_as_json(agent: str, cli: Cli) -> None:
    outcome = cli("call", agent, "gives", "--input", '{"what": "object"}')

    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.json == {"n": 1, "text": "é"}
    assert "é" in outcome.out


def test_files_are_printed_in_base64(agent: str, cli: Cli) -> None:
    outcome = cli("call", agent, "gives", "--input", '{"what": "object and file"}')

    assert outcome.json == {"n": 1, "chart.png": b64encode(b"\x89PNG").decode()}


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
def test_each_kind_of_value_is_printed_as_json(parts: list[Json], value: Any, cli: Cli) -> None:
    outcome = call_with_result(cli, task("COMPLETED", *parts))

    assert (outcome.code, outcome.json, outcome.err) == (0, value, "")


def test_an_answer_without_a_task_is_printed(cli: Cli) -> None:
    message = {"role": "ROLE_AGENT", "messageId": "m", "parts": [{"text": "hello"}]}
    with running(FakeAgent(SendMessage={"result": {"message": message}}).app) as url:
        outcome = cli("call", url, "x")

    assert (outcome.code, outcome.json) == (0, "hello")


def test_chunks_are_printed_line_by_line(agent: str, cli: Cli) -> None:
    outcome = cli("call", agent, "counts", "--stream")

    assert (outcome.code, outcome.json_lines, outcome.err) == (0, [{"one": 1}, {"two": 2}], "")


@pytest.mark.parametrize("options", [[], ["--stream"], ["--follow"]], ids=" ".join)
def test_progress_messages_are_printed_to_stderr(options: list[str], cli: Cli) -> None:
    events = [
        {"task": task("WORKING")},
        report("Reading", {"sources": 12}),
        status("WORKING"),
        text_chunk("The sources "),
        report("Writing\nand more"),
        report(HOSTILE),
        text_chunk("agree."),
        status("COMPLETED"),
    ]
    fake = FakeAgent(
        {"capabilities": {"streaming": True}},
        SendMessage=send_result(task("WORKING")),
        GetTask={"result": task("WORKING")},
        SubscribeToTask=events,
        SendStreamingMessage=events,
    )
    with running(fake.app) as url:
        command = ["tasks", url, "t-1"] if "--follow" in options else ["call", url, "x"]
        outcome = cli(*command, *options)

    assert outcome.code == 0
    first, second, third, *others = outcome.err.splitlines()
    assert (first, second, third) == ("working: Reading", "working: Writing", "    and more")
    assert [line[:15] for line in others] == ["working: ]0;own"]
    check_harmless(outcome)
    values = {"--stream": ["The sources ", "agree."], "": ["The sources agree."]}
    if "--follow" not in options:
        assert outcome.json_lines == values["".join(options)]


def test_the_progress_of_a_module_is_not_a_result(agent: str, cli: Cli) -> None:
    outcome = cli("call", agent, "reads", "--stream")

    assert (outcome.code, outcome.json_lines) == (0, [{"read": 1}])
    assert outcome.err == "working: Reading\nworking: Writing\n"


def test_a_stream_without_chunks_ends_with_the_result(agent: str, cli: Cli) -> None:
    outcome = cli("call", agent, "echo", "--input", "hi", "--stream")

    assert (outcome.code, outcome.json_lines) == (0, [ECHOED])


def test_an_agent_without_streaming_can_be_called_with_stream(cli: Cli) -> None:
    outcome = call_with_result(cli, task("COMPLETED", {"text": "all"}), "--stream")

    assert (outcome.code, outcome.json_lines) == (0, ["all"])


def test_a_long_task_is_polled_if_the_agent_cannot_stream(cli: Cli) -> None:
    completed = {"result": task("COMPLETED", {"text": "late"})}
    fake = FakeAgent(SendMessage=send_result(task("WORKING")), GetTask=completed)
    with running(fake.app) as url:
        outcome = cli("call", url, "x")

    assert (outcome.code, outcome.json) == (0, "late")
    assert fake.bodies[0]["params"]["configuration"] == {"returnImmediately": True}


@pytest.mark.parametrize("options", [[], ["--stream"]])
def test_a_failed_task_exits_with_3_and_says_why(options: list[str], agent: str, cli: Cli) -> None:
    outcome = cli("call", agent, "fails", "--input", '{"what": "no beans"}', *options)

    assert (outcome.code, outcome.out) == (3, "")
    assert re.match("apcore-a2a: The task .*failed.*no beans", outcome.err)


@pytest.mark.parametrize("state", ["FAILED", "REJECTED", "CANCELED"])
def test_an_unsuccessful_task_without_a_message_exits_with_3(state: str, cli: Cli) -> None:
    outcome = call_with_result(cli, task(state))

    assert (outcome.code, outcome.out) == (3, "")
    assert outcome.err == f"apcore-a2a: The task is {state.lower()}\n"


def test_the_data_of_a_failure_is_printed_too(cli: Cli) -> None:
    outcome = call_with_result(
        cli, task("FAILED", status_parts=[{"text": "broken"}, {"data": {"code": -1}}])
    )

    assert "broken" in outcome.err
    assert '{"code": -1}' in outcome.err


def test_a_paused_task_exits_with_4_and_can_be_answered(agent: str, cli: Cli) -> None:
    paused = cli("call", agent, "greets")

    assert (paused.code, paused.err) == (4, "")
    assert paused.json["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert paused.json["status"]["message"]["parts"][0]["text"] == "Who are you?"

    outcome = cli("call", agent, "greets", "--task", paused.json["id"], "--input", "Ada")
    assert (outcome.code, outcome.json) == (0, {"hello": "Ada"})


@pytest.mark.parametrize("options", [[], ["--stream"]])
def test_denying_the_approval_rejects_the_task(options: list[str], agent: str, cli: Cli) -> None:
    paused = cli("call", agent, "pays", *options).json
    arguments = ["--task", paused["id"], "--context", paused["contextId"], "--input", "no"]

    outcome = cli("call", agent, "pays", *arguments, *options)
    assert (outcome.code, outcome.out) == (3, "")
    assert "The task is rejected" in outcome.err


def test_a_call_belongs_to_its_conversation(agent: str, cli: Cli) -> None:
    cli("call", agent, "echo", "--input", "hi", "--context", "talk-1")
    listed = cli("tasks", agent, "--context", "talk-1").json["tasks"]

    assert [listed_task["contextId"] for listed_task in listed] == ["talk-1"]


# call: input and files


@pytest.mark.parametrize("text", ['{"text": "hi"}', ' {"text":"hi"}', "hi", '"hi"'])
def test_the_input_is_json_or_text(text: str, agent: str, cli: Cli) -> None:
    assert cli("call", agent, "echo", "--input", text).json == ECHOED


@pytest.mark.parametrize("text", ["-5", "null", "12", "true", "a [b]", "ünï\n☃"])
def test_input_that_is_not_an_object_list_or_quoted_string_is_sent_as_text(
    text: str, agent: str, cli: Cli
) -> None:
    assert cli("call", agent, "echo", f"--input={text}").json == {"text": text}


def test_without_input_an_empty_object_is_sent(agent: str, cli: Cli) -> None:
    assert cli("call", agent, "mirror").json == {}


@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_input_is_read_from_a_file(start: str, agent: str, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "in.json").write_text(start + '{\n"text": "hi"}\n', encoding="utf-8")

    assert cli("call", agent, "echo", "--input", "@in.json").json == ECHOED


def test_input_is_read_from_standard_input(
    agent: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"text": "hi"}'))

    assert cli("call", agent, "echo", "--input", "-").json == ECHOED


def test_files_are_sent(agent: str, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "é.csv").write_text("a\n1\n")
    fake = FakeAgent(SendMessage=send_result(task()))
    with running(fake.app) as url:
        assert cli("call", url, "x", "--file", "é.csv", "--file", "é.csv").code == 0
        assert cli("call", url, "x", "--input", "{}", "--file", "é.csv").code == 0

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
        (["--timeout", "0"], "timeout must be more than 0"),
        (["--timeout", "nan"], "timeout must be more than 0"),
        (["--timeout", "inf"], "timeout must be more than 0"),
        (["--timeout", "1e300"], "timeout must be more than 0"),
        (["--protocol", "2.0"], "--protocol"),
        (["--sream"], "--stream"),
        (["--auth", "a", "--api-key", "b"], "--auth and --api-key cannot be combined"),
        (["--auth", "two\nlines"], "characters invalid in a header"),
        (["--output", "bytes"], "bytes"),
        (["--output", "bytes/below"], "bytes"),
        (["--input", '{"n": NaN}'], "JSON"),
        (["--input", '"\\ud800"'], "JSON"),
    ],
)
def test_wrong_arguments_exit_with_1_before_the_agent_is_called(
    options: list[str], message: str, tmp_path: Path, cli: Cli
) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff")
    fake = FakeAgent(SendMessage=send_result(task("COMPLETED", {"text": "done"})))
    with running(fake.app) as url:
        outcome = cli("call", url, "x", *options)

    assert (outcome.code, outcome.out, fake.methods) == (1, "", [])
    assert message in outcome.err
    assert outcome.err.startswith("apcore-a2a")


def test_invalid_input_is_reported_field_by_field(agent: str, cli: Cli) -> None:
    order = {"customer": {"text": 1}, "items": [{"name": "a", "count": 0}]}
    outcome = cli("call", agent, "order", "--input", json.dumps(order))

    assert (outcome.code, outcome.out) == (3, "")
    summary, *fields = outcome.err.splitlines()
    assert summary == "apcore-a2a: Invalid params"
    assert sorted(line.partition(":")[0] for line in fields) == [
        "  customer.text",
        "  items.0.count",
    ]


def test_an_unknown_skill_exits_with_3(agent: str, cli: Cli) -> None:
    outcome = cli("call", agent, "ehco", "--input", "hi")

    assert (outcome.code, outcome.out, outcome.err) == (
        3,
        "",
        "apcore-a2a: Skill not found: ehco (did you mean echo?)\n",
    )


# Addresses without a working agent


def web_page() -> Any:
    from starlette.responses import HTMLResponse

    return HTMLResponse("<h1>Not an agent</h1>")


@pytest.mark.parametrize("arguments", [["card"], ["call", "x"], ["tasks"], ["tasks", "t"]])
def test_an_unreachable_agent_exits_with_2(arguments: list[str], cli: Cli) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    outcome = cli(arguments[0], url, *arguments[1:])

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"apcore-a2a: Can't connect to {url}")
    assert outcome.err.count("\n") == 1


def test_a_web_page_instead_of_an_agent_exits_with_2(cli: Cli) -> None:
    with running(web_page()) as url:
        outcome = cli("card", url)

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("apcore-a2a: No agent card: ")


@pytest.mark.parametrize(
    "url", ["", "localhost:80000x", "agent", "ftp://a", "http://", "http://a b"]
)
def test_an_invalid_url_exits_with_1(url: str, cli: Cli) -> None:
    outcome = cli("card", url)

    assert (outcome.code, outcome.out) == (1, "")
    assert re.match(r"apcore-a2a: (The agent's|Not) .*URL", outcome.err)


def test_the_error_for_a_url_without_a_scheme_suggests_adding_one(cli: Cli) -> None:
    outcome = cli("call", "agent.example", "text.stats")

    assert (outcome.code, outcome.out) == (1, "")
    assert re.search("got 'agent.example', write https?://agent.example\n", outcome.err)


def test_a_response_outside_the_protocol_exits_with_2(cli: Cli) -> None:
    with running(FakeAgent(SendMessage={"result": {"strange": 1}}).app) as url:
        outcome = cli("call", url, "x")

    assert (outcome.code, outcome.out) == (2, "")
    assert "neither a task nor a message" in outcome.err


def test_a_silent_agent_exits_with_2_after_the_timeout(cli: Cli) -> None:

    async def silent() -> Json:
        await asyncio.Event().wait()
        return {}

    with running(FakeAgent(SendMessage=silent).app) as url:
        outcome = cli("call", url, "x", "--timeout", "0.2")

    assert (outcome.code, outcome.out) == (2, "")
    assert "in time" in outcome.err


# call: without a skill, a scheme or JSON


def make_card(*ids: str, **members: Any) -> Json:
    return {"skills": [{"id": i, "name": i, "description": i, "tags": []} for i in ids], **members}


@pytest.mark.parametrize("ids", [(), ("one",), ("one", "two")])
def test_without_a_skill_the_only_one_is_called(ids: tuple[str, ...], cli: Cli) -> None:
    fake = FakeAgent(make_card(*ids), SendMessage=send_result(task("COMPLETED", {"text": "done"})))
    with running(fake.app) as url:
        outcome = cli("call", url, "--input", "hi")

    assert (outcome.code, outcome.json) == (0, "done")
    metadata = fake.bodies[0]["params"].get("metadata") or {}
    assert metadata.get("skillId") == (ids[0] if len(ids) == 1 else None)


def test_a_call_that_needs_a_skill_lists_those_of_the_agent(agent: str, cli: Cli) -> None:
    outcome = cli("call", agent, "--input", "hi")

    assert outcome.code == 3
    assert "Name one of the agent's skills after the URL: " in outcome.err
    assert "echo" in outcome.err


@pytest.mark.parametrize("command", COMMANDS)
def test_host_and_port_are_enough_for_this_machine(command: str, agent: str, cli: Cli) -> None:
    skill = ["echo"] if command == "call" else []
    outcome = cli(command, agent.removeprefix("http://"), *skill)
    assert outcome.code in (0, 3), outcome.err


TEXT_ONLY = {"defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"]}


@pytest.mark.parametrize(
    ("card", "part"),
    [
        (make_card("one", **TEXT_ONLY), {"text": '{"city": "Zürich"}'}),
        (make_card("one"), {"data": {"city": "Zürich"}}),
        (
            make_card(defaultInputModes=["text/plain", "application/json"]),
            {"data": {"city": "Zürich"}},
        ),
    ],
)
def test_json_is_sent_as_text_to_agents_that_take_only_text(
    card: Json, part: Json, cli: Cli
) -> None:
    fake = FakeAgent(card, SendMessage=send_result(task("COMPLETED", {"text": "done"})))
    with running(fake.app) as url:
        assert cli("call", url, "--input", '{"city": "Zürich"}').code == 0

    (sent,) = fake.bodies[0]["params"]["message"]["parts"]
    assert part.items() <= sent.items()


@pytest.mark.parametrize(
    "last_event",
    [
        {"task": task("COMPLETED", {"text": "all"})},
        {"task": task("COMPLETED", status_parts=[{"text": "all"}])},
        {"message": {"role": "ROLE_AGENT", "messageId": "m", "parts": [{"text": "all"}]}},
    ],
)
def test_a_result_in_the_last_event_of_a_stream_is_printed(last_event: Json, cli: Cli) -> None:
    card = {"capabilities": {"streaming": True}}
    events = [{"task": task("WORKING")}, last_event] if "task" in last_event else [last_event]
    with running(FakeAgent(card, SendStreamingMessage=events).app) as url:
        outcome = cli("call", url, "--stream", "--input", "hi")

        assert (outcome.code, outcome.json_lines) == (0, ["all"])
        with SyncA2AClient(url) as client:
            assert [*client.stream("x", "hi")] == ["all"]


# Help


@pytest.mark.process
@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_fits_a_terminal_and_names_the_exit_codes(command: str, tmp_path: Path) -> None:
    outcome = run([command, "--help"], tmp_path, {"COLUMNS": "80"})

    assert (outcome.returncode, outcome.stderr) == (0, "")
    assert max(map(len, outcome.stdout.splitlines())) <= 80
    words = " ".join(outcome.stdout.split())
    for code in ("0 success", "1 wrong", "2 the agent", "3 the task", "4 the task", "130 inter"):
        assert code in words


@pytest.mark.process
def test_the_main_help_lists_the_commands(tmp_path: Path) -> None:
    printed = run(["--help"], tmp_path).stdout

    assert all(re.search(rf"^ +{command} +\w", printed, re.MULTILINE) for command in COMMANDS)


@pytest.mark.process
@pytest.mark.parametrize(
    ("typed", "completion"), [("apcore-a2a ca", "call"), ("apcore-a2a call --st", "--stream")]
)
def test_a_shell_completes_commands_and_options(
    typed: str, completion: str, tmp_path: Path
) -> None:
    count = len(typed.split()) - 1
    variables = {
        "COMP_WORDS": typed,
        "COMP_CWORD": str(count),
        "_APCORE_A2A_COMPLETE": "bash_complete",
    }
    outcome = run([], tmp_path, variables)

    assert (outcome.returncode, outcome.stderr) == (0, "")
    assert f"plain,{completion}" in outcome.stdout.splitlines()


def test_options_may_be_anywhere_on_the_command_line(agent: str, cli: Cli) -> None:
    outcome = cli("call", "--json", "--input", "hi", agent, "--timeout", "5", "echo", "--stream")

    assert (outcome.code, outcome.json_lines) == (0, [ECHOED])


def test_protocol_0_3_is_used_on_request(agent: str, cli: Cli) -> None:
    outcome = cli("call", agent, "echo", "--input", "hi", "--protocol", "0.3")
    assert (outcome.code, outcome.json) == (0, ECHOED)

    outcome = cli("call", agent, "counts", "--stream", "--protocol", "0.3")
    assert (outcome.code, outcome.json_lines) == (0, [{"one": 1}, {"two": 2}])

    fake = FakeAgent(**{"message/send": {"result": {**task(), "kind": "task"}}})
    with running(fake.app) as url:
        cli("call", url, "x", "--protocol", "0.3")
    assert fake.methods == ["message/send"]
