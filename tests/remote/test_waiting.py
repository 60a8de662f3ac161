"""Waiting for remote tasks: by a stream, which may break, by polling, or by notifications."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import httpx
import pytest
from apcore import Executor, Registry
from apcore.errors import ModuleTimeoutError
from apcore_a2a_remote import RemoteAgent, WebhookReceiver
from apcore_a2a_server.push import PushSettings
from starlette.applications import Starlette

from tests.server.inloop import (
    ActionModule,
    Gate,
    StreamModule,
    app_of,
    echo,
    listening,
    registry_of,
    wait_until,
)
from tests.server.inloop import anyio_backend as anyio_backend
from tests.server.modules import Inputs
from tests.serving import PATIENCE

from .agents import Agent, serving
from .test_registration import serving_at

pytestmark = pytest.mark.anyio


class Recorder:
    """An ASGI application that records the JSON-RPC requests to the agent behind it.

    Attributes:
        cuts: The number of responses whose connection is cut after `after` ASGI messages.
    """

    def __init__(self, app: Any, cuts: int = 0, after: int = 3) -> None:
        self.app = app
        self.cuts = cuts
        self.after = after
        self.methods: list[str] = []
        self.idempotency_keys: list[Any] = []
        self.authorizations: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        request = json.loads(body)
        self.methods.append(request["method"])
        headers = dict(scope["headers"])
        self.authorizations.append(headers.get(b"authorization", b"").decode())
        sent_message = request["params"].get("message", {})
        self.idempotency_keys.append(sent_message.get("metadata", {}).get("idempotencyKey"))
        is_sent, count = False, 0

        async def replay() -> Any:
            nonlocal is_sent
            if not is_sent:
                is_sent = True
                return {"type": "http.request", "body": body, "more_body": False}
            return await receive()

        async def send_until_cut(message: Any) -> None:
            nonlocal count
            count += 1
            if self.cuts and count > self.after:
                self.cuts -= 1
                raise ConnectionResetError
            await send(message)

        await self.app(scope, replay, send_until_cut)


@asynccontextmanager
async def behind_recorder(
    modules: dict[str, object], registry: Registry, options: Any = None, **cuts: int
) -> AsyncIterator[tuple[Recorder, RemoteAgent]]:
    """Serve modules behind a recorder, and register them in *registry*."""
    recorder = Recorder(app_of(registry_of(modules), url=None), **cuts)
    front: Any = recorder
    async with (
        listening(front) as url,
        RemoteAgent(url, name="c", **(options or {})) as agent,
        asyncio.timeout(PATIENCE),
    ):
        await agent.register(registry)
        yield recorder, agent


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_broken_stream_resumes_after_its_last_event() -> None:
    async def count_slowly(inputs: Inputs, context: Any) -> AsyncIterator[Any]:
        for number in range(6):
            await asyncio.sleep(0.01)
            yield {"number": number}

    registry = Registry()
    async with behind_recorder(
        {"work": StreamModule(count_slowly)}, registry, cuts=2, after=4
    ) as behind:
        chunks = [chunk async for chunk in Executor(registry).stream("remote.c.work", {})]
        assert [chunk["number"] for chunk in chunks] == [*range(6)]
        recorder, _ = behind
        assert recorder.methods.count("SendStreamingMessage") == 1
        assert "SubscribeToTask" in recorder.methods


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("wait", ["stream", "poll"])
async def test_each_request_of_a_call_has_new_headers(wait: Any) -> None:
    """A token for the caller may expire before the call has ended."""
    numbers, second_request = count(1), asyncio.Event()

    async def count_slowly(inputs: Inputs, context: Any) -> AsyncIterator[Any]:
        for number in range(4):
            await asyncio.sleep(0.01)
            yield {"number": number}

    async def wait_until_polled(inputs: Inputs, context: Any) -> Any:
        await second_request.wait()
        return inputs

    def forward(context: Any) -> dict[str, str]:
        number = next(numbers)
        if number > 1:
            second_request.set()
        return {"authorization": f"Bearer {number}"}

    registry = Registry()
    options = {"wait": wait, "forward": forward}
    is_stream = wait == "stream"
    cuts = {"cuts": 1, "after": 4} if is_stream else {}
    module: object = StreamModule(count_slowly) if is_stream else ActionModule(wait_until_polled)
    async with behind_recorder({"work": module}, registry, options, **cuts) as (recorder, _):
        async for _chunk in Executor(registry).stream("remote.c.work", {}):
            pass
    assert len(recorder.authorizations) > 1
    assert len({*recorder.authorizations}) == len(recorder.authorizations)
    assert all(recorder.authorizations)


async def test_a_message_that_is_sent_again_starts_no_second_task() -> None:
    calls: list[Inputs] = []

    async def work(inputs: Inputs, context: Any) -> Any:
        calls.append(inputs)
        return inputs

    registry = Registry()
    async with behind_recorder({"work": ActionModule(work)}, registry, cuts=1, after=1) as behind:
        assert await Executor(registry).call_async("remote.c.work", {"a": 1}) == {"a": 1}
        recorder, _ = behind
        assert recorder.methods == ["SendStreamingMessage"] * 2
        assert recorder.idempotency_keys[0] == recorder.idempotency_keys[1]
    assert calls == [{"a": 1}]


async def test_a_polled_task_holds_no_connection() -> None:
    gate, registry = Gate(), Registry()
    options = {"wait": "poll"}
    async with behind_recorder({"work": ActionModule(gate)}, registry, options) as (recorder, _):
        call = asyncio.create_task(Executor(registry).call_async("remote.c.work", {}))
        await gate.reached.wait()
        await wait_until(lambda: recorder.methods.count("GetTask") > 1)
        gate.opened.set()
        assert await call == {"done": True}
        assert {*recorder.methods} == {"SendMessage", "GetTask"}


async def test_a_polled_task_is_canceled_when_its_call_times_out() -> None:
    gate, registry = Gate(), Registry()
    options = {"wait": "poll", "timeout": 0.5}
    async with behind_recorder({"work": ActionModule(gate)}, registry, options):
        with pytest.raises(ModuleTimeoutError):
            await Executor(registry).call_async("remote.c.work", {})
        await gate.canceled.wait()


@asynccontextmanager
async def serving_notified_gateway(
    gate: Gate, **options: Any
) -> AsyncIterator[tuple[Agent, RemoteAgent]]:
    """Serve a gateway that gets notifications of the tasks of another agent."""
    options = {"push_notifications": PushSettings(dev=True), **options}
    async with serving({"work": ActionModule(gate)}, **options) as remote:
        placeholder = Starlette()
        async with listening(placeholder) as placeholder_url:
            port = int(placeholder_url.rpartition(":")[2])
        receiver = WebhookReceiver(f"http://127.0.0.1:{port}/remote/notifications")
        agent = RemoteAgent(remote.url, name="c", expose=True, wait="webhook", receiver=receiver)
        app = app_of(Registry(), url=f"http://127.0.0.1:{port}", companions=[agent])
        async with serving_at(app, port):
            gateway = RemoteAgent(f"http://127.0.0.1:{port}", name="gateway")
            yield Agent(f"http://127.0.0.1:{port}", gateway.client, app, Registry(), {}), agent
            await gateway.aclose()


async def test_a_notification_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apcore_a2a_remote.waiting.NOTIFIED_POLL", 10 * PATIENCE)
    gate = Gate()
    async with serving_notified_gateway(gate) as (gateway, _), asyncio.timeout(PATIENCE):
        call = asyncio.create_task(gateway.client.call("remote.c.work", {}))
        await gate.reached.wait()
        gate.opened.set()
        assert await call == {"done": True}


async def test_an_agent_without_notifications_is_polled() -> None:
    gate = Gate()
    async with (
        serving_notified_gateway(gate, push_notifications=False) as (gateway, _),
        asyncio.timeout(PATIENCE),
    ):
        gate.opened.set()
        assert await gateway.client.call("remote.c.work", {}) == {"done": True}


async def test_polling_makes_up_for_a_lost_notification(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("apcore_a2a_remote.waiting.NOTIFIED_POLL", 0.3)
    gate = Gate()
    async with serving_notified_gateway(gate) as (gateway, agent), asyncio.timeout(PATIENCE):
        assert agent.receiver is not None
        agent.receiver.url = "http://127.0.0.1:9/nowhere"
        call = asyncio.create_task(gateway.client.call("remote.c.work", {}))
        await gate.reached.wait()
        gate.opened.set()
        assert await call == {"done": True}


async def test_a_receiver_refuses_requests_without_the_token_of_a_task() -> None:
    gate = Gate()
    async with serving_notified_gateway(gate) as (_, agent), httpx.AsyncClient() as http:
        assert agent.receiver is not None
        url = agent.receiver.url
        for headers in ({}, {"x-a2a-notification-token": "wrong"}):
            assert (await http.post(url, json={}, headers=headers)).status_code == 401
        assert (await http.get(url)).status_code == 405
        with agent.receiver.expecting() as (config, event):
            headers = {"x-a2a-notification-token": config.token}
            notification = {"task": {"id": "t", "status": {"state": "TASK_STATE_COMPLETED"}}}
            assert (await http.post(url, json=notification, headers=headers)).status_code == 204
            assert event.is_set()
        assert (await http.post(url, json={}, headers=headers)).status_code == 401


@pytest.mark.parametrize("url", ["ftp://a/b", "http://a", "http://a/", "/path"])
def test_an_invalid_url_of_a_receiver_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="with a host and a path"):
        WebhookReceiver(url)


async def test_two_applications_at_one_path_are_refused() -> None:
    receivers = [WebhookReceiver("http://127.0.0.1:1/a") for _ in range(2)]
    agents = [
        RemoteAgent("http://127.0.0.1:1", name=f"c{number}", wait="webhook", receiver=receiver)
        for number, receiver in enumerate(receivers)
    ]
    modules = registry_of({"own": ActionModule(echo)})
    with pytest.raises(ValueError, match="two applications at /a"):
        app_of(modules, companions=agents)


@pytest.mark.parametrize("path", ["/health", "/metrics"])
async def test_an_application_at_a_path_of_the_agent_is_refused(path: str) -> None:
    receiver = WebhookReceiver(f"http://127.0.0.1:1{path}")
    agent = RemoteAgent("http://127.0.0.1:1", name="c", wait="webhook", receiver=receiver)
    with pytest.raises(ValueError, match="a path of the agent"):
        app_of(registry_of({"own": ActionModule(echo)}), companions=[agent], metrics=True)
