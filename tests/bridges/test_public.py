"""Public names of the distribution, its examples, and the cost of importing it."""

import doctest
import importlib
import pkgutil
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
    code = """
import apcore, apcore_a2a_core
from time import process_time
before = process_time()
import apcore_a2a_bridges
print(process_time() - before)
"""
    runs = (subprocess.check_output([sys.executable, "-c", code]) for _ in range(5))
    # the least of several runs: on a busy machine, waiting for caches counts as CPU time, too
    assert min(map(float, runs)) <= 0.05
