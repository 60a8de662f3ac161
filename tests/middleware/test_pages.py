"""HTML has headers that keep it from being framed, guessed at, or fed with foreign scripts."""

from collections.abc import Mapping

import pytest
from apcore_a2a_server import create_app
from apcore_a2a_server.middleware import PageHeaders
from apcore_a2a_server.middleware.origin import HEADERS
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.server.inloop import Does, give_back, registry_of
from tests.server.inloop import anyio_backend as anyio_backend

from .byhand import CARD, ask, keys

pytestmark = pytest.mark.anyio


async def headers_of(app: ASGIApp) -> Mapping[str, str]:
    return (await ask(PageHeaders(app))).headers


async def test_a_page_is_not_framed_guessed_at_or_fed_with_scripts() -> None:
    found = await headers_of(HTMLResponse("<p>"))
    policy = {each.strip() for each in found["content-security-policy"].split(";")}
    assert {"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'"} <= policy
    assert found["x-content-type-options"] == "nosniff"
    assert found["x-frame-options"] == "DENY"
    assert found["referrer-policy"] == "no-referrer"
    assert found["cross-origin-opener-policy"] == "same-origin"


OTHERS = {
    "json": JSONResponse({}),
    "text": PlainTextResponse(""),
    "nothing": Response(),
    "xml": Response(media_type="text/xml"),
    "its name elsewhere": Response(media_type="application/json; text/html"),
}


@pytest.mark.parametrize("kind", OTHERS)
async def test_what_is_no_page_is_left_as_it_is(kind: str) -> None:
    sent = dict(OTHERS[kind].headers)
    assert await headers_of(OTHERS[kind]) == sent
    assert not sent.keys() & HEADERS.keys()


@pytest.mark.parametrize("name", [*HEADERS, *map(str.upper, HEADERS)])
async def test_what_a_page_says_itself_is_kept(name: str) -> None:
    found = await headers_of(HTMLResponse("", headers={name: "mine"}))
    assert found[name.lower()] == "mine"
    assert HEADERS.keys() <= found.keys()


async def test_each_header_is_there_once() -> None:
    starts: list[Message] = []

    async def seeing(scope: Scope, receive: Receive, send: Send) -> None:
        async def see(message: Message) -> None:
            starts.append(message)
            await send(message)

        await PageHeaders(PageHeaders(HTMLResponse("")))(scope, receive, see)

    await ask(seeing)
    names = [name for name, _ in starts[0]["headers"]]
    assert len(names) == len({*names}) > len(HEADERS)


async def test_the_body_and_the_status_are_left_as_they_are() -> None:
    answer = await ask(PageHeaders(HTMLResponse("<p>é", 404)))
    assert (answer.status, answer.body) == (404, "<p>é".encode())


def answering(*headers: tuple[bytes, bytes], **start: object) -> ASGIApp:
    """An application that answers with just these *headers*."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, **start, "headers": headers})
        await send({"type": "http.response.body"})

    return answer


async def bare(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers without the member `headers`, as ASGI allows."""
    await send({"type": "http.response.start", "status": 204})
    await send({"type": "http.response.body"})


async def test_an_answer_may_have_no_headers_at_all() -> None:
    assert await headers_of(bare) == {}


@pytest.mark.parametrize("media_type", [b"Text/HTML", b"TEXT/HTML; charset=utf-8"])
async def test_a_media_type_has_no_case(media_type: bytes) -> None:
    found = await headers_of(answering((b"content-type", media_type)))
    assert HEADERS.keys() <= found.keys()


async def test_a_page_within_an_application_has_them_too() -> None:
    async def page(request: Request) -> Response:
        return HTMLResponse("<p>")

    answer = await ask(PageHeaders(Starlette(routes=[Route("/", page)])))
    assert answer.headers["x-frame-options"] == "DENY"


async def test_no_answer_of_an_agent_is_a_page() -> None:
    app = create_app(registry_of({"work": Does(give_back)}), url="http://x", auth=keys())
    for path in (CARD, "/health", "/"):
        headers = (await ask(app, path=path)).headers
        assert not headers.keys() & HEADERS.keys()
