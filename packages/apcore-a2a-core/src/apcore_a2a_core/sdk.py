"""Conversion between our plain data and the types of the official SDK, on demand.

The server needs none of it: it is for gRPC, for task stores of the SDK, and for libraries that use
the adapters.
"""

from typing import Any

from a2a import types as a2a
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message
from msgspec import to_builtins

from . import data
from .data import Data


def to_sdk(value: Data) -> Any:
    """Return *value* as a message of the SDK; numbers become doubles, as protobuf has them.

    >>> to_sdk(data.Part(text="hello")).text
    'hello'
    """
    kind: type[Message] = getattr(a2a, type(value).__name__)
    return ParseDict(to_builtins(value), kind())


def from_sdk(message: Message) -> Any:
    """Return a message of the SDK as our data, with integral numbers as integers.

    Raises:
        InvalidParamsError: It has an unknown state or role, or too many values.

    >>> from_sdk(a2a.Part(text="hello")).text
    'hello'
    """
    from .dialects import decode

    kind: type[Data] = getattr(data, type(message).__name__)
    return decode(kind, MessageToDict(message))
