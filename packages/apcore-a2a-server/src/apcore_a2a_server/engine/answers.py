"""Answers to questions: new inputs for the paused call, or the choice of a skill."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from a2a.utils.errors import InvalidParamsError
from apcore_a2a_core import PartConverter, PartError, clean
from apcore_a2a_core.data import Part
from apcore_a2a_core.parts import parse_inputs
from apcore_a2a_core.schema import properties_of, resolved
from apcore_a2a_core.text_values import choose, fields_of, kind_of, scalar_property, value_of_text
from apcore_a2a_core.values import is_object
from jsonschema_rs import FancyRegexOptions, ReferencingError, ValidationError
from msgspec import UNSET, convert, json, to_builtins

from apcore_a2a_server.modules.skills import Skill
from apcore_a2a_server.modules.validation import BACKTRACK_LIMIT, validator_of

from .messages import split_parts
from .pauses import Pause

ANSWER = "answer"
"""Name of the input that an answer in text becomes by default."""
MAX_REASON = 500
"""Maximum length of the reason why an answer does not fit, in characters."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, with the skill and the inputs of the resumed call.

    Attributes:
        skill: The skill to call.
        inputs: Its inputs.
        other_parts: Parts that are not inputs, as JSON.
        asks_again: Whether the client is asked again if the answer does not fit.
        problem: Why the answer does not fit, for the client; empty if it does.
        answer_parts: The parts of the answer, if they differ from those of the message; else None.
    """

    skill: Skill
    inputs: dict[str, Any]
    other_parts: Sequence[Any]
    asks_again: bool = False
    problem: str = ""
    answer_parts: Sequence[Any] | None = None


class TextInput(NamedTuple):
    """The input that an answer in text becomes."""

    name: str
    schema: Any
    root: Mapping[str, Any]
    """The schema into which the references in `schema` point."""


def read_answer(
    pause: Pause, parts: Sequence[Part], skill: Skill, converter: PartConverter
) -> Answer:
    """Return the answer in the parts of a message; new inputs override those of the paused call.

    If a part is data, or no part is text, the parts other than text are the answer. Otherwise the
    text is the answer: one input, or several if it is a JSON object of inputs.

    Raises:
        InvalidParamsError: An answer other than text can't be read as inputs, or does not fit the
            question.
        ContentTypeNotSupportedError: The skill does not take the parts' media types.
    """
    texts = _texts(parts)
    if not texts or any(part.data is not UNSET for part in parts):
        return _data_answer(pause, parts, skill, converter)
    text = "\n".join(texts)
    other_parts = [to_builtins(part) for part in parts if part.text is UNSET]
    try:
        new_inputs = _inputs_in(pause, skill, text)
    except PartError as error:
        problem = f"The answer {error}"
        return Answer(skill, pause.inputs, other_parts, asks_again=True, problem=problem)
    if new_inputs is None:  # no input takes text, so the module gets the text as a part
        all_parts = [to_builtins(part) for part in parts]
        if pause.choices:
            all_parts = [_chosen_part(pause.choices, text), *other_parts]
        return Answer(skill, pause.inputs, all_parts, asks_again=True, answer_parts=all_parts)
    problem = _violation(pause, skill, new_inputs)
    inputs = {**pause.inputs, **new_inputs}
    return Answer(skill, inputs, other_parts, asks_again=True, problem=problem)


def _chosen_part(choices: Sequence[Any], text: str) -> dict[str, Any]:
    """Return the choice that a text names, as a part; the text may be the choice's number."""
    choice = choose(text, choices, by_number=True)
    return {"text" if isinstance(choice, str) else "data": choice}


def _data_answer(
    pause: Pause, parts: Sequence[Part], skill: Skill, converter: PartConverter
) -> Answer:
    """Return the answer in the parts that are not text."""
    text_parts = [to_builtins(part) for part in parts if part.text is not UNSET]
    non_text_parts = [part for part in parts if part.text is UNSET]
    new_inputs, other_parts = split_parts(converter, non_text_parts, skill)
    if problem := _violation(pause, skill, new_inputs):
        raise InvalidParamsError(problem)
    return Answer(skill, {**pause.inputs, **new_inputs}, [*text_parts, *other_parts])


def _violation(pause: Pause, skill: Skill, new_inputs: Mapping[str, Any]) -> str:
    """Return why inputs do not fit the choices or the schema of a question; empty if they do."""
    text_input = _text_input(pause, skill)
    name = ANSWER if text_input is None else text_input.name
    if pause.choices and name in new_inputs and not _is_among(new_inputs[name], pause.choices):
        return f"The answer must be {kind_of({'enum': pause.choices}, {})}"
    if pause.schema is None or (pause.field and pause.field not in new_inputs):
        return ""
    is_object_of_inputs = not pause.field and properties_of(resolved(pause.schema, pause.schema))
    value = new_inputs if is_object_of_inputs else new_inputs.get(name)
    try:
        options = FancyRegexOptions(backtrack_limit=BACKTRACK_LIMIT)
        validator_of(pause.schema, pattern_options=options).validate(value)
    except ValidationError as error:  # the error says "value", not the value itself
        path = ".".join(map(str, error.instance_path))
        reason = f"{path}{': ' if path else ''}{error.message}"  # may have long names of members
        return f"The answer does not fit: {clean(reason, MAX_REASON)}"
    except (ValueError, ReferencingError):  # jsonschema-rs does not take the schema: no check
        return ""
    return ""


def _is_among(value: Any, choices: Sequence[Any]) -> bool:
    """Return whether a value is one of the choices, compared as JSON: in Python, `True == 1`."""
    encoded = json.encode(value, order="sorted")
    return any(json.encode(choice, order="sorted") == encoded for choice in choices)


def _inputs_in(pause: Pause, skill: Skill, text: str) -> dict[str, Any] | None:
    """Return the inputs in the text of an answer; None if no input of the skill takes text.

    Raises:
        PartError: The text does not fit the question.
    """
    text_input = _text_input(pause, skill)
    inputs: dict[str, Any] = {}
    with suppress(PartError):
        inputs = parse_inputs(text)
    if inputs and inputs.keys() <= _input_names(pause, skill, text_input):
        return inputs
    if text_input is None and pause.schema is not None:
        raise PartError(f"must be {fields_of(pause.schema)}")
    choice = choose(text, pause.choices, by_number=True) if pause.choices else None
    if text_input is None:
        return None
    name, schema, root = text_input
    return {name: choice if pause.choices else value_of_text(text, schema, root)}


def _input_names(pause: Pause, skill: Skill, text_input: TextInput | None) -> set[str]:
    """Return the names of the inputs that an answer can have."""
    names = {*properties_of(resolved(skill.schema, skill.schema or {}))}
    if pause.schema is not None and not pause.field:
        names |= {*properties_of(resolved(pause.schema, pause.schema))}
    return names | ({text_input.name} if text_input else set())


def _text_input(pause: Pause, skill: Skill) -> TextInput | None:
    """Return the input that text becomes; None if there is none.

    If the question names a field, that is the input. If the question has only a schema, the input
    is the `scalar_property` of the schema, or `answer` if the schema has no properties. Otherwise,
    the input is the only required one that is missing, or else `answer`.
    """
    root = skill.schema or {}
    schema = resolved(root, root)
    properties = properties_of(schema)
    if pause.field:
        if pause.schema is not None:
            return TextInput(pause.field, pause.schema, pause.schema)
        return TextInput(pause.field, properties.get(pause.field, {}), root)
    if pause.schema is not None:
        members = properties_of(resolved(pause.schema, pause.schema))
        if not members:
            return TextInput(ANSWER, pause.schema, pause.schema)
        name = scalar_property(pause.schema)
        return None if name is None else TextInput(name, members[name], pause.schema)
    missing = [name for name in schema.get("required", ()) if name not in pause.inputs]
    name = missing[0] if len(missing) == 1 else ANSWER
    if name not in properties and schema.get("additionalProperties") is False:
        return None
    return TextInput(name, properties.get(name, {}), root)


def choose_skill(
    pause: Pause, parts: Sequence[Part], names: Mapping[str, str], named_id: str | None
) -> str:
    """Return the id of the skill that an answer chooses.

    Args:
        pause: The pause in which the client was asked.
        parts: The parts of the answer.
        names: The names of the skills that the client may call, by id.
        named_id: The id of the skill named by the metadata or the tenant of the answer, if any.

    Raises:
        PartError: The answer chooses no skill, or several.
    """
    text = named_id if named_id is not None else "\n".join(_texts(parts))
    for part in parts:
        if not text and is_object(part.data) and isinstance(part.data.get("skillId"), str):
            text = part.data["skillId"]
    choices = pause.choices or []
    with suppress(PartError):
        skill_id = choose(text, choices, by_number=True)
        if skill_id in names:
            return str(skill_id)
    with suppress(PartError):  # the question may have left out some skills
        return str(choose(text, names))
    try:
        name = choose(text, names.values())
    except PartError:
        raise PartError("names no skill of this agent") from None
    skill_ids = [skill_id for skill_id in names if names[skill_id] == name]
    if len(skill_ids) > 1:
        raise PartError("names several skills: choose one by its id")
    return str(skill_ids[0])


def original_parts(pause: Pause) -> list[Part]:
    """Return the parts of the original message, which named no skill."""
    return [convert(part, Part) for part in pause.inputs["parts"]]


def _texts(parts: Sequence[Part]) -> list[str]:
    return [part.text for part in parts if part.text is not UNSET]
