"""Messages of a2a-sdk in every shape, drawn by hypothesis from protobuf descriptors."""

from functools import cache
from typing import Any

import apcore_a2a_client as ours
from a2a import types as sdk
from apcore_a2a_client.codec import Model
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

Json = dict[str, Any]
Strategy = st.SearchStrategy[Any]

MODELS: dict[type[Model], Any] = {
    ours.AgentCapabilities: sdk.AgentCapabilities,
    ours.AgentCard: sdk.AgentCard,
    ours.AgentExtension: sdk.AgentExtension,
    ours.AgentInterface: sdk.AgentInterface,
    ours.AgentProvider: sdk.AgentProvider,
    ours.AgentSkill: sdk.AgentSkill,
    ours.Artifact: sdk.Artifact,
    ours.AuthenticationInfo: sdk.AuthenticationInfo,
    ours.Message: sdk.Message,
    ours.Part: sdk.Part,
    ours.PushNotificationConfig: sdk.TaskPushNotificationConfig,
    ours.SecurityScheme: sdk.SecurityScheme,
    ours.Task: sdk.Task,
    ours.TaskArtifactUpdateEvent: sdk.TaskArtifactUpdateEvent,
    ours.TaskPage: sdk.ListTasksResponse,
    ours.TaskStatus: sdk.TaskStatus,
    ours.TaskStatusUpdateEvent: sdk.TaskStatusUpdateEvent,
}
"""Our models and their counterparts in the SDK."""

few_examples = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
names = texts.filter(bool)
floats = st.floats(allow_nan=False, allow_infinity=False).map(lambda x: x or 0.0)  # no -0.0
values: Strategy = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | floats | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
WELL_KNOWN: dict[str, Strategy] = {
    "google.protobuf.Value": values.map(lambda value: ParseDict(value, Value())),
    "google.protobuf.Struct": st.dictionaries(texts, values, min_size=1, max_size=2).map(
        lambda value: ParseDict(value, Struct())
    ),
    "google.protobuf.Timestamp": st.builds(
        Timestamp, seconds=st.integers(0, 2**32), nanos=st.integers(0, 999_999_999)
    ),
}


@cache
def shapes(kind: Any) -> Strategy:
    """Return a strategy for messages of the class *kind*.

    Outside of oneofs, a field with presence is never set to its default (`""`, false, `{}`).
    """
    required: dict[str, Strategy] = {}
    optional: dict[str, Strategy] = {}
    choices: dict[str, list[Strategy]] = {}
    for field in kind.DESCRIPTOR.fields:
        value = _values(field)
        if _in_oneof(field):
            chosen = st.fixed_dictionaries({field.name: value})
            choices.setdefault(field.containing_oneof.name, []).append(chosen)
        else:
            (required if is_required(field) else optional)[field.name] = value
    plain: Strategy = st.fixed_dictionaries(required, optional=optional)
    for alternatives in choices.values():
        plain = st.builds(lambda a, b: {**a, **b}, plain, st.one_of(alternatives))
    return plain.map(lambda members: kind(**members))


def is_required(field: Any) -> bool:
    """Return whether the annotation in the protocol's `.proto` requires the field."""
    options = dict(field.GetOptions().ListFields()).items()
    required = 2  # google.api.FieldBehavior.REQUIRED
    return any(o.name == "field_behavior" and required in value for o, value in options)


def _in_oneof(field: Any) -> bool:
    """Return whether the field is one of several, only one of which is set."""
    return bool(field.containing_oneof) and len(field.containing_oneof.fields) > 1


def _values(field: Any) -> Strategy:
    kind = field.message_type
    if kind and kind.GetOptions().map_entry:
        return st.dictionaries(names, _single(kind.fields_by_name["value"]), max_size=2)
    return st.lists(_single(field), max_size=2) if field.is_repeated else _single(field)


def _single(field: Any) -> Strategy:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        name = field.message_type.full_name
        if name in WELL_KNOWN:
            return WELL_KNOWN[name]
        nested = shapes(field.message_type._concrete_class)
        # an empty message equals an unset field, except in a oneof
        return nested if _in_oneof(field) else nested.filter(lambda message: message.ByteSize() > 0)
    if field.type == FieldDescriptor.TYPE_STRING:
        nonempty = is_required(field) or (field.has_presence and not _in_oneof(field))
        return names if nonempty else texts
    if field.type == FieldDescriptor.TYPE_BOOL:
        return st.just(True) if field.has_presence else st.booleans()
    if field.type == FieldDescriptor.TYPE_ENUM:
        return st.sampled_from([number for number in field.enum_type.values_by_number if number])
    if field.type == FieldDescriptor.TYPE_BYTES:
        return st.binary(max_size=8)
    return st.integers(1, 2**31 - 1)


def json_of(message: Any) -> Json:
    """Return the JSON of A2A 1.0 as the SDK writes it."""
    return MessageToDict(message)
