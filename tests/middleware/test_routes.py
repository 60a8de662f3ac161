"""Who has no credentials gets at the public pages, and at nothing else by any other name."""

import re
from collections.abc import Callable, Iterator
from itertools import product
from typing import NamedTuple

import pytest
from apcore_a2a_server import create_app
from apcore_a2a_server.bindings.rest import ROUTES, route
from apcore_a2a_server.middleware import Authentication
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.server.inloop import Does, give_back, registry_of
from tests.server.inloop import anyio_backend as anyio_backend

from .byhand import CARD, KEY, WITH_KEY, ask, body, connected, keys, request, status_of

PAGES = (CARD, "/.well-known/agent.json", "/health", "/metrics", "/explorer", "/explorer/")
PUBLIC = {(verb, page) for verb in ("GET", "HEAD") for page in PAGES}
"""All that anybody may ask for."""
VERBS = [
    *("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND"),
    *("get", "Head", "GETS", "XGET", "HEAD,GET", "CONNECT:GET", "\x00", "é", "", " GET", "GET\n"),
]
TENANT = r"(?:(?P<tenant>(?!tasks/)[^/]+)/)?"
SUFFIXES = ("/", "//", "/.", "/..", "/../", "/x", ";x", "%2f", "?", "#", "\x00", "\n", "\r", " ")
PREFIXES = ("/", "//", "/x/..", "/.", "/\n", "/%2f", "/ ")
OTHERS = (
    "",
    "/",
    "*",
    "/nothing",
    "/x/health",
    "/tasks/health",
    "/docs",
    "/openapi.json",
    "/admin",
)


def odd_forms(page: str) -> Iterator[str]:
    """Paths that are like *page*, and are not *page*."""
    yield from (page + suffix for suffix in SUFFIXES)
    yield from (prefix + page for prefix in PREFIXES)
    yield from (page.upper(), page.removeprefix("/"), page.replace("h", "%68"), page[:-1])
    yield page.replace("/", "\\")
    yield page.replace("e", "\uff45")


def rest_paths(tenant: str) -> Iterator[str]:
    """A path for each route of the REST binding."""
    for verb, pattern, method in ROUTES:
        known = pattern.pattern.replace(TENANT, tenant)
        path = re.sub(r"\(\?P<\w+>[^()]*\)", "t1", known)
        found = route(verb, path)
        assert found
        assert found[0] == method
        yield f"/{path}"


def walked(app: Starlette) -> set[str]:
    """Every path that leads somewhere, and many that do not."""
    found = {route.path for route in app.routes if hasattr(route, "path")}
    assert {*PAGES, "/"} < found
    for tenant in ("", "acme/", "health/", "metrics/", ".well-known/"):
        found |= {*rest_paths(tenant)}
    for page in (*PAGES, "/message:send"):
        found |= {*odd_forms(page)}
    return found | {*OTHERS}


class Place(NamedTuple):
    """Where an agent may stand: its application, what paths begin with there, the root path."""

    app: ASGIApp
    prefix: str = ""
    root_path: str = ""


ELSEWHERE = 418
"""What the application answers that an agent is mounted in."""


def mounted(path: str, app: ASGIApp) -> Starlette:
    site = Starlette(routes=[Mount(path, app)])
    site.router.redirect_slashes = False
    site.router.default = Response(status_code=ELSEWHERE)
    return site


PLACES: dict[str, Callable[[Starlette], Place]] = {
    "alone": Place,
    "under a root path": lambda app: Place(app, "/agents/one", "/agents/one"),
    "under a root path that is not in the path": lambda app: Place(app, "", "/agents/one"),
    "under a root path like a page": lambda app: Place(app, "/health", "/health"),
    "mounted": lambda app: Place(mounted("/agent", app), "/agent"),
    "mounted by a parameter": lambda app: Place(mounted("/{name}", app), "/metrics"),
    "mounted twice under a root path": lambda app: Place(
        mounted("/a", mounted("/b", app)), "/r/a/b", "/r"
    ),
}


@pytest.fixture(scope="module")
def app() -> Starlette:
    modules = registry_of({"work": Does(give_back)})
    return create_app(modules, url="http://agent.example", auth=keys(), metrics=True, explorer=True)


@pytest.mark.anyio
@pytest.mark.parametrize("where", PLACES)
async def test_every_route_asks_for_credentials_before_it_reads_but_the_public_ones(
    app: Starlette, where: str
) -> None:
    place, open_to_all = PLACES[where](app), set()
    refused = 0
    for path, verb in product(walked(app), VERBS):
        answer = await ask(place.app, verb, place.prefix + path, root_path=place.root_path)
        if answer.status == 401:
            assert answer.headers["www-authenticate"] == "ApiKey"
            refused += 1
        elif answer.status != ELSEWHERE:
            assert answer.status == 200, (verb, path, answer)
            open_to_all.add((verb, path))
    assert open_to_all == PUBLIC
    assert refused > 2000


@pytest.mark.anyio
async def test_with_credentials_no_route_asks_for_them(app: Starlette) -> None:
    for path in walked(app):
        for verb in ("GET", "HEAD", "POST", "DELETE", "OPTIONS"):
            answer = await ask(app, verb, path, WITH_KEY, body())
            assert answer.status not in (401, 403, 500, 503), (verb, path)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "host", ["", "\xff", "/health", "x/health?", "a b", "<>\"'\\", "[::1", "x" * 9999]
)
async def test_no_host_opens_anything(app: Starlette, host: str) -> None:
    for verb in ("GET", "POST"):
        assert (await ask(app, verb, "/tasks", [("Host", host)])).status == 401
    assert (await ask(app, "GET", "/health", [("Host", host)])).status == 200


FORGED = [
    ("X-Original-URL", "/health"),
    ("X-Rewrite-URL", "/health"),
    ("X-Forwarded-Path", "/health"),
    ("X-Forwarded-Prefix", "/tasks"),
    ("X-Script-Name", "/"),
    ("X-HTTP-Method-Override", "GET"),
    ("X-Forwarded-For", "127.0.0.1"),
    ("apcore_a2a.caller", "ada"),
    ("apcore_a2a.identity", "ada"),
    ("X_API_Key", KEY),
    ("X-API-Key ", KEY),
    ("Authorization", f"Bearer {KEY}"),
    ("Cookie", f"X-API-Key={KEY}"),
]


@pytest.mark.anyio
@pytest.mark.parametrize("header", FORGED, ids=lambda header: header[0])
async def test_no_other_header_opens_anything(app: Starlette, header: tuple[str, str]) -> None:
    for verb, path in (("GET", "/tasks"), ("POST", "/health"), ("POST", "/")):
        assert (await ask(app, verb, path, [header])).status == 401


@pytest.mark.anyio
async def test_without_public_paths_nothing_is_public() -> None:
    async def behind(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("somebody got through")

    guarded = Authentication(behind, keys())
    for verb, path in PUBLIC:
        assert (await ask(guarded, verb, path)).status == 401


TARGETS = {
    200: """
        /health /%68ealth /health?x /health#x http://elsewhere.example/health
        /.well-known/agent%2ejson http://user:secret@[::1]:1/metrics
    """,
    401: """
        / * //health /health/ /health/.. /HEALTH /health%2f /health;x /health%00 /health%0a
        /health%3f /health%23 /metrics/../ /x/../health /%2e/health /./health ///health /health\\
        /.well-known/agent.json/x /.well-known/%2e%2e/tasks /health/%2e%2e/tasks
        /health%2f..%2ftasks /health%252f /he%61lth%20
        http://elsewhere.example//health http://elsewhere.example/tasks //elsewhere.example/health
        /tasks /tasks?/health /tasks#/health /message:send
    """,
    400: "health http://elsewhere.example ? #",
}


@pytest.mark.parametrize(
    ("status", "target"), [(s, target) for s, text in TARGETS.items() for target in text.split()]
)
def test_a_request_target_is_public_only_if_it_is_just_that_page(
    url: str, status: int, target: str
) -> None:
    with connected(url) as line:
        line.say(request(target, "Connection: close\r\n", verb="GET"))
        assert status_of(line.all()) == status


@pytest.mark.parametrize("expect", ["", "Expect: 100-continue\r\n"], ids=["plain", "asking first"])
def test_a_refusal_arrives_before_the_body_was_sent(url: str, expect: str) -> None:
    with connected(url) as line:
        line.say(request("/", f"Content-Length: 1000\r\n{expect}"))
        head = line.hear()
        assert status_of(head) == 401
        line.hear(b"}}")
        line.say(b" " * 1000 + request("/health", verb="GET"))
        assert status_of(line.hear()) == 200


def test_what_follows_a_request_in_the_same_bytes_is_asked_for_credentials_too(url: str) -> None:
    with connected(url) as line:
        both = request("/tasks", f"X-API-Key: {KEY}\r\n", verb="GET")
        line.say(
            request("/health", verb="GET")
            + both
            + request("/tasks", "Connection: close\r\n", verb="GET")
        )
        answers = re.findall(rb"HTTP/1.1 (\d+)", line.all())
        assert answers == [b"200", b"200", b"401"]


@pytest.mark.parametrize("name", ["X-API-Key", "x-api-key"])
def test_a_trailer_is_no_header(url: str, name: str) -> None:
    with connected(url) as line:
        chunked = "Transfer-Encoding: chunked\r\nConnection: close\r\n"
        line.say(request("/tasks", chunked, verb="GET") + f"0\r\n{name}: {KEY}\r\n\r\n".encode())
        assert status_of(line.all()) == 401
