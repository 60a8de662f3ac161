"""The Agent Card over HTTP, and the paths next to it."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from apcore_a2a_server.push import PushSettings

from .inloop import ActionModule, Peer, echo, serving
from .inloop import anyio_backend as anyio_backend

pytestmark = [pytest.mark.anyio, pytest.mark.rotating("path")]

PATHS = ["/.well-known/agent-card.json", "/.well-known/agent.json"]
CARD = PATHS[0]


@pytest.fixture
async def peer(anyio_backend: Any) -> AsyncIterator[Peer]:
    async with serving({"work": ActionModule(echo)}, url="https://agent.example.com/a") as peer:
        yield peer


async def test_both_paths_return_the_same_bytes_and_headers(peer: Peer) -> None:
    first, second = [await peer.client.get(path) for path in PATHS]
    assert first.status_code == second.status_code == 200
    assert first.content == second.content
    assert first.headers == second.headers
    assert first.headers["content-type"] == "application/json"
    assert first.headers["cache-control"] == "max-age=300"
    assert first.headers["etag"].startswith('"')


async def test_the_card_lists_the_agents_urls_and_bindings(peer: Peer) -> None:
    card = (await peer.client.get(CARD)).json()
    assert [
        (interface["protocolBinding"], interface["protocolVersion"])
        for interface in card["supportedInterfaces"]
    ] == [("JSONRPC", "1.0"), ("JSONRPC", "0.3"), ("HTTP+JSON", "1.0"), ("HTTP+JSON", "0.3")]
    urls = {interface["url"] for interface in card["supportedInterfaces"]}
    assert urls == {"https://agent.example.com/a/"}
    assert (card["url"], card["protocolVersion"]) == ("https://agent.example.com/a/", "0.3.0")
    assert card["preferredTransport"] == "JSONRPC"
    assert card["capabilities"]["streaming"] is True
    assert card["capabilities"]["pushNotifications"] is False
    assert [skill["id"] for skill in card["skills"]] == ["work"]


@pytest.mark.parametrize("setting", [True, PushSettings(dev=True)])
async def test_the_card_declares_push_notifications_when_enabled(setting: Any) -> None:
    async with serving({"work": ActionModule(echo)}, push_notifications=setting) as peer:
        card = (await peer.client.get(CARD)).json()
        assert card["capabilities"]["pushNotifications"] is True


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("form", ["{}", "W/{}", '"x", {}', '"x",W/{} , "y"', "*", '"x"  ,  {}'])
async def test_a_request_with_the_current_etag_gets_304(peer: Peer, path: str, form: str) -> None:
    tag = (await peer.client.get(path)).headers["etag"]
    response = await peer.client.get(path, headers={"If-None-Match": form.format(tag)})
    assert (response.status_code, response.content) == (304, b"")
    assert response.headers["etag"] == tag
    assert response.headers["cache-control"] == "max-age=300"


@pytest.mark.parametrize("etag", ['"x"', "x", "", '"x", "y"', "**", 'W/"x"', "{}", "W/", '"'])
async def test_a_request_with_another_etag_gets_the_card(peer: Peer, etag: str) -> None:
    response = await peer.client.get(CARD, headers={"If-None-Match": etag})
    assert response.status_code == 200
    assert response.json()["skills"]


async def test_an_etag_without_quotes_does_not_match(peer: Peer) -> None:
    tag = (await peer.client.get(CARD)).headers["etag"].strip('"')
    response = await peer.client.get(CARD, headers={"If-None-Match": tag})
    assert response.status_code == 200


@pytest.mark.parametrize("path", PATHS)
async def test_head_returns_only_the_headers(peer: Peer, path: str) -> None:
    full, head = await peer.client.get(path), await peer.client.head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers == full.headers
    assert int(head.headers["content-length"]) == len(full.content)
    conditional = {"If-None-Match": full.headers["etag"]}
    assert (await peer.client.head(path, headers=conditional)).status_code == 304


@pytest.mark.parametrize("path", [*PATHS, "/health"])
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_pages_refuse_methods_other_than_get_and_head(
    peer: Peer, path: str, method: str
) -> None:
    response = await peer.client.request(method, path)
    assert response.status_code == 405
    assert {"GET", "HEAD"} <= set(response.headers["allow"].split(", "))


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_the_root_path_allows_only_post(peer: Peer, method: str) -> None:
    response = await peer.client.request(method, "/")
    assert response.status_code == 405
    assert response.headers["allow"] == "POST"
    if method != "HEAD":
        assert "POST" in response.json()["error"]


async def test_there_is_no_extended_card_if_authentication_is_not_configured(peer: Peer) -> None:
    response = await peer.client.get("/agent/authenticatedExtendedCard")
    assert response.status_code == 404
    assert response.json() == {"error": "Authentication is not configured"}


async def test_an_unknown_path_is_not_found(peer: Peer) -> None:
    for path in ("/nothing", "/.well-known/other.json", "/tasks/a/b/c"):
        response = await peer.client.get(path)
        assert response.status_code == 404
        assert response.headers["content-type"] == "application/a2a+json"


async def test_two_servers_of_the_same_agent_have_the_same_etag(peer: Peer) -> None:
    tag = (await peer.client.get(CARD)).headers["etag"]
    modules = {"work": ActionModule(echo)}
    async with serving(modules, url="https://agent.example.com/a") as same_agent:
        assert (await same_agent.client.get(CARD)).headers["etag"] == tag
    async with serving(modules, url="https://agent.example.com/b") as other_agent:
        assert (await other_agent.client.get(CARD)).headers["etag"] != tag


class Config:
    """The part of an apcore Config that the card needs."""

    def __init__(self, **values: str) -> None:
        self._values = values

    def get(self, key: str) -> Any:
        return self._values.get(key.removeprefix("project."))


async def test_the_agents_identity_comes_from_the_options_or_else_the_config() -> None:
    modules, members = {"work": ActionModule(echo)}, ("name", "description", "version")

    async def identity(**options: Any) -> tuple[str, ...]:
        async with serving(modules, **options) as peer:
            card = (await peer.client.get(CARD)).json()
            return tuple(card[member] for member in members)

    config = Config(name="configured", description="From the config", version="2.0")
    own = {"name": "own", "description": "By option", "version": "3.0"}
    assert await identity() == ("apcore-agent", "apcore agent with 1 skill", "0.0.0")
    assert await identity(config=config) == ("configured", "From the config", "2.0")
    assert await identity(config=config, **own) == ("own", "By option", "3.0")
    assert (await identity(config=config, description=" \n"))[1] == "From the config"
    assert (await identity(config=Config(description=" "), name="own"))[1] == (
        "apcore agent with 1 skill"
    )
    assert await identity(config=Config(), name="own") == (
        "own",
        "apcore agent with 1 skill",
        "0.0.0",
    )


async def test_text_in_other_scripts_is_not_escaped() -> None:
    async with serving({"work": ActionModule(echo)}, name="Übersetzer 翻訳") as peer:
        response = await peer.client.get(CARD)
        assert "Übersetzer 翻訳".encode() in response.content
        assert json.loads(response.content)["name"] == "Übersetzer 翻訳"
