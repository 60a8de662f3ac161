"""Without credentials only the public pages are accessible, and only by their exact paths."""

import re
from collections.abc import Callable, Iterator
from itertools import product
from typing import NamedTuple

import pytest
from apcore_a2a_server import create_app
from apcore_a2a_server.bindings import rest, rest03
from apcore_a2a_server.middleware import Authentication
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.server.inloop import ActionModule, echo, registry_of
from tests.server.inloop import anyio_backend as anyio_backend

from .byhand import CARD, KEY, WITH_KEY, ask, authenticator, body, connected, request, status_of

PAGES = (CARD, "/.well-known/agent.json", "/health", "/metrics", "/explorer", "/explorer/")
PUBLIC = {(verb, page) for verb in ("GET", "HEAD") for page in ("/", *PAGES)}
"""All requests that need no credentials."""
VERBS = [
    *("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND"),
    *("get", "Head", "GETS", "XGET", "HEAD,GET", "CONNECT:GET", "\x00", "é", "", " GET", "GET\n"),
]
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


def similar_paths(page: str) -> Iterator[str]:
    """Yield paths that resemble *page*."""
    yield from (page + suffix for suffix in SUFFIXES)
    yield from (prefix + page for prefix in PREFIXES)
    yield from (page.upper(), page.removeprefix("/"), page.replace("h", "%68"), page[:-1])
    yield page.replace("/", "\\")
    yield page.replace("e", "\uff45")


def rest_paths(prefix: str) -> Iterator[str]:
    """Yield a path for each route of the REST bindings, below *prefix*."""
    for routes in (rest.ROUTES, rest03.ROUTES):
        for verb, pattern, method in routes:
            path = re.sub(r"\(\?P<\w+>[^()]*\)", "t1", pattern.pattern)
            matched = rest.find_route(verb, path, routes)
            assert matched
            assert matched[0] == method
            yield f"/{prefix}{path}"


def paths_to_try(app: Starlette) -> set[str]:
    """Return the path of every route, and many that do not exist."""
    paths = {route.path for route in app.routes if hasattr(route, "path")}
    assert {*PAGES, "/"} < paths
    for prefix in ("", "acme/", "health/", "metrics/", ".well-known/"):
        paths |= {*rest_paths(prefix)}
    for page in (*PAGES, "/message:send"):
        paths |= {*similar_paths(page)}
    return paths | {*OTHERS}


class Deployment(NamedTuple):
    """Deployment of an agent: its application, the prefix of its paths, and the root path."""

    app: ASGIApp
    prefix: str = ""
    root_path: str = ""


OUTSIDE_STATUS = 418
"""Status of answers to paths outside a mounted agent."""


def mount(path: str, app: ASGIApp) -> Starlette:
    site = Starlette(routes=[Mount(path, app)])
    site.router.redirect_slashes = False
    site.router.default = Response(status_code=OUTSIDE_STATUS)
    return site


DEPLOYMENTS: dict[str, Callable[[Starlette], Deployment]] = {
    "alone": Deployment,
    "under a root path": lambda app: Deployment(app, "/agents/one", "/agents/one"),
    "under a root path that is not in the path": lambda app: Deployment(app, "", "/agents/one"),
    "under a root path like a page": lambda app: Deployment(app, "/health", "/health"),
    "mounted": lambda app: Deployment(mount("/agent", app), "/agent"),
    "mounted by a parameter": lambda app: Deployment(mount("/{name}", app), "/metrics"),
    "mounted twice under a root path": lambda app: Deployment(
        mount("/a", mount("/b", app)), "/r/a/b", "/r"
    ),
}


@pytest.fixture(scope="module")
def app() -> Starlette:
    modules = registry_of({"work": ActionModule(echo)})
    return create_app(
        modules,
        url="http://agent.example",
        auth=authenticator(),
        auth_rate_limit=None,
        metrics=True,
        explorer=True,
    )


@pytest.mark.anyio
@pytest.mark.parametrize("deployment_name", DEPLOYMENTS)
async def test_every_route_but_the_public_pages_requires_credentials_before_reading_the_body(
    app: Starlette, deployment_name: str
) -> None:
    deployment, accessible = DEPLOYMENTS[deployment_name](app), set()
    refusals = 0
    for path, verb in product(paths_to_try(app), VERBS):
        answer = await ask(
            deployment.app, verb, deployment.prefix + path, root_path=deployment.root_path
        )
        if answer.status == 401:
            assert answer.headers["www-authenticate"] == "ApiKey"
            refusals += 1
        elif answer.status != OUTSIDE_STATUS:
            if answer.headers.get("allow") == "POST":  # `/`, whose page is for browsers alone
                assert answer.status == 405, (verb, path, answer)
                path = "/"
            else:
                assert answer.status == 200, (verb, path, answer)
            accessible.add((verb, path))
    assert accessible == PUBLIC
    assert refusals > 2000


@pytest.mark.anyio
async def test_with_credentials_no_route_refuses_a_request(app: Starlette) -> None:
    for path in paths_to_try(app):
        for verb in ("GET", "HEAD", "POST", "DELETE", "OPTIONS"):
            answer = await ask(app, verb, path, WITH_KEY, body())
            assert answer.status not in (401, 403, 500, 503), (verb, path)


@pytest.mark.anyio
async def test_no_request_is_redirected_to_the_host_that_it_names(app: Starlette) -> None:
    headers = [*WITH_KEY, ("Host", "evil.example")]
    paths = paths_to_try(app)
    for path in sorted(paths | {f"{path}/" for path in paths}):
        for verb in ("GET", "HEAD", "POST"):
            answer = await ask(app, verb, path, headers, body())
            assert answer.status // 100 != 3, (verb, path)
            assert "evil.example" not in str(answer.headers)
            assert b"evil.example" not in answer.body
    assert (await ask(app, "GET", "/health/", headers)).status == 404


@pytest.mark.anyio
@pytest.mark.parametrize(
    "host", ["", "\xff", "/health", "x/health?", "a b", "<>\"'\\", "[::1", "x" * 9999]
)
async def test_no_host_header_bypasses_authentication(app: Starlette, host: str) -> None:
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
async def test_no_forged_header_bypasses_authentication(
    app: Starlette, header: tuple[str, str]
) -> None:
    for verb, path in (("GET", "/tasks"), ("POST", "/health"), ("POST", "/")):
        assert (await ask(app, verb, path, [header])).status == 401


@pytest.mark.anyio
async def test_without_public_paths_all_requests_need_credentials() -> None:
    async def fail_if_called(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("the request was let through")

    app = Authentication(fail_if_called, authenticator())
    for verb, path in PUBLIC:
        assert (await ask(app, verb, path)).status == 401


TARGETS = {
    200: """
        /health /%68ealth /health?x /health#x http://elsewhere.example/health
        /.well-known/agent%2ejson http://user:secret@[::1]:1/metrics
    """,
    401: """
        * //health /health/ /health/.. /HEALTH /health%2f /health;x /health%00 /health%0a
        /health%3f /health%23 /metrics/../ /x/../health /%2e/health /./health ///health /health\\
        /.well-known/agent.json/x /.well-known/%2e%2e/tasks /health/%2e%2e/tasks
        /health%2f..%2ftasks /health%252f /he%61lth%20
        http://elsewhere.example//health http://elsewhere.example/tasks //elsewhere.example/health
        /tasks /tasks?/health /tasks#/health /message:send
    """,
    405: "/",
    400: "health http://elsewhere.example ? #",
}


@pytest.mark.parametrize(
    ("status", "target"), [(s, target) for s, text in TARGETS.items() for target in text.split()]
)
def test_a_request_target_is_public_only_if_it_is_exactly_a_public_page(
    url: str, status: int, target: str
) -> None:
    with connected(url) as connection:
        connection.send(request(target, "Connection: close\r\n", verb="GET"))
        assert status_of(connection.read_all()) == status


@pytest.mark.parametrize("expect", ["", "Expect: 100-continue\r\n"], ids=["plain", "asking first"])
def test_a_refusal_is_sent_before_the_body_arrives(url: str, expect: str) -> None:
    with connected(url) as connection:
        connection.send(request("/", f"Content-Length: 1000\r\n{expect}"))
        head = connection.read_until()
        assert status_of(head) == 401
        connection.read_until(b"}}")
        connection.send(b" " * 1000 + request("/health", verb="GET"))
        assert status_of(connection.read_until()) == 200


def test_a_pipelined_request_needs_credentials_too(url: str) -> None:
    with connected(url) as connection:
        with_key = request("/tasks", f"X-API-Key: {KEY}\r\n", verb="GET")
        connection.send(
            request("/health", verb="GET")
            + with_key
            + request("/tasks", "Connection: close\r\n", verb="GET")
        )
        answers = re.findall(rb"HTTP/1.1 (\d+)", connection.read_all())
        assert answers == [b"200", b"200", b"401"]


@pytest.mark.parametrize("name", ["X-API-Key", "x-api-key"])
def test_trailers_are_not_read_as_headers(url: str, name: str) -> None:
    with connected(url) as connection:
        chunked = "Transfer-Encoding: chunked\r\nConnection: close\r\n"
        connection.send(
            request("/tasks", chunked, verb="GET") + f"0\r\n{name}: {KEY}\r\n\r\n".encode()
        )
        assert status_of(connection.read_all()) == 401
