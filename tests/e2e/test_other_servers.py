"""The application served by hypercorn, mounted in another application, and called by web pages."""

import asyncio
import gc
import json
from asyncio import Future
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from a2a.client import ClientConfig, ClientFactory
from a2a.helpers import get_data_parts, new_data_message
from a2a.types import GetTaskRequest, Role, SendMessageRequest, TaskState
from apcore_a2a_core.states import FAILED
from apcore_a2a_server import InMemoryTaskStore, create_app
from hypercorn.asyncio import serve
from hypercorn.config import Config
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from tests.e2e import modules
from tests.e2e.wire import Json, Rpc
from tests.serving import PATIENCE, listener, running

PREFIX = "/agents/tea"
PAGE = "https://page.example"
FOREIGN = "https://foreign.example"


def send_params(skill: str, **inputs: Any) -> Json:
    """Return the params of a send in 0.3."""
    parts = [{"kind": "data", "data": inputs}]
    message = {"kind": "message", "messageId": "m", "role": "user", "parts": parts}
    return {"message": message, "metadata": {"skillId": skill}}


class HypercornServer:
    """An application that hypercorn serves in this event loop, with a client to call it."""

    def __init__(
        self, http: httpx.AsyncClient, stop: asyncio.Event, serve_task: Future[None]
    ) -> None:
        self._http = http
        self.stop = stop
        self.serve_task = serve_task

    async def send(self, params: Json) -> Json:
        request = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params}
        response = await self._http.post("/", json=request)
        task: Json = response.json()["result"]
        return task

    @asynccontextmanager
    async def stream(self, params: Json) -> AsyncIterator[AsyncIterator[Json]]:
        """Open a stream and yield an iterator over its events."""
        request = {"jsonrpc": "2.0", "id": 1, "method": "message/stream", "params": params}
        async with self._http.stream("POST", "/", json=request) as response:
            lines = response.aiter_lines()
            yield (json.loads(line[5:])["result"] async for line in lines if line[:5] == "data:")


@asynccontextmanager
async def hypercorn(app: Any) -> AsyncIterator[HypercornServer]:
    """Serve *app*."""
    sock = listener()
    sock.listen()
    config = Config()
    config.bind = [f"fd://{sock.fileno()}"]
    config.graceful_timeout = PATIENCE
    config.errorlog = None
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    sock.detach()  # hypercorn owns the socket from here on
    stop = asyncio.Event()
    serve_task = asyncio.ensure_future(serve(app, config, shutdown_trigger=stop.wait))
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE, trust_env=False) as http:
        try:
            yield HypercornServer(http, stop, serve_task)
        finally:
            stop.set()
            await asyncio.wait_for(serve_task, PATIENCE)


@pytest.mark.anyio
async def test_hypercorn_serves_messages_and_streams() -> None:
    with closing(modules.executor()) as executor:
        async with hypercorn(create_app(executor)) as server:
            task = await server.send(send_params("test.echo", n=1))
            async with server.stream(send_params("text.stats", text="tea")) as stream:
                events = [event async for event in stream]
    assert task["artifacts"][0]["parts"] == [{"kind": "data", "data": {"n": 1}}]
    assert events[0]["kind"] == "task"
    assert events[-1]["status"]["state"] == "completed"


@pytest.mark.anyio
async def test_hypercorn_lets_a_running_stream_finish_at_shutdown() -> None:
    gates = modules.Gates()
    with closing(modules.executor(gates)) as executor:
        async with hypercorn(create_app(executor)) as server:
            async with server.stream(send_params("test.wait", gate="a")) as stream:
                while (await anext(stream))["kind"] != "artifact-update":
                    continue
                server.stop.set()
                gates.events["a"].set()
                *_, last = [event async for event in stream]
            await asyncio.wait_for(server.serve_task, PATIENCE)
    assert last["status"]["state"] == "completed"


@pytest.mark.anyio
async def test_a_job_that_is_still_running_at_shutdown_fails() -> None:
    store = InMemoryTaskStore()
    with closing(modules.executor()) as executor:
        app = create_app(executor, task_store=store, shutdown_timeout=0)
        async with hypercorn(app) as server:
            async with server.stream(send_params("test.wait", gate="never")) as stream:
                task = await anext(stream)
                while (await anext(stream))["kind"] != "artifact-update":
                    continue
                server.stop.set()
            # The stream is closed by now: since Python 3.12.1, hypercorn waits for open streams.
            await asyncio.wait_for(server.serve_task, PATIENCE)
    record = await store.get(task["id"])
    assert record is not None
    assert record.task.status.state == FAILED
    assert record.task.status.message is not None
    assert record.task.status.message.parts[0].text == "Server shutdown"


@pytest.mark.anyio
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_an_agent_under_a_prefix_is_discovered_and_responds(binding: str) -> None:
    outer = Starlette(routes=[Route("/", lambda request: PlainTextResponse("outer app"))])
    with closing(modules.executor()) as executor, running(outer) as url:
        app = create_app(executor, url=url + PREFIX)
        outer.mount(PREFIX, app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(timeout=PATIENCE, trust_env=False) as http,
        ):
            assert (await http.get(url)).text == "outer app"
            assert (await http.get(f"{url}{PREFIX}/health")).json()["status"] == "healthy"
            config = ClientConfig(httpx_client=http, supported_protocol_bindings=[binding])
            client = await ClientFactory(config).create_from_url(url + PREFIX)
            message = new_data_message({"n": 1}, role=Role.ROLE_USER)
            request = SendMessageRequest(message=message)
            request.metadata.update({"skillId": "test.echo"})
            first, *_, last = [event async for event in client.send_message(request)]
            task = await client.get_task(GetTaskRequest(id=first.task.id))
    assert last.status_update.status.state == TaskState.TASK_STATE_COMPLETED
    assert get_data_parts(task.artifacts[0].parts) == [{"n": 1}]


@pytest.mark.anyio
async def test_the_card_of_an_agent_under_a_prefix_names_a_url_under_that_prefix() -> None:
    outer = Starlette()
    with closing(modules.executor()) as executor, running(outer) as url:
        outer.mount(PREFIX, create_app(executor))
        async with httpx.AsyncClient(timeout=PATIENCE, trust_env=False) as http:
            card = await http.get(f"{url}{PREFIX}/.well-known/agent-card.json")
    assert urlsplit(card.json()["url"]).path == f"{PREFIX}/"


@pytest.fixture(scope="module")
def cors_agent() -> Iterator[str]:
    """Yield the URL of an agent that the web pages of one origin may call."""
    with (
        closing(modules.executor()) as executor,
        running(executor, cors_origins=[PAGE]) as url,
    ):
        yield url


def post(url: str, **headers: str) -> httpx.Response:
    """Send a message with *headers* and return the response."""
    request = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "message/send",
        "params": send_params("test.echo"),
    }
    return httpx.post(url, json=request, headers=headers, trust_env=False, timeout=PATIENCE)


def preflight(url: str, origin: str, method: str = "POST") -> httpx.Response:
    """Send a CORS preflight request for a page of *origin* and return the response."""
    headers = {
        "origin": origin,
        "access-control-request-method": method,
        "access-control-request-headers": "a2a-version,authorization,content-type,last-event-id",
    }
    return httpx.options(url, headers=headers, trust_env=False, timeout=PATIENCE)


@pytest.mark.parametrize("path", ["/", "/message:send", "/.well-known/agent-card.json"])
def test_a_preflight_from_an_allowed_origin_is_accepted(cors_agent: str, path: str) -> None:
    answer = preflight(cors_agent + path, PAGE)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert "POST" in answer.headers["access-control-allow-methods"]
    allowed = answer.headers["access-control-allow-headers"].lower()
    assert {"a2a-version", "content-type", "last-event-id"} <= set(
        allowed.replace(" ", "").split(",")
    )


def test_a_preflight_from_another_origin_is_refused(cors_agent: str) -> None:
    answer = preflight(cors_agent, FOREIGN)
    assert answer.status_code == 400
    assert "access-control-allow-origin" not in answer.headers


def test_without_allowed_origins_a_preflight_is_refused(agent: str) -> None:
    answer = preflight(agent, PAGE)
    assert answer.is_error
    assert "access-control-allow-origin" not in answer.headers


def test_a_page_of_an_allowed_origin_can_read_the_response(cors_agent: str) -> None:
    answer = post(cors_agent, origin=PAGE)
    assert answer.json()["result"]["status"]["state"] == "completed"
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert "origin" in answer.headers["vary"].lower()


@pytest.mark.parametrize("origin", [FOREIGN, "null", "http://127.0.0.1:1", f"{PAGE}:8443", ""])
def test_a_message_from_a_foreign_page_is_refused(cors_agent: str, origin: str) -> None:
    for path in ("/", "/message:send"):
        answer = post(cors_agent + path, origin=origin)
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers


def test_a_message_from_the_agents_own_page_is_served(cors_agent: str, agent: str) -> None:
    for url in (cors_agent, agent):
        assert post(url, origin=url).json()["result"]["status"]["state"] == "completed"


def test_a_message_without_an_origin_is_served(cors_agent: str) -> None:
    assert post(cors_agent).json()["result"]["status"]["state"] == "completed"


def test_the_card_is_served_to_any_origin_but_only_pages_of_allowed_ones_can_read_it(
    cors_agent: str,
) -> None:
    card = f"{cors_agent}/.well-known/agent-card.json"
    for origin, readers in ((PAGE, PAGE), (FOREIGN, None)):
        answer = httpx.get(card, headers={"origin": origin}, trust_env=False)
        assert answer.is_success
        assert answer.headers.get("access-control-allow-origin") == readers


def test_only_requests_for_allowed_hosts_are_served() -> None:
    hosts = ["agent.example"]
    with closing(modules.executor()) as executor, running(executor, allowed_hosts=hosts) as url:
        assert post(url, host="agent.example").is_success
        assert post(url, host="foreign.example").status_code == 421
        assert post(url).status_code == 421


def test_a_server_of_a_folder_closes_everything_it_opens() -> None:
    with running(modules.EXAMPLES) as url, httpx.Client(base_url=url, trust_env=False) as http:
        params = send_params("files.delete", path="none.txt")
        paused = Rpc(http).call("message/send", params)["result"]
    assert paused["status"]["state"] == "input-required"
    gc.collect()  # anything still open raises a ResourceWarning here, which is an error
