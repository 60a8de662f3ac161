"""Messages: their ids and parts, and the options of the requests that send them."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from os import urandom
from time import time_ns
from typing import Any

from a2a.utils.errors import ContentTypeNotSupportedError, InvalidParamsError
from apcore_a2a_core import MediaTypeError, PartConverter, PartError, error_details
from apcore_a2a_core.data import Message, Part, Role, SendMessageRequest, Timestamp
from apcore_a2a_core.dialects import invalid
from apcore_a2a_core.media_types import JSON, TEXT, is_accepted
from apcore_a2a_core.skill_mapper import output_modes
from apcore_a2a_core.values import is_object
from msgspec import json, to_builtins

from apcore_a2a_server.modules.skills import Skill
from apcore_a2a_server.store import SendKey


def new_id() -> str:
    """Return a UUID version 7 (RFC 9562 §5.7) as text: the time, and 74 random bits.

    Ids made at about the same time are close together in an index of a database. Concurrent
    inserts thus change a few pages of the index, not one page each.

    Example:
        ```python
        from apcore_a2a_server.engine.messages import new_id

        print(len(new_id()), new_id()[14])
        #> 36 7
        ```
    """
    # `uuid.UUID` takes several times as long, because it first makes an integer and an object
    digits = urandom(10).hex()
    variant = VARIANTS[digits[0]]
    return (
        f"{_id_prefix(time_ns() // 1_000_000)}{digits[1:4]}-{variant}{digits[4:7]}-{digits[7:19]}"
    )


VARIANTS = {digit: "89ab"[number % 4] for number, digit in enumerate("0123456789abcdef")}
"""Maps a random hex digit to one that starts with the variant bits 0b10 (RFC 9562 §4.1)."""


@lru_cache(maxsize=2)
def _id_prefix(milliseconds: int) -> str:
    """Return the part of an id that depends on the time; cached, as a request needs several ids."""
    time = f"{milliseconds:012x}"
    return f"{time[:8]}-{time[8:]}-7"


def now() -> Timestamp:
    """Return the current time, truncated to milliseconds (A2A 1.0 §5.6.1).

    Example:
        ```python
        from apcore_a2a_server.engine.messages import now

        print(len(now()), now()[-1])
        #> 24 Z
        ```
    """
    return _timestamp(time_ns() // 1_000_000)


@lru_cache(maxsize=2)
def _timestamp(milliseconds: int) -> Timestamp:
    """Format *milliseconds* since 1970; cached, as requests need several timestamps."""
    seconds, milliseconds = divmod(milliseconds, 1000)
    return Timestamp(f"{_second(seconds)}.{milliseconds:03}Z")


@lru_cache(maxsize=2)
def _second(seconds: int) -> str:
    """Format *seconds* since 1970; cached, as this is the slowest step of `_timestamp`."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().removesuffix("+00:00")


def agent_message(reply_to: Message, *parts: str | Part) -> Message:
    """Return a message of the agent in the task and context of *reply_to*."""
    return Message(
        message_id=new_id(),
        task_id=reply_to.task_id,
        context_id=reply_to.context_id,
        role=Role.ROLE_AGENT,
        parts=[Part(text=part) if isinstance(part, str) else part for part in parts],
    )


def failure_reason(message: Message | None) -> str | None:
    """Return the `reason` of the error in a status message; None if there is no error.

    Example:
        ```python
        from apcore_a2a_core.data import Message, Part
        from apcore_a2a_server.engine.messages import failure_reason

        error = {"code": -32603, "message": "…", "data": {"type": "ModuleTimeoutError"}}
        print(failure_reason(Message(parts=[Part(text="…"), Part(data=error)])))
        #> MODULE_TIMEOUT
        ```
    """
    for part in () if message is None else message.parts:
        if is_object(part.data) and "code" in part.data:
            return str(error_details(part.data)[0]["reason"])
    return None


def split_parts(
    converter: PartConverter, parts: Sequence[Part], skill: Skill
) -> tuple[dict[str, Any], list[Any]]:
    """Split the parts of a message: return the inputs of *skill*, and the other parts as JSON.

    Raises:
        InvalidParamsError: No part can be read as inputs of the skill.
        ContentTypeNotSupportedError: No part can be read as inputs, and the skill does not take
            the media type of the first part.
    """
    try:
        content, other_parts = converter.split(parts, skill.descriptor)
    except MediaTypeError as error:
        raise ContentTypeNotSupportedError(str(error)) from None
    except PartError as error:
        raise InvalidParamsError(str(error)) from None
    inputs = content if isinstance(content, dict) else {"text": content}
    return inputs, [to_builtins(part) for part in other_parts]


KEY_PATTERN = re.compile(r"[\x21-\x7e]{1,256}")


def is_detached(request: SendMessageRequest, streaming: bool) -> bool:
    """Return whether the client does not wait for the task of its message."""
    return request.configuration.return_immediately and not streaming


def idempotency_key(request: SendMessageRequest, headers: Mapping[str, str]) -> SendKey | None:
    """Return the idempotency key of a request, or None if it has none.

    It comes from the member `idempotencyKey` of the message's metadata, or if that is missing or
    null, from the header `Idempotency-Key`. The message id does not serve as a key, since clients
    reuse ids.

    Raises:
        InvalidParamsError: The key or the skill id is malformed.
    """
    message = request.message
    text, source = message.metadata.get("idempotencyKey"), "metadata.idempotencyKey"
    if text is None:
        text, source = headers.get("idempotency-key"), "Idempotency-Key"
    if text is None:
        return None
    if not isinstance(text, str) or not KEY_PATTERN.fullmatch(text):
        raise invalid(source, "must have 1 to 256 visible ASCII characters")
    target = [message.context_id, message.task_id, named_skill(request) or ""]
    digest = sha256("\0".join(target).encode())
    for message_part in message.parts:
        digest.update(json.encode(message_part, order="sorted"))
    return SendKey(text, digest.digest())


def wants_text(request: SendMessageRequest, skill: Skill) -> bool:
    """Return whether the client accepts text, but not JSON, as results of *skill*.

    Raises:
        ContentTypeNotSupportedError: The client accepts neither text nor JSON, and the skill has an
            output schema. Without a schema, the skill may return files, so nothing is raised.
    """
    accepted = request.configuration.accepted_output_modes
    if not accepted or is_accepted(JSON, accepted):
        return False
    if is_accepted(TEXT, accepted):
        return True
    if getattr(skill.descriptor, "output_schema", None):
        types = " or ".join(output_modes(skill.descriptor))
        raise ContentTypeNotSupportedError(f"The results of the skill are {types}")
    return False


def named_skill(request: SendMessageRequest) -> str | None:
    """Return the skill id in the metadata of the request, or else in that of its message, if any.

    Raises:
        InvalidParamsError: The skill id is not a string.
    """
    for metadata in (request.metadata, request.message.metadata):
        if "skillId" in metadata:
            skill_id = metadata["skillId"]
            if not isinstance(skill_id, str):
                raise invalid("metadata.skillId", "must be a string")
            return skill_id
    return None
