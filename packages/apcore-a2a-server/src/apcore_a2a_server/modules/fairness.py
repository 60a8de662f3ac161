"""Fairness between clients: they take turns to start calls, and each has a share of the places.

A client may exceed its share while others need no places. If all places are taken, a client below
its share still gets another one, until the places that clients hold within their shares add up to
the limit. Until calls end, more places than the limit may then be in use: with a share of one half,
up to 1.5 times the limit.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


def share_of(total: int, share: float | None, limit: int | None = None) -> int | None:
    """Return how much of *total* one client may have: its share, at least 1 and at most *limit*.

    Without *share*, return *limit*.
    """
    if share is None:
        return limit
    part = max(int(total * share), 1)
    return part if limit is None else min(part, limit)


class Room(NamedTuple):
    """A number of places, and the clients that hold them.

    Attributes:
        limit: The number of places.
        per_client: The number of places in the share of one client; None if there are no shares.
        holders: The clients that have places, once for each place.
    """

    limit: int
    per_client: int | None
    holders: Sequence[str]

    @classmethod
    def of(cls, limit: int, share: float | None, holders: Sequence[str]) -> "Room":
        """Return a room of *limit* places; *share* is the fraction for each client."""
        return cls(limit, share_of(limit, share), holders)

    def has_place_for(self, client: str) -> bool:
        """Return whether *client* may have another place, provided that `has_place()` is true."""
        if len(self.holders) < self.limit:
            return True
        return self.per_client is not None and self.holders.count(client) < self.per_client

    def has_place(self) -> bool:
        """Return whether some client could get another place."""
        if len(self.holders) < self.limit or self.per_client is None:
            return len(self.holders) < self.limit
        return (
            sum(min(held, self.per_client) for held in Counter(self.holders).values()) < self.limit
        )


def _accept_any(client: str) -> bool:
    return True


class FairQueue(Generic[T]):
    """A queue in which clients take turns; the items of a client leave in order of arrival."""

    def __init__(self) -> None:
        # An OrderedDict finds its first key at once; a dict first skips all deleted keys.
        self._waiting: OrderedDict[str, OrderedDict[T, None]] = OrderedDict()
        """The items of each client; the client whose turn is next comes first."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, client: str, item: T) -> None:
        """Add an item after the others of its client."""
        self._waiting.setdefault(client, OrderedDict())[item] = None

    def pop(self, accept: Callable[[str], bool] = _accept_any) -> tuple[str, T] | None:
        """Remove and return the next item of a client that *accept* returns True for.

        Returns:
            The client and the item; None if there is no such item.
        """
        for client, items in self._waiting.items():
            if accept(client):
                item, _ = items.popitem(last=False)
                self._waiting.move_to_end(client)
                if not items:
                    del self._waiting[client]
                return client, item
        return None

    def discard(self, client: str, item: T) -> None:
        """Remove an item, if it is there."""
        items = self._waiting.get(client, OrderedDict[T, None]())
        items.pop(item, None)
        if not items:
            self._waiting.pop(client, None)


class FairSemaphore:
    """A bound on how many calls run at a time; the other calls wait for their turn.

    Args:
        limit: Maximum number of calls that run at a time; clients below their share may exceed it.
        share: The fraction of all places that is the share of a client; None for no shares.
    """

    def __init__(self, limit: int, *, share: float | None = None) -> None:
        self._holders: list[str] = []
        self._room = Room.of(limit, share, self._holders)
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue()

    @asynccontextmanager
    async def place(self, client: str) -> AsyncGenerator[None]:
        """Wait for a place for *client*, and hold it during the block."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(client, turn)
        self._give_places()
        try:
            await turn
            yield
        finally:
            # a call that is canceled while it waits may have got its place just before
            if turn.done() and not turn.cancelled():
                self._holders.remove(client)
            else:
                self._waiting.discard(client, turn)
            self._give_places()

    def _give_places(self) -> None:
        while self._room.has_place():
            next_turn = self._waiting.pop(self._room.has_place_for)
            if next_turn is None:
                return
            client, turn = next_turn
            if not turn.done():  # else its call was canceled
                self._holders.append(client)
                turn.set_result(None)
