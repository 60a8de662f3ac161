"""Results of tasks as Python values and exceptions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from .errors import InputRequired, StreamRestartedError, TaskFailedError, is_object
from .exchange import Item, Items
from .streams import EventStream
from .tasks import (
    Artifact,
    Event,
    Message,
    Part,
    Restarted,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    added_parts,
)


def result_of(task: Task) -> Any:
    """Return the value of a completed task.

    Raises:
        TaskFailedError: The task failed, or was rejected or canceled.
        InputRequired: The task is paused.
    """
    state = task.status.state
    if state == TaskState.COMPLETED:
        return task.value
    agent_messages = [message for message in task.history if message.role == Role.AGENT]
    message = task.status.message or (agent_messages[-1] if agent_messages else None)
    parts = message.parts if message else ()
    text = " ".join(part.text for part in parts if part.text)
    if state.is_paused:
        raise InputRequired(text or f"The task is {state}", task)
    details = [part.data for part in parts if is_object(part.data)]
    raise TaskFailedError(text or f"The task is {state}", task, details[-1] if details else {})


def chunks(events: EventStream, on_restart: Callable[[], object] | None) -> Items[Any]:
    """Yield the values of chunks and messages, then raise an error if the task did not complete.

    For a snapshot of the task, yield only new content. A restart before the first chunk repeats
    nothing, so *on_restart* is not called. If a completed task has no artifacts, the value of its
    status message is yielded last.

    Raises:
        StreamRestartedError: The values would repeat, and *on_restart* is None.
    """
    seen_parts: dict[str, list[Part]] = {}
    ends_with_message = False
    while event := (yield from events.next()):
        if isinstance(event, Restarted) and any(seen_parts.values()):
            if on_restart is None:
                raise StreamRestartedError(events.task)
            on_restart()
            seen_parts.clear()
        if isinstance(event, Message):
            yield Item(event.value)
        for chunk in _new_content(event, seen_parts):
            if chunk.parts:
                yield Item(chunk.value)
        ends_with_message = isinstance(event, Message)
    task = events.task
    if task and task.status.state.is_settled:
        value = result_of(task)
        if task.status.message and not task.artifacts and not ends_with_message:
            yield Item(value)


def _new_content(event: Event, seen_parts: dict[str, list[Part]]) -> Iterator[Artifact]:
    """Yield the new content of each artifact in *event*, and update *seen_parts*."""
    if isinstance(event, TaskArtifactUpdateEvent):
        artifact, new_parts = event.artifact, None
        known_parts = seen_parts.setdefault(artifact.artifact_id, [])
        if not event.append:
            # Some agents send the whole artifact again at its end, so only the added parts are new.
            # But if only one part was known, the agent may have replaced it, so all parts are new.
            if len(known_parts) > 1:
                new_parts = added_parts(known_parts, artifact.parts)
            known_parts.clear()
        known_parts += artifact.parts
        yield artifact if new_parts is None else replace(artifact, parts=tuple(new_parts))
    elif isinstance(event, Task):
        # A snapshot repeats all parts. An artifact that begins with the seen parts has grown;
        # any other one has been replaced, so all of it is new.
        for artifact in event.artifacts:
            new_parts = added_parts(seen_parts.get(artifact.artifact_id, []), artifact.parts)
            seen_parts[artifact.artifact_id] = list(artifact.parts)
            yield artifact if new_parts is None else replace(artifact, parts=tuple(new_parts))
