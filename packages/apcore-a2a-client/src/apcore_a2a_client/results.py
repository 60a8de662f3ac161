"""What came of a task, as Python values and exceptions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .errors import A2AProtocolError, InputRequired, Json, TaskFailedError, is_object
from .exchange import Steps
from .streams import END, End, EventStream, Source
from .tasks import Artifact, Message, Part, Role, Task, TaskArtifactUpdateEvent, TaskPage, TaskState


def result_of(task: Task) -> Any:
    """The value of a task that has ended well.

    Raises:
        TaskFailedError: It has not.
        InputRequired: It is paused.
    """
    state = task.status.state
    said = [message for message in task.history if message.role == Role.AGENT]
    message = task.status.message or (said[-1] if said else None)
    if state == TaskState.COMPLETED:
        return task.value
    parts = message.parts if message else ()
    text = " ".join(part.text for part in parts if part.text)
    if state.is_paused:
        raise InputRequired(text or f"The task is {state}", task)
    details: Json = {}
    for part in parts:
        details = part.data if is_object(part.data) else details
    raise TaskFailedError(text or f"The task is {state}", task, details)


class Chunks(Source[Any]):
    """The values of a stream's artifact updates; in the end, what went wrong is raised.

    Of a snapshot, what has not been told before is the value of a chunk too.
    """

    def __init__(self, events: EventStream) -> None:
        self._events = events
        self._told: dict[str, list[Part]] = {}
        self._values: deque[Any] = deque()

    def next(self) -> Steps[Any | End]:
        while not self._values:
            event = yield from self._events.next()
            if event is END:
                break
            if isinstance(event, TaskArtifactUpdateEvent):
                self._tell(event.artifact, append=event.append)
            elif isinstance(event, Task):
                for artifact in event.artifacts:
                    told = self._told.get(artifact.artifact_id, [])
                    grown = list(artifact.parts[: len(told)]) == told
                    rest = artifact.parts[len(told) :] if grown else artifact.parts
                    self._tell(replace(artifact, parts=rest), append=grown)
            elif isinstance(event, Message):
                self._values.append(event.value)
        else:
            return self._values.popleft()
        task = self._events.task
        if task and task.status.state.is_settled:
            result_of(task)
        return END

    def _tell(self, chunk: Artifact, *, append: bool) -> None:
        if not append:
            self._told.pop(chunk.artifact_id, None)
        self._told.setdefault(chunk.artifact_id, []).extend(chunk.parts)
        if chunk.parts:
            self._values.append(chunk.value)


class Pages(Source[Task]):
    """The tasks on all pages.

    Args:
        fetch: Gets the page behind a cursor; None stands for the first one.
    """

    def __init__(self, fetch: Callable[[str | None], Steps[TaskPage]]) -> None:
        self._fetch = fetch
        self._tasks: deque[Task] = deque()
        self._cursor: str | None = None
        self._seen = {""}

    def next(self) -> Steps[Task | End]:
        while not self._tasks:
            if self._cursor == "":
                return END
            page = yield from self._fetch(self._cursor)
            if page.next_cursor and page.next_cursor in self._seen:
                raise A2AProtocolError("The pages of tasks go in circles")
            self._tasks.extend(page.tasks)
            self._cursor = page.next_cursor
            self._seen.add(self._cursor)
        return self._tasks.popleft()
