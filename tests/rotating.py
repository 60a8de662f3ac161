"""Run each row of a `parametrize` table with one value of each rotating argument, not with all.

Mark a test, or a module, with the arguments that rotate:

    pytestmark = pytest.mark.rotating("agent")

    @pytest.mark.parametrize("text", ["a", "b", "c"])
    def test_a_bad_text_is_refused(agent: Agent, text: str) -> None: ...

The first row then runs with the first `agent`, the second with the second, and so on; the
combinations are the same in every run. If the argument has more values than the table has rows, the
remaining values are spread over the rows, which then run with several. Tests without a table run
with all values, and so do tests that are marked as `rotating()`.
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
    """Deselect the combinations that are not in the rotation."""
    functions: dict[str, Function] = defaultdict(Function)
    selected_items: list[pytest.Item] = []
    deselected_items: list[pytest.Item] = []
    for item in items:  # all tables must be known before any choice
        functions[name_of(item)].record_rows(values_of(item))
    for item in items:
        mark = item.get_closest_marker("rotating")
        axes = mark.args if mark else ()
        selected = functions[name_of(item)].is_selected(values_of(item), axes)
        (selected_items if selected else deselected_items).append(item)
    items[:] = selected_items
    config.hook.pytest_deselected(items=deselected_items)


def name_of(item: pytest.Item) -> str:
    """Return the name of a test without its parameters."""
    return item.nodeid.partition("[")[0]


def values_of(item: pytest.Item) -> dict[str, tuple[int, ...]]:
    """Return the `id()`s of a test's values in each table, by the table's first argument."""
    params: dict[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}
    argnames = [mark.args[0] for mark in item.iter_markers("parametrize")]
    tables = [[n.strip() for n in t.split(",")] if isinstance(t, str) else [*t] for t in argnames]
    tables += [[name] for name in params if not any(name in table for table in tables)]
    return {table[0]: tuple(id(params[name]) for name in table) for table in tables}


class Function:
    """Rows of each table of a test function, in order."""

    def __init__(self) -> None:
        self.rows: dict[str, list[tuple[int, ...]]] = defaultdict(list)

    def record_rows(self, values: dict[str, tuple[int, ...]]) -> None:
        """Record the rows of one of the tests."""
        for name, row in values.items():
            if row not in self.rows[name]:
                self.rows[name].append(row)

    def is_selected(self, values: dict[str, tuple[int, ...]], axes: tuple[str, ...]) -> bool:
        """Return whether the test with these values runs; the arguments *axes* rotate."""
        tables = [name for name in values if name not in axes]
        number = sum(self.rows[name].index(values[name]) for name in tables)
        last = sum(len(self.rows[name]) - 1 for name in tables)
        cycle = 0
        for name in [name for name in axes if name in values and tables]:
            position, count = self.rows[name].index(values[name]), len(self.rows[name])
            # shift later axes after each common cycle, or the same combinations would repeat
            shift = number // lcm(cycle, count) if cycle else 0
            is_next = position == (number + shift) % count
            # if there are more values than rows, the remaining values are spread over the rows
            is_surplus = last < position and position % (last + 1) == number
            if not (is_next or is_surplus):
                return False
            cycle = lcm(cycle or 1, count)
        return True
