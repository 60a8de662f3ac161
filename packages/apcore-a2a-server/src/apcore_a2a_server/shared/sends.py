"""What a send asks for, beside its message."""

import re
from collections.abc import Mapping
from hashlib import sha256

from a2a.types import SendMessageRequest
from apcore_a2a_core import from_value
from apcore_a2a_dialects import invalid
from apcore_a2a_store import SendKey

KEY = re.compile(r"[\x21-\x7e]{1,256}")


def is_detached(request: SendMessageRequest, streaming: bool) -> bool:
    """Whether the client does not wait for the task that it starts."""
    return request.configuration.return_immediately and not streaming


def send_key(request: SendMessageRequest, headers: Mapping[str, str]) -> SendKey | None:
    """What the send is known by when it is repeated, if its client says so.

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
