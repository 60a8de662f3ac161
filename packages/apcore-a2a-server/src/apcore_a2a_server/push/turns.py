"""Whose turn it is to be told."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

PER_HOST = 8
"""How many notifications of a principal are under way to a host at a time."""
PER_OWNER = 32
"""How many to all hosts."""

Work: TypeAlias = asyncio.Task[None]


class Errand(Protocol):
    """Something to be told, to one host, for one principal.

    Attributes:
        is_waiting: Whether it waits for its turn.
        work: The turn that it has.
    """

    is_waiting: bool
    work: Work | None

    @property
    def owner(self) -> str: ...

    @property
    def host(self) -> str: ...


E = TypeVar("E", bound=Errand)


class Turns(Generic[E]):
    """The errands of one principal that are ready, host by host.

    A host that is slow holds up its own errands alone, and a principal with many of them its own.
    Errands that wait here are data: they cost no worker until it is their turn.
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[E]] = OrderedDict()
        self._busy: Counter[str] = Counter()

    def __bool__(self) -> bool:
        return bool(self._waiting or self._busy)

    def wait(self, errand: E) -> None:
        """An errand is ready."""
        errand.is_waiting = True
        self._waiting.setdefault(errand.host, deque()).append(errand)

    def next(self) -> tuple[E, str] | None:
        """Whose turn it is, and its host; None when there is none or no place for it."""
        if self._busy.total() >= PER_OWNER:
            return None
        for host, errands in self._waiting.items():  # few hosts can have all their places taken
            if self._busy[host] < PER_HOST:
                errand = errands.popleft()
                errand.is_waiting = False
                self._waiting.move_to_end(host)
                if not errands:
                    del self._waiting[host]
                self._busy[host] += 1
                return errand, host
        return None

    def leave(self, host: str) -> None:
        """An errand at a host has ended."""
        self._busy[host] -= 1
        if not self._busy[host]:
            del self._busy[host]


class Desk(Generic[E]):
    """Has errands done, each when it is its turn.

    Args:
        do: Does one; what it raises is for *done*.
        done: Is told of each that was done, with its work.

    Attributes:
        works: What is being done.
    """

    def __init__(
        self, do: Callable[[E], Coroutine[Any, Any, None]], done: Callable[[E, Work], None]
    ) -> None:
        self.works: set[Work] = set()
        self._do = do
        self._done = done
        self._turns: dict[str, Turns[E]] = {}

    def wait(self, errand: E) -> None:
        """An errand is ready."""
        turns = self._turns.setdefault(errand.owner, Turns())
        turns.wait(errand)
        self._go_on(errand.owner, turns)

    def _go_on(self, owner: str, turns: Turns[E]) -> None:
        while found := turns.next():
            errand, host = found
            errand.work = asyncio.create_task(self._do(errand))
            self.works.add(errand.work)
            errand.work.add_done_callback(partial(self._on_done, errand, host, turns))
        if not turns:
            del self._turns[owner]

    def _on_done(self, errand: E, host: str, turns: Turns[E], work: Work) -> None:
        errand.work = None
        self.works.discard(work)
        self._done(errand, work)
        turns.leave(host)
        self._go_on(errand.owner, turns)
