"""Parser of server-sent events (WHATWG HTML §9.2.6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from .errors import A2AProtocolError

Frame: TypeAlias = tuple[bytes, str | None]
"""The data of an event, and the last event id, after which a reader can resume."""


class EventParser:
    r"""Incremental parser of a stream of events; the stream may be split anywhere.

    Args:
        max_bytes: Size limit of an event.

    Example:
        ```python
        from apcore_a2a_client.sse import EventParser

        parser = EventParser(max_bytes=1000)
        print(*parser.feed(b"id: 7\ndata: on"), *parser.feed(b"e\n\n"))
        #> (b'one', '7')
        ```
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._line = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._last_event_id: str | None = None
        self._ended_with_cr = self._has_read_line = False

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """Yield the events that *chunk* completes.

        Raises:
            A2AProtocolError: An event is larger than the limit.
        """
        # A line ends with CR, LF or CRLF. A CR at the end of a chunk ends its line at once, so an
        # LF at the start of the next chunk belongs to that CR and is not an empty line.
        if not chunk:  # an empty chunk must not reset `_ended_with_cr`
            return
        if self._ended_with_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._ended_with_cr = chunk.endswith(b"\r")
        *line_ends, partial_line = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line_end in line_ends:
            self._extend_line(line_end)
            yield from self._read_line(bytes(self._line))
            self._line.clear()
        self._extend_line(partial_line)

    def _extend_line(self, fragment: bytes) -> None:
        self._line += fragment
        if self._size + len(self._line) > self._max_bytes:
            raise A2AProtocolError(f"An event of the stream is larger than {self._max_bytes} bytes")

    def _read_line(self, line: bytes) -> Iterator[Frame]:
        """Process a whole line; if it is empty and follows data, yield the event."""
        # Only the first line of a stream can begin with a byte order mark.
        line = line if self._has_read_line else line.removeprefix(b"\xef\xbb\xbf")
        self._has_read_line = True
        if not line:
            data, self._data, self._size = b"\n".join(self._data), [], 0
            if data:
                yield data, self._last_event_id
            return
        field_name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field_name == b"data":
            self._data.append(value)
            self._size += len(value) + 1
        elif field_name == b"id" and value.isascii() and value.decode("ascii").isprintable():
            # Other ids could not be sent back in the header `Last-Event-ID`.
            self._last_event_id = value.decode("ascii")
