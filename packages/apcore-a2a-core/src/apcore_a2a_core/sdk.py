"""Conversion between our plain data and the types of the official SDK.

Requests in JSON do not need this conversion. gRPC, task stores of the SDK, and programs that use
`apcore_a2a.adapters` do.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from a2a import types as a2a
from google.protobuf.json_format import Error, MessageToDict, ParseDict
from google.protobuf.message import Message
from msgspec import ValidationError, convert, to_builtins

from . import data
from .data import Data
from .values import to_json

M = TypeVar("M", bound=Message)

MAX_MESSAGE_DEPTH = 200
"""Nesting limit that no protobuf message reaches: the parser accepts 100 levels."""


def to_sdk(value: Data) -> Any:
    """Return *value* as a protobuf message; numbers in its data and metadata become doubles.

    >>> to_sdk(data.Part(text="hello")).text
    'hello'
    """
    kind: type[Message] = getattr(a2a, type(value).__name__)
    return ParseDict(to_builtins(value), kind())


def from_sdk(message: Message) -> Any:
    """Return a protobuf message of the SDK as our data, with integral numbers as integers.

    Raises:
        ValueError: The message has an unknown state or role, or a number that is not finite.

    >>> from_sdk(a2a.Part(text="hello")).text
    'hello'
    """
    kind: type[Data] = getattr(data, type(message).__name__)
    try:
        return convert(to_json(json_of(message), max_depth=MAX_MESSAGE_DEPTH), kind)
    except (Error, ValidationError) as error:
        raise ValueError(str(error)) from None


def fill_message(document: Mapping[str, Any], message: M) -> M:
    """Fill a protobuf message of the SDK from its JSON, ignoring unknown members, and return it.

    >>> fill_message({"text": "hello"}, a2a.Part()).text
    'hello'
    """
    return ParseDict(dict(document), message, ignore_unknown_fields=True)


def json_of(message: Message) -> Any:
    """Return a protobuf message as JSON with sorted names, since protobuf keeps no order.

    Raises:
        google.protobuf.json_format.Error: The message has a number that is not finite.
    """
    return to_builtins(MessageToDict(message), order="sorted")
