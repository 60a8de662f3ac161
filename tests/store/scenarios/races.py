"""Requests about one task that reach several replicas at the same time."""

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import Random
from typing import Any, TypeAlias

from tests.server.checking_client import state_of
from tests.store.fleet import fleet, wait_for_deliveries
from tests.store.invariants import Observed, check, start_counts
from tests.store.replicas import Agent, Json
from tests.store.trials import Trial

LEASE = 15  # seconds
CONCURRENT_RACES = 4
"""Number of races that run at the same time."""
ANSWERS = 0.01, 0.02, 0.03
"""The inputs that are sent to a task that waits for input, one through each replica."""
UNSUPPORTED = -32004
NOT_CANCELABLE = -32002

Ask: TypeAlias = Callable[[], Json]


class Races:
    """Races of requests about a task, and checks of their responses against the outcome.

    Args:
        replicas: The replicas that get the requests.
        random: The source of randomness.
        senders: The pool that sends the requests of a race.

    Attributes:
        observed: observations of clients.
        ends: how many tasks have ended in each state.
    """

    def __init__(
        self, replicas: Sequence[Agent], random: Random, senders: ThreadPoolExecutor
    ) -> None:
        self.observed = Observed()
        self.ends: Counter[str] = Counter()
        self._replicas = replicas
        self._random = random
        self._senders = senders

    def run(self, number: int) -> None:
        """Run the race with this number; the kinds take turns."""
        kinds = self._cancel, self._approve, self._inform, self._follow_up
        kinds[number % len(kinds)]()

    def _cancel(self) -> None:
        """Race cancels and messages to a task that is running or about to end."""
        task = self._begin("once", self._random.choice([0.0, 0.02, 0.05, 1.0]), wait=False)
        messages = [_message("go on", taskId=task["id"]) for _ in self._replicas]
        cancels, answers = self._race(messages, task)
        assert _codes(answers) == {UNSUPPORTED}, answers
        self._check_end(task, cancels)

    def _approve(self) -> None:
        """Race answers, and sometimes cancels, to a task that waits for approval."""
        task = self._begin("asks", 0.01)
        words = [self._random.choice(["yes", "yes", "no"]) for _ in self._replicas]
        messages = [_message(word, taskId=task["id"]) for word in words]
        cancels, answers = self._race(messages, self._random.choice([task, None]))
        assert _codes(answers) <= {None, UNSUPPORTED}, answers
        self._check_end(task, cancels)

    def _inform(self) -> None:
        """Race answers to a task that waits for input: one is accepted, and is its output."""
        task = self._begin("wants", 0)
        _, answers = self._race([_message(answer, taskId=task["id"]) for answer in ANSWERS])
        assert _codes(answers) <= {None, UNSUPPORTED}, answers
        (accepted,) = [
            seconds for seconds, a in zip(ANSWERS, answers, strict=True) if "result" in a
        ]
        assert self._check_end(task) == accepted

    def _follow_up(self) -> None:
        """Race A2A 0.3 messages to the context of a task that waits for input: one answers it.

        A later message starts a task of its own; in A2A 1.0 each message would.
        """
        task = self._begin("wants", 0)
        messages = [_message(n, "wants", contextId=task["contextId"]) for n in ANSWERS]
        _, answers = self._race(messages, method="message/send")
        assert None in _codes(answers) <= {None, UNSUPPORTED}, answers
        results = [answer["result"] for answer in answers if "result" in answer]
        tasks = {result["id"]: result for result in results}
        assert task["id"] in tasks
        outputs = [self._check_end(final_task) for final_task in tasks.values()]
        assert len({*outputs} & {*ANSWERS}) == len(tasks), f"{outputs}: some counted twice"

    def _begin(self, skill: str, seconds: float, *, wait: bool = True) -> Json:
        """Start a task and return it, at once or, if *wait*, when it has ended or paused."""
        options = {"returnImmediately": not wait}
        replica = self._random.choice(self._replicas)
        task: Json = _task(
            replica.ask("SendMessage", configuration=options, **_message(seconds, skill))
        )
        return task

    def _race(
        self, messages: Sequence[Json], task: Json | None = None, *, method: str = "SendMessage"
    ) -> tuple[Any, Any]:
        """Race cancels of *task*, if any, and messages; return the responses to both."""
        requests: list[Ask] = []
        if task is not None:
            requests += [
                partial(replica.ask, "CancelTask", id=task["id"]) for replica in self._replicas
            ]
        pairs = zip(self._replicas, messages, strict=True)
        requests += [partial(replica.ask, method, **params) for replica, params in pairs]
        order = self._random.sample(range(len(requests)), len(requests))
        futures = {number: self._senders.submit(requests[number]) for number in order}
        answers = [futures[number].result() for number in range(len(requests))]
        return answers[: -len(messages)], answers[-len(messages) :]

    def _check_end(self, task: Json, cancels: Sequence[Json] = ()) -> float | None:
        """Check the end of a task against the responses to cancels; return its output."""
        replica = self._random.choice(self._replicas)
        (state,) = replica.wait_for_end(task["id"])
        successful = [answer for answer in cancels if "result" in answer]
        assert len(successful) == (state == "canceled"), (state, cancels)
        assert _codes(cancels) <= {None, NOT_CANCELABLE}, cancels
        final_task = replica.task(task["id"])
        self.observed.tasks.add(task["id"])
        self.observed.ends[task["id"]] = state_of(final_task)
        self.ends[state] += 1
        if state != "completed":
            return None
        output: float = final_task["artifacts"][0]["parts"][0]["data"]["seconds"]
        return output


def _message(content: float | str, skill: str | None = None, **fields: str) -> Json:
    """Return the params of a send."""
    part: Json = {"text": content} if isinstance(content, str) else {"data": {"seconds": content}}
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [part], **fields}
    return {"message": message} | ({"metadata": {"skillId": skill}} if skill else {})


def _task(answer: Json) -> Json:
    task: Json = answer["result"]["task"]
    return task


def _codes(answers: Sequence[Json]) -> set[int | None]:
    """Return the error codes of responses, None for a result."""
    return {answer["error"]["code"] if "error" in answer else None for answer in answers}


def race(trial: Trial, *, races: int) -> None:
    """Send cancels, answers and messages about the same tasks to three replicas at once."""
    with (
        fleet(trial.home, [trial.server.url] * 3, LEASE) as agents,
        ThreadPoolExecutor(CONCURRENT_RACES * 2 * len(agents.replicas)) as senders,
        ThreadPoolExecutor(CONCURRENT_RACES) as race_threads,
    ):
        racer = Races(agents.replicas, trial.random, senders)
        for number, _ in enumerate(race_threads.map(racer.run, range(races)), 1):
            if number % 200 == 0:
                trial.say(f"{number} of {races} races")
        wait_for_deliveries(trial.server.url)
    trial.say(f"{dict(racer.ends)}")
    check(trial.server.url, trial.home, racer.observed)
    starts = start_counts(trial.home)
    assert max(starts.values()) == 1, starts.most_common(3)
