"""The page at the agent's address, for people who open it in a browser."""

from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin

import httpx
import pytest
from apcore_a2a_auth import APIKeyAuthenticator
from apcore_a2a_server import create_app
from apcore_a2a_server.bindings.landing import landing_page
from apcore_a2a_server.middleware.front import PAGE_HEADERS
from starlette.applications import Starlette
from starlette.routing import Mount

from .inloop import ActionModule, echo, registry_of
from .inloop import anyio_backend as anyio_backend

pytestmark = pytest.mark.anyio

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"


class Links(HTMLParser):
    """A collector of the addresses of a page's links, and of everything that the page loads."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, address in attrs:
            if name in ("href", "src", "action", "style") or tag in ("script", "style", "link"):
                (self.links if tag == "a" else self.loaded).append(address or "")


def client(**options: Any) -> httpx.AsyncClient:
    """Return a client of an agent that is mounted at /agent."""
    agent = create_app(registry_of({"work": ActionModule(echo)}), **options)
    app = Starlette(routes=[Mount("/agent", agent)])
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://agent.test")


@pytest.mark.parametrize("accept", [BROWSER, "text/html", "image/png, TEXT/HTML; charset=utf-8"])
async def test_a_browser_gets_a_page_with_the_name_and_working_links(accept: str) -> None:
    async with client(name="Ada's agent", explorer=True, explorer_path="tools/ui/") as http:
        response = await http.get("/agent/", headers={"Accept": accept})
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/html; charset=utf-8"
        assert PAGE_HEADERS.items() <= dict(response.headers).items()
        assert "<h1>Ada&#x27;s agent</h1>" in response.text
        page = Links(response.text)
        assert [urljoin("/agent/", link) for link in page.links] == [
            "/agent/.well-known/agent-card.json",
            "/agent/tools/ui",
        ]
        for link in page.links:
            assert (await http.get(urljoin("/agent/", link))).status_code == 200


async def test_the_page_needs_no_credentials_but_a_call_does() -> None:
    async with client(auth=APIKeyAuthenticator({"sesame": "ada"})) as http:
        assert (await http.get("/agent/", headers={"Accept": BROWSER})).status_code == 200
        assert (await http.post("/agent/", json={})).status_code == 401


async def test_without_a_name_option_the_page_shows_the_name_of_the_card() -> None:
    async with client() as http:
        page = (await http.get("/agent/", headers={"accept": BROWSER})).text
        card = (await http.get("/agent/.well-known/agent-card.json")).json()
    assert f"<h1>{card['name']}</h1>" in page


async def test_the_page_loads_nothing_and_has_no_link_to_a_disabled_explorer() -> None:
    async with client() as http:
        page = Links((await http.get("/agent/", headers={"Accept": BROWSER})).text)
    assert page.links == ["./.well-known/agent-card.json"]
    assert page.loaded == []


@pytest.mark.parametrize("accept", ["*/*", "application/json", "text/*", "text/htmlx", "", ";,"])
async def test_clients_that_do_not_name_html_get_405(accept: str) -> None:
    async with client() as http:
        response = await http.get("/agent/", headers={"Accept": accept})
    assert (response.status_code, response.headers["allow"]) == (405, "POST")
    assert response.json() == {"error": "Send JSON-RPC 2.0 here with POST"}


@pytest.mark.parametrize("method", ["HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_other_methods_of_browsers_get_405_too(method: str) -> None:
    async with client() as http:
        response = await http.request(method, "/agent/", headers={"Accept": BROWSER})
    assert (response.status_code, response.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ('"><img src=x>', "&quot;&gt;&lt;img src=x&gt;"),
        ("{links}", "{links}"),
        ("a\x1b[1m\u202e", "a[1m"),
        ("a\ud800", "a?"),
    ],
)
def test_the_name_is_escaped(name: str, shown: str) -> None:
    page = landing_page(name)
    assert f"<title>{shown}</title>" in page
    assert f"<h1>{shown}</h1>" in page
