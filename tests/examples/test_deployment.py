"""The files for deployments name options that there are, and fit together."""

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


def served(command: list[str]) -> dict[str, Any]:
    """The options of a command line, as the command itself reads them."""
    assert command[0] == "serve"
    return serve.make_context("serve", command[1:]).params


def unit() -> dict[str, list[str]]:
    """The settings of the unit; each may be there more than once."""
    text = (FOLDER / "apcore-a2a.service").read_text()
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    document = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    found: dict[str, Any] = document["services"]
    return found


def upstream(name: str) -> list[str]:
    return re.findall(r"^ +server (\S+)", (FOLDER / name).read_text(), re.MULTILINE)


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def test_the_unit_starts_what_the_command_takes() -> None:
    program, *command = shlex.split(unit()["ExecStart"][0])
    options = served(command)
    assert program.endswith("/bin/apcore-a2a")
    assert options["store"] == "sqlite:///%S/apcore-a2a/agent.db"
    assert f":{options['port']}/health" in unit()["ExecStartPost"][0]
    assert unit()["StateDirectory"] == ["apcore-a2a"]


def test_containers_start_what_the_command_takes(services: dict[str, Any]) -> None:
    for name in AGENTS:
        options = served(services[name]["command"])
        assert f":{options['port']}/health" in services[name]["healthcheck"]["test"][-1]
        variables = [v for v in services[name]["environment"] if v.startswith(PREFIX)]
        assert variables
        assert {v.removeprefix(PREFIX).lower() for v in variables} <= OPTIONS.keys()


def test_who_stops_an_agent_waits_longer_than_it_takes(services: dict[str, Any]) -> None:
    options = served(shlex.split(unit()["ExecStart"][0])[1:])
    assert seconds(unit()["TimeoutStopSec"][0]) > options["shutdown_timeout"]
    for name in AGENTS:
        options = served(services[name]["command"])
        assert seconds(services[name]["stop_grace_period"]) > options["shutdown_timeout"]


def test_nginx_knows_where_the_containers_are(services: dict[str, Any]) -> None:
    places = [services[name]["networks"]["default"]["ipv4_address"] for name in AGENTS]
    assert upstream("compose-replicas.conf") == [f"{place}:8000" for place in places]
    trusted = {services[name]["environment"]["FORWARDED_ALLOW_IPS"] for name in AGENTS}
    assert trusted == {services["nginx"]["networks"]["default"]["ipv4_address"]}


def test_the_upstreams_differ_in_their_addresses_alone() -> None:
    here, there = (
        re.sub(r"server \S+", "server", (FOLDER / name).read_text())
        for name in ("replicas.conf", "compose-replicas.conf")
    )
    assert here == there


def test_no_file_holds_a_password(services: dict[str, Any]) -> None:
    assert "EnvironmentFile" in unit()
    for path in FOLDER.iterdir():
        assert not re.search(r"://[^/\s]+:[^/\s]+@", path.read_text()), path
    for service in services.values():
        for name, value in service.get("environment", {}).items():
            assert "PASSWORD" not in name or value.startswith("${DATABASE_PASSWORD:?"), name


def test_the_documentation_tells_of_every_file() -> None:
    told = (FOLDER.parents[1] / "docs" / "deployment.md").read_text()
    assert [
        p.name for p in FOLDER.iterdir() if f"(../examples/deployment/{p.name})" not in told
    ] == []
