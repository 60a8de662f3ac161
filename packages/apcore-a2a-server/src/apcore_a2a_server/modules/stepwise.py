"""Validation in steps, between which other threads can run.

pydantic and jsonschema-rs check a whole value in one call of native code, which holds the
interpreter lock: the event loop can't run meanwhile, even if the call is in another thread. With
the schemas made here, both libraries call a Python function for each item of a list. In this
function, Python can give the lock to a thread that has waited 5 ms for it.
"""

import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

from apcore_a2a_core.schema import map_subschemas
from apcore_a2a_core.values import is_array, is_object
from pydantic import BaseModel
from pydantic_core import SchemaValidator

from .core_schemas import UNVALIDATED

Json = dict[str, Any]


class OutOfTimeError(Exception):
    """A validation has used more CPU time than it may."""


_deadline: ContextVar[float | None] = ContextVar("apcore_a2a_validation_end", default=None)
"""Deadline of the validation in this thread, in seconds of the thread's CPU time."""


@contextmanager
def limited_time(seconds: float) -> Generator[None]:
    """Limit the CPU time of validations in this thread during the block.

    Raises:
        OutOfTimeError: The validations have used up the time.
    """
    token = _deadline.set(time.thread_time() + seconds)
    try:
        yield
    finally:
        _deadline.reset(token)


def let_others_run(value: Any) -> Any:
    """Return *value*, after Python has had a chance to run other threads.

    Raises:
        OutOfTimeError: The validation has used up its time.
    """
    deadline = _deadline.get()
    if deadline is not None and time.thread_time() > deadline:
        raise OutOfTimeError
    return value


# Models

LISTS = frozenset({"list", "tuple", "set", "frozenset"})
"""Types of core schemas that can stop at the first invalid item."""
NAMED = frozenset({"model", "dataclass", "typed-dict", "definition-ref"})
"""Types of core schemas whose label in error paths is a single name, unlike `list[int]`."""


def stepwise_validator(model: type[BaseModel]) -> SchemaValidator:
    """Return a validator that lets other threads run, and stops at a list's first invalid item.

    If it did not stop, pydantic might record an error for each item and each choice of a union,
    and each error takes some microseconds.
    """
    # pydantic may defer building the core schema to the first validation
    model.model_rebuild(_types_namespace={})
    schema: Any = _stepwise(model.__pydantic_core_schema__, allows_functions=True)
    try:
        # otherwise pydantic uses the existing validators of inner models
        return SchemaValidator(schema, _use_prebuilt=False)
    except TypeError:  # pydantic-core before 2.42 has no such option
        return SchemaValidator(schema)


def _stepwise(node: Any, *, allows_functions: bool) -> Any:
    """Return a core schema, or a part of it, in which values are validated step by step.

    Args:
        node: The schema.
        allows_functions: Whether functions may be added to *node*. False in a choice of a union:
            error paths contain the label of the choice, such as `list[int]`, and functions would
            change the label.
    """
    if isinstance(node, list | tuple):
        items = cast("Iterable[Any]", node)
        converted = [_stepwise(item, allows_functions=allows_functions) for item in items]
        return tuple(converted) if isinstance(node, tuple) else converted
    if not is_object(node):
        return node
    kind = node.get("type")
    if not isinstance(kind, str):  # a dict of schemas
        return {
            name: _stepwise(value, allows_functions=allows_functions)
            for name, value in node.items()
        }
    allows_functions = kind in NAMED or (allows_functions and kind not in ("union", "definitions"))
    result = {
        name: value if name in UNVALIDATED else _stepwise(value, allows_functions=allows_functions)
        for name, value in node.items()
    }
    if kind in LISTS:
        result["fail_fast"] = True
    if not allows_functions:
        return result
    for name in ("items_schema", "values_schema"):
        if name in result:
            result[name] = _with_function(result[name], "function-after")
    # Python's `re` may take long to match a pattern, and holds the lock meanwhile, so the function
    # is called before the match. For that, pydantic first turns JSON into a Python value. That is
    # safe only for text: for other types, strict validation accepts some values from JSON that it
    # refuses from Python.
    if kind == "str" and "pattern" in result:
        return _with_function(result, "function-before")
    return result


def _with_function(schema: Any, kind: str) -> Any:
    """Return a core schema that lets other threads run before or after a value is validated."""
    if is_array(schema):  # the items of a tuple
        return [_with_function(item, kind) for item in schema]
    function = {"type": "no-info", "function": let_others_run}
    return {"type": kind, "function": function, "schema": schema}


# JSON Schemas

TURN = "x-apcore-turn"
ITEM_KEYWORDS = ("items", "contains", "unevaluatedItems")
"""Keywords with a schema for the items of an array."""
MANY_MEMBERS = 20
"""Minimum number of objects and arrays in an `enum` for its members to be hashed."""


class Turn:
    """The keyword `TURN`, which any value matches.

    jsonschema-rs passes the schema that has the keyword, the value of the keyword, and the path of
    the schema.
    """

    def __init__(self, parent: Mapping[str, Any], value: Any, path: Any) -> None:
        pass

    def validate(self, instance: Any) -> None:
        """Let other threads run."""
        let_others_run(instance)


class HashedEnum:
    """The keyword `enum` with a lookup; jsonschema-rs would compare a value with each member."""

    def __init__(self, parent: Mapping[str, Any], value: Any, path: Any) -> None:
        self._members = frozenset(map(_hashable, value))

    def validate(self, instance: Any) -> None:
        """Check that a value is one of the members.

        Raises:
            ValueError: The value is not a member.
        """
        if _hashable(instance) not in self._members:
            raise ValueError("Is not one of the values")


def stepwise_schema(schema: Json) -> tuple[Json, Mapping[str, Any]]:
    """Return a JSON Schema that lets other threads run, and the classes of its custom keywords."""
    keywords: dict[str, Any] = {TURN: Turn}
    if _has_large_enum(schema):
        keywords["enum"] = HashedEnum
    return _with_turns(schema), keywords


def _with_turns(schema: Any) -> Any:
    if is_array(schema):
        return [*map(_with_turns, schema)]
    if not is_object(schema):
        return schema
    result = map_subschemas(schema, _with_turns)
    for name in ITEM_KEYWORDS:
        if is_object(result.get(name)):
            result[name] = {TURN: True, **result[name]}
    return result


def _has_large_enum(schema: Any) -> bool:
    if is_array(schema):
        return any(map(_has_large_enum, schema))
    if not is_object(schema):
        return False
    members = schema.get("enum")
    if is_array(members):
        count = sum(is_object(member) or is_array(member) for member in members)
        if count >= MANY_MEMBERS:
            return True
    return any(map(_has_large_enum, schema.values()))


def _hashable(value: Any) -> Any:
    """Return a hashable value that is equal for equal JSON (JSON Schema 2020-12 core §4.2.2)."""
    if is_object(value):
        return frozenset((name, _hashable(member)) for name, member in value.items())
    if is_array(value):
        return tuple(map(_hashable, value))
    return (bool, value) if isinstance(value, bool) else value  # for Python, True == 1
