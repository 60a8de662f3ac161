"""Requests about one task that reach several processes at the same time."""

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import Random
from typing import Any, TypeAlias

from tests.server.asking import state_of
from tests.store.fleet import fleet, settled
from tests.store.invariants import Told, begun, check
from tests.store.replicas import Agent, Json
from tests.store.trials import Trial

LEASE = 15
AT_ONCE = 4
"""How many races there are at a time."""
ANSWERS = 0.01, 0.02, 0.03
"""What tasks that wait for input are told, by each replica."""
UNSUPPORTED = -32004
NOT_CANCELABLE = -32002

Ask: TypeAlias = Callable[[], Json]


class Races:
    """Has requests about a task race, and looks whether their answers fit what came of it.

    Args:
        places: The replicas.
        random: What is left to chance.
        threads: Send the requests of a race.

    Attributes:
        told: what clients were told.
        ends: how often tasks of each skill have ended in which state.
    """

    def __init__(
        self, places: Sequence[Agent], random: Random, threads: ThreadPoolExecutor
    ) -> None:
        self.told = Told()
        self.ends: Counter[str] = Counter()
        self._places = places
        self._random = random
        self._threads = threads

    def run(self, number: int) -> None:
        """One race, of any kind."""
        kinds = self._cancel, self._approve, self._inform, self._follow_up
        kinds[number % len(kinds)]()

    def _cancel(self) -> None:
        """Cancels, and messages, to a task that works, or is about to end."""
        task = self._begin("once", self._random.choice([0.0, 0.02, 0.05, 1.0]), wait=False)
        says = [_message("go on", taskId=task["id"]) for _ in self._places]
        cancels, answers = self._race(says, task)
        assert _codes(answers) == {UNSUPPORTED}, answers
        self._end(task, cancels)

    def _approve(self) -> None:
        """Answers, and maybe cancels, to a task that waits for approval."""
        task = self._begin("asks", 0.01)
        words = [self._random.choice(["yes", "yes", "no"]) for _ in self._places]
        says = [_message(word, taskId=task["id"]) for word in words]
        cancels, answers = self._race(says, self._random.choice([task, None]))
        assert _codes(answers) <= {None, UNSUPPORTED}, answers
        self._end(task, cancels)

    def _inform(self) -> None:
        """Answers to a task that waits for input: it gets one of them."""
        task = self._begin("wants", 0)
        _, answers = self._race([_message(answer, taskId=task["id"]) for answer in ANSWERS])
        assert None in _codes(answers) <= {None, UNSUPPORTED}, answers
        assert self._end(task) in ANSWERS

    def _follow_up(self) -> None:
        """Messages to a conversation in which a task waits for input: it gets one of them."""
        task = self._begin("wants", 0)
        says = [_message(n, "wants", contextId=task["contextId"]) for n in ANSWERS]
        _, answers = self._race(says)
        tasks = {answer["result"]["task"]["id"]: answer["result"]["task"] for answer in answers}
        assert task["id"] in tasks
        outputs = [self._end(each) for each in tasks.values()]
        assert len({*outputs} & {*ANSWERS}) == len(tasks), f"{outputs}: some counted twice"

    def _begin(self, skill: str, seconds: float, *, wait: bool = True) -> Json:
        """A task, as it is when it has settled, or at once."""
        wish = {"returnImmediately": not wait}
        place = self._random.choice(self._places)
        task: Json = _task(place.ask("SendMessage", configuration=wish, **_message(seconds, skill)))
        return task

    def _race(self, says: Sequence[Json], canceled: Json | None = None) -> tuple[Any, Any]:
        """The answers to cancels and to messages, when each replica is sent one of both at once."""
        asks: list[Ask] = []
        if canceled is not None:
            asks += [partial(each.ask, "CancelTask", id=canceled["id"]) for each in self._places]
        pairs = zip(self._places, says, strict=True)
        asks += [partial(each.ask, "SendMessage", **params) for each, params in pairs]
        order = self._random.sample(range(len(asks)), len(asks))
        works = {number: self._threads.submit(asks[number]) for number in order}
        answers = [works[number].result() for number in range(len(asks))]
        return answers[: -len(says)], answers[-len(says) :]

    def _end(self, task: Json, cancels: Sequence[Json] = ()) -> float | None:
        """Hold the end of a task against the answers to cancels; its output."""
        place = self._random.choice(self._places)
        (state,) = place.ended(task["id"])
        counted = [answer for answer in cancels if "result" in answer]
        assert len(counted) == (state == "canceled"), (state, cancels)
        assert _codes(cancels) <= {None, NOT_CANCELABLE}, cancels
        found = place.task(task["id"])
        self.told.tasks.add(task["id"])
        self.told.ends[task["id"]] = state_of(found)
        self.ends[state] += 1
        if state != "completed":
            return None
        output: float = found["artifacts"][0]["parts"][0]["data"]["seconds"]
        return output


def _message(content: float | str, skill: str | None = None, **about: str) -> Json:
    """The params of a send."""
    part: Json = {"text": content} if isinstance(content, str) else {"data": {"seconds": content}}
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [part], **about}
    return {"message": message} | ({"metadata": {"skillId": skill}} if skill else {})


def _task(answer: Json) -> Json:
    task: Json = answer["result"]["task"]
    return task


def _codes(answers: Sequence[Json]) -> set[int | None]:
    """The codes of errors, and None where there is none."""
    return {answer["error"]["code"] if "error" in answer else None for answer in answers}


def race(trial: Trial, *, races: int) -> None:
    """Cancel tasks, answer them, and talk to them, through three replicas at once."""
    with (
        fleet(trial.home, [trial.server.url] * 3, LEASE) as agents,
        ThreadPoolExecutor(AT_ONCE * 2 * len(agents.replicas)) as senders,
        ThreadPoolExecutor(AT_ONCE) as threads,
    ):
        found = Races(agents.replicas, trial.random, senders)
        for number, _ in enumerate(threads.map(found.run, range(races)), 1):
            if number % 200 == 0:
                trial.say(f"{number} of {races} races")
        settled(trial.server.url)
    trial.say(f"{dict(found.ends)}")
    check(trial.server.url, trial.home, found.told)
    starts = begun(trial.home)
    assert max(starts.values()) == 1, starts.most_common(3)
