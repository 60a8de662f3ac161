"""Conversion between A2A and frameworks: the defaults of the options `part_in` and `part_out`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, TypeAlias, TypeGuard, cast

from apcore_a2a_core import File, Progress, Usage
from pydantic import BaseModel

from .turn import Turn, file_from

Json = dict[str, Any]
Chunk: TypeAlias = str | Json | File | Usage | Progress
"""A piece of an agent's answer: text, data, a file, usage or progress."""

FILES = "files"
"""Name of the output member with the files."""
TEXT = "text"
"""Name of the output member with the text; by default, also of the input for the user's text."""
BINARY = "application/octet-stream"
"""The media type assumed for files without one."""
DENIED = "The user has denied this call."
"""The text that a model gets instead of the result of a tool call that the user has denied."""


def part_in(part: Mapping[str, Any], turn: Turn) -> Any:
    """Convert a part of a message to text, a `File`, or the value of its data.

    >>> part_in({"data": {"n": 1}}, turn=None)
    {'n': 1}
    """
    if "text" in part:
        return part["text"]
    return file_from(part) or part.get("data")


def part_out(event: Any, turn: Turn) -> Any:
    """Return the chunk for a value that an agent yields; chunks and None are returned unchanged.

    Models, dataclasses and mappings become data, bytes become files, and other values become
    ``{"result": …}``.

    >>> part_out(3, turn=None)
    {'result': 3}
    """
    if event is None or isinstance(event, str | File | Usage | Progress):
        return event
    if isinstance(event, bytes | bytearray):
        return File(event)
    if isinstance(event, BaseModel):
        return event.model_dump()  # not as JSON: apcore validates Python values, such as dates
    if is_dataclass(event) and not isinstance(event, type):
        return to_plain(event)  # `asdict` would convert files, too
    if is_mapping(event):
        return {str(name): value for name, value in event.items()}
    return {"result": event}


def to_plain(value: Any) -> Any:
    """Turn models, dataclasses and collections into dicts and lists; leave files as they are."""
    if isinstance(value, BaseModel):
        return to_plain(value.model_dump())
    if is_dataclass(value) and not isinstance(value, type | File):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    if is_mapping(value):
        return {str(name): to_plain(member) for name, member in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_plain(item) for item in cast("Iterable[Any]", value)]
    return value


def text_of(value: Any) -> str:
    """Return a text as it is, and another value as JSON.

    >>> text_of("Hello"), text_of({"n": 1})
    ('Hello', '{"n": 1}')
    """
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def is_mapping(value: object) -> TypeGuard[Mapping[Any, Any]]:
    """Return whether a value is a mapping."""
    return isinstance(value, Mapping)


def meta_key(system: Literal["adk", "a2a"], key: str) -> str:
    """Return a key of metadata with a prefix for the *system* that its value comes from.

    `adk_` marks values of ADK in metadata of A2A. `a2a:` marks values of A2A in the metadata of
    ADK's events.

    >>> meta_key("adk", "is_long_running"), meta_key("a2a", "task_id")
    ('adk_is_long_running', 'a2a:task_id')
    """
    return f"adk_{key}" if system == "adk" else f"a2a:{key}"


def as_output(chunk: str | Json | File) -> Json:
    """Return a chunk as an output of a module.

    >>> as_output("Goodbye")
    {'text': 'Goodbye'}
    """
    if isinstance(chunk, str):
        return {TEXT: chunk}
    return {FILES: [chunk]} if isinstance(chunk, File) else chunk


class Output:
    """The sum of a turn's chunks: joined texts, all files, and the last value of any other member.

    >>> output = Output()
    >>> for chunk in ("Good", "bye", {"n": 1}):
    ...     output.add(as_output(chunk))
    >>> output.value()
    {'n': 1, 'text': 'Goodbye'}
    """

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._files: list[File] = []
        self._data: Json = {}

    def add(self, chunk: Json) -> None:
        """Add a chunk that `as_output` has converted."""
        for name, value in chunk.items():
            if name == TEXT and isinstance(value, str):
                self._texts.append(value)
            elif name == FILES and isinstance(value, list):
                self._files += value
            else:
                self._data[name] = value

    def value(self) -> Json:
        """Return the output so far."""
        text = {TEXT: "".join(self._texts)} if self._texts else {}
        files = {FILES: self._files} if self._files else {}
        return {**self._data, **text, **files}
