"""Schemas with references inlined, and the property that takes plain text."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from apcore import Registry
from apcore_a2a_core import SchemaConverter
from apcore_a2a_core.schema import text_property

Describe = Callable[..., Any]
STRING = {"type": "string"}


@pytest.fixture
def convert(descriptor: Describe) -> Callable[[Any], dict[str, Any]]:
    converter = SchemaConverter()
    return lambda schema: converter.convert_input_schema(descriptor(input_schema=schema))


Convert = Callable[[Any], dict[str, Any]]


@pytest.mark.parametrize("schema", [None, {}])
def test_a_missing_schema_becomes_an_empty_object(convert: Convert, schema: Any) -> None:
    assert convert(schema) == {"type": "object", "properties": {}}


def test_the_root_is_an_object_unless_the_schema_says_otherwise(convert: Convert) -> None:
    assert convert({"properties": {"a": {}}})["type"] == "object"
    assert convert(STRING) == STRING
    assert convert({"anyOf": [STRING]}) == {"anyOf": [STRING]}
    assert convert({"oneOf": [{"properties": {}}]})["type"] == "object"


def test_output_schemas_are_converted_like_input_schemas(descriptor: Describe) -> None:
    module_descriptor = descriptor(output_schema={"$ref": "#/$defs/A", "$defs": {"A": STRING}})
    assert SchemaConverter().convert_output_schema(module_descriptor) == STRING


def test_the_models_of_a_real_module_are_inlined(registry: Registry) -> None:
    definition = registry.get_definition("shop.order")
    assert definition
    before = copy.deepcopy(definition.input_schema)
    assert "$defs" in before
    converted = SchemaConverter().convert_input_schema(definition)
    assert "$" not in str(converted).replace("'$schema'", "")
    assert converted["properties"]["items"]["items"]["properties"]["name"]["type"] == "string"
    assert definition.input_schema == before


def test_the_converted_schema_shares_nothing_with_the_original(convert: Convert) -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"enum": ["x"]}}}
    convert(schema)["properties"]["a"]["enum"].append("y")
    assert schema["properties"]["a"] == {"enum": ["x"]}


def test_keywords_next_to_a_reference_are_kept(convert: Convert) -> None:
    schema = {
        "properties": {"a": {"$ref": "#/definitions/A", "description": "mine"}},
        "definitions": {"A": {"type": "string", "description": "theirs"}},
    }
    assert convert(schema)["properties"]["a"] == {"type": "string", "description": "mine"}


def test_pointers_are_unescaped(convert: Convert) -> None:
    schema = {"properties": {"a": {"$ref": "#/$defs/x~1y~0z"}}, "$defs": {"x/y~z": STRING}}
    assert convert(schema)["properties"]["a"] == STRING


def test_a_property_may_be_named_like_the_reference_keyword(convert: Convert) -> None:
    schema = {"type": "object", "properties": {"$ref": {"type": "string"}}}
    assert convert(schema) == schema


def test_one_definition_may_be_used_twice(convert: Convert) -> None:
    schema = {
        "properties": {"a": {"$ref": "#/$defs/A"}, "b": {"$ref": "#/$defs/B"}},
        "$defs": {"A": STRING, "B": {"items": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/A"}]}},
    }
    assert convert(schema)["properties"] == {"a": STRING, "b": {"items": [STRING, STRING]}}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/A", "$defs": {"A": {"items": {"$ref": "#/$defs/A"}}}},
        {"properties": {"child": {"$ref": "#"}}},
    ],
)
def test_circular_references_are_refused(convert: Convert, schema: Any) -> None:
    with pytest.raises(ValueError, match="Circular"):
        convert(schema)


def chain(length: int) -> dict[str, Any]:
    defs: dict[str, Any] = {f"D{i}": {"$ref": f"#/$defs/D{i + 1}"} for i in range(1, length)}
    return {"$ref": "#/$defs/D1", "$defs": {**defs, f"D{length}": STRING}}


def test_references_may_be_nested_32_deep_but_no_deeper(convert: Convert) -> None:
    assert convert(chain(32)) == STRING
    with pytest.raises(ValueError, match="depth limit"):
        convert(chain(33))


def test_references_that_multiply_are_refused_before_they_are_copied(convert: Convert) -> None:
    twice: dict[str, Any] = {
        f"D{i}": {"prefixItems": [{"$ref": f"#/$defs/D{i + 1}"}] * 2} for i in range(31)
    }
    with pytest.raises(ValueError, match="too many objects"):
        convert({"$ref": "#/$defs/D0", "$defs": {**twice, "D31": STRING}})


@pytest.mark.parametrize("keyword", ["type", "anyOf"])
@pytest.mark.parametrize("value", [{}, [{}], 5])
def test_malformed_types_are_kept_and_declare_nothing(
    convert: Convert, keyword: str, value: Any
) -> None:
    schema = {keyword: value}
    assert convert(schema) == {"type": "object", **schema}
    assert SchemaConverter().detect_root_type(schema) == "unknown"


@pytest.mark.parametrize("ref", ["#/$defs/None", "#/$defs/A/x", "other.json#/A", "A", "#/title"])
def test_unresolvable_references_are_refused(convert: Convert, ref: str) -> None:
    with pytest.raises(ValueError, match="Unresolvable"):
        convert({"properties": {"a": {"$ref": ref}}, "$defs": {"A": STRING}, "title": "T"})


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        (None, "unknown"),
        ({}, "unknown"),
        (STRING, "string"),
        ({"type": ["string", "null"]}, "string"),
        ({"anyOf": [STRING, {"type": "null"}]}, "string"),
        ({"anyOf": [STRING, {"type": "integer"}]}, "unknown"),
        ({"type": "object"}, "object"),
        ({"type": ["object", "null"]}, "object"),
        ({"properties": {}}, "object"),
        ({"type": "array"}, "unknown"),
        ({"anyOf": [{"type": "object"}, {"type": "null"}]}, "object"),
        ({"anyOf": [STRING, {"properties": {}}]}, "unknown"),
        ({"$ref": "#/$defs/A", "$defs": {"A": STRING}}, "unknown"),
    ],
)
def test_the_root_type_is_detected(schema: Any, kind: str) -> None:
    assert SchemaConverter().detect_root_type(schema) == kind


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        ({}, None),
        ({"properties": {"a": STRING}}, "a"),
        ({"properties": {"a": {"type": "integer"}}}, None),
        ({"properties": {"a": {"anyOf": [STRING, {"type": "null"}]}}}, "a"),
        ({"properties": {"a": STRING, "b": STRING}}, None),
        ({"properties": {"a": STRING, "b": STRING}, "required": ["b"]}, "b"),
        ({"properties": {"a": STRING, "b": STRING}, "required": ["a", "b"]}, None),
        ({"properties": {"a": STRING, "b": {}}, "required": ["b"]}, None),
        ({"properties": {"a": STRING, "b": STRING}, "required": ["c"]}, None),
        ({"properties": {"a": True}}, None),
    ],
)
def test_text_goes_to_the_only_property_or_the_only_required_one(schema: Any, name: Any) -> None:
    assert text_property(schema) == name
