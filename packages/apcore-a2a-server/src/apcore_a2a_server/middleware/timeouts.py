"""Limits that uvicorn lacks: for the time and the size of incoming requests.

The protocol class extends uvicorn's and overrides undocumented parts of it. They are listed in
`tests/middleware/test_uvicorn.py`, and `pyproject.toml` bounds uvicorn's version.
"""

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from apcore_a2a_server.fields import OptionError

from .joined_writes import JoinedWrites

MAX_HEAD = 64 * 1024
"""Maximum size of a request's first line, headers and trailers together, in bytes."""
MAX_FRAMING_PER_BYTE = 8
"""Maximum bytes of framing in a chunked body for each byte of content."""
MAX_FRAMING = 2 * 1024 * 1024
"""Maximum bytes of framing in a chunked body in total."""
MAX_PIPELINE = 32
"""Maximum number of requests that wait on a connection while one is answered."""
TICK = 0.05
"""Seconds between two checks of how late the event loop is."""
MAX_SECONDS = 3600
"""Maximum request timeout, in seconds."""
MIN_BYTES_PER_SECOND = 64 * 1024
"""Bytes that extend the timeout of a request by a second."""
TIMEOUT_RESPONSE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
TOO_LARGE_RESPONSE = TIMEOUT_RESPONSE.replace(
    b"408 Request Timeout", b"431 Request Header Fields Too Large"
)


def request_timeout_protocol(seconds: float) -> type["RequestTimeoutProtocol"]:
    """Return the protocol class with a request timeout of *seconds*.

    Raises:
        ValueError: *seconds* is 0 or less, or more than an hour.

    Example:
        ```python test="lint"
        import uvicorn
        from apcore_a2a_server.middleware.timeouts import request_timeout_protocol

        uvicorn.run("my_app:app", http=request_timeout_protocol(10))
        ```
    """
    if not 0 < seconds <= MAX_SECONDS:
        raise OptionError(
            "request_timeout", f"must be greater than 0 and at most an hour, not {seconds:g}"
        )
    return type("RequestTimeout", (RequestTimeoutProtocol,), {"seconds": seconds})


class ResponsiveClock:
    """A clock that stands still while the event loop is blocked.

    A client must not time out because the server was too busy to read what the client has sent.

    Args:
        loop: The event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._lost_seconds = 0.0
        self._next_tick = loop.time()
        self._tick()

    def time(self) -> float:
        """Return the seconds for which the event loop was responsive, from an arbitrary start."""
        now = self.loop.time()
        return now - self._lost_seconds - max(0.0, now - self._next_tick)

    def _tick(self) -> None:
        now = self.loop.time()
        self._lost_seconds += max(0.0, now - self._next_tick)
        self._next_tick = now + TICK
        self.loop.call_at(self._next_tick, self._tick)


class RequestTimeoutProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol, extended to close connections whose request does not arrive in time.

    A request must arrive within `seconds`, plus one second for each 64 KB. A new connection that
    sends nothing is closed after `seconds`, too. Time does not count while the server processes a
    request or does not read from the connection, or while its event loop is blocked.
    """

    seconds: ClassVar[float] = 10.0
    _shared_clock: ClassVar[ResponsiveClock | None] = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self._shared_clock is None or self._shared_clock.loop is not self.loop:
            type(self)._shared_clock = ResponsiveClock(self.loop)
        self._clock: Any = self._shared_clock
        self._timer: asyncio.TimerHandle | None = None
        self._began_at = 0.0
        self._received = 0
        self._in_head = True
        self._was_waiting = False
        self._body_size = self._overhead = 0  # bytes of the body, and all other bytes
        self._read_body_size = 0  # bytes of bodies in the current read
        self._has_ended_in_read = False  # whether a request has ended in the current read

    def connection_made(self, transport: Any) -> None:
        """Start the timeout of the first request."""
        joined_writes: Any = JoinedWrites(transport, self.loop)
        super().connection_made(joined_writes)
        self._began_at = self._clock.time()
        self._check_after(self.seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Parse received bytes; start the timer if the request is not complete."""
        self._read_body_size, self._has_ended_in_read = 0, False
        super().data_received(data)
        is_arriving = self._is_arriving()
        if not is_arriving and self._unanswered_cycle() is not None:
            return  # the usual case: a request that came in one piece
        if not self._received:
            self._began_at = self._clock.time()
        self._received += len(data)
        # The parser does not say at which of the received bytes a request begins. If an earlier
        # request has ended in this read, the overhead of the new one is counted from the next
        # read on.
        if not self._has_ended_in_read:
            self._overhead += len(data) - self._read_body_size
        if is_arriving and self._is_too_large():
            self._close(TOO_LARGE_RESPONSE)
        elif self._timer is None and not self._is_exempt():
            self._check_after(self.seconds)

    def on_message_begin(self) -> None:
        """Start to count the bytes of a request."""
        super().on_message_begin()
        self._in_head = True
        self._was_waiting = False
        self._received = self._body_size = self._overhead = 0

    def on_headers_complete(self) -> None:
        """Accept the request, but ignore its trailers (RFC 9110 §6.5.1).

        Raises:
            ValueError: Too many requests of the connection are waiting.
        """
        self._in_head = False
        super().on_headers_complete()
        self.headers = []  # trailers go here; the request's headers are in its scope
        if len(self.pipeline) > MAX_PIPELINE:
            raise ValueError

    def on_body(self, body: bytes) -> None:
        """Accept a part of the body."""
        self._body_size += len(body)
        self._read_body_size += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Record that a request has ended in this read."""
        self._has_ended_in_read = True
        super().on_message_complete()

    def _is_arriving(self) -> bool:
        """Return whether a part of a request is still to come."""
        cycle: Any = self.cycle  # None if the first request line is too long for the parser
        return self._in_head or (cycle is not None and cycle.more_body)

    def _is_too_large(self) -> bool:
        """Return whether the head, or the framing of the body, has too many bytes."""
        # Chunks of one byte have five bytes of framing. Without a limit, a client could send
        # framing and chunk extensions without end and never reach the limit of the body.
        allowed_framing = min(MAX_FRAMING_PER_BYTE * self._body_size, MAX_FRAMING)
        return self._overhead > MAX_HEAD + allowed_framing

    def _check_after(self, seconds: float) -> None:
        self._timer = self.loop.call_later(seconds, self._check)

    def _check(self) -> None:
        """Close the connection if the request is late; otherwise check again later."""
        self._timer = None
        if self._is_exempt():
            return  # `data_received` starts the timer again
        now, cycle = self._clock.time(), self._unanswered_cycle()
        awaits_continue = cycle is not None and cycle.waiting_for_100_continue
        # Time does not count while the client waits for 100 Continue, or while the server does not
        # read because of earlier requests or a full buffer. The wait may have ended just before
        # this check, so the timeout also restarts at the first check after the wait.
        is_waiting = awaits_continue or bool(self.pipeline) or self.flow.read_paused
        if is_waiting or self._was_waiting:
            self._began_at = now
        self._was_waiting = is_waiting
        overtime = now - self._began_at - self.seconds - self._received / MIN_BYTES_PER_SECOND
        if overtime < 0:
            self._check_after(-overtime)
        else:
            self._close(TIMEOUT_RESPONSE if self._in_head and self._received else b"")

    def _is_exempt(self) -> bool:
        """Return whether the request timeout is off.

        It is off while a request is being answered, or while uvicorn's keep-alive timer runs.
        """
        cycle = self._unanswered_cycle()
        is_answering = cycle is not None and not cycle.more_body
        return is_answering or self.timeout_keep_alive_task is not None

    def _unanswered_cycle(self) -> Any:
        """Return uvicorn's object for the request without a complete response, if any."""
        cycle: Any = self.cycle  # None before the first request
        return None if cycle is None or cycle.response_complete else cycle

    def _close(self, response: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(response)
            self.transport.close()
