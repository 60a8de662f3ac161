"""What came of a task, as Python values and exceptions."""

from __future__ import annotations

from typing import Any

from .errors import InputRequired, Json, TaskFailedError, is_object
from .exchange import Steps
from .streams import END, End, EventStream, Source
from .tasks import Task, TaskArtifactUpdateEvent, TaskState


def result_of(task: Task) -> Any:
    """The value of a task that has ended well.

    Raises:
        TaskFailedError: It has not.
        InputRequired: It is paused.
    """
    state, message = task.status.state, task.status.message
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
    """The values of a stream's artifact updates; in the end, what went wrong is raised."""

    def __init__(self, events: EventStream) -> None:
        self._events = events

    def next(self) -> Steps[Any | End]:
        while (event := (yield from self._events.next())) is not END:
            if isinstance(event, TaskArtifactUpdateEvent):
                return event.artifact.value
        assert self._events.task
        state = self._events.task.status.state
        if state.is_settled:
            result_of(self._events.task)
        return END
