"""Agents made from runnables of LangChain, such as models, chains and tools."""

# LangChain is not installed where the types are checked, so its objects are Any.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing
from json import dumps
from typing import Any, TypeAlias

from apcore_a2a_core import File, Usage
from apcore_a2a_core.media_types import type_of_file
from apcore_a2a_core.schema import properties_of, resolved, types_of, without
from pydantic.errors import PydanticUserError

from . import parts
from .agent import Agent, first_paragraph, maybe_await, text_model
from .parts import Json, is_mapping, to_plain
from .turn import Turn, file_from

Config: TypeAlias = Mapping[str, Any] | Callable[[Turn], Any]
"""A `RunnableConfig`, or a function of the turn that returns it."""

FILE_BLOCKS = frozenset({"audio", "file", "image", "video"})
"""Types of content blocks that are files."""
HISTORY = ("history", "chat_history")
"""Inputs that get the earlier messages of the conversation."""
MESSAGES = "messages"
"""The input that gets the earlier messages and the new message."""
LANGUAGE_MODEL_TYPE = "langchain_core.language_models.base.BaseLanguageModel"
MESSAGE_HISTORY_TYPE = "langchain_core.runnables.history.RunnableWithMessageHistory"


def part_in(part: Mapping[str, Any], turn: Turn) -> Json:
    """Convert a part of a message to a content block of LangChain.

    >>> part_in({"raw": "YSxi", "mediaType": "text/csv", "filename": "t.csv"}, turn=None)
    {'type': 'file', 'base64': 'YSxi', 'mime_type': 'text/csv', 'extras': {'filename': 't.csv'}}
    """
    if "text" in part:
        return {"type": "text", "text": part["text"]}
    if "data" in part:
        return {"type": "text", "text": dumps(part["data"], ensure_ascii=False)}
    name = str(part.get("filename", ""))
    media_type = part.get("mediaType") or type_of_file(name)
    kind = media_type.partition("/")[0]
    block = {
        "type": kind if kind in FILE_BLOCKS else "file",
        **({"url": part["url"]} if "url" in part else {"base64": part["raw"]}),
        "mime_type": media_type,
    }
    return {**block, "extras": {"filename": name}} if name else block


def part_out(event: Any, turn: Turn) -> Any:
    """Convert an output of a runnable to chunks; a message becomes its texts and files.

    >>> part_out({"n": (1, 2)}, turn=None)
    {'n': [1, 2]}
    """
    if hasattr(event, "content_blocks"):
        return chunks_of(event)
    if isinstance(event, str | bytes | bytearray) or not hasattr(event, "__iter__"):
        return parts.part_out(event, turn)
    return parts.part_out(to_plain(event), turn)


def chunks_of(message: Any) -> list[str | File]:
    """Return the texts and files of a message; thoughts and tool calls are left out."""
    if isinstance(message.content, str):
        return [message.content] if message.content else []
    chunks = [_chunk_of(block) for block in message.content_blocks]
    return [chunk for chunk in chunks if chunk]


def past_messages(turn: Turn) -> list[Any]:
    """Return the conversation before a turn as messages of LangChain."""
    from langchain_core.messages import AIMessage, HumanMessage

    kinds: Mapping[str, Any] = {"user": HumanMessage, "agent": AIMessage}
    return [kinds[message.role](message.text) for message in turn.messages if message.text]


async def new_message(agent: Agent, turn: Turn) -> Any:
    """Return the message of the user, with its files and data."""
    from langchain_core.messages import HumanMessage

    text = [{"text": turn.text}] if turn.text else []
    contents = await agent.convert_parts([*text, *turn.parts], turn)
    is_text = len(contents) == 1 and contents[0] == {"type": "text", "text": turn.text}
    return HumanMessage(turn.text if is_text else contents or "")


async def merge_config(config: Config | None, turn: Turn, **bridge_config: Any) -> Any:
    """Return *config* for a turn, merged with the config of the bridge."""
    from langchain_core.runnables.config import merge_configs

    turn_config = await maybe_await(config(turn)) if callable(config) else config
    return merge_configs(turn_config, bridge_config)


def usage_counter() -> Any:
    """Return a callback handler with the `usage` of all models that a run calls."""
    from langchain_core.callbacks import BaseCallbackHandler

    class UsageCounter(BaseCallbackHandler):  # type: ignore[misc]  # LangChain may be missing
        run_inline = True

        def __init__(self) -> None:
            self._counts: list[Mapping[str, int]] = []  # threads append to it, too

        def on_llm_end(self, response: Any, **details: Any) -> None:
            for generations in response.generations:
                message = getattr(generations[0], "message", None) if generations else None
                self._counts.append(getattr(message, "usage_metadata", None) or {})

        @property
        def usage(self) -> Usage:
            sums = [
                sum(count.get(name, 0) for count in self._counts)
                for name in ("input_tokens", "output_tokens")
            ]
            return Usage(*sums)

    return UsageCounter()


class LangChainAgent(Agent):
    """A runnable of LangChain: a chat model, a chain, a tool.

    A model gets the messages of the conversation. Inputs called `history` or `chat_history` get the
    conversation so far, and an input called `messages` also gets the new message. If the only
    remaining input is text, it gets the text of the user; otherwise the remaining inputs are the
    typed inputs of the skill. A `RunnableWithMessageHistory` has its own memory, so it gets no past
    messages.

    Args:
        runnable: The runnable.
        run_config: Its `RunnableConfig`, or a function of the turn that returns it. The bridge adds
            `configurable.session_id`, for `RunnableWithMessageHistory`.
        options: Options of `Agent`. `output_key` is the member of the runnable's output to send.
    """

    default_part_in = staticmethod(part_in)
    default_part_out = staticmethod(part_out)

    def __init__(self, runnable: Any, *, run_config: Config | None = None, **options: Any) -> None:
        doc = first_paragraph(getattr(runnable, "description", None))
        defaults: Json = {"name": runnable.get_name(), "description": doc}
        super().__init__(**{**defaults, **options})
        self._runnable = runnable
        self._config = run_config
        self._takes_messages = _is_a(_first_step(runnable), LANGUAGE_MODEL_TYPE)
        fields = {} if self._takes_messages else _inputs_of(runnable)
        self._has_memory = _is_a(runnable, MESSAGE_HISTORY_TYPE)
        self._history_inputs = (
            [] if self._has_memory else [name for name in HISTORY if name in fields]
        )
        self._has_messages_input = MESSAGES in fields
        names = [name for name in fields if name not in (*HISTORY, MESSAGES)]
        self._takes_mapping = bool(names) or self._has_messages_input
        if options.get("input_key"):
            self._takes_mapping = True
        elif len(names) == 1 and "string" in (types_of(fields[names[0]]) or {"string"}):
            (self.input_key,) = names
            self.input_schema = text_model(self.input_key)
        elif names and not options.get("input_mapper"):
            self.input_schema = _schema_without(
                runnable.get_input_schema(), fields.keys() - {*names}
            )

    async def run(self, turn: Turn) -> AsyncIterator[Any]:
        """Stream the output: text and messages as they come, then the sum of the other values."""
        counter = usage_counter()
        config = await merge_config(
            self._config,
            turn,
            configurable={"session_id": turn.session_id},
            callbacks=[counter],
        )
        total: Any = None
        try:
            runnable_input = await self._input(turn)
            async with aclosing(self._runnable.astream(runnable_input, config)) as chunks:
                async for chunk in chunks:
                    value = self._member(chunk)
                    if isinstance(value, str) or hasattr(value, "content_blocks"):
                        yield value
                    else:
                        total = _add_outputs(total, value)
        finally:
            turn.add_usage(counter.usage)
        if total is not None:
            yield total

    async def _input(self, turn: Turn) -> Any:
        if self.input_mapper is not None:
            return await self.mapped_input(turn)
        if self._takes_messages:
            return [*past_messages(turn), await new_message(self, turn)]
        if not self._takes_mapping:
            return turn.text
        inputs = {self.input_key: turn.text} if self.takes_text else self._own_inputs(turn)
        inputs |= {name: past_messages(turn) for name in self._history_inputs}
        if self._has_messages_input:
            history = [] if self._has_memory else past_messages(turn)
            return {**inputs, MESSAGES: [*history, await new_message(self, turn)]}
        return inputs

    def _member(self, chunk: Any) -> Any:
        """Return the value to send for a chunk: its member `output_key`, or the whole chunk."""
        if self.output_key is None or not is_mapping(chunk):
            return chunk
        return chunk.get(self.output_key)


def _chunk_of(block: Mapping[str, Any]) -> str | File | None:
    """Return the text or the file in a content block; None if it has neither."""
    if block.get("type") == "text":
        return str(block.get("text", ""))
    if block.get("type") not in FILE_BLOCKS:
        return None
    extras = block.get("extras") or {}
    name = str(block.get("filename") or extras.get("filename") or "")
    media_type = str(block.get("mime_type", ""))
    if isinstance(block.get("url"), str):
        return File(url=block["url"], name=name, media_type=media_type)
    part = {"raw": block.get("base64"), "filename": name, "mediaType": media_type}
    return file_from(part)


def _add_outputs(total: Any, value: Any) -> Any:
    """Return the sum of two outputs, or the newer one if they can't be added, as LangChain does."""
    if total is None or value is None:
        return total if value is None else value
    try:
        return total + value
    except TypeError:
        return value


def _is_a(value: Any, name: str) -> bool:
    """Return whether the type of a value, or an ancestor of that type, has this full name."""
    return any(f"{kind.__module__}.{kind.__qualname__}" == name for kind in type(value).__mro__)


def _first_step(runnable: Any) -> Any:
    """Return the first runnable of a sequence, without arguments that are bound to it."""
    while True:
        attributes = vars(runnable) if hasattr(runnable, "__dict__") else {}
        inner = attributes.get("first", attributes.get("bound"))
        if inner is None or _is_a(runnable, MESSAGE_HISTORY_TYPE):
            return runnable
        runnable = inner


def _inputs_of(runnable: Any) -> Mapping[str, Any]:
    """Return the schemas of a runnable's inputs by name; empty if its input is not an object."""
    try:
        schema = runnable.get_input_schema().model_json_schema()
    except PydanticUserError:  # a type that has no schema
        return {}
    properties = properties_of(resolved(schema, schema))
    return {name: resolved(member, schema) for name, member in properties.items()}


def _schema_without(model: Any, names: Iterable[str]) -> Any:
    """Return the JSON Schema of a model without some of its members."""
    root: Json = model.model_json_schema()
    schema = without({**root, **resolved(root, root)}, "$ref")
    properties = {n: member for n, member in schema["properties"].items() if n not in {*names}}
    required = [name for name in schema.get("required", ()) if name in properties]
    return {**schema, "properties": properties, "required": required}
