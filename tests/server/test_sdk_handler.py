"""The official SDK's routes on this server's engine, through the SDK's `RequestHandler`."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any

import httpx
import pytest
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.server.routes import create_jsonrpc_routes, create_rest_routes
from apcore import Executor
from apcore_a2a_server.bindings.sdk_handler import SdkRequestHandler, request_handler
from apcore_a2a_server.push import PushSettings
from starlette.applications import Starlette

from tests.serving import PATIENCE

from .checking_client import MODERN, Json, state_of
from .inloop import (
    NEEDS_APPROVAL,
    ActionModule,
    Gate,
    StreamModule,
    app_of,
    contents,
    echo,
    listening,
    registry_of,
)
from .inloop import anyio_backend as anyio_backend

pytestmark = pytest.mark.anyio


async def count_to_three(inputs: Any, context: Any) -> Any:
    for number in range(3):
        yield {"n": number}


class Sdk:
    """An agent behind the SDK's own routes."""

    def __init__(self, client: httpx.AsyncClient, gate: Gate, app: Starlette) -> None:
        self.client = client
        self.gate = gate
        self.app = app

    async def call(self, method: str, params: Json) -> Json:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        response = await self.client.post("/rpc", json=body, headers=MODERN)
        answer: Json = response.json()
        return answer

    async def events(self, path: str, body: Json) -> AsyncIterator[Json]:
        """Yield the events of a stream from either route."""
        async with self.client.stream("POST", path, json=body, headers=MODERN) as response:
            async for line in response.aiter_lines():
                if line.startswith("data:"):
                    event = json.loads(line[5:])
                    yield event.get("result", event)


def send_params(skill: str = "work", text: str = "hello", **members: Any) -> Json:
    parts = [{"text": text}]
    return {
        "message": {"messageId": "m1", "role": "ROLE_USER", "parts": parts, **members},
        "metadata": {"skillId": skill},
    }


@asynccontextmanager
async def behind_the_sdk(**options: Any) -> AsyncIterator[Sdk]:
    gate = Gate()
    modules = {
        "work": ActionModule(echo),
        "wait": ActionModule(gate),
        "stream": StreamModule(count_to_three),
        "pay": ActionModule(echo, annotations=NEEDS_APPROVAL),
    }
    executor = Executor(registry_of(modules))
    app = app_of(executor, **options)
    handler = request_handler(app)
    routes = [*create_jsonrpc_routes(handler, "/rpc"), *create_rest_routes(handler)]
    with closing(executor):
        async with (
            app.router.lifespan_context(app),
            listening(Starlette(routes=routes)) as url,
            httpx.AsyncClient(base_url=url, trust_env=False, timeout=PATIENCE) as client,
        ):
            yield Sdk(client, gate, app)


@pytest.fixture
async def sdk(anyio_backend: Any) -> AsyncIterator[Sdk]:
    async with behind_the_sdk() as sdk:
        yield sdk


def test_the_handler_implements_the_sdks_interface() -> None:
    handler = request_handler(app_of(registry_of({"work": ActionModule(echo)})))
    assert isinstance(handler, RequestHandler)
    assert isinstance(handler, SdkRequestHandler)
    assert not SdkRequestHandler.__abstractmethods__


async def test_a_message_is_sent(sdk: Sdk) -> None:
    task = (await sdk.call("SendMessage", send_params()))["result"]["task"]
    assert state_of(task) == "completed"
    assert contents(task) == [{"text": "hello"}]
    read_back = (await sdk.call("GetTask", {"id": task["id"]}))["result"]
    assert read_back == task
    response = await sdk.client.post("/message:send", json=send_params(), headers=MODERN)
    assert contents(response.json()["task"]) == [{"text": "hello"}]
    read_back = await sdk.client.get(f"/tasks/{task['id']}", headers=MODERN)
    assert read_back.json()["id"] == task["id"]


@pytest.mark.parametrize("path", ["/rpc", "/message:stream"])
async def test_a_message_is_streamed(sdk: Sdk, path: str) -> None:
    body = send_params("stream")
    if path == "/rpc":
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": body}
    events = [event async for event in sdk.events(path, body)]
    assert [next(iter(event)) for event in events] == [
        "task",
        "statusUpdate",
        "artifactUpdate",
        "artifactUpdate",
        "artifactUpdate",
        "statusUpdate",
    ]
    assert state_of(events[-1]["statusUpdate"]) == "completed"


@pytest.mark.parametrize("path", ["/rpc", "/tasks/{}:subscribe"])
async def test_a_task_is_subscribed_to(sdk: Sdk, path: str) -> None:
    wait = send_params("wait") | {"configuration": {"returnImmediately": True}}
    task_id = (await sdk.call("SendMessage", wait))["result"]["task"]["id"]
    body: Json = {"id": task_id}
    if path == "/rpc":
        body = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": body}
    events = []
    async for event in sdk.events(path.format(task_id), body):
        events.append(event)
        sdk.gate.opened.set()
    assert state_of(events[0]["task"]) == "working"
    assert [next(iter(event)) for event in events[1:]] == ["artifactUpdate", "statusUpdate"]


async def test_tasks_are_listed(sdk: Sdk) -> None:
    tasks = [(await sdk.call("SendMessage", send_params()))["result"]["task"] for _ in range(3)]
    page = (await sdk.call("ListTasks", {"pageSize": 2, "includeArtifacts": True}))["result"]
    assert [task["id"] for task in page["tasks"]] == [tasks[2]["id"], tasks[1]["id"]]
    assert page["totalSize"] == 3
    params = {"pageSize": 2, "pageToken": page["nextPageToken"]}
    (last,) = (await sdk.client.get("/tasks", params=params, headers=MODERN)).json()["tasks"]
    assert last["id"] == tasks[0]["id"]


async def test_a_task_is_canceled(sdk: Sdk) -> None:
    wait = send_params("wait") | {"configuration": {"returnImmediately": True}}
    task_id = (await sdk.call("SendMessage", wait))["result"]["task"]["id"]
    await sdk.gate.reached.wait()
    task = (await sdk.call("CancelTask", {"id": task_id}))["result"]
    assert state_of(task) == "canceled"
    await sdk.gate.canceled.wait()
    second = await sdk.client.post(f"/tasks/{task_id}:cancel", json={}, headers=MODERN)
    assert second.status_code == 409 or second.json()["error"]["code"] in (400, 409)
    assert (await sdk.call("CancelTask", {"id": task_id}))["error"]["code"] == -32002


async def test_a_task_is_approved(sdk: Sdk) -> None:
    task = (await sdk.call("SendMessage", send_params("pay")))["result"]["task"]
    assert state_of(task) == "input-required"
    answer = send_params("pay", "yes", taskId=task["id"])
    task = (await sdk.call("SendMessage", answer))["result"]["task"]
    assert contents(task) == [{"text": "hello"}]


async def test_the_agents_own_app_has_the_same_tasks(sdk: Sdk) -> None:
    task = (await sdk.call("SendMessage", send_params()))["result"]["task"]
    async with (
        listening(sdk.app) as url,
        httpx.AsyncClient(base_url=url, trust_env=False) as client,
    ):
        response = await client.get(f"/tasks/{task['id']}")
        assert response.json() == task


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("GetTask", {"id": "unknown"}, -32001),
        ("CancelTask", {"id": "unknown"}, -32001),
        ("SendMessage", send_params("unknown"), -32601),
        ("CreateTaskPushNotificationConfig", {"taskId": "t", "url": "http://127.0.0.1"}, -32003),
        ("GetTaskPushNotificationConfig", {"taskId": "t", "id": "c"}, -32003),
        ("ListTaskPushNotificationConfigs", {"taskId": "t"}, -32003),
        ("DeleteTaskPushNotificationConfig", {"taskId": "t", "id": "c"}, -32003),
        ("GetExtendedAgentCard", {}, -32004),
    ],
)
async def test_errors_have_the_codes_of_the_protocol(
    sdk: Sdk, method: str, params: Json, code: int
) -> None:
    assert (await sdk.call(method, params))["error"]["code"] == code


async def test_push_configs_are_created_read_listed_and_deleted() -> None:
    hook = {"id": "c1", "url": "http://127.0.0.1:9/hook", "token": "t-1"}
    async with behind_the_sdk(push_notifications=PushSettings(dev=True)) as sdk:
        task_id = (await sdk.call("SendMessage", send_params()))["result"]["task"]["id"]
        config = {"taskId": task_id, **hook}
        config_ids = {"taskId": task_id, "id": "c1"}
        created = await sdk.call("CreateTaskPushNotificationConfig", config)
        assert created["result"] == config
        assert (await sdk.call("GetTaskPushNotificationConfig", config_ids))["result"] == config
        listed = await sdk.call("ListTaskPushNotificationConfigs", {"taskId": task_id})
        assert listed["result"] == {"configs": [config]}
        path = f"/tasks/{task_id}/pushNotificationConfigs"
        assert (await sdk.client.get(path, headers=MODERN)).json() == listed["result"]
        assert "error" not in await sdk.call("DeleteTaskPushNotificationConfig", config_ids)
        deleted = await sdk.call("GetTaskPushNotificationConfig", config_ids)
        assert deleted["error"]["code"] == -32001


async def test_a_module_continues_the_callers_trace(sdk: Sdk) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    sdk.gate.opened.set()
    headers = {**MODERN, "traceparent": f"00-{trace}-b7ad6b7169203331-01"}
    await sdk.client.post("/message:send", json=send_params("wait"), headers=headers)
    assert sdk.gate.contexts[0].trace_id == trace
