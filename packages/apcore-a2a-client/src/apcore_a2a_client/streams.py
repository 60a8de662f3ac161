"""Streams of events that survive lost connections."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from time import monotonic
from typing import Any

import httpx

from .bindings import GET, SEND, STREAM, SUBSCRIBE, Binding, Operation
from .discovery import Discovery
from .errors import (
    A2AConnectionError,
    A2AError,
    A2AProtocolError,
    A2AServerError,
    A2ATimeoutError,
    Json,
)
from .exchange import (
    LONGEST_WAIT,
    AnyResponse,
    BufferedResponse,
    Close,
    Invoke,
    Item,
    Items,
    Read,
    RequestSpec,
    Sleep,
    Steps,
    backoff,
    time_left,
)
from .headers import NO_HEADERS, Headers, HeaderSource, check_headers
from .sse import EventParser
from .tasks import (
    Artifact,
    Event,
    Message,
    Restarted,
    Task,
    TaskArtifactUpdateEvent,
    TaskStatus,
    TaskStatusUpdateEvent,
    added_parts,
    apply_event,
    is_restart,
    read_event,
    with_chunks,
)

MAX_SILENCE = 30.0
"""Seconds with only keep-alives, after which the task is fetched.

If the client has no timeout, refused connections are retried for 30 s, too.
"""
MAX_END_WAIT = 0.1
"""Seconds to wait for the end of a response after the last event of its task."""


class EventStream:
    """The events of one task until it is settled, that is, has ended or paused.

    A lost connection is reopened. The stream then continues after the last event if the agent
    numbers events, otherwise with a snapshot of the task, which is yielded if it contains anything
    new. If the agent has no streams, or speaks 0.3 without numbering its events, the client polls
    the task instead of subscribing to it.

    Args:
        discovery: Finds the agent.
        start: The operation that starts the stream, and its parameters; None to follow *task*.
        task: The task as last known; None before its first event.
        last_event_id: The id of the event after which to start.
        answered_pause: The status of a pause that has been answered: it does not end the stream.
        deadline: Time to give up, on the monotonic clock.
        headers: Headers of each request, or a function that returns them.
    """

    def __init__(
        self,
        discovery: Discovery,
        *,
        start: tuple[Operation, Json] | None = None,
        task: Task | None = None,
        last_event_id: str | None = None,
        answered_pause: TaskStatus | None = None,
        deadline: float = inf,
        headers: Headers | HeaderSource = NO_HEADERS,
    ) -> None:
        self._discovery, self._exchange = discovery, discovery.exchange
        self._binding: Binding
        self._start, self._last_event_id, self._is_polling = start, last_event_id, False
        self._task = task
        self._chunks: list[TaskArtifactUpdateEvent] = []  # not yet added to `_task`
        self._growing_ids: set[str] = set()  # of artifacts that chunks were appended to
        self._restart_event: Event | None = None  # the event that showed the last restart
        # Without numbered events, a snapshot at the start of a subscription may already contain
        # chunks that follow as events.
        self._may_have_duplicates = False
        self._sends_answer = bool(start and start[1].get("message", {}).get("taskId"))
        self._response: httpx.Response | None = None
        self._parser = EventParser(discovery.exchange.max_bytes)
        self._pending: deque[tuple[Any, str | None]] = deque()  # events, or their JSON, with ids
        self._failures = self._polls = 0
        self._opened_at = self._last_event_at = self._lost_at = 0.0
        self._last_number = 0
        self._answered_pause = answered_pause
        self._deadline = deadline
        self._headers = headers
        self._has_ended = bool(task and self._ends_stream(task))
        self._is_numbered = False
        self._awaits_first_event = False  # a subscription is open, and has had no event yet
        # whether the events come from a subscription to a task that was already running
        self._has_joined = start is not None and start[0] is SUBSCRIBE

    def events(self) -> Items[Event]:
        """Yield each event as it arrives."""
        while event := (yield from self.next()):
            yield Item(event)

    def next(self) -> Steps[Event | None]:
        """Return the next event, or None at the end.

        Raises:
            A2AConnectionError: The connection was lost, and could not be reopened.
            A2ATimeoutError: The task was not settled in time.
            A2AServerError: The agent refused the request.
        """
        while not self._has_ended:
            if monotonic() > self._deadline:
                raise A2ATimeoutError("The task was not settled in time")
            try:
                if self._pending:
                    event = self._process(*self._pending.popleft())
                    if event is not None:
                        return event
                elif self._response:
                    yield from self._read(self._response)
                else:
                    yield from self._open()
            except A2AConnectionError as error:
                yield from self._recover(error)
            except A2AServerError:
                # Agents of 0.3 refuse a subscription by sending an error event in its stream.
                if not self._awaits_first_event:
                    raise
                yield from self._close_response()
                self._is_polling = True
        # reading the response to its end lets its connection be reused
        yield from self._close_response(wait=MAX_END_WAIT)
        return None

    def last(self) -> Steps[Task]:
        """Return the task as it is at the end of the stream."""
        while (yield from self.next()) is not None:
            pass
        if self._has_joined and not self._is_numbered:
            # If the task cannot be fetched, the task as last known is returned. If that task may
            # contain chunks twice, this holds only for an error from the agent, which may have
            # deleted the task; any other error is raised.
            with suppress(A2AServerError if self._may_have_duplicates else A2AError):
                yield from self._fetch_task()
                snapshot, _ = self._pending.pop()
                self._apply(snapshot)
        assert self.task
        return self.task

    def _open(self) -> Steps[None]:
        headers = yield from self._current_headers()
        self._binding = yield from self._discovery.binding(self._deadline, headers)
        supports_streams = self._binding.supports_streams
        if self._task is None:
            assert self._start
            operation, params = self._start
            if operation is STREAM and not supports_streams:
                operation, params = SEND, {**params, "configuration": {"returnImmediately": True}}
            yield from self._connect(operation, params)
            return
        # In 0.3 a subscription need not begin with a snapshot, so events could be missed. And
        # a2a-sdk 0.3 stores each chunk twice while a second reader is subscribed.
        unsafe_to_join = self._binding.version == "0.3" and not self._is_numbered
        if self._is_polling or unsafe_to_join or not supports_streams:
            self._is_polling = True
            interval = 0.05 * 1.5 ** min(self._polls, 20)
            yield Sleep(min(5.0, interval, time_left(self._deadline) or 5.0))
            self._polls += 1
        else:
            try:
                yield from self._connect(SUBSCRIBE, {"id": self._task.id})
                self._awaits_first_event = self._has_joined = self._response is not None
            except (A2AServerError, A2AProtocolError):
                # The task has ended in the meantime, or the agent does not support subscriptions.
                self._is_polling = True
        if self._is_polling:
            yield from self._fetch_task()

    def _fetch_task(self) -> Steps[None]:
        """Fetch the task, and queue it as an event."""
        assert self._task
        request = self._binding.request(GET, {"id": self._task.id})
        response = yield from self._send(request)
        assert isinstance(response, BufferedResponse)
        self._pending.append((Task.from_dict(self._binding.result(response)), None))

    def _connect(self, operation: Operation, params: Json) -> Steps[None]:
        request = self._binding.request(operation, params, self._last_event_id or "")
        response = yield from self._send(request)
        if isinstance(response, httpx.Response):
            self._response, self._parser = response, EventParser(self._exchange.max_bytes)
            self._opened_at = self._last_event_at = monotonic()
        else:
            self._pending.append((read_event(self._binding.result(response)), None))
            self._is_polling = True

    def _send(self, request: RequestSpec) -> Steps[AnyResponse]:
        request = request.with_headers((yield from self._current_headers()))
        return (yield from self._exchange.send(request, self._deadline))

    def _current_headers(self) -> Steps[Headers]:
        if not callable(self._headers):
            return self._headers
        return check_headers((yield Invoke(self._headers)))

    def _read(self, response: httpx.Response) -> Steps[None]:
        timeout = time_left(self._exchange.cap_deadline(self._deadline))
        chunk: bytes = yield Read(response, timeout)
        if not chunk:
            raise A2AConnectionError("The stream ended before the task was settled")
        self._pending.extend(self._parser.feed(chunk))
        now = monotonic()
        if self._pending:
            self._last_event_at = now
        elif self._task and now - self._last_event_at > MAX_SILENCE:
            # Only keep-alives: the agent may have lost the last event of the task.
            self._last_event_at = now
            yield from self._fetch_task()
            if not self._pending[0][0].status.state.is_settled:
                self._pending.clear()

    def _recover(self, error: A2AConnectionError) -> Steps[None]:
        """Prepare to reopen the stream after *error*, or raise it."""
        now, max_downtime = monotonic(), self._exchange.timeout or MAX_SILENCE
        if self._task and self._response and now - self._opened_at > LONGEST_WAIT:
            # The stream had worked for a while, even without events: reopening it is not a retry.
            self._failures, self._lost_at = 0, 0.0
        self._lost_at = self._lost_at or now
        # An agent that accepts no connections may be restarting: retries are then
        # limited by time, not by number.
        downtime = now - self._lost_at
        may_wait = self._task and not error.sent and downtime < max_downtime
        resumable = self._task or (self._start and self._start[0].safe)
        if not (may_wait or (self._response and resumable)):
            raise error  # `send` has used up its retries, or the message may have arrived
        was_silent = isinstance(error, A2ATimeoutError) and self._response and self._task
        yield from self._close_response()
        if was_silent:
            # If the agent responds to this request, it is alive and the task is just slow.
            yield from self._fetch_task()
            return
        self._failures += 1
        if not may_wait and self._failures > self._exchange.retries:
            raise error
        yield Sleep(backoff(self._failures - 1))

    def _close_response(self, wait: float = 0) -> Steps[None]:
        if self._response:
            yield Close(self._response, wait)
        self._response = None
        self._awaits_first_event = False

    def _process(self, data: Any, event_id: str | None) -> Event | None:
        """Apply an event to the task; return the event, or None if it contains nothing new."""
        event: Event = data
        if isinstance(data, bytes):
            event = read_event(self._binding.parse(data))
            self._awaits_first_event = False
        if self._shows_restart(event):
            return self._announce_restart(event, event_id)
        if event_id:
            # Only ids that count 1, 2, 3 … guarantee that a stream resumes without gaps: others may
            # be random, or timestamps.
            number = int(event_id) if len(event_id) < 16 and event_id.isdigit() else 0
            self._is_numbered = number == self._last_number + 1
            self._last_number = number
            self._last_event_id = event_id
            event = replace(event, event_id=event_id)
        if isinstance(event, Task) and self.task and _has_same_content(event, self.task):
            self._has_ended = self._ends_stream(event)
            return None
        is_first = self._task is None
        self._apply(event)
        self._failures = self._polls = 0
        self._lost_at = 0.0
        assert self._task
        # The first event after an answer may still show the pause that was answered.
        shows_old_pause = is_first and self._sends_answer and self._task.status.state.is_paused
        is_final = not isinstance(event, Message) and event.extra.get("final") is True
        has_status = not isinstance(event, TaskArtifactUpdateEvent)
        is_settled = has_status and self._ends_stream(self._task) and not shows_old_pause
        self._has_ended = is_final or is_settled
        return event

    @property
    def task(self) -> Task | None:
        """The task as last known; None before its first event."""
        if self._task and self._chunks:
            self._task, self._chunks = with_chunks(self._task, self._chunks), []
        return self._task

    def _shows_restart(self, event: Event) -> bool:
        """Return whether *event* shows a restart that has not been announced yet."""
        if event is self._restart_event or self._task is None:
            return False
        if isinstance(event, TaskStatusUpdateEvent):
            return is_restart(event)
        if isinstance(event, TaskArtifactUpdateEvent):
            # Some agents repeat the whole artifact at its end: that is not a restart.
            artifact, is_growing = event.artifact, event.artifact.artifact_id in self._growing_ids
            return not event.append and is_growing and self._contradicts([artifact])
        return isinstance(event, Task) and self._has_lost_content(event)

    def _has_lost_content(self, snapshot: Task) -> bool:
        """Return whether *snapshot* lacks content that the stream has delivered."""
        if self._may_have_duplicates or not self.task:
            return False
        is_running = not snapshot.status.state.is_settled
        lost_ids = {artifact.artifact_id for artifact in self.task.artifacts} - {
            artifact.artifact_id for artifact in snapshot.artifacts
        }
        return bool(is_running and lost_ids) or self._contradicts(snapshot.artifacts)

    def _contradicts(self, artifacts: Sequence[Artifact]) -> bool:
        """Return whether one of *artifacts* lacks parts that it had before.

        Artifacts that had a single part are not compared: the agent may have replaced that part.
        """
        known_artifacts = self.task.artifacts if self.task else ()
        known_parts = {
            artifact.artifact_id: artifact.parts
            for artifact in known_artifacts
            if len(artifact.parts) > 1
        }
        return any(
            added_parts(known_parts.get(artifact.artifact_id, ()), artifact.parts) is None
            for artifact in artifacts
        )

    def _announce_restart(self, event: Event, event_id: str | None) -> Restarted:
        """Return a `Restarted` event, and queue the event that showed the restart."""
        assert self._task
        self._restart_event = event
        self._growing_ids.clear()
        self._pending.appendleft((event, event_id))
        # With this id, a stream that resumes after `Restarted` begins with the queued event.
        last_event_id = self._last_event_id or ""
        task_id, status, context_id = self._task.id, self._task.status, self._task.context_id
        return Restarted(task_id, status, context_id, event_id=last_event_id)

    def _apply(self, event: Event) -> None:
        # Adding a chunk to an artifact copies all of its parts, so chunks are collected, and added
        # together when the task is needed.
        if self._task and isinstance(event, TaskArtifactUpdateEvent):
            self._chunks.append(event)
            if event.append:
                self._growing_ids.add(event.artifact.artifact_id)
            self._may_have_duplicates |= self._has_joined and not self._is_numbered
            return
        self._task = apply_event(self._task, event)
        if isinstance(event, Task):
            self._chunks, self._may_have_duplicates = [], False
        elif isinstance(event, TaskStatusUpdateEvent) and is_restart(event):
            self._chunks = []

    def _ends_stream(self, task: Task) -> bool:
        """Return whether *task* has ended, or is in a pause that was not answered yet."""
        status, pause = task.status, self._answered_pause
        unchanged = pause and (status.state, status.timestamp) == (pause.state, pause.timestamp)
        if pause and pause.timestamp and unchanged:
            # a2a-sdk 0.3 removes the message of an answered pause before it changes the state.
            return status.message not in (pause.message, None)
        return status.state.is_settled


def _has_same_content(new: Task, old: Task) -> bool:
    try:
        return new.status == old.status and new.artifacts == old.artifacts
    except RecursionError:  # deep JSON can be read, but not compared
        return False
