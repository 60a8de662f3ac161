"""Detection of the bridge of an agent, and bridges made from configurations."""

import sys
from pathlib import Path
from typing import Any

import pytest
from apcore.decorator import FunctionModule
from apcore_a2a_bridges import (
    Agent,
    bridge,
    detection,
    load_adapter,
    load_bridge,
    register_adapter,
    register_bridge,
)


@pytest.fixture(autouse=True)
def _copy_of_bridges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detection, "_BRIDGES", {**detection._BRIDGES})  # a copy, for this test


class Robot:
    """An agent of a framework that no bridge knows."""

    name = "r2"


class Walker(Robot):
    """An agent whose base class has a bridge."""


class RobotAgent(Agent):
    """The bridge for robots."""

    def __init__(self, robot: Robot, *, speed: int = 1, **options: Any) -> None:
        super().__init__(**{"name": robot.name, **options})
        self.speed = speed


class Factory:
    """A class with a function that makes bridges."""

    make = RobotAgent


def test_a_registered_type_and_its_subclasses_get_their_bridge() -> None:
    register_bridge(f"{__name__}.Robot", RobotAgent)
    for robot in (Robot(), Walker()):
        agent = bridge(robot, speed=3, name="C 3PO")
        assert (type(agent), agent.speed, agent.module_id) == (RobotAgent, 3, "c_3po")


@pytest.mark.parametrize("path", ["RobotAgent", "Factory.make"])
def test_a_bridge_may_be_registered_by_its_import_path(path: str) -> None:
    register_bridge(f"{__name__}.Robot", f"{__name__}:{path}")
    assert type(bridge(Robot())) is RobotAgent


def test_an_unknown_type_is_refused_with_advice() -> None:
    with pytest.raises(TypeError, match=r"No bridge fits .*Robot: .*register_bridge"):
        bridge(Robot())
    with pytest.raises(TypeError, match="Robot is a class: pass an instance of it"):
        bridge(Robot)


def test_a_module_is_returned_unchanged_and_takes_no_options() -> None:
    def echo(text: str) -> str:
        """Say it again."""
        return text

    module = FunctionModule(echo, "text.echo")
    assert bridge(module) is module
    agent = RobotAgent(Robot())
    assert bridge(agent) is agent
    with pytest.raises(TypeError, match="name is an option of bridges"):
        bridge(module, name="other")


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError, match="colour"):
        bridge(lambda text: text, colour="red")


def test_a_config_names_an_agent_and_perhaps_its_bridge() -> None:
    register_bridge(f"{__name__}.Robot", RobotAgent)
    register_bridge("robot", RobotAgent)
    sys.modules[__name__].my_robot = Robot()  # type: ignore[attr-defined]  # the configs name it
    for config in (
        {"agent": f"{__name__}:my_robot", "speed": 5},
        {"bridge": "robot", "agent": f"{__name__}:my_robot", "speed": 5},
        {"adapter": "robot", "agent": f"{__name__}:my_robot", "speed": 5},
    ):
        assert load_adapter(config).speed == 5


@pytest.mark.parametrize(
    ("config", "error"),
    [
        ({}, "needs a bridge, an agent, or both"),
        ({"bridge": "nope"}, "no bridge called nope; known ones are .*callable.*crewai.*n8n"),
        ({"bridge": "callable"}, "bridge callable needs an agent"),
        ({"bridge": "a2a-sdk"}, "bridge a2a-sdk needs an agent"),
        ({"bridge": "command"}, "option command is missing"),
        ({"agent": "app"}, "package.module:name, not app"),
        ({"agent": ".app:agent"}, "package.module:name, not .app:agent"),
        ({"agent": "platform:nope"}, "platform has no attribute nope"),
        ({"agent": "no_such_module:agent"}, "no_such_module"),
    ],
)
def test_a_wrong_config_is_explained(config: dict[str, Any], error: str) -> None:
    with pytest.raises((ValueError, ImportError), match=error):
        load_bridge(config)


def test_a_decorator_names_an_adapter_for_configs() -> None:
    @register_adapter("parrot")
    class Parrot(Agent):
        def __init__(self, words: str, **options: Any) -> None:
            super().__init__(**options)
            self.words = words

    assert load_bridge({"adapter": "parrot", "words": "Hello"}).words == "Hello"


def test_an_entry_point_of_a_package_adds_a_bridge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = tmp_path / "robots-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: robots\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        f"[apcore_a2a.bridges]\n{__name__}.Robot = {__name__}:RobotAgent\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert type(bridge(Walker())) is RobotAgent


def test_the_module_of_every_known_bridge_exists() -> None:
    folder = Path(detection.__file__).parent
    addresses = [entry for entry in detection._BRIDGES.values() if isinstance(entry, str)]
    relative_modules = {
        address.partition(":")[0].removeprefix(".")
        for address in addresses
        if address.startswith(".")
    }
    assert relative_modules
    assert {name for name in relative_modules if not (folder / f"{name}.py").is_file()} == set()
