"""Packaging: dependencies, extras, versions and checks of all distributions."""

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from apcore_a2a_core import EXTENSION_URI
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools import docs_hook

ROOT = Path(__file__).parents[1]
PACKAGES = {path.parent.name: path.parent for path in ROOT.glob("packages/*/pyproject.toml")}
MODULES = {name: name.replace("-", "_") for name in PACKAGES}

# Declared, but not imported by any statement.
PLUGINS = {
    "anyio": "the backend of httpcore, which httpcore imports by itself",
    "httptools": "uvicorn's HTTP parser, which uvicorn finds by itself",
    "uvloop": "uvicorn's event loop, which uvicorn finds by itself",
}
# Extras that `all` leaves out.
NOT_IN_ALL = {"openapi": "apcore-toolkit needs a newer apcore than the server"}
# Imported, but not declared.
UNDECLARED: dict[str, str] = {}
# Distributions by module, where the metadata does not tell: several distributions share `google`,
# editable installs (those of the members) list no modules, and frameworks are not installed.
OWNERS = {
    "agno": "agno",
    "crewai": "crewai",
    "crewai_files": "crewai",
    "google.adk": "google-adk",
    "google.genai": "google-genai",
    "agents": "openai-agents",
    "langchain_core": "langchain-core",
    "langgraph": "langgraph",
    "opentelemetry": "opentelemetry-api",
    "pydantic_ai": "pydantic-ai-slim",
    "strands": "strands-agents",
    "google.api": "googleapis-common-protos",
    "google.protobuf": "protobuf",
    "google.rpc": "googleapis-common-protos",
    **{module: name for name, module in MODULES.items()},
}


def configuration(folder: Path = ROOT) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))


def project(name: str) -> dict[str, Any]:
    table: dict[str, Any] = configuration(PACKAGES[name])["project"]
    return table


def required(name: str) -> list[Requirement]:
    return [Requirement(line) for line in project(name)["dependencies"]]


def extras(name: str) -> dict[str, list[Requirement]]:
    tables = project(name).get("optional-dependencies", {}).items()
    return {extra: [Requirement(line) for line in lines] for extra, lines in tables}


def names(requirements: list[Requirement]) -> set[str]:
    return {canonicalize_name(requirement.name) for requirement in requirements}


def syntax_nodes(name: str) -> Iterator[ast.AST]:
    for path in PACKAGES[name].glob("src/**/*.py"):
        yield from ast.walk(ast.parse(path.read_text(encoding="utf-8")))


@cache
def distributions_by_module() -> Mapping[str, list[str]]:
    return packages_distributions()


def distribution_of(module: str) -> str | None:
    """Return the distribution of *module*, or None for the standard library."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        if distribution := OWNERS.get(".".join(parts[:length])):
            return distribution
    owners = distributions_by_module().get(parts[0], [])
    assert len(owners) < 2, f"{module} may belong to any of {owners}: add it to OWNERS"
    return canonicalize_name(owners[0]) if owners else None


def imported_distributions(name: str) -> set[str]:
    """Return the other distributions that the code of *name* imports."""
    modules: set[str] = set()
    for node in syntax_nodes(name):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            modules |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {distribution for module in modules if (distribution := distribution_of(module))} - {
        name
    }


def members_in_strings(name: str) -> set[str]:
    """Return the members that *name* may import by a string, with `importlib.import_module`."""
    strings = {n.value for n in syntax_nodes(name) if isinstance(n, ast.Constant)}
    return {member for member, module in MODULES.items() if module in strings}


def frameworks() -> set[str]:
    """Return the extras of the bridges, one for each framework."""
    return extras("apcore-a2a-bridges").keys() - {"server"}


def test_there_are_eight_distributions() -> None:
    suffixes = ["", "-auth", "-bridges", "-client", "-core", "-explorer", "-remote", "-server"]

    assert sorted(PACKAGES) == [f"apcore-a2a{suffix}" for suffix in suffixes]


def test_the_extras_of_the_facade_are_distributions_and_their_extras() -> None:
    distributions = {"auth", "bridges", "explorer", "remote", "server"}
    server_extras = {"grpc", "openapi", "otel", "postgres", "sqlite"}

    assert extras("apcore-a2a").keys() == {"all", *distributions, *server_extras, *frameworks()}
    assert extras("apcore-a2a-server").keys() == server_extras


@pytest.mark.parametrize("name", PACKAGES)
def test_a_distribution_imports_what_it_declares_and_nothing_else(name: str) -> None:
    in_extras = names([r for requirements in extras(name).values() for r in requirements])
    used = imported_distributions(name) | members_in_strings(name) - {name}

    assert used - names(required(name)) - in_extras <= UNDECLARED.keys()
    assert names(required(name)) - used <= PLUGINS.keys()
    assert in_extras - {name} <= used


def test_listed_exceptions_are_existing_dependencies_and_extras() -> None:
    declared = {dependency for name in PACKAGES for dependency in names(required(name))}

    assert declared >= PLUGINS.keys()
    assert extras("apcore-a2a").keys() >= NOT_IN_ALL.keys()
    assert {
        dependency for name in PACKAGES for dependency in imported_distributions(name)
    } >= UNDECLARED.keys()


def test_all_versions_are_the_same() -> None:
    (version,) = {project(name)["version"] for name in PACKAGES}
    requirements = [r for name in PACKAGES for r in required(name)]
    requirements += [r for name in PACKAGES for lines in extras(name).values() for r in lines]
    # the extra `all` of the facade requires the facade itself, without a version
    pins = [
        r for r in requirements if r.name in PACKAGES and not (r.name == "apcore-a2a" and r.extras)
    ]
    locked = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]

    assert pins
    assert {str(pin.specifier) for pin in pins} == {f"=={version}"}
    assert {p["name"]: p["version"] for p in locked if p["name"] in PACKAGES} == dict.fromkeys(
        PACKAGES, version
    )


@pytest.mark.parametrize("name", [name for name in PACKAGES if "all" in extras(name)])
def test_the_extra_all_leaves_out_only_frameworks_and_listed_extras(name: str) -> None:
    requirements_by_extra = extras(name)
    covered = {
        extra for r in requirements_by_extra.pop("all") if r.name == name for extra in r.extras
    }

    assert requirements_by_extra
    assert covered == requirements_by_extra.keys() - NOT_IN_ALL.keys() - frameworks()


def test_the_facade_and_its_extras_install_every_other_distribution() -> None:
    in_extras = names([r for lines in extras("apcore-a2a").values() for r in lines])

    assert in_extras | names(required("apcore-a2a")) | {"apcore-a2a"} >= PACKAGES.keys()


@pytest.mark.parametrize("name", PACKAGES)
def test_every_package_has_a_readme_a_license_and_a_type_marker(name: str) -> None:
    readme = (PACKAGES[name] / "README.md").read_text(encoding="utf-8")
    license_text = (PACKAGES[name] / "LICENSE").read_bytes()

    assert readme.startswith(f"# {name}\n")
    assert f"pip install {name}" in re.sub(r"[\"']", "", readme)
    assert license_text == (ROOT / "LICENSE").read_bytes()
    assert (PACKAGES[name] / "src" / MODULES[name] / "py.typed").is_file()


@pytest.mark.parametrize("name", PACKAGES)
def test_the_repository_of_every_package_is_that_of_the_extension_uri(name: str) -> None:
    repository = project(name)["urls"]["Repository"]

    assert EXTENSION_URI.startswith(f"{repository}/extensions/")
    assert {url.startswith(repository) for url in project(name)["urls"].values()} == {True}
    assert f"{repository}/blob/main/" == docs_hook.REPOSITORY


def test_every_member_is_covered_by_every_check() -> None:
    tool = configuration()["tool"]
    contracts = {contract["id"]: contract for contract in tool["importlinter"]["contracts"]}
    layers = {name for line in contracts["layers"]["layers"] for name in re.split(r"[|: ]+", line)}
    members = set(MODULES.values())

    assert set(tool["importlinter"]["root_packages"]) == members
    assert layers == members
    assert set(contracts["acyclic"]["ancestors"]) == members
    assert set(tool["coverage"]["run"]["source_pkgs"]) == members
    assert tool["uv"]["sources"].keys() == PACKAGES.keys()


def test_every_forbidden_module_exists() -> None:
    """A contract that forbids a misspelled module would never be violated."""
    contracts = configuration()["tool"]["importlinter"]["contracts"]
    forbidden = {name for contract in contracts for name in contract.get("forbidden_modules", [])}

    assert forbidden
    assert [name for name in sorted(forbidden) if find_spec(name) is None] == []
