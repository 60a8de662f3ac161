"""Conversion between `apcore_a2a_core.data` and JSON of A2A 1.0 and 0.3; parsing of protobuf."""

from apcore_a2a_core.data import Json

from . import protojson03
from .decode import ALIASES, MAX_ITEMS, BodySizeError, decode, invalid, parse_json
from .encode import V03, V1, Document
from .protobuf import parse_message

__all__ = [
    "ALIASES",
    "MAX_ITEMS",
    "V03",
    "V1",
    "BodySizeError",
    "Document",
    "Json",
    "decode",
    "invalid",
    "parse_json",
    "parse_message",
    "protojson03",
]
