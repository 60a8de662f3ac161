"""JSON Schemas of modules, and the metadata that says how to present a module over A2A."""

from collections.abc import Mapping
from typing import Any, TypeGuard

Object = dict[str, Any]
"""A JSON object."""
Schema = Mapping[str, Any]

TEXT_FIELD = "x-text-field"
"""Keyword of an output schema that names the member to send as text."""


def is_object(value: object) -> TypeGuard[Object]:
    """Return whether *value* is a JSON object."""
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[Any]]:
    """Return whether *value* is a JSON array."""
    return isinstance(value, list)


def object_at(node: object, *keys: str) -> Object | None:
    """Return the object at the path *keys* in *node*, or None if there is none."""
    for key in keys:
        node = node.get(key) if is_object(node) else None
    return node if is_object(node) else None


def object_of(owner: object, name: str, *keys: str) -> Object:
    """Return the object at the path *keys* in the attribute *name* of *owner*; empty if missing."""
    return object_at(getattr(owner, name, None), *keys) or {}


def overlay_of(descriptor: object) -> Object:
    """Return the module's overrides for A2A: alias, description, guidance, tags, text_field."""
    return object_of(descriptor, "metadata", "display", "a2a")


def text_field_of(descriptor: object) -> str | None:
    """Return the member of the module's output that clients get as text, if there is one.

    The `text_field` of its overlay names it, or else the keyword `x-text-field` of its output
    schema.
    """
    name = overlay_of(descriptor).get("text_field")
    name = name or object_of(descriptor, "output_schema").get(TEXT_FIELD)
    return name if isinstance(name, str) else None


class SchemaConverter:
    """A converter that inlines each `$ref`, for clients that cannot follow references.

    >>> SchemaConverter().detect_root_type({"properties": {}})
    'object'
    """

    MAX_DEPTH = 32
    """Maximum number of nested references."""

    def convert_input_schema(self, descriptor: object) -> Object:
        """Return the input schema with references inlined; its root is an object by default.

        Raises:
            ValueError: A reference is circular, unresolvable, or nested too deep.
        """
        return self._convert(object_of(descriptor, "input_schema"))

    def convert_output_schema(self, descriptor: object) -> Object:
        """Return the output schema with references inlined; see `convert_input_schema`."""
        return self._convert(object_of(descriptor, "output_schema"))

    def detect_root_type(self, schema: Schema | None) -> str:
        """Return `"string"`, `"object"` or `"unknown"`."""
        types = types_of(schema)
        return next((name for name in ("string", "object") if types == {name}), "unknown")

    def _convert(self, schema: Schema) -> Object:
        if not schema:
            return {"type": "object", "properties": {}}
        body = {key: value for key, value in schema.items() if key not in ("$defs", "definitions")}
        result = self._inline_refs(body, schema, frozenset())
        return {"type": "object", **result} if types_of(result) <= {"object"} else result

    def _inline_refs(self, node: Any, root: Schema, visited: frozenset[str]) -> Any:
        """Return a deep copy of *node* with each reference replaced by its target.

        *visited* has only the references that led to *node*, since two may share a target.
        """
        if is_array(node):
            return [self._inline_refs(item, root, visited) for item in node]
        if not is_object(node):
            return node
        copied = {k: self._inline_refs(v, root, visited) for k, v in node.items()}
        ref = copied.get("$ref")
        if not isinstance(ref, str):
            return copied
        if ref in visited:
            raise ValueError("Circular $ref detected")
        if len(visited) == self.MAX_DEPTH:
            raise ValueError("Schema $ref depth limit exceeded")
        target = object_at(root, *keys_of_pointer(ref)) if ref.startswith("#") else None
        if target is None:
            raise ValueError("Unresolvable $ref")
        del copied["$ref"]
        return self._inline_refs(target, root, visited | {ref}) | copied


def keys_of_pointer(pointer: str) -> list[str]:
    """Return the keys in a JSON pointer (RFC 6901)."""
    return [key.replace("~1", "/").replace("~0", "~") for key in pointer.split("/")[1:]]


def types_of(schema: object) -> set[str]:
    """Return the types that *schema* allows, except null."""
    root = object_at(schema) or {}
    if branches := root.get("anyOf"):
        return {kind for branch in branches for kind in types_of(branch)}
    named = root.get("type", "object" if "properties" in root else [])
    return {*(named if is_array(named) else [named])} - {"null"}


def properties_of(schema: Schema) -> Object:
    """Return the properties that *schema* declares."""
    return object_at(schema, "properties") or {}


def text_property(schema: Schema) -> str | None:
    """Return the property that takes plain text: the only one, or the only required one.

    >>> city = {"properties": {"city": {"type": "string"}, "days": {}}, "required": ["city"]}
    >>> text_property(city)
    'city'
    """
    properties = properties_of(schema)
    names = list(properties) if len(properties) == 1 else schema.get("required", [])
    is_text = len(names) == 1 and types_of(properties.get(names[0])) == {"string"}
    return names[0] if is_text else None
