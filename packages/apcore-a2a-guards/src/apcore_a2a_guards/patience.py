"""A limit to how long a client may take to send a request, which uvicorn has none for."""

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD = 64 * 1024
"""Bytes of a request's first line and headers."""
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
        from apcore_a2a_guards.patience import patient

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
        self._complete = False

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
        super().data_received(data)
        self._received += len(data)
        if self._in_head and self._received > MAX_HEAD:
            self._close(TOO_LARGE)
        elif self._timer is None and not self._is_busy():
            self._watch(self.seconds)

    def on_message_begin(self) -> None:
        """A request begins to arrive."""
        super().on_message_begin()
        self._began, self._received = self.loop.time(), 0
        self._in_head, self._complete = True, False

    def on_headers_complete(self) -> None:
        """Its headers are there."""
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """It is there as a whole."""
        self._complete = True
        super().on_message_complete()

    def _watch(self, seconds: float) -> None:
        self._timer = self.loop.call_later(seconds, self._look)

    def _look(self) -> None:
        """Close the connection, if it is the client that is waited for, and it has had its time."""
        self._timer = None
        late = self.loop.time() - self._began - self.seconds - self._received / RATE
        if self._is_busy():
            return
        if self.flow.read_paused:
            self._watch(self.seconds)
        elif late < 0:
            self._watch(-late)
        else:
            self._close(TIMED_OUT if self._in_head and self._received else b"")

    def _is_busy(self) -> bool:
        """Whether the server works for a whole request, or uvicorn waits for the next one."""
        answering = self._complete and not self.cycle.response_complete
        return answering or self.timeout_keep_alive_task is not None

    def _close(self, answer: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(answer)
            self.transport.close()
