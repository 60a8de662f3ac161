"""A module's descriptor as an A2A skill."""

import logging
from typing import Any

from a2a import types as a2a
from pydantic_core import to_json

from .errors import clean
from .schema import Object, object_of, overlay_of, properties_of, text_property, types_of

logger = logging.getLogger(__name__)

JSON, TEXT = "application/json", "text/plain"
FLAGS = ("readonly", "destructive", "idempotent", "requires_approval", "streaming")


class SkillMapper:
    """Maps descriptors to skills (FR-SKL-001..004).

    >>> SkillMapper()._humanize_module_id("image.resize_all")
    'Image Resize All'
    """

    def to_skill(self, descriptor: object) -> a2a.AgentSkill | None:
        """The skill of *descriptor*, or ``None`` when it has no description or is malformed."""
        try:
            return self._skill(descriptor)
        except Exception as error:  # one module's mistake must not cost the others their card
            reason = clean(str(error), 200) if type(error) is ValueError else type(error).__name__
            logger.warning("Skipping module %s: %s", getattr(descriptor, "module_id", "?"), reason)
            return None

    def _skill(self, descriptor: Any) -> a2a.AgentSkill:
        overlay = overlay_of(descriptor)
        description = overlay.get("description") or descriptor.description
        if not description:
            raise ValueError("missing description")
        return a2a.AgentSkill(
            id=descriptor.module_id,
            name=overlay.get("alias") or self._humanize_module_id(descriptor.module_id),
            description="\n\n".join(filter(None, [description, overlay.get("guidance")])),
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
        up = [flag.replace("_", "-") for flag in FLAGS if getattr(annotations, flag, None) is True]
        return list(dict.fromkeys([*(tags or ["apcore"]), *up]))

    def _build_examples(self, descriptor: object) -> list[str]:
        """The first ten examples: the title, and the inputs as compact JSON (FR-SKL-002)."""
        examples: list[Any] = getattr(descriptor, "examples", None) or []
        # "?" for what JSON has no form, whose repr may tell anything
        return [
            f"{e.title}: {to_json(e.inputs, fallback='?'.format).decode()}" for e in examples[:10]
        ]

    def _compute_input_modes(self, descriptor: object) -> list[str]:
        schema = object_of(descriptor, "input_schema")
        return modes(schema, textual=text_property(schema) is not None)

    def _compute_output_modes(self, descriptor: object) -> list[str]:
        schema = object_of(descriptor, "output_schema")
        single = len(properties_of(schema)) == 1 and text_property(schema) is not None
        return modes(schema, textual=single or "text_field" in overlay_of(descriptor))

    def _build_extensions(self, annotations: object | None) -> Object | None:
        """What the SRS has beside a skill, ``{"apcore": {"annotations": {…}}}`` (FR-SKL-004)."""
        return {"apcore": {"annotations": {**vars(annotations)}}} if annotations else None


def modes(schema: Object, *, textual: bool) -> list[str]:
    """JSON for what has a schema, and plain text where that is understood (FR-SKL-003)."""
    if not schema:
        return [TEXT]
    return [JSON, TEXT] if textual or types_of(schema) == {"string"} else [JSON]
