"""Conversion between the JSON of A2A 1.0 and 0.3 and the types of the SDK, without I/O."""

from . import protojson03
from .decode import ALIASES, MAX_ITEMS, BodySizeError, Json, carried, decode, invalid, parse_json
from .encode import V03, V1
from .protobuf import parse_message

__all__ = [
    "ALIASES",
    "MAX_ITEMS",
    "V03",
    "V1",
    "BodySizeError",
    "Json",
    "carried",
    "decode",
    "invalid",
    "parse_json",
    "parse_message",
    "protojson03",
]
