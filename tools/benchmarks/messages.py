"""The requests of the benchmark as bytes. The requests of one iterator differ only in an id."""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tools.benchmarks.http1 import post_head

JsonObject = dict[str, Any]
Requests = Iterator[bytes]

_numbers = itertools.count()


def send_requests(
    skill: str = "bench.noop", *, in_message: bool = False, **inputs: object
) -> Requests:
    """Yield ``message/send`` of protocol 0.3 forever.

    The skill is named in the request's metadata or, with *in_message*, in the message's.
    """
    return _numbered_requests("message/send", _v03(skill, inputs, in_message))


def send_v1_requests(
    skill: str = "bench.noop", *, in_message: bool = False, **inputs: object
) -> Requests:
    """Yield ``SendMessage`` of protocol 1.0 forever."""
    return _numbered_requests("SendMessage", _v1(skill, inputs, in_message), {"A2A-Version": "1.0"})


def text_requests(method: str, text: str) -> Requests:
    """Yield requests of protocol 0.3 forever, each with a text for the only skill of an agent."""
    part = {"kind": "text", "text": text}
    message = {"kind": "message", "messageId": "m%010d", "role": "user", "parts": [part]}
    accept = {"Accept": "text/event-stream"} if method == "message/stream" else None
    return _numbered_requests(method, {"message": message}, accept)


def send_requests_with_webhook(url: str, skill: str = "bench.noop") -> Requests:
    """Yield ``message/send`` of protocol 0.3 with a webhook, forever."""
    configuration = {"pushNotificationConfig": {"url": url}}
    params = _v03(skill, {}, in_message=False) | {"configuration": configuration}
    return _numbered_requests("message/send", params)


def stream_requests(
    skill: str = "bench.noop", *, in_message: bool = False, **inputs: object
) -> Requests:
    """Yield ``message/stream`` of protocol 0.3 forever."""
    accept = {"Accept": "text/event-stream"}
    return _numbered_requests("message/stream", _v03(skill, inputs, in_message), accept)


def get_task_requests(ids: Sequence[str]) -> Requests:
    """Yield ``tasks/get`` of protocol 0.3 for one task after another, forever."""
    bodies = [_rpc("tasks/get", {"id": task_id}) for task_id in ids]
    return itertools.cycle([post_head(len(body)) + body for body in bodies])


def _v03(skill: str, inputs: JsonObject, in_message: bool) -> JsonObject:
    part = {"kind": "data", "data": inputs or {"text": "hello"}}
    message = {"kind": "message", "messageId": "m%010d", "role": "user", "parts": [part]}
    return _params(message, skill, in_message)


def _v1(skill: str, inputs: JsonObject, in_message: bool) -> JsonObject:
    part = {"data": inputs or {"text": "hello"}}
    message = {"messageId": "m%010d", "role": "ROLE_USER", "parts": [part]}
    return _params(message, skill, in_message)


def _params(message: JsonObject, skill: str, in_message: bool) -> JsonObject:
    metadata = {"metadata": {"skillId": skill}}
    return {"message": message | metadata} if in_message else {"message": message} | metadata


def _rpc(method: str, params: JsonObject) -> bytes:
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return json.dumps(request, separators=(",", ":")).encode()


def _numbered_requests(
    method: str, params: JsonObject, headers: Mapping[str, str] | None = None
) -> Requests:
    body = _rpc(method, params)
    template = post_head(len(body % 0), headers) + body
    return (template % number for number in _numbers)
