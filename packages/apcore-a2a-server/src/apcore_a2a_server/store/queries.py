"""Queries for tasks, and the pages that answer them."""

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from a2a.utils.errors import InvalidParamsError
from apcore_a2a_core.data import TaskState
from apcore_a2a_core.records import TaskRecord

Order: TypeAlias = Literal["created", "updated"]


@dataclass(frozen=True, slots=True)
class Query:
    """A query for a page of tasks, newest first.

    Attributes:
        owner: the owner of the tasks, empty for anonymous callers; None for all owners.
        context_id: the context of the tasks; empty for all contexts.
        state: the state of the tasks; None for all states.
        after: only tasks whose status was set at this time, in seconds since 1970, or later; None
            for all.
        order: whether the newest are those created last, or those whose state changed last.
        cursor: the `next_cursor` of the previous page; None for the first page.
        limit: the size of the page.
        owner_prefix: the prefix of the owners' names, if `owner` is None; empty for all owners.
    """

    owner: str | None
    context_id: str = ""
    state: TaskState | None = None
    after: float | None = None
    order: Order = "created"
    cursor: str | None = None
    limit: int = 50
    owner_prefix: str = ""

    def for_all(self, owner_prefix: str = "") -> "Query":
        """Return this query for the tasks of all owners whose names begin with a prefix."""
        return replace(self, owner=None, owner_prefix=owner_prefix)

    def matches(self, owner: str, context_id: str, state: TaskState, status_at: float) -> bool:
        """Return whether a task with these values belongs to the result."""
        return (
            self.owner in (None, owner)
            and owner.startswith(self.owner_prefix)
            and self.context_id in ("", context_id)
            and self.state in (None, state)
            and status_at >= (self.after or 0)
        )


def parse_cursor(cursor: str) -> int:
    """Return the number in a cursor of `InMemoryTaskStore.list`.

    The number is that of the last task on the previous page.

    Raises:
        InvalidParamsError: The cursor is not a number of at most 18 digits.
    """
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
        raise InvalidParamsError("Invalid page cursor")
    return int(cursor)


@dataclass(frozen=True, slots=True)
class Page:
    """A page of records.

    Attributes:
        records: the tasks on the page.
        next_cursor: the cursor of the next page; None on the last one.
        total: the number of tasks on all pages; a store may leave it 0 for the order "created".
    """

    records: list[TaskRecord]
    next_cursor: str | None
    total: int = 0
