"""The JSON of A2A 1.0 and of A2A 0.3, to and from the SDK's types: pure, and fast."""

from .decode import ALIASES, MAX_ITEMS, Json, carried, decode, invalid, parse_json
from .encode import V03, V1

__all__ = [
    "ALIASES",
    "MAX_ITEMS",
    "V03",
    "V1",
    "Json",
    "carried",
    "decode",
    "invalid",
    "parse_json",
]
