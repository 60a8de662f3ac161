"""Messages: ids, parts as JSON, and the options that a send carries beside its message."""

import re
from collections.abc import Mapping
from hashlib import sha256
from os import urandom
from time import time_ns
from typing import Any

from a2a import types as a2a
from a2a.types import SendMessageRequest
from apcore_a2a_core import from_value, narrow
from apcore_a2a_core.dialects import V1, Json, decode, invalid
from google.protobuf.timestamp_pb2 import Timestamp

from apcore_a2a_server.store import SendKey


def new_id() -> str:
    """A fresh random UUID version 4 (RFC 9562 §5.4), as text.

    Example:
        ```python
        from apcore_a2a_server.engine.messages import new_id

        print(len(new_id()), new_id()[14])
        #> 36 4
        ```
    """
    text = urandom(16).hex()
    variant = "89ab"[int(text[16], 16) & 3]
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"


def now() -> Timestamp:
    """The current time, cut to milliseconds (A2A 1.0 §5.6.1).

    Example:
        ```python
        from apcore_a2a_server.engine.messages import now

        print(now().nanos % 1_000_000)
        #> 0
        ```
    """
    seconds, nanos = divmod(time_ns(), 1_000_000_000)
    return Timestamp(seconds=seconds, nanos=nanos - nanos % 1_000_000)


def say(about: a2a.Message, *parts: str | a2a.Part) -> a2a.Message:
    """A message of the agent in the task of another message."""
    return a2a.Message(
        message_id=new_id(),
        task_id=about.task_id,
        context_id=about.context_id,
        role=a2a.Role.ROLE_AGENT,
        parts=[a2a.Part(text=part) if isinstance(part, str) else part for part in parts],
    )


JSON = V1()


def as_json(part: Mapping[str, Any] | a2a.Part) -> Json:
    """A part that came in JSON of either dialect, or as the SDK's; numbers stay exact.

    Example:
        ```python
        from apcore_a2a_server.engine.messages import as_json

        print(as_json({"kind": "file", "file": {"bytes": "aGk=", "name": "a.txt"}}))
        #> {'raw': 'aGk=', 'filename': 'a.txt'}
        ```
    """
    if isinstance(part, a2a.Part):
        return JSON.message(part)
    found = JSON.message(decode(a2a.Part, part))
    metadata: Json = part.get("metadata") or {}
    if "data" in found and metadata.get("data_part_compat") is not True:
        found["data"] = narrow(part["data"])
    return found


KEY = re.compile(r"[\x21-\x7e]{1,256}")


def is_detached(request: SendMessageRequest, streaming: bool) -> bool:
    """Whether the client does not wait for the task that it starts."""
    return request.configuration.return_immediately and not streaming


def send_key(request: SendMessageRequest, headers: Mapping[str, str]) -> SendKey | None:
    """Return the idempotency key of a send, if its client gives one.

    By the header `Idempotency-Key`, or the member `idempotencyKey` of its message's metadata.
    A message's id is none: clients use them again.

    Raises:
        InvalidParamsError: It is no key.
    """
    message = request.message
    text: object = headers.get("idempotency-key")
    if "idempotencyKey" in message.metadata.fields:
        text = from_value(message.metadata.fields["idempotencyKey"])
    if text is None:
        return None
    if not isinstance(text, str) or not KEY.fullmatch(text):
        raise invalid("metadata.idempotencyKey", "must have 1 to 256 visible ASCII characters")
    body = [message.context_id, message.task_id, named_skill(request) or ""]
    digest = sha256("\0".join(body).encode())
    for part in message.parts:
        digest.update(part.SerializeToString(deterministic=True))
    return SendKey(text, digest.digest())


def named_skill(request: SendMessageRequest) -> str | None:
    """The skill the request names: in its metadata, else in its message's.

    Raises:
        InvalidParamsError: What it names is no text.
    """
    for metadata in (request.metadata, request.message.metadata):
        if "skillId" in metadata.fields:
            skill_id = from_value(metadata.fields["skillId"])
            if not isinstance(skill_id, str):
                raise invalid("metadata.skillId", "must be a string")
            return skill_id
    return None
