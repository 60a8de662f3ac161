"""`Skills`: the server's cached view of a registry."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from a2a.types import AgentCapabilities
from a2a.utils.errors import MethodNotFoundError
from apcore import ModuleAnnotations, Registry
from apcore.decorator import module
from apcore_a2a_core import AgentCardBuilder, SkillMapper
from apcore_a2a_server.modules.skills import Skills
from pydantic import BaseModel

from tests.core.conftest import OrderModule


@pytest.fixture
def registry() -> Registry:
    registry_with_order = Registry()
    registry_with_order.register("shop.order", OrderModule())
    return registry_with_order


def module_with(**members: Any) -> OrderModule:
    order_module = OrderModule()
    for name, value in members.items():
        setattr(order_module, name, value)
    return order_module


@pytest.fixture
def skill_names() -> Callable[[Skills], list[str]]:
    """Return a function that builds a card, always with the same builder, and lists its skills."""
    builder = AgentCardBuilder(SkillMapper())

    def list_names(skills: Skills) -> list[str]:
        card = builder.build(
            skills,
            name="",
            description="",
            version="",
            url="http://localhost/",
            capabilities=AgentCapabilities(),
        )
        return [skill.name for skill in card.skills]

    return list_names


SkillNames = Callable[[Skills], list[str]]


def test_a_descriptor_is_cached_until_its_module_changes(registry: Registry) -> None:
    skills = Skills(registry)
    first = skills.get_definition("shop.order")
    registry.register("other.module", OrderModule())
    assert skills.get_definition("shop.order") is first is skills.get("shop.order").descriptor
    registry.unregister("shop.order")
    assert skills.get_definition("shop.order") is None
    registry.register("shop.order", module_with(description="Changed"))
    changed: Any = skills.get_definition("shop.order")
    assert changed.description == "Changed"


def test_unknown_ids_are_not_cached() -> None:
    class RegistryWithoutEvents:
        """A registry that does not report changes."""

        modules: Sequence[str] = ()

        def list(self) -> Sequence[str]:
            return self.modules

        def get_definition(self, module_id: str) -> object:
            return module_with() if module_id in self.modules else None

    registry = RegistryWithoutEvents()
    skills = Skills(registry)
    with pytest.raises(MethodNotFoundError, match=r"late\.comer"):
        skills.get("late.comer")
    registry.modules = ["late.comer"]
    assert skills.get("late.comer").descriptor
    assert len(skills) == 1


def test_a_module_that_cannot_be_described_is_skipped_and_logged_once(
    registry: Registry, skill_names: SkillNames, caplog: pytest.LogCaptureFixture
) -> None:
    class Unfinished(BaseModel):
        later: "Missing"  # type: ignore[name-defined]  # noqa: F821  # missing on purpose

    registry.register("bad.model", module_with(input_schema=Unfinished))
    skills = Skills(registry)
    caplog.clear()
    for _ in range(3):
        assert skill_names(skills) == ["Shop Order"]
    with pytest.raises(MethodNotFoundError):
        skills.get("bad.model")
    [record] = caplog.records
    assert "bad.model" in record.getMessage()


def test_system_modules_and_undiscoverable_ones_are_not_listed() -> None:
    class OlderRegistry:
        """A registry that lists all modules, as older versions do."""

        def list(self) -> Sequence[str]:
            return ["system.control.reload_module", "shop.order", "secret.one"]

        def get_definition(self, module_id: str) -> object:
            return module_with(
                annotations=ModuleAnnotations(discoverable="secret" not in module_id)
            )

    skills = Skills(OlderRegistry())
    assert skills.list() == ["shop.order"]
    assert skills.get("secret.one")
    with pytest.raises(MethodNotFoundError):
        skills.get("system.control.reload_module")


def test_the_display_of_a_decorated_function_is_found(
    registry: Registry, skill_names: SkillNames
) -> None:
    display = {"a2a": {"alias": "Shout"}}

    def upper(text: str) -> str:
        return text.upper()

    module(id="text.upper", registry=registry, description="Upper case", display=display)(upper)
    assert skill_names(Skills(registry)) == ["Shop Order", "Shout"]
    definition = registry.get_definition("text.upper")
    assert definition
    assert "display" not in definition.metadata


def test_a_change_while_a_descriptor_is_loaded_is_not_lost(registry: Registry) -> None:
    loading, changed = threading.Event(), threading.Event()

    class SlowRegistry:
        on = registry.on

        def list(self) -> Sequence[str]:
            return ["shop.order"]

        def get_definition(self, module_id: str) -> object:
            descriptor = registry.get_definition(module_id)
            loading.set()
            assert changed.wait(10)
            return descriptor

    skills = Skills(SlowRegistry())
    reader = threading.Thread(target=skills.get_definition, args=["shop.order"])
    reader.start()
    assert loading.wait(10)
    registry.unregister("shop.order")
    registry.register("shop.order", module_with(description="Changed"))
    changed.set()
    reader.join()
    descriptor: Any = skills.get_definition("shop.order")
    assert descriptor.description == "Changed"


def test_cards_are_built_while_other_threads_change_the_registry(
    registry: Registry, skill_names: SkillNames
) -> None:
    skills = Skills(registry)

    def churn() -> None:
        for i in range(30):
            registry.register(f"churn.m{i}", OrderModule())
            registry.unregister(f"churn.m{i}")

    thread = threading.Thread(target=churn)
    thread.start()
    while thread.is_alive():
        assert "Shop Order" in skill_names(skills)
    thread.join()
    assert skill_names(skills) == ["Shop Order"]
