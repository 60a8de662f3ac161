"""Descriptors as skills."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from apcore import ModuleAnnotations, ModuleExample, Registry
from apcore_a2a_core import SkillMapper

from .conftest import OrderModule

Describe = Callable[..., Any]
mapper = SkillMapper()
STRING = {"type": "string"}
FIVE = {
    "readonly": False,
    "destructive": False,
    "idempotent": False,
    "requires_approval": False,
    "open_world": True,
}


def skill(described: Any) -> Any:
    found = mapper.to_skill(described)
    assert found
    return found


def test_a_real_module_is_a_skill(registry: Registry) -> None:
    found = skill(registry.get_definition("shop.order"))
    assert (found.id, found.name) == ("shop.order", "Shop Order")
    assert found.description == "Adds up an order"
    assert list(found.tags) == ["apcore"]
    assert list(found.examples) == []
    assert list(found.input_modes) == ["application/json"]
    assert list(found.output_modes) == ["application/json"]


@pytest.mark.parametrize("description", ["", None])
def test_a_module_without_description_is_no_skill(
    description: Any, descriptor: Describe, caplog: pytest.LogCaptureFixture
) -> None:
    assert mapper.to_skill(descriptor(description=description)) is None
    assert [record.getMessage() for record in caplog.records] == [
        "Skipping module text.echo: missing description"
    ]


def test_names_are_made_of_ids(descriptor: Describe) -> None:
    assert skill(descriptor(module_id="image.resize_all")).name == "Image Resize All"


def test_the_overlay_changes_what_is_shown_but_never_the_id(descriptor: Describe) -> None:
    overlay = {"alias": "Shout", "description": "Louder", "tags": ["loud"]}
    found = skill(descriptor(metadata={"display": {"a2a": overlay}}))
    assert (found.id, found.name, found.description) == ("text.echo", "Shout", "Louder")
    assert list(found.tags) == ["loud"]


@pytest.mark.parametrize("display", [None, "x", {"a2a": "x"}, {"mcp": {}}])
def test_a_display_for_others_changes_nothing(display: Any, descriptor: Describe) -> None:
    assert skill(descriptor(metadata={"display": display})).name == "Text Echo"
    assert skill(descriptor(metadata=None)).name == "Text Echo"


def test_flags_that_are_up_are_tags_too(descriptor: Describe) -> None:
    flags = ModuleAnnotations(readonly=True, requires_approval=True, streaming=True)
    assert list(skill(descriptor(tags=["a", "readonly"], annotations=flags)).tags) == [
        *("a", "readonly", "requires-approval", "streaming")
    ]
    up = ModuleAnnotations(destructive=True, idempotent=True, cacheable=True)
    assert list(skill(descriptor(annotations=up)).tags) == ["apcore", "destructive", "idempotent"]


def test_ten_examples_are_shown_as_title_and_compact_json(descriptor: Describe) -> None:
    examples = [ModuleExample(title=f"No {i}", inputs={"a": [i, "ä"]}) for i in range(12)]
    shown = list(skill(descriptor(examples=examples)).examples)
    assert len(shown) == 10
    assert shown[1] == 'No 1: {"a":[1,"ä"]}'


@pytest.mark.parametrize(
    ("schema", "modes"),
    [
        (None, ["text/plain"]),
        ({}, ["text/plain"]),
        ({"type": "object"}, ["application/json"]),
        (STRING, ["application/json", "text/plain"]),
        ({"properties": {"a": STRING}}, ["application/json", "text/plain"]),
        ({"properties": {"a": {"type": "integer"}}}, ["application/json"]),
        ({"properties": {"a": STRING, "b": STRING}}, ["application/json"]),
    ],
)
def test_modes_follow_the_schemas(schema: Any, modes: list[str], descriptor: Describe) -> None:
    found = skill(descriptor(input_schema=schema, output_schema=schema))
    assert list(found.input_modes) == modes
    assert list(found.output_modes) == modes


def test_text_is_taken_for_the_only_required_property_and_given_for_a_text_field(
    descriptor: Describe,
) -> None:
    schema = {"properties": {"a": STRING, "b": {}}, "required": ["a"]}
    found = skill(descriptor(input_schema=schema, output_schema=schema))
    assert list(found.input_modes) == ["application/json", "text/plain"]
    assert list(found.output_modes) == ["application/json"]
    overlay = {"display": {"a2a": {"text_field": "a"}}}
    found = skill(descriptor(output_schema=schema, metadata=overlay))
    assert list(found.output_modes) == ["application/json", "text/plain"]


def test_schemas_that_cant_be_inlined_dont_lose_the_skill(descriptor: Describe) -> None:
    circular = {"$ref": "#/$defs/A", "$defs": {"A": {"items": {"$ref": "#/$defs/A"}}}}
    assert list(skill(descriptor(input_schema=circular)).input_modes) == ["application/json"]


@pytest.mark.parametrize(
    "changes", [{"module_id": None}, {"description": 7}, {"tags": [1]}, {"examples": [{}]}]
)
def test_a_malformed_descriptor_is_skipped_with_one_warning(
    changes: dict[str, Any], descriptor: Describe, caplog: pytest.LogCaptureFixture
) -> None:
    assert mapper.to_skill(descriptor(**changes)) is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_an_object_that_is_no_descriptor_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    assert mapper.to_skill(object()) is None
    assert mapper.to_skill(None) is None
    assert len(caplog.records) == 2


def test_annotations_of_apcore_are_all_there(registry: Registry) -> None:
    class Look(OrderModule):
        annotations = ModuleAnnotations(readonly=True)

    registry.register("shop.look", Look())
    definition = registry.get_definition("shop.look")
    assert definition
    found = mapper._build_extensions(definition.annotations)
    assert found
    annotations = found["apcore"]["annotations"]
    assert {key: annotations[key] for key in FIVE} == {**FIVE, "readonly": True}
    assert len(annotations) == 13


def test_the_five_of_the_srs_are_there_as_they_are_and_none_stays_none() -> None:
    older = SimpleNamespace(**{**FIVE, "destructive": True})
    assert mapper._build_extensions(older) == {
        "apcore": {"annotations": {**FIVE, "destructive": True}}
    }
    assert mapper._build_extensions(None) is None
