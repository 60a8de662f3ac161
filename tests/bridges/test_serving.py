"""Agents as applications, cards, and targets of the command."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from apcore import Registry
from apcore_a2a_bridges import bridge, build_agent_card, to_a2a
from apcore_a2a_server import create_app
from apcore_a2a_server.modules.importing import TargetError

from tests.server.inloop import anyio_backend as anyio_backend
from tests.server.inloop import listening

from .acceptance import client_of, serving_agent

pytestmark = pytest.mark.anyio


async def echo(text: str) -> str:
    """Say it again."""
    return text


async def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()


async def test_several_agents_are_the_skills_of_one() -> None:
    agents = {"voice.soft": echo, "voice.loud": shout}
    async with serving_agent(agents, name="Voices") as url, client_of(url) as client:
        card = await client.agent_card
        assert (card.name, [skill.id for skill in card.skills]) == (
            "Voices",
            ["voice.loud", "voice.soft"],
        )
        assert await client.call("voice.loud", "Hi") == "HI"


async def test_an_option_of_an_agent_and_one_of_the_server_go_where_they_belong() -> None:
    options: dict[str, Any] = {"input_key": "words", "version": "2.0.0", "task_ttl": 60}
    async with serving_agent(echo, **options) as url, client_of(url) as client:
        card = await client.agent_card
        assert await client.call("echo", {"words": "Hi"}) == "Hi"
    assert (card.name, card.description, card.version) == ("echo", "Say it again.", "2.0.0")


async def test_an_agent_is_served_beside_modules() -> None:
    registry = Registry()
    registry.register("support.ask", bridge(echo, name="Support"))
    app = create_app(registry, allowed_hosts=["*"])
    async with listening(app) as url, client_of(url) as client:
        assert await client.call("support.ask", "Hi") == "Hi"


async def test_a_target_may_be_an_agent(tmp_path: Path) -> None:
    file = tmp_path / "voices.py"
    file.write_text("async def echo(text: str) -> str:\n    return text\n\nnumber = 3\n")
    options: dict[str, Any] = {"allowed_hosts": ["*"]}
    async with listening(create_app(f"{file}:echo", **options)) as url, client_of(url) as client:
        assert (await client.send_message("Hi")).value == "Hi"
    async with listening(create_app(echo, **options)) as url, client_of(url) as client:
        assert await client.call("echo", "Hi") == "Hi"
    with pytest.raises(TargetError, match="is of type int, which has no modules"):
        create_app(f"{file}:number", **options)


def test_a_card_is_built_without_a_server() -> None:
    card = build_agent_card({"a": echo, "b": shout}, url="https://agent.example.com")
    assert [skill.id for skill in card.skills] == ["a", "b"]
    assert card.supported_interfaces[0].url == "https://agent.example.com"
    assert card.capabilities.streaming


def test_the_import_loads_no_framework_and_no_server() -> None:
    code = """
import sys
import apcore, apcore_a2a_core
before = {*sys.modules}
import apcore_a2a_bridges
from apcore_a2a_bridges import Agent, bridge, serve_agent, to_a2a
bridge(lambda text: text)
heavy = {"a2a.server", "apcore_a2a_server", "crewai", "httpx", "langchain_core", "starlette"}
print(sorted(heavy & ({*sys.modules} - before)))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_a_missing_server_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [each for each in sys.modules if each.partition(".")[0] == "apcore_a2a_server"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "apcore_a2a_server", None)
    with pytest.raises(ImportError, match=r"to_a2a needs .* pip install 'apcore-a2a\[server\]'"):
        to_a2a(echo)
