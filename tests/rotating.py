"""Runs each row of a table in one of several ways, where all pairs would say no more.

Mark a test, or a module, with the arguments that rotate:

    pytestmark = pytest.mark.rotating("agent")

    @pytest.mark.parametrize("text", ["a", "b", "c"])
    def test_a_bad_text_is_refused(agent: Agent, text: str) -> None: ...

The first row then runs with the first `agent`, the second with the second, and so on; which ones
belong together is the same in every run. Tests without a table keep all their ways, and so do
tests that are marked as `rotating()`.
"""

from collections import defaultdict
from math import lcm
from typing import Any

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    line = "rotating(*arguments): runs each row of a table with one value of these arguments"
    config.addinivalue_line("markers", line)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Drop the combinations that are not in the rotation."""
    functions: dict[str, Function] = defaultdict(Function)
    chosen: list[pytest.Item] = []
    dropped: list[pytest.Item] = []
    for item in items:  # all tables have to be known before anything can be chosen
        functions[name_of(item)].learn(values_of(item))
    for item in items:
        mark = item.get_closest_marker("rotating")
        axes = mark.args if mark else ()
        has_turn = functions[name_of(item)].has_turn(values_of(item), axes)
        (chosen if has_turn else dropped).append(item)
    items[:] = chosen
    config.hook.pytest_deselected(items=dropped)


def name_of(item: pytest.Item) -> str:
    """The name of a test without its parameters."""
    return item.nodeid.partition("[")[0]


def values_of(item: pytest.Item) -> dict[str, tuple[int, ...]]:
    """The identities of a test's values, by the first name of each of its tables."""
    params: dict[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}
    tables = [mark.args[0] for mark in item.iter_markers("parametrize")]
    names = [[n.strip() for n in t.split(",")] if isinstance(t, str) else [*t] for t in tables]
    names += [[name] for name in params if not any(name in table for table in names)]
    return {table[0]: tuple(id(params[name]) for name in table) for table in names}


class Function:
    """The rows of each of a function's tables, in their order."""

    def __init__(self) -> None:
        self.rows: dict[str, list[tuple[int, ...]]] = defaultdict(list)

    def learn(self, values: dict[str, tuple[int, ...]]) -> None:
        """Note the rows that one of its tests has."""
        for name, row in values.items():
            if row not in self.rows[name]:
                self.rows[name].append(row)

    def has_turn(self, values: dict[str, tuple[int, ...]], axes: tuple[str, ...]) -> bool:
        """Whether it is the turn of these values; always, where there is no table beside *axes*."""
        tables = [name for name in values if name not in axes]
        number = sum(self.rows[name].index(values[name]) for name in tables)
        last = sum(len(self.rows[name]) - 1 for name in tables)
        cycle = 0
        for name in [name for name in axes if name in values and tables]:
            place, count = self.rows[name].index(values[name]), len(self.rows[name])
            # where two axes have the same length, the second moves on once the first is through
            shift = number // lcm(cycle, count) if cycle else 0
            is_next = place == (number + shift) % count
            is_left = last < place and place % (last + 1) == number  # by a table that is short
            if not (is_next or is_left):
                return False
            cycle = lcm(cycle or 1, count)
        return True
