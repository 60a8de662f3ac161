"""Messages' parts as inputs of modules, and modules' outputs as artifacts."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from mimetypes import types_map
from posixpath import basename, splitext
from typing import Any
from urllib.parse import urlsplit

from a2a import types as a2a
from google.protobuf.json_format import MessageToDict

from .errors import PartError
from .schema import (
    Object,
    SchemaConverter,
    is_object,
    object_of,
    overlay_of,
    properties_of,
    text_property,
)
from .skill_mapper import JSON, TEXT
from .values import load_json, narrow, to_value

Parts = Sequence[Mapping[str, Any] | a2a.Part]
"""Parts in the JSON form of A2A 1.0, of 0.3, or of the SRS, or the SDK's."""

BINARY = "application/octet-stream"
MAGIC = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"%PDF-": "application/pdf"}
"""The bytes that files of a type begin with."""


class PartConverter:
    """Converts between parts and what modules take and give.

    >>> PartConverter(SchemaConverter()).parts_to_input([{"data": {"n": 3.0}}], None)
    {'n': 3}
    """

    def __init__(self, schema_converter: SchemaConverter) -> None:
        self._schemas = schema_converter

    def parts_to_input(self, parts: Parts, descriptor: object) -> Object | str:
        """The input that *parts* hold for the module of *descriptor*; see `split`."""
        return self.split(parts, descriptor)[0]

    def split(self, parts: Parts, descriptor: object) -> tuple[Object | str, Parts]:
        """The first of *parts* that fits the module, as its input, and the others (FR-MSG-003).

        Args:
            parts: JSON objects, or the SDK's parts.
            descriptor: what tells the input schema.

        Raises:
            PartError: there are no parts, or none fits: then it tells what is wrong with the first.
        """
        refused = [PartError("Message must contain at least one Part")]
        schema = object_of(descriptor, "input_schema")
        for index, part in enumerate(parts):
            try:
                found = part if isinstance(part, Mapping) else MessageToDict(part)
                return self._input(found, schema), [*parts[:index], *parts[index + 1 :]]
            except PartError as error:
                refused.append(error)
            except ValueError:
                refused.append(PartError("Invalid URI in FilePart"))
        raise refused[bool(parts)]

    def _input(self, part: Mapping[str, Any], schema: Object) -> Object | str:
        file = part.get("file")
        content = file if is_object(file) else part
        match {name: value for name, value in content.items() if value is not None}:
            case {"data": data}:
                return as_inputs(data)
            case {"text": str(text)}:
                return self._text(text, schema)
            case {"uri": str(uri)} | {"url": str(uri)} as file:
                named = {"name": basename(urlsplit(uri).path), **file}
                return as_file(uri, ("uri", "url"), named, schema)
            case {"bytes": str(raw)} | {"raw": str(raw)} as file:
                return as_file(raw, ("bytes", "data"), file, schema)
            case _:
                raise PartError("Part has no content")

    def _text(self, text: str, schema: Object) -> Object | str:
        if not schema or self._schemas.detect_root_type(schema) == "string":
            return text
        name = text_property(schema)
        if name is None:
            return parsed(text)
        with suppress(PartError):
            found = parsed(text)
            if found and found.keys() <= properties_of(schema).keys():
                return found
        return {name: text}

    def output_to_parts(self, output: object, descriptor: object = None) -> a2a.Artifact:
        """What a module put out, as an artifact (FR-MSG-004).

        Raises:
            OutputError: there is something in it that the protocol can't carry.

        >>> PartConverter(SchemaConverter()).output_to_parts("hello").parts[0].text
        'hello'
        """
        bare = unwrapped(output, object_of(descriptor, "output_schema"))
        parts = parts_of(bare, overlay_of(descriptor).get("text_field"))
        return a2a.Artifact(artifact_id="result", name="result", parts=parts)


def as_inputs(value: object) -> Object:
    """*value* as inputs of a module: an object, narrowed, without what only the server may set.

    apcore reads the approval's token from the inputs; a client may never set it.
    """
    if not is_object(value):
        raise PartError("Part must hold a JSON object")
    return {key: item for key, item in narrow(value).items() if key != "_approval_token"}


def parsed(text: str) -> Object:
    """The JSON object in *text*."""
    try:
        return as_inputs(load_json(text))
    except PartError:
        raise
    except ValueError:
        raise PartError("Invalid JSON in TextPart") from None


def as_file(content: str, keys: Sequence[str], file: Mapping[str, Any], schema: Object) -> Object:
    """*file* as inputs, its *content* under the first of *keys* that the module takes."""
    properties = properties_of(schema) or keys
    key = next((key for key in keys if key in properties), None)
    if key is None:
        raise PartError("Skill takes no file")
    name = str(file.get("filename") or file.get("name", ""))
    guess = types_map.get(splitext(name)[1].lower(), BINARY)
    media_type = file.get("mediaType") or file.get("mimeType") or guess
    return {key: content, "name": name, "mimeType": str(media_type)}


def unwrapped(output: object, schema: Object) -> object:
    """*output* without the ``{"result": …}`` that apcore puts around what is no object.

    That is so where the schema's root is no object, and where apcore has made the schema for a
    function that returns text (only text: for the rest, the object is what its schema promises).
    """
    if not is_object(output) or list(output) != ["result"]:
        return output
    root = schema.get("type", "object")  # a name, or several
    made = schema.get("title") == "OutputModel" and list(properties_of(schema)) == ["result"]
    bare = isinstance(output["result"], str | bytes) if made else "object" not in root
    return output["result"] if bare else output


def parts_of(output: object, text_field: str | None) -> list[a2a.Part]:
    """The parts of an output: the text that stands for it, what is JSON, then the files in it."""
    if not is_object(output):
        return [] if output is None else [part_of(output)]
    files = {key: value for key, value in output.items() if isinstance(value, bytes | bytearray)}
    rest: dict[str | None, Any] = {key: value for key, value in output.items() if key not in files}
    texts = [rest.pop(text_field)] if isinstance(rest.get(text_field), str) else []
    data = [rest] if rest or not output else []
    named = [part_of(value, to_value(str(key)).string_value) for key, value in files.items()]
    return [*map(part_of, [*texts, *data]), *named]


def part_of(value: Any, filename: str = "") -> a2a.Part:
    """*value* as one part: text, a file, or data."""
    if isinstance(value, str):
        return a2a.Part(text=to_value(value).string_value, media_type=TEXT)
    if not isinstance(value, bytes | bytearray):
        return a2a.Part(data=to_value(value), media_type=JSON)
    media_type = next((kind for magic, kind in MAGIC.items() if value.startswith(magic)), BINARY)
    return a2a.Part(raw=bytes(value), filename=filename, media_type=media_type)
