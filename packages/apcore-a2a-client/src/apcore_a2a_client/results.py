"""What came of a task, as Python values and exceptions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .errors import InputRequired, Json, TaskFailedError, is_object
from .exchange import Item, Items
from .streams import EventStream
from .tasks import Artifact, Message, Part, Role, Task, TaskArtifactUpdateEvent, TaskState


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


class Chunks:
    """The values of a stream's artifact updates; in the end, what went wrong is raised.

    Of a snapshot, what has not been told before is the value of a chunk too.
    """

    def __init__(self, events: EventStream) -> None:
        self._events = events
        self._told: dict[str, list[Part]] = {}

    def values(self) -> Items[Any]:
        """Yield each value as it comes."""
        while event := (yield from self._events.next()):
            if isinstance(event, TaskArtifactUpdateEvent):
                yield from self._tell(event.artifact, append=event.append)
            elif isinstance(event, Task):
                for artifact in event.artifacts:
                    told = self._told.get(artifact.artifact_id, [])
                    grown = list(artifact.parts[: len(told)]) == told
                    rest = artifact.parts[len(told) :] if grown else artifact.parts
                    yield from self._tell(replace(artifact, parts=rest), append=grown)
            elif isinstance(event, Message):
                yield Item(event.value)
        task = self._events.task
        if task and task.status.state.is_settled:
            result_of(task)

    def _tell(self, chunk: Artifact, *, append: bool) -> Items[Any]:
        if not append:
            self._told.pop(chunk.artifact_id, None)
        self._told.setdefault(chunk.artifact_id, []).extend(chunk.parts)
        if chunk.parts:
            yield Item(chunk.value)
