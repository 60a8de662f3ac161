"""The models compared with a2a-sdk's messages, and rules for all of them."""

from dataclasses import FrozenInstanceError, fields
from typing import Any

import apcore_a2a_client
import pytest
from a2a import types as sdk
from apcore_a2a_client import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentSkill,
    Artifact,
    AuthenticationInfo,
    Message,
    Part,
    PushNotificationConfig,
    Restarted,
    Role,
    SecurityScheme,
    Task,
    TaskArtifactUpdateEvent,
    TaskPage,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from apcore_a2a_client.codec import Model, dump, load
from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st

from .shapes import MODELS, Json, few_examples, json_of, shapes

each_model = pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)


def read_by_sdk(model: Model) -> Any:
    """Return *model* as the SDK reads its JSON; the SDK refuses unknown fields."""
    return ParseDict(model.to_dict(), MODELS[type(model)]())


def test_every_public_model_is_compared_with_the_sdk() -> None:
    public = [getattr(apcore_a2a_client, name) for name in apcore_a2a_client.__all__]
    models = {p for p in public if isinstance(p, type) and issubclass(p, Model)}
    assert models - {Restarted} == set(MODELS)  # made by the client, not sent by agents


@each_model
@few_examples
@given(data=st.data())
def test_a_model_is_read_and_written_like_its_sdk_message(
    model: type[Model], data: st.DataObject
) -> None:
    message = data.draw(shapes(MODELS[model]))
    read = model.from_dict(json_of(message))
    assert read_by_sdk(read) == message
    assert model.from_dict(load(dump(read.to_dict()))) == read
    nulls = {field.json_name: None for field in message.DESCRIPTOR.fields}
    assert read_by_sdk(model.from_dict(nulls | json_of(message))) == message


PART = Part(text="hi", metadata={"n": 1})
MESSAGE = Message((PART,), Role.AGENT, "m", "c", "t", {"a": []}, ("https://x",), ("t0",))
STATUS = TaskStatus(TaskState.INPUT_REQUIRED, MESSAGE, "2026-01-02T03:04:05Z")
ARTIFACT = Artifact("a", (Part(data={"n": 5}), Part(raw=b"\x00\xff", filename="f")), "n", "d")
TASK = Task("t", STATUS, "c", (ARTIFACT,), (MESSAGE,), {"k": None})
PUSH = PushNotificationConfig(
    task_id="t",
    url="https://x",
    id="p",
    token="a-token",
    authentication=AuthenticationInfo("Bearer", "a-secret"),
)
SCHEMES = {
    "key": SecurityScheme("apiKey", "d", location="header", name="X-Key"),
    "http": SecurityScheme("http", scheme="bearer", bearer_format="JWT"),
    "oauth": SecurityScheme(
        "oauth2", oauth2_metadata_url="https://m", flows={"password": {"tokenUrl": "https://t"}}
    ),
    "oidc": SecurityScheme("openIdConnect", open_id_connect_url="https://o"),
    "mtls": SecurityScheme("mutualTLS"),
}
CARD = AgentCard(
    "agent",
    supported_interfaces=(AgentInterface("https://x", "GRPC", "1.0", "tenant"),),
    capabilities=AgentCapabilities(
        True, extensions=(AgentExtension("https://e", params={"a": 1}),)
    ),
    skills=(AgentSkill("s", security_requirements=({"schemes": {"mtls": {}}},)),),
    security_schemes=SCHEMES,
)
INSTANCES = [
    *(Part(text=""), Part(data=None), Part(data=0), Part(raw=b""), Part(url="")),
    *(PART, MESSAGE, Message(), STATUS, ARTIFACT, Artifact(), TASK, PUSH, CARD, *SCHEMES.values()),
    TaskStatusUpdateEvent("t", STATUS, "c", {"n": 1}),
    TaskArtifactUpdateEvent("t", ARTIFACT, append=True, last_chunk=True),
    *(TaskPage(), TaskPage((TASK,), "next", 0, 7)),
]


@pytest.mark.parametrize("instance", INSTANCES, ids=lambda model: type(model).__name__)
def test_an_instance_survives_a_round_trip_through_json_and_the_sdk(instance: Model) -> None:
    assert type(instance).from_dict(load(dump(instance.to_dict()))) == instance
    assert type(instance).from_dict(json_of(read_by_sdk(instance))).to_dict() == without_zeros(
        instance.to_dict()
    )


def without_zeros(written: Json) -> Json:
    """Return *written* without zero numbers, which the SDK drops as defaults."""
    return {k: v for k, v in written.items() if v != 0 or isinstance(v, bool) or k == "data"}


@pytest.mark.parametrize("kind", SCHEMES)
def test_each_type_of_security_scheme_maps_to_its_sdk_field(kind: str) -> None:
    names = {
        "key": "api_key_security_scheme",
        "http": "http_auth_security_scheme",
        "oauth": "oauth2_security_scheme",
        "oidc": "open_id_connect_security_scheme",
        "mtls": "mtls_security_scheme",
    }
    scheme = ParseDict(SCHEMES[kind].to_dict(), sdk.SecurityScheme())
    assert scheme.WhichOneof("scheme") == names[kind]


@pytest.mark.parametrize("number", [2**53 + 1, -(2**63), 10**30, 0, True, 0.1])
def test_numbers_keep_their_value_and_type(number: Any) -> None:
    part = Part.from_dict(load(dump(Part(data=[number], metadata={"n": number}).to_dict())))
    assert part == Part(data=[number], metadata={"n": number})
    assert type(part.data[0]) is type(part.metadata["n"]) is type(number)


def test_text_is_not_changed() -> None:
    text = 'é \U0001f600 \u2028 \x00 " \\'
    assert Part.from_dict(load(dump(Part(text=text).to_dict()))).text == text


UNKNOWN: Json = {"unknown": [{"deep": None}]}


@pytest.mark.parametrize(
    ("model", "data"),
    [
        (Part, {"text": "hi", **UNKNOWN}),
        (Task, {"id": "t", "status": {"state": "TASK_STATE_WORKING", **UNKNOWN}, **UNKNOWN}),
        (
            Message,
            {"messageId": "m", "role": "ROLE_USER", "parts": [{"url": "", **UNKNOWN}], **UNKNOWN},
        ),
        (
            AgentCard,
            {"name": "a", "capabilities": UNKNOWN, "skills": [{"id": "s", **UNKNOWN}], **UNKNOWN},
        ),
        (AgentCard, {"name": "a", "securitySchemes": {"m": {"mtlsSecurityScheme": UNKNOWN}}}),
        (TaskPage, {"tasks": [{"id": "t", "status": {"state": "TASK_STATE_FAILED"}, **UNKNOWN}]}),
    ],
)
def test_unknown_fields_are_kept_and_written_back(model: type[Model], data: Json) -> None:
    assert model.from_dict(data).to_dict() == data


def test_unknown_fields_are_available_as_extra() -> None:
    assert Part.from_dict({"text": "hi", **UNKNOWN}).extra == UNKNOWN


def test_models_are_frozen_and_have_slots() -> None:
    for instance in INSTANCES:
        assert not hasattr(instance, "__dict__")
        for field in fields(instance):
            with pytest.raises(FrozenInstanceError):
                setattr(instance, field.name, None)
        with pytest.raises((FrozenInstanceError, TypeError)):
            instance.other = 1  # type: ignore[attr-defined]  # missing on purpose


def test_reading_does_not_change_its_input() -> None:
    data = {
        "taskId": "t",
        "pushNotificationConfig": {"url": "u", "authentication": {"schemes": []}},
    }
    copy = load(dump(data))
    PushNotificationConfig.from_dict(data)
    assert data == copy


def test_reprs_contain_no_secrets() -> None:
    text = repr(PUSH) + str(PUSH) + repr([PUSH.authentication])
    assert "a-token" not in text
    assert "a-secret" not in text
    assert "a-secret" not in repr(
        PushNotificationConfig.from_dict({**PUSH.to_dict(), "x": "a-secret"})
    )


def test_a_state_is_terminal_paused_or_neither() -> None:
    properties = {
        state: (state.is_terminal, state.is_paused, state.is_settled) for state in TaskState
    }
    terminal_states = {"completed", "failed", "canceled", "rejected"}
    assert {s for s, (terminal, _, _) in properties.items() if terminal} == terminal_states
    assert {s for s, (_, paused, _) in properties.items() if paused} == {
        "input-required",
        "auth-required",
    }
    assert all(settled == (terminal or paused) for terminal, paused, settled in properties.values())


def test_states_and_roles_have_the_names_of_the_sdk() -> None:
    assert {state.wire for state in TaskState} == set(sdk.TaskState.keys())
    assert {role.wire for role in Role} == set(sdk.Role.keys())
