"""Webhooks, asked for by the official SDKs and by hand, held against the protocol's definitions."""

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

from tests.e2e.bindings import JsonRpc, OldJsonRpc, Rest, Wire, schema_of
from tests.e2e.environments import python_environment
from tests.e2e.programs import told
from tests.e2e.test_schema import code, message
from tests.e2e.test_sdk_v1 import BINDINGS, Clients, ask
from tests.e2e.wire import Json
from tests.push.receiver import Receiver, Reply, receiving
from tests.server.conftest import eventually

NOBODY = "http://127.0.0.1:9/hook"
STATES = ["submitted", "working", "completed"]


@pytest.fixture
def http(notifier: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=notifier, timeout=20, trust_env=False) as http:
        yield http


@pytest.fixture(params=[OldJsonRpc, JsonRpc, Rest])
def wire(http: httpx.Client, request: pytest.FixtureRequest) -> Wire:
    found: Wire = request.param(http)
    return found


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


# By hand


def test_webhooks_are_set_got_listed_and_deleted_as_the_protocol_has_it(wire: Wire) -> None:
    """Whatever comes back is validated by `Wire`."""
    about = {"taskId": wire.send(message("test.echo", {"data": {}}))["id"]}
    one = {**about, "id": "c1"}
    known: Json = (
        {"schemes": ["Bearer"], "credentials": "sesame"}
        if isinstance(wire, OldJsonRpc)
        else {"scheme": "Bearer", "credentials": "sesame"}
    )
    hook = {"url": NOBODY, "token": "t-1", "authentication": known}
    made = wire.ask("CreateTaskPushNotificationConfig", {**one, **hook})
    assert wire.ask("GetTaskPushNotificationConfig", one) == made
    wire.ask("CreateTaskPushNotificationConfig", {**about, "url": NOBODY})
    listed: Any = wire.ask("ListTaskPushNotificationConfigs", about)
    found = listed if isinstance(listed, list) else listed["configs"]
    assert found[0] == made
    assert len(found) == 2
    gone = wire.ask("DeleteTaskPushNotificationConfig", one)
    assert gone == (None if isinstance(wire, OldJsonRpc) else {})
    answer = wire.ask("GetTaskPushNotificationConfig", one)
    assert code(answer) == (404 if isinstance(wire, Rest) else -32001)


@pytest.mark.parametrize(
    ("params", "codes"),
    [
        ({"taskId": "no-such", "url": NOBODY}, (-32001, 404)),
        ({"url": "ftp://127.0.0.1/"}, (-32602, 400)),
        ({"url": NOBODY, "token": "a\r\nb"}, (-32602, 400)),
        ({"url": 5}, (-32602, 400)),
    ],
)
def test_an_error_about_a_webhook(wire: Wire, params: Json, codes: tuple[int, int]) -> None:
    task = wire.send(message("test.echo", {"data": {}}))["id"]
    answer = wire.ask("CreateTaskPushNotificationConfig", {"taskId": task, **params})
    assert code(answer) == codes[isinstance(wire, Rest)]


def test_what_a_webhook_gets_is_what_the_protocol_has(wire: Wire, receiver: Receiver) -> None:
    """The Task of 0.3, and the StreamResponse of 1.0."""
    hold = message("test.wait", {"data": {"gate": "shut"}}, wait=False)
    task = wire.send(hold)["id"]
    wire.ask("CreateTaskPushNotificationConfig", {"taskId": task, "url": receiver.url})
    wire.ask("CancelTask", {"id": task})
    (delivery,) = receiver.wait(1)
    if isinstance(wire, OldJsonRpc):
        schema_of("Task").validate(delivery.json)
        assert delivery.json["status"]["state"] == "canceled"
    else:
        event = ParseDict(delivery.json, StreamResponse())
        assert event.status_update.status.state == TaskState.TASK_STATE_CANCELED


# By the SDK


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=BINDINGS)
async def clients(
    anyio_backend: str, notifier: str, request: pytest.FixtureRequest
) -> AsyncIterator[Clients]:
    async with httpx.AsyncClient(timeout=20) as http:
        card = await A2ACardResolver(http, notifier).get_agent_card()
        assert card.capabilities.push_notifications
        yield Clients(http, card, request.param)


def webhook(task_id: str = "", url: str = NOBODY, **members: Any) -> TaskPushNotificationConfig:
    known = AuthenticationInfo(scheme="Bearer", credentials="sesame")
    return TaskPushNotificationConfig(
        task_id=task_id, url=url, id="c1", token="t-1", authentication=known, **members
    )


@pytest.mark.anyio
async def test_the_sdks_client_sets_gets_lists_and_deletes_webhooks(clients: Clients) -> None:
    client, task = clients.blocking, await clients.send(ask("test.echo", {}))
    wish = webhook(task.id)
    one = GetTaskPushNotificationConfigRequest(task_id=task.id, id="c1")
    every = ListTaskPushNotificationConfigsRequest(task_id=task.id)
    gone = DeleteTaskPushNotificationConfigRequest(task_id=task.id, id="c1")
    assert await client.create_task_push_notification_config(wish) == wish
    assert await client.get_task_push_notification_config(one) == wish
    assert [*(await client.list_task_push_notification_configs(every)).configs] == [wish]
    await client.delete_task_push_notification_config(gone)
    assert not (await client.list_task_push_notification_configs(every)).configs
    with pytest.raises(TaskNotFoundError):
        await client.get_task_push_notification_config(one)
    with pytest.raises(InvalidParamsError):
        await client.create_task_push_notification_config(webhook(task.id, "ftp://127.0.0.1/"))


@pytest.mark.anyio
async def test_a_message_of_the_sdks_client_brings_its_webhook(
    clients: Clients, receiver: Receiver
) -> None:
    wish = webhook(url=receiver.url)
    sending = ask("test.echo", {"n": 1})
    sending.configuration.task_push_notification_config.CopyFrom(wish)
    task = await clients.send(sending)
    one = GetTaskPushNotificationConfigRequest(task_id=task.id, id="c1")
    found = await clients.blocking.get_task_push_notification_config(one)
    assert found == webhook(task.id, receiver.url)
    await asyncio.to_thread(receiver.wait, 3)
    assert receiver.states == STATES
    assert {d.headers["authorization"] for d in receiver.deliveries} == {"Bearer sesame"}


@pytest.mark.anyio
async def test_the_sdks_client_can_read_a_webhook_that_has_failed(
    clients: Clients, http: httpx.Client
) -> None:
    with receiving(lambda delivery: Reply(410)) as receiver:
        sending = ask("test.echo", {"n": 1})
        sending.configuration.task_push_notification_config.CopyFrom(webhook(url=receiver.url))
        task = await clients.send(sending)
        path = f"/tasks/{task.id}/pushNotificationConfigs/c1"
        await asyncio.to_thread(eventually, lambda: http.get(path).json().get("status") == "failed")
        every = ListTaskPushNotificationConfigsRequest(task_id=task.id)
        found = await clients.blocking.list_task_push_notification_configs(every)
        assert [*found.configs] == [webhook(task.id, receiver.url)]


def test_a_program_of_protocol_0_3_has_its_webhooks(notifier: str, receiver: Receiver) -> None:
    python = python_environment("sdk-v03", "a2a-sdk==0.3.26")
    script = Path(__file__).parent / "scripts" / "sdk_v03_push.py"
    steps = told(str(python), "-I", "-W", "error", str(script), notifier, receiver.url)
    assert steps["card"]["push"] is True
    assert steps["send"]["config"] == {
        "id": "c1",
        "url": receiver.url,
        "token": "t-1",
        "authentication": {"schemes": ["Bearer"], "credentials": "sesame"},
    }
    assert steps["set"]["config"] == {"id": steps["send"]["task"], "url": receiver.url}
    receiver.wait(3)
    assert receiver.states == STATES
