"""Malicious and broken agents: both clients raise one of our errors."""

import gc
import gzip
import json
from collections.abc import Iterable, Iterator
from typing import Any

import httpx
import pytest
from apcore_a2a_client import (
    A2AAuthError,
    A2AConnectionError,
    A2ADiscoveryError,
    A2AError,
    A2AProtocolError,
    A2AServerError,
    A2ATimeoutError,
    APIKey,
    TaskNotFoundError,
)
from apcore_a2a_client.discovery import Discovery
from apcore_a2a_client.exchange import Close, Exchange, Read, RequestSpec, Send, Steps

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
    flood,
    head,
    http_client,
    raw,
    reply,
    rpc,
    task,
)

MEGABYTE = 2**20
IN_FLIGHT = 16 * MEGABYTE
"""Bytes that may be in the buffers of both ends of a connection."""
SHORT_TIMEOUT = 0.3
"""Timeout in seconds that is short enough for a test."""
STREAMS = ["stream_message", "stream", "subscribe"]
HTML = b"<!doctype html><title>Oops</title>"

pytestmark = [pytest.mark.parametrize("kind", KINDS), pytest.mark.rotating("kind", "binding")]
wires = pytest.mark.parametrize(("binding", "version"), WIRES)
streams = pytest.mark.parametrize("operation", STREAMS)


@pytest.fixture(autouse=True, scope="module")
def _collect_garbage() -> Iterator[None]:
    """Collect garbage: objects that were not closed warn, and warnings are errors."""
    yield
    gc.collect()


def failure(kind: str, url: str, operation: str, *args: Any, **options: Any) -> A2AError:
    """Return the error, one of ours, of an operation that fails.

    It is an A2ATimeoutError only if *options* set a timeout below the default of 5 s.
    """
    timeout = options.setdefault("timeout", 5.0)
    with Client(kind, url, **options) as client, pytest.raises(A2AError) as caught:
        client.do(operation, *(args or OPERATIONS.get(operation, ())))
    assert not isinstance(caught.value, A2ATimeoutError) or timeout < 5
    return caught.value


def attempt(client: Client, operation: str) -> Any:
    """Return the result of an operation, or our error that it raises."""
    try:
        return client.do(operation, *OPERATIONS[operation])
    except A2AError as error:
        return error


def foreign_error(client: Client, operation: str) -> str:
    """Return the error of an operation if it is not one of ours, else an empty string."""
    try:
        attempt(client, operation)
    except Exception as error:  # any error: the tests check that none is raised
        return repr(error)
    return ""


def fixed(*steps: Step) -> Script:
    """Return a script that always answers with *steps*."""
    return lambda request: steps


def ok(request: Request) -> Iterable[Step]:
    return rpc(request, result={"task": task()})


def wrap_result(request: Request, result: Any) -> Any:
    """Return *result* as the response, or the event, of the request's binding."""
    if request.bare_path != "/":
        return result
    return {"jsonrpc": "2.0", "id": request.json["id"], "result": result}


def slow_chunks(*, chunk: bytes = b"x", pause: float = 0.02) -> Iterator[Step]:
    """Yield *chunk* repeatedly, with pauses, for longer than any test."""
    for _ in range(500):
        yield chunk
        yield pause


# Sizes


def test_an_oversized_card_is_not_read_to_the_end(kind: str) -> None:
    start = head(content_type="application/json", content_length=str(50 * MEGABYTE))
    with raw(lambda _: flood(start, b'{"name": ' + b" " * 65536)) as server:
        error = failure(kind, server.url, "get_card")
    assert isinstance(error, A2ADiscoveryError)
    assert server.sent < 5 * MEGABYTE + IN_FLIGHT


def test_an_oversized_response_is_not_read_to_the_end(kind: str) -> None:
    script = agent(lambda _: flood(head(), b" " * 65536))
    with raw(script) as server:
        error = failure(kind, server.url, "send_message", max_bytes=MEGABYTE)
    assert isinstance(error, A2AProtocolError)
    assert server.sent < MEGABYTE + IN_FLIGHT


@pytest.mark.rotating("kind", "operation")
@pytest.mark.parametrize(
    ("start", "chunk"),
    [
        (b"data: ", b"x" * 65536),
        (b"", b"x" * 65536),
        (b": ", b"x" * 65536),
        (b"id: ", b"7" * 65536),
        (b"", b"data: " + b"x" * 65530 + b"\n"),
        (b"", b"data: x\r"),
    ],
    ids=["data", "name", "comment", "id", "lines", "short lines"],
)
@streams
def test_an_endless_event_is_refused_at_the_limit(
    kind: str, operation: str, start: bytes, chunk: bytes
) -> None:
    if len(chunk) < 65536:
        chunk *= 65536 // len(chunk)
    begin = head(content_type="text/event-stream") + start
    with raw(agent(lambda _: flood(begin, chunk))) as server:
        error = failure(kind, server.url, operation, max_bytes=MEGABYTE)
    assert isinstance(error, A2AProtocolError)
    assert server.sent < MEGABYTE + IN_FLIGHT


def test_an_event_of_endless_empty_data_lines_is_refused(kind: str) -> None:
    """The lines have no data, but each of them takes memory."""
    begin = head(content_type="text/event-stream")
    with raw(agent(lambda _: flood(begin, b"data:\n" * 5000, 16 * MEGABYTE))) as server:
        error = failure(kind, server.url, "stream_message", max_bytes=50_000)
    assert isinstance(error, A2AProtocolError)


@pytest.mark.parametrize("operation", ["get_card", "send_message", "stream_message"])
@pytest.mark.parametrize("line", [b"x-more: " + b"x" * 1000 + b"\r\n", b"x" * 65536])
def test_endless_headers_are_refused(kind: str, operation: str, line: bytes) -> None:
    def script(request: Request) -> Iterable[Step]:
        return flood(b"HTTP/1.1 200 OK\r\n", line)

    with raw(script if operation == "get_card" else agent(script)) as server:
        error = failure(kind, server.url, operation)
    assert isinstance(error, A2AConnectionError)
    assert server.sent < IN_FLIGHT


@pytest.mark.rotating("kind", "operation")
@pytest.mark.parametrize("operation", ["get_card", "send_message"])
def test_a_compressed_response_is_not_decompressed(kind: str, operation: str) -> None:
    is_compressed = False

    def script(request: Request) -> Iterable[Step]:
        document = card(f"http://{request.headers['host']}/")
        if not request.is_card:
            document = {"jsonrpc": "2.0", "id": request.json["id"], "result": {"task": task()}}
        if not is_compressed:
            return reply(document)
        return reply(gzip.compress(json.dumps(document).encode()), content_encoding="gzip")

    with raw(script if operation == "get_card" else agent(script)) as server:
        with Client(kind, server.url) as client:
            client.do(operation, *OPERATIONS.get(operation, ()))
        is_compressed = True
        error = failure(kind, server.url, operation)
    assert isinstance(error, A2AProtocolError | A2ADiscoveryError)
    assert all(r.headers["accept-encoding"] == "identity" for r in server.requests)


def test_a_compressed_stream_raises_an_error(kind: str) -> None:
    event = {"jsonrpc": "2.0", "id": 1, "result": {"task": task()}}
    body = gzip.compress(b"data: " + json.dumps(event).encode() + b"\n\n")
    start = head(content_type="text/event-stream", content_encoding="gzip")
    with raw(agent(fixed(start + body, CLOSE))) as server:
        failure(kind, server.url, "stream_message")


# Time


@pytest.mark.parametrize("operation", ["get_card", "send_message", "stream_message", "subscribe"])
def test_an_agent_that_never_answers_times_out(kind: str, operation: str) -> None:
    script = fixed(HOLD)
    with raw(script if operation == "get_card" else agent(script)) as server:
        error = failure(kind, server.url, operation, timeout=SHORT_TIMEOUT)
    assert isinstance(error, A2ATimeoutError)
    assert error.sent


def test_a_stream_without_a_first_event_times_out(kind: str) -> None:
    with raw(agent(fixed(*events(then=HOLD)))) as server:
        error = failure(kind, server.url, "stream_message", timeout=SHORT_TIMEOUT)
    assert isinstance(error, A2ATimeoutError)


@pytest.mark.parametrize("operation", ["get_card", "send_message"])
def test_a_slowly_sent_body_times_out(kind: str, operation: str) -> None:
    def script(request: Request) -> Iterable[Step]:
        yield head(content_type="application/json", content_length="1000")
        yield from slow_chunks()

    with raw(script if operation == "get_card" else agent(script)) as server:
        error = failure(kind, server.url, operation, timeout=SHORT_TIMEOUT)
    assert isinstance(error, A2ATimeoutError)


@pytest.mark.parametrize(
    "chunk", [b"x", b"HTTP/1.1 100 Continue\r\n\r\n"], ids=["name", "informational"]
)
@pytest.mark.parametrize("operation", ["get_card", "send_message", "stream_message"])
def test_a_slowly_sent_head_times_out(kind: str, operation: str, chunk: bytes) -> None:
    if kind == "sync":
        pytest.skip("a documented limit: httpx applies the timeout to each read")

    def script(request: Request) -> Iterable[Step]:
        if chunk == b"x":
            yield b"HTTP/1.1 200 OK\r\nx-"
        yield from slow_chunks(chunk=chunk)

    with raw(script if operation == "get_card" else agent(script)) as server:
        error = failure(kind, server.url, operation, timeout=SHORT_TIMEOUT)
    assert isinstance(error, A2ATimeoutError)


def test_without_a_timeout_the_client_waits(kind: str) -> None:
    timeouts: list[float | None] = []

    def script(request: Request) -> Iterable[Step]:
        yield SHORT_TIMEOUT
        yield from ok(request)

    def record(request: httpx.Request) -> None:
        timeouts.extend(request.extensions["timeout"].values())

    async def record_async(request: httpx.Request) -> None:
        record(request)

    hooks = {"request": [record_async if kind == "async" else record]}
    http = http_client(kind, event_hooks=hooks)
    with (
        raw(agent(script)) as server,
        Client(kind, server.url, timeout=None, http_client=http) as client,
    ):
        assert client.do("send_message", "hi").id == "t-1"
    assert set(timeouts) == {None}  # the default would be longer than this test


# Answers that are not A2A

PAGES: dict[str, tuple[bytes, str]] = {
    "HTML": (HTML, "text/html"),
    "HTML that says it is JSON": (HTML, "application/json"),
    "half": (b'{"name": "raw", "supp', "application/json"),
    "empty": (b"", "application/json"),
    "no UTF-8": (b'{"name": "\xff\xfe\xfa"}', "application/json"),
    "binary": (bytes(range(256)), "application/octet-stream"),
    "NaN": (b'{"name": "raw", "x": NaN}', "application/json"),
    "infinity": (b'{"name": "raw", "x": -Infinity}', "application/json"),
    "deep": (b'{"name":' * 100_000, "application/json"),
    "deep lists": (b"[" * 100_000, "application/json"),
    "large number": (b'{"name": ' + b"9" * 10_000 + b"}", "application/json"),
    "null": (b"null", "application/json"),
    "list": (b"[]", "application/json"),
    "number": (b"5", "application/json"),
    "string": (b'"name"', "application/json"),
    "two": (b"{} {}", "application/json"),
    "stream": (b"data: {}\n\n", "text/event-stream"),
}
pages = pytest.mark.parametrize("page", PAGES)


@pages
def test_a_page_that_is_not_a_card_raises_a_discovery_error(kind: str, page: str) -> None:
    body, media_type = PAGES[page]
    with raw(fixed(*reply(body, content_type=media_type))) as server:
        error = failure(kind, server.url, "get_card")
    assert isinstance(error, A2ADiscoveryError)
    assert error.status_code == 200
    assert error.url.startswith(server.url)


@pages
@wires
def test_a_page_that_is_not_an_answer_raises_a_protocol_or_connection_error(
    kind: str, page: str, binding: str, version: str
) -> None:
    body, media_type = PAGES[page]
    card_members = card("/", binding, version)
    with raw(agent(fixed(*reply(body, content_type=media_type)), **card_members)) as server:
        for operation in ("send_message", "stream_message", "list_tasks"):
            if (page, binding, operation) == ("empty", "HTTP+JSON", "list_tasks"):
                continue  # an empty body is an empty list of tasks in this binding
            error = failure(kind, server.url, operation)
            assert isinstance(error, A2AProtocolError | A2AConnectionError)


@pytest.mark.parametrize("status", [201, 204, 400, 404, 418, 500, 502, 599, 999])
def test_an_unexpected_status_instead_of_the_card_is_in_the_error(kind: str, status: int) -> None:
    body = b"" if status == 204 else HTML
    with raw(fixed(*reply(body, status, content_type="text/html"))) as server:
        error = failure(kind, server.url, "get_card")
    assert isinstance(error, A2ADiscoveryError)
    assert error.status_code == status
    assert "Oops" not in str(error)


def test_the_error_for_a_missing_card_has_both_of_its_urls_and_a_hint(kind: str) -> None:
    def script(request: Request) -> list[Step]:
        return reply(HTML, 405 if request.path.endswith("card.json") else 404)

    with raw(script) as server:
        error = failure(kind, f"{server.url}/agent", "get_card")
    urls = [f"{server.url}/agent/.well-known/{name}.json" for name in ("agent-card", "agent")]
    assert isinstance(error, A2ADiscoveryError)
    assert str(error) == (
        f"No agent card: HTTP 405 from {urls[0]}, HTTP 404 from {urls[1]}. "
        f"Is {server.url}/agent the agent's base URL? Check its port and path"
    )
    assert (error.url, error.status_code) == (urls[1], 404)


@pytest.mark.parametrize("status", [200, 204, 304, 400, 404, 500, 502, 599])
@wires
def test_a_page_of_any_status_instead_of_an_answer_raises_one_of_our_errors(
    kind: str, status: int, binding: str, version: str
) -> None:
    body = b"" if status in (204, 304) else HTML
    card_members = card("/", binding, version)
    with raw(
        agent(fixed(*reply(body, status, content_type="text/html")), **card_members)
    ) as server:
        for operation in ("send_message", "stream_message"):
            error = failure(kind, server.url, operation)
            assert isinstance(error, A2AServerError if status >= 500 else A2AProtocolError)
            assert "Oops" not in str(error)
            assert not isinstance(error, A2AServerError) or error.status_code == status


@pytest.mark.parametrize("status", [401, 403])
@wires
def test_missing_credentials_raise_an_auth_error(
    kind: str, binding: str, version: str, status: int
) -> None:
    body = json.dumps({"error": {"code": -32000, "message": "no"}}).encode()
    script = fixed(*reply(body, status, www_authenticate='Bearer realm="x"'))
    with (
        raw(agent(script, **card("/", binding, version))) as server,
        Client(kind, server.url) as client,
    ):
        for operation in OPERATIONS:
            error = attempt(client, operation)
            assert isinstance(error, A2AAuthError)
            assert (error.status_code, error.challenge) == (status, 'Bearer realm="x"')


@pytest.mark.rotating("kind", "then")
@pytest.mark.parametrize(
    "body",
    [
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\r\n\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5, 6\r\n\r\nxxxxx",
        b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nshort\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\nxxxx",
        b"HTTP/1.1 200 OK\r\nset-cookie: \xff=\xfe; expires=\xfd; max-age=x\r\n\r\n",
        b"",
        b"HTTP/1.1 2",
    ],
)
@pytest.mark.parametrize("then", [CUT, CLOSE])
def test_an_invalid_http_answer_raises_one_of_our_errors(
    kind: str, body: bytes, then: Step
) -> None:
    script = fixed(body, then)
    with raw(script) as server:
        failure(kind, server.url, "get_card")
    with raw(agent(script)) as server:
        failure(kind, server.url, "send_message")
        failure(kind, server.url, "stream_message")


@pytest.mark.parametrize("then", [CUT, CLOSE])
@pytest.mark.parametrize("operation", ["send_message", "stream_message", "cancel_task"])
def test_a_request_counts_as_sent_if_the_connection_breaks_during_the_response(
    kind: str, operation: str, then: Step
) -> None:
    """Such a request is not repeated: it may have taken effect."""
    complete = reply({"jsonrpc": "2.0", "id": 1, "result": {"task": task()}})[0]
    assert isinstance(complete, bytes)
    for size in (0, 10, len(complete) // 2, len(complete) - 1):
        with raw(agent(fixed(complete[:size], then))) as server:
            error = failure(kind, server.url, operation, retries=3)
        assert isinstance(error, A2AConnectionError)
        assert error.sent
        assert len(server.calls) == 1


# Malformed cards

BAD_CARDS: dict[str, Any] = {
    "nothing": {},
    "name": {"name": 5},
    "name null": {"name": None},
    "interfaces": {"name": "x", "supportedInterfaces": {}},
    "interface": {"name": "x", "supportedInterfaces": ["http://127.0.0.1/"]},
    "no url": {"name": "x", "supportedInterfaces": [{}]},
    "url": {"name": "x", "supportedInterfaces": [{"url": 5}]},
    "version": {"name": "x", "supportedInterfaces": [{"url": "/", "protocolVersion": 1.0}]},
    "tenant": {"name": "x", "supportedInterfaces": [{"url": "/", "tenant": ["t"]}]},
    "old url": {"name": "x", "url": ["http://127.0.0.1/"]},
    "old version": {"name": "x", "url": "/", "protocolVersion": 0.3},
    "old transport": {"name": "x", "url": "/", "preferredTransport": [1]},
    "old interfaces": {"name": "x", "url": "/", "additionalInterfaces": [{"url": 1}]},
}
BAD_MEMBERS: dict[str, Any] = {
    "capabilities": {"capabilities": "streaming"},
    "capability": {"capabilities": {"streaming": "yes"}},
    "skills": {"skills": "all"},
    "skill": {"skills": [[]]},
    "tags": {"skills": [{"id": "s", "tags": [5]}]},
    "schemes": {"securitySchemes": []},
    "scheme": {"securitySchemes": {"k": None}},
    "scheme's name": {"securitySchemes": {"k": {"type": "apiKey", "name": []}}},
    "requirements": {"securityRequirements": "k"},
    "requirement": {"securityRequirements": ["k"]},
    "provider": {"provider": "me"},
}
BAD_CARDS |= {name: card("/", **members) for name, members in BAD_MEMBERS.items()}


@pytest.mark.parametrize("name", BAD_CARDS)
def test_a_malformed_card_raises_a_discovery_error(kind: str, name: str) -> None:
    with raw(fixed(*reply(BAD_CARDS[name]))) as server:
        error = failure(kind, server.url, "send_message", "hi", auth=APIKey("secret"))
    assert isinstance(error, A2ADiscoveryError)


ODD_MEMBERS: dict[str, Any] = {
    "scheme without a type": {"securitySchemes": {"k": {}}},
    "signatures": {"signatures": [{"protected": 1, "signature": 2}]},
    "schemes of a requirement": {"securityRequirements": [{"schemes": 5}]},
    "null schemes": {"securityRequirements": [{"schemes": None}]},
    "lists of schemes": {"securityRequirements": [{"schemes": [[], {}]}]},
    "old requirement": {"security": [{"k": 5}, 5]},
    "old requirements": {"security": 5},
    "name with a line break": {
        "securitySchemes": {"k": {"type": "apiKey", "in": "header", "name": "x\r\ny: z"}}
    },
    "name beyond ASCII": {
        "securitySchemes": {"k": {"type": "apiKey", "in": "header", "name": "schlüssel"}}
    },
    "empty name": {"securitySchemes": {"k": {"type": "apiKey", "in": "header", "name": ""}}},
    "cookie with a line break": {
        "securitySchemes": {"k": {"type": "apiKey", "in": "cookie", "name": "x\r\ny: z"}}
    },
    "cookie beyond ASCII": {
        "securitySchemes": {"k": {"type": "apiKey", "in": "cookie", "name": "keks\u20ac"}}
    },
    "lone surrogate": {
        "securitySchemes": {"k": {"type": "apiKey", "in": "query", "name": "\ud800"}}
    },
    "NUL in a name": {"securitySchemes": {"k": {"type": "apiKey", "in": "query", "name": "a\0b"}}},
    "unknown place": {"securitySchemes": {"k": {"type": "apiKey", "in": "moon", "name": "k"}}},
}


@pytest.mark.parametrize("name", ODD_MEMBERS)
def test_malformed_security_in_a_card_neither_shows_the_key_nor_adds_a_header(
    kind: str, name: str
) -> None:
    """The request is sent, or fails with one of our errors."""

    def script(request: Request) -> Iterable[Step]:
        result = task() if request.json["method"] == "GetTask" else {"task": task()}
        return rpc(request, result=result)

    with (
        raw(agent(script, **ODD_MEMBERS[name])) as server,
        Client(kind, server.url, auth=APIKey("secret")) as client,
    ):
        for operation in ("send_message", "stream_message", "get_task"):
            assert "secret" not in str(attempt(client, operation))
        assert all("y" not in request.headers for request in server.requests)


# URLs in cards

BAD_URLS = [
    "file:///etc/passwd",
    "ftp://127.0.0.1/",
    "ws://127.0.0.1/",
    "javascript:alert(1)",
    "data:,x",
    "mailto:someone@example.com",
    "https://",
    "http://user:hunter2@127.0.0.1/",
    "https://hunter2@127.0.0.1/",
    "http://127.0.0.1:port/",
    "http://127.0.0.1:0/",
    "http://127.0.0.1:99999/",
    "http://xn--zzzzzzz99999/",
    "http://\ud800/",
    "http://127.0.0.1/\ud800",
    "http://127.0.0.1/\n",
    "\0",
    "http://127.0.0.1/" + "x" * 70_000,
]
bad_urls = pytest.mark.parametrize("url", BAD_URLS, ids=lambda url: repr(url)[:40])


@bad_urls
def test_an_invalid_url_in_a_card_is_not_requested(kind: str, url: str) -> None:
    with raw(fixed(*reply(card(url)))) as server:
        error = failure(kind, server.url, "send_message")
    assert isinstance(error, A2ADiscoveryError)
    assert "hunter2" not in str(error)
    assert all(request.is_card for request in server.requests)


def test_a_url_at_which_nothing_listens_raises_a_connection_error(kind: str) -> None:
    with raw(fixed(*reply(card("http://127.0.0.1:1/")))) as server:
        error = failure(kind, server.url, "send_message")
    assert isinstance(error, A2AConnectionError)
    assert not error.sent


@pytest.mark.parametrize("address", ["localhost:50051", "grpc.example.com:443", "grpc://x/", "x"])
def test_an_interface_with_an_unknown_binding_is_skipped(kind: str, address: str) -> None:
    """Targets of gRPC are not URLs."""

    def script(request: Request) -> Iterable[Step]:
        if not request.is_card:
            return ok(request)
        card_members = card("/")
        other = {"url": address, "protocolBinding": "GRPC", "protocolVersion": "1.0"}
        card_members["supportedInterfaces"].insert(0, other)
        return reply(card_members)

    with raw(script) as server, Client(kind, server.url) as client:
        assert client.do("send_message", "hi").id == "t-1"


@pytest.mark.parametrize("interfaces", [[], [("GRPC", "1.0")], [("HTTP+JSON", "0.3")]])
def test_a_card_without_a_supported_interface_raises_a_discovery_error(
    kind: str, interfaces: Any
) -> None:
    offered = [
        {"url": "/", "protocolBinding": binding, "protocolVersion": version}
        for binding, version in interfaces
    ]
    with raw(agent(ok, supportedInterfaces=offered)) as server:
        error = failure(kind, server.url, "send_message")
    assert isinstance(error, A2ADiscoveryError)
    assert not server.calls


BASE = httpx.URL("https://agent.example.com/")


def exchange() -> Exchange:
    with httpx.Client() as http:
        return Exchange(http.build_request, None, {}, 5, 0, MEGABYTE)


def answer_step(steps: Steps[Any], status: int, body: Any = None, target: str = "") -> Any:
    """Run the steps up to the next request and answer it; return the step after the answer."""
    sent = next(steps)
    assert isinstance(sent, Send)
    response = httpx.Response(status, request=sent.request)
    response.next_request = httpx.Request("GET", target) if target else None
    assert isinstance(steps.send(response), Read)
    assert isinstance(steps.send(json.dumps(body).encode()), Read)
    assert isinstance(steps.send(b""), Close)
    return steps.send(None)


def test_a_card_fetched_by_https_may_not_name_an_http_url(kind: str) -> None:
    discovery = Discovery(exchange(), BASE, 300, None)
    with pytest.raises(A2ADiscoveryError):
        answer_step(discovery.binding(), 200, card("http://agent.example.com/"))


def test_a_card_is_not_fetched_by_http_after_a_redirect_from_https(kind: str) -> None:
    """An attacker on the network could insert a URL that would get the credentials."""
    steps = exchange().send(RequestSpec("GET", BASE, safe=True))
    with pytest.raises(A2AProtocolError):
        answer_step(steps, 302, target="http://cards.example.com/card.json")


# Redirects


def redirect(location: str, status: int = 302, **headers: str) -> list[Step]:
    return reply(b"moved", status, location=location, **headers)


CREDENTIALS: dict[str, dict[str, Any]] = {
    "token": {"auth": "Bearer secret"},
    "function": {"auth": lambda: "secret"},
    "basic": {"auth": httpx.BasicAuth("secret", "secret")},
    "key": {"auth": APIKey("secret")},
    "headers": {"headers": {"X-Own": "secret", "Cookie": "c=secret"}},
}


@pytest.mark.rotating("kind", "status")
@pytest.mark.parametrize("credentials", CREDENTIALS)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_of_the_card_is_followed_without_secrets(
    kind: str, status: int, credentials: str
) -> None:
    with (
        raw(fixed(*reply(card("/")))) as other,
        raw(fixed(*redirect(f"{other.url}/x", status, set_cookie="c=secret"))) as server,
        Client(kind, server.url, **CREDENTIALS[credentials]) as client,
    ):
        assert client.do("get_card").name == "raw"
        assert "secret" in str(server.requests) or credentials == "basic"
    assert [request.path for request in other.requests] == ["/x"]
    assert "secret" not in str(other.requests)
    assert not {"authorization", "cookie", "x-api-key"} & other.requests[0].headers.keys()


def test_secrets_of_an_httpx_client_are_not_sent_to_another_origin(kind: str) -> None:
    secrets = {
        "auth": ("secret", "secret"),
        "headers": {"x-own": "secret"},
        "cookies": {"c": "secret"},
        "params": {"p": "secret"},
    }
    own = http_client(kind, **secrets)
    with (
        raw(fixed(*reply(card("/")))) as other,
        raw(fixed(*redirect(f"{other.url}/x"))) as server,
        Client(kind, server.url, http_client=own) as client,
    ):
        assert client.do("get_card").name == "raw"
        assert "secret" in str(server.requests)
        assert "authorization" in server.requests[0].headers
    assert "secret" not in str(other.requests)
    assert "authorization" not in other.requests[0].headers


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_card_redirected_within_the_origin_gets_the_credentials(kind: str, status: int) -> None:
    def script(request: Request) -> Iterable[Step]:
        return redirect("/x", status) if request.is_card else reply(card("/"))

    with (
        raw(script) as server,
        Client(kind, server.url, auth="secret", headers={"x-own": "secret"}) as client,
    ):
        assert client.do("get_card").name == "raw"
    assert [request.headers.get("authorization") for request in server.requests] == [
        "Bearer secret"
    ] * 2
    assert server.requests[1].headers["x-own"] == "secret"


@pytest.mark.rotating("kind", "operation")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("operation", ["send_message", "stream_message", "get_task"])
def test_a_post_is_not_redirected_to_another_origin(kind: str, operation: str, status: int) -> None:
    with (
        raw(ok) as other,
        raw(agent(fixed(*redirect(f"{other.url}/?hunter2", status)))) as server,
    ):
        error = failure(kind, server.url, operation, auth="secret")
    assert isinstance(error, A2AProtocolError)
    assert "hunter2" not in str(error)
    assert other.connections == 0


@pytest.mark.parametrize("status", [307, 308])
@pytest.mark.parametrize("operation", ["send_message", "stream_message"])
def test_a_message_may_be_redirected_within_the_origin(
    kind: str, operation: str, status: int
) -> None:
    def script(request: Request) -> Iterable[Step]:
        return redirect("/moved", status) if request.bare_path == "/" else ok(request)

    with raw(agent(script)) as server, Client(kind, server.url, auth="secret") as client:
        client.do(operation, "hi")
    assert [request.path for request in server.calls] == ["/", "/moved"]
    assert server.calls[0].body == server.calls[1].body != b""
    assert server.calls[1].headers["authorization"] == "Bearer secret"


@pytest.mark.parametrize("status", [301, 302, 303])
def test_a_redirected_message_does_not_become_a_get(kind: str, status: int) -> None:
    with raw(agent(fixed(*redirect("/moved", status)))) as server:
        error = failure(kind, server.url, "send_message")
    assert isinstance(error, A2AProtocolError)
    assert [request.method for request in server.calls] == ["POST"]


@pytest.mark.parametrize("location", ["/.well-known/agent-card.json", "", "?again", "/{}"])
def test_a_chain_of_redirects_is_not_followed_forever(kind: str, location: str) -> None:
    numbers = iter(range(1000))
    with raw(lambda _: redirect(location.replace("{}", str(next(numbers))), 307)) as server:
        error = failure(kind, server.url, "get_card", retries=2)
        assert isinstance(error, A2ADiscoveryError)
        assert len(server.requests) == 6
        error = failure(kind, server.url, "send_message", protocol="1.0", retries=2)
        assert isinstance(error, A2AProtocolError)
        assert len(server.requests) == 18  # 6 more for the card, and 6 for the message


def test_redirects_between_two_agents_are_not_followed_forever(kind: str) -> None:
    urls: list[str] = []
    with (
        raw(lambda _: redirect(urls[1])) as first_agent,
        raw(lambda _: redirect(urls[0])) as second_agent,
    ):
        urls += [first_agent.url, second_agent.url]
        error = failure(kind, first_agent.url, "get_card", auth="secret")
    assert isinstance(error, A2ADiscoveryError)
    assert len(first_agent.requests) + len(second_agent.requests) == 6
    assert ["authorization" in request.headers for request in first_agent.requests] == [
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    "location",
    [
        *(url for url in BAD_URLS if url.isprintable()),
        "\xff\xfe",
        "http://127.0.0.1:1/",
        "http://[::1",
        "//",
        "///",
        "http:",
        "?%",
    ],
    ids=lambda location: repr(location)[:40],
)
def test_a_redirect_to_an_unusable_url_raises_one_of_our_errors(kind: str, location: str) -> None:
    if len(location) > 50_000:
        location = location[:50_000]
    script = fixed(*redirect(location, 307))
    with raw(script) as server:
        error = failure(kind, server.url, "get_card")
        assert "hunter2" not in str(error)
    with raw(agent(script)) as server:
        error = failure(kind, server.url, "send_message")
        assert "hunter2" not in str(error)


# Malformed answers

RESULTS: dict[str, Any] = {
    "null": None,
    "number": 5,
    "string": "task",
    "list": [],
    "list of null": [None],
    "list of lists": [[]],
    "nothing": {},
    "kind": {"kind": []},
    "kind of an object": {"kind": {}},
    "kind null": {"kind": None},
    "kind unknown": {"kind": "surprise"},
    "task null": {"task": None},
    "task a list": {"task": []},
    "task empty": {"task": {}},
    "id a number": {"task": {**task(), "id": 5}},
    "id null": {"task": {**task(), "id": None}},
    "no status": {"task": {"id": "t"}},
    "status a string": {"task": {"id": "t", "status": "completed"}},
    "no state": {"task": {"id": "t", "status": {}}},
    "state unknown": {"task": task(state="TASK_STATE_DREAMING")},
    "state a number": {"task": {"id": "t", "status": {"state": 3}}},
    "state a list": {"task": {"id": "t", "status": {"state": []}}},
    "timestamp a number": {"task": {"id": "t", "status": {"state": "working", "timestamp": 5}}},
    "artifacts a string": {"task": task(artifacts="all")},
    "artifact a string": {"task": task(artifacts=["one"])},
    "history an object": {"task": task(history={})},
    "metadata a list": {"task": task(metadata=[])},
    "role unknown": {"task": task(history=[{"role": "ROLE_GOD", "parts": []}])},
    "message": {"message": {"parts": "hello"}},
    **{
        f"part {name}": {"task": task(artifacts=[{"artifactId": "a", "parts": [part]}])}
        for name, part in {
            "null": None,
            "a string": "text",
            "empty": {},
            "unknown": {"kind": "hologram", "hologram": 1},
            "of a kind that is a list": {"kind": ["text"]},
            "of two contents": {"text": "a", "url": "b"},
            "of text that is a number": {"text": 5},
            "of invalid base64": {"raw": "%%%"},
            "of base64 beyond ASCII": {"raw": "äöü"},
            "of raw that is a list": {"raw": [1]},
            "of a file that is a string": {"kind": "file", "file": "x"},
            "of an empty file": {"kind": "file", "file": {}},
        }.items()
    },
    "tasks a number": {"tasks": 5},
    "tasks empty": {"tasks": [{}]},
    "cursor a number": {"tasks": [], "nextPageToken": 5},
    "size a string": {"tasks": [], "pageSize": "many"},
    "size true": {"tasks": [], "pageSize": True},
    "configs a number": {"configs": 5},
    "configs null": {"configs": None},
    "config null": {"configs": [None]},
    "schemes a number": {"taskId": "t", "url": "u", "authentication": {"schemes": 5}},
    "schemes null": {"taskId": "t", "url": "u", "authentication": {"schemes": None}},
    "old config a string": {"taskId": "t", "pushNotificationConfig": "x"},
    "update": {"statusUpdate": {"taskId": "t-1"}},
    "update's status": {"statusUpdate": {"taskId": "t-1", "status": []}},
    "artifact": {"artifactUpdate": {"taskId": "t-1", "artifact": None}},
    "artifact's parts": {"artifactUpdate": {"taskId": "t-1", "artifact": {"parts": 5}}},
    "append": {"artifactUpdate": {"taskId": "t-1", "artifact": {}, "append": "yes"}},
}


@pytest.mark.rotating("kind", "binding")
@wires
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_malformed_result_raises_one_of_our_errors_or_is_accepted(
    kind: str, operation: str, binding: str, version: str
) -> None:
    """Each method is tried with each result."""
    results: list[Any] = []

    def script(request: Request) -> Iterable[Step]:
        answer = wrap_result(request, results[-1])
        streams = "text/event-stream" in request.headers["accept"]
        return events(answer) if streams else reply(answer)

    foreign_errors = {}
    with (
        raw(agent(script, **card("/", binding, version))) as server,
        Client(kind, server.url) as client,
    ):
        for name, result in RESULTS.items():
            results.append(result)
            foreign_errors[name] = foreign_error(client, operation)
    assert not {name: error for name, error in foreign_errors.items() if error}


@wires
def test_a_result_that_is_not_a_task_raises_a_protocol_error(
    kind: str, binding: str, version: str
) -> None:
    results: list[Any] = []
    accepted = []
    with (
        raw(
            agent(lambda r: reply(wrap_result(r, results[-1])), **card("/", binding, version))
        ) as server,
        Client(kind, server.url) as client,
    ):
        for name, result in RESULTS.items():
            results.append(result)
            if not isinstance(attempt(client, "send_message"), A2AProtocolError):
                accepted.append(name)
    assert not accepted


ENVELOPES: dict[str, Any] = {
    "nothing": {},
    "null error": {"jsonrpc": "2.0", "id": 1, "error": None},
    "error a string": {"error": "no"},
    "error a number": {"error": 0},
    "error a list": {"error": [{"code": -32001}]},
    "error empty": {"error": {}},
    "code a string": {"error": {"code": "-32001", "message": "no"}},
    "code true": {"error": {"code": True, "message": "no"}},
    "code a fraction": {"error": {"code": -32001.5, "message": "no"}},
    "code large": {"error": {"code": -(10**40), "message": "no"}},
    "code an object": {"error": {"code": {}, "message": []}},
    "message missing": {"error": {"code": -32001}},
    "message an object": {"error": {"code": -32001, "message": {"a": 1}}},
    "message long": {"error": {"code": -32001, "message": "no" * 100_000}},
    "data null": {"error": {"code": -32602, "message": "no", "data": [None]}},
    "reason a number": {"error": {"code": -32602, "data": [{"reason": 5}]}},
    "reason a list": {"error": {"code": -32602, "data": {"type": []}}},
    "violations a number": {"error": {"code": -32602, "data": [{"fieldViolations": 5}]}},
    "violation a number": {"error": {"code": -32602, "data": [{"fieldViolations": [5]}]}},
    "errors a string": {"error": {"code": -32602, "data": {"errors": "all"}}},
    "details a string": {"error": {"code": 400, "details": "x"}},
}


@wires
@pytest.mark.parametrize("status", [200, 400, 404, 500])
def test_a_malformed_error_raises_one_of_our_errors(
    kind: str, status: int, binding: str, version: str
) -> None:
    envelopes: list[Any] = []
    script = agent(lambda _: reply(envelopes[-1], status), **card("/", binding, version))
    with raw(script) as server, Client(kind, server.url) as client:
        for envelope in ENVELOPES.values():
            envelopes.append(envelope)
            for operation in ("send_message", "stream_message", "get_push_config"):
                error = attempt(client, operation)
                assert isinstance(error, A2AError)
                assert len(str(error)) < 1000
                assert isinstance(getattr(error, "errors", []), list)


@wires
@streams
@pytest.mark.parametrize("as_event", [True, False], ids=["event", "answer"])
def test_an_error_instead_of_events_is_raised(
    kind: str, operation: str, binding: str, version: str, as_event: bool
) -> None:
    error = {"code": -32001, "message": "no such task"}
    body = {"jsonrpc": "2.0", "id": 1, "error": error}
    script = fixed(*(events(body) if as_event else reply(body)))
    with raw(agent(script, **card("/", binding, version))) as server:
        raised = failure(kind, server.url, operation)
    if binding == "JSONRPC" or as_event:
        assert isinstance(raised, TaskNotFoundError)
        assert str(raised) == "no such task"


@wires
@pytest.mark.parametrize("earlier_events", [0, 1])
def test_an_error_in_a_stream_is_raised_after_the_events_before_it(
    kind: str, earlier_events: int, binding: str, version: str
) -> None:
    def script(request: Request) -> Iterable[Step]:
        event = wrap_result(request, {"task": task(state="TASK_STATE_WORKING")})
        earlier = [event] * earlier_events
        return events(*earlier, {"error": {"code": -32001, "message": "no"}})

    received_events: list[Any] = []
    with (
        raw(agent(script, **card("/", binding, version))) as server,
        Client(kind, server.url) as client,
        pytest.raises(TaskNotFoundError),
    ):
        client.do("stream_message", "hi", into=received_events)
    assert len(received_events) == earlier_events


# Streams


@pytest.mark.rotating("kind", "operation")
@streams
@pytest.mark.parametrize(
    "body", [b"", b"\n\n\n", b": hello\n\n", b"data\n\n", b"data:\n\n", b"event: x\nid: 5\n\n"]
)
def test_an_empty_stream_raises_a_connection_error(kind: str, operation: str, body: bytes) -> None:
    with raw(agent(fixed(*events(body)))) as server:
        error = failure(kind, server.url, operation)
    assert isinstance(error, A2AConnectionError)


EVENTS: dict[str, bytes] = {
    "NaN": b'{"result": {"task": {"id": "t", "status": {"state": "working"}, "x": NaN}}}',
    "infinity": b'{"result": Infinity}',
    "large number": b'{"result": ' + b"9" * 10_000 + b"}",
    "binary": bytes(set(range(256)) - {10, 13}),
    "no UTF-8": b'{"result": "\xff"}',
    "half": b'{"result": {"task": {"id": "t"',
    "HTML": HTML,
    "deep": b"[" * 100_000,
    "text": b"hello",
    "null": b"null",
    "list": b"[]",
    "no result": b'{"jsonrpc": "2.0"}',
    "unknown": b'{"result": {"surprise": {}}}',
}


@pytest.mark.rotating("kind", "binding", "operation")
@pytest.mark.parametrize("name", EVENTS)
@streams
@wires
def test_a_malformed_event_raises_a_protocol_error(
    kind: str, operation: str, name: str, binding: str, version: str
) -> None:
    script = fixed(*events(b"data: " + EVENTS[name] + b"\n\n", then=HOLD))
    with raw(agent(script, **card("/", binding, version))) as server:
        error = failure(kind, server.url, operation)
    assert isinstance(error, A2AProtocolError)


def test_a_large_event_within_the_limit_is_read(kind: str) -> None:
    text = "x" * (3 * MEGABYTE)

    def script(request: Request) -> Iterable[Step]:
        artifacts = [{"artifactId": "a", "parts": [{"text": text}]}]
        return events(wrap_result(request, {"task": task(artifacts=artifacts)}))

    with raw(agent(script)) as server, Client(kind, server.url) as client:
        (event,) = client.do("stream_message", "hi")
    assert event.value == text


@pytest.mark.parametrize("id", ["käse", "日本", "a\tb", "\x01", "x" * 200_000, "\ufeff", "\udcff"])
def test_a_stream_with_any_event_id_resumes_or_raises_one_of_our_errors(kind: str, id: str) -> None:
    """The id is sent in a header when the client reconnects."""

    def script(request: Request) -> Iterable[Step]:
        first = wrap_result(request, {"task": task(state="TASK_STATE_WORKING")})
        line = b"id: " + id.encode("utf-8", "surrogateescape") + b"\n"
        if request.json["method"] == "SendStreamingMessage":
            return events(line, first)
        return events(wrap_result(request, {"task": task()}))

    with raw(agent(script)) as server, Client(kind, server.url, retries=1) as client:
        received_events: list[Any] = []
        try:
            client.do("stream_message", "hi", into=received_events)
        except A2AError:
            assert len(received_events) == 1
        else:
            assert [event.status.state for event in received_events] == ["working", "completed"]


@wires
@pytest.mark.parametrize("operation", ["stream_message", "call", "iter_tasks"])
def test_a_lone_surrogate_in_an_id_or_a_cursor_raises_one_of_our_errors(
    kind: str, operation: str, binding: str, version: str
) -> None:
    """JSON can contain a lone surrogate, but no request can."""

    def script(request: Request) -> Iterable[Step]:
        if operation == "iter_tasks":
            return reply(wrap_result(request, {"tasks": [], "nextPageToken": "\ud800"}))
        first = {"task": task("\ud800", "TASK_STATE_WORKING")}
        streams = "text/event-stream" in request.headers["accept"]
        return (events if streams else reply)(wrap_result(request, first))

    with raw(agent(script, **card("/", binding, version))) as server:
        failure(kind, server.url, operation)


# Pages of tasks


@pytest.mark.parametrize("cursors", [["a"], ["a", "b"], ["a", "b", "c", "b"]])
@wires
def test_pages_with_circular_cursors_are_not_read_forever(
    kind: str, cursors: list[str], binding: str, version: str
) -> None:
    requests: list[Any] = []

    def script(request: Request) -> Iterable[Step]:
        requests.append(request)
        next_cursor = cursors[(len(requests) - 1) % len(cursors)]
        page = {"tasks": [task(f"t-{len(requests)}")], "nextPageToken": next_cursor}
        return reply(wrap_result(request, page))

    received_tasks: list[Any] = []
    with (
        raw(agent(script, **card("/", binding, version))) as server,
        Client(kind, server.url) as client,
        pytest.raises(A2AProtocolError),
    ):
        client.do("iter_tasks", into=received_tasks)
    assert len(received_tasks) <= len(requests) <= 5
    assert received_tasks


def test_a_page_of_push_configs_that_names_itself_as_the_next_raises_a_protocol_error(
    kind: str,
) -> None:
    page = {"configs": [{"taskId": "t-1", "url": "http://a/"}], "nextPageToken": "2"}
    script = agent(lambda request: rpc(request, result=page))
    with (
        raw(script) as server,
        Client(kind, server.url) as client,
        pytest.raises(A2AProtocolError, match="twice"),
    ):
        client.do("list_push_configs", "t-1")


def test_an_empty_page_in_between_is_skipped(kind: str) -> None:
    def script(request: Request) -> Iterable[Step]:
        number = int(request.json["params"].get("pageToken", 0)) + 1
        tasks = [task(f"t-{number}")] if number % 2 else []
        return rpc(
            request, result={"tasks": tasks, "nextPageToken": str(number) if number < 5 else ""}
        )

    with raw(agent(script)) as server, Client(kind, server.url) as client:
        assert [task.id for task in client.do("iter_tasks")] == ["t-1", "t-3", "t-5"]


# Connections


@pytest.mark.parametrize("operation", ["send_message", "stream_message", "get_card"])
def test_a_client_can_be_used_after_failed_calls(kind: str, operation: str) -> None:
    """No fault leaves a connection open: the pool would run out of connections."""
    faults: list[Iterable[Step]] = [
        reply(HTML),
        [head(content_length="99"), b"half", CUT],
        reply(gzip.compress(HTML), content_encoding="gzip"),
        events(b"data: x\n\n", then=HOLD if operation == "stream_message" else CLOSE),
        reply(HTML, 500),
    ] * 30
    remaining: Iterator[Iterable[Step]] = iter(faults)

    def script(request: Request) -> Iterable[Step]:
        fault = next(remaining, None)
        if fault is not None:
            return fault
        return reply(card("/")) if request.is_card else ok(request)

    def answer(request: Request) -> Iterable[Step]:
        return script(request) if operation == "get_card" else agent(script)(request)

    with raw(answer) as server, Client(kind, server.url) as client:
        for _ in faults:
            with pytest.raises(A2AError):
                client.do(operation, *OPERATIONS.get(operation, ()))
        assert client.do(operation, *OPERATIONS.get(operation, ()))


def test_a_client_that_stops_reading_a_stream_does_not_reopen_it(kind: str) -> None:
    def script(request: Request) -> Iterable[Step]:
        first = wrap_result(request, {"task": task(state="TASK_STATE_WORKING")})
        return events(first, then=HOLD)

    with raw(agent(script)) as server, Client(kind, server.url) as client:
        assert client.first("stream_message", "hi").id == "t-1"
    assert len(server.calls) == 1
