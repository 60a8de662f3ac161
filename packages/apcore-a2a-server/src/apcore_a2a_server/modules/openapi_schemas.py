"""Conversion of schemas in OpenAPI documents to JSON Schema."""

import re
from collections.abc import Callable
from typing import Any

from apcore_a2a_core.values import is_array, is_object

SUBSCHEMAS = frozenset(
    {
        "additionalProperties",
        "contains",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
SUBSCHEMA_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
SUBSCHEMA_MAPS = frozenset({"dependentSchemas", "patternProperties", "properties"})

Json = dict[str, Any]


class OpenAPISchemaConverter:
    """Converter from OpenAPI schemas to JSON Schema 2020-12; it converts referenced schemas too.

    Args:
        look_up: Returns the part of the document to which a reference points.
        optional_keyword: The keyword that makes a property optional: `readOnly` for inputs,
            `writeOnly` for outputs.
    """

    def __init__(self, look_up: Callable[[str], Any], optional_keyword: str) -> None:
        self._look_up = look_up
        self._optional_keyword = optional_keyword
        self._names: dict[str, str] = {}
        self._definitions: Json = {}

    def definitions(self) -> Json:
        """Return the `$defs` that converted schemas refer to, to be merged into the root schema."""
        return {"$defs": self._definitions} if self._definitions else {}

    def resolve(self, converted: Any) -> Json:
        """Return a converted schema, or the one that it refers to."""
        while is_object(converted) and isinstance(reference := converted.get("$ref"), str):
            converted = self._definitions[reference.removeprefix("#/$defs/")]
        return converted if is_object(converted) else {}

    def convert(self, schema: Any) -> Any:
        """Return a schema of OpenAPI as JSON Schema.

        Raises:
            DocumentError: The schema has a reference that can't be followed.
        """
        if not is_object(schema):
            return bool(schema)
        converted: Json = {}
        for keyword, value in schema.items():
            if keyword == "$ref":
                value = self._reference(str(value))
            elif keyword in SUBSCHEMAS:
                value = self.convert(value)
            elif keyword in SUBSCHEMA_LISTS and is_array(value):
                value = [self.convert(subschema) for subschema in value]
            elif keyword in SUBSCHEMA_MAPS and is_object(value):
                value = {name: self.convert(subschema) for name, subschema in value.items()}
            converted[keyword] = value
        self._make_optional(converted)
        return _modernize(converted)

    def _reference(self, reference: str) -> str:
        """Return the JSON Schema reference for *reference*; convert its target on first use."""
        if reference not in self._names:
            name = re.sub(r"[^\w.-]", "_", reference.rpartition("/")[2])
            while name in self._definitions:
                name += "_"
            # before the conversion, since the schema may refer to itself
            self._names[reference], self._definitions[name] = name, {}
            self._definitions[name] = self.convert(self._look_up(reference))
        return f"#/$defs/{self._names[reference]}"

    def _make_optional(self, schema: Json) -> None:
        properties, required = schema.get("properties"), schema.get("required")
        if is_object(properties) and is_array(required):
            keyword = self._optional_keyword
            optional = [name for name in properties if _is_keyword_true(properties[name], keyword)]
            schema["required"] = [name for name in required if name not in optional]


def _is_keyword_true(schema: Any, keyword: str) -> bool:
    return is_object(schema) and schema.get(keyword) is True


def _modernize(schema: Json) -> Json:
    """Convert a schema of OpenAPI 3.0 to OpenAPI 3.1, in which schemas are JSON Schema."""
    for bound in ("minimum", "maximum"):
        exclusive = f"exclusive{bound.capitalize()}"
        if isinstance(schema.get(exclusive), bool) and schema.pop(exclusive) and bound in schema:
            schema[exclusive] = schema.pop(bound)
    if schema.pop("nullable", False) is not True:
        return schema
    if isinstance(schema.get("type"), str) and "enum" not in schema:
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}
