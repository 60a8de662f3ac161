"""Safety of the commands that call agents: credentials, hostile texts, and interrupts."""

import asyncio
import json
import signal
import subprocess
import sys
import threading
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

import pytest
from apcore_a2a_client import SyncA2AClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.serving import running

from .processes import COMMAND, PATIENCE, environment
from .remote import (
    HOSTILE,
    Cli,
    FakeAgent,
    Json,
    Outcome,
    check_harmless,
    report,
    send_result,
    status,
    task,
)
from .remote import _clean_environment as _clean_environment
from .remote import agent as agent
from .remote import cli as cli

SECRET = "hunter2-7319"
KEY_CARD: Json = {
    "securitySchemes": {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Mine"}}},
    "securityRequirements": [{"schemes": {"key": {"list": []}}}],
}

# Credentials and headers


def call_with(cli: Cli, *options: str, card: Json | None = None) -> tuple[Outcome, dict[str, str]]:
    """Run `call` with options; return its outcome and the headers of its last request."""
    fake = FakeAgent(card, SendMessage=send_result(task("COMPLETED", {"text": "done"})))
    with running(fake.app) as url:
        outcome = cli("call", url, "x", *options)
    return outcome, dict(fake.requests[-1].headers)


@pytest.mark.parametrize(
    ("credentials", "header"),
    [(SECRET, f"Bearer {SECRET}"), (f"Basic {SECRET}", f"Basic {SECRET}")],
)
def test_credentials_are_sent_as_a_bearer_token_unless_they_name_a_scheme(
    credentials: str, header: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    (tmp_path / "token").write_text(f"{credentials}\n")
    for options in (["--auth", credentials], ["--auth", "@token"]):
        outcome, headers = call_with(cli, *options)
        assert (outcome.code, headers["authorization"]) == (0, header)
        assert SECRET not in outcome.out + outcome.err

    for value in (credentials, "@token", f"{credentials}\n"):
        monkeypatch.setenv("APCORE_A2A_AUTH", value)
        assert call_with(cli)[1].get("authorization") == header
    assert call_with(cli, "--auth", "other")[1]["authorization"] == "Bearer other"


def test_an_api_key_is_sent_in_the_header_that_the_card_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    (tmp_path / "key").write_text(f"{SECRET}\n")
    for options in (["--api-key", SECRET], ["--api-key", "@key"]):
        assert call_with(cli, *options, card=KEY_CARD)[1]["x-mine"] == SECRET
    assert call_with(cli, "--api-key", SECRET)[1]["x-api-key"] == SECRET

    for value in (SECRET, "@key"):
        monkeypatch.setenv("APCORE_A2A_API_KEY", value)
        assert call_with(cli, card=KEY_CARD)[1].get("x-mine") == SECRET
    assert "x-mine" not in call_with(cli, "--auth", "token", card=KEY_CARD)[1]


@pytest.mark.parametrize(
    ("options", "flag", "variable"),
    [
        (["--auth", SECRET], "--auth", "APCORE_A2A_AUTH"),
        (["--api-key", SECRET], "--api-key", "APCORE_A2A_API_KEY"),
        (["--header", f"authorization: {SECRET}"], "--header authorization", "APCORE_A2A_AUTH"),
        (["--header", f"X-API-Key:{SECRET}"], "--header X-API-Key", "APCORE_A2A_API_KEY"),
    ],
)
def test_a_secret_on_the_command_line_causes_a_warning(
    options: list[str], flag: str, variable: str, cli: Cli
) -> None:
    outcome, _ = call_with(cli, *options)

    assert outcome.code == 0
    (line,) = outcome.err.splitlines()
    assert f"can read {flag} in" in line
    assert f"set {variable} instead" in line


def test_secrets_in_files_and_variables_cause_no_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    (tmp_path / "token").write_text(SECRET)
    assert call_with(cli, "--auth", "@token")[0].err == ""
    monkeypatch.setenv("APCORE_A2A_AUTH", SECRET)
    assert call_with(cli, "--header", "x-mine: 1")[0].err == ""


# Client credentials


@pytest.fixture
def login() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Yield the URL of an authorization server, and the requests for tokens that it gets."""
    requests: list[dict[str, str]] = []

    async def token(request: Request) -> JSONResponse:
        form = dict(parse_qsl((await request.body()).decode()))
        requests.append({**form, **dict(request.headers)})
        if SECRET not in unquote(b64decode(requests[-1]["authorization"][6:]).decode()):
            return JSONResponse({"error": "invalid_client", "error_description": SECRET}, 401)
        return JSONResponse({"access_token": "t-1", "token_type": "bearer", "expires_in": 60})

    async def metadata(request: Request) -> JSONResponse:
        base = str(request.base_url).rstrip("/")
        return JSONResponse({"issuer": base, "token_endpoint": f"{base}/token"})

    routes = [
        Route("/token", token, methods=["POST"]),
        Route("/.well-known/oauth-authorization-server", metadata),
    ]
    with running(Starlette(routes=routes)) as url:
        yield url, requests


def test_tokens_for_a_client_id_come_from_the_authorization_server(
    monkeypatch: pytest.MonkeyPatch, cli: Cli, login: tuple[str, list[dict[str, str]]]
) -> None:
    url, requests = login
    monkeypatch.setenv("APCORE_A2A_CLIENT_SECRET", f"{SECRET}\n")
    flow = {"clientCredentials": {"tokenUrl": f"{url}/token", "scopes": {}}}
    card: Json = {"securitySchemes": {"login": {"oauth2SecurityScheme": {"flows": flow}}}}
    for options in (
        ["--token-url", f"{url}/token", "--scope", "a b"],
        ["--issuer", url],
        ["--credentials-for", url],
    ):
        outcome, headers = call_with(cli, "--client-id", "me", *options, card=card)
        assert (outcome.code, headers["authorization"]) == (0, "Bearer t-1"), outcome
        assert SECRET not in outcome.out + outcome.err
    assert [request.get("scope") for request in requests] == ["a b", None, None]

    with running(FakeAgent(card).app) as agent_url:
        outcome = cli("call", agent_url, "x", "--client-id", "me")
    assert outcome.code == 1
    assert f"--credentials-for {url}" in outcome.err


def test_a_refused_client_secret_is_an_error_that_does_not_show_it(
    monkeypatch: pytest.MonkeyPatch, cli: Cli, login: tuple[str, list[dict[str, str]]]
) -> None:
    monkeypatch.setenv("APCORE_A2A_CLIENT_SECRET", "wrong-4711")
    with running(FakeAgent().app) as agent_url:
        outcome = cli("call", agent_url, "x", "--client-id", "me", "--issuer", login[0])
    assert outcome.code == 3
    assert "invalid_client" in outcome.err
    assert not [secret for secret in (SECRET, "wrong-4711") if secret in outcome.err]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--client-id", "me"], "APCORE_A2A_CLIENT_SECRET"),
        (["--scope", "a"], "--scope needs --client-id"),
        (["--token-url", "https://x"], "--token-url needs --client-id"),
    ],
)
def test_incomplete_client_credentials_are_wrong_arguments(
    options: list[str], problem: str, cli: Cli
) -> None:
    outcome = cli("call", "http://127.0.0.1:1", "x", *options)
    assert outcome.code == 1
    assert problem in outcome.err


@pytest.mark.parametrize(
    "options",
    [
        ["--auth", "@token"],
        ["--token-url", "https://x", "--issuer", "https://x"],
        ["--token-url", "ftp://x"],
    ],
)
def test_contradictory_or_invalid_client_credentials_are_wrong_arguments(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    (tmp_path / "token").write_text(SECRET)
    monkeypatch.setenv("APCORE_A2A_CLIENT_SECRET", SECRET)
    outcome = cli("call", "http://127.0.0.1:1", "x", "--client-id", "me", *options)
    assert outcome.code == 1
    assert SECRET not in outcome.err


# Credentials for another origin


@pytest.fixture
def elsewhere() -> Iterator[FakeAgent]:
    """Run an agent that only another agent's card points to; yield it with its `url` set."""
    fake = FakeAgent(SendMessage=send_result(task("COMPLETED", {"text": "done"})))
    with running(fake.app) as fake.url:
        yield fake


@pytest.fixture
def agent_with_foreign_interface(elsewhere: FakeAgent) -> Iterator[str]:
    """Yield the URL of an agent whose card points to `elsewhere`."""
    interface = {"url": elsewhere.url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    with running(FakeAgent({"supportedInterfaces": [interface]}).app) as url:
        yield url


@pytest.mark.parametrize("options", [["--auth", SECRET], ["--header", f"x-own:{SECRET}"]])
def test_without_permission_for_another_origin_the_command_exits_with_1_and_names_the_flag(
    options: list[str], agent_with_foreign_interface: str, elsewhere: FakeAgent, cli: Cli
) -> None:
    outcome = cli("call", agent_with_foreign_interface, "x", *options)

    assert (outcome.code, outcome.out) == (1, "")
    message = outcome.err.splitlines()[-1]
    assert agent_with_foreign_interface in message
    assert message.endswith(f"Allow it with --credentials-for {elsewhere.url}")
    assert SECRET not in message
    assert not elsewhere.requests


def test_credentials_are_sent_to_another_origin_that_is_allowed(
    agent_with_foreign_interface: str,
    elsewhere: FakeAgent,
    monkeypatch: pytest.MonkeyPatch,
    cli: Cli,
) -> None:
    monkeypatch.setenv("APCORE_A2A_AUTH", SECRET)
    outcome = cli("call", agent_with_foreign_interface, "x", "--credentials-for", elsewhere.url)

    assert (outcome.code, outcome.err) == (0, "")
    assert elsewhere.requests[0].headers["authorization"] == f"Bearer {SECRET}"


def test_without_credentials_a_card_may_lead_anywhere(
    agent_with_foreign_interface: str, elsewhere: FakeAgent, cli: Cli
) -> None:
    assert cli("call", agent_with_foreign_interface, "x").code == 0
    assert len(elsewhere.requests) == 1


@pytest.mark.parametrize("origin", ["", "agent.example", f"https://ada:{SECRET}@h", "https://h/x"])
def test_an_invalid_origin_is_refused(origin: str, cli: Cli) -> None:
    outcome = cli("card", "http://127.0.0.1:1", "--credentials-for", origin)

    assert outcome.code == 1
    assert "scheme, host and port" in outcome.err
    assert SECRET not in outcome.err


def test_an_agent_that_calls_itself_localhost_gets_the_credentials(
    monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """The card of an agent that listens on all interfaces says localhost, unless `url` is set."""
    monkeypatch.setenv("APCORE_A2A_AUTH", SECRET)
    fake = FakeAgent(SendMessage=send_result(task("COMPLETED", {"text": "done"})))
    with running(fake.app) as url:
        interface = dict(fake.card["supportedInterfaces"][0])
        interface["url"] = url.replace("127.0.0.1", "localhost")
        fake.card["supportedInterfaces"] = [interface]
        outcome = cli("call", url, "x")

    assert (outcome.code, outcome.err) == (0, "")
    assert fake.requests[-1].headers["authorization"] == f"Bearer {SECRET}"


# Restarts, headers and error messages


def test_a_restart_is_reported_if_chunks_were_printed(cli: Cli) -> None:
    def chunk(text: str, *, append: bool) -> Json:
        artifact = {"artifactId": "a", "parts": [{"text": text}]}
        return {"artifactUpdate": {"taskId": "t-1", "artifact": artifact, "append": append}}

    update = {"taskId": "t-1", "status": {"state": "TASK_STATE_WORKING"}}
    restart_event = {"statusUpdate": {**update, "metadata": {"apcore": {"restarted": True}}}}
    end_event = {"statusUpdate": {"taskId": "t-1", "status": {"state": "TASK_STATE_COMPLETED"}}}
    first_events: list[Json] = [{"task": task("WORKING")}, restart_event, chunk("1", append=False)]
    repeated_events = [restart_event, chunk("1", append=False), chunk("2", append=True), end_event]
    fake = FakeAgent(
        {"capabilities": {"streaming": True}}, SendStreamingMessage=first_events + repeated_events
    )
    with running(fake.app) as url:
        outcome = cli("call", url, "x", "--stream")

    assert (outcome.code, outcome.json_lines) == (0, ["1", "1", "2"])
    message = "The task was restarted: discard the chunks before this"
    assert outcome.err == f"apcore-a2a: {message}\n"


def test_an_empty_credentials_file_is_refused(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "empty").write_text("\n")
    for option in ("--auth", "--api-key"):
        outcome = cli("card", "http://127.0.0.1:1", option, "@empty")
        assert outcome.code == 1
        assert "empty" in outcome.err


def test_headers_are_sent(cli: Cli) -> None:
    options = ["--header", "X-One: 1:2", "--header", "x-two:2"]
    headers = call_with(cli, *options)[1]

    assert (headers["x-one"], headers["x-two"]) == ("1:2", "2")


@pytest.mark.parametrize("value", ["X-Key:é", "X Key:a", "X-Key:a\tb"])
def test_the_error_for_an_invalid_header_does_not_mention_credentials(value: str, cli: Cli) -> None:
    with running(FakeAgent().app) as url:
        outcome = cli("card", url, "--header", value)

    assert (outcome.code, outcome.out) == (1, "")
    assert "header" in outcome.err
    assert "redentials" not in outcome.err


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
def test_error_messages_do_not_show_credentials(option: str, answer: Response, cli: Cli) -> None:
    async def reply() -> Response:
        return answer

    with running(FakeAgent(SendMessage=reply).app) as url:
        outcome = cli("call", url, "x", option, SECRET)

    assert outcome.code in (2, 3)
    assert outcome.err.startswith("apcore-a2a: ")
    assert SECRET not in outcome.out + outcome.err


def test_the_error_for_a_401_names_the_option_for_credentials(cli: Cli) -> None:
    async def refuse() -> Response:
        return Response(status_code=401)

    with running(FakeAgent(SendMessage=refuse).app) as url:
        outcome = cli("call", url, "x")

    assert outcome.code == 3
    assert "--auth" in outcome.err
    assert "auth=" not in outcome.err


def test_a_url_with_a_password_is_refused_and_not_printed(cli: Cli) -> None:
    outcome = cli("card", f"http://ada:{SECRET}@127.0.0.1:1")

    assert (outcome.code, outcome.out) == (1, "")
    assert SECRET not in outcome.err
    assert "--auth" in outcome.err


# Texts from agents


def test_hostile_values_are_escaped_without_loss(agent: str, cli: Cli) -> None:
    for options in ([], ["--stream"]):
        outcome = cli("call", agent, "gives", "--input", '{"what": "hostile"}', *options)

        check_harmless(outcome)
        assert outcome.json == {HOSTILE: HOSTILE}


def test_a_hostile_card_is_escaped(cli: Cli) -> None:
    schemes = {HOSTILE: {"httpAuthSecurityScheme": {"scheme": HOSTILE}}}
    texts = dict.fromkeys(("name", "description", "version"), HOSTILE)
    skill = {"id": HOSTILE, "name": HOSTILE, "tags": [HOSTILE], "examples": [HOSTILE]}
    with running(FakeAgent({**texts, "securitySchemes": schemes, "skills": [skill]}).app) as url:
        outcome = cli("card", url)

    check_harmless(outcome)
    assert (outcome.json["name"], outcome.json["skills"][0]["id"]) == (HOSTILE, HOSTILE)


def test_hostile_error_messages_are_cleaned(agent: str, cli: Cli) -> None:
    arguments = json.dumps({"what": HOSTILE})
    check_harmless(cli("call", agent, "fails", "--input", arguments))
    check_harmless(cli("call", agent, HOSTILE, "--input", arguments))

    errors = [{"field": HOSTILE, "message": HOSTILE}]
    error = {"code": -32602, "message": HOSTILE, "data": {"errors": errors}}
    parts: list[Json] = [{"text": HOSTILE}, {"data": {HOSTILE: HOSTILE}}]
    for answer in ({"error": error}, send_result(task("FAILED", status_parts=parts))):
        with running(FakeAgent(SendMessage=answer).app) as url:
            outcome = cli("call", url, "x")
        assert outcome.code == 3
        check_harmless(outcome)


def test_an_agent_cannot_forge_lines_of_the_commands_output(cli: Cli) -> None:
    error = {"code": -32603, "message": "no\napcore-a2a: done"}
    with running(FakeAgent(SendMessage={"error": error}).app) as url:
        outcome = cli("call", url, "x")

    assert "\napcore-a2a: " not in outcome.err


def test_a_lone_surrogate_is_printed_as_json(cli: Cli) -> None:
    with running(
        FakeAgent(SendMessage=send_result(task("COMPLETED", {"text": "a\ud800"}))).app
    ) as url:
        outcome = cli("call", url, "x")

    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.json == "a\ud800"


@pytest.mark.parametrize("depth", [450, 900])
def test_deeply_nested_results_cause_no_recursion_error(depth: int, cli: Cli) -> None:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    with running(FakeAgent(SendMessage=send_result(task("COMPLETED", {"data": value}))).app) as url:
        outcome = cli("call", url, "x")

    assert "RecursionError" not in outcome.err
    assert outcome.code == 2 or outcome.json == value


def test_progress_with_deeply_nested_data_causes_no_recursion_error(cli: Cli) -> None:
    value: Any = 1
    for _ in range(450):
        value = [value]
    # a repeated report is not shown
    events = [report("Reading", value), report("Reading", value), status("COMPLETED")]
    fake = FakeAgent({"capabilities": {"streaming": True}}, SendStreamingMessage=events)
    with running(fake.app) as url:
        outcome = cli("call", url, "x", "--stream")

    assert (outcome.code, outcome.err) == (0, "working: Reading\n")


# Processes


def start(home: Path, *arguments: str, **options: Any) -> subprocess.Popen[str]:
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
    subscribed = threading.Event()

    async def follow() -> Json:
        subscribed.set()
        await asyncio.Event().wait()
        return {}

    fake = FakeAgent(
        {"capabilities": {"streaming": True}},
        SendMessage=send_result(task("WORKING")),
        SubscribeToTask=follow,
        CancelTask={"result": task("CANCELED")},
    )
    with running(fake.app) as url, start(tmp_path, "call", url, "x") as command:
        assert subscribed.wait(PATIENCE)
        command.send_signal(signal.SIGINT)
        out, err = command.communicate(timeout=PATIENCE)

    assert (command.returncode, out) == (130, "")
    assert err.strip() == "Canceled task t-1"
    assert fake.bodies[-1]["params"] == {"id": "t-1"}


@pytest.mark.process
def test_the_task_of_an_interrupted_stream_is_canceled(agent: str, tmp_path: Path) -> None:
    arguments = ["call", agent, "waits", "--stream", "--context", "interrupted"]
    with start(tmp_path, *arguments) as command:
        assert command.stdout
        assert json.loads(command.stdout.readline()) == {"one": 1}
        command.send_signal(signal.SIGINT)
        _, err = command.communicate(timeout=PATIENCE)

    assert command.returncode == 130
    with SyncA2AClient(agent) as client:
        (listed,) = client.iter_tasks("interrupted")
    assert listed.status.state == "canceled"
    assert err.strip() == f"Canceled task {listed.id}"


@pytest.mark.process
def test_interrupting_tasks_follow_does_not_cancel_the_task(tmp_path: Path) -> None:
    subscribed = threading.Event()

    async def follow() -> Json:
        subscribed.set()
        await asyncio.Event().wait()
        return {}

    streaming = {"capabilities": {"streaming": True}}
    fake = FakeAgent(streaming, GetTask={"result": task("WORKING")}, SubscribeToTask=follow)
    with running(fake.app) as url, start(tmp_path, "tasks", url, "t-1", "--follow") as command:
        assert subscribed.wait(PATIENCE)
        command.send_signal(signal.SIGINT)
        _, err = command.communicate(timeout=PATIENCE)

    assert (command.returncode, err) == (130, "")
    assert fake.methods == ["GetTask", "SubscribeToTask"]


@pytest.mark.process
def test_an_interrupt_while_the_input_is_read_ends_the_command_quietly(tmp_path: Path) -> None:
    code = """
import sys
from apcore_a2a.command.main import main
class InterruptedInput:
    def read(self): raise KeyboardInterrupt
sys.stdin = InterruptedInput()
sys.exit(main(["call", "http://127.0.0.1:1", "x", "--input", "-"]))
"""
    outcome = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=tmp_path,
    )

    assert (outcome.returncode, outcome.stdout, outcome.stderr) == (130, "", "")


@pytest.mark.process
@pytest.mark.parametrize("arguments", [["card"], ["tasks"], ["call", "gives"]])
def test_a_closed_pipe_ends_the_command_quietly(
    arguments: list[str], agent: str, tmp_path: Path
) -> None:
    input_options = ["--input", '{"what": "object"}'] if "gives" in arguments else []
    command = start(tmp_path, arguments[0], agent, *arguments[1:], *input_options)
    with command:
        assert command.stdout
        command.stdout.close()  # before the command prints anything
        assert command.stderr
        err = command.stderr.read()
        command.wait(PATIENCE)

    assert err == ""
    assert command.returncode != 2


@pytest.mark.process
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_json_is_printed_in_encodings_without_unicode(encoding: str, tmp_path: Path) -> None:
    fake = FakeAgent(
        {"name": "☃"}, SendMessage=send_result(task("FAILED", status_parts=[{"text": "☃"}]))
    )
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
def test_large_inputs_and_results_arrive_unchanged(tmp_path: Path, agent: str) -> None:
    text = json.dumps({"text": "é" * 1_000_000})
    outcome = subprocess.run(
        [*COMMAND, "call", agent, "echo", "--input", "-"],
        check=False,
        input=text,
        capture_output=True,
        text=True,
        env=environment(tmp_path),
        timeout=PATIENCE,
        cwd=tmp_path,
    )

    assert (outcome.returncode, outcome.stderr) == (0, "")
    assert json.loads(outcome.stdout) == json.loads(text)
