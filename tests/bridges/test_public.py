"""Public names of the distribution, its examples, and the cost of importing it."""

import doctest
import importlib
import pkgutil
import resource
import subprocess
import sys

import apcore_a2a_bridges
import pytest

MODULES = [m.name for m in pkgutil.iter_modules(apcore_a2a_bridges.__path__, "apcore_a2a_bridges.")]


def test_the_public_names_are_sorted_and_exist() -> None:
    names = apcore_a2a_bridges.__all__
    assert names == sorted(names)
    assert {*names} <= {*dir(apcore_a2a_bridges)}
    assert all(hasattr(apcore_a2a_bridges, name) for name in names)


def test_an_unknown_name_raises_the_usual_error() -> None:
    with pytest.raises(AttributeError, match="'apcore_a2a_bridges' has no attribute 'nope'"):
        _ = apcore_a2a_bridges.nope  # type: ignore[attr-defined]  # missing on purpose


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_docstrings_run(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert not failed


@pytest.mark.clock
@pytest.mark.process
def test_the_import_takes_at_most_50_ms_beyond_apcore_and_core() -> None:
    def seconds(code: str) -> float:
        """Return the CPU time of a program, the least of several runs."""
        times: list[float] = []
        for _ in range(5):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-c", code], check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return min(times)

    base = "import apcore, apcore_a2a_core"
    alone = seconds("pass")
    added = seconds(f"{base}; import apcore_a2a_bridges") - seconds(base)
    # 50 ms on a machine whose interpreter starts in 15 ms of CPU
    assert added <= max(0.05, 3.5 * alone)
