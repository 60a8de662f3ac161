"""Deployment files use existing options, and match each other."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from apcore_a2a.command.options import OPTIONS
from apcore_a2a.command.serve import serve
from apcore_a2a_server.fields import PREFIX

FOLDER = Path(__file__).parents[2] / "examples" / "deployment"
AGENTS = ("agent1", "agent2", "agent3")


def options_of(command: list[str]) -> dict[str, Any]:
    """Return the options of a command line, as the command parses them."""
    assert command[0] == "serve"
    return serve.make_context("serve", command[1:]).params


def unit() -> dict[str, list[str]]:
    """Return the settings of the systemd unit; each may occur several times."""
    text = (FOLDER / "apcore-a2a.service").read_text()
    settings: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE):
        settings.setdefault(name, []).append(value)
    return settings


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    document = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    services: dict[str, Any] = document["services"]
    return services


def upstream(name: str) -> list[str]:
    return re.findall(r"^ +server (\S+)", (FOLDER / name).read_text(), re.MULTILINE)


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def test_the_unit_uses_valid_options() -> None:
    program, *command = shlex.split(unit()["ExecStart"][0])
    options = options_of(command)
    assert program.endswith("/bin/apcore-a2a")
    assert options["store"] == "sqlite:///%S/apcore-a2a/agent.db"
    assert f":{options['port']}/health" in unit()["ExecStartPost"][0]
    assert unit()["StateDirectory"] == ["apcore-a2a"]


def test_the_containers_use_valid_options(services: dict[str, Any]) -> None:
    for name in AGENTS:
        options = options_of(services[name]["command"])
        assert f":{options['port']}/health" in services[name]["healthcheck"]["test"][-1]
        variables = [v for v in services[name]["environment"] if v.startswith(PREFIX)]
        assert variables
        assert {v.removeprefix(PREFIX).lower() for v in variables} <= OPTIONS.keys()


def test_stop_timeouts_are_longer_than_the_shutdown_timeout(services: dict[str, Any]) -> None:
    options = options_of(shlex.split(unit()["ExecStart"][0])[1:])
    assert seconds(unit()["TimeoutStopSec"][0]) > options["shutdown_timeout"]
    for name in AGENTS:
        options = options_of(services[name]["command"])
        assert seconds(services[name]["stop_grace_period"]) > options["shutdown_timeout"]


def test_nginx_has_the_addresses_of_the_containers(services: dict[str, Any]) -> None:
    addresses = [services[name]["networks"]["default"]["ipv4_address"] for name in AGENTS]
    assert upstream("compose-replicas.conf") == [f"{address}:8000" for address in addresses]
    trusted = {services[name]["environment"]["FORWARDED_ALLOW_IPS"] for name in AGENTS}
    assert trusted == {services["nginx"]["networks"]["default"]["ipv4_address"]}


def test_the_two_nginx_files_differ_only_in_the_addresses_of_the_replicas() -> None:
    replicas, compose = (
        re.sub(r"server \S+", "server", (FOLDER / name).read_text())
        for name in ("replicas.conf", "compose-replicas.conf")
    )
    assert replicas == compose


def test_no_file_contains_a_password(services: dict[str, Any]) -> None:
    assert "EnvironmentFile" in unit()
    for path in FOLDER.iterdir():
        assert not re.search(r"://[^/\s]+:[^/\s]+@", path.read_text()), path
    for service in services.values():
        for name, value in service.get("environment", {}).items():
            assert "PASSWORD" not in name or value.startswith("${DATABASE_PASSWORD:?"), name


def test_the_documentation_links_every_file() -> None:
    page = (FOLDER.parents[1] / "docs" / "deployment.md").read_text()
    assert [
        p.name for p in FOLDER.iterdir() if f"(../examples/deployment/{p.name})" not in page
    ] == []
