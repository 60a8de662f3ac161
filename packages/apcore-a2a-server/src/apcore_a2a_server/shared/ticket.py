"""What a message that has been admitted leads to."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ticket:
    """A message that has been admitted: its task, and the version it starts behind."""

    task_id: str
    since: int
