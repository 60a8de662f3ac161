"""Agents as applications, cards, and targets of the command."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apcore import Registry
from apcore_a2a_bridges import bridge, build_agent_card, to_a2a
from apcore_a2a_server import create_app
from apcore_a2a_server.modules.bridges import MAX_FILE
from apcore_a2a_server.modules.importing import TargetError

from tests.facade.processes import COMMAND, agent_client, process
from tests.server.inloop import anyio_backend as anyio_backend
from tests.server.inloop import listening
from tests.server.test_serve import card_of

from .acceptance import client_of, serving_agent

pytestmark = pytest.mark.anyio


async def echo(text: str) -> str:
    """Say it again."""
    return text


async def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()


async def test_several_agents_are_the_skills_of_one_agent() -> None:
    agents = {"voice.soft": echo, "voice.loud": shout}
    async with serving_agent(agents, name="Voices") as url, client_of(url) as client:
        card = await client.agent_card
        assert (card.name, [skill.id for skill in card.skills]) == (
            "Voices",
            ["voice.loud", "voice.soft"],
        )
        assert await client.call("voice.loud", "Hi") == "HI"


async def test_options_are_split_between_the_agent_and_the_server() -> None:
    options: dict[str, Any] = {"input_key": "words", "version": "2.0.0", "task_ttl": 60}
    async with serving_agent(echo, **options) as url, client_of(url) as client:
        card = await client.agent_card
        assert await client.call("echo", {"words": "Hi"}) == "Hi"
    assert (card.name, card.description, card.version) == ("echo", "Say it again.", "2.0.0")


async def test_a_bridged_agent_can_be_registered_as_a_module() -> None:
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


VOICES = """
from dataclasses import dataclass

async def echo(text: str) -> str:
    "Say it again."
    return text

def shout(text: str) -> str:
    return text.upper()
"""
ONE_AGENT = "agent: voices_of_test:echo\nname: Polly\ninput_key: words\n"
SEVERAL_AGENTS = (
    "agents:\n  soft:\n    agent: voices_of_test:echo\n  loud: {agent: 'voices_of_test:shout'}\n"
)


def _write(content: str, file: str) -> None:
    Path(file).write_text(content)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder with agents; undo their imports after the test."""
    (tmp_path / "voices_of_test.py").write_text(VOICES)
    path, modules = [*sys.path], {*sys.modules}
    yield tmp_path
    sys.path[:] = path
    for name in {*sys.modules} - modules:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("content", "target", "skills"),
    [
        (ONE_AGENT, "agents.yaml", {"polly"}),
        (SEVERAL_AGENTS, "agents.yaml", {"soft", "loud"}),
        (SEVERAL_AGENTS, {"low": "voices_of_test.py:echo"}, {"low"}),
        (SEVERAL_AGENTS, [{"low": shout}, {"high": bridge(echo)}], {"low", "high"}),
    ],
)
async def test_a_target_may_describe_agents_or_name_their_skills(
    folder: Path, content: str, target: Any, skills: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    _write(content, "agents.yaml")
    options: dict[str, Any] = {"allowed_hosts": ["*"]}
    async with listening(create_app(target, **options)) as url, client_of(url) as client:
        card = await client.agent_card
        assert {skill.id for skill in card.skills} == skills
        for skill in skills:
            assert (await client.call(skill, "Hi")).lower() == "hi"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("agent: voices_of_test:nothing", "voices_of_test has no attribute nothing"),
        ("agent: nowhere:echo", "No module named 'nowhere'"),
        ("agent: echo", "package.module:name, not echo"),
        ("bridge: n8n", "option url is missing"),
        ("bridge: crow", "no bridge called crow; known ones are a2a-sdk, "),
        ("agent: voices_of_test:echo\nvolume: 11", "no option volume"),
        ("agents: [echo]", "map the ids of skills to agents"),
        ("agents: {a: 1}", "map the ids of skills to agents"),
        ("bindings: []", "is not a bindings file"),
        ("- 1", "is not a bindings file"),
        ("a: [", "can't be read as YAML"),
        (f"#{'x' * MAX_FILE}", f"agents.yaml is larger than {MAX_FILE} bytes"),
        ("a: !!python/object:os.system {}", "can't be read as YAML"),
    ],
)
def test_a_wrong_description_of_agents_is_refused(folder: Path, content: str, problem: str) -> None:
    file = folder / "agents.yaml"
    file.write_text(content)
    with pytest.raises(TargetError) as refused:
        create_app(str(file), allowed_hosts=["*"])
    assert problem in str(refused.value)
    assert str(file) in str(refused.value)


def test_the_target_of_a_named_skill_must_have_one_module(folder: Path) -> None:
    (folder / "agents.yaml").write_text(SEVERAL_AGENTS)
    with pytest.raises(TargetError, match="of the skill both has 2 modules, not 1"):
        create_app({"both": str(folder / "agents.yaml")})


@pytest.mark.process
def test_the_command_serves_agents_by_name(folder: Path) -> None:
    (folder / "agents.yaml").write_text(ONE_AGENT)
    agents = ["--agent", "low=voices_of_test.py:echo", "--agent", "voices_of_test:shout"]
    command = [*COMMAND, "serve", "--host=127.0.0.1", "--port=0", *agents, "agents.yaml"]
    with process(command, folder) as agent, agent_client(agent) as client:
        assert {skill["id"] for skill in card_of(client)["skills"]} == {"low", "shout", "polly"}


def test_a_card_is_built_without_a_server() -> None:
    card = build_agent_card({"a": echo, "b": shout}, url="https://agent.example.com")
    assert [skill.id for skill in card.skills] == ["a", "b"]
    assert card.supported_interfaces[0].url == "https://agent.example.com"
    assert card.capabilities.streaming


def test_the_name_of_several_agents_is_that_of_the_card() -> None:
    agents, about = {"a": echo, "b": shout}, {"name": "Voices", "version": "2.1"}
    card = build_agent_card(agents, description="Two voices", **about)
    assert (card.name, card.description, card.version) == ("Voices", "Two voices", "2.1")
    assert "Voices" not in {skill.name for skill in card.skills}
    assert "Two voices" not in {skill.description for skill in card.skills}


@pytest.mark.smoke
@pytest.mark.process
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
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_a_missing_server_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [
        module for module in sys.modules if module.partition(".")[0] == "apcore_a2a_server"
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "apcore_a2a_server", None)
    with pytest.raises(ImportError, match=r"to_a2a needs .* pip install 'apcore-a2a\[server\]'"):
        to_a2a(echo)
