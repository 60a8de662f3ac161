"""`apcore-a2a check`: agents that work, and agents that do not."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from apcore_a2a.command.check import check_card
from starlette.requests import Request
from starlette.responses import (
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from tests.serving import running

from .remote import CARD, Cli, FakeAgent, Json, send_result, task
from .remote import _clean_environment as _clean_environment
from .remote import agent as agent
from .remote import cli as cli

CARD_0_3 = {
    "name": "Old",
    "description": "An agent of 0.3",
    "version": "1",
    "protocolVersion": "0.3.0",
    "url": "https://agent.example/",
    "capabilities": {},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [],
}
SUBSCRIPTION = "/tasks/no-such-task-of-apcore-a2a-check:subscribe"
NOT_FOUND = {"error": {"code": -32001, "message": "Task not found"}}
SKILL = {"id": "only", "name": "Only", "description": "The only one", "tags": []}
EVENT_STREAM = "text/event-stream"
WRONG_REQUESTS = ("unknown method", "malformed json", "refused stream")


def outcomes(report: Json) -> dict[str, str]:
    return {check["name"]: check["outcome"] for check in report["checks"]}


def test_an_agent_of_this_project_passes_in_both_versions(agent: str, cli: Cli) -> None:
    outcome = cli("check", agent, "echo", "--input", "hi", "--json")

    assert (outcome.code, outcome.err) == (0, "")
    steps = ("card", "send", "get", "stream", "cancel", "errors", *WRONG_REQUESTS)
    expected = {f"{version} {step}": "ok" for version in ("1.0", "0.3") for step in steps}
    assert outcomes(outcome.json) == expected
    assert outcome.json["verdict"] == "The agent works: 18 checks ok"


def test_input_that_the_skill_refuses_is_not_a_fault(agent: str, cli: Cli) -> None:
    outcome = cli("check", agent, "order", "--input", '{"nonsense": 1}', "--protocol", "1.0")

    results = outcomes(outcome.json)
    assert outcome.code == 0
    assert {results["1.0 send"], results["1.0 stream"], results["1.0 cancel"]} == {"skipped"}
    assert "try SKILL and --input" in outcome.out


def test_an_agent_that_breaks_the_protocol_fails(cli: Cli) -> None:
    card = {"capabilities": {"streaming": True}, "skills": [SKILL]}
    fake = FakeAgent(
        card,
        SendMessage=send_result(task("COMPLETED", {"text": "done"})),
        GetTask={"result": task("WORKING")},
        SendStreamingMessage=[{"message": {"role": "ROLE_AGENT", "messageId": "m", "parts": []}}],
        CancelTask=NOT_FOUND,
    )
    with running(fake.app) as url:
        outcome = cli("check", url)

    results = outcomes(outcome.json)
    assert outcome.code == 3
    assert outcome.json["verdict"].startswith("The agent does not conform to the protocol")
    assert (results["1.0 send"], results["1.0 get"], results["1.0 errors"]) == (
        "ok",
        "FAILED",
        "FAILED",
    )
    assert results["0.3"] == "skipped"


class WrongRequestAgent(FakeAgent):
    """An agent with prepared answers to malformed JSON, unknown methods and refused streams."""

    def __init__(self, answers: dict[str, Any], *, streaming: bool, binding: str) -> None:
        self.answers = answers
        interface = {"url": "/", "protocolBinding": binding, "protocolVersion": "1.0"}
        super().__init__(
            {"capabilities": {"streaming": streaming}, "supportedInterfaces": [interface]}
        )
        routes = [Route("/{path:path}", self.answer, methods=["GET", "POST"])]
        self.app.router.routes[1:] = routes

    async def answer(self, request: Request) -> Response:
        try:
            key = json.loads(await request.body() or b"{}").get("method", request.url.path)
        except ValueError:
            key = "malformed"
        answer = self.answers.get(key, error(-32001))
        if isinstance(answer, list):
            events = [f": hello\n\ndata: {json.dumps(document)}\r\n\r\n" for document in answer]
            return StreamingResponse(iter(events), media_type=EVENT_STREAM)
        if isinstance(answer, Response):
            return answer
        if isinstance(answer, int):
            return JSONResponse({"error": {"code": answer}}, answer)
        return JSONResponse(answer)


def error(code: int) -> Json:
    return {"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": "No\x1b[31m"}}


CONFORMING = {
    "NoSuchMethodOfApcoreA2aCheck": error(-32601),
    "malformed": error(-32700),
    "SubscribeToTask": [error(-32001)],
    "SendStreamingMessage": error(-32602),
}
RESULT = {"jsonrpc": "2.0", "id": 1, "result": {}}


@pytest.mark.parametrize(
    ("answers", "failure"),
    [
        ({}, None),
        (
            {"NoSuchMethodOfApcoreA2aCheck": RESULT},
            "unknown method: ProtocolViolation: expected the error -32601, got a result (HTTP 200)",
        ),
        (
            {"malformed": error(-32603)},
            "malformed json: ProtocolViolation: expected the error -32700, "
            "got the error -32603 (HTTP 200)",
        ),
        (
            {"malformed": PlainTextResponse("<h1>Oops\x1b[31m", 500)},
            "malformed json: ProtocolViolation: expected the error -32700, "
            "got HTTP 500 with text/plain that is not a JSON object",
        ),
        (
            {"SubscribeToTask": [RESULT]},
            "refused stream: ProtocolViolation: expected the error -32001, got a result (HTTP 200)",
        ),
        (
            {"SendStreamingMessage": [{}]},
            "refused stream: ProtocolViolation: expected the error -32602, "
            "got neither a result nor an error (HTTP 200)",
        ),
        (
            {"SendStreamingMessage": []},
            "refused stream: ProtocolViolation: expected the error -32602, "
            "got HTTP 200 with text/event-stream that is not a JSON object",
        ),
    ],
)
def test_wrong_requests_must_be_refused(
    cli: Cli, answers: dict[str, Any], failure: str | None
) -> None:
    fake = WrongRequestAgent(CONFORMING | answers, streaming=True, binding="JSONRPC")
    with running(fake.app) as url:
        report = cli("check", url).json

    failed = {name for name in WRONG_REQUESTS if outcomes(report)[f"1.0 {name}"] != "ok"}
    assert failed == ({failure.partition(":")[0]} if failure else set())
    if failure:
        assert f"  1.0 {failure}" in report["verdict"].splitlines()


def test_an_agent_without_streams_refuses_them_as_unsupported(cli: Cli) -> None:
    streams = {"SubscribeToTask": error(-32004), "SendStreamingMessage": error(-32004)}
    for streaming, outcome in ((False, "ok"), (True, "FAILED")):
        fake = WrongRequestAgent(CONFORMING | streams, streaming=streaming, binding="JSONRPC")
        with running(fake.app) as url:
            assert outcomes(cli("check", url).json)["1.0 refused stream"] == outcome


@pytest.mark.clock
def test_a_stream_without_events_fails_in_time(cli: Cli) -> None:
    async def keep_alives() -> AsyncIterator[str]:
        while True:
            yield ": still here\n\n"
            await asyncio.sleep(0.01)

    silent = StreamingResponse(keep_alives(), media_type=EVENT_STREAM)
    answers = CONFORMING | {"SubscribeToTask": silent}
    fake = WrongRequestAgent(answers, streaming=True, binding="JSONRPC")
    with running(fake.app) as url:
        report = cli("check", url, "--timeout", "2").json

    assert "1.0 refused stream: ReadTimeout: The answer was not complete" in report["verdict"]


def test_lines_of_a_stream_may_end_with_carriage_returns_alone(cli: Cli) -> None:
    refusal = f": hello\rdata: {json.dumps(error(-32001))}\r\r"
    answers = {"SubscribeToTask": StreamingResponse(iter([refusal]), media_type=EVENT_STREAM)}
    fake = WrongRequestAgent(CONFORMING | answers, streaming=True, binding="JSONRPC")
    with running(fake.app) as url:
        assert outcomes(cli("check", url).json)["1.0 refused stream"] == "ok"


def test_a_busy_agent_does_not_fail_the_check(cli: Cli) -> None:
    answers = CONFORMING | {"malformed": Response(status_code=429)}
    fake = WrongRequestAgent(answers, streaming=True, binding="JSONRPC")
    with running(fake.app) as url:
        assert outcomes(cli("check", url).json)["1.0 malformed json"] == "skipped"


@pytest.mark.parametrize(
    ("statuses", "outcome"),
    [
        ({"/NoSuchMethodOfApcoreA2aCheck": 404, "malformed": 400, SUBSCRIPTION: 404}, "ok"),
        ({"/NoSuchMethodOfApcoreA2aCheck": 200, "malformed": 500, SUBSCRIPTION: 200}, "FAILED"),
    ],
)
def test_wrong_requests_over_http_json_must_get_an_error_status(
    cli: Cli, statuses: dict[str, Any], outcome: str
) -> None:
    fake = WrongRequestAgent(statuses, streaming=True, binding="HTTP+JSON")
    with running(fake.app) as url:
        report = cli("check", url).json

    results = outcomes(report)
    assert {results[f"1.0 {name}"] for name in WRONG_REQUESTS} == {outcome}
    expected = "expected HTTP 400, got the error 500 (HTTP 500)"
    assert (expected in report["verdict"]) is (outcome == "FAILED")


def test_wrong_requests_are_sent_with_the_same_credentials_as_others(cli: Cli) -> None:
    fake = WrongRequestAgent(CONFORMING, streaming=True, binding="JSONRPC")
    sent_credentials: list[str] = []
    answer = fake.answer

    async def record_request(request: Request) -> Response:
        sent_credentials.append(f"{request.headers['authorization']} {request.headers['x-tenant']}")
        return await answer(request)

    fake.app.router.routes[1:] = [Route("/{path:path}", record_request, methods=["POST"])]
    with running(fake.app) as url:
        cli("check", url, "--auth", "t0ken", "--header", "X-Tenant: 5")

    assert len(sent_credentials) > 5
    assert {*sent_credentials} == {"Bearer t0ken 5"}


def test_headers_do_not_follow_a_redirected_card_to_another_origin(cli: Cli) -> None:
    other, moved = (
        WrongRequestAgent(CONFORMING, streaming=True, binding="JSONRPC") for _ in range(2)
    )
    with running(other.app) as other_url:
        redirect = RedirectResponse(f"{other_url}/.well-known/agent-card.json")
        moved.app.router.routes[:1] = [Route("/.well-known/agent-card.json", redirect)]
        with running(moved.app) as url:
            outcome = cli("check", url, "--header", "X-API-Key: hunter2")

    assert "1.0 card" in outcome.out
    assert other.requests
    assert not any("hunter2" in str(request.headers.raw) for request in other.requests)


@pytest.mark.parametrize("tag", ["destructive", "requires-approval"])
def test_a_dangerous_skill_is_called_only_if_it_is_named(tag: str, cli: Cli) -> None:
    fake = FakeAgent(
        {"skills": [{**SKILL, "tags": [tag]}]},
        SendMessage=send_result(task("COMPLETED", {"text": "done"})),
        GetTask=NOT_FOUND,
        CancelTask=NOT_FOUND,
    )
    with running(fake.app) as url:
        assert outcomes(cli("check", url).json)["1.0 send"] == "skipped"
        assert "SendMessage" not in fake.methods
        assert outcomes(cli("check", url, "only").json)["1.0 send"] == "ok"


def test_the_example_of_the_only_skill_is_sent(cli: Cli) -> None:
    fake = FakeAgent(
        {"skills": [{**SKILL, "examples": ['{"n": 1}']}]},
        SendMessage=send_result(task("COMPLETED", {"text": "done"})),
        GetTask=NOT_FOUND,
        CancelTask=NOT_FOUND,
    )
    with running(fake.app) as url:
        cli("check", url)
    assert fake.bodies[0]["params"]["message"]["parts"] == [{"data": {"n": 1}}]


def test_an_agent_that_cannot_be_reached_exits_with_2(cli: Cli) -> None:
    assert cli("check", "http://127.0.0.1:9").code == 2


@pytest.mark.parametrize(
    ("document", "failures"),
    [
        (CARD_0_3, {}),
        ({**CARD_0_3, "version": None}, {"0.3 card": "version: "}),
        ({**CARD_0_3, "skills": [{"id": "x"}]}, {"0.3 card": "skills.0.name"}),
        ({"name": "Nothing"}, {"card": "it has neither"}),
        ({**CARD, "skills": 5}, {"1.0 card": "skills"}),
        ({**CARD, "name": ""}, {"1.0 card": "name"}),
    ],
)
def test_a_card_is_checked_by_the_schema_of_each_version_it_claims(
    document: Any, failures: dict[str, str]
) -> None:
    failed_checks = {
        check.name: check.details for check in check_card(document) if check.outcome == "FAILED"
    }
    assert failed_checks.keys() >= failures.keys()
    for name, problem in failures.items():
        assert problem in failed_checks[name]
    assert bool(failed_checks) is bool(failures)
