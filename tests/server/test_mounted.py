"""Agents in other ASGI servers and applications: their URL, and their lifespan."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from apcore_a2a_auth import APIKeyAuthenticator
from apcore_a2a_server import create_app
from apcore_a2a_server.app.cards import MAX_CARDS
from apcore_a2a_server.modules import bridges
from starlette.applications import Starlette
from starlette.routing import Mount

from .checking_client import Json
from .modules import Echo
from .test_serve import registry_of

pytestmark = pytest.mark.anyio

CARD = "/.well-known/agent-card.json"
SEND = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "SendMessage",
    "params": {
        "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]},
        "metadata": {"skillId": "echo"},
    },
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def client_of(app: Any, url: str, **headers: str) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url=url, headers=headers) as client:
        yield client


async def card_at(app: Any, url: str, path: str = CARD, **headers: str) -> Json:
    async with client_of(app, url, **headers) as client:
        response = await client.get(path)
        assert response.status_code == 200, response.text
        card: Json = response.json()
        return card


@pytest.mark.parametrize(
    "url",
    ["http://agent.example", "https://Agent.example:8443", "http://[::1]:80", "http://10.0.0.1"],
)
async def test_without_a_url_the_card_has_the_url_of_the_request(url: str) -> None:
    card = await card_at(create_app(registry_of(echo=Echo())), url)

    expected = httpx.URL(url)
    assert httpx.URL(card["url"]) == expected.copy_with(path="/")
    assert all(entry["url"].startswith(card["url"]) for entry in card["supportedInterfaces"])


async def test_a_mounted_agent_has_its_path_in_the_url_of_the_card() -> None:
    agent = create_app(registry_of(echo=Echo()))
    site = Starlette(routes=[Mount("/agents/one", agent)])

    card = await card_at(site, "https://site.example", f"/agents/one{CARD}")

    assert card["url"] == "https://site.example/agents/one/"


async def test_a_card_is_private_if_its_url_comes_from_the_request() -> None:
    for url, caching in ((None, "private, max-age=300"), ("https://a", "max-age=300")):
        app = create_app(registry_of(echo=Echo()), url=url)
        async with client_of(app, "https://b.example") as client:
            assert (await client.get(CARD)).headers["cache-control"] == caching


@pytest.mark.parametrize(
    "host", ["", "a b", "a/b", "user@a", "a:b", "a?x", 'a"b', "é", "a" * 300, "[::1", "a:999999"]
)
async def test_a_malformed_host_is_not_put_on_the_card(host: str) -> None:
    app = create_app(registry_of(echo=Echo()))
    scope = {
        "type": "http",
        "method": "GET",
        "path": CARD,
        "raw_path": CARD.encode(),
        "query_string": b"",
        "scheme": "http",
        "headers": [(b"host", host.encode())],
    }
    messages: list[Any] = []

    async def send(message: Any) -> None:
        messages.append(message)

    await app(scope, _receive, send)

    assert messages[0]["status"] != 200 or b'"url":"http://localhost:8000/"' in messages[1]["body"]


async def _receive() -> Any:
    return {"type": "http.request", "body": b"", "more_body": False}


async def test_cards_of_invented_hosts_do_not_displace_the_card_of_a_host_in_use() -> None:
    app = create_app(registry_of(echo=Echo()), allowed_hosts=["*.example"])
    cards = app.state.agent.cards
    await card_at(app, "http://real.example")
    (card,) = (cards._cards[key] for key in cards._cards if key.url == "http://real.example/")
    for number in range(2 * MAX_CARDS):
        invented = await card_at(app, f"http://host{number}.example")
        assert invented["url"] == f"http://host{number}.example/"
        await card_at(app, "http://real.example")
    assert any(cached is card for cached in cards._cards.values())
    assert len(cards._cards) == MAX_CARDS


async def test_only_allowed_hosts_get_a_card() -> None:
    app = create_app(registry_of(echo=Echo()), allowed_hosts=["*.example"])
    async with client_of(app, "http://other.test") as client:
        assert (await client.get(CARD)).status_code == 421


async def test_the_extended_card_has_the_url_of_the_request_in_rest_and_json_rpc() -> None:
    app = create_app(registry_of(echo=Echo()), auth=APIKeyAuthenticator({"key": "ada"}))
    async with client_of(app, "https://agent.example", **{"x-api-key": "key"}) as client:
        over_rest = (await client.get("/agent/authenticatedExtendedCard")).json()
        body = {"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard", "params": {}}
        over_rpc = (await client.post("/", json=body)).json()["result"]

    assert over_rest["url"] == "https://agent.example/"
    assert over_rpc["supportedInterfaces"][0]["url"] == "https://agent.example/"


async def test_a_mounted_agent_without_its_lifespan_refuses_messages_and_says_why() -> None:
    agent = create_app(registry_of(echo=Echo()))
    site = Starlette(routes=[Mount("/agent", agent)])
    async with client_of(site, "https://site.example") as client:
        refused = await client.post("/agent/", json=SEND)
        assert refused.status_code == 503
        assert "must run the agent's lifespan" in refused.json()["error"]["message"]
        over_rest = await client.post("/agent/message:send", json=SEND["params"])
        assert over_rest.status_code == 503
        assert (await client.get(f"/agent{CARD}")).status_code == 200

        async with agent.router.lifespan_context(agent):
            accepted = await client.post("/agent/", json=SEND)
    assert accepted.json()["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_an_error_of_the_mounting_program_stops_the_agent() -> None:
    agent = create_app(registry_of(echo=Echo()))

    async def program() -> None:
        async with agent.router.lifespan_context(agent):
            assert (await client.get("/health")).status_code == 200
            raise ZeroDivisionError

    async with client_of(agent, "https://site.example") as client:
        with pytest.raises(ZeroDivisionError):
            await program()
        assert (await client.get("/health")).json()["status"] == "draining"


class Closable(Echo):
    """A module that records that it was closed, and may fail to close."""

    closed = False

    def __init__(self, problem: str = "") -> None:
        self._problem = problem
        self.module_id = problem or "works"

    async def close(self) -> None:
        self.closed = True
        if self._problem == "raises":
            raise OSError(self._problem)
        if self._problem == "cancels":
            raise asyncio.CancelledError
        if self._problem == "exits":
            raise SystemExit(7)
        if self._problem == "hangs":
            await asyncio.Event().wait()


async def test_modules_are_closed_when_the_agent_stops(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridges, "CLOSE_TIMEOUT", 0.01)
    problems = ["cancels", "exits", "hangs", "raises"]
    modules = [Closable(problem) for problem in [*problems, ""]]
    app = create_app(modules)
    async with app.router.lifespan_context(app):
        assert not any(module.closed for module in modules)
    assert all(module.closed for module in modules)
    failures = [record for record in caplog.records if record.levelname == "ERROR"]
    assert {vars(record)["event"] for record in failures} == {"module_close_failed"}
    assert sorted(record.getMessage().split()[2] for record in failures) == problems


async def test_the_modules_of_a_registry_stay_open() -> None:
    module = Closable()
    for source in (registry_of(echo=module), [registry_of(echo=module)]):
        app = create_app(source)
        async with app.router.lifespan_context(app):
            pass
    assert not module.closed
