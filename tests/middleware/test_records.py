"""Log records and log lines: their fields, formats, events and exceptions."""

import asyncio
import io
import json
import logging
import re
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from apcore_a2a_server.middleware import FrontMiddleware, RedactingFormatter, log_context
from apcore_a2a_server.middleware.logs import (
    JsonFormatter,
    LineHandler,
    TextFormatter,
    access_logger,
    begin_facts,
    log_request,
)
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Mount
from starlette.types import Receive, Scope, Send

from tests.server.checking_client import Json
from tests.server.inloop import anyio_backend as anyio_backend

from .byhand import CONTROL, HOSTILE, LONG, WIDTH, ask

SECRET = "the content of a request"


async def answer_ok(scope: Scope, receive: Receive, send: Send) -> None:
    await Response()(scope, receive, send)


async def access_record(caplog: pytest.LogCaptureFixture, **request: Any) -> Json:
    """Return the attributes of the access log's record of a request."""
    caplog.set_level(logging.INFO, "apcore_a2a.access")
    await ask(FrontMiddleware(answer_ok), **request)
    return vars(caplog.records[-1]) | {"line": caplog.records[-1].getMessage()}


FIELDS: list[Any] = [
    "path",
    "method",
    "client",
]


@pytest.mark.anyio
@pytest.mark.parametrize("field", FIELDS)
async def test_values_from_the_asgi_scope_are_sanitized(
    field: str, caplog: pytest.LogCaptureFixture
) -> None:
    text: Any = HOSTILE + "x" * LONG
    record = await access_record(caplog, **{field: (text, 1) if field == "client" else text})
    for value in (record[field], record["line"]):
        assert len(value) <= WIDTH
        assert not CONTROL.search(value)


@pytest.mark.anyio
async def test_values_from_the_application_are_sanitized(caplog: pytest.LogCaptureFixture) -> None:
    fields = ("principal", "task", "skill", "operation")

    async def with_context(scope: Scope, receive: Receive, send: Send) -> None:
        log_context(**dict.fromkeys(fields, HOSTILE + "x" * LONG), size=5)
        await answer_ok(scope, receive, send)

    caplog.set_level(logging.INFO, "apcore_a2a.access")
    await ask(FrontMiddleware(with_context))
    record = vars(caplog.records[-1])
    assert record["size"] == 5
    for field in fields:
        assert len(record[field]) <= WIDTH
        assert not CONTROL.search(record[field])


@pytest.mark.anyio
async def test_each_request_has_its_own_fields(caplog: pytest.LogCaptureFixture) -> None:
    async def with_context(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/ada":
            log_context(principal="ada")
        await answer_ok(scope, receive, send)

    caplog.set_level(logging.INFO, "apcore_a2a.access")
    log_context(principal="bob")  # outside of any request
    for path in ("/ada", "/"):
        await ask(FrontMiddleware(with_context), path=path)
    first, second = map(vars, caplog.records)
    assert first["principal"] == "ada"
    assert "principal" not in second


class CostlyError(Exception):
    """Error that shows that a value was formatted."""


class Costly:
    """Value that raises when it is formatted."""

    def __str__(self) -> str:
        raise CostlyError


async def with_costly_context(scope: Scope, receive: Receive, send: Send) -> None:
    log_context(operation=Costly())
    await answer_ok(scope, receive, send)


@pytest.mark.anyio
@pytest.mark.parametrize("path", ["/", "/health"])
async def test_a_record_below_the_level_is_not_formatted(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = FrontMiddleware(with_costly_context, public=["/health"])
    levels = {"/": (logging.WARNING, logging.INFO), "/health": (logging.INFO, logging.DEBUG)}
    level_above, level_enabled = levels[path]
    caplog.set_level(level_above, "apcore_a2a.access")
    assert (await ask(app, path=path)).status == 200
    caplog.set_level(level_enabled, "apcore_a2a.access")
    with pytest.raises(CostlyError):
        await ask(app, path=path)


async def send_nothing(scope: Scope, receive: Receive, send: Send) -> None:
    """Send no answer, as if the client had disconnected."""


async def fail_request(scope: Scope, receive: Receive, send: Send) -> None:
    raise ValueError(HOSTILE)


@pytest.mark.anyio
async def test_a_request_without_an_answer_is_logged_with_status_499(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "apcore_a2a.access")
    with pytest.raises(IndexError):  # `ask` finds no answer
        await ask(FrontMiddleware(send_nothing))
    assert vars(caplog.records[-1])["status"] == 499


@pytest.mark.anyio
async def test_a_failed_request_is_logged_with_status_500(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "apcore_a2a.access")
    assert (await ask(FrontMiddleware(fail_request))).status == 500
    assert vars(caplog.records[-1])["status"] == 500


# Lines of the access log

LOGS_REQUESTS = """
import logging, sys, time
from apcore_a2a_server.middleware import log_context, set_up_logging
from apcore_a2a_server.middleware.logs import begin_facts, log_request

class Count(logging.Handler):
    number = 0
    def emit(self, record):
        self.number += record.status == 200

def log(path):
    begin_facts(client="192.0.2.1")
    log_context(operation="SendMessage", skill=path)
    log_request("POST", path, 200, time.perf_counter())

set_up_logging("info", sys.argv[1])
paths = ["/", "/\\u00e9", "/\\ud800", "/" + sys.argv[2]]
count = Count()
for path in paths:
    log(path)
logging.getLogger("apcore_a2a").addHandler(count)  # which needs records
for path in paths:
    log(path)
assert count.number == len(paths)
"""
TIME_DEPENDENT = re.compile(r"\d\d:\d\d:\d\d(,\d+)?|[\d.]+ ms|\"duration_ms\":[\d.]+")
"""The parts of a line that depend on the time."""


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_request_has_the_same_line_with_and_without_a_record(form: str) -> None:
    text = HOSTILE.replace("\0", "") + "  client=198.51.100.1"
    command = [sys.executable, "-c", LOGS_REQUESTS, form, text]
    result = subprocess.run(command, check=True, capture_output=True)
    lines = TIME_DEPENDENT.sub("", result.stderr.decode()).splitlines()
    assert len(lines) == 8
    assert lines[:4] == lines[4:]
    assert not CONTROL.search("".join(lines))
    if form == "json":
        assert "".join(lines).isascii()
        assert {json.loads(line)["client"] for line in result.stderr.splitlines()} == {"192.0.2.1"}
    else:
        assert all(re.search(r"  client=192[.]0[.]2[.]1  skill=", line) for line in lines)


@pytest.fixture
def handler(monkeypatch: pytest.MonkeyPatch) -> LineHandler:
    """Return the only handler of the log, which writes to a string."""
    handler = LineHandler(TextFormatter(), logging.INFO)
    handler.setStream(io.StringIO())
    monkeypatch.setattr(logging.root, "handlers", [handler])
    monkeypatch.setattr(logging, "raiseExceptions", False)
    return handler


def install_only(
    handler: LineHandler, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Take away the handlers that pytest has added for this test, and log all requests."""
    caplog.set_level(logging.INFO, "apcore_a2a.access")
    monkeypatch.setattr(logging.root, "handlers", [handler])


def reject_record(record: logging.LogRecord) -> bool:
    return False


def closed_stream() -> io.StringIO:
    """Return a stream that raises ValueError."""
    stream = io.StringIO()
    stream.close()
    return stream


CHANGES: dict[str, Callable[[pytest.MonkeyPatch, LineHandler], Any]] = {
    "nothing": lambda patch, handler: None,
    "a filter of the logger": lambda patch, _: patch.setattr(
        access_logger, "filters", [reject_record]
    ),
    "a filter of the handler": lambda _, handler: handler.addFilter(reject_record),
    "a level": lambda _, handler: handler.setLevel("ERROR"),
    "a formatter": lambda _, handler: handler.setFormatter(logging.Formatter("%(name)s")),
    "a factory": lambda patch, _: patch.setattr(
        logging,
        "_logRecordFactory",
        lambda name, level, path, line, *rest: logging.LogRecord(
            name, level, path, line, "made", (), None
        ),
    ),
    "propagation": lambda patch, _: patch.setattr(access_logger, "propagate", False),
    "a disabled logger": lambda patch, _: patch.setattr(access_logger, "disabled", True),
    "a closed stream": lambda _, handler: handler.setStream(closed_stream()),
}
"""Ways in which users change the log."""


@pytest.mark.parametrize("change", CHANGES)
def test_changes_of_the_log_apply_to_requests(
    change: str,
    handler: LineHandler,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install_only(handler, caplog, monkeypatch)
    stream: Any = handler.stream
    CHANGES[change](monkeypatch, handler)
    log_request("GET", "/", 200, time.perf_counter())
    lines = {
        "nothing": r"[\d:]{8} INFO    GET / 200 [\d.]+ ms\n",
        "a formatter": "apcore_a2a.access\n",
        "a factory": r"[\d:]{8} INFO    made\n",
    }
    assert re.fullmatch(lines.get(change, ""), stream.getvalue())


@pytest.mark.anyio
@pytest.mark.parametrize("logs_a_record", [False, True])
async def test_lines_of_requests_are_written_together_and_in_order(
    handler: LineHandler,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    logs_a_record: bool,
) -> None:
    install_only(handler, caplog, monkeypatch)
    stream: Any = handler.stream
    for path in ("/first", "/second"):
        log_request("GET", path, 200, time.perf_counter())
    assert stream.getvalue() == ""
    if logs_a_record:
        logging.getLogger("any").warning("third")
    else:
        await asyncio.sleep(0)
    words = re.findall(r"/first|/second|third", stream.getvalue())
    assert words == ["/first", "/second", *(["third"] if logs_a_record else [])]


@pytest.mark.anyio
async def test_flush_writes_the_waiting_lines(
    handler: LineHandler, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_only(handler, caplog, monkeypatch)
    stream: Any = handler.stream
    log_request("GET", "/last", 200, time.perf_counter())
    assert stream.getvalue() == ""
    handler.flush()
    assert "/last" in stream.getvalue()


def test_a_path_cannot_add_fields_to_a_line(
    handler: LineHandler, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_only(handler, caplog, monkeypatch)
    stream: Any = handler.stream
    log_request("GET", "/x 200 0.1 ms  principal=admin", 404, time.perf_counter())
    assert ' GET "/x 200 0.1 ms  principal=admin" 404 ' in stream.getvalue()


@pytest.mark.anyio
async def test_a_line_lacks_facts_that_are_added_after_the_response(
    handler: LineHandler, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_only(handler, caplog, monkeypatch)
    stream: Any = handler.stream
    begin_facts(client="192.0.2.1")
    log_request("GET", "/", 200, time.perf_counter())
    log_context(task="of a run that goes on")
    handler.flush()
    assert stream.getvalue().endswith("ms  client=192.0.2.1\n")


def test_a_json_line_can_hold_any_value() -> None:
    record = logging.LogRecord("any", logging.INFO, __file__, 1, "%s", (HOSTILE,), None)
    record.__dict__ |= {
        "number": 2**80,
        "object": object,
        "text": "\ud800\xe9",
        "size": float("inf"),
    }
    line = JsonFormatter().format(record)
    assert line.isascii()
    assert not CONTROL.search(line)
    document = json.loads(line)
    assert document["message"] == HOSTILE
    assert (document["number"], document["object"]) == (2**80, "<class 'object'>")


@pytest.mark.anyio
async def test_a_mounted_page_is_not_taken_for_a_public_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    mounted = Starlette(routes=[Mount("/inner", answer_ok)])
    caplog.set_level(logging.INFO, "apcore_a2a.access")
    assert (
        await ask(FrontMiddleware(mounted, public=["/health"]), path="/inner/health")
    ).status == 200
    assert [record.levelname for record in caplog.records] == ["INFO"]


# Messages of libraries

WARNS = """
import logging, sys
from apcore_a2a_server.middleware import set_up_logging
set_up_logging("info", sys.argv[1])
logging.getLogger("any").warning("%s", sys.argv[2])
"""


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_message_of_any_logger_has_line_breaks(form: str) -> None:
    message = HOSTILE.replace("\0", "")  # a program's arguments can't contain NUL
    command = [sys.executable, "-c", WARNS, form, message]
    result = subprocess.run(command, check=True, capture_output=True)
    line = result.stderr.decode().removesuffix("\n")
    assert "WARNING" in line
    assert "[31mc" in line
    assert not CONTROL.search(line)


# Events

LOGS_EVENT = """
import logging, sys
from apcore_a2a_server.middleware import set_up_logging
set_up_logging("info", sys.argv[1])
logging.getLogger("any").warning("It %s", "broke", extra={"event": "any_broke"})
logging.getLogger("any").warning("It broke again")
"""


def lines_with_event(form: str) -> list[str]:
    """Return the lines that a program logs for a record with an event, and one without."""
    command = [sys.executable, "-c", LOGS_EVENT, form]
    return subprocess.run(command, check=True, capture_output=True, text=True).stderr.splitlines()


def test_the_event_of_a_record_is_a_member_in_json() -> None:
    with_event, without_event = map(json.loads, lines_with_event("json"))
    assert (with_event["event"], with_event["message"]) == ("any_broke", "It broke")
    assert without_event.keys() == {"time", "level", "logger", "message"}
    assert with_event.keys() == without_event.keys() | {"event"}


def test_the_event_of_a_record_is_not_in_text() -> None:
    with_event, without_event = lines_with_event("text")
    assert re.fullmatch(r"\d\d:\d\d:\d\d WARNING It broke", with_event)
    assert re.fullmatch(r"\d\d:\d\d:\d\d WARNING It broke again", without_event)


@pytest.mark.anyio
async def test_the_event_of_a_request_is_request(caplog: pytest.LogCaptureFixture) -> None:
    record = await access_record(caplog)
    assert (record["event"], record["line"].split()[:2]) == ("request", ["GET", "/"])


# Exceptions


def format_error(form: logging.Formatter, error: BaseException, text: str = "It broke") -> str:
    """Return the formatted record of *error*."""
    info = (type(error), error, error.__traceback__)
    record = logging.LogRecord("any", logging.ERROR, __file__, 1, text, (), info)
    return form.format(record)


def nested_error() -> BaseException:
    """Return a group of errors, with a cause and a note."""
    try:
        try:
            raise KeyError(SECRET)
        except KeyError:
            raise ExceptionGroup(SECRET, [ValueError(SECRET), OSError(SECRET)]) from None
    except ExceptionGroup as error:
        error.add_note(SECRET)
        error.__cause__ = SyntaxError(SECRET, ("file", 1, 1, SECRET))
        return error


def test_an_exception_is_logged_with_its_stack_but_without_its_messages() -> None:
    plain = logging.Formatter("%(message)s")
    line = format_error(RedactingFormatter(plain), nested_error())
    assert line.startswith("It broke\nSyntaxError")
    assert "in nested_error" in line
    assert SECRET not in line
    assert "the text is hidden; the option error_texts or the log level DEBUG shows it" in line
    assert SECRET in format_error(RedactingFormatter(plain, logging.DEBUG), nested_error())
    assert SECRET in format_error(RedactingFormatter(plain, shows_errors=True), nested_error())


def test_other_handlers_get_the_whole_exception() -> None:
    info = (ValueError, ValueError(SECRET), None)
    record = logging.LogRecord("any", logging.ERROR, __file__, 1, "It broke", (), info)
    RedactingFormatter(logging.Formatter("%(message)s")).format(record)
    assert SECRET in logging.Formatter("%(message)s").format(record)


class CallbackHandler(logging.Handler):
    """Handler that passes records to a function."""

    def __init__(self, callback: Callable[[logging.LogRecord], None]) -> None:
        super().__init__()
        self._callback = callback

    def emit(self, record: logging.LogRecord) -> None:
        self._callback(record)


def test_an_exception_that_the_event_loop_reports_is_logged_without_its_message() -> None:
    async def fail() -> None:
        raise ValueError(SECRET)

    async def format_by_loop() -> str:
        task, lines = asyncio.ensure_future(fail()), list[str]()
        await asyncio.wait({task})
        context = {"message": "It broke", "exception": task.exception(), "future": task}
        form = RedactingFormatter(logging.Formatter("%(message)s"))
        handler = CallbackHandler(lambda record: lines.append(form.format(record)))
        logger = logging.getLogger("asyncio")
        logger.addHandler(handler)
        try:
            asyncio.get_running_loop().default_exception_handler(context)
        finally:
            logger.removeHandler(handler)
        return lines[0]

    assert SECRET not in asyncio.run(format_by_loop())
