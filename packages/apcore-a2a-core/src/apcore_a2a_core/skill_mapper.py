"""A module's descriptor as an A2A skill."""

import json
import logging
from typing import Any

from a2a.types import AgentSkill

from .schema import Object, SchemaConverter, is_object, schema_of, text_property

logger = logging.getLogger(__name__)

JSON_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, default=str)
JSON, TEXT = "application/json", "text/plain"
FLAGS = ("readonly", "destructive", "idempotent", "requires_approval")
TAGGED = (*FLAGS, "streaming")


def overlay_of(descriptor: object) -> Object:
    """How the module wants to be shown over A2A: alias, description, tags, guidance, text_field.

    It is in ``metadata["display"]["a2a"]``, else in a ``display`` of the descriptor itself.
    """
    metadata = getattr(descriptor, "metadata", None)
    display = metadata.get("display") if is_object(metadata) else None
    display = display or getattr(descriptor, "display", None)
    overlay = display.get("a2a") if is_object(display) else None
    return overlay if is_object(overlay) else {}


class SkillMapper:
    """Maps descriptors to skills (FR-SKL-001..004).

    >>> SkillMapper()._humanize_module_id("image.resize_all")
    'Image Resize All'
    """

    def to_skill(self, descriptor: object) -> AgentSkill | None:
        """The skill of *descriptor*, or ``None`` when it has no description or is malformed."""
        try:
            return self._skill(descriptor)
        except Exception as error:  # one module's mistake must not cost the others their card
            name = getattr(descriptor, "module_id", "?")
            logger.warning("Skipping module %s: malformed descriptor (%s)", name, error)
            return None

    def _skill(self, descriptor: Any) -> AgentSkill | None:
        overlay = overlay_of(descriptor)
        description = overlay.get("description") or descriptor.description
        if not description:
            return None
        guidance = overlay.get("guidance")
        return AgentSkill(
            id=descriptor.module_id,
            name=overlay.get("alias") or self._humanize_module_id(descriptor.module_id),
            description=f"{description}\n\n{guidance}" if guidance else description,
            tags=self._build_tags(descriptor),
            examples=self._build_examples(descriptor),
            input_modes=self._compute_input_modes(descriptor),
            output_modes=self._compute_output_modes(descriptor),
        )

    def _humanize_module_id(self, module_id: str) -> str:
        return module_id.replace(".", " ").replace("_", " ").title()

    def _build_tags(self, descriptor: object) -> list[str]:
        """The module's tags, never none (A2A 1.0 §4.4.5), and those of its flags that are up."""
        tags = overlay_of(descriptor).get("tags") or getattr(descriptor, "tags", None)
        annotations = getattr(descriptor, "annotations", None)
        up = [flag.replace("_", "-") for flag in TAGGED if getattr(annotations, flag, None) is True]
        return list(dict.fromkeys([*(tags or ["apcore"]), *up]))

    def _build_examples(self, descriptor: object) -> list[str]:
        """The first ten examples: the title, and the inputs as compact JSON (FR-SKL-002)."""
        examples: list[Any] = getattr(descriptor, "examples", None) or []
        return [f"{e.title}: {JSON_ENCODER.encode(e.inputs)}" for e in examples[:10]]

    def _compute_input_modes(self, descriptor: object) -> list[str]:
        schema = schema_of(descriptor, "input_schema")
        return modes(schema, textual=text_property(schema) is not None)

    def _compute_output_modes(self, descriptor: object) -> list[str]:
        schema = schema_of(descriptor, "output_schema")
        single = len(schema.get("properties") or ()) == 1 and text_property(schema) is not None
        return modes(schema, textual=single or "text_field" in overlay_of(descriptor))

    def _build_extensions(self, annotations: object | None) -> Object | None:
        """What the SRS has beside a skill, ``{"apcore": {"annotations": {…}}}`` (FR-SKL-004)."""
        known = annotations_of(annotations)
        return {"apcore": {"annotations": known}} if known else None


def annotations_of(annotations: object | None) -> Object:
    """All of the annotations that this apcore knows, with the SRS's five always among them."""
    if annotations is None:
        return {}
    known = {key: value for key, value in vars(annotations).items() if key[0] != "_"}
    return dict.fromkeys(FLAGS, False) | {"open_world": True} | known


def modes(schema: Object, *, textual: bool) -> list[str]:
    """JSON for what has a schema, and plain text where that is understood (FR-SKL-003)."""
    if not schema:
        return [TEXT]
    textual = textual or SchemaConverter().detect_root_type(schema) == "string"
    return [JSON, TEXT] if textual else [JSON]
