"""Retries: of which requests, how often, and when; see the table in `exchange`."""

import logging
from collections.abc import Iterable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise
from time import monotonic
from typing import Any

import httpx
import pytest
from apcore_a2a_client import (
    A2AConnectionError,
    A2ADiscoveryError,
    A2AError,
    A2ATimeoutError,
    ServerBusyError,
)
from apcore_a2a_client.exchange import FIRST_WAIT, LONGEST_WAIT, backoff, retry_after
from hypothesis import example, given
from hypothesis import strategies as st

from tests.serving import listener

from .raw import (
    CLOSE,
    CUT,
    HOLD,
    KINDS,
    OPERATIONS,
    WIRES,
    Client,
    Request,
    Script,
    Step,
    agent,
    card,
    events,
    head,
    raw,
    reply,
    task,
)

pytestmark = pytest.mark.rotating("kind", "binding", "wire")

RETRIES = 2
SLACK = 0.7
"""Seconds by which a busy machine may delay a retry."""
CHANGES = [
    "send_message",
    "stream_message",
    "call",
    "stream",
    "cancel_task",
    "set_push_config",
    "delete_push_config",
]
SINGLE_REQUESTS = [operation for operation in OPERATIONS if operation != "subscribe"]
"""All operations but `subscribe`, which also reopens a stream that breaks before any event."""
HTML_REPLY = reply(b"<!doctype html>", content_type="text/html")

kinds = pytest.mark.parametrize("kind", KINDS)
wires = pytest.mark.parametrize(("binding", "version"), WIRES)


@pytest.fixture(autouse=True)
def _short_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apcore_a2a_client.exchange.FIRST_WAIT", 0.001)


def raised_by(client: Client, operation: str) -> A2AError:
    with pytest.raises(A2AError) as caught:
        client.do(operation, *OPERATIONS[operation])
    return caught.value


def count_requests(
    kind: str, wire: tuple[str, str], script: Script, retries: int
) -> dict[str, int]:
    """Return the number of requests of each operation."""
    counts_by_operation = {}
    agent_script = agent(script, **card("/", *wire))
    with (
        raw(agent_script) as server,
        Client(kind, server.url, retries=retries, timeout=5) as client,
    ):
        for operation in SINGLE_REQUESTS:
            before = len(server.calls)
            raised_by(client, operation)
            counts_by_operation[operation] = len(server.calls) - before
    return counts_by_operation


def expected(*, reads: int, changes: int) -> dict[str, int]:
    return {operation: changes if operation in CHANGES else reads for operation in SINGLE_REQUESTS}


def after_faults(failures: int, fault: Iterable[Step], script: Script) -> Script:
    """Return a script that answers with some faults before it continues with *script*."""
    remaining = iter([fault] * failures)
    return lambda request: next(remaining, None) or script(request)


def ok(request: Request) -> Iterable[Step]:
    if request.bare_path != "/":
        return reply({"task": task()})
    method = request.json["method"]
    result = task() if method in ("GetTask", "tasks/get", "CancelTask") else {"task": task()}
    return reply({"jsonrpc": "2.0", "id": request.json["id"], "result": result})


# No connection


@kinds
@wires
def test_an_operation_is_retried_if_no_connection_could_be_made(
    kind: str, binding: str, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "httpcore.connection")
    with listener() as unused:  # bound, and not listening
        port = unused.getsockname()[1]
        card_members = card(f"http://127.0.0.1:{port}/", binding, version)
        with (
            raw(lambda _: reply(card_members)) as server,
            Client(kind, server.url, retries=RETRIES) as client,
        ):
            for operation in SINGLE_REQUESTS:
                caplog.clear()
                error = raised_by(client, operation)
                assert isinstance(error, A2AConnectionError)
                assert not error.sent
                attempts = caplog.text.count(f"connect_tcp.started host='127.0.0.1' port={port} ")
                assert (operation, attempts) == (operation, RETRIES + 1)


@kinds
@pytest.mark.parametrize("operation", ["send_message", "stream_message", "get_task"])
def test_an_agent_that_starts_between_retries_is_reached(kind: str, operation: str) -> None:
    with ExitStack() as stack:
        sock = stack.enter_context(listener())
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        card_members = card(f"{url}/")
        server = stack.enter_context(raw(lambda _: reply(card_members)))
        started: list[Any] = []
        calls: list[str] = []

        def token() -> str:
            """Return a token; the client calls this for the card and for each attempt."""
            calls.append("token")
            if len(calls) == RETRIES + 2:  # for the card, and for RETRIES + 1 attempts
                started.append(stack.enter_context(raw(ok, sock)))
            return calls[-1]

        options: dict[str, Any] = {"auth": token, "credentials_for": [url]}
        with Client(kind, server.url, retries=RETRIES, **options) as client:
            assert client.do(operation, *OPERATIONS[operation])
        assert len(started[0].requests) == 1


@kinds
def test_a_card_request_is_retried_if_no_connection_could_be_made(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "httpcore.connection")
    with (
        listener() as unused,
        Client(kind, f"http://127.0.0.1:{unused.getsockname()[1]}", retries=RETRIES) as client,
        pytest.raises(A2AConnectionError),
    ):
        client.do("get_card")
    assert caplog.text.count("connect_tcp.started") == RETRIES + 1


# Broken connections


@kinds
@pytest.mark.parametrize("wire", WIRES, ids="-".join)
@pytest.mark.parametrize(
    "fault",
    [
        [CUT],
        [CLOSE],
        [b"HTTP/1.1 200 OK\r\ncont", CUT],
        [head(content_length="99", content_type="application/json"), b"{", CLOSE],
    ],
    ids=["reset", "closed", "in the head", "in the body"],
)
def test_after_a_broken_connection_only_reads_are_retried(
    kind: str, wire: tuple[str, str], fault: list[Step]
) -> None:
    counts = count_requests(kind, wire, lambda _: fault, RETRIES)
    assert counts == expected(reads=RETRIES + 1, changes=1)


@kinds
def test_the_card_is_fetched_again_after_a_broken_connection(kind: str) -> None:
    with raw(lambda _: [CUT]) as server, Client(kind, server.url, retries=RETRIES) as client:
        with pytest.raises(A2AConnectionError):
            client.do("get_card")
        assert len(server.requests) == RETRIES + 1


@kinds
def test_a_successful_retry_returns_the_result(kind: str) -> None:
    script = agent(after_faults(RETRIES, [CUT], ok))
    with raw(script) as server, Client(kind, server.url, retries=RETRIES) as client:
        assert client.do("get_task", "t-1").id == "t-1"
        assert len(server.calls) == RETRIES + 1


@kinds
@pytest.mark.parametrize("operation", ["get_task", "send_message", "stream_message"])
def test_an_operation_that_timed_out_is_not_retried(kind: str, operation: str) -> None:
    """There would be no time left for retries."""
    with (
        raw(agent(lambda _: [HOLD])) as server,
        Client(kind, server.url, retries=5, timeout=0.3) as client,
    ):
        assert isinstance(raised_by(client, operation), A2ATimeoutError)
        assert len(server.calls) == 1


@pytest.mark.clock
@kinds
@pytest.mark.parametrize("fault", [[CUT], reply(b"", 503)], ids=["cut", "busy"])
def test_all_attempts_together_take_no_longer_than_the_timeout(
    kind: str, fault: list[Step], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apcore_a2a_client.exchange.FIRST_WAIT", 0.05)
    with (
        raw(agent(lambda _: fault)) as server,
        Client(kind, server.url, retries=1000, timeout=0.5) as client,
    ):
        started_at = monotonic()
        raised_by(client, "get_task")
        assert monotonic() - started_at < 0.5 + SLACK
        assert 3 <= len(server.calls) <= 6


@kinds
@wires
def test_the_resumption_of_a_stream_is_retried_at_most_as_often_as_configured(
    kind: str, binding: str, version: str
) -> None:
    def script(request: Request) -> Iterable[Step]:
        first: Any = {"task": task(state="TASK_STATE_WORKING")}
        if request.bare_path == "/":
            first = {"jsonrpc": "2.0", "id": request.json["id"], "result": first}
        return events(first, then=CUT) if len(server.calls) == 1 else [CUT]

    received_events: list[Any] = []
    with (
        raw(agent(script, **card("/", binding, version))) as server,
        Client(kind, server.url, retries=RETRIES) as client,
        pytest.raises(A2AConnectionError),
    ):
        client.do("stream_message", "hi", into=received_events)
    assert len(received_events) == 1
    assert len(server.calls) == 1 + 1 + RETRIES  # the message, the subscription, and its retries


@kinds
@pytest.mark.parametrize("line", [b"", b"id: 1\n"], ids=["unnumbered", "numbered"])
def test_reopened_streams_that_lasted_a_while_are_not_counted_as_retries(
    kind: str, line: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy ends each stream after some time, and the task is silent for longer."""
    monkeypatch.setattr("apcore_a2a_client.streams.LONGEST_WAIT", 0.05)
    count = 2 * RETRIES + 2

    def script(request: Request) -> Iterable[Step]:
        state = "COMPLETED" if len(server.calls) == count else "WORKING"
        result = {"task": task(state=f"TASK_STATE_{state}")}
        event = {"jsonrpc": "2.0", "id": request.json["id"], "result": result}
        if "last-event-id" in request.headers and state == "WORKING":
            return [*events(then=0.1), CLOSE]
        return [*events(line, event, then=0.1), CLOSE]

    with (
        raw(agent(script)) as server,
        Client(kind, server.url, retries=RETRIES) as client,
    ):
        received_events = client.do("stream_message", "hi")
        assert len(server.calls) == count
    assert [event.status.state for event in received_events] == ["working", "completed"]


@kinds
@pytest.mark.parametrize("fault", [[CUT], [CLOSE], events()], ids=["cut", "closed", "empty"])
def test_a_subscription_is_retried_at_most_as_often_as_configured(
    kind: str, fault: list[Step]
) -> None:
    with (
        raw(agent(lambda _: fault)) as server,
        Client(kind, server.url, retries=RETRIES) as client,
    ):
        assert isinstance(raised_by(client, "subscribe"), A2AConnectionError)
        assert len(server.calls) == RETRIES + 1


@kinds
def test_a_subscription_that_timed_out_is_not_retried(kind: str) -> None:
    with (
        raw(agent(lambda _: [HOLD])) as server,
        Client(kind, server.url, retries=RETRIES, timeout=0.3) as client,
    ):
        assert isinstance(raised_by(client, "subscribe"), A2ATimeoutError)
        assert len(server.calls) == 1


# Busy agents


@kinds
@pytest.mark.parametrize("wire", WIRES, ids="-".join)
@pytest.mark.parametrize("status", [429, 503])
def test_a_request_refused_as_busy_is_retried(
    kind: str, wire: tuple[str, str], status: int
) -> None:
    counts = count_requests(kind, wire, lambda _: reply(b"busy", status), RETRIES)
    assert counts == expected(reads=RETRIES + 1, changes=RETRIES + 1)


@kinds
@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("body", [b"", b"<html>", b'{"error": {"code": -32029, "message": "no"}}'])
def test_a_request_refused_in_every_attempt_raises_server_busy(
    kind: str, status: int, body: bytes
) -> None:
    for wire in WIRES:
        script = agent(lambda _: reply(body, status), **card("/", *wire))
        with raw(script) as server, Client(kind, server.url, retries=1) as client:
            for operation in ("send_message", "stream_message", "get_task"):
                error = raised_by(client, operation)
                assert isinstance(error, ServerBusyError)
                assert (error.status_code, error.retry_after) == (status, None)


@kinds
def test_a_card_request_refused_as_busy_is_retried(kind: str) -> None:
    script = after_faults(RETRIES, reply(b"", 503), lambda _: reply(card("/")))
    with raw(script) as server, Client(kind, server.url, retries=RETRIES) as client:
        assert client.do("get_card").name == "raw"
        assert len(server.requests) == RETRIES + 1
    with raw(lambda _: reply(b"", 503)) as server, Client(kind, server.url, retries=1) as client:
        with pytest.raises(A2ADiscoveryError) as caught:
            client.do("get_card")
        assert caught.value.status_code == 503
        assert len(server.requests) == 2


@kinds
@wires
@pytest.mark.parametrize("operation", ["send_message", "stream_message", "call"])
def test_a_message_keeps_its_id_when_it_is_retried(
    kind: str, operation: str, binding: str, version: str
) -> None:
    script = agent(after_faults(RETRIES, reply(b"", 503), ok), **card("/", binding, version))
    with raw(script) as server, Client(kind, server.url, retries=RETRIES) as client:
        client.do(operation, *OPERATIONS[operation])
    bodies = [request.json for request in server.calls[: RETRIES + 1]]
    params = [body.get("params", body) for body in bodies]
    ids = {sent["message"]["messageId"] for sent in params}
    assert len(params) == RETRIES + 1
    assert len(ids) == 1
    assert all(ids)


# Other faults


@kinds
@pytest.mark.parametrize("wire", WIRES, ids="-".join)
@pytest.mark.parametrize("status", [502, 504])
def test_after_a_gateway_error_only_reads_are_retried(
    kind: str, wire: tuple[str, str], status: int
) -> None:
    """A change may have reached the agent behind the gateway."""
    fault = reply(b"no", status)
    assert count_requests(kind, wire, lambda _: fault, RETRIES) == expected(
        reads=1 + RETRIES, changes=1
    )


@pytest.mark.rotating("kind", "binding", "wire")
@kinds
@pytest.mark.parametrize("wire", WIRES, ids="-".join)
@pytest.mark.parametrize(
    "fault",
    [
        *(reply(b"no", status) for status in (400, 401, 403, 404, 408, 500)),
        reply({"error": {"code": -32603, "message": "no"}}, 500),
        reply({"error": {"code": -32029, "message": "busy"}}, 500),
        HTML_REPLY,
        reply(b"", content_encoding="gzip"),
        reply(b"", 307, location="http://127.0.0.1:1/"),
    ],
    ids=[
        *("400", "401", "403", "404", "408", "500"),
        *("error", "busy", "HTML", "gzip", "elsewhere"),
    ],
)
def test_other_faults_are_not_retried(kind: str, wire: tuple[str, str], fault: list[Step]) -> None:
    def script(request: Request) -> Iterable[Step]:
        if b"307" in fault[0] and request.method == "GET":  # type: ignore[operator]  # it is bytes
            return HTML_REPLY  # the client would follow the redirect
        return fault

    assert count_requests(kind, wire, script, RETRIES) == expected(reads=1, changes=1)


@kinds
@pytest.mark.parametrize("fault", [[CUT], reply(b"", 503), reply(b"", 429)])
def test_without_retries_nothing_is_retried(kind: str, fault: list[Step]) -> None:
    for wire in WIRES:
        assert count_requests(kind, wire, lambda _: fault, 0) == expected(reads=1, changes=1)


# Backoff


def attempt_intervals(kind: str, fault: list[Step], retries: int, **options: Any) -> list[float]:
    """Return the seconds between the attempts of a read."""
    with (
        raw(agent(lambda _: fault)) as server,
        Client(kind, server.url, retries=retries, **options) as client,
    ):
        raised_by(client, "get_task")
    return [after.received_at - before.received_at for before, after in pairwise(server.calls)]


@kinds
@pytest.mark.parametrize("fault", [[CUT], reply(b"", 503)], ids=["cut", "busy"])
def test_the_backoff_doubles(kind: str, fault: list[Step], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apcore_a2a_client.exchange.FIRST_WAIT", 0.05)
    pauses = attempt_intervals(kind, fault, 3)
    assert len(pauses) == 3
    for number, pause in enumerate(pauses):
        assert 0.5 * 0.05 * 2**number <= pause < 0.05 * 2**number + SLACK


@kinds
def test_the_backoff_has_a_limit(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apcore_a2a_client.exchange.FIRST_WAIT", 1000.0)
    monkeypatch.setattr("apcore_a2a_client.exchange.LONGEST_WAIT", 0.05)
    pauses = attempt_intervals(kind, [CUT], 3)
    assert len(pauses) == 3
    assert all(0.025 <= pause < 0.05 + SLACK for pause in pauses)


@given(st.integers(0, 10**9))
def test_the_backoff_is_within_bounds(failures: int) -> None:
    # the fixture above sets FIRST_WAIT to 0.001
    longest = min(LONGEST_WAIT, 0.001 * 2 ** min(failures, 9))
    assert longest / 2 <= backoff(failures) <= longest
    assert FIRST_WAIT <= LONGEST_WAIT


@kinds
@wires
@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("wait", ["0", "Mon, 01 Jan 2001 00:00:00 GMT"])
def test_a_request_with_a_retry_after_of_zero_or_in_the_past_is_retried(
    kind: str, binding: str, version: str, status: int, wait: str
) -> None:
    fault = reply(b"", status, retry_after=wait)
    script = agent(after_faults(RETRIES, fault, ok), **card("/", binding, version))
    with raw(script) as server, Client(kind, server.url, retries=RETRIES, timeout=10) as client:
        assert client.do("send_message", "hi").id == "t-1"
        assert len(server.calls) == RETRIES + 1


@pytest.mark.clock
@kinds
@pytest.mark.parametrize("form", ["seconds", "date"])
def test_retry_after_is_followed(kind: str, form: str) -> None:
    """A date has whole seconds, so between half a second and one and a half remain."""
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=1.5), usegmt=True)
    fault = reply(b"", 503, retry_after="1" if form == "seconds" else date)
    pauses = attempt_intervals(kind, fault, 1)
    assert len(pauses) == 1
    assert (0.99 if form == "seconds" else 0.2) <= pauses[0] < 1.5 + SLACK


@pytest.mark.rotating("kind", "binding", "operation")
@kinds
@wires
@pytest.mark.parametrize("wait", ["3600", "6", "9" * 500, "Tue, 01 Jan 2999 00:00:00 GMT"])
@pytest.mark.parametrize("operation", ["send_message", "stream_message", "get_task"])
def test_a_retry_after_beyond_the_timeout_is_not_waited_for(
    kind: str, operation: str, binding: str, version: str, wait: str
) -> None:
    fault = reply(b"", 503, retry_after=wait)
    with (
        raw(agent(lambda _: fault, **card("/", binding, version))) as server,
        Client(kind, server.url, retries=RETRIES, timeout=5) as client,
    ):
        error = raised_by(client, operation)
        assert len(server.calls) == 1
    assert isinstance(error, ServerBusyError)
    assert error.retry_after is not None
    assert error.retry_after >= 6
    assert wait not in ("3600", "6") or error.retry_after == float(wait)


@kinds
def test_an_invalid_retry_after_is_ignored(kind: str) -> None:
    for wait in ("", "soon", "-5", "1.5", "1e3", "\xb2", "0x10", "Mon, 99 Foo 2001 99:99:99 GMT"):
        fault = reply(b"", 503, retry_after=wait)
        assert len(attempt_intervals(kind, fault, 1, timeout=5)) == 1


@given(
    st.text()
    | st.text('0123456789 :,+-GMTJanMon()\\".', max_size=40)
    | st.builds(
        "{}, {} {} {} {}:{}:{} {}".format,
        *[st.sampled_from(["Mon", "Tue", "", "x"]), st.integers(-1, 99)],
        *[st.sampled_from(["Jan", "Feb", "Dec", "x", ""]), st.integers(-1, 99999)],
        *[st.integers(-1, 99), st.integers(-1, 99), st.integers(-1, 99)],
        st.sampled_from(["GMT", "-0000", "+9999", "+99999999", "EST", "", "-2400"]),
    )
)
@example("Fri, 31 Dec 9999 23:59:59 GMT")
def test_any_retry_after_header_is_read_without_an_error(text: str) -> None:
    headers = httpx.Headers([(b"retry-after", text.encode("utf-8", "replace"))])
    assert 0 <= retry_after(headers, 7.0) <= 1e9  # `time.sleep` takes no more than 9.2e9
