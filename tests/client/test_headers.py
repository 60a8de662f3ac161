"""Headers of single calls, and headers from a function."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from apcore_a2a_client import A2AClient, A2ADiscoveryError, A2AError, CredentialsRefusedError, Task
from apcore_a2a_client.headers import RESERVED_HEADERS
from opentelemetry import trace

from .raw import (
    CONFIG,
    CUT,
    KINDS,
    OPERATIONS,
    WIRES,
    Client,
    Request,
    Step,
    agent,
    card,
    events,
    raw,
    reply,
    task,
)

pytestmark = pytest.mark.rotating("kind")

TASK = Task.from_dict({"id": "t-1", "contextId": "c-1", "status": {"state": "input-required"}})
WORKING = Task.from_dict({"id": "t-1", "contextId": "c-1", "status": {"state": "working"}})
CALLS: dict[str, tuple[Any, ...]] = {
    **OPERATIONS,
    "reply": (TASK, "yes"),
    "follow": (WORKING,),
    "wait": (WORKING,),
    "get_card": (),
}
"""All methods of the clients that send requests of A2A, with valid arguments."""
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER_TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"

kinds = pytest.mark.parametrize("kind", KINDS)
wires = pytest.mark.parametrize(("binding", "version"), WIRES)


def answer(request: Request) -> Iterable[Step]:
    """Answer any operation with a result that its method accepts."""
    is_rpc = request.method == "POST" and "method" in request.json
    method = request.json["method"] if is_rpc else request.bare_path
    result: Any = task()
    # The words in the conditions lack first letters, whose case differs between bindings.
    if "ard" in method:
        result = card("/")
    elif "onfig" in method:
        is_list = "list" in method.lower() or (request.method, method[-1]) == ("GET", "s")
        result = {"configs": [CONFIG.to_dict()]} if is_list else CONFIG.to_dict()
    elif method in ("ListTasks", "tasks/list", "/tasks"):
        result = {"tasks": [task()]}
    elif any(word in method for word in ("end", "tream", "bscribe")):
        result = {"task": task()}
    if is_rpc:
        result = {"jsonrpc": "2.0", "id": request.json["id"], "result": result}
    return reply(result)


@kinds
@wires
@pytest.mark.parametrize("name", CALLS)
def test_every_method_of_a2a_sends_the_headers_of_its_call(
    kind: str, name: str, binding: str, version: str
) -> None:
    script = agent(answer, **card("/", binding, version))
    with raw(script) as server, Client(kind, server.url, headers={"x-own": "1"}) as client:
        client.do(name, *CALLS[name], headers={"X-Call": "2", "traceparent": TRACE})
        sent = server.requests if name == "get_card" else server.calls
        assert sent
        for request in sent:
            values = [request.headers.get(header) for header in ("x-own", "x-call", "traceparent")]
            assert values == ["1", "2", TRACE]
        client.do("get_task", "t-1")
        assert "x-call" not in server.calls[-1].headers


@kinds
def test_the_card_is_fetched_without_the_headers_of_the_call_that_needs_it(kind: str) -> None:
    with raw(agent(answer)) as server, Client(kind, server.url, auth="own") as client:
        client.do("get_task", "t-1", headers={"authorization": "Bearer caller", "x-call": "2"})
        card_request, call = server.requests
        assert card_request.headers["authorization"] == "Bearer own"
        assert "x-call" not in card_request.headers
        assert call.headers["authorization"] == "Bearer caller"


@kinds
@wires
def test_authorization_of_a_call_replaces_all_other_credentials(
    kind: str, binding: str, version: str
) -> None:
    script = agent(answer, **card("/", binding, version))
    credentials: Any
    for credentials in ("token", ("user", "password")):
        options = {"auth": credentials} if isinstance(credentials, str) else {}
        with raw(script) as server, Client(kind, server.url, **options) as client:
            if not options:
                client.http.auth = credentials
            client.do("get_task", "t-1", headers={"Authorization": "Bearer caller"})
            client.do("get_task", "t-1")
            first, second = (request.headers["authorization"] for request in server.calls)
            assert first == "Bearer caller"
            assert second != first


@kinds
def test_headers_of_a_call_take_precedence_over_those_of_the_client(kind: str) -> None:
    with raw(agent(answer)) as server, Client(kind, server.url, headers={"X-One": "1"}) as client:
        client.do("get_task", "t-1", headers={"x-one": "2"})
        assert server.calls[0].headers["x-one"] == "2"


@kinds
def test_a_stream_that_is_reopened_sends_the_headers_again(kind: str) -> None:
    def script(request: Request) -> Iterable[Step]:
        working = {"task": task(state="TASK_STATE_WORKING")}
        data = {"jsonrpc": "2.0", "id": request.json["id"]}
        if len(server.calls) == 1:
            return events({**data, "result": working}, then=CUT)
        return reply({**data, "result": task()})

    with raw(agent(script)) as server, Client(kind, server.url, retries=1) as client:
        client.do("stream_message", "hi", headers={"x-call": "2"})
        assert len(server.calls) > 1
        assert {request.headers.get("x-call") for request in server.calls} == {"2"}


@kinds
@pytest.mark.parametrize("name", ["get_task", "stream_message", "call"])
@pytest.mark.parametrize("header", sorted(RESERVED_HEADERS))
def test_a_header_of_the_protocol_is_refused(kind: str, name: str, header: str) -> None:
    with raw(agent(answer)) as server, Client(kind, server.url) as client:
        with pytest.raises(ValueError, match="itself"):
            client.do(name, *CALLS[name], headers={header.title(): "x"})
        with pytest.raises(ValueError, match="itself"):
            Client(kind, server.url, headers={header: "x"})
        assert not server.requests


@kinds
@pytest.mark.parametrize("headers", [{"x": "s3cr3t\n"}, {"x": ""}, {"a b": "1"}])
def test_invalid_headers_of_a_call_are_refused_and_not_shown(
    kind: str, headers: Mapping[str, str]
) -> None:
    with raw(agent(answer)) as server, Client(kind, server.url) as client:
        with pytest.raises(ValueError, match="header") as caught:
            client.do("get_task", "t-1", headers=headers)
        assert "s3cr3t" not in str(caught.value)
        assert not server.requests


@kinds
@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ([("x", "1")], "headers must be a mapping, not list"),
        ({"x": 5}, "The header x must be a string, not int"),
        ({b"x": "1"}, "The name of a header must be a string, not bytes"),
        ({None: "1"}, "The name of a header must be a string, not NoneType"),
    ],
)
def test_headers_that_are_not_a_mapping_of_strings_are_refused(
    kind: str, headers: Any, problem: str
) -> None:
    with Client(kind, "http://127.0.0.1:1") as client, pytest.raises(TypeError, match=problem):
        client.do("get_task", "t-1", headers=headers)


@kinds
@pytest.mark.parametrize("name", ["get_task", "stream_message"])
def test_headers_of_a_call_are_credentials_unless_they_are_known_to_be_public(
    kind: str, name: str
) -> None:
    with (
        raw(answer) as other_server,
        raw(agent(answer, **card(other_server.url))) as server,
        Client(kind, server.url) as client,
    ):
        client.do(name, *CALLS[name], headers={"traceparent": TRACE, "tracestate": "a=1"})
        assert other_server.requests[-1].headers["traceparent"] == TRACE
        with pytest.raises(CredentialsRefusedError):
            client.do(name, *CALLS[name], headers={"x-caller": "ann"})
        assert len(other_server.requests) == 1


@kinds
@pytest.mark.parametrize("name", ["get_task", "send_message", "stream_message"])
def test_the_current_span_of_opentelemetry_goes_with_a_request(kind: str, name: str) -> None:
    trace_id, span_id = TRACE.split("-")[1:3]
    state = trace.TraceState([("a", "1")])
    span = trace.SpanContext(int(trace_id, 16), int(span_id, 16), False, trace.TraceFlags(1), state)
    with raw(agent(answer)) as server:
        with Client(kind, server.url) as client:
            client.do(name, *CALLS[name])
            assert "traceparent" not in server.requests[-1].headers
        with trace.use_span(trace.NonRecordingSpan(span)), Client(kind, server.url) as client:
            client.do(name, *CALLS[name])
            sent_headers = server.requests[-1].headers
            assert (sent_headers["traceparent"], sent_headers["tracestate"]) == (TRACE, "a=1")
            client.do(name, *CALLS[name], headers={"traceparent": OTHER_TRACE})
            sent_headers = server.requests[-1].headers
            assert sent_headers["traceparent"] == OTHER_TRACE
            assert "tracestate" not in sent_headers


@kinds
def test_a_redirect_to_another_origin_carries_no_header_of_the_call(kind: str) -> None:
    def script(_: Request) -> Iterable[Step]:
        return reply(b"", 307, location=f"{other_server.url}/tasks/t-1")

    with (
        raw(answer) as other_server,
        raw(agent(script, **card("/", "HTTP+JSON"))) as server,
        Client(kind, server.url) as client,
    ):
        client.do("get_task", "t-1", headers={"authorization": "Bearer s3cr3t", "x-call": "s3cr3t"})
        assert "s3cr3t" in str(server.calls)
        assert "s3cr3t" not in str(other_server.requests)


# Headers from a function


@kinds
@pytest.mark.parametrize("is_async", [False, True])
def test_a_header_function_is_called_for_each_request_and_retry(
    kind: str, is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apcore_a2a_client.exchange.FIRST_WAIT", 0.001)
    if (kind, is_async) == ("sync", True):
        pytest.skip("the synchronous client cannot await")
    count = iter(range(10))
    failures = iter([reply(b"", 503)])

    def numbered_headers() -> dict[str, str]:
        return {"X-Number": str(next(count))}

    async def numbered_headers_async() -> dict[str, str]:
        return numbered_headers()

    script = agent(lambda request: next(failures, None) or answer(request))
    headers = numbered_headers_async if is_async else numbered_headers
    with raw(script) as server, Client(kind, server.url, headers=headers, retries=1) as client:
        client.do("get_task", "t-1")
        assert [request.headers["x-number"] for request in server.requests] == ["0", "1", "2"]


@kinds
def test_an_error_of_a_header_function_is_raised_and_nothing_is_sent(kind: str) -> None:
    def headers() -> dict[str, str]:
        raise LookupError("no headers today")

    with raw(agent(answer)) as server, Client(kind, server.url, headers=headers) as client:
        with pytest.raises(LookupError, match="no headers today"):
            client.do("get_task", "t-1")
        assert not server.requests


@kinds
@pytest.mark.parametrize("headers", [{"host": "x"}, {"x": "s3cr3t\n"}, {"x y": "1"}])
def test_invalid_headers_from_a_function_are_refused(kind: str, headers: Any) -> None:
    with raw(agent(answer)) as server, Client(kind, server.url, headers=lambda: headers) as client:
        with pytest.raises(ValueError, match="header") as caught:
            client.do("get_task", "t-1")
        assert "s3cr3t" not in str(caught.value)
        assert not server.requests


@kinds
def test_headers_of_a_function_count_as_credentials(kind: str) -> None:
    with (
        raw(answer) as other_server,
        raw(agent(answer, **card(other_server.url))) as server,
        Client(kind, server.url, headers=lambda: {}) as client,
        pytest.raises(CredentialsRefusedError),
    ):
        client.do("get_task", "t-1")


def test_the_sync_client_refuses_an_async_header_function() -> None:
    async def headers() -> dict[str, str]:
        return {}

    with raw(agent(answer)) as server, Client("sync", server.url, headers=headers) as client:
        with pytest.raises(A2AError, match="can't await headers"):
            client.do("get_task", "t-1")
        assert not server.requests


@pytest.mark.anyio
async def test_only_the_call_with_refused_headers_fails_to_get_the_card() -> None:
    def script(request: Request) -> Iterable[Step]:
        has_failed = "authorization" in request.headers
        return [0.2, *(reply({}, 401) if has_failed else agent(answer)(request))]

    with raw(script) as server:
        async with A2AClient(server.url) as client:
            outcomes: list[Any] = await asyncio.gather(
                client.get_card(headers={"authorization": "Bearer wrong"}),
                client.get_card(),
                return_exceptions=True,
            )
    assert isinstance(outcomes[0], A2ADiscoveryError)
    assert getattr(outcomes[1], "name", outcomes[1]) == "raw"


@pytest.mark.anyio
async def test_a_call_with_headers_gets_a_card_that_is_refused_to_a_concurrent_call() -> None:
    def script(request: Request) -> Iterable[Step]:
        is_known = "authorization" in request.headers
        return [0.2, *(agent(answer)(request) if is_known else reply({}, 401))]

    with raw(script) as server:
        async with A2AClient(server.url) as client:
            outcomes: list[Any] = await asyncio.gather(
                client.get_card(),
                client.get_card(headers={"authorization": "Bearer right"}),
                return_exceptions=True,
            )
    assert isinstance(outcomes[0], A2ADiscoveryError)
    assert getattr(outcomes[1], "name", outcomes[1]) == "raw"
