"""Compiled graphs of LangGraph as agents; LangChain's `create_agent` returns such graphs, too."""

# LangGraph is not installed where the types are checked, so its objects are Any.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import asyncio
import logging
import sys
import typing
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing, suppress
from typing import Any, NamedTuple, NoReturn, TypeAlias

from apcore import ModuleError
from apcore_a2a_core import File, Progress, Usage
from pydantic import BaseModel, TypeAdapter, create_model

from . import langchain, parts
from .agent import Agent, maybe_await
from .langchain import (
    MESSAGES,
    Config,
    merge_config,
    new_message,
    past_messages,
    usage_counter,
)
from .parts import Json, is_mapping, to_plain
from .turn import Turn

logger = logging.getLogger("apcore_a2a.langgraph")

Event: TypeAlias = tuple[str, Any]
"""A pair that `part_out` converts: the stream mode, and an item of LangGraph's stream."""

AI_TYPES = ("ai", "AIMessageChunk")
"""Types of messages that a model writes: whole messages, and chunks of streamed ones."""
INTERRUPT_ID, CALL_COUNT = "langgraph_interrupt", "langgraph_calls"
"""Members of a pause's state: the id of the interrupt, and the number of tool calls to decide on.

The number is None if LangChain's middleware waits for a single decision, and not for a list.
"""
INTERRUPTS = "__interrupt__"
"""The member of an update of LangGraph that lists interrupts."""
MODES = ["messages", "updates", "custom", "values"]
QUESTION_KEYS = ("question", "query", "message", "description", "text", "prompt")
"""Members of an interrupt's value that may be its question."""
NO_QUESTION = "The agent needs an answer."
STRUCTURED = "structured_response"
"""The member of the state that `create_agent(response_format=…)` fills."""
YES_OR_NO = {"approve", "reject"}
"""Decisions that an approval can express."""


class CheckpointError(ModuleError, RuntimeError):
    """A graph can't pause or resume: it has no checkpointer, or has lost its saved state."""

    def __init__(self, message: str) -> None:
        super().__init__(code="CHECKPOINT_MISSING", message=message)


def part_in(part: Mapping[str, Any], turn: Turn) -> Json:
    """Convert a part of a message to a content block of LangChain.

    >>> part_in({"text": "Hello"}, turn=None)
    {'type': 'text', 'text': 'Hello'}
    """
    return langchain.part_in(part, turn)


def part_out(event: Any, turn: Turn) -> Any:
    """Convert an event of LangGraph's stream, a pair of stream mode and item, to chunks.

    Messages become text and files. Items of the custom stream become progress, unless they are
    chunks already: `File`, `Usage` or `Progress`. Final values are converted by `parts.part_out`;
    updates are dropped.

    >>> part_out(("custom", "Searching"), turn=None)
    Progress(text='Searching', data=None)
    """
    mode, item = event
    if mode == "messages":
        return langchain.chunks_of(item[0])
    if mode == "custom":
        return _custom_chunk(item)
    return parts.part_out(to_plain(item), turn) if mode == "values" else None


class LangGraphAgent(Agent):
    """A compiled graph: a chat agent if it takes messages or a text, or else a typed skill.

    With a checkpointer, the graph remembers each conversation of a caller in a LangGraph thread,
    and `interrupt()` asks the user. Without a checkpointer, the graph gets the messages so far.

    Args:
        graph: The graph that `StateGraph.compile`, `create_agent` or `@entrypoint` returns.
        nodes: The nodes whose messages are the answer; by default, all of them.
        checkpointer: The checkpointer, for a graph compiled without one; an asynchronous context
            manager that opens it; or a function, called in the server's event loop, that returns
            one of these.
        run_config: The `RunnableConfig` of each run, or a function of the turn that returns it; the
            bridge adds `configurable.thread_id`.
        context: The runtime context of each run, or a function of the turn that returns it.
        options: Options of `Agent`. `output_key` is the member of the final state to send, in
            place of messages.
    """

    default_part_in = staticmethod(part_in)
    default_part_out = staticmethod(part_out)

    def __init__(
        self,
        graph: Any,
        *,
        nodes: Iterable[str] = (),
        checkpointer: Any = None,
        run_config: Config | None = None,
        context: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(**{"name": graph.get_name(), **options})
        self._graph = graph
        self._nodes = {*nodes}
        self._checkpointer = checkpointer
        self._config = run_config
        self._context = context
        self._resources = AsyncExitStack()
        self._graph_lock = asyncio.Lock()
        has_input_key = bool(options.get("input_key"))
        inputs = _input_fields(graph)
        self._takes_messages = MESSAGES in inputs and not has_input_key
        self._takes_single_value = not inputs and not has_input_key
        if not (self._takes_messages or has_input_key or self.input_mapper):
            self._set_input_schema()
        self._sends_messages = self.output_key is None and MESSAGES in _names(graph.output_channels)
        if not self._sends_messages and self.output_key is None:
            self._set_output_schema()

    async def run(self, turn: Turn) -> AsyncIterator[Any]:
        """Run the graph, or resume it with the user's answer, and yield its events."""
        graph, counter = await self._open_graph(), usage_counter()
        config = await merge_config(
            self._config,
            turn,
            configurable={"thread_id": turn.session_id},
            callbacks=[counter],
        )
        graph_input = await self._input(graph, config, turn)
        has_context = self._context is not None
        keywords = {"context": await _value_for(self._context, turn)} if has_context else {}
        stream = graph.astream(graph_input, config, stream_mode=MODES, subgraphs=True, **keywords)
        sent, interrupts, final = _SentMessages(self._nodes), list[Any](), None
        try:
            # the stream is read to its end even after an interrupt: until then, the checkpoint
            # of the interrupt may not have been saved
            async with aclosing(stream) as events:
                async for namespace, mode, item in events:
                    if mode == "messages":
                        if self._sends_messages:
                            for event in sent.new_events(item):
                                yield event
                    elif mode == "custom":
                        yield mode, item
                    elif not namespace and mode == "updates":
                        interrupts += _interrupts_in(item)
                        yield mode, item
                    elif not namespace and item is not None:
                        final = item
        finally:
            turn.add_usage(counter.usage)
        if interrupts:
            self._pause(graph, interrupts[0], turn)
        async for event in self._final_events(final, sent):
            yield event

    async def close(self) -> None:
        """Close the checkpointer that the bridge has opened."""
        self._opened_graph = None
        await self._resources.aclose()

    _opened_graph: Any = None

    async def _open_graph(self) -> Any:
        """Return the graph with its checkpointer."""
        if self._checkpointer is None:
            return self._graph
        async with self._graph_lock:
            if self._opened_graph is None:
                saver = self._checkpointer
                if not hasattr(saver, "aget_tuple"):
                    saver = await maybe_await(saver()) if callable(saver) else saver
                if hasattr(saver, "__aenter__"):
                    saver = await self._resources.enter_async_context(saver)
                self._opened_graph = self._graph.copy({"checkpointer": saver})
            return self._opened_graph

    async def _input(self, graph: Any, config: Any, turn: Turn) -> Any:
        """Return the input of the graph, or the command that resumes it."""
        from langgraph.types import Command

        if is_mapping(turn.state) and INTERRUPT_ID in turn.state:
            interrupt_id = turn.state[INTERRUPT_ID]
            snapshot = await graph.aget_state(config)
            if interrupt_id not in {interrupt.id for interrupt in snapshot.interrupts}:
                log_text = "Task %s: the graph no longer has the interrupt that asked the question"
                logger.error(log_text, turn.task_id, extra={"event": "interrupt_lost"})
                raise CheckpointError("The graph has lost the interrupt that asked the question")
            return Command(resume={interrupt_id: _resume_value(turn)})
        if self.input_mapper is not None:
            return await self.mapped_input(turn)
        if self._takes_messages:
            message = await new_message(self, turn)
            return {MESSAGES: [*await self._messages_before(graph, config, turn), message]}
        if self.takes_text:
            return turn.text if self._takes_single_value else {self.input_key: turn.text}
        return self._own_inputs(turn)

    async def _messages_before(self, graph: Any, config: Any, turn: Turn) -> list[Any]:
        """Return the messages that the graph needs before the new one.

        A graph with a checkpointer has the past messages. But a canceled or failed turn may have
        left tool calls without results. Models refuse such calls, so each call gets a result.
        """
        from langchain_core.messages import ToolMessage

        if not graph.checkpointer:
            return past_messages(turn)
        saved_messages = (await graph.aget_state(config)).values.get(MESSAGES) or ()
        answered_ids = {getattr(message, "tool_call_id", None) for message in saved_messages}
        calls = [call for message in saved_messages for call in getattr(message, "tool_calls", ())]
        return [
            ToolMessage("The call was canceled.", tool_call_id=call["id"], name=call["name"])
            for call in calls
            if call["id"] not in answered_ids
        ]

    def _pause(self, graph: Any, interrupt: Any, turn: Turn) -> NoReturn:
        """Ask the user the question of an interrupt."""
        if not graph.checkpointer:
            log_text = "Task %s: the graph has called interrupt(), but has no checkpointer"
            logger.error(log_text, turn.task_id, extra={"event": "interrupt_without_checkpointer"})
            raise CheckpointError("The graph has called interrupt(), but has no checkpointer")
        value, schema = _as_json(interrupt.value), getattr(interrupt, "response_schema", None)
        data = None if isinstance(value, str) else value
        state: Json = {INTERRUPT_ID: interrupt.id}
        review = _review_of(value, schema)
        if review is None:
            turn.ask(_question_of(value), data, schema=schema, state=state)
        state[CALL_COUNT] = len(review.calls) if review.is_batch else None
        if YES_OR_NO.issubset(review.decisions):
            turn.approve(review.question, data, state=state)
        if review.decisions == {"respond"} and len(review.calls) == 1:
            turn.ask(review.question, data, state=state)
        # without CALL_COUNT in the state, the graph resumes with the answer as it is
        turn.ask(review.question, data, schema=schema, state={INTERRUPT_ID: interrupt.id})

    async def _final_events(self, final: Any, sent: _SentMessages) -> AsyncIterator[Event]:
        """Yield the output that was not streamed as messages, from the final state."""
        from langchain_core.messages import convert_to_messages

        if self.output_key is not None:
            final = final.get(self.output_key) if is_mapping(final) else final
            yield "values", final
        elif not self._sends_messages:
            names = _names(self._graph.output_channels)
            is_state = is_mapping(final) and not isinstance(self._graph.output_channels, str)
            yield "values", {n: v for n, v in final.items() if n in names} if is_state else final
        elif is_mapping(final):
            newest: list[Any] = []
            if not sent.texts and not self._nodes:
                # without a reducer, the messages are as the nodes return them, such as dicts
                with suppress(NotImplementedError, ValueError):
                    newest = convert_to_messages([*final.get(MESSAGES, ())][-1:])
            if newest and newest[0].type in AI_TYPES:
                yield "messages", (newest[0], {})
            if final.get(STRUCTURED) is not None:
                yield "values", final[STRUCTURED]

    def _set_input_schema(self) -> None:
        model = _model_of(self._graph, "input")
        schema = model.model_json_schema()
        if schema.get("type") == "string":
            return  # an `@entrypoint` function with a text parameter takes the user's text
        self.input_schema = model

    def _set_output_schema(self) -> None:
        model = _model_of(self._graph, "output")
        if "properties" in model.model_json_schema():
            self.output_schema = model


class _SentMessages:
    """The messages sent in a run so far, so that each is sent only once.

    LangGraph emits the tokens of a model, and then the whole messages that nodes return. A whole
    message may be new, or its tokens may have been sent already, with the same id or another.

    Args:
        nodes: The nodes whose messages are sent; empty for all nodes.
    """

    def __init__(self, nodes: set[str]) -> None:
        self._nodes = nodes
        self.texts: dict[str, str] = {}
        self._node_paths: dict[str, str] = {}

    def new_events(self, item: tuple[Any, Mapping[str, Any]]) -> list[Event]:
        """Return the events for a message; each further message begins a new paragraph."""
        message, metadata = item
        if message.type not in AI_TYPES or not self._is_wanted(metadata):
            return []
        text = str(message.text)
        if message.type == "ai" and self._is_sent(message.id, text, _node_path(metadata)):
            return []
        separator: list[Event] = []
        if not self.texts.get(message.id) and text and any(self.texts.values()):
            separator = [("messages", (type(message)("\n\n"), metadata))]
        self.texts[message.id] = self.texts.get(message.id, "") + text
        self._node_paths[message.id] = _node_path(metadata)
        return [*separator, ("messages", item)]

    def _is_sent(self, message_id: str, text: str, node_path: str) -> bool:
        return message_id in self.texts or any(
            bool(text) and sent_text == text and self._node_paths[sent_id].startswith(node_path)
            for sent_id, sent_text in self.texts.items()
        )

    def _is_wanted(self, metadata: Mapping[str, Any]) -> bool:
        steps = (step.partition(":")[0] for step in _node_path(metadata).split("|"))
        return not self._nodes or not self._nodes.isdisjoint(
            {*steps, metadata.get("langgraph_node", "")}
        )


def _node_path(metadata: Mapping[str, Any]) -> str:
    """Return the path of a node's run: the nodes that contain the node, and the node itself."""
    return str(metadata.get("langgraph_checkpoint_ns", ""))


def _names(channels: str | Iterable[str]) -> list[str]:
    return [channels] if isinstance(channels, str) else [*channels]


def _input_fields(graph: Any) -> list[str]:
    """Return the names of the inputs of a graph; empty if it takes a single value."""
    builder = getattr(graph, "builder", None)
    return [] if builder is None else [*builder.schemas[builder.input_schema]]


def _model_of(graph: Any, which: typing.Literal["input", "output"]) -> type[BaseModel]:
    """Return the model of the inputs or of the output of a graph."""
    kind = getattr(getattr(graph, "builder", None), f"{which}_schema", None)
    if kind is None or type(kind).__module__ != "typing" or sys.version_info >= (3, 12):
        model: type[BaseModel] = getattr(graph, f"get_{which}_schema")()
        return model
    # before Python 3.12, pydantic refuses typing.TypedDict
    hints = typing.get_type_hints(kind, include_extras=True)
    required = kind.__required_keys__ if which == "input" else ()
    fields: dict[str, Any] = {
        name: (hint, ... if name in required else None) for name, hint in hints.items()
    }
    replacement: type[BaseModel] = create_model(kind.__name__, **fields)
    return replacement


async def _value_for(source: Any, turn: Turn) -> Any:
    """Return *source*, or what it returns if it is a function of the turn."""
    is_function = callable(source) and not isinstance(source, type)
    return await maybe_await(source(turn)) if is_function else source


def _interrupts_in(update: Any) -> list[Any]:
    return [*update[INTERRUPTS]] if is_mapping(update) and INTERRUPTS in update else []


def _as_json(value: Any) -> Any:
    """Return a value as JSON."""
    return TypeAdapter[Any](Any).dump_python(value, mode="json", fallback=str)


class _Review(NamedTuple):
    """Tool calls that an interrupt of LangChain's middleware asks about.

    Attributes:
        calls: The calls, with `name`, `args`, and perhaps a `description`.
        decisions: The decisions that are possible for all of the calls.
        is_batch: Whether the middleware waits for a list of decisions, and not for a single one.
    """

    calls: list[Json]
    decisions: set[str]
    is_batch: bool

    @property
    def question(self) -> str:
        description = self.calls[0].get("description") if len(self.calls) == 1 else None
        names = ", ".join(str(call["name"]) for call in self.calls)
        return str(description or f"May the agent call {names}?")


def _review_of(value: Any, schema: Any) -> _Review | None:
    """Return the tool calls that an interrupt asks about; None if it asks something else."""
    if not is_mapping(value):
        return None
    if value.get("type") == "tool_approval" and "name" in value:
        return _Review([{**value}], {*_decisions_in(schema)}, is_batch=False)
    calls, reviews = value.get("action_requests"), value.get("review_configs")
    if not (isinstance(calls, list) and calls and isinstance(reviews, list)):
        return None
    allowed = {review["action_name"]: {*review["allowed_decisions"]} for review in reviews}
    decisions = set.intersection(*(allowed.get(call["name"], set()) for call in calls))
    return _Review(calls, decisions, is_batch=True)


def _decisions_in(schema: Any) -> Iterator[str]:
    """Yield the types of decisions in the JSON Schema of an answer."""
    if is_mapping(schema):
        const = schema.get("type", {}).get("const") if is_mapping(schema.get("type")) else None
        if isinstance(const, str):
            yield const
        for member in schema.values():
            yield from _decisions_in(member)
    elif isinstance(schema, list):
        for item in schema:
            yield from _decisions_in(item)


def _question_of(value: Any) -> str:
    """Return the question in the value of an interrupt."""
    if isinstance(value, str):
        return value
    texts = [value.get(key) for key in QUESTION_KEYS] if is_mapping(value) else []
    return next((text for text in texts if isinstance(text, str)), NO_QUESTION)


def _resume_value(turn: Turn) -> Any:
    """Return the value that `interrupt()` returns: the answer, or decisions about tool calls."""
    if CALL_COUNT not in turn.state:
        return turn.answer
    decision: Json = {"type": "approve" if turn.approved else "reject"}
    if turn.approved is None:
        decision = {"type": "respond", "message": str(turn.answer)}
    count = turn.state[CALL_COUNT]
    return decision if count is None else {"decisions": [decision] * count}


def _custom_chunk(item: Any) -> Any:
    """Return the chunk for an item that a node has written to the custom stream."""
    if isinstance(item, File | Usage | Progress):
        return item
    if isinstance(item, str):
        return Progress(item)
    data = _as_json(item)
    texts = (data.get(key) for key in ("text", "message", "status")) if is_mapping(data) else ()
    return Progress(next((text for text in texts if isinstance(text, str)), ""), data)
