"""Limits of time and size for a request to arrive in, which uvicorn has none of.

The protocol is uvicorn's own, and overrides parts of it that are not documented. They are listed
in `tests/middleware/test_uvicorn.py`, and `pyproject.toml` bounds uvicorn's version.
"""

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from apcore_a2a_server.fields import OptionError

MAX_HEAD = 64 * 1024
"""Bytes of a request's first line and headers, or of trailers; one read may bring more."""
MAX_FRAMING = 8
"""Bytes of framing that a chunked body may have for each of its own, and for all of them:"""
MAX_FRAMES = 2 * 1024 * 1024
MAX_PIPELINE = 32
"""Requests of a connection that wait while one is answered."""
MAX_SECONDS = 3600
RATE = 64 * 1024
"""Bytes for which a request gets another second."""
TIMED_OUT = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
TOO_LARGE = TIMED_OUT.replace(b"408 Request Timeout", b"431 Request Header Fields Too Large")


def request_timeout_protocol(seconds: float) -> type["RequestTimeoutProtocol"]:
    """Return the protocol that waits *seconds* for a request.

    Raises:
        ValueError: *seconds* is not greater than 0, or is more than an hour.

    Example:
        ```python test="lint"
        import uvicorn
        from apcore_a2a_server.middleware.timeouts import request_timeout_protocol

        uvicorn.run("my_app:app", http=request_timeout_protocol(10))
        ```
    """
    if not 0 < seconds <= MAX_SECONDS:
        raise OptionError("request_timeout", "must be greater than 0, and an hour at most")
    return type("RequestTimeout", (RequestTimeoutProtocol,), {"seconds": seconds})


class RequestTimeoutProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol, which closes connections whose request does not arrive.

    A request has `seconds` to arrive in, and a second more for each 64 KB of it; so has a
    connection that sends nothing at all. While the server works for a request, or does not
    read what is sent, nothing is closed.
    """

    seconds: ClassVar[float] = 10.0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._timer: asyncio.TimerHandle | None = None
        self._began = 0.0
        self._received = 0
        self._in_head = True
        self._body = self._overhead = 0  # bytes of the request's body, and all others
        self._read_body = 0  # bytes of bodies in one read

    def connection_made(self, transport: Any) -> None:
        """Wait for the first request."""
        super().connection_made(transport)
        self._began = self.loop.time()
        self._check_after(self.seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Read on; check the time later if the request is not complete."""
        self._read_body = 0
        super().data_received(data)
        self._received += len(data)
        self._overhead += len(data) - self._read_body
        if self._is_too_large():
            self._close(TOO_LARGE)
        elif self._timer is None and not self._is_busy():
            self._check_after(self.seconds)

    def on_message_begin(self) -> None:
        """Give the request its time."""
        super().on_message_begin()
        self._began, self._received = self.loop.time(), 0
        self._in_head = True
        self._body = self._overhead = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; a trailer is none (RFC 9110 §6.5.1)."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Take the request.

        Raises:
            ValueError: Too many requests of the connection wait already.
        """
        self._in_head = False
        super().on_headers_complete()
        if len(self.pipeline) > MAX_PIPELINE:
            raise ValueError

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._body += len(body)
        self._read_body += len(body)
        super().on_body(body)

    def _is_too_large(self) -> bool:
        """Whether the head that arrives, or the framing of the body, has too many bytes."""
        framing = min(MAX_FRAMING * self._body, MAX_FRAMES)
        arriving = self._in_head or self.cycle.more_body
        return arriving and self._overhead > MAX_HEAD + framing

    def _check_after(self, seconds: float) -> None:
        self._timer = self.loop.call_later(seconds, self._check)

    def _check(self) -> None:
        """Close the connection if the client has had its time."""
        self._timer = None
        if self._is_busy():
            return
        now, cycle = self.loop.time(), self._unanswered()
        unheard = cycle is not None and cycle.waiting_for_100_continue
        if unheard or self.pipeline or self.flow.read_paused:
            self._began = now + self.seconds  # its time begins when it is read
        late = now - self._began - self.seconds - self._received / RATE
        if late < 0:
            self._check_after(-late)
        else:
            self._close(TIMED_OUT if self._in_head and self._received else b"")

    def _is_busy(self) -> bool:
        """Whether the server has all of a request, or uvicorn waits for the next one."""
        cycle = self._unanswered()
        answering = cycle is not None and not cycle.more_body
        return answering or self.timeout_keep_alive_task is not None

    def _unanswered(self) -> Any:
        """uvicorn's request that has no complete answer yet; None without one."""
        cycle: Any = self.cycle  # None before the first request
        return None if cycle is None or cycle.response_complete else cycle

    def _close(self, answer: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(answer)
            self.transport.close()
