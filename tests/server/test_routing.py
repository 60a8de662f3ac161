"""Direct routes, for the most frequent requests, behave like Starlette's routing."""

from itertools import product
from typing import Any

import pytest
from apcore_a2a_server import create_app
from starlette.applications import Starlette
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.middleware.byhand import CARD, Answer, ask, body, message

from .inloop import ActionModule, echo, registry_of
from .inloop import anyio_backend as anyio_backend

pytestmark = pytest.mark.anyio

METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "get"]
PATHS = ["/", CARD, "/.well-known/agent.json", "/health", "/health/", "//", "", "/nothing", "/work"]
CALL = message("work")
ROOTS = ["", "/agent", "/agent/", "/"]


def agent(**options: Any) -> Starlette:
    return create_app(registry_of({"work": ActionModule(echo)}), url="http://x", **options)


def without_direct_routes(app: Starlette) -> Starlette:
    """Return an application that searches the routes of *app* for each request."""
    plain = Starlette(routes=app.routes)
    plain.router.redirect_slashes = app.router.redirect_slashes
    plain.router.default = app.router.default
    return plain


async def answer_of(app: ASGIApp, method: str, path: str, **scope: Any) -> Answer:
    answer = await ask(app, method, path, receive=body(CALL), **scope)
    answer.headers.pop("content-length", None)  # of /health: varies with the uptime
    content = b"" if path.endswith("/health") or answer.status == 200 else answer.body
    return Answer(answer.status, answer.headers, content)


@pytest.mark.parametrize("options", [{}, {"tenants": {"work": "work"}}], ids=str)
async def test_direct_routes_answer_like_a_search_through_all_routes(
    options: dict[str, Any],
) -> None:
    app = agent(**options)
    plain = without_direct_routes(app)
    statuses = set[int]()
    for method, path, root, prefix in product(METHODS, PATHS, ROOTS, ["", "/agent"]):
        request: dict[str, Any] = {"method": method, "path": prefix + path, "root_path": root}
        answer = await answer_of(app, **request)
        if not options or not path.startswith("/work"):  # not a route, but the tenant's prefix
            assert answer == await answer_of(plain, **request), request
        statuses.add(answer.status)
    assert {200, 404, 405} <= statuses


class OuterError(Exception):
    """Error of a user's middleware."""


class Outer:
    """A user's middleware, which adds a header, and records the route of each request."""

    def __init__(self, app: ASGIApp, routes: list[str]) -> None:
        self._app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_header(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"].append((b"x-outer", b"1"))
            await send(message)

        if scope["path"] == "/broken":
            raise OuterError
        await self._app(scope, receive, send_with_header)
        self._routes.append(scope["route"].path)


async def test_middleware_of_users_gets_each_request_and_its_route() -> None:
    app, routes = agent(), list[str]()
    app.add_middleware(Outer, routes=routes)
    answers = [await answer_of(app, "GET", CARD) for _ in range(2)]
    answers.append(await answer_of(app, "POST", "/"))
    assert [answer.headers["x-outer"] for answer in answers] == ["1", "1", "1"]
    assert answers[0] == answers[1]
    assert routes == [CARD, CARD, "/"]


async def test_exceptions_of_users_middleware_are_answered_by_starlette() -> None:
    app = agent()
    app.add_middleware(Outer, routes=[])
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    with pytest.raises(OuterError):
        await app({"type": "http", "method": "GET", "path": "/broken", "headers": []}, body(), send)
    assert sent[0]["status"] == 500


async def test_headers_that_middleware_adds_do_not_accumulate_on_the_card() -> None:
    app = agent(cors_origins=["http://page.example"])
    first, second = [
        await ask(app, path=CARD, headers=[("Origin", "http://page.example")]) for _ in range(2)
    ]
    assert first == second
    assert first.headers["access-control-allow-origin"] == "http://page.example"
