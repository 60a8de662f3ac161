"""The core schema of a pydantic model: its patterns and unions."""

import re
from collections.abc import Iterable, Iterator
from math import log
from typing import Any, cast

from apcore_a2a_core.values import is_array, is_object
from pydantic import BaseModel

Json = dict[str, Any]

UNVALIDATED = frozenset({"computed_fields", "default", "metadata", "serialization"})
"""Members of a core schema in which nothing is validated."""


def python_patterns(schema: Any) -> Json:
    """Return the patterns of a pydantic model that Python's `re` matches instead of Rust's regex.

    They are read from pydantic's core schema, because a JSON Schema lacks the flags of patterns,
    some aliases of fields, and the content of fields of pydantic's type `Json`.

    Returns:
        A dict with `patterns`, each with its flags and `TEXT_OPTIONS`, and `has_json`: whether any
        texts are parsed as JSON.
    """
    patterns: list[Json] = []
    has_json = False
    if not isinstance(schema, type) or not issubclass(schema, BaseModel):
        return {"patterns": patterns, "has_json": has_json}
    schema.model_rebuild(_types_namespace={})  # builds a core schema that pydantic has deferred
    for node, config in _core_schemas(schema.__pydantic_core_schema__):
        has_json = has_json or node["type"] == "json"
        pattern = _python_pattern(node, config) if node["type"] == "str" else None
        if pattern is not None and pattern not in patterns:
            patterns.append(pattern)
    return {"patterns": patterns, "has_json": has_json}


TEXT_OPTIONS = {
    "max_length": "str_max_length",
    "strip_whitespace": "str_strip_whitespace",
    "coerce_numbers_to_str": "coerce_numbers_to_str",
}
"""Options that affect the text that is matched, and their names in pydantic's configs."""


def _python_pattern(node: Json, config: Json) -> Json | None:
    """Return the pattern of a text field; None if it has none for Python's `re`."""
    pattern = node.get("pattern")
    engine = node.get("regex_engine", config.get("regex_engine"))
    if isinstance(pattern, str) and engine == "python-re":
        pattern = re.compile(pattern)
    if not isinstance(pattern, re.Pattern):
        return None
    compiled = cast("re.Pattern[str]", pattern)
    options = {
        key: node.get(key, config.get(name))
        for key, name in TEXT_OPTIONS.items()
        if key in node or name in config
    }
    flags = compiled.flags & ~re.DEBUG  # DEBUG would print
    return {"pattern": compiled.pattern, "flags": flags, "options": options}


MAX_TRIES = 2000
"""Maximum number of choices of unions that pydantic may try for one value; 200 take about 1 ms."""


def depth_limit(schema: Any) -> int | None:
    """Return the depth to which values of a pydantic model are checked in bounded time.

    pydantic tries all choices of a union, and in each of them all choices of the unions inside. If
    several choices are recursive, the work grows exponentially with the depth of a value. A
    discriminator avoids that.

    Returns:
        The depth of nested objects and arrays; None if it need not be limited.
    """
    if not isinstance(schema, type) or not issubclass(schema, BaseModel):
        return None
    schema.model_rebuild(_types_namespace={})  # builds a core schema that pydantic has deferred
    nodes = [node for node, _ in _core_schemas(schema.__pydantic_core_schema__)]
    definitions = {
        body["ref"]: _references(body)
        for node in nodes
        if node["type"] == "definitions"
        for body in node["definitions"]
    }
    recursive = {name for name in definitions if name in _reachable(name, definitions)}
    branches = [
        sum(not recursive.isdisjoint(_references(choice)) for choice in node["choices"])
        for node in nodes
        if node["type"] == "union"
    ]
    max_branches = max(branches, default=0)
    return int(log(MAX_TRIES, max_branches)) if max_branches > 1 else None


def _references(schema: Any) -> set[str]:
    schemas = _core_schemas(schema)
    return {node["schema_ref"] for node, _ in schemas if node["type"] == "definition-ref"}


def _reachable(name: str, definitions: dict[str, set[str]]) -> set[str]:
    """Return the names of the definitions that *name* refers to, directly or through others."""
    reachable, pending = set[str](), [name]
    while pending:
        new_names = definitions.get(pending.pop(), set()) - reachable
        reachable |= new_names
        pending += new_names
    return reachable


def is_deeper(value: Any, depth: int) -> bool:
    """Return whether *value* has more levels of nested objects and arrays than *depth*.

    >>> is_deeper([{"a": 1}], 2), is_deeper([{"a": []}], 2)
    (False, True)
    """
    level: list[Any] = [value]
    for _ in range(depth + 1):
        containers = [item for item in level if is_object(item) or is_array(item)]
        if not containers:
            return False
        level = []
        for container in containers:
            level += container.values() if is_object(container) else container
    return True


def _core_schemas(root: Any) -> Iterator[tuple[Json, Json]]:
    """Yield a core schema of pydantic and those in it, each with the config that applies to it."""
    pending: list[tuple[Any, Json]] = [(root, {})]
    seen = set[tuple[int, int]]()
    while pending:
        node, config = pending.pop()
        if (id(node), id(config)) in seen:
            continue
        seen.add((id(node), id(config)))
        if is_object(node):
            is_schema = isinstance(node.get("type"), str)  # else it is a dict of schemas
            config = node.get("config", config) if is_schema else config
            if is_schema:
                yield node, config
            members: Iterable[Any] = (
                node[key] for key in node if not (is_schema and key in UNVALIDATED)
            )
        else:
            members = cast("Iterable[Any]", node)
        pending += [
            (member, config) for member in members if isinstance(member, dict | list | tuple)
        ]
