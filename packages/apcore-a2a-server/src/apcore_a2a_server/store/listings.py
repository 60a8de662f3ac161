"""Lists that are kept in order: pages and counts of them take no scan."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Generic, TypeVar

MAX_BLOCK = 512
"""The largest number of items in a block: adding or removing an item moves at most so many."""

T = TypeVar("T")


class Listing(Generic[T]):
    """Items in the order of a number that each has, and no two have in common.

    Most items are added at the end, and removed at the beginning.

    Args:
        number_of: Returns the number of an item.

    Example:
        ```python
        from apcore_a2a_server.store.listings import Listing

        names = Listing(len)
        for name in ("Ada", "Bo", "Grace"):
            names.add(name)
        print([*names.before(5)], len(names))
        #> ['Ada', 'Bo'] 3
        ```
    """

    __slots__ = ("_blocks", "_number_of")

    def __init__(self, number_of: Callable[[T], int]) -> None:
        self._number_of = number_of
        self._blocks: list[list[T]] = [[]]
        """Never none; only a single one may be empty."""

    def __len__(self) -> int:
        return sum(map(len, self._blocks))

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self._blocks)

    @property
    def last(self) -> T | None:
        """The item with the highest number, if there is one."""
        return self._blocks[-1][-1] if self._blocks[-1] else None

    def add(self, item: T) -> None:
        """Add an item in its place."""
        number = self._number_of(item)
        index = self._block_before(number, self._number_of)
        block = self._blocks[index]
        if not block or self._number_of(block[-1]) < number:
            block.append(item)
        else:
            insort(block, item, key=self._number_of)
        if len(block) > MAX_BLOCK:
            middle = len(block) // 2
            self._blocks[index : index + 1] = block[:middle], block[middle:]

    def remove(self, item: T) -> None:
        """Remove an item that was added."""
        number = self._number_of(item)
        index = self._block_before(number + 1, self._number_of)
        block = self._blocks[index]
        del block[bisect_left(block, number, key=self._number_of)]
        if not block and len(self._blocks) > 1:
            del self._blocks[index]

    def before(self, number: int) -> Iterator[T]:
        """Yield the items with lower numbers than *number*, in descending order."""
        index = self._block_before(number, self._number_of)
        for block in reversed(self._blocks[: index + 1]):
            yield from reversed(block[: bisect_left(block, number, key=self._number_of)])

    def count_before(self, value: float, key: Callable[[T], float]) -> int:
        """Return how many items have a *key* below *value*.

        Args:
            value: The value.
            key: A function that gives no item a lower value than one with a lower number.
        """
        index = self._block_before(value, key)
        earlier = sum(map(len, self._blocks[:index]))
        return earlier + bisect_left(self._blocks[index], value, key=key)

    def _block_before(self, value: float, key: Callable[[T], float]) -> int:
        """Return the index of the last block that begins below *value*; 0 if none does."""
        blocks = self._blocks
        if len(blocks) == 1 or key(blocks[-1][0]) < value:  # as for most items that are added
            return len(blocks) - 1
        return bisect_left(blocks, value, 1, key=lambda block: key(block[0])) - 1
