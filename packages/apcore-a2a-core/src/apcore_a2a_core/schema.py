"""Declarations of modules: JSON Schemas, and how to show a module over A2A."""

from collections.abc import Mapping
from typing import Any, TypeGuard

Object = dict[str, Any]
Schema = Mapping[str, Any]


def is_object(value: object) -> TypeGuard[Object]:
    """Whether *value* is a JSON object."""
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[Any]]:
    """Whether *value* is a JSON array."""
    return isinstance(value, list)


def object_at(node: object, *keys: str) -> Object | None:
    """The object that *keys* lead to from *node*, or ``None`` when there is none."""
    for key in keys:
        node = node.get(key) if is_object(node) else None
    return node if is_object(node) else None


def object_of(owner: object, name: str, *keys: str) -> Object:
    """The object that *owner* has as its attribute *name*, or deeper in it; empty without."""
    return object_at(getattr(owner, name, None), *keys) or {}


def overlay_of(descriptor: object) -> Object:
    """Return how the module wants to be shown over A2A: alias, description, tags, text_field."""
    return object_of(descriptor, "metadata", "display", "a2a")


class SchemaConverter:
    """Makes a module's schemas self-contained, for clients that follow no ``$ref``.

    >>> SchemaConverter().detect_root_type({"properties": {}})
    'object'
    """

    MAX_DEPTH = 32
    """References in each other."""

    def convert_input_schema(self, descriptor: object) -> Object:
        """The input schema without references, its root an object unless it says otherwise.

        Raises:
            ValueError: a reference is circular, leads nowhere, or they are nested too deep.
        """
        return self._convert(object_of(descriptor, "input_schema"))

    def convert_output_schema(self, descriptor: object) -> Object:
        """The output schema without references; see `convert_input_schema`."""
        return self._convert(object_of(descriptor, "output_schema"))

    def detect_root_type(self, schema: Schema | None) -> str:
        """``"string"``, ``"object"`` or ``"unknown"``."""
        found = types_of(schema)
        return next((kind for kind in ("string", "object") if found == {kind}), "unknown")

    def _convert(self, schema: Schema) -> Object:
        if not schema:
            return {"type": "object", "properties": {}}
        body = {key: value for key, value in schema.items() if key not in ("$defs", "definitions")}
        result = self._inline_refs(body, schema, frozenset())
        return {"type": "object", **result} if types_of(result) <= {"object"} else result

    def _inline_refs(self, node: Any, root: Schema, visited: frozenset[str]) -> Any:
        """A deep copy of *node* with the targets in the references' places.

        Only the references on the way to *node* are *visited*: two may share a target.
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
        found = object_at(root, *pointed(ref)) if ref.startswith("#") else None
        if found is None:
            raise ValueError("Unresolvable $ref")
        del copied["$ref"]
        return self._inline_refs(found, root, visited | {ref}) | copied


def pointed(pointer: str) -> list[str]:
    """The keys that a JSON pointer (RFC 6901) names."""
    return [key.replace("~1", "/").replace("~0", "~") for key in pointer.split("/")[1:]]


def types_of(schema: object) -> set[str]:
    """The types that what *schema* describes may be of, but for null."""
    root = object_at(schema) or {}
    if branches := root.get("anyOf"):
        return {kind for branch in branches for kind in types_of(branch)}
    named = root.get("type", "object" if "properties" in root else [])
    return {*(named if is_array(named) else [named])} - {"null"}


def properties_of(schema: Schema) -> Object:
    """The properties that *schema* names."""
    return object_at(schema, "properties") or {}


def text_property(schema: Schema) -> str | None:
    """The property that plain text goes to: the only one, or else the only required one.

    >>> city = {"properties": {"city": {"type": "string"}, "days": {}}, "required": ["city"]}
    >>> text_property(city)
    'city'
    """
    found = properties_of(schema)
    names = list(found) if len(found) == 1 else schema.get("required", [])
    return names[0] if len(names) == 1 and types_of(found.get(names[0])) == {"string"} else None
