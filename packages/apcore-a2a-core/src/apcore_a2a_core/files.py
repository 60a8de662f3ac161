"""File inputs, which modules declare in their schemas."""

from collections.abc import Mapping
from typing import Any

from .data import Json
from .media_types import BINARY, JSON, is_accepted
from .schema import Schema, overlay_of, properties_of
from .values import is_array, is_object

FILE_FORMATS = frozenset({"base64", "binary", "byte"})
"""Values of `format` for text that holds a file, from pydantic and OpenAPI."""


def file_properties(schema: Schema) -> dict[str, str]:
    """Return the properties that are files in base64, and their media types.

    Such properties have a `format` for files, a `contentEncoding`, or a `contentMediaType` other
    than JSON (JSON Schema 2020-12 §8). Without a `contentMediaType`, the media type is
    `application/octet-stream`: any file fits.

    >>> file_properties({"properties": {"photo": {"contentMediaType": "image/*"}, "n": {}}})
    {'photo': 'image/*'}
    """
    types = {name: _file_type(subschema) for name, subschema in properties_of(schema).items()}
    return {name: media_type for name, media_type in types.items() if media_type}


def _file_type(schema: object) -> str:
    """Return the media type of a property if it is a file; else an empty string."""
    if not is_object(schema):
        return ""
    branches = schema.get("anyOf")  # an optional property has branches: its own type, and null
    if is_array(branches):
        media_types = [_file_type(branch) for branch in branches]
        return next(filter(None, media_types), "")
    media_type = schema.get("contentMediaType", "")
    is_encoded = "contentEncoding" in schema or schema.get("format") in FILE_FORMATS
    if is_encoded or media_type not in ("", JSON):  # JSON as text is not a file
        return str(media_type or BINARY)
    return ""


def file_inputs(content: str, name: str, media_type: str, schema: Schema, inputs: Json) -> Json:
    """Return the inputs for a file: the content in the first free property that the file fits.

    Args:
        content: The file in base64.
        name: The name of the file.
        media_type: The media type of the file.
        schema: The input schema of the module.
        inputs: The inputs so far, whose properties are not free.

    Returns:
        The new inputs only, with `name` and `mimeType` if these properties are free; empty if the
        file fits no free property.
    """
    for key, accepted in file_properties(schema).items():
        if key not in inputs and (accepted == BINARY or is_accepted(media_type, [accepted])):
            details = {"name": name, "mimeType": media_type}
            free_keys = properties_of(schema).keys() - inputs.keys() - {key}
            return {key: content, **{k: details[k] for k in details if k in free_keys}}
    return {}


def takes_any_files(descriptor: object) -> bool:
    """Return whether a module declares that it reads files of any type.

    A module does so with `files: true` in its overlay for A2A (see `overlay_of`), and gets the
    files as `services.parts`.
    """
    return overlay_of(descriptor).get("files") is True


def is_file_part(part: Mapping[str, Any]) -> bool:
    """Return whether a part holds a file or its URL.

    The part is JSON of A2A 1.0, of A2A 0.3, or of the SRS, the specification of this project.
    """
    return any(part.get(name) is not None for name in ("raw", "url", "file", "bytes", "uri"))
