"""Readers of streams whose connections break."""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from random import Random

from tests.server.checking_client import check_no_leaks
from tests.store.fleet import Fleet, fleet
from tests.store.invariants import Observed, check
from tests.store.replicas import Agent, Json
from tests.store.trials import Trial

LEASE = 15  # seconds
TASKS = 8
"""Number of concurrent tasks; each has two readers while it runs and two after it has ended."""
RUN = {"seconds": 0.05, "steps": 30}
MAX_BYTES = 6000
"""Bytes after which a connection is cut at the latest; a task's events take about 10,000."""
NOT_FOUND = -32001

Events = list[tuple[int, Json]]


class CutError(Exception):
    """The connection was cut before the task had ended."""


class Readers:
    """Readers that resume streams until they have all events of a task.

    Args:
        replicas: One client for each replica, authenticated as the tasks' principal.
        foreign: One client for each replica, authenticated as another principal.
        random: The source of randomness.

    Attributes:
        cuts: how often a stream was cut; each time, the other principal tries to read the task.
    """

    def __init__(self, replicas: Sequence[Agent], foreign: Sequence[Agent], random: Random) -> None:
        self.cuts = 0
        self._replicas = replicas
        self._foreign = foreign
        self._random = random

    def read(self, task_id: str) -> Events:
        """Return the events of a task, resuming after each cut."""
        seen: Events = []
        while True:
            agent = self._random.choice(self._replicas)
            after = seen[-1][0] if seen else 0
            try:
                for event in _events(agent, task_id, after, self._random.randrange(MAX_BYTES)):
                    seen.append(event)
                return seen
            except CutError:
                self.cuts += 1
                self._try_as_stranger(task_id, after)

    def _try_as_stranger(self, task_id: str, after: int) -> None:
        agent = self._random.choice(self._foreign)
        body = agent.request(self._random.choice(["SubscribeToTask", "GetTask"]), id=task_id)
        answer = agent.client.post("/", json=body, headers={"last-event-id": str(after)})
        check_no_leaks(answer.text)
        assert answer.json()["error"]["code"] == NOT_FOUND, answer.text


def _events(agent: Agent, task_id: str, after: int, limit: int) -> Iterator[tuple[int, Json]]:
    """Yield the events after the version *after*, until the task ends.

    Raises:
        CutError: *limit* bytes were read before the task ended.
    """
    body, headers = agent.request("SubscribeToTask", id=task_id), {"last-event-id": str(after)}
    with agent.client.stream("POST", "/", json=body, headers=headers) as response:
        assert response.headers["content-type"].startswith("text/event-stream"), response.read()
        buffer = b""
        for chunk in response.iter_raw():
            buffer += chunk[:limit]
            limit -= len(chunk)
            *frames, buffer = buffer.split(b"\n\n")
            for frame in frames:
                number, _, data = frame.partition(b"\ndata: ")
                yield int(number.removeprefix(b"id: ")), json.loads(data)["result"]
            if limit <= 0:
                raise CutError


def cut_readers(trial: Trial, *, cuts: int) -> None:
    """Cut streams at any byte; their readers resume them at any replica."""
    with (
        fleet(trial.home, [trial.server.url] * 3, LEASE, ["keys"] * 3) as agents,
        ExitStack() as cleanup,
    ):
        own, foreign = ([*_authenticated(key, agents, cleanup)] for key in ("ada", "bob"))
        readers = Readers(own, foreign, trial.random)
        observed = Observed()
        while readers.cuts < cuts:
            _round(trial, readers, own, observed)
            trial.say(f"{readers.cuts} of {cuts} cuts, {len(observed.tasks)} tasks")
        for agent in foreign:
            assert agent.ask("ListTasks")["result"]["tasks"] == []
    check(trial.server.url, trial.home, observed)


def _authenticated(key: str, agents: Fleet, cleanup: ExitStack) -> Iterator[Agent]:
    """Yield one client for each replica, all with the same API key."""
    for replica in agents.replicas:
        agent = Agent(replica.url, replica.home)
        agent.client.headers["x-api-key"] = key
        cleanup.enter_context(agent.client)
        yield agent


def _round(trial: Trial, readers: Readers, replicas: Sequence[Agent], observed: Observed) -> None:
    """Read some tasks while they run, and again after they have ended."""
    with ExitStack() as streams, ThreadPoolExecutor(2 * TASKS) as threads:
        streams_to_open = [
            trial.random.choice(replicas).stream("steps", **RUN) for _ in range(TASKS)
        ]
        event_iterators = [streams.enter_context(stream) for stream in streams_to_open]
        first_events = [next(events) for events in event_iterators]
        task_ids = [first["task"]["id"] for _, first in first_events]
        read_while_running = [*threads.map(readers.read, [*task_ids, *task_ids])]
        read_after_end = [*threads.map(readers.read, [*task_ids, *task_ids])]
        expected = [
            [first, *rest] for first, rest in zip(first_events, event_iterators, strict=True)
        ]
    for number, task_id in enumerate(task_ids):
        observed.tasks.add(task_id)
        observed.versions_read[task_id] = [version for version, _ in expected[number]]
        for read in (read_while_running, read_after_end):
            for events in (read[number], read[number + TASKS]):
                assert events == expected[number], f"{task_id} was read differently after cuts"
