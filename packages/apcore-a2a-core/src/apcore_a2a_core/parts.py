"""Conversion of message parts to inputs of modules, and of outputs to artifacts."""

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from posixpath import basename
from typing import Any, TypeGuard
from urllib.parse import urlsplit

from a2a.types import Artifact as SdkArtifact
from a2a.types import Part as SdkPart
from google.protobuf.json_format import MessageToDict
from msgspec import UNSET, json

from .authoring import File
from .data import Artifact, Base64, Json, Part
from .errors import MediaTypeError, PartError, clean
from .files import file_inputs, file_properties, is_file_part, takes_any_files
from .media_types import JSON, TEXT, type_of_file
from .schema import (
    SchemaConverter,
    allows_property,
    properties_of,
    resolved,
    text_field_of,
    text_property,
)
from .sdk import to_sdk
from .skill_mapper import input_modes
from .text_values import fields_of, scalar_property, takes_nothing, value_of_text
from .values import (
    JsonSizeError,
    dump_json,
    is_array,
    is_object,
    load_json,
    narrow,
    object_of,
    to_json,
)

Parts = Sequence[Mapping[str, Any] | Part | SdkPart]
"""Parts in our type or the SDK's, or as JSON of A2A 1.0, A2A 0.3 or the SRS, our specification."""

FILE_TYPES = (bytes, bytearray, File)
"""Types of values that become file parts."""
MAX_LINE = 80
"""Maximum length of JSON that is shown on one line, in characters."""
CONTENT = ("text", "data", "raw", "url", "filename", "media_type")
"""Attributes of a part that hold or describe its content."""


class PartConverter:
    """A converter between parts and the inputs and outputs of modules.

    >>> PartConverter(SchemaConverter()).parts_to_input([{"data": {"n": 3.0}}], None)
    {'n': 3}
    """

    def __init__(self, schema_converter: SchemaConverter) -> None:
        self._schemas = schema_converter

    def parts_to_input(self, parts: Parts, descriptor: object) -> Json | str:
        """Return the module's input from *parts*; see `split`."""
        return self.split(parts, descriptor)[0]

    def split(self, parts: Parts, descriptor: object) -> tuple[Json | str, Parts]:
        """Return the input from the first part that the module accepts, and the other parts.

        Texts at the beginning are joined by line feeds if the module accepts the result. Files fill
        the file properties of the schema. A module without inputs accepts any text, which stays in
        the other parts. A module that reads files (see `takes_any_files`) also accepts a message
        that has only files. Defined by FR-MSG-003.

        Args:
            parts: Parts in our type or the SDK's, or JSON objects.
            descriptor: Descriptor of the module, with its input schema.

        Raises:
            MediaTypeError: The skill does not take the media type of the first part.
            PartError: There are no parts, or none fits; the error describes the first part.
        """
        content, other_parts = self._split(parts, descriptor)
        if other_parts and is_object(content):
            schema = object_of(descriptor, "input_schema")
            return with_files(content, other_parts, schema)
        return content, other_parts

    def _split(self, parts: Parts, descriptor: object) -> tuple[Json | str, Parts]:
        """Split as `split` does, but put no files of the other parts into the input."""
        errors = [PartError("Message must contain at least one Part")]
        schema = object_of(descriptor, "input_schema")
        texts = leading_texts(parts)
        if len(texts) > 1:
            with suppress(PartError):
                return self._text_to_input("\n".join(texts), schema), [*parts[len(texts) :]]
        for index, part in enumerate(parts):
            try:
                return self._part_to_input(part, schema), [*parts[:index], *parts[index + 1 :]]
            except PartError as error:
                errors.append(error)
            except ValueError:  # raised by urlsplit
                errors.append(PartError("Invalid URI in FilePart"))
        if texts and takes_nothing(schema):
            return {}, parts
        if parts and takes_any_files(descriptor) and all(is_file_part(_members(p)) for p in parts):
            name = text_property(schema)
            return ({} if name is None else {name: ""}), parts
        raise errors[1] if parts else errors[0]

    def _part_to_input(self, part: Mapping[str, Any] | Part | SdkPart, schema: Json) -> Json | str:
        if isinstance(part, Part) and is_object(part.data):  # the usual case
            check_json_type(part.media_type)
            return as_inputs(part.data)
        part = _members(part)
        match {name: value for name, value in _content(part).items() if value is not None}:
            case {"data": data} as content:
                check_json_type(media_type_of(content))
                return as_inputs(data)
            case {"text": str(text)}:
                return self._text_to_input(text, schema)
            case {"uri": str(uri)} | {"url": str(uri)} as file:
                named_file = {"name": basename(urlsplit(uri).path), **file}
                return file_to_input(uri, ("uri", "url"), named_file, schema)
            case {"bytes": str(raw)} | {"raw": str(raw)} as file:
                return file_to_input(raw, ("bytes", "data"), file, schema)
            case _:
                raise PartError("Part has no content")

    def _text_to_input(self, text: str, schema: Json) -> Json | str:
        if not schema or self._schemas.detect_root_type(schema) == "string":
            return text
        name = scalar_property(schema)
        if name is None:
            return parse_inputs(text, f"the skill takes {fields_of(schema)}")
        properties = properties_of(resolved(schema, schema))
        with suppress(PartError):
            inputs = parse_inputs(text)
            if inputs and inputs.keys() <= properties.keys():
                return inputs
        try:
            return {name: value_of_text(text, properties[name], schema)}
        except PartError as error:
            raise PartError(
                f"{clean(name, 100)} {error}; the skill takes {fields_of(schema)}"
            ) from None

    def output_to_parts(self, output: object, descriptor: object = None) -> SdkArtifact:
        """Convert the output of a module to an artifact of the SDK (FR-MSG-004).

        Raises:
            OutputError: The output has a value that JSON cannot represent.

        >>> PartConverter(SchemaConverter()).output_to_parts("hello").parts[0].text
        'hello'
        """
        artifact: SdkArtifact = to_sdk(artifact_of(output, descriptor))
        return artifact


def artifact_of(
    output: object, descriptor: object = None, text_field: str | None = None
) -> Artifact:
    """Convert the output of a module to an artifact (FR-MSG-004).

    Args:
        output: The output.
        descriptor: Descriptor of the module.
        text_field: The member that becomes text; empty if none does. By default, the descriptor
            names it.

    Raises:
        OutputError: The output has a value that JSON cannot represent.

    >>> artifact_of({"n": 2**70}).parts[0].data["n"] == 2**70
    True
    """
    if text_field is None:
        text_field = text_field_of(descriptor)
    parts = parts_of(unwrap(output, descriptor), text_field)
    return Artifact(artifact_id="result", name="result", parts=parts)


def _members(part: Mapping[str, Any] | Part | SdkPart) -> Mapping[str, Any]:
    """Return the members of a part."""
    if isinstance(part, Part):
        return {name: value for name in CONTENT if (value := getattr(part, name)) is not UNSET}
    return part if isinstance(part, Mapping) else MessageToDict(part)


def _content(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the object with the content of a part: in 0.3, a file is an object inside the part."""
    file = part.get("file")
    return file if is_object(file) else part


def as_inputs(value: object) -> Json:
    """Return *value* as inputs of a module: an object with integral floats as integers.

    apcore reads the approval token from the inputs; clients may never set it, so it is removed.

    Raises:
        PartError: *value* is not an object, is too large or nested too deeply, or has a number
            that is not finite.
    """
    if not is_object(value):
        raise PartError("Part must hold a JSON object")
    inputs: Json = narrow(value)  # a copy
    inputs.pop("_approval_token", None)
    return inputs


def parse_inputs(text: str, hint: str = "") -> Json:
    """Parse *text* as a JSON object of inputs.

    Raises:
        PartError: The text is not a JSON object, or has too many values or too much nesting; if it
            is not JSON at all, the error ends with *hint*.
    """
    try:
        value = load_json(text)
    except JsonSizeError as error:
        raise PartError(f"The JSON in TextPart {error}") from None
    except ValueError:
        raise PartError(": ".join(filter(None, ["Invalid JSON in TextPart", hint]))) from None
    return as_inputs(value)


def leading_texts(parts: Parts) -> list[str]:
    """Return the texts of the parts before the first part that is not text."""
    texts: list[str] = []
    for part in parts:
        if isinstance(part, Part) and part.text is UNSET:
            break
        members = _members(part)
        text = members.get("text")
        if not isinstance(text, str) or any(members.get(name) for name in ("data", "file")):
            break
        texts.append(text)
    return texts


def file_to_input(content: str, keys: Sequence[str], file: Mapping[str, Any], schema: Json) -> Json:
    """Return the inputs for a file, with *content* under the first of *keys* that the schema has.

    A schema without properties takes the first key. The `name` and `mimeType` of the file are added
    unless the schema excludes them. If the schema has properties, but none of *keys*, a file in
    base64 goes to a property that it fits (see `file_inputs`); a URL is refused.

    Raises:
        MediaTypeError: The module does not take this file.
    """
    properties = properties_of(schema) or keys
    key = next((key for key in keys if key in properties), None)
    name, media_type = name_and_type(content, keys, file)
    if key is not None:
        details = {"name": name, "mimeType": media_type}
        allowed = {name: details[name] for name in details if allows_property(name, schema)}
        return {key: content, **allowed}
    if "bytes" in keys and (inputs := file_inputs(content, name, media_type, schema, {})):
        return inputs
    accepted = " or ".join(input_modes(schema))
    raise MediaTypeError(f"The skill does not take this file; send {accepted}")


def name_and_type(content: str, keys: Sequence[str], file: Mapping[str, Any]) -> tuple[str, str]:
    """Return the name and media type of a file.

    A missing type is guessed from the first bytes of the content, or else from the name.
    The content is base64 if *keys* has `bytes`, else a URL.
    """
    name = str(file.get("filename") or file.get("name", ""))
    first_bytes = b""
    if "bytes" in keys:
        with suppress(ValueError):  # invalid base64 is left to the module to report
            first_bytes = b64decode(content[:16])
    return name, media_type_of(file) or type_of_file(name, first_bytes)


def with_files(inputs: Json, parts: Parts, schema: Json) -> tuple[Json, Parts]:
    """Return *inputs* with files from *parts* in free properties, and the parts left over."""
    if not file_properties(schema):
        return inputs, parts
    other_parts: list[Any] = []
    for part in parts:
        file = _content(_members(part))
        content = file.get("bytes") or file.get("raw")
        added_inputs: Json = {}
        if isinstance(content, str):
            name, media_type = name_and_type(content, ("bytes",), file)
            added_inputs = file_inputs(content, name, media_type, schema, inputs)
        if added_inputs:
            inputs = inputs | added_inputs
        else:
            other_parts.append(part)
    return inputs, other_parts


def media_type_of(part: Mapping[str, Any]) -> str:
    """Return the media type of a part or a `file` object; empty if missing."""
    # its names in 1.0, in 0.3, and in the `.proto` file
    return str(part.get("mediaType") or part.get("mimeType") or part.get("media_type") or "")


def check_json_type(media_type: str) -> None:
    """Check that the media type of a data part is JSON or empty.

    Raises:
        MediaTypeError: It is another media type.
    """
    if media_type in ("", JSON):
        return
    essence = media_type.split(";")[0].strip().lower()
    if essence != JSON and not essence.endswith("+json"):
        raise MediaTypeError(f"Data must be {JSON}, not {clean(media_type, 100)}")


def unwrap(output: object, descriptor: object) -> object:
    """Return *output* without the `{"result": …}` that apcore puts around values.

    A schema that apcore generated from a function promises clients that object, so only text
    and files are unwrapped. With other schemas, values are unwrapped unless the root of the schema
    is an object, as it is by default.
    """
    if not is_object(output) or list(output) != ["result"]:
        return output
    schema = object_of(descriptor, "output_schema")
    root_type = schema.get("type", "object")  # one name or a list
    is_generated = schema.get("title") == "OutputModel" and list(properties_of(schema)) == [
        "result"
    ]
    is_text_or_file = isinstance(output["result"], (str, *FILE_TYPES))
    must_unwrap = is_text_or_file if is_generated else "object" not in root_type
    return output["result"] if must_unwrap else output


def parts_of(output: object, text_field: str | None) -> list[Part]:
    """Return the parts of an output: its text field, its JSON, then its files."""
    if not is_object(output):
        if is_file_list(output):
            return [part_of(file) for file in output]
        return [] if output is None else [part_of(output)]
    files = {
        key: value
        for key, value in output.items()
        if isinstance(value, FILE_TYPES) or (is_array(value) and is_file_list(value))
    }
    if not files and not text_field:
        return [part_of(output)]
    data: dict[str | None, Any] = {key: value for key, value in output.items() if key not in files}
    has_text = text_field and isinstance(data.get(text_field), str)
    texts = [data.pop(text_field)] if has_text else []
    objects = [data] if data or not output else []
    file_parts = [
        part_of(file, to_json(str(key)))
        for key, value in files.items()
        for file in (value if isinstance(value, list) else [value])
    ]
    return [*map(part_of, [*texts, *objects]), *file_parts]


def is_file_list(value: object) -> TypeGuard[list[File]]:
    """Return whether *value* is a non-empty list of `File`; bytes in a list are data, not files."""
    return is_array(value) and bool(value) and all(isinstance(item, File) for item in value)


def part_of(value: Any, filename: str = "") -> Part:
    """Convert *value* to a part: text, a file, or data.

    >>> part_of(File(url="https://example.com/a.csv")).media_type
    'text/csv'
    """
    if isinstance(value, str):
        return Part(text=to_json(str(value)), media_type=TEXT)
    if not isinstance(value, FILE_TYPES):
        return Part(data=to_json(value), media_type=JSON)
    file = value if isinstance(value, File) else File(value)
    name, media_type = to_json(file.name or filename), to_json(file.media_type)
    if file.url is not None:
        url = to_json(file.url)
        media_type = media_type or type_of_file(file.name or urlsplit(file.url).path)
        return Part(url=url, filename=name, media_type=media_type)
    data = file.data or b""
    raw = Base64(b64encode(data).decode())
    return Part(raw=raw, filename=name, media_type=media_type or type_of_file(name, data))


def with_texts(parts: Sequence[Part], *, text_only: bool = False, end: str = "") -> list[Part]:
    """Return *parts* with data also as text, for clients that read only text.

    Args:
        parts: The parts of an output.
        text_only: Whether the text replaces the data. Otherwise it follows the data, unless there
            is text already.
        end: Text after each JSON value, such as a line break between the chunks of a stream.

    >>> with_texts([Part(data={"n": 1})], text_only=True)[0].text
    '{"n": 1}'
    """
    if not text_only and any(part.text is not UNSET for part in parts):
        return [*parts]
    shown: list[Part] = []
    for part in parts:
        if part.data is UNSET or not text_only:
            shown.append(part)
        if part.data is not UNSET:
            shown.append(Part(text=f"{text_of(part.data)}{end}", media_type=TEXT))
    return shown


def text_of(value: Any) -> str:
    """Return a JSON value as text for people: on one line if it is short, else indented."""
    compact = json.format(dump_json(value), indent=0).decode()
    if len(compact) <= MAX_LINE:
        return compact
    return json.format(dump_json(value), indent=2).decode()
