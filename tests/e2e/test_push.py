"""Webhooks set with plain HTTP and the official SDKs, checked against the protocol."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver
from a2a.types import (
    AuthenticationInfo,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
    StreamResponse,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError
from google.protobuf.json_format import ParseDict

from tests.e2e.bindings import BindingClient, JsonRpc, OldJsonRpc, Rest, schema_of
from tests.e2e.environments import python_environment
from tests.e2e.programs import run_steps
from tests.e2e.test_schema import code, message
from tests.e2e.test_sdk_v1 import BINDINGS, Clients, request_to
from tests.e2e.wire import Json
from tests.push.receiver import Receiver, Reply, receiving
from tests.server.conftest import eventually

UNREACHABLE = "http://127.0.0.1:9/hook"
STATES = ["submitted", "working", "completed"]


@pytest.fixture
def http(notifier: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=notifier, timeout=20, trust_env=False) as http:
        yield http


@pytest.fixture(params=[OldJsonRpc, JsonRpc, Rest])
def wire(http: httpx.Client, request: pytest.FixtureRequest) -> BindingClient:
    wire: BindingClient = request.param(http)
    return wire


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


# With plain HTTP


def test_push_configs_are_created_read_listed_and_deleted_as_the_protocol_defines(
    wire: BindingClient,
) -> None:
    """`BindingClient` validates every response."""
    task_ref = {"taskId": wire.send(message("test.echo", {"data": {}}))["id"]}
    config_ref = {**task_ref, "id": "c1"}
    credentials: Json = (
        {"schemes": ["Bearer"], "credentials": "sesame"}
        if isinstance(wire, OldJsonRpc)
        else {"scheme": "Bearer", "credentials": "sesame"}
    )
    webhook_params = {"url": UNREACHABLE, "token": "t-1", "authentication": credentials}
    created = wire.ask("CreateTaskPushNotificationConfig", {**config_ref, **webhook_params})
    assert wire.ask("GetTaskPushNotificationConfig", config_ref) == created
    wire.ask("CreateTaskPushNotificationConfig", {**task_ref, "url": UNREACHABLE})
    listed: Any = wire.ask("ListTaskPushNotificationConfigs", task_ref)
    configs = listed if isinstance(listed, list) else listed["configs"]
    assert configs[0] == created
    assert len(configs) == 2
    deleted = wire.ask("DeleteTaskPushNotificationConfig", config_ref)
    assert deleted == (None if isinstance(wire, OldJsonRpc) else {})
    answer = wire.ask("GetTaskPushNotificationConfig", config_ref)
    assert code(answer) == (404 if isinstance(wire, Rest) else -32001)


@pytest.mark.parametrize(
    ("params", "codes"),
    [
        ({"taskId": "no-such", "url": UNREACHABLE}, (-32001, 404)),
        ({"url": "ftp://127.0.0.1/"}, (-32602, 400)),
        ({"url": UNREACHABLE, "token": "a\r\nb"}, (-32602, 400)),
        ({"url": 5}, (-32602, 400)),
    ],
)
def test_a_refused_push_config_gets_the_right_error_code(
    wire: BindingClient, params: Json, codes: tuple[int, int]
) -> None:
    task = wire.send(message("test.echo", {"data": {}}))["id"]
    answer = wire.ask("CreateTaskPushNotificationConfig", {"taskId": task, **params})
    assert code(answer) == codes[isinstance(wire, Rest)]


def test_a_notification_has_the_body_that_the_protocol_defines(
    wire: BindingClient, receiver: Receiver
) -> None:
    """0.3 sends the Task, 1.0 a StreamResponse."""
    send_params = message("test.wait", {"data": {"gate": "shut"}}, wait=False)
    task = wire.send(send_params)["id"]
    wire.ask("CreateTaskPushNotificationConfig", {"taskId": task, "url": receiver.url})
    wire.ask("CancelTask", {"id": task})
    (delivery,) = receiver.wait(1)
    if isinstance(wire, OldJsonRpc):
        schema_of("Task").validate(delivery.json)
        assert delivery.json["status"]["state"] == "canceled"
    else:
        event = ParseDict(delivery.json, StreamResponse())
        assert event.status_update.status.state == TaskState.TASK_STATE_CANCELED


# With the SDKs


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=BINDINGS)
def binding(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
async def clients(anyio_backend: str, notifier: str, binding: str) -> AsyncIterator[Clients]:
    async with httpx.AsyncClient(timeout=20) as http:
        card = await A2ACardResolver(http, notifier).get_agent_card()
        assert card.capabilities.push_notifications
        yield Clients(http, card, binding)


def webhook(
    task_id: str = "", url: str = UNREACHABLE, **members: Any
) -> TaskPushNotificationConfig:
    credentials = AuthenticationInfo(scheme="Bearer", credentials="sesame")
    return TaskPushNotificationConfig(
        task_id=task_id, url=url, id="c1", token="t-1", authentication=credentials, **members
    )


@pytest.mark.anyio
async def test_the_sdk_client_creates_reads_lists_and_deletes_push_configs(
    clients: Clients, binding: str
) -> None:
    client, task = clients.blocking, await clients.send(request_to("test.echo", {}))
    push_config = webhook(task.id)
    get_request = GetTaskPushNotificationConfigRequest(task_id=task.id, id="c1")
    list_request = ListTaskPushNotificationConfigsRequest(task_id=task.id)
    delete_request = DeleteTaskPushNotificationConfigRequest(task_id=task.id, id="c1")
    assert await client.create_task_push_notification_config(push_config) == push_config
    assert await client.get_task_push_notification_config(get_request) == push_config
    if binding == "rest-0.3":  # the SDK cannot list or delete configs over this binding
        with pytest.raises(NotImplementedError):
            await client.list_task_push_notification_configs(list_request)
        return
    assert [*(await client.list_task_push_notification_configs(list_request)).configs] == [
        push_config
    ]
    await client.delete_task_push_notification_config(delete_request)
    assert not (await client.list_task_push_notification_configs(list_request)).configs
    with pytest.raises(TaskNotFoundError):
        await client.get_task_push_notification_config(get_request)
    with pytest.raises(InvalidParamsError):
        await client.create_task_push_notification_config(webhook(task.id, "ftp://127.0.0.1/"))


@pytest.mark.anyio
async def test_a_message_of_the_sdk_client_can_carry_a_push_config(
    clients: Clients, receiver: Receiver
) -> None:
    push_config = webhook(url=receiver.url)
    send_request = request_to("test.echo", {"n": 1})
    send_request.configuration.task_push_notification_config.CopyFrom(push_config)
    task = await clients.send(send_request)
    get_request = GetTaskPushNotificationConfigRequest(task_id=task.id, id="c1")
    returned = await clients.blocking.get_task_push_notification_config(get_request)
    assert returned == webhook(task.id, receiver.url)
    await asyncio.to_thread(receiver.wait, 3)
    assert receiver.states == STATES
    assert {d.headers["authorization"] for d in receiver.deliveries} == {"Bearer sesame"}


@pytest.mark.anyio
async def test_the_sdk_client_can_read_a_failed_push_config(
    clients: Clients, http: httpx.Client, binding: str
) -> None:
    with receiving(lambda delivery: Reply(410)) as receiver:
        send_request = request_to("test.echo", {"n": 1})
        send_request.configuration.task_push_notification_config.CopyFrom(webhook(url=receiver.url))
        task = await clients.send(send_request)
        path = f"/tasks/{task.id}/pushNotificationConfigs/c1"
        await asyncio.to_thread(eventually, lambda: http.get(path).json().get("status") == "failed")
        get_request = GetTaskPushNotificationConfigRequest(task_id=task.id, id="c1")
        fetched = await clients.blocking.get_task_push_notification_config(get_request)
        assert fetched == webhook(task.id, receiver.url)
        if binding == "rest-0.3":  # the SDK cannot list configs over this binding
            return
        list_request = ListTaskPushNotificationConfigsRequest(task_id=task.id)
        listed = await clients.blocking.list_task_push_notification_configs(list_request)
        assert [*listed.configs] == [webhook(task.id, receiver.url)]


@pytest.mark.parametrize("transport", ["JSONRPC", "HTTP+JSON"])
def test_a_program_of_protocol_0_3_gets_its_notifications(
    notifier: str, receiver: Receiver, transport: str
) -> None:
    python = python_environment("sdk-v03", "a2a-sdk==0.3.26")
    script = Path(__file__).parent / "scripts" / "sdk_v03_push.py"
    arguments = (str(script), notifier, receiver.url, transport)
    steps = run_steps(str(python), "-I", "-W", "error", *arguments)
    assert steps["card"]["push"] is True
    assert steps["send"]["config"] == {
        "id": "c1",
        "url": receiver.url,
        "token": "t-1",
        "authentication": {"schemes": ["Bearer"], "credentials": "sesame"},
    }
    no_token = {"token": ""} if transport == "HTTP+JSON" else {}  # the SDK adds an empty token
    assert steps["set"]["config"] == {
        "id": steps["send"]["task"],
        "url": receiver.url,
        **no_token,
    }
    receiver.wait(3)
    assert receiver.states == STATES
