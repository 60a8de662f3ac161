"""Conversion of descriptors to skills."""

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
JSON, TEXT = "application/json", "text/plain"
FLAGS = {
    "readonly": False,
    "destructive": False,
    "idempotent": False,
    "requires_approval": False,
    "open_world": True,
}


def skill(module_descriptor: Any) -> Any:
    mapped_skill = mapper.to_skill(module_descriptor)
    assert mapped_skill
    return mapped_skill


def test_a_real_module_becomes_a_skill(registry: Registry) -> None:
    mapped_skill = skill(registry.get_definition("shop.order"))
    assert (mapped_skill.id, mapped_skill.name) == ("shop.order", "Shop Order")
    assert mapped_skill.description == "Adds up an order"
    assert list(mapped_skill.tags) == ["apcore"]
    assert list(mapped_skill.examples) == []
    assert list(mapped_skill.input_modes) == ["application/json"]
    assert list(mapped_skill.output_modes) == ["application/json"]


@pytest.mark.parametrize("description", ["", None, "  ", " \n\t"])
def test_a_module_without_description_is_skipped(
    description: Any, descriptor: Describe, caplog: pytest.LogCaptureFixture
) -> None:
    assert mapper.to_skill(descriptor(description=description)) is None
    assert [record.getMessage() for record in caplog.records] == [
        "Skipping module text.echo: missing description"
    ]


def test_a_blank_description_in_an_overlay_counts_as_missing(descriptor: Describe) -> None:
    overlay = {"description": " ", "guidance": "\n"}
    module_descriptor = descriptor(description=" Says it. ", metadata={"display": {"a2a": overlay}})
    assert skill(module_descriptor).description == "Says it."


def test_names_are_derived_from_ids(descriptor: Describe) -> None:
    assert skill(descriptor(module_id="image.resize_all")).name == "Image Resize All"


def test_a_display_overlay_sets_name_description_and_tags(descriptor: Describe) -> None:
    overlay = {"alias": "Shout", "description": "Louder", "tags": ["loud"]}
    mapped_skill = skill(descriptor(metadata={"display": {"a2a": overlay}}))
    assert (mapped_skill.id, mapped_skill.name, mapped_skill.description) == (
        "text.echo",
        "Shout",
        "Louder",
    )
    assert list(mapped_skill.tags) == ["loud"]


@pytest.mark.parametrize("display", [None, "x", {"a2a": "x"}, {"mcp": {}}])
def test_a_display_without_an_a2a_overlay_is_ignored(display: Any, descriptor: Describe) -> None:
    assert skill(descriptor(metadata={"display": display})).name == "Text Echo"
    assert skill(descriptor(metadata=None)).name == "Text Echo"


def test_some_annotations_become_tags_when_they_are_set(descriptor: Describe) -> None:
    flags = ModuleAnnotations(readonly=True, requires_approval=True, streaming=True)
    assert list(skill(descriptor(tags=["a", "readonly"], annotations=flags)).tags) == [
        *("a", "readonly", "requires-approval", "streaming")
    ]
    other_flags = ModuleAnnotations(destructive=True, idempotent=True, cacheable=True)
    assert list(skill(descriptor(annotations=other_flags)).tags) == [
        "apcore",
        "destructive",
        "idempotent",
    ]


def test_the_first_ten_examples_are_listed_as_title_and_compact_json(descriptor: Describe) -> None:
    examples = [ModuleExample(title=f"No {i}", inputs={"a": [i, "ä"]}) for i in range(12)]
    listed_examples = list(skill(descriptor(examples=examples)).examples)
    assert len(listed_examples) == 10
    assert listed_examples[1] == 'No 1: {"a":[1,"ä"]}'


@pytest.mark.parametrize(
    ("schema", "modes"),
    [
        (None, ["text/plain"]),
        ({}, ["text/plain"]),
        ({"type": "object"}, ["application/json"]),
        ({"properties": {"a": STRING}}, ["application/json", "text/plain"]),
        ({"properties": {"a": STRING, "b": STRING}}, ["application/json"]),
    ],
)
def test_modes_are_derived_from_the_schemas(
    schema: Any, modes: list[str], descriptor: Describe
) -> None:
    mapped_skill = skill(descriptor(input_schema=schema, output_schema=schema))
    assert list(mapped_skill.input_modes) == modes
    assert list(mapped_skill.output_modes) == modes


@pytest.mark.parametrize(
    ("schema", "input_modes", "output_modes"),
    [
        (STRING, [JSON], [JSON, TEXT]),
        ({"properties": {}}, [JSON, TEXT], [JSON]),
        ({"properties": {"a": {"type": "integer"}}}, [JSON, TEXT], [JSON]),
        ({"properties": {"a": {"type": "array"}}}, [JSON], [JSON]),
    ],
)
def test_text_modes_of_inputs_and_outputs_follow_different_rules(
    schema: Any, input_modes: list[str], output_modes: list[str], descriptor: Describe
) -> None:
    mapped_skill = skill(descriptor(input_schema=schema, output_schema=schema))
    assert list(mapped_skill.input_modes) == input_modes
    assert list(mapped_skill.output_modes) == output_modes


def test_the_files_that_a_module_takes_are_input_modes(descriptor: Describe) -> None:
    photo = {"type": "string", "contentMediaType": "image/*"}
    schema = {"properties": {"photo": photo, "any": {"type": "string", "format": "binary"}}}
    module_descriptor = descriptor(input_schema=schema)
    assert list(skill(module_descriptor).input_modes) == [
        "application/json",
        "image/*",
        "application/octet-stream",
    ]
    overlay = {"display": {"a2a": {"files": True}}}
    module_descriptor = descriptor(input_schema={"properties": {"a": STRING}}, metadata=overlay)
    assert list(skill(module_descriptor).input_modes) == ["application/json", "text/plain", "*/*"]


def test_text_is_an_input_mode_for_one_required_property_and_an_output_mode_for_a_text_field(
    descriptor: Describe,
) -> None:
    schema = {"properties": {"a": STRING, "b": {}}, "required": ["a"]}
    mapped_skill = skill(descriptor(input_schema=schema, output_schema=schema))
    assert list(mapped_skill.input_modes) == ["application/json", "text/plain"]
    assert list(mapped_skill.output_modes) == ["application/json"]
    overlay = {"display": {"a2a": {"text_field": "a"}}}
    mapped_skill = skill(descriptor(output_schema=schema, metadata=overlay))
    assert list(mapped_skill.output_modes) == ["application/json", "text/plain"]


def test_a_skill_is_kept_if_its_schema_cannot_be_inlined(descriptor: Describe) -> None:
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


def test_an_object_that_is_not_a_descriptor_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    assert mapper.to_skill(object()) is None
    assert mapper.to_skill(None) is None
    assert len(caplog.records) == 2


def test_all_annotations_of_apcore_are_in_the_extension(registry: Registry) -> None:
    class Look(OrderModule):
        annotations = ModuleAnnotations(readonly=True)

    registry.register("shop.look", Look())
    definition = registry.get_definition("shop.look")
    assert definition
    extensions = mapper._build_extensions(definition.annotations)
    assert extensions
    annotations = extensions["apcore"]["annotations"]
    assert {key: annotations[key] for key in FLAGS} == {**FLAGS, "readonly": True}
    assert len(annotations) == 13


def test_annotations_of_older_versions_of_apcore_are_in_the_extension() -> None:
    older = SimpleNamespace(**{**FLAGS, "destructive": True})
    assert mapper._build_extensions(older) == {
        "apcore": {"annotations": {**FLAGS, "destructive": True}}
    }
    assert mapper._build_extensions(None) is None
