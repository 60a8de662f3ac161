"""Log records of requests, with caller, operation and duration, but no content."""

import json
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import jwt
import pytest
from apcore_a2a_auth import APIKeyAuthenticator
from apcore_a2a_server.app.options import ServeSettings
from apcore_a2a_server.app.serve import shows_errors
from apcore_a2a_server.middleware import set_up_logging
from apcore_a2a_server.push import PushSettings

from tests.facade.processes import COMMAND, extensions, process
from tests.server.checking_client import MODERN, Agent, Json

from .byhand import CARD, CONTROL, HOSTILE, KEY, LONG, WIDTH, connected, request

SECRET = "a secret of more than thirty-two bytes"
FAILING_MODULE = """
from pydantic import BaseModel

class Text(BaseModel):
    text: str

class FailingModule:
    description = "Does not work"
    input_schema = output_schema = Text

    def execute(self, inputs, context):
        raise ValueError(inputs["text"])
"""
PLACES = [
    "path",
    "query",
    "header",
    "method",
    "skill",
    "task",
    "message",
    "tenant",
    "issuer",
    "subject",
]


def token(name: str = "ada", seconds: float = 60, **claims: str) -> str:
    return jwt.encode({"sub": name, "exp": time.time() + seconds, **claims}, SECRET, "HS256")


def bearer_headers(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


class Log(NamedTuple):
    """Log of an agent, and secrets that it must not contain."""

    text: str
    secrets: list[str]

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def records(self) -> list[Json]:
        return [json.loads(line) for line in self.lines]

    @property
    def accesses(self) -> list[Json]:
        return [record for record in self.records if record["logger"] == "apcore_a2a.access"]


def send_text(client: httpx.Client, place: str, text: str) -> None:
    """Send *text* in one *place* of a POST request, and its URL and headers by GET too."""
    agent, start, auth_headers = Agent(client, "1.0"), text[:9000], bearer_headers(token())
    params = agent.params(text if place == "skill" else "echo")
    params["message"] |= {"taskId": text} if place == "task" else {}
    params["message"] |= {"messageId": text, "contextId": text} if place == "message" else {}
    call = {"jsonrpc": "2.0", "id": text, "method": "SendMessage", "params": params}
    call |= {"method": text} if place == "method" else {}
    if place == "issuer":
        auth_headers = bearer_headers(token(iss=start))
    elif place == "subject":
        auth_headers = bearer_headers(token(start))
    elif place == "header":
        auth_headers["X-Any"] = auth_headers["User-Agent"] = start.translate(
            dict.fromkeys((0, 10, 13, 27, 127))
        )
    paths = {"path": f"/{quote(start)}", "tenant": f"/{quote(start)}/tasks/{quote(start)}"}
    url = paths.get(place, "/") + (f"?{quote(start)}={quote(start)}" if place == "query" else "")
    all_headers = {**MODERN, **auth_headers}.items()
    headers = [(name.encode(), value.encode()) for name, value in all_headers]
    client.post(url, json=call, headers=headers)
    client.get(url, headers=headers)


@contextmanager
def logging_agent(home: Path, *options: str) -> Iterator[tuple[httpx.Client, list[str]]]:
    """Yield a client of a real agent, and a list that gets its log when the agent has ended."""
    rules = home / "acl.yaml"
    deny_rule = {"callers": ["*"], "targets": ["nap"], "effect": "deny"}
    rules.write_text(
        json.dumps({"default_effect": "allow", "rules": [deny_rule]}), encoding="utf-8"
    )
    folder, log = extensions(home, "echo.py", "nap.py"), list[str]()
    (folder / "breaks.py").write_text(FAILING_MODULE, encoding="utf-8")
    command = [*COMMAND, "serve", "--extensions-dir", str(folder), "--acl", str(rules)]
    with process([*command, "--host=127.0.0.1", "--port=0", *options], home) as agent:
        with httpx.Client(base_url=agent.url, trust_env=False, timeout=20) as client:
            yield client, log
        assert agent.end(signal.SIGTERM) == 0
        log.append(agent.log)


def log_of_all_requests(home: Path, *options: str) -> Log:
    """Return the log of an agent that got every kind of request, with tokens."""
    auth = ["--auth-type=bearer", "--auth-key", SECRET]
    tokens = [token(), token() + "x", token(seconds=-3600), "nonsense but long"]
    with logging_agent(home, *auth, *options) as (client, log):
        for page in (CARD, "/health", "/nothing"):
            client.get(page)
        for bearer_token in tokens:
            client.get("/tasks", headers=bearer_headers(bearer_token))
        send_all_requests(client)
        if "--log-format=json" in options:  # in text, a stack trace has many lines
            assert Agent(client, "1.0").send("breaks").state == "failed"
    return Log("".join(log), [*tokens, SECRET])


def send_all_requests(client: httpx.Client) -> None:
    client.headers.update(bearer_headers(token()))
    sent = Agent(client, "1.0").send("echo")
    assert sent.state == "completed"
    Agent(client, "1.0").ask("get", {"id": sent.task["id"]})
    Agent(client, "REST").ask("list", {})
    assert Agent(client, "1.0").send("nap", {"data": {"seconds": 1}}).error
    for place in PLACES:
        send_text(client, place, HOSTILE + "y" * LONG + HOSTILE)
        send_text(client, place, HOSTILE)


@pytest.fixture(scope="module")
def json_log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    return log_of_all_requests(tmp_path_factory.mktemp("json"), "--log-format=json")


@pytest.fixture(scope="module")
def text_log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    return log_of_all_requests(tmp_path_factory.mktemp("text"))


# JSON format


@pytest.mark.process
@pytest.mark.smoke
def test_each_line_is_an_object_with_time_level_logger_and_message(json_log: Log) -> None:
    assert json_log.text.endswith("\n")
    assert json_log.lines == json_log.text.split("\n")[:-1]
    for record in json_log.records:
        assert {"time", "level", "logger", "message"} <= {*record}
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}", record["time"])
        assert record["level"] in ("INFO", "WARNING", "ERROR")
    assert len(json_log.records) > 30


@pytest.mark.process
@pytest.mark.smoke
def test_the_record_of_a_request_has_all_its_fields(json_log: Log) -> None:
    record = next(r for r in json_log.accesses if r.get("skill") == "echo")
    expected = {
        "method": "POST",
        "path": "/",
        "status": 200,
        "level": "INFO",
        "client": "127.0.0.1",
        "event": "request",
    }
    assert expected.items() <= record.items()
    assert (record["operation"], record["principal"], record["level"]) == (
        "SendMessage",
        "jwt|ada",
        "INFO",
    )
    assert re.fullmatch(r"[0-9a-f-]{36}", record["task"])
    assert 0 < record["duration_ms"] < 20_000
    assert record["message"].startswith("POST / SendMessage 200 ")
    operations = [r["operation"] for r in json_log.accesses if r.get("task") == record["task"]]
    assert operations == ["SendMessage", "GetTask"]


@pytest.mark.process
@pytest.mark.smoke
def test_unknown_fields_are_left_out(json_log: Log) -> None:
    records = [r for r in json_log.accesses if r["path"] == "/nothing"]
    assert [r["status"] for r in records] == [401]
    assert not {"principal", "operation", "task", "skill"} & {*records[0]}


@pytest.mark.process
@pytest.mark.smoke
def test_a_denied_call_is_a_warning_with_principal_and_skill(json_log: Log) -> None:
    (record,) = (r for r in json_log.records if r["message"].startswith("Access denied"))
    assert record["level"] == "WARNING"
    assert (record["principal"], record["skill"], record["client"]) == (
        "jwt|ada",
        "nap",
        "127.0.0.1",
    )
    assert "skill=nap" in record["message"]


@pytest.mark.process
@pytest.mark.smoke
def test_a_stack_trace_is_in_one_record_without_the_message_of_its_exception(
    json_log: Log,
) -> None:
    (record,) = (r for r in json_log.records if r["message"].startswith("Skill failed"))
    assert (record["level"], record["principal"], record["skill"]) == ("ERROR", "jwt|ada", "breaks")
    assert len(record["exc_info"].splitlines()) > 5
    assert "ValueError" in record["exc_info"]
    assert "hello" not in record["exc_info"]


@pytest.mark.process
def test_the_message_of_an_exception_is_logged_on_localhost_without_authentication(
    tmp_path: Path,
) -> None:
    with logging_agent(tmp_path, "--log-format=json") as (client, log):
        assert Agent(client, "1.0").send("breaks").state == "failed"
    (line,) = (line for line in "".join(log).splitlines() if "Skill failed" in line)
    assert "ValueError: hello" in json.loads(line)["exc_info"]


@pytest.mark.parametrize(
    ("options", "is_shown"),
    [
        ({"host": "127.0.0.1"}, True),
        ({"host": "localhost"}, True),
        ({"host": "0.0.0.0"}, False),
        ({"host": "127.0.0.1", "uds": "agent.sock"}, False),
        ({"host": "127.0.0.1", "auth": APIKeyAuthenticator({"key": "ada"})}, False),
        ({"host": "127.0.0.1", "error_texts": False}, False),
        ({"host": "0.0.0.0", "error_texts": True}, True),
        ({"host": "0.0.0.0", "push_notifications": PushSettings(dev=True)}, True),
        ({"host": "0.0.0.0", "push_notifications": True}, False),
    ],
)
def test_only_developers_see_error_texts_by_default(
    options: dict[str, Any], is_shown: bool
) -> None:
    assert shows_errors(ServeSettings(**options)) is is_shown


@pytest.mark.process
@pytest.mark.smoke
def test_no_value_of_a_client_is_long_or_has_control_characters(json_log: Log) -> None:
    for record in json_log.records:
        record.pop("exc_info", None)
        texts = [value for value in record.values() if isinstance(value, str)]
        assert not [text for text in texts if len(text) > WIDTH or CONTROL.search(text)]
    statuses = {record["status"] for record in json_log.accesses}
    assert statuses >= {200, 401, 404}
    assert any(len(record.get("principal", "")) > 900 for record in json_log.accesses)


@pytest.mark.process
def test_requests_for_public_pages_are_not_logged(json_log: Log, text_log: Log) -> None:
    assert not [record for record in json_log.accesses if record["path"] in (CARD, "/health")]
    assert "/health 200" not in text_log.text


# Text format


@pytest.mark.process
def test_each_line_begins_with_time_and_level(text_log: Log) -> None:
    assert text_log.lines == text_log.text.split("\n")[:-1]
    for line in text_log.lines:
        assert re.match(r"\d\d:\d\d:\d\d (INFO   |WARNING) \S", line), line
    assert len(text_log.lines) > 30


@pytest.mark.process
def test_no_value_in_a_line_is_long_or_has_control_characters(text_log: Log) -> None:
    for line in text_log.lines:
        assert not CONTROL.search(line)
        values = re.split("  (?=(?:client|principal|task|skill|trace_id)=)", line)
        assert max(map(len, values)) <= WIDTH + len("principal=")
    assert any("principal=jwt|a\\nb[31mc" in line for line in text_log.lines)


@pytest.mark.process
def test_a_line_ends_with_the_fields_of_the_request(text_log: Log) -> None:
    fields = "client=127.0.0.1  principal=jwt[|]ada  task=[0-9a-f-]{36}  skill=echo"
    trace = "trace_id=[0-9a-f]{32}"
    pattern = rf"INFO    POST / SendMessage 200 [\d.]+ ms  {fields}  {trace}$"
    assert [line for line in text_log.lines if re.search(pattern, line)]
    denied = next(line for line in text_log.lines if "Access denied" in line)
    assert re.search(
        rf"WARNING Access denied: skill=nap .*principal=jwt[|]ada .*skill=nap  {trace}$", denied
    )


# Log levels


@pytest.fixture(scope="module")
def debug_log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """Return the log of an agent at level DEBUG that was called with API keys."""
    home = tmp_path_factory.mktemp("debug")
    auth = ["--auth-type=apikey", "--auth-key", KEY, "--log-level=debug", "--log-format=json"]
    wrong_key = "not the key, but nearly"
    with logging_agent(home, *auth) as (client, log):
        for key in (KEY, wrong_key):
            client.headers.update({"X-API-Key": key, "Authorization": f"Basic {key}"})
            for page in (CARD, "/health", "/tasks"):
                client.get(page)
        client.headers.update({"X-API-Key": KEY})
        client.get("/" + "x" * 9000)
    return Log("".join(log), [KEY, wrong_key])


@pytest.mark.process
def test_no_credential_is_in_any_record(json_log: Log, text_log: Log, debug_log: Log) -> None:
    for log in (json_log, text_log, debug_log):
        assert log.accesses if log is not text_log else log.lines
        # a token's signature must not appear alone either
        pieces = {piece for secret in log.secrets for piece in (secret, secret.split(".")[-1])}
        assert not [piece for piece in pieces if piece in log.text]


@pytest.mark.process
def test_requests_for_public_pages_are_logged_at_level_debug(debug_log: Log) -> None:
    levels = {(r["path"], r["level"]) for r in debug_log.accesses}
    assert levels >= {(CARD, "DEBUG"), ("/health", "DEBUG"), ("/tasks", "INFO")}


@pytest.mark.process
def test_no_value_is_long_at_level_debug(debug_log: Log) -> None:
    records = [{**record, "exc_info": ""} for record in debug_log.records]
    texts = [value for record in records for value in record.values() if isinstance(value, str)]
    assert max(map(len, texts)) <= WIDTH


@pytest.mark.parametrize(
    "arguments", [("loud",), ("INFO",), ("",), ("info", "xml"), ("info", ""), ("info", "JSON")]
)
def test_an_invalid_level_or_format_is_refused(arguments: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"log_(level|format) must be"):
        set_up_logging(*arguments)


@pytest.mark.process
def test_an_invalid_client_address_is_sanitized(tmp_path: Path) -> None:
    forwarded = f"X-Forwarded-For: \x9b31m\x85{'x' * 2000}\r\nConnection: close\r\n"
    with (
        logging_agent(tmp_path, "--log-format=json") as (client, log),
        connected(str(client.base_url)) as connection,
    ):
        connection.send(request("/nothing", forwarded, verb="GET"))
        connection.read_all()
    (record,) = Log("".join(log), []).accesses
    assert len(record["client"]) <= WIDTH
    assert not CONTROL.search(record["client"])
    assert record["client"].startswith("31mxxx")
