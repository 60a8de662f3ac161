"""Agents with push notifications, and a client to call them."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from uuid import uuid4

import httpx
from apcore import Context, Registry
from apcore_a2a_server.push import PushSettings
from apcore_a2a_server.push.settings import origin_of
from apcore_a2a_server.push.signing import receiver_secret
from standardwebhooks import Webhook

from tests.serving import PATIENCE, running

from .receiver import Delivery, Json

SECRET = "whsec_" + "QUJDREVG" * 4


def verify(delivery: Delivery, url: str, secret: str = SECRET) -> Any:
    """Verify a notification as the receiver at *url* does, and return its content."""
    webhook = Webhook(receiver_secret(secret, origin_of(url)))
    return webhook.verify(delivery.body, dict(delivery.headers))


class Module:
    description = "A module of the tests"
    input_schema: Any = None
    output_schema: Any = None


class Echo(Module):
    async def execute(self, inputs: Json, context: Context[Any]) -> Json:
        return inputs


class HeldModule(Module):
    """Module that runs until a test releases it."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.gate = asyncio.Event()

    async def execute(self, inputs: Json, context: Context[Any]) -> Json:
        self.loop = asyncio.get_running_loop()
        await self.gate.wait()
        return inputs

    def release(self) -> None:
        assert self.loop is not None
        self.loop.call_soon_threadsafe(self.gate.set)


class Caller:
    """Client of an agent, by JSON-RPC."""

    def __init__(self, url: str, held: HeldModule) -> None:
        self.held = held
        self.url = url
        self._http = httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE)

    def ask(self, method: str, **params: Any) -> Any:
        """Return the result of a call."""
        answer = self.answer(method, **params)
        assert "error" not in answer, answer
        return answer["result"]

    def answer(self, method: str, **params: Any) -> Json:
        """Return the whole JSON-RPC response of a call, which may be an error."""
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer: Json = self._http.post("/", json=request).json()
        return answer

    def send(self, skill: str = "echo", *, wait: bool = True, **config: Any) -> Json:
        """Send a message of 1.0, with the push config if one is given; return the task."""
        part = {"data": {"n": 1}}
        message = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [part]}
        configuration: Json = {"returnImmediately": not wait}
        if config:
            configuration["taskPushNotificationConfig"] = config
        params = {
            "message": message,
            "metadata": {"skillId": skill},
            "configuration": configuration,
        }
        task: Json = self.ask("SendMessage", **params)["task"]
        return task

    def send_old(self, skill: str = "echo", **config: Any) -> Json:
        """Send a message of 0.3, with the push config; return the task."""
        part = {"kind": "data", "data": {"n": 1}}
        message = {"messageId": str(uuid4()), "kind": "message", "role": "user", "parts": [part]}
        params = {"message": message, "metadata": {"skillId": skill}}
        configuration = {"pushNotificationConfig": config}
        task: Json = self.ask("message/send", **params, configuration=configuration)
        return task

    def config(self, task: Json, config_id: str = "") -> Json:
        """Return a push config of the task, in the format of 0.3."""
        config_params = {"pushNotificationConfigId": config_id} if config_id else {}
        config: Json = self.ask("tasks/pushNotificationConfig/get", id=task["id"], **config_params)
        return config

    def get(self, path: str, **params: Any) -> httpx.Response:
        """Return the response of one of the agent's own routes, below /apcore/."""
        return self._http.get(f"/apcore/{path}", params=params)

    def post(self, path: str) -> httpx.Response:
        """Post to one of the agent's own routes, without a body, and return the response."""
        return self._http.post(f"/apcore/{path}")

    @contextmanager
    def with_headers(self, headers: Mapping[str, str]) -> Iterator[None]:
        """Send these headers with each request of the block."""
        self._http.headers.update(headers)
        yield
        for name in headers:
            del self._http.headers[name]

    def metrics(self) -> Json:
        metrics: Json = self._http.get("/metrics").json()
        return metrics

    def close(self) -> None:
        self._http.close()


STORE: ContextVar[str] = ContextVar("store", default="memory")
"""Task store of the agents."""


@contextmanager
def agent(options: Json | None = None, **settings: Any) -> Iterator[Caller]:
    """Run an agent that signs with SECRET, in development mode; yield its client."""
    registry, held = Registry(), HeldModule()
    registry.register("echo", Echo())
    registry.register("held", held)
    push = PushSettings(**{"dev": True, "secrets": [SECRET], **settings})
    options = {"task_store": STORE.get(), "metrics": True, **(options or {})}
    with running(registry, push_notifications=push, **options) as url:
        caller = Caller(url, held)
        try:
            yield caller
        finally:
            caller.close()
