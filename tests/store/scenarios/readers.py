"""Readers whose connections break."""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from random import Random

from tests.server.asking import look_over
from tests.store.fleet import Fleet, fleet
from tests.store.invariants import Told, check
from tests.store.replicas import Agent, Json
from tests.store.trials import Trial

LEASE = 15
TASKS = 8
"""How many run at a time; each has two readers while it runs, and two when it has ended."""
RUN = {"seconds": 0.05, "steps": 30}
MOST = 6000
"""Bytes after which a connection is cut at the latest; all events of a task have some 10,000."""
NOT_FOUND = -32001

Events = list[tuple[int, Json]]


class CutError(Exception):
    """The connection was cut before the task had ended."""


class Readers:
    """They read all events of tasks, however often they are cut off.

    Args:
        places: The replicas, as the tasks' principal asks them.
        foreign: The same, as another principal does.
        random: What is left to chance.

    Attributes:
        cuts: how often they were cut off; each time the other principal tries to go on instead.
    """

    def __init__(self, places: Sequence[Agent], foreign: Sequence[Agent], random: Random) -> None:
        self.cuts = 0
        self._places = places
        self._foreign = foreign
        self._random = random

    def read(self, task_id: str) -> Events:
        """The events of a task, on each connection from where the last one was cut."""
        seen: Events = []
        while True:
            place = self._random.choice(self._places)
            after = seen[-1][0] if seen else 0
            try:
                for event in _events(place, task_id, after, self._random.randrange(MOST)):
                    seen.append(event)
                return seen
            except CutError:
                self.cuts += 1
                self._peek(task_id, after)

    def _peek(self, task_id: str, after: int) -> None:
        place = self._random.choice(self._foreign)
        body = place.request(self._random.choice(["SubscribeToTask", "GetTask"]), id=task_id)
        answer = place.client.post("/", json=body, headers={"last-event-id": str(after)})
        look_over(answer.text)
        assert answer.json()["error"]["code"] == NOT_FOUND, answer.text


def _events(place: Agent, task_id: str, after: int, most: int) -> Iterator[tuple[int, Json]]:
    """The events behind one, until the task ends.

    Raises:
        CutError: *most* bytes have come before that.
    """
    body, headers = place.request("SubscribeToTask", id=task_id), {"last-event-id": str(after)}
    with place.client.stream("POST", "/", json=body, headers=headers) as response:
        assert response.headers["content-type"].startswith("text/event-stream"), response.read()
        come = b""
        for chunk in response.iter_raw():
            come += chunk[:most]
            most -= len(chunk)
            *frames, come = come.split(b"\n\n")
            for frame in frames:
                number, _, data = frame.partition(b"\ndata: ")
                yield int(number.removeprefix(b"id: ")), json.loads(data)["result"]
            if most <= 0:
                raise CutError


def cut_readers(trial: Trial, *, cuts: int) -> None:
    """Cut readers of streams off at any byte; they go on at another replica."""
    with (
        fleet(trial.home, [trial.server.url] * 3, LEASE, ["keys"] * 3) as agents,
        ExitStack() as end,
    ):
        ours, foreign = ([*_asked_by(key, agents, end)] for key in ("ada", "bob"))
        readers = Readers(ours, foreign, trial.random)
        told = Told()
        while readers.cuts < cuts:
            _round(trial, readers, ours, told)
            trial.say(f"{readers.cuts} of {cuts} cuts, {len(told.tasks)} tasks")
        for place in foreign:
            assert place.ask("ListTasks")["result"]["tasks"] == []
    check(trial.server.url, trial.home, told)


def _asked_by(key: str, agents: Fleet, end: ExitStack) -> Iterator[Agent]:
    """The replicas, as the principal with a key asks them."""
    for replica in agents.replicas:
        found = Agent(replica.url, replica.home)
        found.client.headers["x-api-key"] = key
        end.enter_context(found.client)
        yield found


def _round(trial: Trial, readers: Readers, places: Sequence[Agent], told: Told) -> None:
    """Have some tasks read while they run, and when they have ended."""
    with ExitStack() as streams, ThreadPoolExecutor(2 * TASKS) as threads:
        begun = [trial.random.choice(places).stream("steps", **RUN) for _ in range(TASKS)]
        begins = [streams.enter_context(stream) for stream in begun]
        firsts = [next(events) for events in begins]
        task_ids = [first["task"]["id"] for _, first in firsts]
        live = [*threads.map(readers.read, [*task_ids, *task_ids])]
        over = [*threads.map(readers.read, [*task_ids, *task_ids])]
        kept = [[first, *rest] for first, rest in zip(firsts, begins, strict=True)]
    for number, task_id in enumerate(task_ids):
        told.tasks.add(task_id)
        told.seen[task_id] = [version for version, _ in kept[number]]
        for read in (live, over):
            for events in (read[number], read[number + TASKS]):
                assert events == kept[number], f"{task_id} was read otherwise after cuts"
