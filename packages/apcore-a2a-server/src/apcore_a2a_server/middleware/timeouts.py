"""A limit to how long a client may take to send a request, which uvicorn has none for."""

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD = 64 * 1024
"""Bytes of a request's first line and headers."""
REQUEST_LINE = len("GET  HTTP/1.1\r\n\r\n")
"""Bytes of the shortest, without its address."""
MAX_FRAMING = 8
"""Bytes that a byte of a body may cost in chunks of it."""
MAX_FRAMES = 2 * 1024 * 1024
"""And all of it, in bytes; behind a body there may be as much that is none of it."""
MAX_PIPELINE = 32
"""Requests of a connection that wait behind the one that is answered."""
MAX_SECONDS = 3600
RATE = 64 * 1024
"""Bytes that win a slow body another second."""
TIMED_OUT = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
TOO_LARGE = TIMED_OUT.replace(b"408 Request Timeout", b"431 Request Header Fields Too Large")


def patient(seconds: float) -> type["PatientProtocol"]:
    """The protocol that waits so long for a request.

    Raises:
        ValueError: That makes no sense.

    Example:
        ```python test="lint"
        import uvicorn
        from apcore_a2a_server.middleware.timeouts import patient

        uvicorn.run("my_app:app", http=patient(10))
        ```
    """
    if not 0 < seconds <= MAX_SECONDS:
        raise ValueError("request_timeout must be greater than 0, and an hour at most")
    return type("Patient", (PatientProtocol,), {"seconds": seconds})


class PatientProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol, which closes connections whose request does not arrive.

    A request has `seconds` to arrive in, and a second more for each 64 KB of it; so has a
    connection that sends nothing at all. While the server works for a request, or does not
    read what is sent, nobody is to blame, and nothing is closed.
    """

    seconds: ClassVar[float] = 10.0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._timer: asyncio.TimerHandle | None = None
        self._began = 0.0
        self._received = 0
        self._in_head = True
        self._head = self._held = 0  # headers as they are parsed; all but the body as it comes
        self._body = 0
        self._messages = 0

    def connection_made(self, transport: Any) -> None:
        """Wait for the first request."""
        super().connection_made(transport)
        self._began = self.loop.time()
        self._watch(self.seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Read on; look again later when the request is not whole yet."""
        before, body = self._messages, self._body
        super().data_received(data)
        self._received += len(data)
        if before == self._messages:  # else a part of it may be another request's
            self._held += len(data) - (self._body - body)
        if self._is_too_large():
            self._close(TOO_LARGE)
        elif self._timer is None and not self._is_busy():
            self._watch(self.seconds)

    def on_message_begin(self) -> None:
        """A request begins to arrive."""
        super().on_message_begin()
        self._began, self._received = self.loop.time(), 0
        self._in_head, self._head = True, REQUEST_LINE
        self._held = self._body = 0
        self._messages += 1

    def on_url(self, url: bytes) -> None:
        """A part of its address."""
        self._head += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; what comes behind the body is none (RFC 9110 §6.5.1).

        Raises:
            ValueError: The headers are too large.
        """
        self._head += len(name) + len(value) + len(": \r\n")
        if self._is_too_large():
            raise ValueError
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """They are all there.

        Raises:
            ValueError: So many requests wait for their turn that the client can't mean it.
        """
        self._in_head = False
        super().on_headers_complete()
        if len(self.pipeline) > MAX_PIPELINE:
            self._close(b"")
            raise ValueError

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._body += len(body)
        super().on_body(body)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, or more than is taken."""
        if self._is_too_large():
            self._close(TOO_LARGE)
        elif not self.transport.is_closing():
            super().send_400_response(msg)

    def _is_too_large(self) -> bool:
        framing = min(MAX_FRAMING * self._body, MAX_FRAMES)
        return max(self._head, self._held - framing) > MAX_HEAD

    def _watch(self, seconds: float) -> None:
        self._timer = self.loop.call_later(seconds, self._look)

    def _look(self) -> None:
        """Close the connection, if it is the client that is waited for, and it has had its time."""
        self._timer = None
        if self._is_busy():
            return
        now, cycle = self.loop.time(), self._unanswered()
        unheard = cycle is not None and cycle.waiting_for_100_continue
        if unheard or self.pipeline or self.flow.read_paused:
            self._began = now + self.seconds  # its time begins when it is heard
        late = now - self._began - self.seconds - self._received / RATE
        if late < 0:
            self._watch(-late)
        else:
            self._close(TIMED_OUT if self._in_head and self._received else b"")

    def _is_busy(self) -> bool:
        """Whether it is the server that is waited for, or uvicorn waits for the next request."""
        cycle = self._unanswered()
        answering = cycle is not None and not cycle.more_body
        return answering or self.timeout_keep_alive_task is not None

    def _unanswered(self) -> Any:
        """uvicorn's request that has no whole answer yet; None without one."""
        cycle: Any = self.cycle  # None before the first request
        return None if cycle is None or cycle.response_complete else cycle

    def _close(self, answer: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(answer)
            self.transport.close()
