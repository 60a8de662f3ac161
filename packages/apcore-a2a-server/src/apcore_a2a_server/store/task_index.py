"""In-memory indexes of the tasks of an owner or a conversation, and a counter of message bytes."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from itertools import chain, islice, takewhile
from operator import attrgetter
from typing import Generic, TypeAlias, TypeVar

from apcore_a2a_core.data import Message, Task, TaskState
from apcore_a2a_core.records import LARGE_MESSAGE, TaskRecord, gaps, is_large_message
from apcore_a2a_core.states import TERMINAL
from apcore_a2a_core.values import dump_json, read_json
from msgspec import Struct

from .queries import Query

Encoded: TypeAlias = tuple[Message, bytes]
"""A message, and its JSON."""

MAX_UNSORTED = 100
"""Number of tasks above which an index moves ended tasks from its dict to sorted lists.

The lists take more memory than the dict.
"""

MAX_BLOCK = 512
"""Maximum number of items in a block of a `SortedList`: adding an item moves few others."""

MAX_POSITION = 2**63 - 1
"""A position above those of all tasks: a query without a cursor begins there."""

T = TypeVar("T")
ContextKey: TypeAlias = tuple[str, str]
"""The owner and the context id of a conversation."""

_created = attrgetter("created")
_updated = attrgetter("updated")
_time = attrgetter("time")


# Stored tasks are many, and form no cycles: the garbage collector need not scan them.
class StoredTask(Struct, gc=False):
    """A task as bytes, and values by which queries find it without reading the bytes.

    Attributes that are not described here are those of `TaskRecord` or of its task.

    Attributes:
        key: the key of its conversation.
        data: the task, with gaps for the large messages of its history.
        large: the large messages as bytes, which the task shares with its conversation.
        time: the time of its status, in seconds since 1970.
        created: the number of the save that created it.
        updated: the number of its last save.
    """

    id: str
    key: ContextKey
    data: bytes
    large: tuple[bytes, ...]
    skill: str
    version: int
    resume: bytes | None
    messages: int
    deadline: float | None
    state: TaskState
    time: float
    created: int
    updated: int

    def record(self) -> TaskRecord:
        """Return a new record of the task."""
        task = read_json(Task, self.data)
        for index, body in zip(gaps(task) if self.large else (), self.large, strict=True):
            task.history[index] = read_json(Message, body)
        other_fields = self.skill, self.version, self.resume, self.messages, self.deadline
        return TaskRecord(task, self.owner, *other_fields)

    @property
    def owner(self) -> str:
        """The principal that the task belongs to, with the tenant if there is one."""
        return self.key[0]

    @property
    def has_ended(self) -> bool:
        """Whether it can't change any more."""
        return self.state in TERMINAL


class SortedList(Generic[T]):
    """Items sorted by their unique numbers.

    Most items are added at the end, and removed at the beginning.

    Args:
        get_number: Returns the number of an item.

    Example:
        ```python
        from apcore_a2a_server.store.task_index import SortedList

        names = SortedList(len)
        for name in ("Ada", "Bo", "Grace"):
            names.add(name)
        print([*names.before(5)], len(names))
        #> ['Ada', 'Bo'] 3
        ```
    """

    __slots__ = ("_blocks", "_get_number")

    def __init__(self, get_number: Callable[[T], int]) -> None:
        self._get_number = get_number
        self._blocks: list[list[T]] = [[]]
        """At least one; a block is empty only if there are no others."""

    def __len__(self) -> int:
        return sum(map(len, self._blocks))

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self._blocks)

    @property
    def first(self) -> T | None:
        """The item with the lowest number, if there is one."""
        return self._blocks[0][0] if self._blocks[0] else None

    @property
    def last(self) -> T | None:
        """The item with the highest number, if there is one."""
        return self._blocks[-1][-1] if self._blocks[-1] else None

    def add(self, item: T) -> None:
        """Add an item where its number belongs."""
        number, index = self._get_number(item), len(self._blocks) - 1
        block = self._blocks[index]
        if not block or self._get_number(block[-1]) < number:
            block.append(item)
        else:
            index = self._block_before(number, self._get_number)
            block = self._blocks[index]
            insort(block, item, key=self._get_number)
        if len(block) > MAX_BLOCK:
            middle = len(block) // 2
            self._blocks[index : index + 1] = block[:middle], block[middle:]

    def remove(self, item: T) -> None:
        """Remove an item that was added."""
        index, place = 0, 0
        if self._blocks[0][0] is not item:  # most items are removed at the beginning
            number = self._get_number(item)
            index = self._block_before(number + 1, self._get_number)
            place = bisect_left(self._blocks[index], number, key=self._get_number)
        block = self._blocks[index]
        del block[place]
        if not block and len(self._blocks) > 1:
            del self._blocks[index]

    def before(self, number: int) -> Iterator[T]:
        """Yield the items with lower numbers than *number*, in descending order."""
        index = self._block_before(number, self._get_number)
        for block in reversed(self._blocks[: index + 1]):
            yield from reversed(block[: bisect_left(block, number, key=self._get_number)])

    def count_before(self, value: float, key: Callable[[T], float]) -> int:
        """Return how many items have a *key* below *value*.

        Args:
            value: The value.
            key: A function whose values never decrease in the order of the items.
        """
        index = self._block_before(value, key)
        earlier = sum(map(len, self._blocks[:index]))
        return earlier + bisect_left(self._blocks[index], value, key=key)

    def _block_before(self, value: float, key: Callable[[T], float]) -> int:
        """Return the index of the last block that begins below *value*; 0 if none does."""
        blocks = self._blocks
        if len(blocks) == 1 or key(blocks[-1][0]) < value:  # the usual case
            return len(blocks) - 1
        return bisect_left(blocks, value, 1, key=lambda block: key(block[0])) - 1


class EndedTasks:
    """Tasks of an index that are in the same terminal state, in sorted lists."""

    __slots__ = ("_disorder", "created", "updated")

    def __init__(self) -> None:
        self.created: SortedList[StoredTask] = SortedList(_created)
        self.updated: SortedList[StoredTask] = SortedList(_updated)
        self._disorder = 0
        """`updated` of the last task whose time is before that of the previous task; 0 if none."""

    def add(self, task: StoredTask) -> None:
        """Add a task; the tasks that were added before must have ended earlier."""
        last = self.updated.last
        if last is not None and task.time < last.time:
            self._disorder = task.updated
        self.created.add(task)
        self.updated.add(task)

    def remove(self, task: StoredTask) -> None:
        """Remove a task that was added."""
        self.created.remove(task)
        self.updated.remove(task)

    @property
    def is_in_order(self) -> bool:
        """Whether the times never decrease; a clock that is set back makes them decrease."""
        return not self.updated.count_before(self._disorder, _updated)

    def since(self, time: float) -> Iterable[StoredTask]:
        """Return the tasks that have ended since a time, and perhaps earlier ones."""
        earlier = self.updated.count_before(time, _time) if self.is_in_order else 0
        return islice(self.updated.before(MAX_POSITION), len(self.updated) - earlier)


class TaskIndex(Struct, gc=False):
    """The tasks of one owner, or of one conversation.

    Attributes:
        unsorted: all tasks by id, or only the open ones while `ended_by_state` has the ended ones.
        ended_by_state: the ended tasks in sorted lists, if there were many tasks.
    """

    unsorted: dict[str, StoredTask] = {}
    ended_by_state: dict[TaskState, EndedTasks] | None = None

    def __bool__(self) -> bool:
        return bool(self.unsorted or self.ended_by_state)

    def __iter__(self) -> Iterator[StoredTask]:
        return chain(self.unsorted.values(), *(ended.updated for ended in self._ended()))

    def add(self, task: StoredTask) -> None:
        """Add a task that was just saved."""
        self.unsorted[task.id] = task
        if task.state not in TERMINAL:
            return
        if self.ended_by_state:
            self._move_to_list(task)
        elif len(self.unsorted) > MAX_UNSORTED:
            for ended_task in [*filter(_has_ended, self.unsorted.values())]:
                self._move_to_list(ended_task)

    def _move_to_list(self, task: StoredTask) -> None:
        """Move an ended task to the list of its state."""
        del self.unsorted[task.id]
        self.ended_by_state = self.ended_by_state or {}
        if task.state not in self.ended_by_state:
            self.ended_by_state[task.state] = EndedTasks()
        self.ended_by_state[task.state].add(task)

    def _ended(self, state: TaskState | None = None) -> list[EndedTasks]:
        """Return the `EndedTasks` of a state, or of all states."""
        items = (self.ended_by_state or {}).items()
        return [ended for ended_state, ended in items if state in (None, ended_state)]

    def remove(self, task: StoredTask) -> bool:
        """Remove a task that was added; return whether no tasks are left."""
        if self.unsorted.pop(task.id, None) is None and self.ended_by_state:
            ended = self.ended_by_state[task.state]
            ended.remove(task)
            if ended.updated.first is None:
                del self.ended_by_state[task.state]
        return not (self.unsorted or self.ended_by_state)

    @property
    def oldest_ended(self) -> StoredTask | None:
        """The task that ended longest ago; None if no task has ended."""
        if not self.ended_by_state:
            return next(filter(_has_ended, self.unsorted.values()), None)
        oldest_tasks = [ended.updated.first for ended in self.ended_by_state.values()]
        if len(oldest_tasks) == 1:
            return oldest_tasks[0]
        return min(filter(None, oldest_tasks), key=_updated)

    def ended_tasks(self) -> Iterator[StoredTask]:
        """Return the tasks that have ended, starting with the one that ended longest ago."""
        lists = [ended.updated for ended in self._ended()]
        sorted_tasks = lists[0] if len(lists) == 1 else merge(*lists, key=_updated)
        return chain(sorted_tasks, filter(_has_ended, self.unsorted.values()))

    def find(self, query: Query, position: int) -> tuple[Iterable[StoredTask], int]:
        """Return the tasks that match a query's state and time, newest first, and how many match.

        Args:
            query: A query; all tasks of this index match its owner and its context.
            position: Only tasks with a lower number are returned; all that match are counted.
        """
        get_number, since = attrgetter(query.order), query.after or 0
        all_ended = self._ended(query.state)
        candidates: Iterable[StoredTask] = self.unsorted.values()
        # a list can be cut off at `since` only if its tasks are in the order of their times
        if since and not (
            query.order == "updated" and all(ended.is_in_order for ended in all_ended)
        ):
            candidates = chain(candidates, *(ended.since(since) for ended in all_ended))
            all_ended = []
        matches = sorted(
            (
                task
                for task in candidates
                if query.state in (None, task.state) and task.time >= since
            ),
            key=get_number,
            reverse=True,
        )
        total = len(matches)
        sorted_parts: list[Iterable[StoredTask]] = []
        sorted_parts.append(task for task in matches if get_number(task) < position)
        for ended in all_ended:
            sorted_list: SortedList[StoredTask] = getattr(ended, query.order)
            total += len(sorted_list) - sorted_list.count_before(since, _time)
            sorted_parts.append(
                takewhile(lambda task: task.time >= since, sorted_list.before(position))
            )
        return merge(*sorted_parts, key=get_number, reverse=True), total


def _has_ended(task: StoredTask) -> bool:
    return task.has_ended


class MessageBytes:
    """Counter of message bytes; large messages are shared by a task and its conversation.

    Attributes:
        bytes: the number of bytes of all messages in use; a shared message counts once.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._uses: Counter[int] = Counter()
        """How often each large message is in use, by the `id` of its bytes."""

    def replace(self, old: Iterable[bytes], new: Iterable[bytes]) -> None:
        """Count the *new* messages of a task or a conversation instead of its *old* ones."""
        for body in new:
            if len(body) < LARGE_MESSAGE:
                self.bytes += len(body)
            else:
                self.bytes += 0 if self._uses[id(body)] else len(body)
                self._uses[id(body)] += 1
        for body in old:
            if len(body) < LARGE_MESSAGE:
                self.bytes -= len(body)
            else:
                self._uses[id(body)] -= 1
                if not self._uses[id(body)]:
                    del self._uses[id(body)]
                    self.bytes -= len(body)


def large_messages(
    task: Task, known_messages: Sequence[Encoded], kept_bodies: Sequence[bytes]
) -> list[Encoded]:
    """Return the large messages of a history with their bytes; those in *kept_bodies* are reused.

    Args:
        task: The task with the history.
        known_messages: Messages whose JSON is known; making it takes some 2 ms per megabyte.
        kept_bodies: The bytes of messages that are kept in memory already.
    """
    encoded_messages: list[Encoded] = []
    for message in filter(is_large_message, task.history):
        body = next((body for known, body in known_messages if known is message), None)
        if body is None:
            body = dump_json(message)
        shared_body = next((kept for kept in kept_bodies if kept == body), body)
        encoded_messages.append((message, shared_body))
    return encoded_messages
