"""Server-sent events (WHATWG HTML §9.2.6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from .errors import A2AProtocolError

Frame: TypeAlias = tuple[bytes, str | None]
"""One event: its data, and the id with which a reader can come back."""


class EventParser:
    r"""Makes events of bytes, however they are cut.

    Args:
        limit: Bytes that one event may have.

    Example:
        ```python
        from apcore_a2a_client.sse import EventParser

        parser = EventParser(limit=1000)
        print(*parser.feed(b"id: 7\ndata: on"), *parser.feed(b"e\n\n"))
        #> (b'one', '7')
        ```
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._line = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._id: str | None = None
        self._after_return = self._begun = False

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """The events that *chunk* completes.

        Raises:
            A2AProtocolError: An event is larger than the limit.
        """
        if self._after_return and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._after_return = chunk.endswith(b"\r")
        *ended, rest = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for piece in ended:
            self._grow(piece)
            line = bytes(self._line)
            self._line.clear()
            frame = self._read(line)
            if frame is not None:
                yield frame
        self._grow(rest)

    def _grow(self, piece: bytes) -> None:
        self._line += piece
        if self._size + len(self._line) > self._limit:
            raise A2AProtocolError(f"An event of the stream is larger than {self._limit} bytes")

    def _read(self, line: bytes) -> Frame | None:
        """What a whole line means: an event when it is the empty one behind data."""
        if not line:
            data, self._data, self._size = b"\n".join(self._data), [], 0
            return (data, self._id) if data else None
        line = line if self._begun else line.removeprefix(b"\xef\xbb\xbf")
        self._begun = True
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._size += len(value) + 1
        elif name == b"id" and value.isascii() and value.decode("ascii").isprintable():
            self._id = value.decode("ascii")  # others no header could give back
        return None
