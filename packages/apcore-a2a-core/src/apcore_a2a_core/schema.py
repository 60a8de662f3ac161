"""JSON Schemas of modules: made free of references, and asked where plain text goes."""

from collections.abc import Mapping
from typing import Any, TypeGuard

Object = dict[str, Any]
Schema = Mapping[str, Any]
DEFINITIONS = ("$defs", "definitions")
ROOTS = {"type", "anyOf", "oneOf", "allOf", "not", "if", "enum", "const"}
"""What says already, or may say, what the root of a schema is."""


def is_object(value: object) -> TypeGuard[Object]:
    """Whether *value* is a JSON object."""
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[Any]]:
    """Whether *value* is a JSON array."""
    return isinstance(value, list)


def schema_of(descriptor: object, name: str) -> Object:
    """The schema that *descriptor* has under *name*; empty when it has none."""
    schema = getattr(descriptor, name, None)
    return schema if is_object(schema) else {}


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
        return self._convert(schema_of(descriptor, "input_schema"))

    def convert_output_schema(self, descriptor: object) -> Object:
        """The output schema without references; see `convert_input_schema`."""
        return self._convert(schema_of(descriptor, "output_schema"))

    def detect_root_type(self, schema: Schema | None) -> str:
        """``"string"``, ``"object"`` or ``"unknown"``."""
        root = dereferenced(schema, schema or {})
        if is_string(root, root):
            return "string"
        return "object" if "properties" in root or "object" in types_of(root) else "unknown"

    def _convert(self, schema: Schema) -> Object:
        if not schema:
            return {"type": "object", "properties": {}}
        body = {key: value for key, value in schema.items() if key not in DEFINITIONS}
        result = self._inline_refs(body, schema, 0, frozenset())
        return result if ROOTS & result.keys() else {"type": "object", **result}

    def _inline_refs(self, node: Any, root: Schema, depth: int, visited: frozenset[str]) -> Any:
        """A deep copy of *node* with the targets in the references' places.

        Only the references on the way to *node* are *visited*: two may share a target.
        """
        if is_array(node):
            return [self._inline_refs(item, root, depth, visited) for item in node]
        if not is_object(node):
            return node
        copied = {k: self._inline_refs(v, root, depth, visited) for k, v in node.items()}
        ref = copied.get("$ref")
        if not isinstance(ref, str):
            return copied
        if ref in visited:
            raise ValueError("Circular $ref detected")
        if depth >= self.MAX_DEPTH:
            raise ValueError("Schema $ref depth limit exceeded")
        found = resolve(ref, root)
        if found is None:
            raise ValueError("Unresolvable $ref")
        target = self._inline_refs(found, root, depth + 1, visited | {ref})
        del copied["$ref"]
        return target | copied


def pointed(pointer: str) -> list[str]:
    """The keys that a JSON pointer (RFC 6901) names."""
    return [key.replace("~1", "/").replace("~0", "~") for key in pointer.split("/")[1:]]


def resolve(ref: str, root: Schema) -> Object | None:
    """The object that the reference *ref*, ``#`` and a pointer, leads to in *root*."""
    node: Any = root if ref.startswith("#") else None
    for key in pointed(ref):
        node = node.get(key) if is_object(node) else None
    return node if is_object(node) else None


def dereferenced(node: object, root: Schema) -> Object:
    """The schema *node*, or what its reference leads to; empty when that is nowhere."""
    if is_object(node) and "$ref" in node:
        node = resolve(str(node["$ref"]), root)
    return node if is_object(node) else {}


def types_of(schema: Schema) -> list[Any]:
    """The types that *schema* names at its top."""
    kinds = schema.get("type", [])
    return kinds if is_array(kinds) else [kinds]


def is_string(schema: Schema, root: Schema) -> bool:
    """Whether *schema* takes text, and beside it nothing but null."""
    branches = [dereferenced(branch, root) for branch in schema.get("anyOf") or [schema]]
    found = {kind for branch in branches for kind in types_of(branch)}
    return "string" in found and found <= {"string", "null"}


def properties_of(schema: Schema) -> Object:
    """The properties that *schema* names."""
    return dereferenced(schema, schema).get("properties") or {}


def text_property(schema: Schema | None) -> str | None:
    """The property that plain text goes to: the only one, or else the only required one.

    >>> city = {"properties": {"city": {"type": "string"}, "days": {}}, "required": ["city"]}
    >>> text_property(city)
    'city'
    """
    root = schema or {}
    found = properties_of(root)
    required: list[str] = dereferenced(root, root).get("required") or []
    names = list(found) if len(found) == 1 else required
    if len(names) != 1:
        return None
    return names[0] if is_string(dereferenced(found.get(names[0]), root), root) else None
