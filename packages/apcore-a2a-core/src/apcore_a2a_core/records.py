"""What the server keeps of a task."""

from dataclasses import dataclass

from a2a import types as a2a


@dataclass(slots=True)
class TaskRecord:
    """A task, and what the server has to know of it beside.

    Attributes:
        task: the task as clients see it.
        owner: the id of the principal that it belongs to; empty when nobody is known.
        skill: the id of the skill that it runs.
        version: the number of its latest change.
        resume: the call that a paused task goes on with.
    """

    task: a2a.Task
    owner: str = ""
    skill: str = ""
    version: int = 0
    resume: bytes | None = None


@dataclass(slots=True)
class TaskListResult:
    """A page of records; `next_cursor` is ``None`` on the last."""

    records: list[TaskRecord]
    next_cursor: str | None = None
