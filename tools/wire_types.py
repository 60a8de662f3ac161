"""Write the types of A2A that the explorer checks requests and responses against.

Usage: python tools/wire_types.py [FILE]

They come from the protobuf definition of A2A 1.0, and from the JSON schema of 0.3. The type of an
object maps each member to its type, which ends with `!` if the member is required. The extra key
`?` lists members; exactly one of them must be present. Other types are strings: `string`, `Part[]`
for a list, `string{}` for a map, `=user` for a constant, and `Task|Message` for alternatives.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from a2a.types import a2a_pb2
from google.api import field_behavior_pb2  # type: ignore[import-untyped]  # has no types

ROOT = Path(__file__).parents[1]
FILE = ROOT / "packages/apcore-a2a-explorer/web/src/protocol/wireTypes.json"
SCHEMA_0_3 = ROOT / "tests/data/a2a-0.3.0.schema.json"
WELL_KNOWN = {"Struct": "object", "Value": "any", "ListValue": "any[]", "Timestamp": "string"}
"""Types of protobuf itself, and the types of their JSON (ProtoJSON)."""
NUMBERS = ("DOUBLE", "FLOAT", "INT32", "UINT32")

Types = dict[str, Any]


def types_1_0() -> tuple[Types, Types]:
    """Return all types by name, and the parameter and result types of each method."""
    types: Types = {}
    methods: Types = {}
    for method in a2a_pb2.DESCRIPTOR.services_by_name["A2AService"].methods:
        methods[method.name] = [
            _add_message(kind, types) for kind in (method.input_type, method.output_type)
        ]
    return types, methods


def _add_message(message: Any, types: Types) -> str:
    """Add the types of a message and of its members to *types*; return the message's type."""
    if message.full_name == "google.protobuf.Empty":
        return "object|null"
    name: str = message.name
    if name not in types:
        types[name] = {}
        types[name] |= dict(_members(message, types))
        for group in message.oneofs:
            if not group.name.startswith("_"):  # a group "_name" stands for an optional field
                types[name]["?"] = [field.json_name for field in group.fields]
    return name


def _members(message: Any, types: Types) -> Iterator[tuple[str, str]]:
    for field in message.fields:
        behaviors = field.GetOptions().Extensions[field_behavior_pb2.field_behavior]
        is_required = field_behavior_pb2.REQUIRED in behaviors
        yield field.json_name, _field_type(field, types) + ("!" if is_required else "")


def _field_type(field: Any, types: Types) -> str:
    if field.message_type and field.message_type.GetOptions().map_entry:
        return _element_type(field.message_type.fields_by_name["value"], types) + "{}"
    return _element_type(field, types) + ("[]" if field.is_repeated else "")


def _element_type(field: Any, types: Types) -> str:
    if field.message_type:
        well_known = field.message_type.full_name.startswith("google.protobuf.")
        name: str = field.message_type.name
        return WELL_KNOWN[name] if well_known else _add_message(field.message_type, types)
    if field.enum_type:
        types[field.enum_type.name] = "|".join(f"={value.name}" for value in field.enum_type.values)
        return str(field.enum_type.name)
    kinds = {getattr(field, f"TYPE_{number}"): "number" for number in NUMBERS}
    return {**kinds, field.TYPE_BOOL: "boolean"}.get(field.type, "string")


def types_0_3() -> tuple[Types, Types]:
    """Return all types by name, and the parameter and result types of each method."""
    definitions = json.loads(SCHEMA_0_3.read_text())["definitions"]
    types: Types = {}
    methods: Types = {}
    for choice in definitions["A2ARequest"]["anyOf"]:
        name = choice["$ref"].rpartition("/")[2]
        request = definitions[name]["properties"]
        response = name.replace("Request", "SuccessResponse")
        if name == "TaskResubscriptionRequest":
            response = "SendStreamingMessageSuccessResponse"
        result = definitions[response]["properties"]["result"]
        params = _schema_type(request.get("params", {"type": "object"}), definitions, types)
        result_type = _schema_type(result, definitions, types)
        methods[request["method"]["const"]] = [params, result_type]
    return types, methods


def _schema_type(schema: Any, definitions: Any, types: Types) -> str:
    """Return the type of a schema; add the types of its references to *types*."""
    if "$ref" in schema:
        name = str(schema["$ref"].rpartition("/")[2])
        if name not in types:
            types[name] = {}
            types[name] = _definition_type(definitions[name], definitions, types)
        return name
    if "anyOf" in schema:
        return "|".join(_schema_type(option, definitions, types) for option in schema["anyOf"])
    if "const" in schema or "enum" in schema:
        return "|".join(f"={value}" for value in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type", "any")
    if kind == "array":
        return _schema_type(schema["items"], definitions, types) + "[]"
    if kind == "object" and schema.get("additionalProperties"):
        return _schema_type(schema["additionalProperties"], definitions, types) + "{}"
    return "|".join(kind) if isinstance(kind, list) else kind


def _definition_type(definition: Any, definitions: Any, types: Types) -> Any:
    if "properties" not in definition:
        return _schema_type(definition, definitions, types)
    required = definition.get("required", [])
    return {
        name: _schema_type(member, definitions, types) + ("!" if name in required else "")
        for name, member in definition["properties"].items()
    }


def wire_types() -> dict[str, Any]:
    """Return the types and methods of both versions."""
    versions = {"1.0": types_1_0(), "0.3": types_0_3()}
    return {
        version: {"methods": methods, "types": types}
        for version, (types, methods) in versions.items()
    }


if __name__ == "__main__":
    path = Path(sys.argv[1]) if sys.argv[1:] else FILE
    path.write_text(json.dumps(wire_types(), indent=1, sort_keys=True) + "\n")
