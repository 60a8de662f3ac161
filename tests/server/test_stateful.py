"""Whatever clients do, in whatever order: every task keeps what the protocol promises.

Hypothesis thinks of clients that send, answer, cancel, hang up and come back, of modules that
end in every way, and of a store that takes its time. They meet a real agent, ASGI in and ASGI
out, in an event loop whose clock the steps move; nothing waits for real but for threads.

The model knows what was done to each task and what its module did, and from that what may have
become of it.
"""

import asyncio
import json
import logging
import os
import selectors
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Any, TypeAlias

import pytest
from apcore import Executor
from apcore_a2a_core import from_value
from apcore_a2a_core.states import NAMES, TERMINAL, TRANSITIONS
from apcore_a2a_server import InMemoryTaskStore
from apcore_a2a_server.app.agent import Agent
from apcore_a2a_server.store import Page, Query, TaskRecord
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.serving import PATIENCE

from .asking import Json, state_of
from .inloop import NEEDS_APPROVAL, Frame, app_of, registry_of
from .modules import Inputs, Module

EXAMPLES = int(os.environ.get("STATEFUL_EXAMPLES", "0"))
"""How many examples a soak tries, new ones each time (or those of `--hypothesis-seed`).

Zero is a few, always the same ones.
"""

PROFILE = settings(
    derandomize=not EXAMPLES,
    stateful_step_count=40,
    deadline=None,
    database=None,
    # an example is a life of an agent, some twenty milliseconds of it
    suppress_health_check=[HealthCheck.too_slow],
)

BREATH = 0.01
"""Seconds in which a thread nearly always does what it is there for."""

RUN_LIMIT, ANSWER_LIMIT, SLACK = 30.0, 60.0, 5.0
"""Seconds that a run and an answer may take, and how exactly the model knows them."""

LIMITS = {"execution_timeout": RUN_LIMIT, "input_timeout": ANSWER_LIMIT}
NEXT = {NAMES[old]: {NAMES[new] for new in ways} for old, ways in TRANSITIONS.items()}
STREAMS = {"SendStreamingMessage", "SubscribeToTask"}
ENDS = {NAMES[state] for state in TERMINAL}
PAUSES = {"InputRequiredError", "ApprovalPendingError"}
SETTLED = {*ENDS, "input-required"}

# Nothing that Hypothesis draws depends on what the agent does, for that may differ in threads:
# steps name tasks, clients and runs by numbers, latest first, and do nothing where there is none.
which = st.sampled_from([0, 0, 0, 1, 1, 2, 3, 5])
skills = st.sampled_from(["plain", "guarded", "errand", "chunks", "guarded_chunks"])
contexts = st.sampled_from(["", "ours", "yours"])
orders = st.sampled_from(["finish", "take a while", "fail", "ask", "stall", "stall", "stall"])
"""What messages tell modules to do; whatever else they say is "finish"."""
answers = st.sampled_from(["yes", "yes", "yes", "no", "perhaps"]) | orders
ways = st.sampled_from(["wait", "leave", "stream"])
"""How clients send: they wait for the task, do not, or read its stream."""

Moment: TypeAlias = int | float | None
moments: st.SearchStrategy[Moment] = st.sampled_from([None, None, 0, 1, 2, 3, 4, 6, 9, 14])
"""What passes after a step: nothing at all, so many rounds of the loop, or (floats) seconds.

With a store that takes its time it is as many halves of that.
"""
whiles: st.SearchStrategy[Moment] = st.sampled_from([None, 0, 3, 0.6, 3.6, 6.0, 6.0])


class Clock(selectors.DefaultSelector):
    """A selector that does not wait for a timer but moves the time on to it.

    It waits for threads, so that what they do takes no time either.

    Args:
        has_threads: Whether a thread is at work, or will be after the next round.
    """

    now = 0.0

    def __init__(self, has_threads: Callable[[], bool]) -> None:
        super().__init__()
        self._has_threads = has_threads
        self._had_threads = False

    def select(self, timeout: float | None = None) -> Any:
        threads, idle = self._has_threads(), timeout is None or timeout > 0
        patience = PATIENCE if idle else BREATH if self._had_threads else 0
        found = super().select(patience if threads else 0)
        self._had_threads = threads
        if idle and not found:
            assert timeout is not None, "everybody waits for somebody else"
            assert not threads, "a thread does not end"
            self.now += timeout
        return found


class Loop(asyncio.SelectorEventLoop):
    """An event loop that goes by *clock*."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._by = clock

    def time(self) -> float:
        return self._by.now


class Store(InMemoryTaskStore):
    """Takes *delay* seconds before and after everything it does, and shows what it is given."""

    def __init__(self, show: Callable[[TaskRecord], None]) -> None:
        super().__init__()
        self.delay = 0.0
        self._show = show

    async def save(self, record: TaskRecord) -> None:
        await self._take_time()
        await super().save(record)
        self._show(record)
        await self._take_time()

    async def get(self, task_id: str) -> TaskRecord | None:
        await self._take_time()
        found = await super().get(task_id)
        await self._take_time()
        return found

    async def query(self, query: Query) -> Page:
        await self._take_time()
        found = await super().query(query)
        await self._take_time()
        return found

    async def _take_time(self) -> None:
        if self.delay:
            await asyncio.sleep(self.delay)


@dataclass
class Run:
    """One time that a module was called for a task."""

    task_id: str
    skill: str
    order: str
    go: asyncio.Event = field(default_factory=asyncio.Event)
    fails: bool = False
    end: str = ""
    """"returned", or what was raised; empty while it runs."""


@dataclass
class Story:
    """A task as the model knows it."""

    id: str
    skill: str
    context: str
    message_id: str
    """Of the message that it began with."""
    state: str = "submitted"
    version: int = 0
    since: float = 0
    """When it began to work, or to wait for an answer."""
    asks: str | None = ""
    """What it asks approval for; None when it asks for more input, empty if it never did."""
    granted: Counter[str] = field(default_factory=Counter[str])
    """How often what has been approved."""
    canceled: bool = False
    """Whether anybody has asked to cancel it."""
    runs: list[Run] = field(default_factory=list[Run])
    log: dict[int, Json] = field(default_factory=dict[int, Json])
    """Its events, by version, as anybody has read them."""


class Client:
    """One request, all that came back, and whether its client is still there."""

    def __init__(self, method: str, params: Json, last: int | None = None) -> None:
        self.method = method
        self.params = params
        self.last = last
        self.gone = asyncio.Event()
        self.left = inf
        self.reply: Json = {}
        self.frames: list[Frame] = []
        self.hears: Callable[[Client], None] = lambda client: None
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        self._body = [json.dumps(request).encode()]
        self.is_there = False
        """Whether it waits for its answer, or for more of it."""
        self.since = 0.0

    def start(self, app: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.since = loop.time()
        self.is_there = True
        loop.create_task(self.talk(app)).add_done_callback(self._on_done)

    def hang_up(self, now: float) -> None:
        self.gone.set()
        self.is_there = False
        self.left = now

    async def talk(self, app: Any) -> None:
        headers = [(b"last-event-id", b"%d" % self.last)] if self.last is not None else []
        scope = {"type": "http", "method": "POST", "path": "/", "query_string": b""}
        await app({**scope, "headers": headers}, self._receive, self._send)

    @property
    def message(self) -> Json:
        """The message that it sends, if it sends one."""
        found: Json = self.params.get("message", {})
        return found

    @property
    def waits(self) -> bool:
        """Whether the task that it starts is for somebody who waits."""
        return bool(self.message) and "configuration" not in self.params

    @property
    def task_id(self) -> str:
        """The id of the task that it has heard of."""
        if self.frames:
            body = self.frames[0].body
            return str(body.get("taskId") or body["id"])
        result = self.reply.get("result", {})
        return str(result.get("task", result).get("id", ""))

    @property
    def named(self) -> str:
        """The id of the task that it names."""
        return str(self.message.get("taskId") or self.params.get("id", ""))

    @property
    def code(self) -> int | None:
        found: int | None = self.reply.get("error", {}).get("code")
        return found

    def is_for(self, story: Story) -> bool:
        """Whether it has to do with a task: it began it, names it or has heard of it."""
        begins = self.message.get("messageId") == story.message_id
        return begins or story.id in {self.named, self.task_id}

    def is_about(self, story: Story) -> bool:
        """Whether it may have to do with a task, if only by being sent into its context."""
        somewhere = not self.named and self.message.get("contextId") == story.context
        return somewhere or self.is_for(story)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self.is_there = False
        task.result()

    async def _receive(self) -> Json:
        if self._body:
            return {"type": "http.request", "body": self._body.pop()}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        body = message.get("body", b"")
        if self.gone.is_set() or body[:1] not in {b"{", b"i"}:
            return
        if body.startswith(b"{"):
            self.reply = json.loads(body)
        else:
            first, _, second = body.decode().partition("\n")
            ((kind, event),) = json.loads(second.removeprefix("data: "))["result"].items()
            name = kind.removesuffix("Update")
            self.frames.append(Frame(int(first.removeprefix("id: ")), name, event))
        self.hears(self)


class Worker(Module):
    """Does what messages tell it."""

    def __init__(self, world: "World", **attributes: Any) -> None:
        self._world = world
        vars(self).update(attributes)

    async def execute(self, inputs: Inputs, context: Any) -> Inputs:
        with self._world.running(inputs["text"], context) as run:
            return await self._obey(run, context)

    async def _obey(self, run: Run, context: Any) -> Inputs:
        if run.order == "ask":
            context.services.ask("What now?")
        if run.order == "stall":
            await run.go.wait()
            self._world.goes_on(run)
        for _ in range(run.order == "take a while" and 7):
            await asyncio.sleep(0)
            self._world.goes_on(run)
        if run.fails or run.order == "fail":
            raise ValueError(run.order)
        return {"done": run.order}


class Chunks(Worker):
    """Does it in pieces."""

    async def stream(self, inputs: Inputs, context: Any) -> AsyncIterator[Inputs]:
        with self._world.running(inputs["text"], context) as run:
            for piece in range(2):
                yield {"piece": piece}
                self._world.goes_on(run)
                await asyncio.sleep(0)
            yield await self._obey(run, context)


class Errand(Worker):
    """Has another module do it, twice."""

    async def _obey(self, run: Run, context: Any) -> Inputs:
        for _ in range(2):
            await context.executor.call_async("guarded", {"text": run.order}, context)
            self._world.goes_on(run)
        return {"done": run.order}


class World(RuleBasedStateMachine):
    """An agent, everybody who talks to it, and what there is to say against it."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[str] = []
        self.stories: dict[str, Story] = {}
        self.clients: list[Client] = []
        self.runs: list[Run] = []
        self.over: dict[str, str] = {}
        """How tasks have ended, of which clients know that they have."""
        self.hurries = False
        self.store = Store(self.saved)
        guarded = {"annotations": NEEDS_APPROVAL}
        modules: dict[str, object] = {
            "plain": Worker(self),
            "guarded": Worker(self, **guarded),
            "errand": Errand(self),
            "chunks": Chunks(self),
            "guarded_chunks": Chunks(self, **guarded),
        }
        self.executor = Executor(registry_of(modules))
        self.app = app_of(self.executor, task_store=self.store, **LIMITS)
        self.agent: Agent = self.app.state.agent
        self.clock = Clock(self._has_threads)
        self.runner = asyncio.Runner(loop_factory=lambda: Loop(self.clock))
        self.runner.get_loop().set_exception_handler(self._on_stray_error)

    def hold(self, holds: object, what: str) -> None:
        """Note down *what* is wrong, unless it *holds*."""
        if not holds:
            self.wrong.append(what)

    # What clients, modules and time do.

    @initialize(skill=skills, order=orders, way=ways, then=moments)
    def begin(self, skill: str, order: str, way: str, then: Moment) -> None:
        self.send(skill, order, way, "ours", then)

    @rule(skill=skills, order=orders, way=ways, context=contexts, then=moments)
    def send(self, skill: str, order: str, way: str, context: str, then: Moment) -> None:
        context = context or f"context {len(self.clients)}"
        self._say(order, way, {"metadata": {"skillId": skill}}, contextId=context)
        self._go(then)

    @rule(task=which, text=answers, way=ways, by_context=st.booleans(), then=moments)
    def answer(self, task: int, text: str, way: str, by_context: bool, then: Moment) -> None:
        story = _latest(self.stories.values(), task)
        if story is not None:
            to = {"contextId": story.context} if by_context else {"taskId": story.id}
            self._say(text, way, {}, **to)
            self._go(then)

    @rule(task=which, then=moments)
    def cancel(self, task: int, then: Moment) -> None:
        story = _latest(self.stories.values(), task)
        if story is not None:
            story.canceled = True
            self._start(Client("CancelTask", {"id": story.id}))
            self._go(then)

    @rule(task=which, last=st.none() | st.integers(0, 6), then=moments)
    def subscribe(self, task: int, last: int | None, then: Moment) -> None:
        story = _latest(self.stories.values(), task)
        if story is not None:
            last = None if last is None else min(last, max(story.log, default=0))
            self._start(Client("SubscribeToTask", {"id": story.id}, last))
            self._go(then)

    @rule(client=which, then=whiles)
    def hang_up(self, client: int, then: Moment) -> None:
        lost = _latest([one for one in self.clients if one.is_there], client)
        if lost is not None:
            lost.hang_up(self.clock.now)
            self._go(then)

    @rule(client=which, then=whiles)
    def come_back(self, client: int, then: Moment) -> None:
        back = _latest([one for one in self.clients if one.gone.is_set()], client)
        story = next((one for one in self.stories.values() if back and back.is_for(one)), None)
        if back is not None and story is not None:
            last = back.frames[-1].id if back.frames else None
            self._start(Client("SubscribeToTask", {"id": story.id}, last))
            self._go(then)

    @rule(run=which, fails=st.booleans(), then=moments)
    def let_go(self, run: int, fails: bool, then: Moment) -> None:
        stalled = _latest([one for one in self.runs if not one.end], run)
        if stalled is not None:
            stalled.fails = fails
            stalled.go.set()
            self._go(then)

    @rule(seconds=st.sampled_from([0.6, 3.6, 6.0, 6.0, 40.0]))
    def wait(self, seconds: float) -> None:
        self._go(seconds)

    # What is to be said of it.

    @invariant()
    def nothing_is_wrong(self) -> None:
        for story in self.stories.values():
            self._check(story)
        assert not self.wrong, "; ".join(self.wrong)

    def teardown(self) -> None:
        try:
            if not self.wrong:
                self.runner.run(self._end())
                self.nothing_is_wrong()
        finally:
            self.runner.close()
            self.executor.close()

    def saved(self, record: TaskRecord) -> None:
        """Called by the store, with what it has just saved."""
        task, now = record.task, self.clock.now
        first = Story(task.id, record.skill, task.context_id, task.history[0].message_id)
        story = self.stories.setdefault(task.id, first)
        old, new = story.state, NAMES[task.status.state]
        way = f"a {story.skill} task goes from {old} to {new}"
        self.hold(new in NEXT.get(old, set()), way)
        self.hold(record.version > story.version, f"{way} and not to a later version")
        if new == "failed":
            limit = RUN_LIMIT if old == "working" else ANSWER_LIMIT
            raised = bool(story.runs) and story.runs[-1].end == "ValueError"
            self.hold(raised or now - story.since >= limit - SLACK, f"{way} for no reason")
        if new == "canceled" and not story.canceled:
            there = [one for one in self.clients if one.is_there and one.is_for(story)]
            here = any(now - one.since > 0.5 for one in there)
            self.hold(not here, "a task is canceled while somebody waits for it")
        if old == "input-required" and new not in {"failed", "canceled"}:
            self._check_answer(story, task.history[-1].parts[0].text, new)
        if (old, new) != ("input-required", "input-required"):
            story.since = now
        story.state, story.version = new, record.version
        if new == "input-required":
            asked = from_value(task.status.message.parts[1].data).get("approval")
            story.asks = asked["arguments"]["text"] if asked else None

    def _check_answer(self, story: Story, said: str, state: str) -> None:
        """An answer leads where it says."""
        ways = {"yes": "working", "no": "rejected"}
        right = "working" if story.asks is None else ways.get(said, "input-required")
        self.hold(state == right, f"{said} brings a task to {state}")
        if state == "working" and story.asks is not None:
            story.granted[story.asks] += 1

    @contextmanager
    def running(self, order: str, context: Any) -> Iterator[Run]:
        """Watch a module that is called."""
        run = Run(context.data["ext.a2a.task_id"], context.call_chain[-1], order)
        self.runs.append(run)
        self.stories[run.task_id].runs.append(run)
        self.goes_on(run)
        if self.hurries:
            run.go.set()
        try:
            yield run
        except BaseException as error:  # a run ends by cancellation, too
            run.end = type(error).__name__
            raise
        run.end = "returned"

    def goes_on(self, run: Run) -> None:
        """Called by a module that does anything."""
        self.hold(run.task_id not in self.over, "a module goes on though its task has ended")

    def _check(self, story: Story) -> None:
        """What holds at any time."""
        self._check_runs(story)
        told = [one for one in self.clients if one.message and one.is_about(story)]
        lost = any(one.gone.is_set() and one.is_about(story) for one in self.clients)
        last = next((run.end for run in reversed(story.runs) if run.skill == story.skill), None)
        took = self.clock.now - story.since
        allowed = {
            "submitted": False,
            "working": took <= RUN_LIMIT + SLACK,
            "input-required": took <= ANSWER_LIMIT + SLACK and last in {None, *PAUSES},
            "completed": last == "returned",
            "canceled": story.canceled or (lost and any(one.waits for one in told)),
        }
        what = f"a {story.skill} task is {story.state} after {took} s and {story.runs}"
        self.hold(allowed.get(story.state, True), what)

    def _check_runs(self, story: Story) -> None:
        """No module runs more often than it should."""
        times = Counter((run.skill, run.order) for run in story.runs)
        pauses = Counter((run.skill, run.order) for run in story.runs if run.end in PAUSES)
        for skill, order in times:
            once = story.granted[order] if skill.startswith("guarded") else 1
            often = times[skill, order] > once + pauses[skill, order]
            self.hold(not often, f"{skill} ran too often: {story.runs}")
        busy = Counter(run.skill for run in story.runs if not run.end)
        self.hold(all(number == 1 for number in busy.values()), "a module runs twice at a time")

    # How it is done.

    def _say(self, text: str, way: str, params: Json, **members: str) -> None:
        message = {"messageId": f"m{len(self.clients)}", "role": "ROLE_USER", **members}
        params = {"message": {**message, "parts": [{"text": text}]}, **params}
        if way == "leave":
            params["configuration"] = {"returnImmediately": True}
        self._start(Client("SendStreamingMessage" if way == "stream" else "SendMessage", params))

    def _start(self, client: Client) -> None:
        client.hears = self._on_word
        client.start(self.app, self.runner.get_loop())
        self.clients.append(client)

    def _go(self, moment: Moment) -> None:
        if moment is not None:
            self.runner.run(self._pass(moment))

    async def _pass(self, moment: float) -> None:
        if isinstance(moment, float):
            await asyncio.sleep(moment)
            if moment > SLACK:
                self._check_rest()
        else:
            for _ in range(moment):
                await asyncio.sleep(self.store.delay / 2)
        await self._look()

    async def _look(self, everywhere: bool = False) -> None:
        """See that the agent knows every task that clients know, and tells the same of it."""
        delay, self.store.delay = self.store.delay, 0
        listed = (await self._ask("tasks/list", historyLength=0))["tasks"]
        states = {task["id"]: state_of(task) for task in listed}
        self.hold(len(listed) == len(states), "a task is listed twice")
        known = {client.task_id for client in self.clients} - {""}
        for task_id in self.stories if everywhere else known - {*self.over}:
            self.hold(task_id in states, "a task is lost from the list")
            task = await self._ask("tasks/get", id=task_id, historyLength=0)
            self._note(task_id, state_of(task))
        same = all(states.get(task_id) == state for task_id, state in self.over.items())
        self.hold(same, "a task is listed in another state than it has ended in")
        self.store.delay = delay

    async def _ask(self, method: str, **params: Any) -> Json:
        client = Client(method, params)
        await client.talk(self.app)
        self.hold("result" in client.reply, f"{method}: {client.reply.get('error')}")
        result: Json = client.reply.get("result", {"tasks": [], "status": {"state": ""}})
        return result

    def _note(self, task_id: str, state: str) -> None:
        """A client knows that a task is in this state, by what the journal says."""
        end = self.over.setdefault(task_id, state) if state in ENDS else self.over.get(task_id)
        self.hold(end in {None, state}, f"a task is {state} after its end")

    def _on_word(self, client: Client) -> None:
        """A client has heard something."""
        story = self.stories.get(client.task_id)
        self.hold(story or client.code, f"{client.method} gives a task that is not stored")
        if client.frames and story is not None:
            self._check_frame(client, story)
            if _ends(client.frames[-1]):
                self._note(story.id, client.frames[-1].state)
        elif client.code is not None:
            self._check_refusal(client)
        else:
            task = client.reply["result"].get("task", client.reply["result"])
            waits = client.method == "CancelTask" or client.waits
            self._note(task["id"], state_of(task))
            self.hold(not waits or state_of(task) in SETTLED, f"{client.method} did not wait")
            if client.method == "CancelTask":
                self.hold(state_of(task) == "canceled", "a canceled task is not canceled")

    def _check_frame(self, client: Client, story: Story) -> None:
        frame, before = client.frames[-1], client.frames[:-1]
        snapshot = frame.kind == "task" and frame.id > 1
        if before:
            self.hold(not _ends(before[-1]), "there is an event after the end")
            self.hold(frame.id == before[-1].id + 1 and not snapshot, "a reader has a gap")
        elif client.last is not None:
            self.hold(frame.id == client.last + 1 and not snapshot, "a reader has missed events")
        elif client.method == "SubscribeToTask":
            self.hold(snapshot, "a new reader does not get the task first")
        elif client.message.get("messageId") == story.message_id:
            self.hold(frame.id == 1, "a stream does not begin with the beginning")
        if not snapshot:
            known = story.log.setdefault(frame.id, frame.body)
            self.hold(known == frame.body, "two readers see different events")

    def _check_refusal(self, client: Client) -> None:
        """Only what the protocol has an error for is refused."""
        to_nobody = "contextId" in client.message and "metadata" not in client.params
        allowed = {
            "CancelTask": {-32002},
            "SubscribeToTask": {-32004} if client.last is None else set(),
        }
        by_message = {-32004} if "taskId" in client.message else {-32602} if to_nobody else set()
        codes = allowed.get(client.method, by_message)
        self.hold(client.code in codes, f"{client.method} is refused: {client.reply}")

    def _check_rest(self) -> None:
        """What holds when all have had the time to do what they do."""
        runs = self.agent.engine.runs
        working = {story.id for story in self.stories.values() if story.state == "working"}
        self.hold({*runs} == working, "the runs are not those of the working tasks")
        for task_id in working:
            self._check_waiting(self.stories[task_id])
        there = [client for client in self.clients if client.is_there]
        streams = [client for client in there if client.method in STREAMS]
        handler = self.agent.handler  # no answer tells what it holds
        self.hold(len(handler.streams) == len(streams), "streams are left over")
        watchers = sum(handler.watchers._watchers.values())
        self.hold(watchers == len(there), "watchers are left over")
        self.hold({client.task_id for client in there} <= {"", *working}, "a client waits in vain")
        for client in self.clients:
            if not client.is_there and not client.gone.is_set():
                nothing_new = client.last is not None  # then a reader has all there is
                answered = client.reply or client.frames or nothing_new
                self.hold(answered, f"{client.method} has no answer")
                settled = not client.frames or _ends(client.frames[-1], SETTLED)
                self.hold(settled, "a stream ends before its task has settled")

    def _check_waiting(self, story: Story) -> None:
        """A task that was sent to be waited for does not outlive its last client for long."""
        about = [one for one in self.clients if one.is_for(story)]
        alone = story.asks == "" and any(one.waits for one in about)
        there = any(one.is_there or self.clock.now - one.left < SLACK for one in about)
        self.hold(there or not alone, "a task works for nobody")

    async def _end(self) -> None:
        """Let everything end, and see what is left over."""
        self.hurries = True
        for run in self.runs:
            run.go.set()
        await asyncio.sleep(RUN_LIMIT + ANSWER_LIMIT + 2 * SLACK)
        await self._look(everywhere=True)
        self._check_rest()
        for story in self.stories.values():
            self.hold(self.over.get(story.id) == story.state, "a task does not end")
            try:
                async with asyncio.timeout(SLACK):
                    await self._replay(story)
            except TimeoutError:
                self.wrong.append("the log of a task that has ended does not end")
        self.hold(not any(client.is_there for client in self.clients), "clients wait in vain")
        self.hold(not self.agent.engine.runs, "runs are left over")
        self.hold(not self.agent.handler.watchers._lost, "lost watchers are left over")
        self.hold(asyncio.all_tasks() == {asyncio.current_task()}, "asyncio tasks are left over")

    async def _replay(self, story: Story) -> None:
        """Read the log of a task from its beginning."""
        reader = Client("SubscribeToTask", {"id": story.id}, 0)
        reader.hears = self._on_word
        await reader.talk(self.app)
        versions = [frame.id for frame in reader.frames]
        self.hold(versions == [*range(1, story.version + 1)], f"the log has {versions}")
        states = [frame.state for frame in reader.frames if frame.kind != "artifact"]
        for old, new in pairwise(states):
            self.hold(new in NEXT.get(old, set()), f"the log goes from {old} to {new}")
        self.hold([state for state in states if state in ENDS] == states[-1:], f"{states}")
        self.hold(states[:1] == ["submitted"], f"the log begins with {states[:1]}")

    def _has_threads(self) -> bool:
        """Whether a thread is at work: only preflights have threads here."""
        return self.agent.setup.access.is_asking

    def _on_stray_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.wrong.append(f"{context['message']}: {context.get('exception')!r}")


class SlowWorld(World):
    """The same with a store that takes its time."""

    def __init__(self) -> None:
        super().__init__()
        self.store.delay = 0.001

    @rule(seconds=st.sampled_from([0, 0.001, 0.05]))
    def take_so_long(self, seconds: float) -> None:
        self.store.delay = seconds


def _ends(frame: Frame, ends: Collection[str] = frozenset(ENDS)) -> bool:
    """Whether an event tells of the end of its task, or of another of the states *ends*."""
    return frame.kind != "artifact" and frame.state in ends


def _latest(found: Any, number: int) -> Any:
    """The one with *number* from the end, around and around; None when there is none."""
    every = [*found]
    return every[-1 - number % len(every)] if every else None


@pytest.mark.parametrize("world", [World, SlowWorld])
@pytest.mark.parametrize("examples", [20, pytest.param(EXAMPLES or 120, marks=pytest.mark.soak)])
def test_whatever_clients_do_every_task_keeps_what_is_promised(
    world: type[World], examples: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "apcore_a2a_core")  # it tells of every module that fails
    run_state_machine_as_test(world, settings=settings(PROFILE, max_examples=examples))
    assert not [record for record in caplog.records if record.name.startswith("apcore_a2a")]
