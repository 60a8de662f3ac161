"""Public names of `apcore_a2a_server.middleware`."""

import importlib
import inspect
import pkgutil

import apcore_a2a_server.middleware
import pytest

NAMES = [
    "Authentication",
    "ClientKeys",
    "FrontMiddleware",
    "RateLimit",
    "RateLimiter",
    "RedactingFormatter",
    "build_middleware",
    "caller_of",
    "client_of",
    "log_context",
    "principal_of",
    "set_up_logging",
]
MODULES = [
    m.name
    for m in pkgutil.iter_modules(
        apcore_a2a_server.middleware.__path__, "apcore_a2a_server.middleware."
    )
]
MIDDLEWARE = [
    "Authentication",
    "ClientKeys",
    "FrontMiddleware",
    "RateLimit",
]


def test_the_public_names_are_sorted_and_complete() -> None:
    assert apcore_a2a_server.middleware.__all__ == NAMES == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_exists_and_has_a_docstring(name: str) -> None:
    assert inspect.getdoc(getattr(apcore_a2a_server.middleware, name))


@pytest.mark.parametrize("name", MODULES)
def test_every_module_has_a_docstring(name: str) -> None:
    assert importlib.import_module(name).__doc__


@pytest.mark.parametrize("name", MIDDLEWARE)
def test_middleware_takes_the_application_first(name: str) -> None:
    parameters = inspect.signature(getattr(apcore_a2a_server.middleware, name)).parameters
    assert next(iter(parameters)) == "app"
