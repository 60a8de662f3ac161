"""JSON Schemas of modules, and the metadata that says how to present a module over A2A."""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from itertools import count
from typing import Any

from .data import Json
from .values import is_array, is_object, object_at, object_of

Schema = Mapping[str, Any]

TEXT_FIELD = "x-text-field"
"""Keyword of an output schema that names the member to send as text."""

MAX_OBJECTS = 20_000
"""Maximum number of objects to copy while inlining the references of a schema. Copying that many
takes up to 50 ms. The number doubles with each definition that refers twice to the next."""


def overlay_of(descriptor: object) -> Json:
    """Return the module's overrides for A2A, such as its alias, description, guidance and tags."""
    return object_of(descriptor, "metadata", "display", "a2a")


def text_field_of(descriptor: object) -> str | None:
    """Return the name of the output member that clients get as text, if there is one.

    The name is set by `text_field` in the module's overlay (see `overlay_of`), or else by
    the keyword `x-text-field` of the output schema.
    """
    name = overlay_of(descriptor).get("text_field")
    name = name or object_of(descriptor, "output_schema").get(TEXT_FIELD)
    return name if isinstance(name, str) else None


class SchemaConverter:
    """A converter that inlines each `$ref`, for clients that cannot follow references.

    Args:
        keep_recursion: Whether references of recursive schemas are kept, with the definitions that
            they point to; otherwise such schemas are refused.

    >>> SchemaConverter().detect_root_type({"properties": {}})
    'object'
    """

    MAX_DEPTH = 32
    """Maximum number of nested references."""

    def __init__(self, *, keep_recursion: bool = False) -> None:
        self._keeps_recursion = keep_recursion

    def convert_input_schema(self, descriptor: object) -> Json:
        """Return the input schema with references inlined; its root is an object by default.

        Raises:
            ValueError: A reference is unresolvable, nested too deeply, or circular, or the result
                is too large; *keep_recursion* allows circular references to definitions and the
                root.
        """
        return self._convert(object_of(descriptor, "input_schema"))

    def convert_output_schema(self, descriptor: object) -> Json:
        """Return the output schema with references inlined; see `convert_input_schema`."""
        return self._convert(object_of(descriptor, "output_schema"))

    def detect_root_type(self, schema: Schema | None) -> str:
        """Return `"string"`, `"object"` or `"unknown"`."""
        types = types_of(schema)
        return next((name for name in ("string", "object") if types == {name}), "unknown")

    def _convert(self, schema: Schema) -> Json:
        if not schema:
            return {"type": "object", "properties": {}}
        body = {key: value for key, value in schema.items() if key not in DEFINITIONS}
        # with *keep_recursion*, references to the root are kept
        visited = frozenset({"#"} if self._keeps_recursion else ())
        result = self._inline_refs(body, schema, visited, count())
        if self._keeps_recursion:
            result |= definitions_for(result, schema)
        return {"type": "object", **result} if types_of(result) <= {"object"} else result

    def _inline_refs(
        self, node: Any, root: Schema, visited: frozenset[str], copies: Iterator[int]
    ) -> Any:
        """Return a deep copy of *node* with each reference replaced by its target.

        *visited* has only the references that led to *node*, since two references may share a
        target without being circular. *copies* counts the objects copied so far.
        """
        if is_array(node):
            return [self._inline_refs(item, root, visited, copies) for item in node]
        if not is_object(node):
            return node
        if next(copies) == MAX_OBJECTS:
            raise ValueError("Schema has too many objects after its references are inlined")
        copied = {k: self._inline_refs(v, root, visited, copies) for k, v in node.items()}
        ref = copied.get("$ref")
        if not isinstance(ref, str):
            return copied
        if ref in visited:
            if self._keeps_recursion:
                return copied
            raise ValueError("Circular $ref detected")
        if len(visited) == self.MAX_DEPTH:
            raise ValueError("Schema $ref depth limit exceeded")
        target = object_at(root, *keys_of_pointer(ref)) if ref.startswith("#") else None
        if target is None:
            raise ValueError("Unresolvable $ref")
        del copied["$ref"]
        return self._inline_refs(target, root, visited | {ref}, copies) | copied


SCHEMAS_BY_NAME = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
"""Keywords whose values are objects with a schema for each name."""
VALUES = ("default", "const", "enum", "examples")
"""Keywords whose values are data, even if they look like schemas."""


def map_subschemas(schema: Schema, convert: Callable[[Any], Any]) -> Json:
    """Return a copy of a schema, with each value that may hold schemas converted.

    >>> map_subschemas({"properties": {"default": 1}, "items": 2, "default": 3}, str)
    {'properties': {'default': '1'}, 'items': '2', 'default': 3}
    """
    result: Json = {}
    for keyword, value in schema.items():
        if keyword in SCHEMAS_BY_NAME and is_object(value):
            result[keyword] = {name: convert(item) for name, item in value.items()}
        else:
            result[keyword] = value if keyword in VALUES else convert(value)
    return result


def with_property_order(schema: Any) -> Any:
    """Return a copy of a schema that keeps the order of its properties in `propertyOrder`.

    An Agent Card of A2A 1.0 sorts the members of a schema by name (protobuf's `Struct`). An object
    whose properties are already sorted does not get the keyword.
    """
    if is_array(schema):
        return [with_property_order(item) for item in schema]
    if not is_object(schema):
        return schema
    result = map_subschemas(schema, with_property_order)
    properties = schema.get("properties")
    if is_object(properties) and list(properties) != sorted(properties):
        result["propertyOrder"] = list(properties)
    return result


DEFINITIONS = ("$defs", "definitions")
"""Members of a schema that hold the targets of references."""


def definitions_for(node: Any, root: Schema) -> Json:
    """Return the definitions of *root* that the references in *node* need.

    Raises:
        ValueError: A reference does not point to a definition.
    """
    definitions: Json = {}
    pending = references_in(node)
    while pending:
        ref = pending.pop()
        container, *names = keys_of_pointer(ref) or [""]
        if ref == "#" or (names and names[0] in definitions.get(container, {})):
            continue
        target = object_at(root, container, *names)
        if container not in DEFINITIONS or len(names) != 1 or target is None:
            raise ValueError("A $ref of a recursive schema must point to a definition")
        definitions.setdefault(container, {})[names[0]] = deepcopy(target)
        pending += references_in(target)
    return definitions


def references_in(node: Any) -> list[str]:
    """Return the references in a schema and its subschemas."""
    if is_array(node):
        return [ref for item in node for ref in references_in(item)]
    if not is_object(node):
        return []
    ref = node.get("$ref")
    own_refs = [ref] if isinstance(ref, str) else []
    return own_refs + [ref for value in node.values() for ref in references_in(value)]


def resolved(schema: object, root: Schema) -> Json:
    """Return *schema* with its reference, if any, replaced by the schema in *root* that it names.

    >>> root = {"$defs": {"Size": {"enum": ["S", "L"]}}}
    >>> resolved({"$ref": "#/$defs/Size", "default": "S"}, root)
    {'enum': ['S', 'L'], 'default': 'S'}
    """
    node = object_at(schema) or {}
    for _ in range(SchemaConverter.MAX_DEPTH):
        ref, all_of = node.get("$ref"), node.get("allOf")
        if isinstance(ref, str) and ref.startswith("#"):
            node = (object_at(root, *keys_of_pointer(ref)) or {}) | without(node, "$ref")
        elif is_array(all_of) and len(all_of) == 1:  # pydantic's way to add keywords to a reference
            node = (object_at(all_of[0]) or {}) | without(node, "allOf")
        else:
            break
    return node


def without(schema: Schema, keyword: str) -> Json:
    """Return *schema* without a keyword."""
    return {key: value for key, value in schema.items() if key != keyword}


def keys_of_pointer(pointer: str) -> list[str]:
    """Return the keys in a JSON pointer (RFC 6901)."""
    return [key.replace("~1", "/").replace("~0", "~") for key in pointer.split("/")[1:]]


def types_of(schema: object) -> set[str]:
    """Return the types that *schema* declares, except null."""
    root = object_at(schema) or {}
    if is_array(branches := root.get("anyOf")) and branches:
        return {kind for branch in branches for kind in types_of(branch)}
    declared = root.get("type", "object" if "properties" in root else [])
    types = declared if is_array(declared) else [declared]
    return {kind for kind in types if isinstance(kind, str)} - {"null"}


def properties_of(schema: Schema) -> Json:
    """Return the properties that *schema* declares."""
    return object_at(schema, "properties") or {}


def allows_property(name: str, schema: Schema) -> bool:
    """Return whether inputs for *schema* may have the property *name*, declared or not.

    apcore passes inputs to a decorated function as keyword arguments. The schema that apcore
    generates for a function without `**kwargs` does not exclude other properties, but is treated
    here as if it did.

    >>> allows_property("n", {}), allows_property("n", {"additionalProperties": False})
    (True, False)
    """
    is_generated = schema.get("title") == "InputModel"
    allows_others = schema.get("additionalProperties", not is_generated) is not False
    return allows_others or name in properties_of(schema)


def text_property(schema: Schema) -> str | None:
    """Return the name of the only property, or else of the only required one, if it is a string.

    >>> city = {"properties": {"city": {"type": "string"}, "days": {}}, "required": ["city"]}
    >>> text_property(city)
    'city'
    """
    properties = properties_of(schema)
    names = list(properties) if len(properties) == 1 else schema.get("required", [])
    is_text = len(names) == 1 and types_of(properties.get(names[0])) == {"string"}
    return names[0] if is_text else None
