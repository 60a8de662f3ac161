"""Canonical forms of Agent Cards: the JSON that signatures cover (A2A 1.0 §8.4.1).

There are two forms. The specification's form leaves out fields with their default value, except
REQUIRED fields and `optional` fields that are set. It keeps all values inside a `Struct`, such as
the `params` of an extension. The SDK's form (`a2a.utils.signing`) leaves out null, "", {} and []
everywhere.
"""

from typing import Any, NamedTuple

import rfc8785
from a2a.types import AgentCard
from apcore_a2a_core.data import Json
from apcore_a2a_core.sdk import json_of
from apcore_a2a_core.values import is_array, is_object, to_json
from google.api import field_behavior_pb2  # type: ignore[import-untyped]  # no py.typed
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.json_format import Error, MessageToDict, ParseDict

MAX_DEPTH = 100
"""Maximum nesting depth of the JSON of a card."""


class CanonicalForm(NamedTuple):
    """A canonical form of a card.

    Attributes:
        payload: The form in canonical JSON (RFC 8785), as it is signed.
        members: The members of the card that the form covers, as JSON.
    """

    payload: bytes
    members: Json


def canonical_forms(card: Json) -> list[CanonicalForm]:
    """Return the forms of *card*: the specification's, and the SDK's if it differs.

    Both leave out `signatures` and members that A2A 1.0 does not define. The SDK's form also leaves
    out empty values, so it does not cover them.

    Raises:
        ValueError: *card* is not the JSON of a card of A2A 1.0.
    """
    unsigned = {name: value for name, value in card.items() if name != "signatures"}
    try:
        message = ParseDict(unsigned, AgentCard(), ignore_unknown_fields=True)
        members = json_of(message)
        cleaned_members: Json = _without_empty_values(members) or {}
        forms = [
            _canonical_form(_specification_members(message), members),
            _canonical_form(cleaned_members, cleaned_members),
        ]
    except (Error, RecursionError) as error:
        raise ValueError(str(error)) from None
    return forms if forms[0].payload != forms[1].payload else forms[:1]


def _canonical_form(signed: Json, covered: Json) -> CanonicalForm:
    return CanonicalForm(rfc8785.dumps(signed), to_json(covered, max_depth=MAX_DEPTH))


def _specification_members(message: AgentCard) -> Json:
    members = MessageToDict(message, always_print_fields_with_no_presence=True)
    del members["signatures"]
    descriptor: Any = message.DESCRIPTOR  # typed as a union of two classes of descriptors
    return _without_defaults(members, descriptor)


def _without_defaults(members: Json, descriptor: Descriptor) -> Json:
    """Return *members*, the ProtoJSON of a message, without fields that have their default value.

    REQUIRED fields are kept, even with their default, as are `optional` fields that are set.
    """
    return {
        field.json_name: _without_nested_defaults(value, field)
        for field in descriptor.fields
        if (value := members.get(field.json_name))
        or (field.json_name in members and (field.has_presence or _is_required(field)))
    }


def _is_required(field: FieldDescriptor) -> bool:
    options: Any = field.GetOptions()
    return field_behavior_pb2.REQUIRED in options.Extensions[field_behavior_pb2.field_behavior]


def _without_nested_defaults(value: Any, field: FieldDescriptor) -> Any:
    descriptor = field.message_type
    # a scalar, or a type such as Struct
    if descriptor is None or descriptor.full_name.startswith("google.protobuf."):
        return value
    if descriptor.GetOptions().map_entry:
        value_field = descriptor.fields_by_name["value"]
        return {key: _without_nested_defaults(value[key], value_field) for key in value}
    if field.is_repeated:
        return [_without_defaults(item, descriptor) for item in value]
    return _without_defaults(value, descriptor)


def _without_empty_values(value: Any) -> Any:
    """Return *value* without null, "", {} and [] at any depth; None if nothing remains."""
    if is_object(value):
        members = {name: _without_empty_values(member) for name, member in value.items()}
        return {name: member for name, member in members.items() if member is not None} or None
    if is_array(value):
        items = map(_without_empty_values, value)
        return [item for item in items if item is not None] or None
    return None if value == "" else value  # false and 0 remain
