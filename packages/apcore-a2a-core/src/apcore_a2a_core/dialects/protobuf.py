"""Parsing of protobuf messages from clients, after a check of the number of their fields."""

from functools import cache
from typing import TypeVar

from a2a.utils.errors import InvalidRequestError
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message

from apcore_a2a_core.values import MAX_VALUES

from .decode import BodySizeError

M = TypeVar("M", bound=Message)

VARINT, LENGTH_DELIMITED = 0, 2
"""Wire types (protobuf.dev, "Encoding")."""
FIXED_SIZES = {1: 8, 5: 4}
"""Sizes of numbers with a fixed size, in bytes, by wire type."""
MAX_VARINT_SIZE = 10
"""Size of the longest varint, in bytes."""
MIN_FIELD_SIZE = 2
"""Size of the smallest field, in bytes: a tag, and a length or a number."""
MIN_NESTED_SIZE = 10
"""Minimum size in bytes of a nested message whose own fields are counted too. A JSON number is a
message of nine bytes, so it counts as one field."""
FIELDS_PER_VALUE = 2
"""Fields allowed for each value: an array item takes one or two. An object member takes up to
four, but inputs have few members; see `apcore_a2a_core.values.MAX_KEYS`."""


def parse_message(kind: type[M], body: bytes, max_values: int = MAX_VALUES) -> M:
    """Parse *body* as a message of the SDK.

    Raises:
        InvalidRequestError: The body is not a message of that type, or is nested too deeply.
        BodySizeError: The body has too many values; it was not parsed.

    Example:
        ```python
        from a2a.types import GetTaskRequest
        from apcore_a2a_core.dialects import parse_message

        print(parse_message(GetTaskRequest, GetTaskRequest(id="t1").SerializeToString()).id)
        #> t1
        ```
    """
    max_fields = FIELDS_PER_VALUE * max_values
    if len(body) > MIN_FIELD_SIZE * max_fields and _has_more_fields(kind, body, max_fields):
        raise BodySizeError(f"The body has more than {max_values} values")
    try:
        return kind.FromString(body)
    except DecodeError:
        raise InvalidRequestError(f"The body is not a valid {kind.DESCRIPTOR.name}") from None


def _has_more_fields(kind: type[Message], body: bytes, max_fields: int) -> bool:
    """Return whether a message has more than *max_fields* fields.

    A malformed varint ends the count of its message. protobuf's own parser does not limit the
    number of fields: a body of empty fields takes 28 times its size in memory.
    """
    count = 0
    pending = [(kind.DESCRIPTOR, 0, len(body))]
    while pending:
        descriptor, position, end = pending.pop()
        nested = _nested_messages(descriptor)
        while position < end:
            count += 1
            if count > max_fields:
                return True
            tag, position = _varint(body, position)
            wire_type = tag & 7
            if wire_type == LENGTH_DELIMITED:
                size, position = _varint(body, position) if position < end else (0, end)
                if size >= MIN_NESTED_SIZE and tag in nested:
                    pending.append((nested[tag], position, min(position + size, end)))
                position += size
            elif wire_type == VARINT:
                _, position = _varint(body, position) if position < end else (0, end)
            else:
                position += FIXED_SIZES.get(wire_type, 0)
    return False


@cache
def _nested_messages(descriptor: Descriptor) -> dict[int, Descriptor]:
    """Return the message types of the fields that hold messages, by the tag of the field."""
    return {
        field.number << 3 | LENGTH_DELIMITED: nested
        for field in descriptor.fields
        if (nested := field.message_type) is not None
    }


def _varint(body: bytes, position: int) -> tuple[int, int]:
    """Return the number at *position* and the position after it; if malformed, 0 and the end."""
    first = body[position]
    if first < 128:  # true of nearly all numbers in a message with many fields
        return first, position + 1
    number = first & 127
    for index, byte in enumerate(body[position + 1 : position + MAX_VARINT_SIZE], 1):
        number |= (byte & 127) << 7 * index
        if byte < 128:
            return number, position + index + 1
    return 0, len(body)
