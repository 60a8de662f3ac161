"""The explorer's page of an agent: its path, its readers, and invalid options."""

import logging
from collections.abc import Iterator
from importlib.metadata import EntryPoints
from pathlib import Path
from typing import Any

import httpx
import pytest
from apcore import Registry
from apcore_a2a_auth import APIKeyAuthenticator
from apcore_a2a_server import create_app
from apcore_a2a_server.app import explorer
from apcore_a2a_server.app.options import ServeSettings
from apcore_a2a_server.app.serve import _announce  # noqa: PLC2701 - what is logged at a start
from apcore_a2a_server.app.supervisor import StartReport
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.serving import running

from .inloop import ActionModule, echo, registry_of

SEND = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "message/send",
    "params": {
        "message": {"kind": "message", "role": "user", "parts": [{"kind": "data", "data": {}}]},
        "metadata": {"skillId": "work"},
    },
}


@pytest.fixture(scope="module")
def modules() -> Registry:
    return registry_of({"work": ActionModule(echo)})


@pytest.fixture(scope="module")
def agent_url(modules: Registry) -> Iterator[str]:
    with running(modules, explorer=True, auth=APIKeyAuthenticator({"sesame": "ada"})) as url:
        yield url


def test_the_page_is_off_by_default(modules: Registry) -> None:
    with running(modules) as url:
        assert httpx.get(f"{url}/explorer").status_code == 404


@pytest.mark.parametrize("path", ["/explorer", "/explorer/"])
def test_the_page_is_readable_without_authentication(agent_url: str, path: str) -> None:
    answer = httpx.get(agent_url + path)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["x-frame-options"] == "DENY"
    assert "script-src 'sha256-" in answer.headers["content-security-policy"]
    assert httpx.head(agent_url + path).status_code == 200


@pytest.mark.parametrize(
    ("verb", "path"),
    [("POST", "/explorer"), ("POST", "/explorer/"), ("GET", "/explorer/x"), ("POST", "/")],
)
def test_posts_and_paths_below_the_page_require_authentication(
    agent_url: str, verb: str, path: str
) -> None:
    assert httpx.request(verb, agent_url + path, json=SEND).status_code == 401


def test_the_page_refuses_post(agent_url: str) -> None:
    answer = httpx.post(f"{agent_url}/explorer", headers={"x-api-key": "sesame"})
    assert answer.status_code == 405


@pytest.mark.parametrize("path", ["/tools/ui", "tools/ui/"])
def test_the_page_can_have_another_path(modules: Registry, path: str) -> None:
    with running(modules, explorer=True, explorer_path=path) as url:
        assert httpx.get(f"{url}/explorer").status_code == 404
        for page, base in (("/tools/ui", "../"), ("/tools/ui/", "../../")):
            assert f'name="agent-base" content="{base}"' in httpx.get(url + page).text


@pytest.mark.parametrize(
    "path",
    [
        *("/", "", "/health", "health/", "/metrics", "/.well-known/agent.json", "/tasks", "/a b"),
        *("/v1/tasks/", "/extendedAgentCard", "/tasks/x", "/.well-known/agent-card.json", "/../x"),
    ],
)
def test_an_invalid_path_or_a_path_of_the_agent_itself_is_refused(
    modules: Registry, path: str
) -> None:
    with pytest.raises(ValueError, match=r"^explorer_path "):
        create_app(modules, explorer=True, explorer_path=path)


def test_a_missing_distribution_is_an_error_with_the_install_command(
    modules: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_entry_points(**_: Any) -> EntryPoints:
        return EntryPoints()

    monkeypatch.setattr(explorer, "entry_points", no_entry_points)
    with pytest.raises(ImportError, match=r"pip install 'apcore-a2a\[explorer\]'"):
        create_app(modules, explorer=True)
    create_app(modules)


@pytest.mark.parametrize("path", ["/explorer", "/tools/ui"])
def test_the_url_of_the_page_is_logged_at_the_start(
    modules: Registry, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    url = "https://agent.example.com/prefix"
    app = create_app(modules, url=url, explorer=True, explorer_path=path)
    settings = ServeSettings(host="127.0.0.1", url=url)
    with caplog.at_level(logging.INFO, "apcore_a2a_server"):
        _announce(settings, StartReport(1, app.state.explorer))
    assert f"Explorer: {url}{path}" in caplog.messages


def test_a_mounted_agent_has_its_page_under_its_prefix(modules: Registry, tmp_path: Path) -> None:
    app = create_app(modules, url="http://agent.example/agent", explorer=True)
    site = Starlette(routes=[Mount("/agent", app)])
    with running(site) as url:
        assert httpx.get(f"{url}/agent/explorer/").status_code == 200
        assert httpx.get(f"{url}/explorer").status_code == 404


@pytest.mark.parametrize(
    ("url", "origin", "status"),
    [
        ("https://agent.example.com/a", "https://agent.example.com", 200),
        ("https://Agent.example.com:443/", "https://agent.example.com", 200),
        ("https://agent.example.com:8443", "https://agent.example.com:8443", 200),
        ("https://agent.example.com:8443", "https://agent.example.com", 403),
        ("https://agent.example.com", "http://agent.example.com", 403),
        ("https://agent.example.com", "https://other.example.com", 403),
    ],
)
def test_behind_a_proxy_the_public_url_is_the_allowed_origin(
    modules: Registry, url: str, origin: str, status: int
) -> None:
    """TLS ends at the proxy, so only the option `url` has the public scheme."""
    with running(modules, explorer=True, url=url) as local_url:
        answer = httpx.post(f"{local_url}/", json=SEND, headers={"origin": origin})
    assert answer.status_code == status


def test_an_invalid_public_url_is_refused(modules: Registry) -> None:
    with pytest.raises(ValueError, match="url must be a URL"):
        create_app(modules, url="http://[agent")
