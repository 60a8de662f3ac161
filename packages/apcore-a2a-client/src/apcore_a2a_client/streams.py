"""Streams of events that survive what connections do not."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from math import inf
from time import monotonic
from typing import Any, TypeAlias

import httpx

from .bindings import GET, SEND, STREAM, SUBSCRIBE, Binding, Operation
from .errors import (
    A2AConnectionError,
    A2AProtocolError,
    A2AServerError,
    A2ATimeoutError,
    Json,
)
from .exchange import Answer, Close, Exchange, Item, Items, Read, Sleep, Steps, backoff, left
from .sse import EventParser
from .tasks import (
    Artifact,
    Event,
    Message,
    Part,
    Task,
    TaskArtifactUpdateEvent,
    TaskStatus,
    after,
    read_event,
)

Way: TypeAlias = Callable[[float], Steps[tuple[Binding, bool]]]
"""Tells, until a time, how to reach an agent, and whether it has streams."""


SILENCE = 30.0
"""Seconds of nothing but keep-alives, after which the task itself is looked at."""


class EventStream:
    """The events of one task, each once, until it is settled.

    A connection that breaks is made anew: behind the last event where the agent numbers them,
    else with a snapshot of the task, which is an event of its own if it tells anything new.
    An agent that has no streams is asked for the task again and again.

    Args:
        way: Finds the agent.
        start: The operation that begins the stream and its params; without it *task* is followed.
        task: The task as far as it is known.
        cursor: The id of the event behind which to begin.
        past: A pause that has been answered, so that it ends nothing.
        end: When to give up at the latest, by the monotonic clock.
    """

    def __init__(
        self,
        exchange: Exchange,
        way: Way,
        *,
        start: tuple[Operation, Json] | None = None,
        task: Task | None = None,
        cursor: str | None = None,
        past: TaskStatus | None = None,
        end: float = inf,
    ) -> None:
        self._exchange, self._way = exchange, way
        self._binding: Binding
        self._start, self._cursor, self._polls = start, cursor, False
        self._task: Task | None = None
        self._made: dict[str, tuple[Artifact, list[Part]]] = {}
        self._grown = False
        if task:
            self._keep(task)
        self._answers = bool(start and start[1].get("message", {}).get("taskId"))
        self._reply: httpx.Response | None = None
        self._parser = EventParser(exchange.limit)
        self._pending: deque[tuple[Any, str | None]] = deque()
        self._failures = self._rounds = 0
        self._heard = self._lost_at = 0.0
        self._number = 0
        self._past = past
        self._end = end
        self._ended = bool(task and self._settles(task))
        self._numbered = False
        self._resumes = False  # it has asked for a subscription, and heard nothing yet
        self._joined = False  # in the middle of a task

    def events(self) -> Items[Event]:
        """Yield each event as it comes."""
        while event := (yield from self.next()):
            yield Item(event)

    def next(self) -> Steps[Event | None]:
        """Return the next event, or None at the end.

        Raises:
            A2AConnectionError: The connection broke, and could not be made anew.
            A2ATimeoutError: The task was not settled in time.
            A2AServerError: The agent refuses.
        """
        while not self._ended:
            if monotonic() > self._end:
                raise A2ATimeoutError("The task was not settled in time")
            try:
                if self._pending:
                    event = self._take(*self._pending.popleft())
                    if event is not None:
                        return event
                elif self._reply:
                    yield from self._read(self._reply)
                else:
                    yield from self._open()
            except A2AConnectionError as error:
                yield from self._lost(error)
            except A2AServerError:
                if not self._resumes:
                    raise
                yield from self._hang_up()
                self._polls = True  # 0.3 refuses a subscription within the stream
        return None

    def last(self) -> Steps[Task]:
        """The task as it is when the stream ends."""
        while (yield from self.next()) is not None:
            pass
        if self._joined and not self._numbered:  # its snapshot may have had what came behind it
            with suppress(A2AServerError):  # it has forgotten the task already
                yield from self._look()
                self._take(*self._pending.pop())
        assert self.task
        return self.task

    def _open(self) -> Steps[None]:
        self._binding, streams = yield from self._way(self._end)
        if self._task is None:
            assert self._start
            operation, params = self._start
            if operation is STREAM and not streams:
                operation, params = SEND, {**params, "configuration": {"returnImmediately": True}}
            yield from self._connect(operation, params)
            return
        # 0.3 promises no snapshot, and a second reader makes a2a-sdk 0.3 store chunks twice
        old = self._binding.version == "0.3" and not self._numbered
        if self._polls or old or not streams:
            self._polls = True
            yield Sleep(min(5.0, 0.05 * 1.5 ** min(self._rounds, 20), left(self._end) or 5.0))
            self._rounds += 1
        else:
            try:
                yield from self._connect(SUBSCRIBE, {"id": self._task.id})
                self._resumes = self._joined = self._reply is not None
            except (A2AServerError, A2AProtocolError):
                self._polls = True  # it has ended meanwhile, or can't be subscribed to
        if self._polls:
            yield from self._look()

    def _look(self) -> Steps[None]:
        """Ask for the task as it is."""
        assert self._task
        call = self._binding.call(GET, {"id": self._task.id})
        answer = yield from self._exchange.send(call, self._end)
        assert isinstance(answer, Answer)
        self._pending.append((Task.from_dict(self._binding.result(answer)), None))

    def _connect(self, operation: Operation, params: Json) -> Steps[None]:
        call = self._binding.call(operation, params, self._cursor)
        answer = yield from self._exchange.send(call, self._end)
        if isinstance(answer, httpx.Response):
            self._reply, self._parser = answer, EventParser(self._exchange.limit)
            self._heard = monotonic()
        else:
            self._pending.append((read_event(self._binding.result(answer)), None))
            self._polls = True

    def _read(self, response: httpx.Response) -> Steps[None]:
        silence = self._exchange.timeout
        longest = left(min(self._end, inf if silence is None else monotonic() + silence))
        chunk: bytes = yield Read(response, longest)
        if not chunk:
            raise A2AConnectionError("The stream ended before its task")
        self._pending.extend(self._parser.feed(chunk))
        now = monotonic()
        if self._pending:
            self._heard = now
        elif self._task and now - self._heard > SILENCE:
            self._heard = now
            yield from self._look()  # agents may forget to tell the end
            if not self._pending[0][0].status.state.is_settled:
                self._pending.clear()

    def _lost(self, error: A2AConnectionError) -> Steps[None]:
        """Get over *error*, if that can be done."""
        now, silence = monotonic(), self._exchange.timeout
        self._lost_at = self._lost_at or now
        restarts = self._task and not error.sent and now - self._lost_at < (silence or SILENCE)
        resumable = self._task or (self._start and self._start[0].safe)
        if not (restarts or (self._reply and resumable)):
            raise error  # all has been tried, or what was sent may have arrived
        silent = isinstance(error, A2ATimeoutError) and self._reply and self._task
        yield from self._hang_up()
        if silent:
            yield from self._look()  # it is alive, and its task takes long
            return
        self._failures += 1
        if not restarts and self._failures > self._exchange.retries:
            raise error
        yield Sleep(backoff(self._failures - 1))

    def _hang_up(self) -> Steps[None]:
        if self._reply:
            yield Close(self._reply)
        self._reply = None
        self._resumes = False

    def _take(self, data: Any, id: str | None) -> Event | None:
        """The event in *data*; None if nothing in it is new."""
        event: Event = data
        if isinstance(data, bytes):
            event = read_event(self._binding.event(data))
            self._resumes = False
        if id:
            # versions 1, 2, 3 … can be gone on from; others may be a clock
            self._numbered = len(id) < 16 and id.isdigit() and int(id) == self._number + 1
            self._number = int(id) if len(id) < 16 and id.isdigit() else 0
            self._cursor = id
            event = replace(event, event_id=id)
        known = self.task if isinstance(event, Task) else None
        if isinstance(event, Task) and known and _same(event, known):
            self._ended = self._settles(event)
            return None
        first = self._task is None
        self._keep(event)
        self._failures = self._rounds = 0
        self._lost_at = 0.0
        assert self._task
        stale = first and self._answers and self._task.status.state.is_paused
        final = not isinstance(event, Message) and event.extra.get("final") is True
        changed = not isinstance(event, TaskArtifactUpdateEvent)
        self._ended = final or (changed and self._settles(self._task) and not stale)
        return event

    @property
    def task(self) -> Task | None:
        """The task as far as it is known."""
        if self._task and self._grown:
            made = (replace(known, parts=tuple(parts)) for known, parts in self._made.values())
            self._task, self._grown = replace(self._task, artifacts=tuple(made)), False
        return self._task

    def _keep(self, event: Event) -> None:
        """Remember what *event* tells; artifacts grow in lists, for there may be many chunks."""
        if not isinstance(event, TaskArtifactUpdateEvent):
            self._task = after(self._task, event)
            if isinstance(event, Task):
                self._made = {a.artifact_id: (a, list(a.parts)) for a in event.artifacts}
                self._grown = False
            return
        new, self._grown = event.artifact, True
        if self._task is None:
            self._task = after(None, event)
        if event.append and new.artifact_id in self._made:
            old, parts = self._made[new.artifact_id]
            parts.extend(new.parts)
            if new.metadata:
                merged = replace(old, metadata={**old.metadata, **new.metadata})
                self._made[new.artifact_id] = merged, parts
        else:
            self._made[new.artifact_id] = new, list(new.parts)

    def _settles(self, task: Task) -> bool:
        now, past = task.status, self._past
        if past and past.timestamp and (now.state, now.timestamp) == (past.state, past.timestamp):
            # a2a-sdk 0.3 moves the question into the history before the state changes
            return now.message not in (past.message, None)
        return now.state.is_settled


def _same(new: Task, old: Task) -> bool:
    try:
        return new.status == old.status and new.artifacts == old.artifacts
    except RecursionError:  # JSON as deep as can be read is too deep to be compared
        return False
