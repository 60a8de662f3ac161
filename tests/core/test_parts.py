"""Conversion of parts to inputs, and of outputs to artifacts."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from a2a.types import Message, Part
from apcore import Registry
from apcore.decorator import FunctionModule, module
from apcore_a2a_core import (
    ErrorMapper,
    MediaTypeError,
    OutputError,
    PartConverter,
    PartError,
    SchemaConverter,
)
from apcore_a2a_core.values import MAX_VALUES
from google.protobuf.json_format import MessageToDict, ParseDict
from hypothesis import given
from hypothesis import strategies as st

from .test_values import json_values, text

Describe = Callable[..., Any]
converter = PartConverter(SchemaConverter())
STRING = {"type": "string"}
CITY = {"type": "object", "properties": {"city": STRING, "days": {}}, "required": ["city"]}
FILE = {"type": "object", "properties": {"uri": STRING, "name": STRING, "mimeType": STRING}}
BYTES = {"type": "object", "properties": {"bytes": STRING, "name": STRING, "mimeType": STRING}}
OPTIONAL = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}}
ONE_REQUIRED = {"properties": {"n": {"type": "integer"}, "unit": STRING}, "required": ["n"]}
PNG = b"\x89PNG\r\n\x1a\n...."
URI = "https://example.org/docs/report%202.pdf?v=1"


def input_of(part: Any, schema: Any, descriptor: Describe) -> Any:
    return converter.parts_to_input([part], descriptor(input_schema=schema))


@pytest.mark.parametrize(
    "part",
    [
        {"kind": "data", "data": {"n": 3.0, "x": 0.5}},
        {"type": "data", "data": {"n": 3, "x": 0.5}},
        {"data": {"n": 3.0, "x": 0.5}, "mediaType": "application/json"},
        ParseDict({"data": {"n": 3, "x": 0.5}}, Part()),
    ],
)
@pytest.mark.parametrize("schema", [None, {"type": "object"}, CITY, STRING])
def test_an_object_is_the_input_in_every_wire_format(
    part: Any, schema: Any, descriptor: Describe
) -> None:
    inputs = input_of(part, schema, descriptor)
    assert inputs == {"n": 3, "x": 0.5}
    assert type(inputs["n"]) is int


@given(st.dictionaries(text, json_values, max_size=4))
def test_parts_in_json_and_parts_of_the_sdk_give_the_same_input(data: dict[str, Any]) -> None:
    data.pop("_approval_token", None)
    plain = converter.parts_to_input([{"data": data}], None)
    message = ParseDict({"parts": [{"data": data}]}, Message())
    assert converter.parts_to_input(message.parts, None) == plain == data


@pytest.mark.parametrize("data", [[1], "x", 3, True])
@pytest.mark.parametrize("part_type", [dict, Part])
def test_data_that_is_not_an_object_is_refused(
    part_type: type, data: Any, descriptor: Describe
) -> None:
    part = {"data": data} if part_type is dict else ParseDict({"data": data}, Part())
    with pytest.raises(PartError, match="object"):
        input_of(part, CITY, descriptor)


@pytest.mark.parametrize(
    "part", [{"kind": "text", "text": "hi"}, {"type": "text", "text": "hi"}, Part(text="hi")]
)
@pytest.mark.parametrize(
    ("schema", "inputs"),
    [
        (None, "hi"),
        ({}, "hi"),
        (STRING, "hi"),
        (CITY, {"city": "hi"}),
        ({"properties": {"q": {"anyOf": [STRING, {"type": "null"}]}}}, {"q": "hi"}),
    ],
)
def test_plain_text_becomes_the_input_or_the_value_of_a_text_property(
    part: Any, schema: Any, inputs: Any, descriptor: Describe
) -> None:
    assert input_of(part, schema, descriptor) == inputs


def test_several_leading_texts_are_joined(descriptor: Describe) -> None:
    texts: list[Any] = [{"text": "one"}, {"text": "two"}]
    others: list[Any] = [{"url": URI}, {"text": "three"}]
    split = converter.split
    assert split(texts, descriptor(input_schema=None)) == ("one\ntwo", [])
    assert split(texts + others, descriptor(input_schema=CITY)) == ({"city": "one\ntwo"}, others)
    halves: list[Any] = [{"text": '{"a": 1,'}, {"text": '"b": 2}'}]
    assert split(halves, descriptor(input_schema=OPTIONAL)) == ({"a": 1, "b": 2}, [])


def test_a_module_without_inputs_accepts_any_text(descriptor: Describe) -> None:
    module_descriptor = descriptor(input_schema={"type": "object", "properties": {}})
    parts: list[Any] = [{"text": "go"}, {"text": "on"}]
    assert converter.split(parts, module_descriptor) == ({}, parts)
    assert converter.split([{"text": "go"}, {"data": {}}], module_descriptor) == (
        {},
        [{"text": "go"}],
    )
    assert converter.split([{"text": "{}"}], module_descriptor) == ({}, [])
    with pytest.raises(PartError):
        converter.split([{"data": [1]}], module_descriptor)


def test_text_becomes_the_value_of_the_one_required_scalar(descriptor: Describe) -> None:
    assert input_of({"text": " 5\n"}, ONE_REQUIRED, descriptor) == {"n": 5}
    assert input_of({"text": '{"n": 5, "unit": "m"}'}, ONE_REQUIRED, descriptor) == {
        "n": 5,
        "unit": "m",
    }
    with pytest.raises(PartError) as caught:
        input_of({"text": "five"}, ONE_REQUIRED, descriptor)
    assert str(caught.value) == (
        "n must be a whole number; the skill takes JSON with: n (integer), unit (string, optional)"
    )


def test_text_for_a_string_schema_is_never_parsed(descriptor: Describe) -> None:
    assert input_of({"text": '{"a": 1}'}, STRING, descriptor) == '{"a": 1}'


@pytest.mark.parametrize(
    ("content", "inputs"),
    [
        ('{"city": "Oslo", "days": 2.0}', {"city": "Oslo", "days": 2}),
        ('{"days": 2}', {"days": 2}),
        ('{"other": 1}', {"city": '{"other": 1}'}),
        ("{}", {"city": "{}"}),
        ("[1]", {"city": "[1]"}),
        ("NaN", {"city": "NaN"}),
        ('{"days": NaN}', {"city": '{"days": NaN}'}),
        ('{"city": "Oslo", "_approval_token": "t"}', {"city": "Oslo"}),
    ],
)
def test_text_for_a_text_property_may_be_the_whole_input_as_json(
    content: str, inputs: Any, descriptor: Describe
) -> None:
    assert input_of({"text": content}, CITY, descriptor) == inputs


@pytest.mark.parametrize(
    ("content", "inputs"), [('{"a": 2.0}', {"a": 2}), (' {"z": null} ', {"z": None})]
)
def test_text_for_an_object_schema_is_parsed(
    content: str, inputs: Any, descriptor: Describe
) -> None:
    assert input_of({"text": content}, OPTIONAL, descriptor) == inputs


@pytest.mark.parametrize(
    "content",
    ["", "not JSON", "{", "9" * 5000, '{"a": ' + "9" * 5000 + "}"],
)
def test_invalid_json_is_refused_with_a_list_of_the_fields(
    content: str, descriptor: Describe
) -> None:
    with pytest.raises(PartError) as caught:
        input_of({"text": content}, OPTIONAL, descriptor)
    fields = "the skill takes JSON with: a (integer, optional), b (any, optional)"
    assert str(caught.value) == f"Invalid JSON in TextPart: {fields}"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{"a": ' * 1000, "is nested deeper than"),
        (f'{{"a": [{"0," * MAX_VALUES}0]}}', f"has more than {MAX_VALUES} values"),
    ],
    ids=["nesting", "values"],
)
def test_json_in_text_that_is_too_large_is_refused_with_the_reason(
    content: str, problem: str, descriptor: Describe
) -> None:
    with pytest.raises(PartError, match=f"The JSON in TextPart {problem}"):
        input_of({"text": content}, OPTIONAL, descriptor)


@pytest.mark.parametrize(
    "content",
    ["[1]", '"x"', '{"a": NaN}', '{"a": -Infinity}', '{"a": 1e999}', '{"a":' * 40 + "1" + "}" * 40],
)
def test_json_that_is_not_a_valid_input_is_refused(content: str, descriptor: Describe) -> None:
    with pytest.raises(PartError):
        input_of({"text": content}, OPTIONAL, descriptor)


@pytest.mark.parametrize(
    "part",
    [
        {"kind": "file", "file": {"uri": URI}},
        {"type": "file", "file": {"uri": URI}},
        {"type": "file", "uri": URI},
        {"url": URI},
        Part(url=URI),
    ],
)
def test_a_linked_file_has_uri_name_and_media_type(part: Any, descriptor: Describe) -> None:
    inputs = input_of(part, FILE, descriptor)
    assert inputs == {"uri": URI, "name": "report%202.pdf", "mimeType": "application/pdf"}


@pytest.mark.parametrize(
    "part",
    [
        {"kind": "file", "file": {"bytes": "aGk/", "name": "a.txt", "mimeType": "text/x"}},
        {"raw": "aGk/", "filename": "a.txt", "mediaType": "text/x"},
        Part(raw=b"hi?", filename="a.txt", media_type="text/x"),
    ],
)
def test_an_attached_file_is_passed_in_base64(part: Any, descriptor: Describe) -> None:
    inputs = input_of(part, BYTES, descriptor)
    assert inputs == {"bytes": "aGk/", "name": "a.txt", "mimeType": "text/x"}


def test_a_function_gets_only_the_members_of_a_file_that_are_its_parameters(
    descriptor: Describe,
) -> None:
    def read(data: bytes) -> dict[str, Any]:
        return {"data": data}

    def read_named(data: bytes, name: str) -> dict[str, Any]:
        return {"data": data, "name": name}

    def read_all(data: bytes, **more: Any) -> dict[str, Any]:
        return {"data": data, **more}

    file = {"raw": "aGk/", "filename": "a.txt"}
    members = {"data": "aGk/", "name": "a.txt", "mimeType": "text/plain"}
    functions: list[tuple[Callable[..., Any], list[str]]] = [
        (read, ["data"]),
        (read_named, ["data", "name"]),
        (read_all, [*members]),
    ]
    for function, names in functions:
        schema = FunctionModule(function, "read").input_schema.model_json_schema()
        inputs = input_of(file, schema, descriptor)
        assert function(**inputs) == {name: members[name] for name in names}


def test_a_file_has_no_members_that_the_schema_forbids(descriptor: Describe) -> None:
    schema = {"properties": {"url": STRING, "name": STRING}, "additionalProperties": False}
    inputs = input_of({"url": URI}, schema, descriptor)
    assert inputs == {"url": URI, "name": "report%202.pdf"}


def test_a_null_member_is_ignored(descriptor: Describe) -> None:
    assert input_of({"text": None, "data": {"n": 1}}, OPTIONAL, descriptor) == {"n": 1}
    assert input_of({"text": "hi", "data": None, "file": None}, STRING, descriptor) == "hi"
    file = {"bytes": None, "uri": URI, "name": None}
    assert input_of({"kind": "file", "file": file}, FILE, descriptor)["uri"] == URI


def test_missing_members_of_a_file_have_defaults(descriptor: Describe) -> None:
    inputs = input_of({"raw": "aGk="}, BYTES, descriptor)
    assert inputs == {"bytes": "aGk=", "name": "", "mimeType": "application/octet-stream"}
    inputs = input_of({"url": "https://example.org"}, FILE, descriptor)
    assert (inputs["name"], inputs["mimeType"]) == ("", "application/octet-stream")


def test_a_file_is_passed_in_the_member_that_the_schema_has(descriptor: Describe) -> None:
    inputs = input_of({"raw": "aGk="}, {"properties": {"data": {}, "x": {}}}, descriptor)
    assert inputs["data"] == "aGk="
    inputs = input_of({"url": URI}, {"properties": {"url": {}, "x": {}}}, descriptor)
    assert inputs["url"] == URI
    assert input_of({"url": URI}, None, descriptor)["uri"] == URI


@pytest.mark.parametrize(
    ("part", "schema"),
    [
        ({"url": "http://[bad"}, FILE),
        ({"url": URI}, OPTIONAL),
        ({"raw": "aGk="}, FILE),
        ({"kind": "text"}, CITY),
        ({"kind": "text", "text": 7}, CITY),
        ({"kind": "file", "file": {}}, FILE),
        ({"kind": "file", "file": URI}, FILE),
        ({"data": None}, CITY),
        (Part(), STRING),
        ({"raw": None}, BYTES),
        ({}, CITY),
    ],
)
def test_malformed_and_unsuitable_parts_are_refused(
    part: Any, schema: Any, descriptor: Describe
) -> None:
    with pytest.raises(PartError):
        input_of(part, schema, descriptor)


@pytest.mark.parametrize(
    ("part", "schema"),
    [
        ({"url": URI}, OPTIONAL),
        ({"raw": "aGk="}, FILE),
        (Part(raw=b"hi", media_type="image/png"), CITY),
        ({"data": {}, "mediaType": "text/csv"}, CITY),
        ({"kind": "data", "data": {}, "mimeType": "application/xml"}, CITY),
        (ParseDict({"data": {}, "mediaType": "application/jsonx"}, Part()), None),
    ],
)
def test_a_media_type_that_the_skill_does_not_take_has_an_error_of_its_own(
    part: Any, schema: Any, descriptor: Describe
) -> None:
    with pytest.raises(MediaTypeError) as caught:
        input_of(part, schema, descriptor)
    error = ErrorMapper().to_jsonrpc_error(caught.value)
    assert (error["code"], error["data"]["type"]) == (-32005, "ContentTypeNotSupportedError")
    assert "application/json" in error["message"]


@pytest.mark.parametrize(
    "media_type", ["application/json", "Application/JSON; charset=utf-8", "application/geo+json"]
)
def test_data_of_every_json_media_type_is_accepted(media_type: str, descriptor: Describe) -> None:
    assert input_of({"data": {"a": 1}, "mediaType": media_type}, OPTIONAL, descriptor) == {"a": 1}


def test_a_message_without_parts_is_refused(descriptor: Describe) -> None:
    with pytest.raises(PartError) as caught:
        converter.split([], descriptor(input_schema=CITY))
    assert str(caught.value) == "Message must contain at least one Part"


def test_the_first_matching_part_is_the_input_and_the_others_are_kept_unchanged(
    descriptor: Describe,
) -> None:
    module_descriptor = descriptor(input_schema=OPTIONAL)
    parts: list[Any] = [{"text": "look at this"}, {"data": {"a": 1}}, {"data": {"a": 2}}]
    assert converter.split(parts, module_descriptor) == ({"a": 1}, [parts[0], parts[2]])
    message = ParseDict({"parts": parts}, Message())
    inputs, others = converter.split(message.parts, module_descriptor)
    assert inputs == {"a": 1}
    assert others == [message.parts[0], message.parts[2]]


def test_if_no_part_matches_the_error_of_the_first_is_raised(descriptor: Describe) -> None:
    with pytest.raises(PartError, match="Invalid JSON in TextPart"):
        converter.split([{"text": "x"}, {"data": 3}], descriptor(input_schema=OPTIONAL))


def test_an_approval_token_of_a_client_is_removed(descriptor: Describe) -> None:
    data = {"_approval_token": "stolen", "a": 1, "inner": {"_approval_token": "mine"}}
    expected = {"a": 1, "inner": {"_approval_token": "mine"}}
    for part in ({"data": data}, {"text": json.dumps(data)}, ParseDict({"data": data}, Part())):
        assert input_of(part, OPTIONAL, descriptor) == expected


def test_an_input_with_too_many_keys_is_refused(descriptor: Describe) -> None:
    with pytest.raises(PartError, match="keys"):
        input_of({"data": {str(i): 1 for i in range(5001)}}, OPTIONAL, descriptor)


def parts_of(output: object, module_descriptor: Any = None) -> list[Part]:
    return list(converter.output_to_parts(output, module_descriptor).parts)


def test_an_empty_output_has_no_parts() -> None:
    artifact = converter.output_to_parts(None)
    assert (artifact.artifact_id, artifact.name, len(artifact.parts)) == ("result", "result", 0)


@pytest.mark.parametrize("output", [{"a": [1, None]}, {}, [1, {"b": True}], 3, 0.5, False])
def test_json_is_one_data_part(output: object) -> None:
    [part] = parts_of(output)
    assert part.media_type == "application/json"
    assert MessageToDict(part.data) == output


def test_text_is_one_text_part() -> None:
    [part] = parts_of("hello")
    assert (part.text, part.media_type) == ("hello", "text/plain")


@pytest.mark.parametrize(
    ("raw", "media_type"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"%PDF-1.7", "application/pdf"),
        (b"anything", "application/octet-stream"),
        (b"", "application/octet-stream"),
        (bytearray(PNG), "image/png"),
    ],
)
def test_bytes_are_a_file_with_a_media_type_detected_from_their_start(
    raw: bytes, media_type: str
) -> None:
    [part] = parts_of(raw)
    assert (part.raw, part.media_type) == (bytes(raw), media_type)


def test_bytes_in_an_object_are_files_named_by_their_keys() -> None:
    data, chart, table = parts_of({"chart": PNG, "n": 1, "table": b"a,b", "deep": {"x": b"a"}})
    assert MessageToDict(data.data) == {"n": 1, "deep": {"x": base64.b64encode(b"a").decode()}}
    assert (chart.filename, chart.media_type, chart.raw) == ("chart", "image/png", PNG)
    assert table.filename == "table"
    assert [part.filename for part in parts_of({"only": b"x"})] == ["only"]


def test_the_configured_text_field_becomes_a_text_part(descriptor: Describe) -> None:
    module_descriptor = descriptor(metadata={"display": {"a2a": {"text_field": "answer"}}})
    answer, rest = parts_of({"answer": "42", "sources": [1]}, module_descriptor)
    assert answer.text == "42"
    assert MessageToDict(rest.data) == {"sources": [1]}
    assert [part.text for part in parts_of({"answer": "42"}, module_descriptor)] == ["42"]
    [data] = parts_of({"answer": 42}, module_descriptor)
    assert MessageToDict(data.data) == {"answer": 42}


def test_the_wrapped_result_of_a_function_that_returns_text_is_text(
    registry: Registry, call: Callable[..., object]
) -> None:
    def upper(text: str) -> str:
        return text.upper()

    def words(text: str) -> list[str]:
        return text.split()

    module(id="text.upper", registry=registry, description="Upper case")(upper)
    module(id="text.words", registry=registry, description="Words")(words)
    output = call("text.upper", {"text": "hi"})
    assert output == {"result": "HI"}
    [part] = parts_of(output, registry.get_definition("text.upper"))
    assert part.text == "HI"
    output = call("text.words", {"text": "a b"})
    [part] = parts_of(output, registry.get_definition("text.words"))
    assert MessageToDict(part.data) == {"result": ["a", "b"]}


@pytest.mark.parametrize(
    ("schema", "unwrapped"),
    [
        ({"type": "array"}, True),
        ({"type": "string"}, True),
        ({"type": ["integer", "null"]}, True),
        ({"type": ["object", "null"]}, False),
        ({}, False),
        (None, False),
        ({"type": "object", "properties": {"result": {}}}, False),
        ({"properties": {"result": {}}}, False),
    ],
)
def test_a_result_is_unwrapped_only_if_the_schema_has_a_type_other_than_object(
    schema: Any, unwrapped: bool, descriptor: Describe
) -> None:
    [part] = parts_of({"result": [1]}, descriptor(output_schema=schema))
    assert MessageToDict(part.data) == ([1] if unwrapped else {"result": [1]})
    [object_part] = parts_of({"result": [1], "more": 2}, descriptor(output_schema=schema))
    assert MessageToDict(object_part.data) == {"result": [1], "more": 2}


@pytest.mark.parametrize(
    "output", ["\ud800", {"a": "\ud800"}, {"a": float("nan")}, {"\ud800": b""}, object()]
)
def test_outputs_that_cannot_be_converted_are_refused(output: object) -> None:
    with pytest.raises(OutputError):
        converter.output_to_parts(output)


PHOTO = {
    "type": "object",
    "properties": {
        "caption": {"type": "string"},
        "photo": {"type": "string", "contentEncoding": "base64", "contentMediaType": "image/*"},
        "other": {"anyOf": [{"type": "string", "format": "binary"}, {"type": "null"}]},
        "json": {"type": "string", "contentMediaType": "application/json"},
        "mimeType": {"type": "string"},
    },
    "required": ["caption"],
}
GIF = "R0lGODlhAQABAAAAACw="


def test_a_file_fills_the_member_that_its_media_type_fits(descriptor: Describe) -> None:
    image = {"raw": GIF, "filename": "a"}
    assert input_of(image, PHOTO, descriptor) == {"photo": GIF, "mimeType": "image/gif"}
    table = {"kind": "file", "file": {"bytes": "YSxi", "name": "t.csv"}}
    assert input_of(table, PHOTO, descriptor) == {"other": "YSxi", "mimeType": "text/csv"}


def test_additional_files_fill_members_that_are_free(descriptor: Describe) -> None:
    parts: list[Any] = [
        {"text": "A cat"},
        {"raw": GIF},
        {"kind": "file", "file": {"bytes": GIF}},
        {"raw": GIF, "filename": "third"},
        {"url": URI},
        {"text": "more"},
    ]
    inputs, others = converter.split(parts, descriptor(input_schema=PHOTO))
    assert inputs == {"caption": "A cat", "photo": GIF, "mimeType": "image/gif", "other": GIF}
    assert others == parts[3:]


def test_a_file_that_fits_no_member_is_refused(descriptor: Describe) -> None:
    schema = {"properties": {"photo": PHOTO["properties"]["photo"], "n": {}}}  # type: ignore[index]  # a JSON object
    with pytest.raises(MediaTypeError, match="image/"):
        input_of({"raw": "aGk=", "mediaType": "text/plain"}, schema, descriptor)
    with pytest.raises(MediaTypeError):
        input_of({"url": URI}, schema, descriptor)


@pytest.mark.parametrize(("schema", "inputs"), [(CITY, {"city": ""}), (OPTIONAL, {})])
def test_a_module_that_reads_files_accepts_a_message_of_only_files(
    schema: Any, inputs: Any, descriptor: Describe
) -> None:
    parts: list[Any] = [{"raw": GIF}, {"kind": "file", "file": {"uri": URI}}]
    module_descriptor = descriptor(
        input_schema=schema, metadata={"display": {"a2a": {"files": True}}}
    )
    assert converter.split(parts, module_descriptor) == (inputs, parts)
    with pytest.raises(MediaTypeError):
        converter.split(parts, descriptor(input_schema=schema))
    with pytest.raises(PartError):
        converter.split([*parts, {"kind": "text"}], module_descriptor)
