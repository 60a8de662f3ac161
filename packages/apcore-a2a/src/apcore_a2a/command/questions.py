"""Questions of paused tasks: which parts to show, and how to read the answers."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from apcore_a2a_client import Part, Task
from apcore_a2a_client.errors import is_object

from .printers import clean

Json = dict[str, Any]


@dataclass(frozen=True)
class Question:
    """The question of a paused task.

    Attributes:
        parts: The parts to show, without the data that is shown as choices or prompts.
        choices: The choices; empty if the text of the parts shows them all.
        schema: JSON Schema of an answer with several values; empty if the answer is a single text.
    """

    parts: tuple[Part, ...]
    choices: tuple[str, ...] = ()
    schema: Json = field(default_factory=dict[str, Any])

    @classmethod
    def of(cls, task: Task) -> "Question":
        """Return the question that *task* is paused for."""
        parts = tuple(task.status.message.parts) if task.status.message else ()
        pending = next(filter(None, map(_pending_input, parts)), None)
        if pending is None:
            return cls(parts)
        data = pending.get("data")
        details = data if is_object(data) else Json()
        text = " ".join(part.text for part in parts if part.text)
        declared_choices: list[Any] = pending.get("choices") or details.get("choices") or []
        is_list = type(declared_choices) is list
        choices = tuple(map(_choice_text, declared_choices if is_list else ()))
        schema: Any = pending.get("schema") or details.get("schema")
        schema = schema if is_object(schema) else Json()
        is_form = is_object(schema.get("properties")) and "field" not in pending
        # whether the data contains only what the text, the choices and the prompts show
        is_redundant = not details.keys() - {"choices", "schema", "skills"} and data in (
            None,
            details,
        )
        return cls(
            tuple(part for part in parts if not (is_redundant and _pending_input(part))),
            () if all(choice in text for choice in choices) else choices,
            schema if is_form else {},
        )


def ask_for_members(
    schema: Json, read: Callable[[str], str], show: Callable[[str], None]
) -> Json | None:
    """Ask for the members of an object, one by one; return None if a required one stays empty.

    Args:
        schema: JSON Schema of an object.
        read: Shows a prompt, and returns the text that the user enters.
        show: Shows the reason why a text is not valid for its member.
    """
    from apcore_a2a_core import PartError  # slow to import, and few questions have a schema
    from apcore_a2a_core.text_values import kind_of, value_of_text

    values: Json = {}
    for name, member in schema["properties"].items():
        is_required = name in schema.get("required", ())
        kind = kind_of(member, schema) + ("" if is_required else ", optional")
        while name not in values:
            text = read(clean(f"{name} ({kind})"))
            if not text and is_required:
                return None
            if not text:
                break
            try:
                values[name] = value_of_text(text, member, schema)
            except PartError as error:
                show(clean(f"{name} {error}"))
    return values


def _pending_input(part: Part) -> Json | None:
    pending: Any = part.data.get("input") if is_object(part.data) else None
    return pending if is_object(pending) else None


def _choice_text(choice: Any) -> str:
    return choice if isinstance(choice, str) else json.dumps(choice, ensure_ascii=False)
