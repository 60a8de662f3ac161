"""Conversion of module inputs to message parts, and of parts from the agent to module outputs."""

from collections.abc import Mapping, Sequence
from typing import Any

from apcore_a2a_client import (
    Artifact,
    Event,
    Message,
    Part,
    Task,
    TaskArtifactUpdateEvent,
)
from apcore_a2a_client.tasks import added_parts
from apcore_a2a_core import File
from apcore_a2a_core.files import file_properties
from apcore_a2a_core.schema import properties_of
from apcore_a2a_core.values import is_array, is_object, size_of

from .errors import RemoteFailedError, log_failure

Json = dict[str, Any]
MAX_OUTPUT = 32 * 1024 * 1024  # bytes; a character of text counts as one
TEXT = "text"
"""The member with the text in inputs and outputs of agents that publish no schemas."""
RESULT = "result"
"""The member with an output that is not an object; apcore uses the same name."""


def content_of(inputs: Mapping[str, Any], extras: Sequence[Any], *, is_typed: bool) -> list[Part]:
    """Return the parts of the message that calls a skill.

    Args:
        inputs: The inputs of the module.
        extras: Further parts of the caller's message, as JSON of A2A 1.0.
        is_typed: Whether the skill takes the inputs as data; otherwise it takes their `text`.
    """
    extra_parts = [Part.from_dict(part) for part in extras]
    if is_typed:
        return [Part(data=dict(inputs)), *extra_parts]
    text = str(inputs.get(TEXT, ""))
    return [Part(text=text), *extra_parts] if text or not extra_parts else extra_parts


class Output:
    """The output of a remote task, collected from its events.

    Args:
        module_id: The id of the skill's module, for the log.
        schema: JSON Schema of the skill's output; None if the agent publishes none.
        text_field: The member of the output that is sent as text; empty if none is.

    >>> output = Output("remote.weather.today", None, "")
    >>> event = TaskArtifactUpdateEvent("t", Artifact("a", (Part(text="Rain"),)))
    >>> [*output.add(event)], output.value
    ([{'text': 'Rain'}], {'text': 'Rain'})
    """

    def __init__(self, module_id: str, schema: Mapping[str, Any] | None, text_field: str) -> None:
        self._module_id = module_id
        self._schema = schema
        self._text_field = text_field
        self._artifacts: dict[str, list[Part]] = {}
        self._size = 0

    def __bool__(self) -> bool:
        return any(self._artifacts.values())

    @property
    def value(self) -> Json:
        """The whole output: texts are joined; with a schema, objects are merged as apcore does."""
        return self._build_output([part for parts in self._artifacts.values() for part in parts])

    def restart(self) -> None:
        """Discard the output so far."""
        self._artifacts.clear()
        self._size = 0

    def add(self, event: Event) -> list[Json]:
        """Add an event; return the new parts of the event as chunks of the output.

        Raises:
            RemoteFailedError: The output is too large.
        """
        if isinstance(event, TaskArtifactUpdateEvent):
            new_parts = [self._append(event.artifact, is_chunk=event.append)]
        elif isinstance(event, Task):
            new_parts = [self._replace(artifact) for artifact in event.artifacts]
        elif isinstance(event, Message):
            new_parts = [self._append(Artifact("", event.parts), is_chunk=True)]
        else:
            new_parts = []
        self._size += sum(_size(part) for parts in new_parts for part in parts)
        if self._size > MAX_OUTPUT:
            log_failure(self._module_id, f"its output has more than {MAX_OUTPUT} bytes")
            raise RemoteFailedError("The output of the remote agent is too large")
        return [self._build_output(parts) for parts in new_parts if parts]

    def add_message(self, message: Message | None) -> list[Json]:
        """Add the message of a completed task as its output, if it has no artifacts."""
        return self.add(message) if message and not self else []

    def _append(self, artifact: Artifact, *, is_chunk: bool) -> Sequence[Part]:
        known_parts = self._artifacts.setdefault(artifact.artifact_id, [])
        if not is_chunk:
            self._size -= sum(map(_size, known_parts))
            known_parts.clear()
        known_parts += artifact.parts
        return artifact.parts

    def _replace(self, artifact: Artifact) -> Sequence[Part]:
        """Replace an artifact with the one in a snapshot; return the parts that are new."""
        known_parts = self._artifacts.get(artifact.artifact_id, ())
        new_parts = added_parts(known_parts, artifact.parts)
        self._artifacts[artifact.artifact_id] = [*artifact.parts]
        if new_parts is not None:
            return new_parts
        self._size -= sum(map(_size, known_parts))
        return artifact.parts

    def _build_output(self, parts: Sequence[Part]) -> Json:
        data = [
            part.data
            for part in parts
            if part.text is None and part.raw is None and part.url is None
        ]
        output = self._merge_values(data)
        texts = [part.text for part in parts if part.text is not None]
        # some agents repeat their data as text: with a schema, text beside data is used only for a
        # text field
        if texts and (self._text_field or self._schema is None or not data):
            output[self._text_member] = "".join(texts)
        for part in parts:
            if part.raw is not None or part.url is not None:
                self._add_file(output, part)
        return output

    @property
    def _text_member(self) -> str:
        return self._text_field or (TEXT if self._schema is None else RESULT)

    def _merge_values(self, values: Sequence[Any]) -> Json:
        """Merge values, such as chunks; without a schema, several values become a list."""
        if self._schema is None and len(values) > 1:
            return {"data": [*values]}
        output: Json = {}
        for value in values:
            merge(output, value if is_object(value) else {RESULT: value})
        return output

    def _add_file(self, output: Json, part: Part) -> None:
        file = File(part.raw, part.url, part.filename, part.media_type)
        name = self._file_member(part.filename, output)
        earlier_files = output.get(name)
        if earlier_files is None:
            output[name] = file
        else:
            output[name] = [*(earlier_files if is_array(earlier_files) else [earlier_files]), file]

    def _file_member(self, filename: str, output: Json) -> str:
        """Return the name of a file's member: agents of this project name files after members."""
        if self._schema is None:  # the agent chooses the name, unless text or data uses it
            files = output.get(filename, [])
            only_files = all(isinstance(f, File) for f in (files if is_array(files) else [files]))
            return filename if only_files and filename not in ("", TEXT) else "file"
        members = properties_of(self._schema)
        if filename in members:
            return filename
        unused = [name for name in file_properties(self._schema) if name not in output]
        return unused[0] if unused else (RESULT if [*members] == [RESULT] else filename or "file")


def merge(output: Json, chunk: Mapping[str, Any]) -> None:
    """Merge a chunk into an output as apcore does: objects are merged, other values replaced.

    >>> output = {"a": {"x": 1}, "b": 1}
    >>> merge(output, {"a": {"y": 2}, "b": 2})
    >>> output
    {'a': {'x': 1, 'y': 2}, 'b': 2}
    """
    for name, value in chunk.items():
        earlier_value = output.get(name)
        if is_object(earlier_value) and is_object(value):
            merge(earlier_value := dict(earlier_value), value)
            output[name] = earlier_value
        else:
            output[name] = value


def allow_file_objects(schema: Mapping[str, Any]) -> Json:
    """Return an output schema with any value allowed for files: `File` objects are not JSON."""
    members = file_properties(schema)
    if not members:
        return dict(schema)
    file_schemas = {name: {"description": "A file."} for name in members}
    return {**schema, "properties": properties_of(schema) | file_schemas}


def _size(part: Part) -> int:
    if part.text is not None:
        return len(part.text)
    if part.raw is not None:
        return len(part.raw)
    return size_of(part.data) if part.url is None else len(part.url)
