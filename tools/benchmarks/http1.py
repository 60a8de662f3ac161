"""A minimal HTTP/1.1 client for a load generator: requests as bytes, and a parser of responses."""

from collections.abc import Mapping
from dataclasses import dataclass

_END_OF_HEAD = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Response:
    """An HTTP response with its decoded body."""

    status: int
    body: bytes


class BadResponse(ValueError):
    """The received bytes are not an HTTP/1.1 response that this parser supports."""


def get_request(path: str) -> bytes:
    """Return a keep-alive GET request."""
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()


def post_head(length: int, headers: Mapping[str, str] | None = None) -> bytes:
    """Return the head of a keep-alive POST of `length` bytes of JSON to ``/``."""
    lines = [
        "POST / HTTP/1.1",
        "Host: 127.0.0.1",
        "Content-Type: application/json",
        f"Content-Length: {length}",
        *(f"{name}: {value}" for name, value in (headers or {}).items()),
    ]
    return "\r\n".join(lines).encode() + _END_OF_HEAD


class ResponseParser:
    r"""Parser of the responses on one connection, without pipelining.

    Example:
        >>> parser = ResponseParser()
        >>> parser.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nh")
        >>> parser.feed(b"i")
        Response(status=200, body=b'hi')
    """

    def __init__(self) -> None:
        self.body = bytearray()
        """The part of a chunked body decoded so far; empty for other bodies."""
        self._reset()

    def _reset(self) -> None:
        self._buffer = bytearray()
        self._status = 0
        self._body_start = 0  # where the body, or the next chunk, starts; 0 before the head is read
        self._length: int | None = None  # None: chunked

    def feed(self, data: bytes) -> Response | None:
        """Parse received bytes; return the response once it is complete.

        Raises:
            BadResponse: The head or the size of a chunk is malformed, or the head has neither a
                length nor chunked encoding.
        """
        if not self._buffer:
            self.body = bytearray()
        self._buffer += data
        if not self._body_start and not self._read_head():
            return None
        if self._length is None:
            return self._read_chunks()
        if len(self._buffer) < self._body_start + self._length:
            return None
        return self._finish(bytes(self._buffer[self._body_start :]))

    def _read_head(self) -> bool:
        end = self._buffer.find(_END_OF_HEAD)
        if end < 0:
            return False
        status, *lines = bytes(self._buffer[:end]).split(b"\r\n")
        self._status = _parse_status(status)
        self._length = _parse_length(lines)
        self._body_start = end + len(_END_OF_HEAD)
        return True

    def _read_chunks(self) -> Response | None:
        while (end := self._buffer.find(b"\r\n", self._body_start)) >= 0:
            size = _parse_number(self._buffer[self._body_start : end].split(b";")[0], 16)
            after = end + 2 + size + 2
            if len(self._buffer) < after:
                return None
            if size == 0:
                return self._finish(bytes(self.body))
            self.body += self._buffer[end + 2 : end + 2 + size]
            self._body_start = after
        return None

    def _finish(self, body: bytes) -> Response:
        response = Response(self._status, body)
        self._reset()
        return response


def _parse_status(line: bytes) -> int:
    version, _, rest = line.partition(b" ")
    if not version.startswith(b"HTTP/1."):
        raise BadResponse(line)
    return _parse_number(rest[:3])


def _parse_length(lines: list[bytes]) -> int | None:
    for line in lines:
        name, _, value = line.partition(b":")
        match name.lower():
            case b"content-length":
                return _parse_number(value)
            case b"transfer-encoding" if b"chunked" in value.lower():
                return None
    raise BadResponse("neither Content-Length nor chunked")


def _parse_number(digits: bytes | bytearray, base: int = 10) -> int:
    try:
        return int(digits, base)
    except ValueError:
        raise BadResponse(bytes(digits)) from None
