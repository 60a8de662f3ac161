"""The surface of the distribution, and what importing it costs."""

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

NAMES = apcore_a2a_client.__all__
MODULES = [m.name for m in pkgutil.iter_modules(apcore_a2a_client.__path__, "apcore_a2a_client.")]
HEAVY = {"a2a", "anyio", "apcore", "google.protobuf", "pydantic", "starlette", "uvicorn"}


def test_the_public_names_are_sorted_and_there() -> None:
    assert sorted(set(NAMES)) == NAMES
    assert all(hasattr(apcore_a2a_client, name) for name in NAMES)


@pytest.mark.parametrize("name", ["cards", "errors", "tasks"])
def test_every_class_of_what_agents_say_is_public(name: str) -> None:
    module = importlib.import_module(f"apcore_a2a_client.{name}")
    own = {
        n for n, c in inspect.getmembers(module, inspect.isclass) if c.__module__ == module.__name__
    }
    assert {n for n in own if not n.startswith("_")} <= set(NAMES)


def test_what_is_public_says_what_it_is() -> None:
    for name in NAMES:
        said = getattr(apcore_a2a_client, name).__doc__ if name != "Event" else "It is an alias."
        assert said, name
        assert not said.startswith(f"{name}("), name  # which a dataclass has without one


def test_every_module_says_what_it_is_for() -> None:
    assert [name for name in MODULES if not importlib.import_module(name).__doc__] == []


def public(client: type[Any]) -> dict[str, Any]:
    return {n: m for n, m in inspect.getmembers(client) if not n.startswith("_")}


def test_both_clients_do_the_same() -> None:
    assert public(A2AClient).keys() - {"aclose"} == public(SyncA2AClient).keys() - {"close"}
    assert {"aclose", "close"} <= public(A2AClient).keys() | public(SyncA2AClient).keys()


def test_a_method_of_both_clients_is_the_same() -> None:
    for name in public(SyncA2AClient).keys() - {"close", "agent_card"}:
        methods: list[Any] = [getattr(client, name) for client in (A2AClient, SyncA2AClient)]
        assert {method.__name__ for method in methods} == {name}
        ours, theirs = map(inspect.signature, methods)
        assert ours.parameters == theirs.parameters, name
        assert all(method.__doc__ for method in methods), name


def test_both_clients_are_made_of_the_same() -> None:
    ours, theirs = (
        [p.replace(annotation=None) for p in inspect.signature(c).parameters.values()]
        for c in (A2AClient, SyncA2AClient)
    )
    assert ours == theirs


Kind = TypeVar("Kind", bound=A2AError)

TREE = re.compile(r"^([│├└─\s]*)(\w+)(?:\s+(.*))?$")


def drawn() -> Iterator[tuple[int, str, str]]:
    """The depth, the name and the remark of each error in the module's drawing."""
    for line in (errors.__doc__ or "").splitlines()[2:]:
        if found := TREE.match(line):
            yield len(found[1]) // 4, found[2], found[3] or ""


def test_the_errors_are_as_they_are_drawn() -> None:
    parents = ["Exception"]
    for depth, name, remark in drawn():
        del parents[depth + 1 :]
        kind = getattr(errors, name)
        assert [base.__name__ for base in kind.__mro__[1 : depth + 2]] == parents[::-1]
        parents.append(name)
        code = re.match(r"-\d+", remark)
        assert not code or kind.code == int(code[0])
        for attribute in re.findall(r"`(\w+)`", remark.partition(";")[2] or remark):
            assert attribute in ("call", *initial(kind)), f"{name}.{attribute}"
    known: list[type[A2AError]] = [A2AError, *below(A2AError)]
    assert {name for _, name, _ in drawn()} == {kind.__name__ for kind in known}


def below(kind: type[Kind]) -> Iterator[type[Kind]]:
    for child in kind.__subclasses__():
        yield from (child, *below(child))


def initial(kind: type[A2AError]) -> set[str]:
    """What the class has, and what its `__init__` sets."""
    return {*dir(kind), *inspect.signature(kind).parameters, *kind.__init__.__code__.co_names}


def test_every_error_of_a_server_is_an_a2a_error_and_has_a_code() -> None:
    kinds: list[type[A2AServerError]] = [A2AServerError, *below(A2AServerError)]
    for kind in kinds:
        error = kind("no", kind.code, None, 200)
        assert isinstance(error, A2AError)
        assert (str(error), error.code, error.data, error.reason) == ("no", kind.code, None, "")


def test_importing_it_imports_nothing_heavy() -> None:
    code = "import sys, apcore_a2a_client; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert not HEAVY & set(done.stdout.split())
