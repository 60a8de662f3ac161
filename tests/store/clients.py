"""Clients that do not give up: they repeat what was not answered, and go on with cut streams."""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from uuid import uuid4

import httpx

from tests.server.asking import state_of

from .invariants import ENDED, Told
from .replicas import PATIENCE, Agent, Json

RETRY = 0.1
"""Seconds between attempts."""
AT_ONCE = 16
"""How many clients send at a time; each stream is one more."""


class Interrupted(Exception):
    """There was no answer, or one that says to try again."""


class Clients:
    """Many clients of one agent, and what they were told; a context manager.

    Args:
        agent: Who is asked.
        hook: The webhook of those who want one.
    """

    def __init__(self, agent: Agent, hook: str = "") -> None:
        self.told = Told()
        self._agent = agent
        self._hook = hook
        self._senders = ThreadPoolExecutor(AT_ONCE)
        self._readers = ThreadPoolExecutor(1000)
        self._works: list[Future[None]] = []
        self._begun = 0

    def __enter__(self) -> "Clients":
        return self

    def __exit__(self, *_: object) -> None:
        self._senders.shutdown(cancel_futures=True)
        self._readers.shutdown(cancel_futures=True)

    def send(self, skill: str, *, hooked: bool = False, **inputs: Any) -> None:
        """Begin a task, and know of it as soon as that is answered."""
        configuration: Json = {"returnImmediately": True}
        if hooked:
            configuration["taskPushNotificationConfig"] = {"url": self._hook}
        params = _params(skill, inputs) | {"configuration": configuration}
        self._begin(self._senders.submit(self._send, params, hooked))

    def stream(self, skill: str, **inputs: Any) -> None:
        """Begin a task, and read its events to its end."""
        self._begin(self._readers.submit(self._stream, _params(skill, inputs)))

    def wait(self) -> None:
        """Wait until all tasks are known to have begun."""
        deadline = time.monotonic() + PATIENCE
        while len(self.told.tasks) < self._begun:
            assert time.monotonic() < deadline, f"{len(self.told.tasks)} of {self._begun}"
            time.sleep(0.01)

    def finish(self) -> None:
        """Wait until all know what they wanted to know."""
        works, self._works = self._works, []
        for work in works:
            work.result()

    def look(self) -> None:
        """Ask how each task that is known to have begun has ended."""
        unknown = self.told.tasks - set(self.told.ends)
        for work in [self._senders.submit(self._look, task_id) for task_id in unknown]:
            work.result()

    def _begin(self, work: Future[None]) -> None:
        self._works.append(work)
        self._begun += 1

    def _send(self, params: Json, hooked: bool) -> None:
        task_id = _again(lambda: self._answer("SendMessage", params))["task"]["id"]
        if hooked:
            self.told.hooked.add(task_id)
        self.told.tasks.add(task_id)

    def _look(self, task_id: str) -> None:
        task = _again(lambda: self._answer("GetTask", {"id": task_id}))
        if state_of(task) in ENDED:
            self.told.ends[task_id] = state_of(task)

    def _answer(self, method: str, params: Json) -> Json:
        response = self._agent.client.post("/", json=self._agent.request(method, **params))
        result: Json = _checked(response, response.json())["result"]
        return result

    def _stream(self, params: Json) -> None:
        """Read a stream to its end, through however many requests."""
        seen: list[int] = []
        task_id, deadline = "", time.monotonic() + PATIENCE
        while task_id not in self.told.ends:
            assert time.monotonic() < deadline, f"{task_id} did not end: {seen}"
            method, about = ("SubscribeToTask", {"id": task_id}) if seen else (_STREAM, params)
            with suppress(httpx.HTTPError, Interrupted):
                for version, event in self._events(method, about, seen):
                    task_id = self._note(task_id, event)
                    self.told.seen.setdefault(task_id, seen).append(version)
            time.sleep(RETRY)

    def _events(self, method: str, params: Json, seen: list[int]) -> Iterator[tuple[int, Json]]:
        headers = {"last-event-id": str(seen[-1])} if seen else {}
        body = self._agent.request(method, **params)
        with self._agent.client.stream("POST", "/", json=body, headers=headers) as response:
            if not response.headers["content-type"].startswith("text/event-stream"):
                _checked(response, json.loads(response.read()))
            number = 0
            for line in response.iter_lines():
                if line.startswith("id:"):
                    number = int(line[3:])
                elif line.startswith("data:"):
                    yield number, _checked(response, json.loads(line[5:]))["result"]

    def _note(self, task_id: str, event: Json) -> str:
        """What an event tells; the task that it is of."""
        about = event.get("task") or event.get("statusUpdate") or {}
        task_id = task_id or about["id"]
        self.told.tasks.add(task_id)
        if about and state_of(about) in ENDED:
            self.told.ends[task_id] = state_of(about)
        return task_id


_STREAM = "SendStreamingMessage"


def _params(skill: str, inputs: Json) -> Json:
    """The params of a send that may be repeated."""
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": inputs}]}
    key = {"idempotencyKey": uuid4().hex}
    return {"message": {**message, "metadata": key}, "metadata": {"skillId": skill}}


def _checked(response: httpx.Response, answer: Json) -> Json:
    """An answer that is one; else it is to be tried again, when the agent says so."""
    if response.status_code == httpx.codes.SERVICE_UNAVAILABLE:
        raise Interrupted
    assert "result" in answer, answer
    return answer


def _again(ask: Callable[[], Json]) -> Json:
    """Ask until there is an answer."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return ask()
        except (httpx.HTTPError, Interrupted):
            assert time.monotonic() < deadline, "there was no answer"
            time.sleep(RETRY)
