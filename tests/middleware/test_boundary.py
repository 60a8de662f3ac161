"""Unhandled exceptions become answers without details, and web sockets are refused."""

import logging
from typing import Any

import pytest
from apcore_a2a_server import create_app
from apcore_a2a_server.middleware import FrontMiddleware
from starlette.types import Message, Receive, Scope, Send

from tests.server.inloop import ActionModule, echo, registry_of
from tests.server.inloop import anyio_backend as anyio_backend

from .byhand import Answer, ask

pytestmark = pytest.mark.anyio

SECRET = "the words of an exception"


async def fail(scope: Scope, receive: Receive, send: Send) -> None:
    raise ValueError(SECRET)


async def fail_after_start(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"half", "more_body": True})
    raise ValueError(SECRET)


async def test_an_unhandled_exception_becomes_an_error_without_details(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answer = await ask(FrontMiddleware(fail))
    assert (answer.status, answer.json["error"]["status"]) == (500, "INTERNAL")
    assert SECRET not in answer.body.decode()
    (record,) = caplog.records
    assert (record.levelno, record.name) == (logging.ERROR, "apcore_a2a.middleware")
    assert record.exc_info


async def test_a_started_answer_is_not_followed_by_another() -> None:
    assert await ask(FrontMiddleware(fail_after_start)) == Answer(200, {}, b"half")


async def test_a_keyboard_interrupt_is_not_caught() -> None:
    async def interrupt(scope: Scope, receive: Receive, send: Send) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await ask(FrontMiddleware(interrupt))


async def test_web_sockets_are_refused_before_the_application() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    app: Any = FrontMiddleware(fail)
    await app({"type": "websocket"}, None, send)
    assert [(message["type"], message["code"]) for message in sent] == [("websocket.close", 1008)]


async def test_lifespan_events_reach_the_application() -> None:
    app: Any = FrontMiddleware(fail)
    with pytest.raises(ValueError, match=SECRET):
        await app({"type": "lifespan"}, None, None)


async def test_an_agent_catches_exceptions_with_and_without_the_access_log() -> None:
    for access_log in (True, False):
        modules = registry_of({"work": ActionModule(echo)})
        app = create_app(modules, url="http://x", access_log=access_log)
        app.router.default = fail
        assert (await ask(app, path="/nothing")).status == 500
