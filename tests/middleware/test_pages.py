"""Security headers of HTML pages."""

from collections.abc import Mapping

import pytest
from apcore_a2a_server import create_app
from apcore_a2a_server.middleware import FrontMiddleware
from apcore_a2a_server.middleware.front import PAGE_HEADERS
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.server.inloop import ActionModule, echo, registry_of
from tests.server.inloop import anyio_backend as anyio_backend

from .byhand import CARD, ask, authenticator

pytestmark = pytest.mark.anyio


async def headers_of(app: ASGIApp) -> Mapping[str, str]:
    return (await ask(FrontMiddleware(app))).headers


async def test_a_page_has_security_headers() -> None:
    headers = await headers_of(HTMLResponse("<p>"))
    policy = {rule.strip() for rule in headers["content-security-policy"].split(";")}
    assert {"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'"} <= policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-opener-policy"] == "same-origin"


NOT_HTML = {
    "json": JSONResponse({}),
    "text": PlainTextResponse(""),
    "nothing": Response(),
    "xml": Response(media_type="text/xml"),
    "html in a parameter": Response(media_type="application/json; text/html"),
}


@pytest.mark.parametrize("kind", NOT_HTML)
async def test_answers_that_are_not_html_have_no_page_headers(kind: str) -> None:
    own_headers = dict(NOT_HTML[kind].headers)
    assert await headers_of(NOT_HTML[kind]) == own_headers
    assert not own_headers.keys() & PAGE_HEADERS.keys()


@pytest.mark.parametrize("name", [*PAGE_HEADERS, *map(str.upper, PAGE_HEADERS)])
async def test_headers_of_the_page_itself_are_kept(name: str) -> None:
    headers = await headers_of(HTMLResponse("", headers={name: "mine"}))
    assert headers[name.lower()] == "mine"
    assert PAGE_HEADERS.keys() <= headers.keys()


async def test_each_header_is_set_once() -> None:
    starts: list[Message] = []

    async def with_recorder(scope: Scope, receive: Receive, send: Send) -> None:
        async def record(message: Message) -> None:
            starts.append(message)
            await send(message)

        await FrontMiddleware(FrontMiddleware(HTMLResponse("")))(scope, receive, record)

    await ask(with_recorder)
    names = [name for name, _ in starts[0]["headers"]]
    assert len(names) == len({*names}) > len(PAGE_HEADERS)


async def test_body_and_status_are_not_changed() -> None:
    answer = await ask(FrontMiddleware(HTMLResponse("<p>é", 404)))
    assert (answer.status, answer.body) == (404, "<p>é".encode())


def app_with_headers(*headers: tuple[bytes, bytes], **start: object) -> ASGIApp:
    """Return an application that answers with exactly these *headers*."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, **start, "headers": headers})
        await send({"type": "http.response.body"})

    return answer


async def answer_without_headers(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer without the member `headers`, as ASGI allows."""
    await send({"type": "http.response.start", "status": 204})
    await send({"type": "http.response.body"})


async def test_an_answer_may_have_no_headers() -> None:
    assert await headers_of(answer_without_headers) == {}


@pytest.mark.parametrize("media_type", [b"Text/HTML", b"TEXT/HTML; charset=utf-8"])
async def test_media_types_are_case_insensitive(media_type: bytes) -> None:
    headers = await headers_of(app_with_headers((b"content-type", media_type)))
    assert PAGE_HEADERS.keys() <= headers.keys()


async def test_pages_of_a_wrapped_application_have_the_headers_too() -> None:
    async def page(request: Request) -> Response:
        return HTMLResponse("<p>")

    answer = await ask(FrontMiddleware(Starlette(routes=[Route("/", page)])))
    assert answer.headers["x-frame-options"] == "DENY"


async def test_the_card_and_the_health_of_an_agent_have_no_page_headers() -> None:
    app = create_app(
        registry_of({"work": ActionModule(echo)}), url="http://x", auth=authenticator()
    )
    for path in (CARD, "/health", "/"):
        headers = (await ask(app, path=path)).headers
        assert not headers.keys() & PAGE_HEADERS.keys()
