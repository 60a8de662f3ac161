"""What breaks ends in an answer that tells nothing, and web sockets are refused."""

import logging
from typing import Any

import pytest
from apcore_a2a_server import create_app
from apcore_a2a_server.middleware import ErrorMiddleware
from starlette.types import Message, Receive, Scope, Send

from tests.server.inloop import Does, give_back, registry_of
from tests.server.inloop import anyio_backend as anyio_backend

from .byhand import Answer, ask

pytestmark = pytest.mark.anyio

SECRET = "the words of an exception"


async def breaks(scope: Scope, receive: Receive, send: Send) -> None:
    raise ValueError(SECRET)


async def breaks_later(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"half", "more_body": True})
    raise ValueError(SECRET)


async def test_what_nobody_caught_is_a_failure_without_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answer = await ask(ErrorMiddleware(breaks))
    assert (answer.status, answer.json["error"]["status"]) == (500, "INTERNAL")
    assert SECRET not in answer.body.decode()
    (record,) = caplog.records
    assert (record.levelno, record.name) == (logging.ERROR, "apcore_a2a.guards")
    assert record.exc_info


async def test_what_has_begun_is_not_answered_twice() -> None:
    assert await ask(ErrorMiddleware(breaks_later)) == Answer(200, {}, b"half")


async def test_what_cancels_a_request_goes_on() -> None:
    async def stops(scope: Scope, receive: Receive, send: Send) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await ask(ErrorMiddleware(stops))


async def test_web_sockets_are_refused_and_get_no_further() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    app: Any = ErrorMiddleware(breaks)
    await app({"type": "websocket"}, None, send)
    assert [(message["type"], message["code"]) for message in sent] == [("websocket.close", 1008)]


async def test_the_lifespan_goes_on_behind_it() -> None:
    app: Any = ErrorMiddleware(breaks)
    with pytest.raises(ValueError, match=SECRET):
        await app({"type": "lifespan"}, None, None)


async def test_an_agent_has_it_with_and_without_the_access_log() -> None:
    for access_log in (True, False):
        modules = registry_of({"work": Does(give_back)})
        app = create_app(modules, url="http://x", access_log=access_log)
        app.router.default = breaks
        assert (await ask(app, path="/nothing")).status == 500
