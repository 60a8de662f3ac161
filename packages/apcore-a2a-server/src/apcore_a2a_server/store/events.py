"""What happens to a task, numbered."""

from dataclasses import dataclass

from a2a import types as a2a
from apcore_a2a_core.records import Payload


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to a task; `version` is also its SSE id."""

    version: int
    payload: Payload


def fold(task: a2a.Task, chunk: a2a.TaskArtifactUpdateEvent) -> None:
    """Add a chunk to the task's artifact, or begin it with that."""
    if chunk.append and task.artifacts:
        task.artifacts[0].parts.extend(chunk.artifact.parts)
    else:
        del task.artifacts[:]
        task.artifacts.append(chunk.artifact)


_KINDS: tuple[type[Payload], ...] = (
    a2a.Task,
    a2a.TaskStatusUpdateEvent,
    a2a.TaskArtifactUpdateEvent,
)


def pack(payload: Payload) -> bytes:
    """The payload as bytes, behind one that tells its kind."""
    return bytes([_KINDS.index(type(payload))]) + payload.SerializeToString()


def unpack(data: bytes) -> Payload:
    """The payload again."""
    return _KINDS[data[0]].FromString(data[1:])
