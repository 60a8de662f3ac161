"""The explorer's page as it is served: paths, headers and Content-Security-Policy."""

import re
from base64 import b64encode
from hashlib import sha256
from importlib.metadata import entry_points

import anyio
import httpx
import pytest
from apcore_a2a_explorer import routes
from starlette.applications import Starlette
from starlette.routing import Mount

MAX_TRANSFER_SIZE = 160_000
"""Largest size of the compressed page, in bytes."""
MAX_PAGE_SIZE = 500_000
"""Largest size of the page, in bytes."""


def get(path: str, explorer_path: str = "/explorer", **headers: str) -> httpx.Response:
    """Get a path of an agent that is mounted at /agent and has its explorer at *explorer_path*."""
    site = Starlette(routes=[Mount("/agent", Starlette(routes=routes(explorer_path)))])
    with httpx.Client(transport=SyncTransport(site), base_url="http://test") as client:
        return client.get(f"/agent{path}", headers=headers)


class SyncTransport(httpx.BaseTransport):
    """A synchronous httpx transport for an ASGI application."""

    def __init__(self, app: Starlette) -> None:
        self._app = app

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        async def handle() -> httpx.Response:
            answer = await httpx.ASGITransport(self._app).handle_async_request(request)
            content = b"".join([piece async for piece in answer.aiter_raw()])
            return httpx.Response(answer.status_code, headers=answer.headers, content=content)

        return anyio.run(handle)


@pytest.mark.parametrize("path", ["/explorer", "/explorer/"])
def test_the_page_is_html_of_bounded_size(path: str) -> None:
    answer = get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert len(answer.content) <= MAX_PAGE_SIZE


@pytest.mark.parametrize(
    ("explorer_path", "path", "base"),
    [
        ("/explorer", "/explorer", "./"),
        ("/explorer", "/explorer/", "../"),
        ("tools/ui/", "/tools/ui", "../"),
        ("tools/ui/", "/tools/ui/", "../../"),
    ],
)
def test_the_page_links_to_the_agent_under_any_prefix(
    explorer_path: str, path: str, base: str
) -> None:
    assert f'<meta name="agent-base" content="{base}"' in get(path, explorer_path).text


def test_the_policy_allows_only_the_pages_own_scripts_and_styles() -> None:
    answer = get("/explorer")
    policy = dict(
        part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert policy["frame-ancestors"] == "'none'"
    assert policy["connect-src"] == "'self'"
    for kind in ("script", "style"):
        contents = re.findall(rf"<{kind}\b[^>]*>(.*?)</{kind}>", answer.text, re.DOTALL)
        hashes = [b64encode(sha256(text.encode()).digest()).decode() for text in contents]
        assert contents
        assert policy[f"{kind}-src"].split() == [f"'sha256-{digest}'" for digest in hashes]


def test_the_page_loads_nothing_from_other_hosts() -> None:
    markup = re.sub(r"<(script|style)\b.*?</\1>", "", get("/explorer").text, flags=re.DOTALL)
    assert not re.findall(r"\b(?:src|href)=\"(?!data:)", markup)
    assert not re.search(r"\son\w+=[\"']", markup)


@pytest.mark.parametrize(
    ("accepted", "is_compressed"),
    [
        ("gzip, deflate, br", True),
        ("GZIP;q=0.5", True),
        ("*", True),
        ("gzip;q=0, *", False),
        ("gzip;q=1.2.3", True),
        ("gzip;q=0.00", False),
        ("br", False),
        ("identity", False),
    ],
)
def test_the_page_is_compressed_for_clients_that_accept_it(
    accepted: str, is_compressed: bool
) -> None:
    answer = get("/explorer", **{"accept-encoding": accepted})
    assert (answer.headers.get("content-encoding") == "gzip") == is_compressed
    assert answer.headers["vary"] == "accept-encoding"
    assert answer.text == get("/explorer", **{"accept-encoding": "identity"}).text
    if is_compressed:
        assert int(answer.headers["content-length"]) <= MAX_TRANSFER_SIZE
    conditional = {"accept-encoding": accepted, "if-none-match": answer.headers["etag"]}
    assert get("/explorer", **conditional).status_code == 304
    other = {**conditional, "accept-encoding": "identity" if is_compressed else "gzip"}
    assert get("/explorer", **other).status_code == 200


def test_the_page_can_be_painted_before_its_script_arrives() -> None:
    before, _, _ = get("/explorer").text.partition("<script")
    assert "</style>" in before
    assert "Loading…" in before


def test_a_cached_page_is_answered_with_304() -> None:
    etag = get("/explorer").headers["etag"]
    response = get("/explorer", **{"if-none-match": f'"x", W/{etag}'})
    assert (response.status_code, response.content) == (304, b"")
    assert (
        response.headers["content-security-policy"]
        == get("/explorer").headers["content-security-policy"]
    )


@pytest.mark.parametrize("path", ["", "/", "//", "/a b", "/a/../b", "/..", "/a/.", "/a?", "/ü"])
def test_an_invalid_path_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="explorer's path"):
        routes(path)


def test_the_explorer_is_found_by_its_entry_point() -> None:
    (entry_point,) = entry_points(group="apcore_a2a.explorer")
    assert entry_point.load() is routes
