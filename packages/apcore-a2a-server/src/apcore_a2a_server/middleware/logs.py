"""One structured record an event: who, what, how long; and never what was said.

What is known of the request that is worked for stands in a context variable. Every record
that is made meanwhile gets it as attributes, and so does the run that the request began.
"""

import json
import logging
import re
import time
from collections.abc import Collection
from contextvars import ContextVar
from copy import copy

from apcore_a2a_core import clean
from pythonjsonlogger.json import JsonFormatter
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .errors import is_public

access = logging.getLogger("apcore_a2a.access")
request_facts: ContextVar[dict[str, object] | None] = ContextVar("request_facts", default=None)

SHOWN = ("client", "principal", "task", "skill")
FORMATS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")
CHATTY = ("apcore", "httpx", "uvicorn", "watchfiles")
"""Libraries whose INFO lines are for their own developers."""
VALUES = "apcore.schema.hardening"
"""apcore's logger that tells the values it complains of."""
MAX_CAUSES = 20


def log_context(**facts: object) -> None:
    """Add facts to the log records of the current request; texts are cleaned."""
    known = request_facts.get()
    if known is not None:
        known.update({k: clean(v) if isinstance(v, str) else v for k, v in facts.items()})


class RequestFacts(logging.Filter):
    """Gives records what is known of their request, as attributes."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add it; no record is left out."""
        for name, value in (request_facts.get() or {}).items():
            record.__dict__.setdefault(name, value)
        return True


class RedactingFormatter(logging.Formatter):
    """A formatter that keeps the data of modules, stores and clients out of the log.

    Of an exception it shows the type, the stack and the causes, but not the message, which may
    hold what a client sent; where DEBUG is logged, it shows that too. It wraps another formatter,
    since such exceptions come from many loggers: those of apcore, asyncio and the web server too.

    Args:
        form: Formats the redacted record.
        level: The level that is logged.

    Example:
        ```python
        import logging

        from apcore_a2a_server.middleware import RedactingFormatter

        handler = logging.StreamHandler()
        handler.setFormatter(RedactingFormatter(logging.Formatter("%(levelname)s %(message)s")))
        ```
    """

    def __init__(self, form: logging.Formatter, level: int = logging.INFO) -> None:
        super().__init__()
        self._form = form
        self._level = level

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of the redacted record."""
        return self._form.format(self._bare(record))

    def _bare(self, record: logging.LogRecord) -> logging.LogRecord:
        error = record.exc_info[1] if record.exc_info and self._level > logging.DEBUG else None
        if error is None and record.name not in (VALUES, "asyncio"):
            return record
        record = copy(record)  # for others may have handlers of their own
        if record.name == VALUES:
            record.msg, record.args = "A value has not the format that its schema names", ()
        if record.name == "asyncio":  # which shows tasks, calls, and what they raised
            record.msg, record.args = re.split(r"[<({\n]", record.getMessage())[0].strip(), ()
        if error is not None:
            bare = redacted(error)
            record.exc_info, record.exc_text = (type(bare), bare, bare.__traceback__), None
        return record


def redacted(error: BaseException, seen: tuple[BaseException, ...] = ()) -> BaseException:
    """Return a stand-in for *error* with its type, its stack and its causes, but no message.

    Example:
        ```python
        from apcore_a2a_server.middleware.logs import redacted

        print(repr(redacted(KeyError("a secret"))))
        #> KeyError()
        ```
    """
    kind, seen = type(error), (*seen, error)
    found: Exception = type(kind.__name__, (Exception,), {"__module__": kind.__module__})()
    implied = None if error.__suppress_context__ else error.__context__
    cause = error.__cause__ or implied
    if cause is error:  # apcore raises what it has wrapped from itself, and keeps the cause aside
        cause = getattr(error, "cause", None)
    is_new = all(cause is not one for one in seen) and len(seen) < MAX_CAUSES
    if isinstance(cause, BaseException) and is_new:
        found.__cause__ = redacted(cause, seen)
    return found.with_traceback(error.__traceback__)


class TextFormatter(logging.Formatter):
    """A line for people: time, level, message, and what is known of the request."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line, which nobody can break in two."""
        record.message = clean(record.message, 10_000)
        found = {name: str(record.__dict__[name]) for name in SHOWN if name in record.__dict__}
        known = [f"{name}={quoted(value)}" for name, value in found.items()]
        return "  ".join([super().formatMessage(record), *known])


def quoted(value: str) -> str:
    """*value* as one word, so that it can't pass for several fields."""
    return value if value.isprintable() and " " not in value else json.dumps(value)


def set_up_logging(level: str, form: str = "text") -> None:
    """Log to stderr, in lines for people or in JSON, unless the program logs in its own way.

    Args:
        level: `debug`, `info`, `warning` or `error`.
        form: `text` or `json`.

    Raises:
        ValueError: *level* or *form* is none of these.
    """
    if level not in LEVELS:
        raise ValueError(f"log_level must be {', '.join(LEVELS)}, not {level!r}")
    if form not in FORMATS:
        raise ValueError(f"log_format must be {' or '.join(FORMATS)}, not {form!r}")
    if logging.root.handlers:
        return
    handler = logging.StreamHandler()
    handler.addFilter(RequestFacts())
    fields = ["asctime", "levelname", "name", "message"]
    names = {"asctime": "time", "levelname": "level", "name": "logger"}
    structured = JsonFormatter(fields, rename_fields=names, json_default=str)
    logging.root.setLevel(level.upper())
    chosen = structured if form == "json" else TextFormatter()
    handler.setFormatter(RedactingFormatter(chosen, logging.root.level))
    logging.root.addHandler(handler)
    logging.getLogger("httpcore").setLevel("INFO")  # at DEBUG it has what other servers say
    for name in CHATTY if level == "info" else ():
        logging.getLogger(name).setLevel("WARNING")


class AccessLog:
    """ASGI middleware: one record for each request when it has been answered.

    Its attributes: `method`, `path`, `status`, `duration_ms`, `client`, and what was noted on the
    way: `operation`, `principal`, `task`, `skill`. Reads of *public* paths are logged at DEBUG.

    Args:
        app: The application behind.
        public: Paths that are read all the time.
    """

    def __init__(self, app: ASGIApp, *, public: Collection[str] = ()) -> None:
        self._app = app
        self._public = frozenset(public)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and log how it went."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 499  # the client was gone before there was any

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        facts: dict[str, object] = {}
        request_facts.set(facts)
        log_context(client=str((scope.get("client") or ("",))[0]))
        try:
            await self._app(scope, receive, noting)
        finally:
            level = logging.DEBUG if is_public(scope, self._public) else logging.INFO
            if access.isEnabledFor(level):
                log(level, scope, status, (time.perf_counter() - began) * 1000, facts)


def log(
    level: int, scope: Scope, status: int, milliseconds: float, facts: dict[str, object]
) -> None:
    """One line of the access log."""
    path, operation = clean(scope["path"], 200), str(facts.get("operation", ""))
    method = clean(scope["method"], 20)
    facts = {**facts, "method": method, "path": path, "status": status}
    facts["duration_ms"] = round(milliseconds, 1)
    named = " ".join(filter(None, [method, path, operation]))
    access.log(level, "%s %d %.1f ms", named, status, milliseconds, extra=facts)
