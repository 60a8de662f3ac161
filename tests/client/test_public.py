"""Public names of the distribution, and the cost of importing it."""

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, TypeVar

import apcore_a2a_client
import pytest
from apcore_a2a_client import A2AClient, A2AError, A2AServerError, SyncA2AClient, errors

from .raw import KINDS, Client

NAMES = apcore_a2a_client.__all__
MODULES = [m.name for m in pkgutil.iter_modules(apcore_a2a_client.__path__, "apcore_a2a_client.")]
HEAVY = {"a2a", "anyio", "apcore", "google.protobuf", "pydantic", "starlette", "uvicorn"}


def test_the_public_names_are_sorted_and_exist() -> None:
    assert sorted(set(NAMES)) == NAMES
    assert all(hasattr(apcore_a2a_client, name) for name in NAMES)


@pytest.mark.parametrize("name", ["cards", "errors", "tasks"])
def test_the_classes_for_cards_errors_and_tasks_are_public(name: str) -> None:
    module = importlib.import_module(f"apcore_a2a_client.{name}")
    own_classes = {
        n for n, c in inspect.getmembers(module, inspect.isclass) if c.__module__ == module.__name__
    }
    assert {n for n in own_classes if not n.startswith("_")} <= set(NAMES)


def test_every_public_name_has_a_docstring() -> None:
    for name in {*NAMES} - {"Event"}:  # an alias of a union: it has no docstring of its own
        docstring = getattr(apcore_a2a_client, name).__doc__
        assert docstring, name
        assert not docstring.startswith(f"{name}("), name  # the docstring that dataclasses generate


def test_every_module_has_a_docstring() -> None:
    assert [name for name in MODULES if not importlib.import_module(name).__doc__] == []


def public(client: type[Any]) -> dict[str, Any]:
    return {n: m for n, m in inspect.getmembers(client) if not n.startswith("_")}


def test_both_clients_have_the_same_methods() -> None:
    assert public(A2AClient).keys() - {"aclose"} == public(SyncA2AClient).keys() - {"close"}
    assert {"aclose", "close"} <= public(A2AClient).keys() | public(SyncA2AClient).keys()


def test_methods_of_both_clients_have_the_same_signatures() -> None:
    for name in public(SyncA2AClient).keys() - {"close", "agent_card"}:
        methods: list[Any] = [getattr(client, name) for client in (A2AClient, SyncA2AClient)]
        assert {method.__name__ for method in methods} == {name}
        async_signature, sync_signature = map(inspect.signature, methods)
        assert async_signature.parameters == sync_signature.parameters, name
        assert all(method.__doc__ for method in methods), name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["call", "get_task", "stream", "subscribe"])
def test_the_error_for_wrong_arguments_names_the_method_of_the_client(kind: str, name: str) -> None:
    with Client(kind, "http://127.0.0.1:1") as client, pytest.raises(TypeError) as raised:
        client.do(name, "x", nope=1)
    method = f"{type(client.client).__name__}.{name}"
    assert str(raised.value) == f"{method}() got an unexpected keyword argument 'nope'"


@pytest.mark.parametrize("kind", KINDS)
def test_the_error_for_missing_arguments_names_the_method_of_the_client(kind: str) -> None:
    with Client(kind, "http://127.0.0.1:1") as client, pytest.raises(TypeError) as raised:
        client.do("call", "x")
    method = f"{type(client.client).__name__}.call"
    assert str(raised.value) == f"{method}() missing 1 required positional argument: 'input'"


def test_both_clients_have_the_same_options() -> None:
    async_options, sync_options = (
        [p.replace(annotation=None) for p in inspect.signature(c).parameters.values()]
        for c in (A2AClient, SyncA2AClient)
    )
    assert async_options == sync_options


ErrorT = TypeVar("ErrorT", bound=A2AError)

TREE = re.compile(r"^([│├└─\s]*)(\w+)(?:\s+(.*))?$")


def documented_errors() -> Iterator[tuple[int, str, str]]:
    """Yield the depth, name and remark of each error in the tree in the docstring of `errors`."""
    for line in (errors.__doc__ or "").splitlines()[2:]:
        if match := TREE.match(line):
            yield len(match[1]) // 4, match[2], match[3] or ""


def test_the_documented_tree_of_errors_matches_the_classes() -> None:
    parents = ["Exception"]
    for depth, name, remark in documented_errors():
        del parents[depth + 1 :]
        error_type = getattr(errors, name)
        assert [base.__name__ for base in error_type.__mro__[1 : depth + 2]] == parents[::-1]
        parents.append(name)
        code = re.match(r"-\d+", remark)
        assert not code or error_type.code == int(code[0])
        for attribute in re.findall(r"`(\w+)`", remark.partition(";")[2] or remark):
            assert attribute in ("call", *attributes_of(error_type)), f"{name}.{attribute}"
    all_errors: list[type[A2AError]] = [A2AError, *descendants(A2AError)]
    documented_names = {name for _, name, _ in documented_errors()}
    assert documented_names == {error_type.__name__ for error_type in all_errors}


def descendants(error_type: type[ErrorT]) -> Iterator[type[ErrorT]]:
    for child in error_type.__subclasses__():
        yield from (child, *descendants(child))


def attributes_of(error_type: type[A2AError]) -> set[str]:
    """Return the attributes of the class, and those set by its `__init__`."""
    parameters = inspect.signature(error_type).parameters
    return {*dir(error_type), *parameters, *error_type.__init__.__code__.co_names}


def test_every_error_of_a_server_is_an_a2a_error_with_a_code() -> None:
    error_types: list[type[A2AServerError]] = [A2AServerError, *descendants(A2AServerError)]
    for error_type in error_types:
        error = error_type("no", error_type.code, None, 200)
        assert isinstance(error, A2AError)
        attributes = (str(error), error.code, error.data, error.reason)
        assert attributes == ("no", error_type.code, None, "")


def test_the_import_loads_no_heavy_package() -> None:
    code = "import sys, apcore_a2a_client; print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    assert not HEAVY & set(result.stdout.split())
