"""Details of HTTP: errors before a request is read, paths with encoded slashes, extensions."""

from typing import Any

import httpx
import pytest
from apcore_a2a_core import EXTENSION_URI
from apcore_a2a_server.push import PushSettings
from starlette.applications import Starlette
from starlette.routing import Mount

from .inloop import DIALECTS, Peer, StreamModule, always, app_of, registry_of, serving
from .inloop import anyio_backend as anyio_backend
from .test_streams import count_to_three

pytestmark = [pytest.mark.anyio, pytest.mark.rotating("agent", "rpc", "dialect")]
every_dialect = pytest.mark.parametrize("dialect", DIALECTS)

DEV_PUSH = PushSettings(dev=True)
MODULES = {"work": always({"done": True}), "chunks": StreamModule(count_to_three)}


def check_error(response: httpx.Response, status: int, name: str, reason: str) -> None:
    """Check that a response is an error of HTTP+JSON (A2A 1.0 §11.6)."""
    assert response.status_code == status
    assert response.headers["content-type"] == "application/a2a+json"
    error = response.json()["error"]
    assert (error["code"], error["status"]) == (status, name)
    assert error["message"]
    info = error["details"][0]
    assert info["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"
    assert info["reason"] == reason


# Errors of HTTP+JSON


@pytest.mark.parametrize(
    ("verb", "path", "allowed"),
    [
        ("GET", "/message:send", "POST"),
        ("PUT", "/message:stream", "POST"),
        ("POST", "/tasks", "GET"),
        ("DELETE", "/tasks/t1", "GET"),
        ("PATCH", "/tasks/t1:subscribe", "POST, GET"),
        ("PUT", "/tasks/t1/pushNotificationConfigs", "POST, GET"),
        ("POST", "/tasks/t1/pushNotificationConfigs/c1", "GET, DELETE"),
        ("POST", "/extendedAgentCard", "GET"),
    ],
)
async def test_a_wrong_verb_gets_405_with_the_allowed_verbs(
    verb: str, path: str, allowed: str
) -> None:
    async with serving(MODULES) as peer:
        response = await peer.client.request(verb, path)
        check_error(response, 405, "UNIMPLEMENTED", "METHOD_NOT_ALLOWED")
        assert response.headers["allow"] == allowed


async def test_an_unknown_path_gets_404() -> None:
    async with serving(MODULES) as peer:
        response = await peer.client.get("/tasks/t1/nothing")
        check_error(response, 404, "NOT_FOUND", "METHOD_NOT_FOUND")


async def test_a_body_that_is_too_large_gets_413() -> None:
    async with serving(MODULES, max_body=1000) as peer:
        response = await peer.client.post("/message:send", content=b" " * 2000)
        check_error(response, 413, "INVALID_ARGUMENT", "BODY_SIZE")
        assert "1000 bytes" in response.json()["error"]["message"]


async def test_a_body_that_is_not_json_gets_415() -> None:
    async with serving(MODULES) as peer:
        headers = {"Content-Type": "text/csv"}
        response = await peer.client.post("/message:send", content=b"a,b", headers=headers)
        check_error(response, 415, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED")


# Paths with encoded slashes


async def set_config(peer: Peer, config_id: str, tenant: str = "") -> str:
    """Set a push config for a new task, and return the task's id."""
    params = {**peer.wire.params("work"), "tenant": tenant}
    task_id: str = (await peer.ask("send", params)).task["id"]
    config = {"taskId": task_id, "id": config_id, "url": "http://127.0.0.1:9/hook"}
    config["tenant"] = tenant
    assert (await peer.in_dialect("1.0").ask("push set", config)).result["id"] == config_id
    return task_id


@pytest.mark.parametrize("config_id", ["a/b", "/", "//a/", "a%2Fb", "a%252fb", "a:b/c?d#e", ".."])
@pytest.mark.parametrize("tenant", ["", "acme"])
async def test_a_push_config_is_found_by_any_id(config_id: str, tenant: str) -> None:
    async with serving(MODULES, push_notifications=DEV_PUSH, tenants={"acme": "work"}) as peer:
        task_id = await set_config(peer, config_id, tenant)
        prefix = tenant and f"/{tenant}"
        quoted = "".join(f"%{byte:02x}" for byte in config_id.encode())
        path = f"{prefix}/tasks/{task_id}/pushNotificationConfigs/{quoted}"
        response = await peer.client.get(path)
        assert response.json()["id"] == config_id
        assert (await peer.client.delete(path)).status_code == 200
        assert (await peer.client.get(path)).status_code == 404


async def test_a_push_config_whose_id_has_a_slash_is_found_below_a_mount() -> None:
    inner = app_of(registry_of(MODULES), push_notifications=DEV_PUSH)
    outer = Starlette(routes=[Mount("/agents/one", inner)])
    outer.state.agent = inner.state.agent
    async with inner.router.lifespan_context(inner), serving(outer) as peer:
        mounted = Peer(inner, peer.client, "1.0")
        peer.client.base_url = peer.client.base_url.join("/agents/one/")
        task_id = await set_config(mounted, "a/b")
        response = await peer.client.get(f"tasks/{task_id}/pushNotificationConfigs/a%2Fb")
        assert response.json()["id"] == "a/b"


@pytest.mark.parametrize(
    "path",
    ["/tasks%2Ft1", "/tasks/t1%2Fx:cancel/y", "/a%2Fb/c/tasks", "/acme%2Ftasks", "/acme%2Fx/tasks"],
)
async def test_an_encoded_slash_does_not_separate_segments(path: str) -> None:
    async with serving(MODULES, tenants={"acme": "work"}) as peer:
        assert (await peer.client.get(path)).status_code == 404


# Extensions


@every_dialect
@pytest.mark.parametrize("header", ["A2A-Extensions", "X-A2A-Extensions"])
async def test_the_response_names_the_requested_extensions_that_the_agent_has(
    dialect: str, header: str
) -> None:
    requested = f"https://example.com/unknown/v1, {EXTENSION_URI}"
    async with serving(MODULES, dialect) as peer:
        for params in (peer.wire.params("work"), peer.wire.params("nothing")):
            answer = await peer.ask("send", params, {header: requested})
            assert answer.response.headers[header] == EXTENSION_URI
        request = peer.request("stream", peer.wire.params("chunks"), {header: requested})
        response = await peer.client.send(request)
        assert response.headers[header] == EXTENSION_URI
        assert response.headers["content-type"].startswith("text/event-stream")


@every_dialect
async def test_requested_extensions_may_come_in_several_headers(dialect: str) -> None:
    async with serving(MODULES, dialect) as peer:
        request = peer.request("list", {})
        lines = [("A2A-Extensions", EXTENSION_URI), ("A2A-Extensions", "https://example.com/x")]
        request.headers = httpx.Headers([*request.headers.multi_items(), *lines])
        response = await peer.client.send(request)
        assert response.headers["A2A-Extensions"] == EXTENSION_URI


@every_dialect
@pytest.mark.parametrize("headers", [{}, {"A2A-Extensions": "https://example.com/x, ,"}])
async def test_extensions_that_are_unknown_or_not_requested_are_not_named(
    dialect: str, headers: dict[str, Any]
) -> None:
    async with serving(MODULES, dialect) as peer:
        answer = await peer.ask("send", peer.wire.params("work"), headers)
        assert "a2a-extensions" not in answer.response.headers
