"""Structured logs: callers, operations and durations, but never the content of messages.

A context variable holds facts about the current request. They become attributes of every log
record of the request and of the run that the request starts: the run copies the context.
"""

import asyncio
import json
import logging
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from contextvars import ContextVar
from copy import copy
from functools import lru_cache
from typing import NamedTuple, TextIO

import msgspec
from apcore_a2a_core import clean

access_logger = logging.getLogger("apcore_a2a.access")
request_facts: ContextVar[dict[str, object] | None] = ContextVar("request_facts", default=None)

TEXT_FIELDS = ("client", "principal", "task", "skill", "trace_id")
"""Facts about a request that follow the message in a line of text."""
FORMATS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")
CHATTY_LIBRARIES = ("apcore", "httpx", "uvicorn", "watchfiles")
"""Libraries whose INFO records do not help operators."""
HARDENING_LOGGER = "apcore.schema.hardening"
"""The logger of apcore whose messages quote values that violate a schema's format."""
HIDDEN = "the text is hidden; the option error_texts or the log level DEBUG shows it"
"""Replacement for the text of an exception."""
MAX_CAUSES = 20
"""Maximum number of logged exceptions in a chain of causes."""
STANDARD_ATTRIBUTES = frozenset(
    {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
)
"""Attributes of every log record; others come from `extra` or `RequestFacts`."""

encode_json = msgspec.json.Encoder(enc_hook=str).encode


def log_context(**facts: object) -> None:
    """Add facts to the log records of the current request."""
    current_facts = request_facts.get()
    if current_facts is not None:
        current_facts.update(facts)


def cleaned(facts: Mapping[str, object]) -> dict[str, object]:
    """Return facts about a request, with texts made safe for a log line."""
    return {
        name: clean(value) if isinstance(value, str) else value for name, value in facts.items()
    }


class RequestFacts(logging.Filter):
    """Log filter that adds the facts about the current request to records, as attributes."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the facts, and let every record pass."""
        for name, value in cleaned(request_facts.get() or {}).items():
            record.__dict__.setdefault(name, value)
        return True


class RedactingFormatter(logging.Formatter):
    """Formatter that keeps the data of modules, stores and clients out of the log.

    It formats an exception with its type, stack and causes, but without its message, which may
    contain input of a client; at level DEBUG, or with *shows_errors*, the message is included. The
    class is a formatter because formatters see the records of all loggers: apcore, asyncio and the
    web server log exceptions, too.

    Args:
        formatter: The formatter of redacted records.
        level: The level of the log.
        shows_errors: Whether messages of exceptions are shown at any level.

    Example:
        ```python
        import logging

        from apcore_a2a_server.middleware import RedactingFormatter

        handler = logging.StreamHandler()
        handler.setFormatter(RedactingFormatter(logging.Formatter("%(levelname)s %(message)s")))
        ```
    """

    def __init__(
        self, formatter: logging.Formatter, level: int = logging.INFO, *, shows_errors: bool = False
    ) -> None:
        super().__init__()
        self._formatter = formatter
        self.shows_errors = shows_errors or level <= logging.DEBUG

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of the redacted record."""
        error = record.exc_info[1] if record.exc_info and not self.shows_errors else None
        if error is None and record.name not in (HARDENING_LOGGER, "asyncio"):
            return self._formatter.format(record)
        record = copy(record)  # other handlers of the record must see it unchanged
        if record.name == HARDENING_LOGGER:
            record.msg, record.args = "A value does not match the format in its schema", ()
        if record.name == "asyncio":  # its messages contain the repr of tasks and their exceptions
            record.msg, record.args = re.split(r"[<({\n]", record.getMessage())[0].strip(), ()
        if error is not None:
            stand_in = redacted(error)
            stand_in.args = (HIDDEN,)
            info = (type(stand_in), stand_in, stand_in.__traceback__)
            record.exc_info, record.exc_text = info, None
        return self._formatter.format(record)


def redacted(error: BaseException, outer_errors: tuple[BaseException, ...] = ()) -> BaseException:
    """Return a stand-in for *error* with its type, stack and causes, but without its message.

    Example:
        ```python
        from apcore_a2a_server.middleware.logs import redacted

        print(repr(redacted(KeyError("a secret"))))
        #> KeyError()
        ```
    """
    kind, outer_errors = type(error), (*outer_errors, error)
    stand_in: Exception = type(kind.__name__, (Exception,), {"__module__": kind.__module__})()
    implicit_cause = None if error.__suppress_context__ else error.__context__
    cause = error.__cause__ or implicit_cause
    if cause is error:  # apcore raises some errors from themselves, with the cause as attribute
        cause = getattr(error, "cause", None)
    # Causes may form a cycle; `in` would compare with ==, which errors may define.
    is_new = all(cause is not outer for outer in outer_errors) and len(outer_errors) < MAX_CAUSES
    if isinstance(cause, BaseException) and is_new:
        stand_in.__cause__ = redacted(cause, outer_errors)
    return stand_in.with_traceback(error.__traceback__)


class Response(NamedTuple):
    """A response for the access log."""

    level: int
    method: str
    path: str
    status: int
    start: float
    """The time at which the request came in, by `time.perf_counter`."""
    end: float
    """The time of the response, by the same clock."""
    created: float
    """The time of the response, in seconds since the epoch."""
    facts: Mapping[str, object]
    """The facts about the request, before `cleaned` makes their texts safe."""

    @property
    def duration_ms(self) -> float:
        """The time from request to response, in milliseconds."""
        return round((self.end - self.start) * 1000, 1)

    def message(self) -> str:
        """Return the message of the record."""
        operation = f" {self.facts['operation']}" if "operation" in self.facts else ""
        request_line = f"{clean(self.method, 20)} {quoted(clean(self.path, 200))}{clean(operation)}"
        return f"{request_line} {self.status} {self.duration_ms} ms"

    def extra(self) -> dict[str, object]:
        """Return the attributes of the record."""
        return {
            **cleaned(self.facts),
            "event": "request",
            "method": clean(self.method, 20),
            "path": clean(self.path, 200),
            "status": self.status,
            "duration_ms": self.duration_ms,
        }


class LineFormatter(logging.Formatter, ABC):
    """Base of our formatters, which need no log record to format a line."""

    @abstractmethod
    def line(
        self, created: float, level: str, logger: str, message: str, extra: Mapping[str, object]
    ) -> str:
        """Return a line.

        Args:
            created: The time of the event, in seconds since the epoch.
            level: The name of the level.
            logger: The name of the logger.
            message: The message.
            extra: Further attributes.
        """

    def response_line(self, response: Response) -> str:
        """Return the line of a response."""
        level = logging.getLevelName(response.level)
        message, extra = response.message(), response.extra()
        return self.line(response.created, level, access_logger.name, message, extra)


class TextFormatter(LineFormatter):
    """Formatter of lines for people: time, level, message and facts about the request."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line of a record; its stack trace comes below it."""
        return self.line(
            record.created, record.levelname, record.name, record.message, vars(record)
        )

    def line(
        self, created: float, level: str, logger: str, message: str, extra: Mapping[str, object]
    ) -> str:
        """Return the line; no text can add line breaks to it, and no fact can add fields."""
        line = f"{local_time(int(created), '%H:%M:%S')} {level:<7} {clean(message, 10_000)}"
        for name in TEXT_FIELDS:
            if name in extra:
                line += f"  {name}={quoted(clean(str(extra[name])))}"
        return line

    def response_line(self, response: Response) -> str:
        """Return the line of a response, without making the attributes that the line omits."""
        level = logging.getLevelName(response.level)
        message, facts = response.message(), response.facts
        return self.line(response.created, level, access_logger.name, message, facts)


def quoted(value: str) -> str:
    """Return *value*, in quotes if it could be mistaken for several fields."""
    return value if value.isprintable() and " " not in value else json.dumps(value)


class JsonFormatter(LineFormatter):
    """Formatter of JSON objects in ASCII, with facts about the request and members of `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object for a record."""
        extra = {
            name: value for name, value in vars(record).items() if name not in STANDARD_ATTRIBUTES
        }
        if record.exc_info:
            extra["exc_info"] = self.formatException(record.exc_info)
        if record.stack_info:
            extra["stack_info"] = self.formatStack(record.stack_info)
        return self.line(record.created, record.levelname, record.name, record.getMessage(), extra)

    def line(
        self, created: float, level: str, logger: str, message: str, extra: Mapping[str, object]
    ) -> str:
        """Return the object."""
        second, milliseconds = int(created), int(created % 1 * 1000)
        moment = f"{local_time(second, '%Y-%m-%d %H:%M:%S')},{milliseconds:03}"
        document = {"time": moment, "level": level, "logger": logger, "message": message, **extra}
        with suppress(UnicodeEncodeError):  # half of a surrogate pair
            text = encode_json(document).decode()
            if text.isascii():
                return text
        return json.dumps(document, default=str, separators=(",", ":"))


@lru_cache(maxsize=4)
def local_time(second: int, pattern: str) -> str:
    """Return a time as text; cached because formatting it takes longer than the rest of a line."""
    return time.strftime(pattern, time.localtime(second))


class LineHandler(logging.StreamHandler[TextIO]):
    """Handler that writes log records to stderr, and also responses that have no record.

    Responses are formatted and written together, in the next iteration of the event loop: that
    takes less time than writing each response by itself. A record is not delayed: the
    waiting responses are written first, and then the record.

    Args:
        formatter: Formats the lines of records and of responses.
        level: The level of the log.
    """

    def __init__(self, formatter: LineFormatter, level: int) -> None:
        super().__init__()
        self.addFilter(RequestFacts())
        self.setFormatter(RedactingFormatter(formatter, level))
        self._line_formatter = formatter
        self._initial_setup = self.formatter, [*self.filters]
        self._waiting: list[Response] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, after the responses that came before it."""
        self._write_waiting()
        super().emit(record)

    def flush(self) -> None:
        """Write the waiting responses too."""
        self._write_waiting()
        super().flush()

    def _write_waiting(self) -> None:
        if self._waiting:
            with self.lock or nullcontext():
                responses, self._waiting = self._waiting, []
                lines = [self._line_formatter.response_line(response) for response in responses]
                with suppress(OSError, ValueError):  # stderr is closed
                    self.stream.write(self.terminator.join([*lines, ""]))
                    self.stream.flush()

    def is_sole_handler(self, logger: logging.Logger, level: int) -> bool:
        """Return whether only this handler would get a record of *logger*, and get it unaltered."""
        if self.level > level:
            return False
        if self._waiting:
            return True  # checked for the first of the waiting responses
        if logger.filters or logging.getLogRecordFactory() is not logging.LogRecord:
            return False
        while logger.parent is not None:
            if logger.handlers or not logger.propagate:
                return False
            logger = logger.parent
        is_unchanged = (self.formatter, self.filters) == self._initial_setup
        return is_unchanged and logger.handlers == [self]

    def write(self, response: Response) -> None:
        """Write a response without a record."""
        with self.lock or nullcontext():
            self._waiting.append(response)
            if len(self._waiting) > 1:
                return  # the first waiting response has scheduled `_write_waiting`
        try:
            asyncio.get_running_loop().call_soon(self._write_waiting)
        except RuntimeError:  # there is no event loop
            self._write_waiting()


def set_up_logging(level: str, form: str = "text") -> None:
    """Log to stderr as text or JSON, unless the program has configured logging.

    JSON records have the members `time`, `level`, `logger` and `message`, the facts about their
    request, and the members of `extra`. In `extra`, our own records above DEBUG have an `event`: a
    fixed name for searches and alerts.

    Args:
        level: `debug`, `info`, `warning` or `error`.
        form: `text` or `json`.

    Raises:
        ValueError: *level* or *form* has another value.
    """
    if level not in LEVELS:
        raise ValueError(f"log_level must be one of {', '.join(LEVELS)}, not {level!r}")
    if form not in FORMATS:
        raise ValueError(f"log_format must be {' or '.join(FORMATS)}, not {form!r}")
    if logging.root.handlers:
        return
    logging.root.setLevel(level.upper())
    formatter = JsonFormatter() if form == "json" else TextFormatter()
    handler = LineHandler(formatter, logging.root.level)
    logging.root.addHandler(handler)
    logging.getLogger("httpcore").setLevel("INFO")  # at DEBUG it logs response headers
    for name in CHATTY_LIBRARIES if level == "info" else ():
        logging.getLogger(name).setLevel("WARNING")


def show_error_texts() -> None:
    """Show the messages of exceptions in the log that `set_up_logging` has set up."""
    for handler in logging.root.handlers:
        if isinstance(handler.formatter, RedactingFormatter):
            handler.formatter.shows_errors = True


def begin_facts(**facts: object) -> None:
    """Begin to collect facts for log records, about a request or about work without a request."""
    request_facts.set(facts)


def log_request(
    method: str, path: str, status: int, start: float, level: int = logging.INFO
) -> None:
    """Log the response to a request, with the facts about it.

    Attributes of the record are `event` ("request"), `method`, `path`, `status`, `duration_ms` and
    `client`, and if known `trace_id`, `operation`, `principal`, `task` and `skill`.

    Args:
        method: The HTTP method, or `gRPC`.
        path: The path of the request.
        status: The HTTP status of the response; for gRPC, the corresponding HTTP status.
        start: The time at which the request came in, by `time.perf_counter`.
        level: The level of the record.
    """
    if not access_logger.isEnabledFor(level):
        return
    # copied, since a run that the request has started may add facts later
    facts = dict(request_facts.get() or {})
    end, created = time.perf_counter(), time.time()
    response = Response(level, method, path, status, start, end, created, facts)
    handler = next(iter(logging.root.handlers), None)
    # making a LogRecord is the slowest step: skip it if no other handler would see the record
    if isinstance(handler, LineHandler) and handler.is_sole_handler(access_logger, level):
        handler.write(response)
    else:
        access_logger.log(level, "%s", response.message(), extra=response.extra())
