"""Answers to questions of modules: the inputs that a message adds to those of the paused call."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from a2a.utils.errors import ContentTypeNotSupportedError, InvalidParamsError
from apcore_a2a_core import PartConverter, PartError
from apcore_a2a_core.data import Part
from apcore_a2a_core.parts import parse_inputs
from apcore_a2a_core.schema import properties_of, resolved
from apcore_a2a_core.text_values import choose, fields_of, scalar_property, value_of_text, word_of
from apcore_a2a_core.values import is_object
from jsonschema_rs import FancyRegexOptions, ReferencingError, ValidationError
from msgspec import UNSET, convert, to_builtins

from apcore_a2a_server.modules.skills import Skill
from apcore_a2a_server.modules.validation import BACKTRACK_LIMIT, validator_of

from .messages import split_parts
from .pauses import Pause

ANSWER = "answer"
"""The input that a text becomes if the question does not say which."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The inputs that a call is resumed with.

    Attributes:
        skill: The skill to call.
        inputs: Its inputs: those of the paused call, with the answer.
        other_parts: The parts of the message that are not inputs, as JSON.
        is_text: Whether the answer is text.
        problem: Why the text is no answer, as a sentence; empty if it is one.
    """

    skill: Skill
    inputs: dict[str, Any]
    other_parts: Sequence[Any]
    is_text: bool = False
    problem: str = ""


class Target(NamedTuple):
    """The input that an answer in text becomes."""

    name: str
    schema: Any
    root: Mapping[str, Any]
    """The schema that references in `schema` point into."""


def read_answer(
    pause: Pause, parts: Sequence[Part], skill: Skill, converter: PartConverter
) -> Answer:
    """Return the answer in the parts of a message.

    Data is merged over the inputs. Text becomes one input, and overwrites no other one.

    Raises:
        InvalidParamsError: The message has no text, and its parts are no input.
        ContentTypeNotSupportedError: The skill does not take the parts' media types.
    """
    texts = _texts(parts)
    if not texts or any(part.data is not UNSET for part in parts):
        return _data_answer(pause, parts, skill, converter)
    text = "\n".join(texts)
    other_parts = [to_builtins(part) for part in parts if part.text is UNSET]
    try:
        added = _inputs_in(pause, skill, text)
    except PartError as error:
        problem = f"The answer {error}"
        return Answer(skill, pause.inputs, other_parts, is_text=True, problem=problem)
    if added is None:  # the skill takes no such input: it finds the text in the conversation
        return Answer(skill, pause.inputs, [to_builtins(part) for part in parts], is_text=True)
    problem = _violation(pause, added)
    return Answer(skill, {**pause.inputs, **added}, other_parts, is_text=True, problem=problem)


def _data_answer(
    pause: Pause, parts: Sequence[Part], skill: Skill, converter: PartConverter
) -> Answer:
    """Return the answer in the first part that is no text."""
    texts = [part for part in parts if part.text is not UNSET]
    others = [part for part in parts if part.text is UNSET]
    added, other_parts = split_parts(converter, others, skill)
    if problem := _violation(pause, added):
        raise InvalidParamsError(problem)
    texts_as_json = [to_builtins(part) for part in texts]
    return Answer(skill, {**pause.inputs, **added}, [*texts_as_json, *other_parts])


def _violation(pause: Pause, added: Mapping[str, Any]) -> str:
    """Return why inputs do not fit the choices or the schema of a question; empty if they do."""
    name = pause.field or ANSWER
    if pause.choices and name in added and added[name] not in pause.choices:
        return f"The answer must be one of: {', '.join(map(word_of, pause.choices))}"
    if pause.schema is None or (pause.field and pause.field not in added):
        return ""
    is_object_of_inputs = not pause.field and properties_of(resolved(pause.schema, pause.schema))
    value = added if is_object_of_inputs else added.get(name)
    try:
        options = FancyRegexOptions(backtrack_limit=BACKTRACK_LIMIT)
        validator_of(pause.schema, options).validate(value)
    except ValidationError as error:  # its message has "value" in place of the value
        path = ".".join(map(str, error.instance_path))
        return f"The answer does not fit: {path}{': ' if path else ''}{error.message}"
    except (ValueError, ReferencingError):  # the schema can't be checked in linear time
        return ""
    return ""


def _inputs_in(pause: Pause, skill: Skill, text: str) -> dict[str, Any] | None:
    """Return the inputs in the text of an answer; None if the skill takes none from it.

    Raises:
        PartError: The text is no answer.
    """
    target = _target(pause, skill)
    inputs: dict[str, Any] = {}
    with suppress(PartError):
        inputs = parse_inputs(text)
    if inputs and inputs.keys() <= _names(pause, skill, target):
        return inputs
    if target is None:
        if pause.schema is None:
            return None
        raise PartError(f"must be {fields_of(pause.schema)}")
    if pause.choices:
        return {target.name: choose(text, pause.choices, by_number=True)}
    return {target.name: value_of_text(text, target.schema, target.root)}


def _names(pause: Pause, skill: Skill, target: Target | None) -> set[str]:
    """Return the names of the inputs that an answer can have."""
    names = {*properties_of(resolved(skill.schema, skill.schema or {}))}
    if pause.schema is not None and not pause.field:
        names |= {*properties_of(resolved(pause.schema, pause.schema))}
    return names | ({target.name} if target else set())


def _target(pause: Pause, skill: Skill) -> Target | None:
    """Return the input that text becomes; None if there is none.

    It is the field of the question, the one text of its schema, the one required input that is
    missing, or else `answer`.
    """
    root = skill.schema or {}
    schema = resolved(root, root)
    properties = properties_of(schema)
    if pause.field:
        if pause.schema is not None:
            return Target(pause.field, pause.schema, pause.schema)
        return Target(pause.field, properties.get(pause.field, {}), root)
    if pause.schema is not None:
        asked = properties_of(resolved(pause.schema, pause.schema))
        if not asked:
            return Target(ANSWER, pause.schema, pause.schema)
        name = scalar_property(pause.schema)
        return None if name is None else Target(name, asked[name], pause.schema)
    missing = [name for name in schema.get("required", ()) if name not in pause.inputs]
    name = missing[0] if len(missing) == 1 else ANSWER
    if name not in properties and schema.get("additionalProperties") is False:
        return None
    return Target(name, properties.get(name, {}), root)


def choose_skill(
    pause: Pause, parts: Sequence[Part], skills: Mapping[str, str], named: str | None
) -> str:
    """Return the id of the skill that an answer chooses.

    Args:
        pause: The pause in which the client was asked.
        parts: The parts of the answer.
        skills: The names of the skills that the client may call, by id.
        named: The skill that the metadata of the answer names.

    Raises:
        PartError: It chooses none of them.
    """
    text = named if named is not None else "\n".join(_texts(parts))
    for part in parts:
        if not text and is_object(part.data) and isinstance(part.data.get("skillId"), str):
            text = part.data["skillId"]
    choices = pause.choices or []
    with suppress(PartError):
        skill_id = choose(text, choices, by_number=True)
        if skill_id in skills:
            return str(skill_id)
    ids_by_name = {name: skill_id for skill_id, name in skills.items() if skill_id in choices}
    with suppress(PartError):
        return ids_by_name[choose(text, ids_by_name)]
    raise PartError("names no skill of this agent")


def original_call(
    pause: Pause, skill: Skill, converter: PartConverter
) -> tuple[dict[str, Any], list[Any]]:
    """Return the inputs and other parts of the message that a client has sent without a skill.

    Raises:
        PartError: Its parts are no input for the skill.
    """
    parts = [convert(part, Part) for part in pause.inputs["parts"]]
    try:
        return split_parts(converter, parts, skill)
    except (InvalidParamsError, ContentTypeNotSupportedError) as error:
        raise PartError(str(error.message)) from None


def _texts(parts: Sequence[Part]) -> list[str]:
    return [part.text for part in parts if part.text is not UNSET]
