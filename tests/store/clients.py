"""Clients that retry: they repeat failed requests and resume interrupted streams."""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from uuid import uuid4

import httpx

from tests.server.checking_client import state_of

from .invariants import ENDED, Observed
from .replicas import TIMEOUT, Agent, Json

RETRY_INTERVAL = 0.1
"""Seconds between attempts."""
SENDERS = 16
"""Number of concurrent senders; each stream takes a further thread."""


class Interrupted(Exception):
    """The agent asked to retry."""


class Clients:
    """Many concurrent clients of one agent that record what they observe; a context manager.

    Args:
        agent: The agent that the clients call.
        hook: The URL of the webhook for the tasks that get one.
    """

    def __init__(self, agent: Agent, hook: str = "") -> None:
        self.observed = Observed()
        self._agent = agent
        self._hook = hook
        self._senders = ThreadPoolExecutor(SENDERS)
        self._readers = ThreadPoolExecutor(1000)
        self._pending: list[Future[None]] = []
        self._submitted = 0

    def __enter__(self) -> "Clients":
        return self

    def __exit__(self, *_: object) -> None:
        self._senders.shutdown(cancel_futures=True)
        self._readers.shutdown(cancel_futures=True)

    def send(self, skill: str, *, with_webhook: bool = False, **inputs: Any) -> None:
        """Start a task in the background and record its id once the agent has acknowledged it."""
        configuration: Json = {"returnImmediately": True}
        if with_webhook:
            configuration["taskPushNotificationConfig"] = {"url": self._hook}
        params = _params(skill, inputs) | {"configuration": configuration}
        self._track(self._senders.submit(self._send, params, with_webhook))

    def stream(self, skill: str, **inputs: Any) -> None:
        """Start a task in the background and read its events to the end."""
        self._track(self._readers.submit(self._stream, _params(skill, inputs)))

    def wait(self) -> None:
        """Wait until all tasks are acknowledged."""
        deadline = time.monotonic() + TIMEOUT
        while len(self.observed.tasks) < self._submitted:
            assert time.monotonic() < deadline, f"{len(self.observed.tasks)} of {self._submitted}"
            time.sleep(0.01)

    def finish(self) -> None:
        """Wait until all senders and readers are done."""
        pending, self._pending = self._pending, []
        for future in pending:
            future.result()

    def poll(self) -> None:
        """Read the final states of the tasks whose ends are not known yet."""
        unknown = self.observed.tasks - set(self.observed.ends)
        for future in [self._senders.submit(self._poll, task_id) for task_id in unknown]:
            future.result()

    def _track(self, future: Future[None]) -> None:
        self._pending.append(future)
        self._submitted += 1

    def _send(self, params: Json, with_webhook: bool) -> None:
        task_id = _retry(lambda: self._call("SendMessage", params))["task"]["id"]
        if with_webhook:
            self.observed.with_webhook.add(task_id)
        self.observed.tasks.add(task_id)

    def _poll(self, task_id: str) -> None:
        task = _retry(lambda: self._call("GetTask", {"id": task_id}))
        if state_of(task) in ENDED:
            self.observed.ends[task_id] = state_of(task)

    def _call(self, method: str, params: Json) -> Json:
        response = self._agent.client.post("/", json=self._agent.request(method, **params))
        result: Json = _checked(response, response.json())["result"]
        return result

    def _stream(self, params: Json) -> None:
        """Read a stream to its end, resuming it as often as needed."""
        versions: list[int] = []
        task_id, deadline = "", time.monotonic() + TIMEOUT
        while task_id not in self.observed.ends:
            assert time.monotonic() < deadline, f"{task_id} did not end: {versions}"
            method, call_params = (
                ("SubscribeToTask", {"id": task_id}) if versions else (_STREAM, params)
            )
            with suppress(httpx.HTTPError, Interrupted):
                for version, event in self._events(method, call_params, versions):
                    task_id = self._record(task_id, event)
                    self.observed.versions_read.setdefault(task_id, versions).append(version)
            time.sleep(RETRY_INTERVAL)

    def _events(self, method: str, params: Json, versions: list[int]) -> Iterator[tuple[int, Json]]:
        headers = {"last-event-id": str(versions[-1])} if versions else {}
        body = self._agent.request(method, **params)
        with self._agent.client.stream("POST", "/", json=body, headers=headers) as response:
            if not response.headers["content-type"].startswith("text/event-stream"):
                _checked(response, json.loads(response.read()))
            version = 0
            for line in response.iter_lines():
                if line.startswith("id:"):
                    version = int(line[3:])
                elif line.startswith("data:"):
                    yield version, _checked(response, json.loads(line[5:]))["result"]

    def _record(self, task_id: str, event: Json) -> str:
        """Record the task and the final state in an event; return the task's id."""
        source = event.get("task") or event.get("statusUpdate") or {}
        task_id = task_id or source["id"]
        self.observed.tasks.add(task_id)
        if source and state_of(source) in ENDED:
            self.observed.ends[task_id] = state_of(source)
        return task_id


_STREAM = "SendStreamingMessage"


def _params(skill: str, inputs: Json) -> Json:
    """Return the params of a send that may be repeated."""
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": inputs}]}
    key = {"idempotencyKey": uuid4().hex}
    return {"message": {**message, "metadata": key}, "metadata": {"skillId": skill}}


def _checked(response: httpx.Response, answer: Json) -> Json:
    """Return a successful response; raise `Interrupted` if the agent asks to retry."""
    if response.status_code == httpx.codes.SERVICE_UNAVAILABLE:
        raise Interrupted
    assert "result" in answer, answer
    return answer


def _retry(request: Callable[[], Json]) -> Json:
    """Call *request* until it gets a response."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        try:
            return request()
        except (httpx.HTTPError, Interrupted):
            assert time.monotonic() < deadline, "there was no answer"
            time.sleep(RETRY_INTERVAL)
