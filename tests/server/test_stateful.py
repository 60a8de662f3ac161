"""A state machine test: every task follows the protocol, whatever clients do in any order.

Hypothesis generates clients that send, answer, cancel, disconnect and reconnect, modules that
end in every way, and a store with latency. The agent is real and is called through ASGI, in an
event loop with a simulated clock; only threads take real time.

The model tracks what was done to each task and what its module did, and derives from that the
states that the task may be in.
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

from .checking_client import Json, state_of
from .inloop import NEEDS_APPROVAL, Frame, app_of, registry_of
from .modules import Inputs, Module

EXAMPLES = int(os.environ.get("STATEFUL_EXAMPLES", "0"))
"""The number of examples of a soak test, random unless `--hypothesis-seed` is given.

Zero runs a few fixed examples.
"""

PROFILE = settings(
    derandomize=not EXAMPLES,
    stateful_step_count=40,
    deadline=None,
    database=None,
    # each example starts an agent and takes about twenty milliseconds
    suppress_health_check=[HealthCheck.too_slow],
)

THREAD_TIME = 0.01
"""Seconds in which a thread nearly always completes its work."""

RUN_LIMIT, ANSWER_LIMIT, SLACK = 30.0, 60.0, 5.0
"""Seconds that a run and an answer may take, and the model's tolerance."""

LIMITS = {"execution_timeout": RUN_LIMIT, "input_timeout": ANSWER_LIMIT}
NEXT_STATES = {NAMES[old]: {NAMES[new] for new in states} for old, states in TRANSITIONS.items()}
STREAMS = {"SendStreamingMessage", "SubscribeToTask"}
ENDS = {NAMES[state] for state in TERMINAL}
PAUSES = {"InputRequiredError", "ApprovalPendingError"}
SETTLED = {*ENDS, "input-required"}

# No draw depends on the agent, whose behavior may vary with threads: steps refer to tasks, clients
# and runs by their position from the latest, and do nothing if there are none.
positions = st.sampled_from([0, 0, 0, 1, 1, 2, 3, 5])
skills = st.sampled_from(["plain", "guarded", "nested", "chunks", "guarded_chunks"])
contexts = st.sampled_from(["", "ours", "yours"])
orders = st.sampled_from(["finish", "take a while", "fail", "ask", "stall", "stall", "stall"])
"""The commands to modules in messages; any other text means "finish"."""
answers = st.sampled_from(["yes", "yes", "yes", "no", "perhaps"]) | orders
send_modes = st.sampled_from(["wait", "leave", "stream"])
"""The ways to send: wait for the task, do not wait, or read its stream."""

Delay: TypeAlias = int | float | None
"""The time after a step: none, a number of rounds of the loop, or (floats) seconds.

With a slow store, a round lasts half of the delay of the store.
"""
delays: st.SearchStrategy[Delay] = st.sampled_from([None, None, 0, 1, 2, 3, 4, 6, 9, 14])
absences: st.SearchStrategy[Delay] = st.sampled_from([None, 0, 3, 0.6, 3.6, 6.0, 6.0])
"""The time after a client disconnects or reconnects."""


class Clock(selectors.DefaultSelector):
    """A selector that advances a simulated clock instead of waiting for timers.

    It waits for threads, so that their work takes no simulated time.

    Args:
        has_threads: Returns whether a thread is running or is about to start.
    """

    now = 0.0

    def __init__(self, has_threads: Callable[[], bool]) -> None:
        super().__init__()
        self._has_threads = has_threads
        self._had_threads = False

    def select(self, timeout: float | None = None) -> Any:
        threads, idle = self._has_threads(), timeout is None or timeout > 0
        wait = PATIENCE if idle else THREAD_TIME if self._had_threads else 0
        ready = super().select(wait if threads else 0)
        self._had_threads = threads
        if idle and not ready:
            assert timeout is not None, "all asyncio tasks are deadlocked"
            assert not threads, "a thread does not end"
            self.now += timeout
        return ready


class Loop(asyncio.SelectorEventLoop):
    """An event loop that uses the simulated *clock*."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._clock = clock

    def time(self) -> float:
        return self._clock.now


class Store(InMemoryTaskStore):
    """A store that waits *delay* seconds around each operation and reports saved records."""

    def __init__(self, on_save: Callable[[TaskRecord], None]) -> None:
        super().__init__()
        self.delay = 0.0
        self._on_save = on_save

    async def save(self, record: TaskRecord) -> None:
        await self._wait()
        await super().save(record)
        self._on_save(record)
        await self._wait()

    async def get(self, task_id: str, owner: str | None = None) -> TaskRecord | None:
        await self._wait()
        record = await super().get(task_id, owner)
        await self._wait()
        return record

    async def query(self, query: Query) -> Page:
        await self._wait()
        page = await super().query(query)
        await self._wait()
        return page

    async def _wait(self) -> None:
        if self.delay:
            await asyncio.sleep(self.delay)


@dataclass
class Run:
    """One call of a module for a task."""

    task_id: str
    skill: str
    order: str
    released: asyncio.Event = field(default_factory=asyncio.Event)
    fails: bool = False
    end: str = ""
    """"returned", or the name of the exception; empty while the module runs."""


@dataclass
class TaskModel:
    """The model's view of a task."""

    id: str
    skill: str
    context: str
    message_id: str
    """The id of its first message."""
    state: str = "submitted"
    version: int = 0
    since: float = 0
    """The time at which it began to work or to wait for an answer."""
    pending_call: str | None = ""
    """Its latest pause: text of the call to approve, None for input, empty if it never paused."""
    granted: Counter[str] = field(default_factory=Counter[str])
    """The number of approvals for each call."""
    canceled: bool = False
    """Whether a client has requested its cancellation."""
    runs: list[Run] = field(default_factory=list[Run])
    log: dict[int, Json] = field(default_factory=dict[int, Json])
    """Its events by version, as clients have read them."""


class Client:
    """One request, its response, and whether its client is still connected."""

    def __init__(self, method: str, params: Json, last: int | None = None) -> None:
        self.method = method
        self.params = params
        self.last = last
        self.disconnected = asyncio.Event()
        self.disconnected_at = inf
        self.reply: Json = {}
        self.frames: list[Frame] = []
        self.on_message: Callable[[Client], None] = lambda client: None
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        self._body = [json.dumps(request).encode()]
        self.is_connected = False
        """Whether the client is still waiting for (the rest of) the response."""
        self.since = 0.0

    def start(self, app: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.since = loop.time()
        self.is_connected = True
        loop.create_task(self.exchange(app)).add_done_callback(self._on_done)

    def hang_up(self, now: float) -> None:
        self.disconnected.set()
        self.is_connected = False
        self.disconnected_at = now

    async def exchange(self, app: Any) -> None:
        headers = [(b"last-event-id", b"%d" % self.last)] if self.last is not None else []
        scope = {"type": "http", "method": "POST", "path": "/", "query_string": b""}
        await app({**scope, "headers": headers}, self._receive, self._send)

    @property
    def message(self) -> Json:
        """The message in the request, if any."""
        message: Json = self.params.get("message", {})
        return message

    @property
    def waits(self) -> bool:
        """Whether the request sends a message and waits for the task."""
        return bool(self.message) and "configuration" not in self.params

    @property
    def task_id(self) -> str:
        """The id of the task in the response."""
        if self.frames:
            body = self.frames[0].body
            return str(body.get("taskId") or body["id"])
        result = self.reply.get("result", {})
        return str(result.get("task", result).get("id", ""))

    @property
    def requested_id(self) -> str:
        """The id of the task in the request."""
        return str(self.message.get("taskId") or self.params.get("id", ""))

    @property
    def code(self) -> int | None:
        code: int | None = self.reply.get("error", {}).get("code")
        return code

    def is_for(self, model: TaskModel) -> bool:
        """Return whether the client started a task, names it, or has received it."""
        is_sender = self.message.get("messageId") == model.message_id
        return is_sender or model.id in {self.requested_id, self.task_id}

    def may_affect(self, model: TaskModel) -> bool:
        """Return whether the client may affect a task, if only by its context."""
        shares_context = not self.requested_id and self.message.get("contextId") == model.context
        return shares_context or self.is_for(model)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self.is_connected = False
        task.result()

    async def _receive(self) -> Json:
        if self._body:
            return {"type": "http.request", "body": self._body.pop()}
        await self.disconnected.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        body = message.get("body", b"")
        if self.disconnected.is_set() or body[:1] not in {b"{", b"i"}:
            return
        if body.startswith(b"{"):
            self.reply = json.loads(body)
            self.on_message(self)
            return
        for frame in body.decode().removesuffix("\n\n").split("\n\n"):
            first, _, second = frame.partition("\n")
            ((kind, event),) = json.loads(second.removeprefix("data: "))["result"].items()
            name = kind.removesuffix("Update")
            self.frames.append(Frame(int(first.removeprefix("id: ")), name, event))
            self.on_message(self)


class Worker(Module):
    """A module that obeys the commands in messages."""

    def __init__(self, machine: "AgentMachine", **attributes: Any) -> None:
        self._machine = machine
        vars(self).update(attributes)

    async def execute(self, inputs: Inputs, context: Any) -> Inputs:
        with self._machine.running(inputs["text"], context) as run:
            return await self._obey(run, context)

    async def _obey(self, run: Run, context: Any) -> Inputs:
        if run.order == "ask":
            context.services.ask("What now?", field="text")
        if run.order == "stall":
            await run.released.wait()
            self._machine.check_may_run(run)
        for _ in range(run.order == "take a while" and 7):
            await asyncio.sleep(0)
            self._machine.check_may_run(run)
        if run.fails or run.order == "fail":
            raise ValueError(run.order)
        return {"done": run.order}


class Chunks(Worker):
    """A module that streams chunks."""

    async def stream(self, inputs: Inputs, context: Any) -> AsyncIterator[Inputs]:
        with self._machine.running(inputs["text"], context) as run:
            for piece in range(2):
                yield {"piece": piece}
                self._machine.check_may_run(run)
                await asyncio.sleep(0)
            yield await self._obey(run, context)


class NestedCaller(Worker):
    """A module that calls another module twice."""

    async def _obey(self, run: Run, context: Any) -> Inputs:
        for _ in range(2):
            await context.executor.call_async("guarded", {"text": run.order}, context)
            self._machine.check_may_run(run)
        return {"done": run.order}


class AgentMachine(RuleBasedStateMachine):
    """An agent, its clients, and the violations found so far."""

    def __init__(self) -> None:
        super().__init__()
        self.problems: list[str] = []
        self.models: dict[str, TaskModel] = {}
        self.clients: list[Client] = []
        self.runs: list[Run] = []
        self.final_states: dict[str, str] = {}
        """The final states that clients have seen, by task id."""
        self.is_finishing = False
        self.store = Store(self.on_save)
        guarded = {"annotations": NEEDS_APPROVAL}
        modules: dict[str, object] = {
            "plain": Worker(self),
            "guarded": Worker(self, **guarded),
            "nested": NestedCaller(self),
            "chunks": Chunks(self),
            "guarded_chunks": Chunks(self, **guarded),
        }
        self.executor = Executor(registry_of(modules))
        self.app = app_of(self.executor, task_store=self.store, **LIMITS)
        self.agent: Agent = self.app.state.agent
        self.agent.setup.state.has_started = True  # without a lifespan
        self.clock = Clock(self._has_threads)
        self.runner = asyncio.Runner(loop_factory=lambda: Loop(self.clock))
        self.runner.get_loop().set_exception_handler(self._on_stray_error)

    def expect(self, condition: object, problem: str) -> None:
        """Record *problem* unless *condition* is true."""
        if not condition:
            self.problems.append(problem)

    # Steps of clients, modules and time

    @initialize(skill=skills, order=orders, mode=send_modes, delay=delays)
    def begin(self, skill: str, order: str, mode: str, delay: Delay) -> None:
        self.send(skill, order, mode, "ours", delay)

    @rule(skill=skills, order=orders, mode=send_modes, context=contexts, delay=delays)
    def send(self, skill: str, order: str, mode: str, context: str, delay: Delay) -> None:
        context = context or f"context {len(self.clients)}"
        self._send_message(order, mode, {"metadata": {"skillId": skill}}, contextId=context)
        self._advance(delay)

    @rule(task=positions, text=answers, mode=send_modes, by_context=st.booleans(), delay=delays)
    def answer(self, task: int, text: str, mode: str, by_context: bool, delay: Delay) -> None:
        model = _latest(self.models.values(), task)
        if model is not None:
            target = {"contextId": model.context} if by_context else {"taskId": model.id}
            self._send_message(text, mode, {}, **target)
            self._advance(delay)

    @rule(task=positions, delay=delays)
    def cancel(self, task: int, delay: Delay) -> None:
        model = _latest(self.models.values(), task)
        if model is not None:
            model.canceled = True
            self._start(Client("CancelTask", {"id": model.id}))
            self._advance(delay)

    @rule(task=positions, last=st.none() | st.integers(0, 6), delay=delays)
    def subscribe(self, task: int, last: int | None, delay: Delay) -> None:
        model = _latest(self.models.values(), task)
        if model is not None:
            last = None if last is None else min(last, max(model.log, default=0))
            self._start(Client("SubscribeToTask", {"id": model.id}, last))
            self._advance(delay)

    @rule(client=positions, delay=absences)
    def hang_up(self, client: int, delay: Delay) -> None:
        lost = _latest([other for other in self.clients if other.is_connected], client)
        if lost is not None:
            lost.hang_up(self.clock.now)
            self._advance(delay)

    @rule(client=positions, delay=absences)
    def reconnect(self, client: int, delay: Delay) -> None:
        lost = _latest([other for other in self.clients if other.disconnected.is_set()], client)
        model = next((task for task in self.models.values() if lost and lost.is_for(task)), None)
        if lost is not None and model is not None:
            last = lost.frames[-1].id if lost.frames else None
            self._start(Client("SubscribeToTask", {"id": model.id}, last))
            self._advance(delay)

    @rule(run=positions, fails=st.booleans(), delay=delays)
    def release_run(self, run: int, fails: bool, delay: Delay) -> None:
        stalled = _latest([other for other in self.runs if not other.end], run)
        if stalled is not None:
            stalled.fails = fails
            stalled.released.set()
            self._advance(delay)

    @rule(seconds=st.sampled_from([0.6, 3.6, 6.0, 6.0, 40.0]))
    def wait(self, seconds: float) -> None:
        self._advance(seconds)

    # Invariants

    @invariant()
    def check_tasks(self) -> None:
        for model in self.models.values():
            self._check(model)
        assert not self.problems, "; ".join(self.problems)

    def teardown(self) -> None:
        try:
            if not self.problems:
                self.runner.run(self._end())
                self.check_tasks()
        finally:
            self.runner.close()
            self.executor.close()

    def on_save(self, record: TaskRecord) -> None:
        """Check a record that the store has just saved, and update the model."""
        task, now = record.task, self.clock.now
        first = TaskModel(task.id, record.skill, task.context_id, task.history[0].message_id)
        model = self.models.setdefault(task.id, first)
        old, new = model.state, NAMES[task.status.state]
        transition = f"a {model.skill} task goes from {old} to {new}"
        self.expect(new in NEXT_STATES.get(old, set()), transition)
        self.expect(record.version > model.version, f"{transition} and not to a later version")
        if new == "failed":
            limit = RUN_LIMIT if old == "working" else ANSWER_LIMIT
            raised = bool(model.runs) and model.runs[-1].end == "ValueError"
            has_reason = raised or now - model.since >= limit - SLACK
            self.expect(has_reason, f"{transition} for no reason")
        if new == "canceled" and not model.canceled:
            waiting = [
                client for client in self.clients if client.is_connected and client.is_for(model)
            ]
            is_awaited = any(now - client.since > 0.5 for client in waiting)
            self.expect(not is_awaited, "a task is canceled while a client waits for it")
        if old == "input-required" and new not in {"failed", "canceled"}:
            self._check_answer(model, str(task.history[-1].parts[0].text), new)
        if (old, new) != ("input-required", "input-required"):
            model.since = now
        model.state, model.version = new, record.version
        if new == "input-required":
            assert task.status.message is not None
            approval = task.status.message.parts[1].data.get("approval")
            model.pending_call = approval["arguments"]["text"] if approval else None

    def _check_answer(self, model: TaskModel, text: str, state: str) -> None:
        """Check that an answer leads to the right state."""
        states = {"yes": "working", "no": "rejected"}
        expected = "working" if model.pending_call is None else states.get(text, "input-required")
        self.expect(state == expected, f"{text} brings a task to {state}")
        if state == "working" and model.pending_call is not None:
            model.granted[model.pending_call] += 1

    @contextmanager
    def running(self, order: str, context: Any) -> Iterator[Run]:
        """Track a call of a module."""
        run = Run(context.data["ext.a2a.task_id"], context.call_chain[-1], order)
        self.runs.append(run)
        self.models[run.task_id].runs.append(run)
        self.check_may_run(run)
        if self.is_finishing:
            run.released.set()
        try:
            yield run
        except BaseException as error:  # a run ends by cancellation, too
            run.end = type(error).__name__
            raise
        run.end = "returned"

    def check_may_run(self, run: Run) -> None:
        """Check that the task of a running module has not ended."""
        self.expect(
            run.task_id not in self.final_states, "a module runs on although its task has ended"
        )

    def _check(self, model: TaskModel) -> None:
        """Check the invariants of a task that hold at any time."""
        self._check_runs(model)
        senders = [client for client in self.clients if client.message and client.may_affect(model)]
        lost = any(
            client.disconnected.is_set() and client.may_affect(model) for client in self.clients
        )
        last = next((run.end for run in reversed(model.runs) if run.skill == model.skill), None)
        elapsed = self.clock.now - model.since
        allowed = {
            "submitted": False,
            "working": elapsed <= RUN_LIMIT + SLACK,
            "input-required": elapsed <= ANSWER_LIMIT + SLACK and last in {None, *PAUSES},
            "completed": last == "returned",
            "canceled": model.canceled or (lost and any(client.waits for client in senders)),
        }
        problem = f"a {model.skill} task is {model.state} after {elapsed} s and {model.runs}"
        self.expect(allowed.get(model.state, True), problem)

    def _check_runs(self, model: TaskModel) -> None:
        """Check that no module has run too often."""
        times = Counter((run.skill, run.order) for run in model.runs)
        pauses = Counter((run.skill, run.order) for run in model.runs if run.end in PAUSES)
        for skill, order in times:
            allowed = model.granted[order] if skill.startswith("guarded") else 1
            too_often = times[skill, order] > allowed + pauses[skill, order]
            self.expect(not too_often, f"{skill} ran too often: {model.runs}")
        busy = Counter(run.skill for run in model.runs if not run.end)
        self.expect(all(number == 1 for number in busy.values()), "a module runs twice at a time")

    # Implementation

    def _send_message(self, text: str, mode: str, params: Json, **members: str) -> None:
        message = {"messageId": f"m{len(self.clients)}", "role": "ROLE_USER", **members}
        params = {"message": {**message, "parts": [{"text": text}]}, **params}
        if mode == "leave":
            params["configuration"] = {"returnImmediately": True}
        self._start(Client("SendStreamingMessage" if mode == "stream" else "SendMessage", params))

    def _start(self, client: Client) -> None:
        client.on_message = self._on_message
        client.start(self.app, self.runner.get_loop())
        self.clients.append(client)

    def _advance(self, delay: Delay) -> None:
        if delay is not None:
            self.runner.run(self._pass(delay))

    async def _pass(self, delay: float) -> None:
        if isinstance(delay, float):
            await asyncio.sleep(delay)
            if delay > SLACK:
                self._check_settled()
        else:
            for _ in range(delay):
                await asyncio.sleep(self.store.delay / 2)
        await self._compare_lists()

    async def _compare_lists(self, all_tasks: bool = False) -> None:
        """Check that the agent lists every task that clients know, in the same state."""
        delay, self.store.delay = self.store.delay, 0
        listed = (await self._ask("tasks/list", historyLength=0))["tasks"]
        states = {task["id"]: state_of(task) for task in listed}
        self.expect(len(listed) == len(states), "a task is listed twice")
        seen_ids = {client.task_id for client in self.clients} - {""}
        for task_id in self.models if all_tasks else seen_ids - {*self.final_states}:
            self.expect(task_id in states, "a task is lost from the list")
            task = await self._ask("tasks/get", id=task_id, historyLength=0)
            self._record_state(task_id, state_of(task))
        is_same = all(states.get(task_id) == state for task_id, state in self.final_states.items())
        self.expect(is_same, "a task is listed in a state other than its final state")
        self.store.delay = delay

    async def _ask(self, method: str, **params: Any) -> Json:
        client = Client(method, params)
        await client.exchange(self.app)
        self.expect("result" in client.reply, f"{method}: {client.reply.get('error')}")
        result: Json = client.reply.get("result", {"tasks": [], "status": {"state": ""}})
        return result

    def _record_state(self, task_id: str, state: str) -> None:
        """Record a final state that a client has seen; check that no other state follows."""
        end = (
            self.final_states.setdefault(task_id, state)
            if state in ENDS
            else self.final_states.get(task_id)
        )
        self.expect(end in {None, state}, f"a task is {state} after its end")

    def _on_message(self, client: Client) -> None:
        """Check the latest message that a client has received."""
        model = self.models.get(client.task_id)
        self.expect(model or client.code, f"{client.method} gives a task that is not stored")
        if client.frames and model is not None:
            self._check_frame(client, model)
            if _ends(client.frames[-1]):
                self._record_state(model.id, client.frames[-1].state)
        elif client.code is not None:
            self._check_refusal(client)
        else:
            task = client.reply["result"].get("task", client.reply["result"])
            waits = client.method == "CancelTask" or client.waits
            self._record_state(task["id"], state_of(task))
            self.expect(not waits or state_of(task) in SETTLED, f"{client.method} did not wait")
            if client.method == "CancelTask":
                self.expect(state_of(task) == "canceled", "CancelTask leaves another state")

    def _check_frame(self, client: Client, model: TaskModel) -> None:
        frame, before = client.frames[-1], client.frames[:-1]
        snapshot = frame.kind == "task" and frame.id > 1
        if before:
            self.expect(not _ends(before[-1]), "there is an event after the end")
            self.expect(frame.id == before[-1].id + 1 and not snapshot, "a reader has a gap")
        elif client.last is not None:
            self.expect(frame.id == client.last + 1 and not snapshot, "a reader has missed events")
        elif client.method == "SubscribeToTask":
            self.expect(snapshot, "a new reader does not get the task first")
        elif client.message.get("messageId") == model.message_id:
            self.expect(frame.id == 1, "a stream does not begin at the beginning")
        if not snapshot:
            first_seen = model.log.setdefault(frame.id, frame.body)
            self.expect(first_seen == frame.body, "two readers see different events")

    def _check_refusal(self, client: Client) -> None:
        """Check that a request is refused only with an error that the protocol defines for it."""
        lacks_skill = "contextId" in client.message and "metadata" not in client.params
        allowed = {
            "CancelTask": {-32002},
            "SubscribeToTask": {-32004} if client.last is None else set(),
        }
        by_message = {-32004} if "taskId" in client.message else {-32602} if lacks_skill else set()
        codes = allowed.get(client.method, by_message)
        self.expect(client.code in codes, f"{client.method} is refused: {client.reply}")

    def _check_settled(self) -> None:
        """Check the invariants that hold when all activity has settled."""
        runs = self.agent.engine.runs
        working = {model.id for model in self.models.values() if model.state == "working"}
        self.expect({*runs} == working, "the runs are not those of the working tasks")
        for task_id in working:
            self._check_has_client(self.models[task_id])
        connected = [client for client in self.clients if client.is_connected]
        streams = [client for client in connected if client.method in STREAMS]
        handler = self.agent.handler  # its counts are not in any response
        self.expect(len(handler.streams) == len(streams), "streams are left over")
        watchers = sum(handler.watchers._watchers.values())
        self.expect(watchers == len(connected), "watchers are left over")
        open_ids = {model.id for model in self.models.values() if model.id not in self.final_states}
        for client in connected:
            # a subscription stays open while its task is paused, other requests do not
            awaited = open_ids if client.method == "SubscribeToTask" else working
            self.expect(client.task_id in {"", *awaited}, "a client waits in vain")
        for client in self.clients:
            if not client.is_connected and not client.disconnected.is_set():
                nothing_new = client.last is not None  # then the reader already has all events
                answered = client.reply or client.frames or nothing_new
                self.expect(answered, f"{client.method} has no answer")
                ends = ENDS if client.method == "SubscribeToTask" else SETTLED
                settled = not client.frames or _ends(client.frames[-1], ends)
                self.expect(settled, "a stream ends too early")

    def _check_has_client(self, model: TaskModel) -> None:
        """Check that a task whose sender waits for it ends soon after its last client has gone."""
        own_clients = [client for client in self.clients if client.is_for(model)]
        needs_client = model.pending_call == "" and any(client.waits for client in own_clients)
        has_client = any(
            client.is_connected or self.clock.now - client.disconnected_at < SLACK
            for client in own_clients
        )
        self.expect(has_client or not needs_client, "a task runs without a client")

    async def _end(self) -> None:
        """Let everything end and check that nothing is left over."""
        self.is_finishing = True
        for run in self.runs:
            run.released.set()
        await asyncio.sleep(RUN_LIMIT + ANSWER_LIMIT + 2 * SLACK)
        await self._compare_lists(all_tasks=True)
        self._check_settled()
        for model in self.models.values():
            self.expect(self.final_states.get(model.id) == model.state, "a task does not end")
            try:
                async with asyncio.timeout(SLACK):
                    await self._replay(model)
            except TimeoutError:
                self.problems.append("the log of a task that has ended does not end")
        self.expect(not any(client.is_connected for client in self.clients), "clients wait in vain")
        self.expect(not self.agent.engine.runs, "runs are left over")
        self.expect(not self.agent.handler.watchers._grace_timers, "grace timers are left over")
        self.expect(asyncio.all_tasks() == {asyncio.current_task()}, "asyncio tasks are left over")

    async def _replay(self, model: TaskModel) -> None:
        """Read the log of a task from its beginning and check it."""
        reader = Client("SubscribeToTask", {"id": model.id}, 0)
        reader.on_message = self._on_message
        await reader.exchange(self.app)
        versions = [frame.id for frame in reader.frames]
        self.expect(versions == [*range(1, model.version + 1)], f"the log has {versions}")
        states = [frame.state for frame in reader.frames if frame.kind != "artifact"]
        for old, new in pairwise(states):
            self.expect(new in NEXT_STATES.get(old, set()), f"the log goes from {old} to {new}")
        self.expect([state for state in states if state in ENDS] == states[-1:], f"{states}")
        self.expect(states[:1] == ["submitted"], f"the log begins with {states[:1]}")

    def _has_threads(self) -> bool:
        """Return whether a thread is running: here, only preflights use threads."""
        return self.agent.setup.access.is_validating

    def _on_stray_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.problems.append(f"{context['message']}: {context.get('exception')!r}")


class SlowStoreMachine(AgentMachine):
    """The same state machine with a slow store."""

    def __init__(self) -> None:
        super().__init__()
        self.store.delay = 0.001

    @rule(seconds=st.sampled_from([0, 0.001, 0.05]))
    def change_latency(self, seconds: float) -> None:
        self.store.delay = seconds


def _ends(frame: Frame, ends: Collection[str] = frozenset(ENDS)) -> bool:
    """Return whether an event has one of the states *ends*."""
    return frame.kind != "artifact" and frame.state in ends


def _latest(items: Any, number: int) -> Any:
    """Return the item at *number* from the end, wrapping around; None if there is no item."""
    listed = [*items]
    return listed[-1 - number % len(listed)] if listed else None


@pytest.mark.parametrize("machine", [AgentMachine, SlowStoreMachine])
@pytest.mark.parametrize("examples", [20, pytest.param(EXAMPLES or 120, marks=pytest.mark.soak)])
def test_every_task_follows_the_protocol_whatever_clients_do(
    machine: type[AgentMachine], examples: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "apcore_a2a_core")  # logs module failures
    run_state_machine_as_test(machine, settings=settings(PROFILE, max_examples=examples))
    assert not [record for record in caplog.records if record.name.startswith("apcore_a2a")]
