"""JSON-RPC and server-sent events on the wire, without an SDK."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, NoReturn

import httpx

Json = dict[str, Any]


def refuse(name: str) -> NoReturn:
    raise AssertionError(f"{name} is not valid JSON")


def parse(text: str) -> Any:
    """Parse JSON strictly (RFC 8259)."""
    return json.loads(text, parse_constant=refuse)


def events(response: httpx.Response) -> Iterator[tuple[int, Any]]:
    """Yield the id and the data of each event as it arrives."""
    assert response.headers["content-type"].split(";")[0] == "text/event-stream"
    fields: dict[str, str] = {}
    for line in response.iter_lines():
        name, _, value = line.partition(":")
        if line and name:
            assert name in {"id", "data"} - fields.keys(), line
            fields[name] = value.removeprefix(" ")
        elif not line and fields:
            yield int(fields["id"]), parse(fields["data"])
            fields = {}
    assert not fields, "the stream ends in the middle of an event"


class Rpc:
    """A JSON-RPC client."""

    def __init__(self, http: httpx.Client, **headers: str) -> None:
        self.http = http
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.ids = count(1)

    def call(self, method: str, params: Any = None) -> Json:
        """Send a request and return its response."""
        request = self.request(method, params)
        answer = self.post(json.dumps(request).encode())
        assert answer["id"] == request["id"]
        return answer

    def post(self, body: bytes, **headers: str) -> Json:
        """Post any bytes and return the response."""
        headers = {"content-type": "application/json", **self.headers, **headers}
        response = self.http.post("/", content=body, headers=headers)
        text = response.text
        if response.headers["content-type"] != "application/json":  # a refused stream of 0.3
            assert response.headers["content-type"].split(";")[0] == "text/event-stream"
            assert text.startswith("data: ")
            text = text.removeprefix("data: ")
        answer: Json = parse(text)
        return answer

    @contextmanager
    def stream(
        self, method: str, params: Any, last_event_id: int | None = None
    ) -> Iterator[Iterator[tuple[int, Json]]]:
        """Open a stream and yield an iterator over the ids and responses of its events."""
        replay = {} if last_event_id is None else {"last-event-id": str(last_event_id)}
        request = self.request(method, params)
        options: Json = {"json": request, "headers": {**self.headers, **replay}}
        with self.http.stream("POST", "/", **options) as response:
            yield events(response)

    def read(self, method: str, params: Any, last_event_id: int | None = None) -> list[Json]:
        """Return all responses of a stream."""
        with self.stream(method, params, last_event_id) as stream:
            return [answer for _, answer in stream]

    def request(self, method: str, params: Any) -> Json:
        return {"jsonrpc": "2.0", "id": next(self.ids), "method": method, "params": params or {}}
