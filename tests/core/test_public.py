"""Public names of the distribution, and the modules that its import loads."""

import doctest
import importlib
import pkgutil
import subprocess
import sys

import apcore_a2a_core
import pytest

MODULES = [m.name for m in pkgutil.iter_modules(apcore_a2a_core.__path__, "apcore_a2a_core.")]
FORBIDDEN = {"anyio", "asyncio", "httpx", "pydantic", "socket", "starlette", "uvicorn"}


def test_the_public_names_are_sorted_and_exist() -> None:
    names = apcore_a2a_core.__all__
    assert sorted(names, key=lambda n: (not n.isupper(), not n[0].isupper(), n)) == names
    assert all(hasattr(apcore_a2a_core, name) for name in names)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_docstrings_run(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert not failed


def test_the_import_of_core_loads_no_more_io_than_the_sdk_and_no_apcore() -> None:
    code = "import sys, {}; print(*sys.modules)"
    modules, types_modules = (
        imported_modules(code.format(name)) for name in ("apcore_a2a_core", "a2a.types")
    )
    assert modules & FORBIDDEN <= types_modules
    assert not modules & {"a2a.server", "a2a.client", "a2a.compat", "apcore"}


def imported_modules(code: str) -> set[str]:
    result = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    return set(result.stdout.split())
