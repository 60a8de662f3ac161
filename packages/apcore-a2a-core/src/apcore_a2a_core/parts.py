"""Messages' parts as inputs of modules, and modules' outputs as artifacts."""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from mimetypes import types_map
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from a2a.types import Artifact, Part

from .errors import PartError
from .schema import Object, SchemaConverter, is_object, properties_of, schema_of, text_property
from .skill_mapper import JSON, TEXT, overlay_of
from .values import from_value, located, narrow, to_value

JsonPart = Mapping[str, Any]
"""A part in the JSON form of A2A 1.0, of 0.3, or of the SRS."""

APPROVAL_TOKEN = "_approval_token"
"""apcore reads it from the inputs: the server may set it, a client never."""

BINARY = "application/octet-stream"
MEMBERS = {"text": "text", "data": "data", "raw": "raw", "bytes": "raw", "url": "url", "uri": "url"}
"""The members that hold the content of a JSON part, and its kind."""

MAGIC = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"%PDF-": "application/pdf",
    b"PK\x03\x04": "application/zip",
    b"\x1f\x8b": "application/gzip",
}
"""The bytes that files of a type begin with."""


class PartConverter:
    """Converts between parts and what modules take and give.

    >>> PartConverter(SchemaConverter()).parts_to_input([{"data": {"n": 3.0}}], None)
    {'n': 3}
    """

    def __init__(self, schema_converter: SchemaConverter) -> None:
        self._schemas = schema_converter

    def parts_to_input(self, parts: Sequence[JsonPart | Part], descriptor: object) -> Object | str:
        """The input that *parts* hold for the module of *descriptor*; see `split`."""
        return self.split(parts, descriptor)[0]

    def split(
        self, parts: Sequence[JsonPart | Part], descriptor: object
    ) -> tuple[Object | str, list[JsonPart | Part]]:
        """The first of *parts* that fits the module, as its input, and the others (FR-MSG-003).

        Args:
            parts: JSON objects, or the SDK's parts.
            descriptor: what tells the input schema.

        Raises:
            PartError: there are no parts, or none fits: then it tells what is wrong with the first.
        """
        refused = [PartError("Message must contain at least one Part")]
        schema = schema_of(descriptor, "input_schema")
        for index, part in enumerate(parts):
            try:
                return self._input(part, schema), [*parts[:index], *parts[index + 1 :]]
            except PartError as error:
                refused.append(error)
        raise refused[bool(parts)]

    def _input(self, part: JsonPart | Part, schema: Object) -> Object | str:
        kind, content, holder = read(part)
        if kind == "data":
            return as_inputs(content)
        if kind == "text":
            return self._text(content, schema)
        return as_file(kind, content, holder, schema)

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

    def output_to_parts(
        self, output: object, descriptor: object = None, *, artifact_id: str = "result"
    ) -> Artifact:
        """What a module put out, as an artifact (FR-MSG-004).

        Raises:
            OutputError: there is something in it that the protocol can't carry.

        >>> PartConverter(SchemaConverter()).output_to_parts("hello").parts[0].text
        'hello'
        """
        bare = unwrapped(output, schema_of(descriptor, "output_schema"))
        artifact = Artifact(artifact_id=artifact_id, name="result")
        try:
            if is_object(bare):
                artifact.parts.extend(object_parts(bare, overlay_of(descriptor).get("text_field")))
            elif bare is not None:
                artifact.parts.append(part_of(bare))
        except UnicodeEncodeError as error:
            raise located(error) from None
        return artifact


def read(part: JsonPart | Part) -> tuple[str, Any, JsonPart]:
    """A part's kind (text, data, raw or url), its content, and what holds its name and type."""
    if isinstance(part, Part):
        kind = part.WhichOneof("content") or "text"
        content = from_value(part.data) if kind == "data" else getattr(part, kind)
        return kind, content, {"name": part.filename, "mimeType": part.media_type}
    file = part.get("file")
    holder: JsonPart = file if is_object(file) else part
    member = next((name for name in MEMBERS if name in holder), "")
    if member != "data" and not isinstance(holder.get(member), str):
        raise PartError("Part has no content")
    return MEMBERS[member], holder[member], holder


def as_inputs(value: object) -> Object:
    """*value* as inputs of a module: an object, narrowed, without what only the server may set."""
    if not is_object(value):
        raise PartError("Part must hold a JSON object")
    inputs: Object = narrow(value)
    inputs.pop(APPROVAL_TOKEN, None)
    return inputs


def parsed(text: str) -> Object:
    """The JSON object in *text*."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise PartError("Invalid JSON in TextPart") from None
    return as_inputs(value)


def as_file(kind: str, content: Any, holder: JsonPart, schema: Object) -> Object:
    """A file as inputs: where it is or its bytes in base64, its name and its media type."""
    properties = properties_of(schema)
    keys = ("uri", "url") if kind == "url" else ("bytes", "data")
    key = next((key for key in keys if key in properties or not properties), None)
    if key is None:
        raise PartError("Skill takes no file")
    try:
        path: str = urlsplit(str(content)).path if kind == "url" else ""
        value = content if kind == "url" else base64_of(content)
    except ValueError:
        raise PartError("Invalid base64 or URI in FilePart") from None
    name = str(holder.get("filename") or holder.get("name") or PurePosixPath(path).name)
    guess = types_map.get(PurePosixPath(name).suffix.lower(), BINARY)
    media_type = holder.get("mediaType") or holder.get("mimeType") or guess
    return {key: value, "name": name, "mimeType": str(media_type)}


def base64_of(content: bytes | str) -> str:
    """Bytes in base64; base64 itself is checked, and may come in either alphabet (RFC 4648)."""
    if isinstance(content, str):
        content = b64decode(content.replace("-", "+").replace("_", "/"), validate=True)
    return b64encode(content).decode()


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


def object_parts(output: dict[Any, Any], text_field: str | None) -> list[Part]:
    """The parts of an object: the text that stands for it, what is JSON, then the files in it."""
    files = {key: value for key, value in output.items() if isinstance(value, bytes | bytearray)}
    rest = {key: value for key, value in output.items() if key not in files}
    parts: list[Part] = []
    if isinstance(rest.get(text_field), str):
        parts.append(part_of(rest.pop(text_field)))
    if rest or not (parts or files):
        parts.append(part_of(rest))
    return parts + [part_of(value, filename=str(key)) for key, value in files.items()]


def part_of(value: Any, filename: str = "") -> Part:
    """*value* as one part: text, a file, or data."""
    if isinstance(value, str):
        return Part(text=value, media_type=TEXT)
    if not isinstance(value, bytes | bytearray):
        return Part(data=to_value(value), media_type=JSON)
    media_type = next((kind for magic, kind in MAGIC.items() if value.startswith(magic)), BINARY)
    return Part(raw=bytes(value), filename=filename, media_type=media_type)
