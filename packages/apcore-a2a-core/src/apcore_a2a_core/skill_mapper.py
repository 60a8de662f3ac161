"""Conversion of module descriptors to A2A skills."""

import logging
from typing import Any

from a2a import types as a2a
from pydantic_core import to_json

from .data import Json
from .errors import clean
from .files import file_properties, takes_any_files
from .media_types import JSON, TEXT
from .schema import overlay_of, properties_of, text_field_of, text_property, types_of
from .text_values import scalar_property, takes_nothing
from .values import object_of

logger = logging.getLogger(__name__)

TAG_FLAGS = ("readonly", "destructive", "idempotent", "requires_approval", "streaming")
"""Annotations of a module that become tags of its skill if they are set."""


class SkillMapper:
    """A mapper from module descriptors to skills (FR-SKL-001..004).

    >>> SkillMapper()._humanize_module_id("image.resize_all")
    'Image Resize All'
    """

    def to_skill(self, descriptor: object) -> a2a.AgentSkill | None:
        """Return the skill for *descriptor*; None if it is malformed or has no description."""
        try:
            return self._skill(descriptor)
        except Exception as error:  # one malformed module must not keep the others off the card
            reason = clean(str(error), 200) if type(error) is ValueError else type(error).__name__
            module_id, extra = getattr(descriptor, "module_id", "?"), {"event": "module_skipped"}
            logger.warning("Skipping module %s: %s", module_id, reason, extra=extra)
            return None

    def _skill(self, descriptor: Any) -> a2a.AgentSkill:
        overlay = overlay_of(descriptor)
        description = _strip(overlay.get("description")) or _strip(descriptor.description)
        if not description:
            raise ValueError("missing description")
        guidance = _strip(overlay.get("guidance"))
        return a2a.AgentSkill(
            id=descriptor.module_id,
            name=overlay.get("alias") or self._humanize_module_id(descriptor.module_id),
            description="\n\n".join(filter(None, [description, guidance])),
            tags=self._build_tags(descriptor),
            examples=self._build_examples(descriptor),
            input_modes=self._compute_input_modes(descriptor),
            output_modes=self._compute_output_modes(descriptor),
        )

    def _humanize_module_id(self, module_id: str) -> str:
        return module_id.replace(".", " ").replace("_", " ").title()

    def _build_tags(self, descriptor: object) -> list[str]:
        """Return the module's tags, at least one (A2A 1.0 §4.4.5), and its flags that are set."""
        tags = overlay_of(descriptor).get("tags") or getattr(descriptor, "tags", None)
        annotations = getattr(descriptor, "annotations", None)
        flags = [flag for flag in TAG_FLAGS if getattr(annotations, flag, None) is True]
        flag_tags = [flag.replace("_", "-") for flag in flags]
        return list(dict.fromkeys([*(tags or ["apcore"]), *flag_tags]))

    def _build_examples(self, descriptor: object) -> list[str]:
        """Return the first ten examples: title, and inputs as compact JSON (FR-SKL-002)."""
        examples: list[Any] = getattr(descriptor, "examples", None) or []
        # "?" stands for values that JSON cannot represent; their repr might be confidential
        return [
            f"{e.title}: {to_json(e.inputs, fallback='?'.format).decode()}" for e in examples[:10]
        ]

    def _compute_input_modes(self, descriptor: object) -> list[str]:
        any_file = ["*/*"] if takes_any_files(descriptor) else []
        return [*input_modes(object_of(descriptor, "input_schema")), *any_file]

    def _compute_output_modes(self, descriptor: object) -> list[str]:
        return output_modes(descriptor)

    def _build_extensions(self, annotations: object | None) -> Json | None:
        """Return the annotations as extensions of a skill (FR-SKL-004).

        `to_skill` leaves them out, since skills of A2A 1.0 have no extensions.
        """
        return {"apcore": {"annotations": {**vars(annotations)}}} if annotations else None


def _strip(text: Any) -> Any:
    """Return *text* without surrounding whitespace; other values unchanged."""
    return text.strip() if isinstance(text, str) else text


def input_modes(schema: Json) -> list[str]:
    """Return the media types that a skill with this input schema takes.

    Text is not one of them if the root of the schema is a string: apcore calls modules only with
    objects.
    """
    is_textual = scalar_property(schema) is not None or takes_nothing(schema)
    types = modes(schema, textual=is_textual)
    return list(dict.fromkeys([*types, *file_properties(schema).values()]))


def output_modes(descriptor: object) -> list[str]:
    """Return the media types of the results of a skill."""
    schema = object_of(descriptor, "output_schema")
    is_only_text = len(properties_of(schema)) == 1 and text_property(schema) is not None
    is_text = is_only_text or types_of(schema) == {"string"}
    return modes(schema, textual=is_text or text_field_of(descriptor) is not None)


def modes(schema: Json, *, textual: bool) -> list[str]:
    """Return the types: JSON, and text if *textual*; without a schema, only text (FR-SKL-003)."""
    if not schema:
        return [TEXT]
    return [JSON, TEXT] if textual else [JSON]
