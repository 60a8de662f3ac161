"""What a record has in it, whatever stands behind the access log."""

import asyncio
import logging
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from apcore_a2a_server.middleware import AccessLog, ErrorMiddleware, RedactingFormatter, log_context
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tests.server.asking import Json
from tests.server.inloop import anyio_backend as anyio_backend

from .byhand import CONTROL, HOSTILE, LONG, WIDTH, ask

SECRET = "what a client has said"


async def fine(scope: Scope, receive: Receive, send: Send) -> None:
    await Response()(scope, receive, send)


async def access(caplog: pytest.LogCaptureFixture, **request: Any) -> Json:
    """The attributes of the record of a request."""
    caplog.set_level(logging.INFO, "apcore_a2a.access")
    await ask(AccessLog(fine), **request)
    return vars(caplog.records[-1]) | {"line": caplog.records[-1].getMessage()}


FIELDS: list[Any] = [
    "path",
    "method",
    "client",
]


@pytest.mark.anyio
@pytest.mark.parametrize("field", FIELDS)
async def test_whatever_a_server_passes_on_is_cleaned(
    field: str, caplog: pytest.LogCaptureFixture
) -> None:
    text: Any = HOSTILE + "x" * LONG
    found = await access(caplog, **{field: (text, 1) if field == "client" else text})
    for value in (found[field], found["line"]):
        assert len(value) <= WIDTH
        assert not CONTROL.search(value)


@pytest.mark.anyio
async def test_what_is_noted_on_the_way_is_cleaned(caplog: pytest.LogCaptureFixture) -> None:
    facts = ("principal", "task", "skill", "operation")

    async def noting(scope: Scope, receive: Receive, send: Send) -> None:
        log_context(**dict.fromkeys(facts, HOSTILE + "x" * LONG), size=5)
        await fine(scope, receive, send)

    caplog.set_level(logging.INFO, "apcore_a2a.access")
    await ask(AccessLog(noting))
    found = vars(caplog.records[-1])
    assert found["size"] == 5
    for fact in facts:
        assert len(found[fact]) <= WIDTH
        assert not CONTROL.search(found[fact])


@pytest.mark.anyio
async def test_each_request_has_its_own_facts(caplog: pytest.LogCaptureFixture) -> None:
    async def noting(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/ada":
            log_context(principal="ada")
        await fine(scope, receive, send)

    caplog.set_level(logging.INFO, "apcore_a2a.access")
    log_context(principal="bob")  # in no request
    for path in ("/ada", "/"):
        await ask(AccessLog(noting), path=path)
    first, second = map(vars, caplog.records)
    assert first["principal"] == "ada"
    assert "principal" not in second


class CostlyError(Exception):
    """Something was done for a record that nobody wants."""


class Costly:
    """Raises when it is made a text."""

    def __str__(self) -> str:
        raise CostlyError


async def noting_costly(scope: Scope, receive: Receive, send: Send) -> None:
    log_context(operation=Costly())
    await fine(scope, receive, send)


@pytest.mark.anyio
@pytest.mark.parametrize("path", ["/", "/health"])
async def test_no_record_is_made_when_nobody_listens(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = AccessLog(noting_costly, public=["/health"])
    levels = {"/": (logging.WARNING, logging.INFO), "/health": (logging.INFO, logging.DEBUG)}
    silent, heard = levels[path]
    caplog.set_level(silent, "apcore_a2a.access")
    assert (await ask(app, path=path)).status == 200
    caplog.set_level(heard, "apcore_a2a.access")
    with pytest.raises(CostlyError):
        await ask(app, path=path)


async def gone(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers nothing, for its client has hung up."""


async def raising(scope: Scope, receive: Receive, send: Send) -> None:
    raise ValueError(HOSTILE)


@pytest.mark.anyio
async def test_a_request_without_an_answer_has_a_status_of_its_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "apcore_a2a.access")
    with pytest.raises(IndexError):
        await ask(AccessLog(gone))
    assert vars(caplog.records[-1])["status"] == 499


@pytest.mark.anyio
async def test_a_request_that_broke_has_the_status_of_that(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "apcore_a2a.access")
    assert (await ask(AccessLog(ErrorMiddleware(raising)))).status == 500
    assert vars(caplog.records[-1])["status"] == 500


# What libraries say

WARNS = """
import logging, sys
from apcore_a2a_server.middleware import set_up_logging
set_up_logging("info", sys.argv[1])
logging.getLogger("any").warning("%s", sys.argv[2])
"""


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_message_breaks_its_line_whoever_says_it(form: str) -> None:
    said = HOSTILE.replace("\0", "")  # which no argument of a program can have
    command = [sys.executable, "-c", WARNS, form, said]
    done = subprocess.run(command, check=True, capture_output=True)
    line = done.stderr.decode().removesuffix("\n")
    assert "WARNING" in line
    assert "[31mc" in line
    assert not CONTROL.search(line)


# What exceptions say


def formatted(form: logging.Formatter, error: BaseException, text: str = "It broke") -> str:
    """The line of a record about *error*."""
    info = (type(error), error, error.__traceback__)
    record = logging.LogRecord("any", logging.ERROR, __file__, 1, text, (), info)
    return form.format(record)


def broken() -> BaseException:
    """An error with causes, a note, and a group of others."""
    try:
        try:
            raise KeyError(SECRET)
        except KeyError:
            raise ExceptionGroup(SECRET, [ValueError(SECRET), OSError(SECRET)]) from None
    except ExceptionGroup as error:
        error.add_note(SECRET)
        error.__cause__ = SyntaxError(SECRET, ("file", 1, 1, SECRET))
        return error


def test_of_an_exception_there_is_its_stack_and_not_its_words() -> None:
    plain = logging.Formatter("%(message)s")
    told = formatted(RedactingFormatter(plain), broken())
    assert told.startswith("It broke\nSyntaxError")
    assert "in broken" in told
    assert SECRET not in told
    assert SECRET in formatted(RedactingFormatter(plain, logging.DEBUG), broken())


def test_other_handlers_get_the_whole_exception() -> None:
    info = (ValueError, ValueError(SECRET), None)
    record = logging.LogRecord("any", logging.ERROR, __file__, 1, "It broke", (), info)
    RedactingFormatter(logging.Formatter("%(message)s")).format(record)
    assert SECRET in logging.Formatter("%(message)s").format(record)


class Tells(logging.Handler):
    """Hands records on."""

    def __init__(self, tell: Callable[[logging.LogRecord], None]) -> None:
        super().__init__()
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(record)


def test_of_a_task_that_nobody_waits_for_there_are_no_words() -> None:
    async def breaks() -> None:
        raise ValueError(SECRET)

    async def forgets() -> str:
        task, told = asyncio.ensure_future(breaks()), list[str]()
        await asyncio.wait({task})
        context = {"message": "It broke", "exception": task.exception(), "future": task}
        form = RedactingFormatter(logging.Formatter("%(message)s"))
        handler = Tells(lambda record: told.append(form.format(record)))
        logger = logging.getLogger("asyncio")
        logger.addHandler(handler)
        try:
            asyncio.get_running_loop().default_exception_handler(context)
        finally:
            logger.removeHandler(handler)
        return told[0]

    assert SECRET not in asyncio.run(forgets())
