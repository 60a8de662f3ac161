"""What the commands keep from others, what they keep others from, and how they are stopped."""

import asyncio
import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from apcore_a2a_client import SyncA2AClient
from starlette.responses import Response

from tests.serving import running

from .processes import COMMAND, PATIENCE, environment
from .remote import HOSTILE, Command, Fake, Json, Outcome, harmless, sends, task
from .remote import _elsewhere as _elsewhere
from .remote import agent as agent
from .remote import do as do

SECRET = "hunter2-7319"
KEY_CARD: Json = {
    "securitySchemes": {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Mine"}}},
    "securityRequirements": [{"schemes": {"key": {"list": []}}}],
}

# Credentials and headers


def sent(do: Command, *options: str, card: Json | None = None) -> tuple[Outcome, dict[str, str]]:
    """What a call does, and the headers of its request."""
    fake = Fake(card, SendMessage=sends(task("COMPLETED", {"text": "done"})))
    with running(fake.app) as url:
        done = do("call", url, "x", *options)
    return done, dict(fake.requests[-1].headers)


@pytest.mark.parametrize(
    ("credentials", "header"),
    [(SECRET, f"Bearer {SECRET}"), (f"Basic {SECRET}", f"Basic {SECRET}")],
)
def test_credentials_are_sent_as_they_are_meant(
    credentials: str, header: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, do: Command
) -> None:
    (tmp_path / "token").write_text(f"{credentials}\n")
    for options in (["--auth", credentials], ["--auth", "@token"]):
        done, headers = sent(do, *options)
        assert (done.code, headers["authorization"]) == (0, header)
        assert SECRET not in done.out + done.err

    for value in (credentials, "@token", f"{credentials}\n"):
        monkeypatch.setenv("APCORE_A2A_AUTH", value)
        assert sent(do)[1].get("authorization") == header
    assert sent(do, "--auth", "other")[1]["authorization"] == "Bearer other"


def test_a_key_is_put_where_the_card_wants_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, do: Command
) -> None:
    (tmp_path / "key").write_text(f"{SECRET}\n")
    for options in (["--api-key", SECRET], ["--api-key", "@key"]):
        assert sent(do, *options, card=KEY_CARD)[1]["x-mine"] == SECRET
    assert sent(do, "--api-key", SECRET)[1]["x-api-key"] == SECRET

    for value in (SECRET, "@key"):
        monkeypatch.setenv("APCORE_A2A_API_KEY", value)
        assert sent(do, card=KEY_CARD)[1].get("x-mine") == SECRET
    assert "x-mine" not in sent(do, "--auth", "token", card=KEY_CARD)[1]


def test_a_file_without_a_secret_is_refused(tmp_path: Path, do: Command) -> None:
    (tmp_path / "empty").write_text("\n")
    for option in ("--auth", "--api-key"):
        done = do("card", "http://127.0.0.1:1", option, "@empty")
        assert done.code == 1
        assert "empty" in done.err


def test_headers_are_sent(do: Command) -> None:
    options = ["--header", "X-One: 1:2", "--header", "x-two:2"]
    headers = sent(do, *options)[1]

    assert (headers["x-one"], headers["x-two"]) == ("1:2", "2")


@pytest.mark.parametrize("value", ["X-Key:é", "X Key:a", "X-Key:a\tb"])
def test_a_header_that_can_t_be_sent_is_named_and_no_credentials_are(
    value: str, do: Command
) -> None:
    with running(Fake().app) as url:
        done = do("card", url, "--header", value)

    assert (done.code, done.out) == (1, "")
    assert "header" in done.err
    assert "redentials" not in done.err


@pytest.mark.parametrize("option", ["--auth", "--api-key"])
@pytest.mark.parametrize(
    "answer",
    [
        Response(status_code=401),
        Response(status_code=403),
        Response(status_code=500),
        Response(SECRET),
    ],
)
def test_no_refusal_shows_a_secret(option: str, answer: Response, do: Command) -> None:
    async def refuse() -> Response:
        return answer

    with running(Fake(SendMessage=refuse).app) as url:
        done = do("call", url, "x", option, SECRET)

    assert done.code in (2, 3)
    assert done.err.startswith("apcore-a2a: ")
    assert SECRET not in done.out + done.err


def test_an_agent_that_wants_credentials_refuses_and_the_option_is_named(do: Command) -> None:
    async def refuse() -> Response:
        return Response(status_code=401)

    with running(Fake(SendMessage=refuse).app) as url:
        done = do("call", url, "x")

    assert done.code == 3
    assert "--auth" in done.err
    assert "auth=" not in done.err


def test_a_url_with_a_password_is_refused_and_not_shown(do: Command) -> None:
    done = do("card", f"http://ada:{SECRET}@127.0.0.1:1")

    assert (done.code, done.out) == (1, "")
    assert SECRET not in done.err
    assert "--auth" in done.err


# Text of agents


def test_hostile_values_are_escaped_and_not_lost(agent: str, do: Command) -> None:
    for options in ([], ["--stream"]):
        done = do("call", agent, "gives", "--input", '{"what": "hostile"}', *options)

        harmless(done)
        assert done.json == {HOSTILE: HOSTILE}


def test_a_hostile_card_is_escaped(do: Command) -> None:
    schemes = {HOSTILE: {"httpAuthSecurityScheme": {"scheme": HOSTILE}}}
    words = dict.fromkeys(("name", "description", "version"), HOSTILE)
    skill = {"id": HOSTILE, "name": HOSTILE, "tags": [HOSTILE], "examples": [HOSTILE]}
    with running(Fake({**words, "securitySchemes": schemes, "skills": [skill]}).app) as url:
        done = do("card", url)

    harmless(done)
    assert (done.json["name"], done.json["skills"][0]["id"]) == (HOSTILE, HOSTILE)


def test_hostile_complaints_are_cleaned(agent: str, do: Command) -> None:
    words = json.dumps({"what": HOSTILE})
    harmless(do("call", agent, "fails", "--input", words))
    harmless(do("call", agent, HOSTILE, "--input", words))

    errors = [{"field": HOSTILE, "message": HOSTILE}]
    error = {"code": -32602, "message": HOSTILE, "data": {"errors": errors}}
    said: list[Json] = [{"text": HOSTILE}, {"data": {HOSTILE: HOSTILE}}]
    for answer in ({"error": error}, sends(task("FAILED", said=said))):
        with running(Fake(SendMessage=answer).app) as url:
            done = do("call", url, "x")
        assert done.code == 3
        harmless(done)


def test_an_agent_can_t_forge_lines_of_ours(do: Command) -> None:
    error = {"code": -32603, "message": "no\napcore-a2a: done"}
    with running(Fake(SendMessage={"error": error}).app) as url:
        done = do("call", url, "x")

    assert "\napcore-a2a: " not in done.err


def test_half_a_character_is_printed_as_json(do: Command) -> None:
    with running(Fake(SendMessage=sends(task("COMPLETED", {"text": "a\ud800"}))).app) as url:
        done = do("call", url, "x")

    assert (done.code, done.err) == (0, "")
    assert done.json == "a\ud800"


@pytest.mark.parametrize("depth", [450, 900])
def test_deep_answers_are_printed_or_refused_in_our_words(depth: int, do: Command) -> None:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    with running(Fake(SendMessage=sends(task("COMPLETED", {"data": value}))).app) as url:
        done = do("call", url, "x")

    assert "RecursionError" not in done.err
    assert done.code == 2 or done.json == value


# Processes


def begun(home: Path, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=home,
        env=environment(home),
        text=True,
        **{"stdout": pipe, "stderr": pipe, **options},
    )


@pytest.mark.process
@pytest.mark.smoke
def test_an_interrupted_call_cancels_its_task(tmp_path: Path) -> None:
    followed = threading.Event()

    async def follow() -> Json:
        followed.set()
        await asyncio.Event().wait()
        return {}

    fake = Fake(
        {"capabilities": {"streaming": True}},
        SendMessage=sends(task("WORKING")),
        SubscribeToTask=follow,
        CancelTask={"result": task("CANCELED")},
    )
    with running(fake.app) as url, begun(tmp_path, "call", url, "x") as command:
        assert followed.wait(PATIENCE)
        command.send_signal(signal.SIGINT)
        out, err = command.communicate(timeout=PATIENCE)

    assert (command.returncode, out) == (130, "")
    assert err.strip() == "Canceled task t-1"
    assert fake.bodies[-1]["params"] == {"id": "t-1"}


@pytest.mark.process
def test_an_interrupted_stream_is_canceled_at_the_agent(agent: str, tmp_path: Path) -> None:
    arguments = ["call", agent, "waits", "--stream", "--context", "interrupted"]
    with begun(tmp_path, *arguments) as command:
        assert command.stdout
        assert json.loads(command.stdout.readline()) == {"one": 1}
        command.send_signal(signal.SIGINT)
        _, err = command.communicate(timeout=PATIENCE)

    assert command.returncode == 130
    with SyncA2AClient(agent) as client:
        (found,) = client.iter_tasks("interrupted")
    assert found.status.state == "canceled"
    assert err.strip() == f"Canceled task {found.id}"


@pytest.mark.process
def test_who_only_follows_a_task_does_not_cancel_it(tmp_path: Path) -> None:
    followed = threading.Event()

    async def follow() -> Json:
        followed.set()
        await asyncio.Event().wait()
        return {}

    streaming = {"capabilities": {"streaming": True}}
    fake = Fake(streaming, GetTask={"result": task("WORKING")}, SubscribeToTask=follow)
    with running(fake.app) as url, begun(tmp_path, "tasks", url, "t-1", "--follow") as command:
        assert followed.wait(PATIENCE)
        command.send_signal(signal.SIGINT)
        _, err = command.communicate(timeout=PATIENCE)

    assert (command.returncode, err) == (130, "")
    assert fake.methods == ["GetTask", "SubscribeToTask"]


@pytest.mark.process
def test_an_interrupt_while_the_input_is_read_ends_quietly(tmp_path: Path) -> None:
    code = """
import sys
from apcore_a2a.command.main import main
class Slow:
    def read(self): raise KeyboardInterrupt
sys.stdin = Slow()
sys.exit(main(["call", "http://127.0.0.1:1", "x", "--input", "-"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=tmp_path,
    )

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.process
@pytest.mark.parametrize("arguments", [["card"], ["tasks"], ["call", "gives"]])
def test_a_pipe_that_nobody_reads_ends_it_quietly(
    arguments: list[str], agent: str, tmp_path: Path
) -> None:
    given = ["--input", '{"what": "object"}'] if "gives" in arguments else []
    command = begun(tmp_path, arguments[0], agent, *arguments[1:], *given)
    with command:
        assert command.stdout
        command.stdout.close()  # before anything is printed
        assert command.stderr
        err = command.stderr.read()
        command.wait(PATIENCE)

    assert err == ""
    assert command.returncode != 2


@pytest.mark.process
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_unicode_gets_json_anyway(encoding: str, tmp_path: Path) -> None:
    fake = Fake({"name": "☃"}, SendMessage=sends(task("FAILED", said=[{"text": "☃"}])))
    with running(fake.app) as url:
        outcomes = []
        for arguments in (["card", url], ["call", url, "x"]):
            outcomes.append(
                subprocess.run(
                    [*COMMAND, *arguments],
                    check=False,
                    capture_output=True,
                    env={**environment(tmp_path), "PYTHONIOENCODING": encoding},
                    timeout=PATIENCE,
                    cwd=tmp_path,
                )
            )

    card, failed = outcomes
    assert (card.returncode, card.stderr) == (0, b"")
    assert json.loads(card.stdout.decode(encoding))["name"] == "☃"
    assert failed.returncode == 3
    assert failed.stderr.startswith(b"apcore-a2a: The task")


@pytest.mark.process
def test_large_inputs_and_results_pass_unharmed(tmp_path: Path, agent: str) -> None:
    given = json.dumps({"text": "é" * 1_000_000})
    done = subprocess.run(
        [*COMMAND, "call", agent, "echo", "--input", "-"],
        check=False,
        input=given,
        capture_output=True,
        text=True,
        env=environment(tmp_path),
        timeout=PATIENCE,
        cwd=tmp_path,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == json.loads(given)
