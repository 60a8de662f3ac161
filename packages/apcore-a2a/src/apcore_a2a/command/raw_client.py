"""Requests that A2A clients do not send, such as malformed ones, and the answers to them."""

import json
import re
from collections.abc import Iterator
from math import inf
from time import monotonic
from typing import Any, NamedTuple, cast

import httpx

MAX_ANSWER = 64 * 1024
"""Bytes after which reading an answer stops; the first event of a stream must be shorter."""
EVENT_STREAM = "text/event-stream"
LINE_END = re.compile(rb"\r\n?|\n")
DATA_FIELD = re.compile(rb"^data:", re.MULTILINE)


class Answer(NamedTuple):
    """An answer to a raw request.

    Attributes:
        status: The HTTP status.
        media_type: The media type.
        body: The JSON of the body, or of the first event of a stream; None if it is not an object.
    """

    status: int
    media_type: str
    body: dict[str, Any] | None

    @property
    def code(self) -> Any:
        """The code of a JSON-RPC error; None if there is none."""
        error: Any = self.body.get("error") if self.body else None
        return cast("dict[str, Any]", error).get("code") if isinstance(error, dict) else None

    def __str__(self) -> str:
        if self.body is None:
            body = self.media_type or "a body of unknown type"
            return f"HTTP {self.status} with {body} that is not a JSON object"
        if self.code is not None:
            return f"the error {str(self.code)[:100]} (HTTP {self.status})"
        member = "a result" if "result" in self.body else "neither a result nor an error"
        return f"{member} (HTTP {self.status})"


class RawClient(httpx.Client):
    """An httpx client that can also send raw requests.

    A raw request has the credentials of the last ordinary request.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.last_request = httpx.Request("POST", "")

    def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """Send an ordinary request, and remember it with its credentials."""
        self.last_request = request
        return super().send(request, **options)

    @property
    def is_json_rpc(self) -> bool:
        """Whether the last ordinary request was JSON-RPC rather than HTTP+JSON."""
        media_type: str = self.last_request.headers.get("content-type", "")
        return media_type.startswith("application/json")

    def send_raw(self, content: bytes, method: str = "POST", path: str | None = None) -> Answer:
        """Send a raw request with this body, and return its answer.

        Args:
            content: The body.
            method: The HTTP method.
            path: The path; by default, the path of the last ordinary request.

        Raises:
            httpx.HTTPError: There was no complete answer.
        """
        replaced = ("accept", "content-length", "content-type", "transfer-encoding")
        headers = {name: v for name, v in self.last_request.headers.items() if name not in replaced}
        headers |= {"accept": f"{EVENT_STREAM}, application/json, application/a2a+json"}
        headers |= {"content-type": "application/json"} if content else {}
        url = httpx.URL(self.last_request.url)
        url = url if path is None else url.copy_with(path=path)
        request = self.build_request(method, url, headers=headers, content=content or None)
        response = super().send(request, stream=True, auth=None, follow_redirects=False)
        media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        try:
            deadline = monotonic() + (self.timeout.read or inf)
            body = b"".join(_read_beginning(response, media_type == EVENT_STREAM, deadline))
        finally:
            response.close()
        return Answer(response.status_code, media_type, _parse_object(body, media_type))


def _read_beginning(response: httpx.Response, is_stream: bool, deadline: float) -> Iterator[bytes]:
    """Yield a body up to MAX_ANSWER bytes; stop a stream after its first event with data.

    Raises:
        httpx.ReadTimeout: The answer was not complete before *deadline*, on the monotonic clock.
    """
    received = b""
    for chunk in response.iter_bytes():
        yield chunk
        received += chunk
        data = DATA_FIELD.search(normalized := LINE_END.sub(b"\n", received))
        is_event_complete = data is not None and b"\n\n" in normalized[data.end() :]
        if len(received) > MAX_ANSWER or (is_stream and is_event_complete):
            return
        if monotonic() > deadline:
            raise httpx.ReadTimeout("The answer was not complete in time")


def _parse_object(body: bytes, media_type: str) -> dict[str, Any] | None:
    content = body
    if media_type == EVENT_STREAM:
        events = LINE_END.sub(b"\n", body).split(b"\n\n")
        event = next(filter(DATA_FIELD.search, events), b"")
        lines = [line for line in event.split(b"\n") if line.startswith(b"data:")]
        content = b"\n".join(line.removeprefix(b"data:") for line in lines)
    try:
        value: Any = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
