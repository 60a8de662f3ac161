"""The base of all bridges: an agent of a framework as an apcore module."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, TypeAlias

from apcore import Context, ModuleAnnotations, ModuleExample
from apcore_a2a_core import Progress, Prompt, Usage
from apcore_a2a_core.schema import TEXT_FIELD
from apcore_a2a_core.values import is_array
from pydantic import BaseModel, ConfigDict, Field, create_model

from . import parts
from .parts import TEXT, Chunk, Json, Output, as_output, is_mapping
from .turn import ANSWER, Turn

PartIn: TypeAlias = Callable[[Mapping[str, Any], Turn], Any]
PartOut: TypeAlias = Callable[[Any, Turn], Any]
MAX_ID = 64
"""Maximum number of characters of an id made from an agent's name, without the prefix `agent_`."""
RESERVED = frozenset({"acl", "apcore", "core", "internal", "plugin", "schema", "system"})
"""Words that apcore reserves as the first segment of an id."""


class AgentReply(BaseModel):
    """The output of an agent: its text and any other members."""

    model_config = ConfigDict(extra="allow", json_schema_extra={TEXT_FIELD: TEXT})

    text: str = Field(default="", description="What the agent says.")


def text_model(*names: str) -> type[BaseModel]:
    """Return a model with a text field for each of the names."""
    if names == (TEXT,):
        return Prompt
    fields: dict[str, Any] = {name: (str, Field(description=f"The {name}.")) for name in names}
    model: type[BaseModel] = create_model("Inputs", **fields)
    return model


async def maybe_await(value: Any) -> Any:
    """Return *value*, awaited if it is awaitable: callbacks may be asynchronous."""
    result: Any = await value if inspect.isawaitable(value) else value
    return result


def id_of(name: str) -> str:
    """Return the skill id that is made from an agent's name.

    >>> id_of("Weather Agent"), id_of("2nd")
    ('weather_agent', 'agent_2nd')
    """
    words = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:MAX_ID].rstrip("_")
    is_valid = words[:1].isalpha() and words not in RESERVED
    return words if is_valid else f"agent_{words}".rstrip("_")


class Agent:
    """An agent as an apcore module. A bridge is a subclass with the method `run`.

    Calls with and without streaming both use `run`. Callbacks may be asynchronous.

    Args:
        name: The name of the agent, from which the id of its skill is made.
        description: A description of the agent; by default, its docstring or name.
        version: The version of the agent.
        tags: The tags of its skill.
        examples: Example messages, for its Agent Card.
        input_mapper: Function that takes the inputs and the turn; it returns the framework's input.
        input_key: The input that gets the text of the message.
        output_key: The member of the framework's output that has the text; not all bridges use this
            option.
        before: Function that takes the turn, called first; it may change the turn, or raise to
            refuse it.
        on_event: Function that takes the turn, the framework's event and one of its chunks; it
            returns the chunk to send instead, or None to send none. If it raises, the task fails.
        after: Function that takes the turn, the output and the error; one of the last two is None.
            A pause by `ask` or `approve` counts as an error. `after` is not called if the client
            cancels the task, or if the turn reaches its time limit.
        part_in: Function that takes a part of the message (JSON of A2A 1.0) and the turn; it
            returns the part for the framework, or None to drop it.
        part_out: Function that takes a framework's event and the turn; it returns a chunk, a list
            of chunks, or None to drop the event.
        approval: Whether each call needs the user's approval.
        timeout: Time limit of a turn, in seconds.
        annotations: The behavior of the module; set `idempotent` if another replica may repeat a
            turn after the replica that ran it was lost.

    Attributes:
        module_id: The id of the skill, unless the module is registered with another id.

    Example:
        ```python
        from apcore_a2a_bridges import Agent, Usage


        class Parrot(Agent):
            async def run(self, turn):
                for word in turn.text.split():
                    yield word + " "
                yield Usage(input_tokens=len(turn.text))


        print(Parrot().module_id)
        #> parrot
        ```
    """

    input_schema: Any = Prompt
    output_schema: Any = AgentReply
    default_part_in: PartIn = staticmethod(parts.part_in)
    default_part_out: PartOut = staticmethod(parts.part_out)

    def __init__(
        self,
        *,
        name: str = "",
        description: str = "",
        version: str = "",
        tags: Iterable[str] = ("agent",),
        examples: Iterable[str] = (),
        input_mapper: Callable[[Json, Turn], Any] | None = None,
        input_key: str = "",
        output_key: str | None = None,
        before: Callable[[Turn], Any] | None = None,
        on_event: Callable[[Turn, Any, Chunk], Any] | None = None,
        after: Callable[[Turn, Json | None, BaseException | None], Any] | None = None,
        part_in: PartIn | None = None,
        part_out: PartOut | None = None,
        approval: bool = False,
        timeout: float | None = None,
        annotations: ModuleAnnotations | None = None,
    ) -> None:
        self.name = name or type(self).__name__
        self.module_id = id_of(self.name)
        self.description = description or _own_doc(type(self)) or f"The agent {self.name}."
        self.version = version or "1.0.0"
        self.tags = [*tags]
        self.input_key = input_key or TEXT
        if input_key:
            self.input_schema = text_model(input_key)
        self.output_key = output_key
        self.input_mapper = input_mapper
        self.before = before
        self.on_event = on_event
        self.after = after
        self.part_in: PartIn = part_in or self.default_part_in
        self.part_out: PartOut = part_out or self.default_part_out
        self.examples = [ModuleExample(text, {self.input_key: text}) for text in examples]
        base = annotations or ModuleAnnotations(open_world=True)
        self.annotations = replace(
            base, streaming=True, requires_approval=approval or base.requires_approval
        )
        if timeout is not None:
            if not timeout > 0:
                raise ValueError(f"timeout must be more than 0 seconds, not {timeout}")
            self.resources = {"timeout": timeout * 1000}  # apcore takes milliseconds

    @property
    def metadata(self) -> Json:
        """The presentation of the skill over A2A."""
        has_text_input = self.input_key in self._input_names
        return {"display": {"a2a": {"alias": self.name, "files": has_text_input}}}

    @property
    def takes_text(self) -> bool:
        """Whether the text of the user is the agent's only input."""
        return self._input_names == {self.input_key}

    @property
    def _input_names(self) -> set[str]:
        """The names of the inputs, if the schema is a model."""
        return {*getattr(self.input_schema, "model_fields", {})}

    def run(self, turn: Turn) -> AsyncIterator[Any]:
        """Yield the answer of the agent: text, dicts, `File`, `Usage` and `Progress`.

        Subclasses define this one method, as an asynchronous generator. `part_out` converts the
        yielded values, so they may be events of a framework.
        """
        raise NotImplementedError

    async def abandoned(self, turn: Turn) -> None:
        """Clean up when a paused task ends without another turn; subclasses may override this."""

    async def close(self) -> None:
        """Release the resources of the agent.

        Called when the agent's module is unregistered, and when a server that has loaded the
        agent shuts down.
        """

    async def execute(self, inputs: Json, context: Context[Any]) -> Json:
        """Run a turn, and return its whole output."""
        output = Output()
        async with aclosing(self.stream(inputs, context)) as chunks:
            async for chunk in chunks:
                output.add(chunk)
        return output.value()

    async def stream(self, inputs: Json, context: Context[Any]) -> AsyncGenerator[Json]:
        """Run a turn, and yield its output in chunks."""
        turn, output = self._turn(inputs, context), Output()
        try:
            if self.before is not None:
                await maybe_await(self.before(turn))
            async with aclosing(as_generator(self.run(turn))) as events:
                async for event in events:
                    for chunk in await self._chunks(event, turn):
                        if isinstance(chunk, Usage):
                            turn.add_usage(chunk)
                        elif isinstance(chunk, Progress):
                            await turn.progress(chunk.text, chunk.data)
                        elif chunk:
                            output.add(as_output(chunk))
                            yield as_output(chunk)
        except Exception as error:  # frameworks may raise any exception, and `after` gets it
            if self.after is not None:
                await maybe_await(self.after(turn, None, error))
            raise
        if self.after is not None:
            await maybe_await(self.after(turn, output.value(), None))

    async def on_abandoned(self, inputs: Json, context: Context[Any]) -> None:
        """Call `abandoned`; servers call this when a paused task has ended without another turn."""
        await self.abandoned(self._turn(inputs, context))

    def on_unload(self) -> None:
        """Close the agent when its module is unregistered."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            asyncio.run(maybe_await(self.close()))
        else:
            task = loop.create_task(maybe_await(self.close()))
            _closing_tasks.add(task)
            task.add_done_callback(_closing_tasks.discard)

    async def mapped_input(self, turn: Turn) -> Any:
        """Return the framework's input.

        If there is an `input_mapper`, return its result. Otherwise, if `takes_text` is true, return
        the text of the user. Otherwise, return the inputs, without the user's `answer` to a
        question if the schema does not declare `answer`.
        """
        if self.input_mapper is not None:
            return await maybe_await(self.input_mapper(turn.inputs, turn))
        if self.takes_text:
            return turn.text
        return self._own_inputs(turn)

    async def contents(self, turn: Turn) -> list[Any]:
        """Return the parts of the message for the framework: a text, and then the other parts.

        The text is what `mapped_input` returns, as JSON unless it is text already.
        """
        text = parts.text_of(await self.mapped_input(turn))
        first = await self.convert_parts([{"text": text}] if text else [], turn)
        return first + await self.convert_parts(turn.parts, turn)

    async def convert_parts(self, a2a_parts: Iterable[Mapping[str, Any]], turn: Turn) -> list[Any]:
        """Convert A2A parts to parts for the framework, with `part_in`."""
        contents = [await maybe_await(self.part_in(part, turn)) for part in a2a_parts]
        return [content for content in contents if content is not None]

    def _own_inputs(self, turn: Turn) -> Json:
        """Return the inputs, without the user's `answer` if the schema does not declare it."""
        inputs = {**turn.inputs}
        if ANSWER in inputs and not _declares(self.input_schema, ANSWER):
            del inputs[ANSWER]
        return inputs

    def _turn(self, inputs: Json, context: Context[Any]) -> Turn:
        text = inputs.get(self.input_key)
        config: Mapping[str, Any] = getattr(self.input_schema, "model_config", {})
        answer_field = None if config.get("extra") == "forbid" else ANSWER
        return Turn(inputs, context, text if isinstance(text, str) else "", answer_field)

    async def _chunks(self, event: Any, turn: Turn) -> list[Any]:
        """Convert an event to chunks, with `part_out` and `on_event`."""
        result = await maybe_await(self.part_out(event, turn))
        chunks: list[Any] = result if is_array(result) else [result]
        if self.on_event is not None:
            chunks = [
                await maybe_await(self.on_event(turn, event, chunk))
                for chunk in chunks
                if chunk is not None
            ]
        # the callbacks may return any value, which the default `part_out` converts to a chunk
        return [parts.part_out(chunk, turn) for chunk in chunks if chunk is not None]


_closing_tasks: set[asyncio.Task[Any]] = set()
"""The asyncio tasks that close agents; an event loop has only weak references to its tasks."""


def _declares(schema: Any, name: str) -> bool:
    """Return whether a model or a JSON Schema declares an input."""
    if hasattr(schema, "model_fields"):
        return name in schema.model_fields
    # servers replace a JSON Schema with an object that has `model_json_schema`
    json_schema = schema if is_mapping(schema) else schema.model_json_schema()
    return name in json_schema.get("properties", {})


def _own_doc(kind: type[Agent]) -> str:
    """Return the first paragraph of a subclass's docstring; empty for classes of this package."""
    if kind.__module__.partition(".")[0] == __name__.partition(".")[0]:
        return ""
    return first_paragraph(kind.__doc__)


def first_paragraph(docstring: str | None) -> str:
    """Return the first paragraph of a docstring in one line; empty if there is none."""
    return " ".join(inspect.cleandoc(docstring or "").partition("\n\n")[0].split())


async def as_generator(values: Any) -> AsyncGenerator[Any]:
    """Yield the values of a generator, an iterator or a coroutine; close a generator at the end."""
    if inspect.isawaitable(values):  # `async def run` with a return, instead of a yield
        yield await values
        return
    try:
        async for value in values:
            yield value
    finally:
        close = getattr(values, "aclose", None)  # only generators have it
        if close is not None:
            await close()
