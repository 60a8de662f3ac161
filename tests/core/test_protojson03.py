"""The JSON of HTTP+JSON in A2A 0.3."""

from typing import Any

import pytest
from a2a import types as a2a
from a2a.compat.v0_3 import a2a_v0_3_pb2, conversions, proto_utils
from a2a.utils.errors import InvalidParamsError
from apcore_a2a_core import data, from_sdk, to_sdk
from apcore_a2a_core.dialects import decode
from apcore_a2a_core.dialects.protojson03 import (
    V03ProtoJson,
    read_push_config,
    read_send,
    write_push_config,
)
from apcore_a2a_core.states import TERMINAL
from google.protobuf.json_format import MessageToDict, ParseDict

DIALECT = V03ProtoJson()
TEXT = {"text": "hello"}
CONTENT: list[dict[str, Any]] = [
    {"text": "hello", "metadata": {"data": 1}},
    {"data": {"data": {"n": 2**53 + 1, "file_with_uri": "stays"}}},
    {"data": {"data": {}}},
    {"file": {"fileWithBytes": "aGk=", "mimeType": "text/plain", "name": "a.txt"}},
    {"file": {"file_with_uri": "https://a.example/b", "mime_type": "text/plain"}},
]


def test_parts_in_protojson_are_read_like_those_of_the_specification() -> None:
    params = read_send({"message": {"messageId": "m", "role": "ROLE_USER", "content": CONTENT}})

    assert params["message"]["parts"] == [
        {"text": "hello", "metadata": {"data": 1}},
        {"data": {"n": 2**53 + 1, "file_with_uri": "stays"}},
        {"data": {}},
        {"file": {"bytes": "aGk=", "mimeType": "text/plain", "name": "a.txt"}},
        {"file": {"uri": "https://a.example/b", "mimeType": "text/plain"}},
    ]
    message = to_sdk(decode(data.SendMessageRequest, params, version="0.3")).message
    assert [part.WhichOneof("content") for part in message.parts] == [
        "text",
        "data",
        "data",
        "raw",
        "url",
    ]


@pytest.mark.parametrize("proto_names", [False, True])
def test_a_request_of_the_sdk_in_protojson_is_read_without_loss(proto_names: bool) -> None:
    send_request = a2a.SendMessageRequest(
        message=a2a.Message(
            message_id="m",
            context_id="c",
            task_id="t",
            role=a2a.Role.ROLE_USER,
            parts=[a2a.Part(text="hello"), a2a.Part(url="https://a.example/b")],
            metadata={"context_id": 1},
        ),
        configuration={"return_immediately": True, "accepted_output_modes": ["text/plain"]},
        metadata={"skillId": "work"},
    )
    config = send_request.configuration.task_push_notification_config
    config.url, config.id, config.token = "https://a.example/hook", "h", "secret"
    compat_request = conversions.to_compat_send_message_request(send_request, request_id=0)
    proto = a2a_v0_3_pb2.SendMessageRequest(
        request=proto_utils.ToProto.message(compat_request.params.message),
        configuration=proto_utils.ToProto.message_send_configuration(
            compat_request.params.configuration
        ),
        metadata=proto_utils.ToProto.metadata(compat_request.params.metadata),
    )
    body = MessageToDict(proto, preserving_proto_field_name=proto_names)

    assert to_sdk(decode(data.SendMessageRequest, read_send(body), version="0.3")) == send_request


def test_json_as_the_specification_shows_it_is_read_unchanged() -> None:
    part = {"kind": "data", "data": {"data": {"n": 1}}}
    message = {"kind": "message", "messageId": "m", "role": "user", "parts": [part]}
    body = {"message": message, "configuration": {"acceptedOutputModes": []}, "metadata": {}}

    assert read_send(body) == body


@pytest.mark.parametrize(
    ("configuration", "blocking"),
    [(None, None), ({}, False), ({"blocking": False}, False), ({"blocking": True}, True)],
)
def test_a_configuration_in_protojson_without_blocking_does_not_block(
    configuration: Any, blocking: bool | None
) -> None:
    body = {"message": {"content": [TEXT]}, "configuration": configuration}
    params = read_send({name: value for name, value in body.items() if value is not None})

    assert params.get("configuration", {}).get("blocking") is blocking


@pytest.mark.parametrize(
    "body",
    [
        {"message": {"content": [TEXT]}, "request": {"content": [TEXT]}},
        {"message": {"content": [TEXT], "parts": [TEXT]}},
        {"message": {"content": [{"file": {"fileWithUri": "a", "file_with_uri": "b"}}]}},
        {
            "message": {"content": [TEXT]},
            "configuration": {"pushNotification": {}, "pushNotificationConfig": {}},
        },
    ],
    ids=str,
)
def test_a_member_under_two_names_is_refused(body: Any) -> None:
    with pytest.raises(InvalidParamsError, match="must not be given under two names"):
        read_send(body)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"message": None},
        {"message": {"content": None}},
        {"message": {"content": {}}},
        {"message": {"content": [5]}},
        {"message": {"content": [{}]}},
        {"message": {"content": [{"data": {"data": 5}, "file": {}}]}},
        {"message": {"content": [{"file": {"fileWithBytes": 5}}]}},
        {"message": {"content": [TEXT], "role": "ROLE_USER"}},
        {"message": {"content": [TEXT], "messageId": "m", "role": "ROLE_AGENT"}},
        {"request": 5},
        {"message": {"content": [TEXT]}, "configuration": 5},
    ],
    ids=str,
)
def test_a_malformed_message_is_refused(body: Any) -> None:
    with pytest.raises(InvalidParamsError):
        decode(data.SendMessageRequest, read_send(body), version="0.3")


HOOK = {"url": "https://a.example/hook", "authentication": {"schemes": ["Bearer"]}}


@pytest.mark.parametrize(
    ("body", "config_id"),
    [
        ({"parent": "tasks/t", "configId": "h", "config": {"pushNotificationConfig": HOOK}}, "h"),
        ({"config_id": "h", "config": {"push_notification_config": HOOK}}, "h"),
        ({"name": "tasks/x/pushNotificationConfigs/y", "pushNotificationConfig": HOOK}, ""),
        ({"configId": "x", "config": {"pushNotificationConfig": {**HOOK, "id": "h"}}}, "h"),
        ({"taskId": "x", "pushNotificationConfig": {**HOOK, "id": "h"}}, "h"),
        ({**HOOK, "id": "h"}, "h"),
    ],
    ids=str,
)
def test_push_configs_are_read_as_every_sdk_sends_them(body: Any, config_id: str) -> None:
    params = {**read_push_config(body), "taskId": "t"}
    config = decode(data.TaskPushNotificationConfig, params, version="0.3")

    assert (config.task_id, config.id, config.url) == ("t", config_id, HOOK["url"])
    assert config.authentication == data.AuthenticationInfo(scheme="Bearer")


def test_a_push_config_is_written_for_the_sdk() -> None:
    document = {"taskId": "t", "pushNotificationConfig": {**HOOK, "id": "h"}, "status": "active"}
    proto = ParseDict(write_push_config(document), a2a_v0_3_pb2.TaskPushNotificationConfig())

    read = proto_utils.FromProto.task_push_notification_config(proto)
    assert (read.task_id, read.push_notification_config.id) == ("t", "h")


def task() -> a2a.Task:
    return a2a.Task(
        id="t",
        context_id="c",
        status=a2a.TaskStatus(state=a2a.TaskState.TASK_STATE_CANCELED),
        artifacts=[
            a2a.Artifact(
                artifact_id="result",
                parts=[
                    a2a.Part(text="hello", media_type="text/plain"),
                    a2a.Part(data={"struct_value": {"n": 5}}),
                    a2a.Part(data={"number_value": 5}),
                    a2a.Part(url="https://a.example/b", filename="b"),
                ],
            )
        ],
        history=[
            a2a.Message(
                message_id="m",
                role=a2a.Role.ROLE_USER,
                parts=[a2a.Part(text="hi")],
                reference_task_ids=["other"],
            )
        ],
    )


def test_a_task_is_written_as_the_sdk_reads_it() -> None:
    result: Any = DIALECT.send_result(from_sdk(task()), None)
    proto = ParseDict(result, a2a_v0_3_pb2.SendMessageResponse())  # refuses unknown members

    assert result["task"]["status"] == {"state": "TASK_STATE_CANCELLED"}
    compat_task = proto_utils.FromProto.task(proto.task)
    expected = task()
    del expected.history[0].reference_task_ids[:]  # the protobuf of 0.3 has no field for them
    expected.artifacts[0].parts[0].ClearField("media_type")
    assert conversions.to_core_task(compat_task) == expected


def test_bytes_are_written_as_a_data_url() -> None:
    """SDKs for Python read `fileWithBytes` as base64 of base64, those for JavaScript as base64."""
    part = a2a.Part(raw=b"hi", media_type="text/plain", filename="a.txt")
    written: Any = DIALECT.task(from_sdk(a2a.Task(artifacts=[a2a.Artifact(parts=[part])])))

    assert written["artifacts"][0]["parts"] == [
        {
            "file": {
                "fileWithUri": "data:text/plain;base64,aGk=",
                "mimeType": "text/plain",
                "name": "a.txt",
            }
        }
    ]


@pytest.mark.parametrize(
    ("state", "is_final"),
    [("CANCELED", True), ("COMPLETED", True), ("INPUT_REQUIRED", True), ("WORKING", False)],
)
def test_a_status_update_says_whether_it_is_the_last(state: str, is_final: bool) -> None:
    status = data.TaskStatus(state=data.TaskState(f"TASK_STATE_{state}"))
    update = data.TaskStatusUpdateEvent(task_id="t", context_id="c", status=status)
    event: Any = DIALECT.event(update)

    assert event["statusUpdate"]["final"] is is_final
    subscribed: Any = DIALECT.event(update, until=TERMINAL)
    assert subscribed["statusUpdate"]["final"] is (is_final and state != "INPUT_REQUIRED")
    ParseDict(event, a2a_v0_3_pb2.StreamResponse())


@pytest.mark.parametrize(
    ("code", "kind"), [(-32001, "TaskNotFoundError"), (-32602, "InvalidParamsError")]
)
def test_errors_name_their_type(code: int, kind: str) -> None:
    error = {"code": code, "message": "No"}

    assert DIALECT.error(error) == {**error, "type": kind}
    assert "type" not in DIALECT.error({"code": -32029, "message": "No"})
