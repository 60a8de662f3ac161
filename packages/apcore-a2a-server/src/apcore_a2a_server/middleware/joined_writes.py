"""Responses in one write instead of two.

uvicorn writes the head of a response, and then its body. Each write is a separate system call
and packet; this transport joins the two writes.
"""

import asyncio
from typing import Any

HEAD_START = b"HTTP/"
"""The beginning of a head (RFC 9112 §4)."""
MAX_JOINED = 64 * 1024
"""Maximum size of a write that is joined to a head, in bytes: joining copies the data."""


class JoinedWrites:
    """A transport that joins the head of a response to the first write after it.

    If no write follows, the head is written in the next iteration of the event loop.

    Args:
        transport: The transport of the connection.
        loop: The event loop.
    """

    __slots__ = ("_head", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Write data; keep a head for the next write."""
        if not self._head:
            if data.startswith(HEAD_START):
                self._head = data
                self._loop.call_soon(self._write_head)
            else:
                self._transport.write(data)
        elif len(data) <= MAX_JOINED:
            head, self._head = self._head, b""
            self._transport.write(head + data)
        else:
            self._write_head()
            self._transport.write(data)

    def close(self) -> None:
        """Close the connection after everything has been written."""
        self._write_head()
        self._transport.close()

    def is_closing(self) -> bool:
        """Return whether the connection is closed, or about to be."""
        return self._transport.is_closing()

    def _write_head(self) -> None:
        head, self._head = self._head, b""
        if head and not self._transport.is_closing():
            self._transport.write(head)
