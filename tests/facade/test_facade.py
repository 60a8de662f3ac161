"""`apcore_a2a` offers the names of the other distributions without loading them."""

import subprocess
import sys
from importlib import import_module
from types import ModuleType

import apcore_a2a
import apcore_a2a_auth
import apcore_a2a_bridges
import apcore_a2a_client
import apcore_a2a_core
import apcore_a2a_remote
import apcore_a2a_server
import apcore_a2a_server.middleware
import apcore_a2a_server.modules
import apcore_a2a_server.store
import pytest

PARTS = [
    apcore_a2a_auth,
    apcore_a2a_bridges,
    apcore_a2a_client,
    apcore_a2a_core,
    apcore_a2a_remote,
    apcore_a2a_server.middleware,
    apcore_a2a_server.modules,
    apcore_a2a_server,
    apcore_a2a_server.store,
]
HEAVY = {"a2a", "apcore", "cryptography", "httpx", "jwt", "rich", "starlette", "uvicorn"}
HEAVY |= {part.__name__ for part in PARTS}
SERVER_NAMES = ["InMemoryTaskStore", "Limits", "async_serve", "create_app", "serve"]
WITHOUT_SERVER = "import sys; sys.modules['apcore_a2a_server'] = None; "
WITHOUT_AUTH = "import sys; sys.modules['apcore_a2a_auth'] = None; "


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    """Run *code* in a fresh interpreter."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=20)


def loaded_by(statement: str) -> set[str]:
    """Return the modules that a fresh interpreter has loaded after *statement*."""
    result = run_python(f"{statement}\nimport sys\nprint(*sys.modules)")
    assert not result.returncode, result.stderr
    return set(result.stdout.split())


@pytest.mark.parametrize("statement", ["import apcore_a2a", "import apcore_a2a.command.main"])
def test_importing_the_package_loads_nothing_heavy(statement: str) -> None:
    assert not loaded_by(statement) & HEAVY


def test_the_adapters_need_no_server() -> None:
    loaded = loaded_by(f"{WITHOUT_SERVER}\nfrom apcore_a2a import SkillMapper")
    loaded |= loaded_by(f"{WITHOUT_SERVER}\nfrom apcore_a2a.adapters import PartConverter")

    assert "apcore_a2a_core" in loaded
    assert not loaded & {"apcore", "uvicorn"}


def test_serve_loads_the_server() -> None:
    assert {"starlette", "uvicorn"} <= loaded_by("from apcore_a2a import serve")


def test_names_that_modules_use_need_neither_the_server_nor_apcore() -> None:
    names = "ApprovalRequired, File, InputRequiredError, Progress, Services, Usage"
    loaded = loaded_by(f"{WITHOUT_SERVER}\nfrom apcore_a2a import {names}")
    assert "apcore_a2a_core" in loaded
    assert not loaded & {"apcore", "pydantic", "starlette"} - loaded_by("import a2a.types")
    loaded = loaded_by(f"{WITHOUT_SERVER}\nfrom apcore_a2a import Prompt, Reply")
    assert "apcore" not in loaded


def test_authenticators_need_no_server() -> None:
    loaded = loaded_by(f"{WITHOUT_SERVER}\nfrom apcore_a2a import JWTAuthenticator")
    loaded |= loaded_by(f"{WITHOUT_SERVER}\nfrom apcore_a2a.auth import hash_key")

    # without the block above, nothing would stop an import of the server that is only tried
    loaded |= loaded_by("from apcore_a2a import JWTAuthenticator")

    assert "apcore_a2a_auth" in loaded
    assert not loaded & {"apcore_a2a_server.middleware", "uvicorn"}


@pytest.mark.parametrize("name", apcore_a2a.__all__)
def test_a_name_is_the_same_object_as_in_its_distribution(name: str) -> None:
    parts = [apcore_a2a_auth, apcore_a2a_bridges, apcore_a2a_client, apcore_a2a_remote]
    home = next((part for part in parts if name in part.__all__), apcore_a2a_core)
    home = apcore_a2a_server if name in SERVER_NAMES else home

    assert getattr(apcore_a2a, name) is getattr(home, name)
    assert name in dir(apcore_a2a)
    assert name in vars(apcore_a2a)


def test_the_public_names_are_sorted_and_in_dir() -> None:
    assert apcore_a2a.__all__ == sorted(apcore_a2a.__all__)
    assert set(apcore_a2a.__all__) <= set(dir(apcore_a2a))
    assert dir(apcore_a2a) == sorted(dir(apcore_a2a))


def test_an_unknown_name_raises_the_usual_error() -> None:
    with pytest.raises(AttributeError, match="module 'apcore_a2a' has no attribute 'nope'"):
        _ = apcore_a2a.nope  # type: ignore[attr-defined]  # missing on purpose


@pytest.mark.parametrize("mirror", ["adapters", "auth", "client", "server", "storage"])
def test_the_names_of_a_mirror_are_those_of_a_distribution(mirror: str) -> None:
    module = import_module(f"apcore_a2a.{mirror}")

    assert module.__all__ == sorted(module.__all__)
    for name in module.__all__:
        assert any(getattr(module, name) is getattr(part, name, None) for part in PARTS)


@pytest.mark.parametrize(
    ("mirror", "part"), [("auth", apcore_a2a_auth), ("storage", apcore_a2a_server.store)]
)
def test_a_mirror_of_one_package_has_all_its_names(mirror: str, part: ModuleType) -> None:
    assert import_module(f"apcore_a2a.{mirror}").__all__ == part.__all__


def test_the_package_has_the_names_of_the_adapters_and_the_server_and_some_others() -> None:
    adapters, server = map(import_module, ["apcore_a2a.adapters", "apcore_a2a.server"])

    assert server.__all__ == apcore_a2a_server.__all__
    names = {*adapters.__all__, *server.__all__, "A2AClient", "SyncA2AClient"}
    names |= {"APIKeyAuthenticator", "ChainAuthenticator", "ClaimMapping", "JWTAuthenticator"}
    names |= {"ApprovalRequired", "File", "InputRequiredError", "Progress", "Prompt", "Reply"}
    names |= {*apcore_a2a.__all__} & {*apcore_a2a_bridges.__all__}
    names |= {"RemoteAgent", "tools"}
    assert names | {"Services", "Usage"} == {*apcore_a2a.__all__}


@pytest.mark.parametrize(
    "statement",
    [
        "from apcore_a2a import serve",
        "from apcore_a2a import create_app",
        "import apcore_a2a.server",
    ],
)
def test_a_missing_server_part_names_the_command_that_installs_it(statement: str) -> None:
    result = run_python(f"{WITHOUT_SERVER}{statement}")
    last_line = result.stderr.splitlines()[-1]

    assert result.returncode == 1
    assert last_line.startswith("ImportError: ")
    assert last_line.endswith("needs the server part: pip install 'apcore-a2a[server]'")
    assert "During handling" not in result.stderr


@pytest.mark.parametrize(
    "statement", ["from apcore_a2a import JWTAuthenticator", "import apcore_a2a.auth"]
)
def test_a_missing_auth_part_names_the_command_that_installs_it(statement: str) -> None:
    last_line = run_python(f"{WITHOUT_AUTH}{statement}").stderr.splitlines()[-1]

    assert last_line.startswith("ImportError: ")
    assert last_line.endswith("needs the auth part: pip install 'apcore-a2a[auth]'")


def test_the_command_reports_that_authentication_needs_the_auth_part() -> None:
    serve = "main(['serve', '--extensions-dir', '.', '--auth-type', 'apikey', '--auth-key', 'k'])"
    result = run_python(
        f"{WITHOUT_AUTH}from apcore_a2a.command.main import main; sys.exit({serve})"
    )

    message = "apcore-a2a: --auth-type needs the auth part: pip install 'apcore-a2a[auth]'\n"
    assert (result.returncode, result.stderr) == (1, message)


def test_the_error_for_a_missing_module_of_an_installed_part_is_unchanged() -> None:
    code = "import sys; sys.modules['apcore_a2a_server.store.memory'] = None; "
    for statement in ("from apcore_a2a import InMemoryTaskStore", "import apcore_a2a.storage"):
        result = run_python(code + statement)

        assert "apcore_a2a_server.store.memory" in result.stderr.splitlines()[-1]
        assert "pip install" not in result.stderr
