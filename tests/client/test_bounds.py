"""Behaviour at the edges: timeouts, restarts of agents, redirected cards, odd ids and pages."""

import asyncio
import socket
import threading
from collections.abc import Iterable
from time import monotonic, sleep
from typing import Any

import httpx
import pytest
from apcore_a2a_client import (
    A2AClient,
    A2AProtocolError,
    A2ATimeoutError,
    CredentialsRefusedError,
    InvalidParamsError,
    SyncA2AClient,
)
from apcore_a2a_client.exchange import Send, Sleep, Steps
from apcore_a2a_client.methods import Operations

from .raw import (
    CUT,
    HOLD,
    KINDS,
    Client,
    Request,
    Step,
    agent,
    card,
    events,
    raw,
    reply,
    rpc,
    task,
)

pytestmark = pytest.mark.rotating("kind")

kinds = pytest.mark.parametrize("kind", KINDS)
WORKING: dict[str, Any] = {"task": task(state="TASK_STATE_WORKING")}


def bound_socket(port: int) -> socket.socket:
    """Return a socket bound to *port*, even if it was just in use."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", port))
    return sock


def test_a_cancelled_card_fetch_does_not_block_later_calls() -> None:
    asyncio.run(abandon_card_fetch())


async def abandon_card_fetch() -> None:
    def script(_: Request) -> Iterable[Step]:
        return [HOLD] if len(server.requests) == 1 else reply(card("/"))

    with raw(script) as server:
        async with A2AClient(server.url) as client:
            with pytest.raises(TimeoutError) as caught:
                await asyncio.wait_for(client.get_card(), 0.1)
            assert (await asyncio.wait_for(client.get_card(), 2)).name == "raw"
    # Keeps the traceback, and with it the frames of the abandoned call, until here.
    assert caught.value is not None


@pytest.mark.clock
@kinds
@pytest.mark.parametrize("unanswered", ["card", "send", "stream"])
def test_the_timeout_of_a_call_covers_all_its_requests(kind: str, unanswered: str) -> None:
    def script(request: Request) -> Iterable[Step]:
        if request.is_card:
            return [HOLD] if unanswered == "card" else reply(card("/"))
        if request.json["method"] == "SendMessage":
            return [HOLD] if unanswered == "send" else rpc(request, result=WORKING)
        return events(then=HOLD)

    with raw(script) as server, Client(kind, server.url, timeout=20) as client:
        started_at = monotonic()
        with pytest.raises(A2ATimeoutError):
            client.do("call", "skill", "hi", timeout=0.3)
        assert monotonic() - started_at < 2


@kinds
def test_a_stream_survives_a_restart_of_its_agent(kind: str) -> None:
    """Between the two servers, the port refuses connections."""

    def before_restart(request: Request) -> Iterable[Step]:
        result = {"jsonrpc": "2.0", "id": 1, "result": WORKING}
        return events(result, then=HOLD)

    def after_restart(request: Request) -> Iterable[Step]:
        result = {"task": task()}
        return events({"jsonrpc": "2.0", "id": 1, "result": result})

    received_events: list[Any] = []

    def read_stream(client: Client) -> None:
        client.do("stream_message", "hi", into=received_events)

    first_socket = bound_socket(0)
    port = first_socket.getsockname()[1]
    with Client(kind, f"http://127.0.0.1:{port}", timeout=20, retries=1) as client:
        thread = threading.Thread(target=read_stream, args=[client])
        with raw(agent(before_restart), first_socket):
            thread.start()
            while not received_events:
                assert thread.is_alive()
        with raw(agent(after_restart), bound_socket(port)):
            thread.join(10)
        assert not thread.is_alive()
    assert [event.status.state for event in received_events] == ["working", "completed"]


@kinds
@pytest.mark.parametrize("fault", [[CUT], reply(b"", 401)], ids=["cut", "unauthorized"])
def test_a_task_that_has_ended_is_returned_even_if_it_can_no_longer_be_fetched(
    kind: str, fault: list[Step]
) -> None:
    """The client fetches it since chunks without numbers may have been added twice."""
    completed = {"statusUpdate": {"taskId": "t-1", "status": task()["status"]}}

    def script(request: Request) -> Iterable[Step]:
        if request.json["method"] == "GetTask":
            return fault
        if request.json["method"] == "SendMessage":
            return rpc(request, result=WORKING)
        sent_events = (WORKING, completed)
        return events(*({"jsonrpc": "2.0", "id": 1, "result": event} for event in sent_events))

    with raw(agent(script)) as server, Client(kind, server.url) as client:
        started_task = client.do("send_message", "hi", blocking=False)
        assert client.do("wait", started_task).status.state == "completed"
        assert server.calls[-1].json["method"] == "GetTask"


@kinds
def test_a_changed_part_of_a_snapshot_is_another_chunk(kind: str) -> None:
    """The agent has no streaming, and the only part of its artifact changes between polls."""
    parts: list[Any] = [{"n": 1}, {"n": 2}]

    def script(request: Request) -> Iterable[Step]:
        if request.json["method"] == "SendMessage":
            return rpc(request, result=WORKING)
        data = parts.pop(0)
        artifacts = [{"artifactId": "a", "parts": [{"data": data}]}]
        state = "TASK_STATE_WORKING" if parts else "TASK_STATE_COMPLETED"
        return rpc(request, result=task(state=state, artifacts=artifacts))

    with (
        raw(agent(script, capabilities={})) as server,
        Client(kind, server.url) as client,
    ):
        assert client.do("stream", "skill", "hi") == [{"n": 1}, {"n": 2}]


def test_a_mock_transport_and_an_event_hook_that_reads_are_supported() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, json=card("http://agent.example/"))
        result = {"jsonrpc": "2.0", "id": 1, "result": {"task": task()}}
        return httpx.Response(200, json=result)

    def read(response: httpx.Response) -> None:
        response.read()

    http = httpx.Client(
        transport=httpx.MockTransport(answer), event_hooks={"response": [read]}, verify=False
    )
    with http, SyncA2AClient("http://agent.example", http_client=http) as client:
        assert client.send_message("hi").status.state == "completed"


@kinds
def test_credentials_are_not_sent_to_the_url_in_a_redirected_card(kind: str) -> None:
    def script(request: Request) -> Iterable[Step]:
        return reply(card("http://localhost:1/"))

    with raw(script) as other:
        other_origin = other.url.replace("127.0.0.1", "localhost")
        with (
            raw(lambda _: reply(b"", 302, location=other_origin)) as server,
            Client(kind, server.url, auth="Bearer s3cr3t") as client,
            pytest.raises(CredentialsRefusedError, match="localhost:1") as caught,
        ):
            client.do("get_task", "t-1")
    assert "s3cr3t" not in str(caught.value)


@kinds
@pytest.mark.parametrize("id", [".", ".."])
def test_an_id_that_would_change_the_path_of_a_request_is_refused(kind: str, id: str) -> None:
    script = agent(lambda _: reply({}), **card("/", "HTTP+JSON"))
    with raw(script) as server, Client(kind, server.url) as client:
        with pytest.raises(A2AProtocolError):
            client.do("delete_push_config", "t-1", id)
        assert server.calls == []


@kinds
def test_push_configs_are_listed_from_all_pages(kind: str) -> None:
    pages = [
        {"configs": [{"taskId": "t-1", "url": "http://a/"}], "nextPageToken": "2"},
        {"configs": [{"taskId": "t-1", "url": "http://b/"}], "nextPageToken": ""},
    ]
    with (
        raw(agent(lambda request: rpc(request, result=pages.pop(0)))) as server,
        Client(kind, server.url) as client,
    ):
        configs = client.do("list_push_configs", "t-1")
        assert [config.url for config in configs] == ["http://a/", "http://b/"]
        assert server.calls[1].json["params"]["pageToken"] == "2"


@kinds
def test_invalid_params_need_no_error_info(kind: str) -> None:
    """HTTP+JSON requires an ErrorInfo only for errors of A2A (§11.6)."""
    violation = {"field": "parts", "description": "is empty"}
    details = [
        {"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [violation]}
    ]
    error = {"code": 400, "status": "INVALID_ARGUMENT", "message": "no", "details": details}
    script = agent(lambda _: reply({"error": error}, 400), **card("/", "HTTP+JSON"))
    with raw(script) as server, Client(kind, server.url) as client:
        with pytest.raises(InvalidParamsError) as caught:
            client.do("send_message", "hi")
        assert caught.value.errors == [{"field": "parts", "message": "is empty"}]


def test_closing_an_operation_ends_its_fetch_of_the_card() -> None:
    client = SyncA2AClient("http://127.0.0.1:1")
    steps = Operations.get_card(client._operations)
    assert isinstance(next(steps), Send)
    steps.close()
    assert not client._operations._discovery._is_fetching


def test_a_call_waits_for_the_card_of_another_call_only_until_its_own_timeout() -> None:
    client = SyncA2AClient("http://127.0.0.1:1")
    card_steps = Operations.get_card(client._operations)
    assert isinstance(next(card_steps), Send)
    call_steps = Operations.call(client._operations, "skill", "hi", timeout=0.001)
    with pytest.raises(A2ATimeoutError):
        perform_sleeps(call_steps, 10)
    card_steps.close()


def perform_sleeps(steps: Steps[Any], count: int) -> None:
    """Perform the next steps, which must be sleeps."""
    for _ in range(count):
        step = next(steps)
        assert isinstance(step, Sleep)
        sleep(step.seconds)
