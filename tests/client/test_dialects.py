"""Conversion from and to A2A 0.3, compared with a2a-sdk's own converters."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from a2a import types as sdk
from a2a.compat.v0_3 import conversions, types
from apcore_a2a_client import (
    AgentCard,
    Artifact,
    Message,
    Part,
    PushNotificationConfig,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskPage,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from apcore_a2a_client.codec import Model
from apcore_a2a_client.tasks import read_event
from apcore_a2a_client.v03 import params
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from .shapes import MODELS, Json, few_examples, json_of, names, shapes, values

SCHEMA = json.loads((Path(__file__).parents[1] / "data/a2a-0.3.0.schema.json").read_text())
TO_OLD: dict[type[Model], Callable[[Any], BaseModel]] = {
    Part: conversions.to_compat_part,
    Message: conversions.to_compat_message,
    TaskStatus: conversions.to_compat_task_status,
    Artifact: conversions.to_compat_artifact,
    Task: conversions.to_compat_task,
    TaskStatusUpdateEvent: conversions.to_compat_task_status_update_event,
    TaskArtifactUpdateEvent: conversions.to_compat_task_artifact_update_event,
    PushNotificationConfig: conversions.to_compat_task_push_notification_config,
}
each_model = pytest.mark.parametrize("model", TO_OLD, ids=lambda model: model.__name__)


def fit_to_0_3(message: Any) -> Any:
    """Remove or replace what 0.3 cannot express; return the same *message*."""
    if isinstance(message, sdk.Part) and message.WhichOneof("content") in ("text", "data"):
        message.ClearField("filename")
        message.ClearField("media_type")
    if isinstance(message, sdk.OAuthFlows) and message.HasField("device_code"):
        message.client_credentials.token_url = "https://x"
    if isinstance(message, sdk.AuthorizationCodeOAuthFlow):
        message.ClearField("pkce_required")
    if isinstance(message, sdk.APIKeySecurityScheme):
        message.location = "cookie"
    if isinstance(message, (sdk.AgentInterface, sdk.TaskPushNotificationConfig)):
        message.ClearField("tenant")
    for field, value in message.ListFields():
        if field.message_type and field.message_type.full_name.startswith("lf.a2a"):
            inner: Any = value if field.is_repeated else [value]
            is_map = field.message_type.GetOptions().map_entry
            for value in inner.values() if is_map else inner:
                if hasattr(value, "DESCRIPTOR"):
                    fit_to_0_3(value)
    return message


def to_json(old: BaseModel, *, nulls: bool = False) -> Json:
    """Return a 0.3 model of the SDK as JSON."""
    dump: Json = old.model_dump(mode="json", by_alias=True, exclude_none=not nulls)
    return dump


@each_model
@few_examples
@given(data=st.data(), nulls=st.booleans())
def test_objects_of_0_3_are_read_like_those_of_1_0(
    model: type[Model], data: st.DataObject, nulls: bool
) -> None:
    message = fit_to_0_3(data.draw(shapes(MODELS[model])))
    read = model.from_dict(to_json(TO_OLD[model](message), nulls=nulls))
    assert replace(read, extra={}) == model.from_dict(json_of(message))
    assert read.extra.keys() <= {"final"}


@few_examples
@given(message=shapes(sdk.AgentCard), interfaces=st.dictionaries(names, names, min_size=1))
def test_a_card_of_0_3_is_read_like_one_of_1_0(message: Any, interfaces: dict[str, str]) -> None:
    card = fit_to_0_3(message)
    del card.supported_interfaces[:]
    for url, binding in interfaces.items():
        card.supported_interfaces.add(url=url, protocol_binding=binding, protocol_version="0.3")
    for nulls in (False, True):
        read = AgentCard.from_dict(to_json(conversions.to_compat_agent_card(card), nulls=nulls))
        assert ParseDict(read.to_dict(), sdk.AgentCard(), ignore_unknown_fields=True) == card


OLD_CARD = {"name": "a", "url": "https://x/a", "protocolVersion": "0.3.0"}


def interfaces(card: Json) -> list[tuple[str, str, str]]:
    supported = AgentCard.from_dict(card).supported_interfaces
    return [(i.url, i.protocol_binding, i.protocol_version) for i in supported]


def test_the_default_binding_of_a_0_3_card_is_jsonrpc() -> None:
    assert interfaces(OLD_CARD) == [("https://x/a", "JSONRPC", "0.3.0")]
    assert interfaces({"name": "a", "url": "u"}) == [("u", "JSONRPC", "0.3")]


def test_the_version_of_a_0_3_card_may_be_null() -> None:
    assert interfaces({**OLD_CARD, "protocolVersion": None}) == [("https://x/a", "JSONRPC", "0.3")]


@pytest.mark.parametrize("preferred", [{"preferredTransport": "JSONRPC"}, {}])
def test_the_main_url_of_a_0_3_card_is_listed_once(preferred: dict[str, str]) -> None:
    additional_interfaces = [
        {"url": "https://x/a", "transport": "JSONRPC"},
        {"url": "https://x/rest", "transport": "HTTP+JSON"},
    ]
    card = {**OLD_CARD, **preferred, "additionalInterfaces": additional_interfaces}
    assert interfaces(card) == [
        ("https://x/a", "JSONRPC", "0.3.0"),
        ("https://x/rest", "HTTP+JSON", "0.3.0"),
    ]


def test_a_card_of_both_versions_has_the_interfaces_of_1_0() -> None:
    new = [{"url": "https://x/new", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]
    card = {**OLD_CARD, "supportedInterfaces": new}
    assert interfaces(card) == [("https://x/new", "JSONRPC", "1.0")]


def test_the_url_of_0_3_is_used_if_the_interfaces_of_1_0_are_null() -> None:
    assert interfaces({**OLD_CARD, "supportedInterfaces": None}) == interfaces(OLD_CARD)


def test_the_security_of_0_3_is_used_if_that_of_1_0_is_null() -> None:
    card = {**OLD_CARD, "security": [{"key": ["a"]}], "securityRequirements": None}
    [requirement] = AgentCard.from_dict(card).security_requirements
    assert requirement == {"schemes": {"key": {"list": ["a"]}}}


@pytest.mark.parametrize("supported", [True, False])
def test_the_extended_card_of_0_3_is_a_capability_of_1_0(supported: bool) -> None:
    card = AgentCard.from_dict({**OLD_CARD, "supportsAuthenticatedExtendedCard": supported})
    assert card.capabilities.extended_agent_card is supported


@few_examples
@given(value=values)
def test_data_of_any_type_can_be_read_from_0_3(value: Any) -> None:
    part = sdk.Part(data=ParseDict(value, Value()))
    read = Part.from_dict(to_json(conversions.to_compat_part(part)))
    assert read == Part.from_dict(json_of(part))


@pytest.mark.parametrize("kind", ["task", "message", "status_update", "artifact_update"])
@few_examples
@given(data=st.data())
def test_an_event_of_0_3_is_read_like_one_of_1_0(kind: str, data: st.DataObject) -> None:
    message_type: Any = type(getattr(sdk.StreamResponse(), kind))
    event = fit_to_0_3(data.draw(shapes(message_type)))
    response = sdk.StreamResponse(**{kind: event})
    read = read_event(to_json(conversions.to_compat_stream_response(response).result))
    assert replace(read, extra={}) == read_event(json_of(response))


def test_the_last_event_of_0_3_keeps_its_final_flag() -> None:
    event = {"kind": "status-update", "taskId": "t", "status": {"state": "working"}, "final": True}
    assert read_event(event).extra == {"final": True}


def test_null_members_of_an_event_are_ignored() -> None:
    message = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "hi"}]}
    assert read_event({"task": None, "message": message}) == Message.from_dict(message)


def test_a_push_config_of_0_3_may_have_no_scheme_or_several() -> None:
    config: Json = {"url": "https://x", "authentication": {"schemes": [], "credentials": "c"}}
    data = {"taskId": "t", "pushNotificationConfig": config}
    assert PushNotificationConfig.from_dict(data).authentication is None
    config["authentication"]["schemes"] = ["Basic", "Bearer"]
    read = PushNotificationConfig.from_dict(data).authentication
    assert read
    assert (read.scheme, read.credentials) == ("Basic", "c")


@cache
def validator(kind: type[BaseModel]) -> jsonschema.Draft7Validator:
    """Return a validator for *kind* in the protocol's schema."""
    return jsonschema.Draft7Validator({**SCHEMA, "$ref": f"#/definitions/{kind.__name__}"})


def read_by_sdk(operation: str, request: Any, kind: type[BaseModel]) -> Any:
    """Return the 0.3 params for *request* as the SDK reads them, validated against the schema."""
    converted = params(operation, json_of(request))
    validator(kind).validate(converted)
    assert to_json(kind.model_validate(converted)).keys() == converted.keys()
    return kind.model_validate(converted)


@few_examples
@given(request=shapes(sdk.SendMessageRequest))
def test_a_message_for_0_3_keeps_its_content(request: Any) -> None:
    request = fit_to_0_3(request)
    request.ClearField("tenant")
    if request.configuration.HasField("task_push_notification_config"):
        request.configuration.task_push_notification_config.ClearField("task_id")
    read = read_by_sdk("SendMessage", request, types.MessageSendParams)
    old = types.SendMessageRequest(id=1, params=read)
    assert conversions.to_core_send_message_request(old) == request


@few_examples
@given(request=shapes(sdk.TaskPushNotificationConfig))
def test_a_push_config_for_0_3_keeps_its_content(request: Any) -> None:
    request = fit_to_0_3(request)
    request.task_id = request.task_id or "t"
    read = read_by_sdk(
        "CreateTaskPushNotificationConfig", request, types.TaskPushNotificationConfig
    )
    assert conversions.to_core_task_push_notification_config(read) == request


GET_CONFIG = sdk.GetTaskPushNotificationConfigRequest
DELETE_CONFIG = sdk.DeleteTaskPushNotificationConfigRequest


@pytest.mark.parametrize(
    ("operation", "request_of_1_0", "request_type_of_0_3", "convert"),
    [
        (
            "GetTask",
            sdk.GetTaskRequest(id="t", history_length=3),
            types.GetTaskRequest,
            conversions.to_core_get_task_request,
        ),
        (
            "GetTask",
            sdk.GetTaskRequest(id="t"),
            types.GetTaskRequest,
            conversions.to_core_get_task_request,
        ),
        (
            "CancelTask",
            sdk.CancelTaskRequest(id="t", metadata={"a": 1}),
            types.CancelTaskRequest,
            conversions.to_core_cancel_task_request,
        ),
        (
            "SubscribeToTask",
            sdk.SubscribeToTaskRequest(id="t"),
            types.TaskResubscriptionRequest,
            conversions.to_core_subscribe_to_task_request,
        ),
        (
            "GetTaskPushNotificationConfig",
            GET_CONFIG(task_id="t", id="p"),
            types.GetTaskPushNotificationConfigRequest,
            conversions.to_core_get_task_push_notification_config_request,
        ),
        (
            "DeleteTaskPushNotificationConfig",
            DELETE_CONFIG(task_id="t", id="p"),
            types.DeleteTaskPushNotificationConfigRequest,
            conversions.to_core_delete_task_push_notification_config_request,
        ),
        (
            "ListTaskPushNotificationConfigs",
            sdk.ListTaskPushNotificationConfigsRequest(task_id="t"),
            types.ListTaskPushNotificationConfigRequest,
            conversions.to_core_list_task_push_notification_config_request,
        ),
    ],
)
def test_a_request_for_0_3_keeps_its_content(
    operation: str, request_of_1_0: Any, request_type_of_0_3: Any, convert: Any
) -> None:
    request = {"id": 1, "params": params(operation, json_of(request_of_1_0))}
    assert convert(request_type_of_0_3.model_validate(request)) == request_of_1_0
    method = request_type_of_0_3.model_fields["method"].default
    full_request = {**request, "jsonrpc": "2.0", "method": method}
    validator(request_type_of_0_3).validate(full_request)


def test_the_parameters_for_listing_tasks_are_translated_for_0_3() -> None:
    request = {"contextId": "c", "status": TaskState.INPUT_REQUIRED.wire, "pageSize": 5}
    old = {"contextId": "c", "status": "input-required", "limit": 5, "cursor": "n"}
    assert params("ListTasks", {**request, "pageToken": "n"}) == old


def test_a_page_of_tasks_is_read_in_both_versions() -> None:
    new = {"tasks": [{"id": "t", "status": {"state": "TASK_STATE_WORKING"}}], "nextPageToken": "n"}
    old = {"tasks": [{"id": "t", "status": {"state": "working"}, "kind": "task"}]}
    assert TaskPage.from_dict({**old, "nextCursor": "n"}) == TaskPage.from_dict(new)


def test_unknown_fields_are_sent_to_0_3() -> None:
    part = Part(text="hi", extra={"new": 1})
    message = Message((part,), Role.USER, extra={"x": 2})
    converted = params("SendMessage", {"message": message.to_dict()})
    assert converted["message"]["x"] == 2
    assert converted["message"]["parts"] == [{"kind": "text", "text": "hi", "new": 1}]


def test_conversion_does_not_change_its_input() -> None:
    request = {
        "message": Message.of([1, "a", b"b"]).to_dict(),
        "configuration": {"taskPushNotificationConfig": {"url": "u"}, "returnImmediately": True},
    }
    before = json.dumps(request)
    params("SendMessage", request)
    assert json.dumps(request) == before
