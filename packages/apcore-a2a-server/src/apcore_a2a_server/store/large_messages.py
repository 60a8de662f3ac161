"""Large messages in memory, which a task and its conversation share."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from apcore_a2a_core.data import Message, Task
from apcore_a2a_core.records import LARGE_MESSAGE, is_large_message
from apcore_a2a_core.values import dump_json

Encoded: TypeAlias = tuple[Message, bytes]
"""A message, and its JSON."""


class LargeMessages:
    """Counter of large messages, each of which a task and its conversation may share.

    Attributes:
        bytes: the number of bytes of all messages that are in use.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._uses: Counter[int] = Counter()

    def replace(self, old: Iterable[bytes], new: Iterable[bytes]) -> None:
        """Count the *new* messages of a task or a conversation instead of its *old* ones."""
        for body in new:
            if len(body) >= LARGE_MESSAGE:
                self.bytes += 0 if self._uses[id(body)] else len(body)
                self._uses[id(body)] += 1
        for body in old:
            if len(body) >= LARGE_MESSAGE:
                self._uses[id(body)] -= 1
                if not self._uses[id(body)]:
                    del self._uses[id(body)]
                    self.bytes -= len(body)


def large_messages(task: Task, known: Sequence[Encoded], kept: Sequence[bytes]) -> list[Encoded]:
    """Return the large messages of a history as bytes; kept messages that are equal are reused.

    Args:
        task: The task with the history.
        known: Messages of the history that are converted already: to convert one takes some 2 ms
            for each megabyte.
        kept: Messages that are kept in memory already.
    """
    found: list[Encoded] = []
    for message in filter(is_large_message, task.history):
        body = next((body for each, body in known if each is message), None)
        if body is None:
            body = dump_json(message)
        found.append((message, next((same for same in kept if same == body), body)))
    return found
