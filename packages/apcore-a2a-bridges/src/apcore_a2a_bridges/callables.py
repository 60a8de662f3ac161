"""Functions, generators and plain objects as agents."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import typing
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import is_dataclass
from functools import cache, partial
from typing import Any, Self, TypeGuard, TypeVar, get_origin

from apcore import Context
from apcore.decorator import generate_input_model
from pydantic import (
    BaseModel,
    ConfigDict,
    PydanticUserError,
    RootModel,
    TypeAdapter,
    create_model,
)

from .agent import Agent, AgentReply, as_generator, first_paragraph, maybe_await, text_model
from .detection import AgentConfigError
from .parts import Json
from .turn import Turn

T = TypeVar("T")

THREADS = 64
"""Number of threads for functions that block; further calls wait."""
TEXT_TYPES = (str, inspect.Parameter.empty, Any)
"""Annotations of a parameter that may take the text of the user."""
STREAMS = ("AsyncGenerator", "AsyncIterable", "AsyncIterator", "Generator", "Iterable", "Iterator")
"""Names of return types of generators."""
ALLOW_EXTRA = ConfigDict(extra="allow")


@cache
def thread_pool() -> ThreadPoolExecutor:
    """Return the pool of threads for functions that block; asyncio's own pool has only a few."""
    return ThreadPoolExecutor(THREADS, thread_name_prefix="apcore-a2a-bridges")


async def in_thread(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function in a thread, with a copy of the current context variables."""
    return await asyncio.wrap_future(_submit(function, *args))


def _submit(function: Callable[..., Any], *args: Any) -> Future[Any]:
    return thread_pool().submit(contextvars.copy_context().run, partial(function, *args))


class FunctionAgent(Agent):
    """A function, coroutine function, generator function, or object with `__call__`, as an agent.

    A function whose only input is text gets the text of the user; the parameters of other functions
    are the typed inputs of the skill. The answer is what the function returns or yields, and the
    function's return type becomes the output schema. Parameters with a default and no type keep
    their default. A parameter called `turn`, or of the type `Turn`, gets the turn; a parameter of
    apcore's type `Context` gets the context.

    Functions that are not asynchronous run in threads, where a cancellation can't interrupt them;
    they see it in `turn.is_canceled`.

    Args:
        function: The function.
        options: Options of `Agent`.
    """

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        inner: Any = getattr(function, "func", function)  # inside a functools.partial
        name = getattr(inner, "__name__", type(inner).__name__)
        doc = first_paragraph(inspect.getdoc(inner))
        name = "agent" if name == "<lambda>" else name
        defaults: Json = {"name": name, "description": doc}
        super().__init__(**{**defaults, **options})
        self._function = function
        signature = inspect.signature(function)
        hints = _hints_of(function)
        self._injected = {
            name: kind for name in signature.parameters if (kind := _kind_of_injected(name, hints))
        }
        parameters = [
            p
            for p in signature.parameters.values()
            if p.name not in self._injected and (p.name in hints or p.default is p.empty)
        ]
        text_parameter = _find_text_parameter(parameters, hints)
        self._model: type[BaseModel] | None = None
        self._text_name = "" if text_parameter is None else text_parameter.name
        if text_parameter is None:
            self._model = self.input_schema = _inputs_of(function, parameters, hints)
        elif (
            not options.get("input_key")
            and text_parameter.kind is not text_parameter.POSITIONAL_ONLY
        ):
            self.input_key = text_parameter.name
            self.input_schema = text_model(self.input_key)
        # pass the text by position if it comes first: wrappers may name the parameter differently
        self._positional = [
            p
            for n, p in enumerate(signature.parameters.values())
            if p.kind is p.POSITIONAL_ONLY
            or (n == 0 and p is text_parameter and p.kind is not p.KEYWORD_ONLY)
        ]
        self.output_schema = output_schema_of(hints.get("return", inspect.Parameter.empty))

    async def run(self, turn: Turn) -> AsyncIterator[Any]:
        """Call the function, and yield what it yields or returns."""
        keywords = await self._keywords(turn)
        arguments = [keywords.pop(p.name, p.default) for p in self._positional]
        call = partial(self._function, *arguments, **keywords)
        inner = _inner_function(self._function)
        if inspect.isasyncgenfunction(inner) or inspect.iscoroutinefunction(inner):
            result = call()
        else:
            result = await in_thread(call)
        result = await maybe_await(result)
        if hasattr(result, "__aiter__"):
            values = as_generator(result)
        elif hasattr(result, "__next__"):
            values = _iterate_in_threads(result)
        else:
            yield result
            return
        async with aclosing(values):
            async for value in values:
                yield value

    async def _keywords(self, turn: Turn) -> Json:
        injected = {
            n: turn if kind == "turn" else turn.context for n, kind in self._injected.items()
        }
        if self._model is None:
            return {self._text_name: await self.mapped_input(turn), **injected}
        # `mapped_input` alone would return only the text if a parameter is called `text`
        inputs = turn.inputs if self.input_mapper is None else await self.mapped_input(turn)
        validated = self._model.model_validate(inputs)
        return {**{name: getattr(validated, name) for name in self._model.model_fields}, **injected}


class ObjectAgent(Agent):
    """An object with a method `invoke`, and perhaps `stream`, `cancel`, `close` and `get_metadata`.

    Adapters of the package a2a-adapter have these methods. `invoke` and `stream` get the text of
    the user; `cancel` is called when a turn is canceled. All three also get `context_id` and
    `task_id` if they have such parameters.

    Args:
        adapter: The object.
        options: Options of `Agent`; by default, name, description and version come from
            `get_metadata`.
    """

    def __init__(self, adapter: Any, **options: Any) -> None:
        metadata = adapter.get_metadata() if hasattr(adapter, "get_metadata") else None
        texts = {
            name: value
            for name in ("name", "description", "version")
            if isinstance(value := getattr(metadata, name, None), str) and value
        }
        doc = first_paragraph(type(adapter).__doc__)
        defaults: Json = {"name": type(adapter).__name__, "description": doc, **texts}
        super().__init__(**{**defaults, **options})
        self._adapter = adapter

    async def run(self, turn: Turn) -> AsyncIterator[Any]:
        """Stream if the object can, or else invoke it."""
        mapped_input = await self.mapped_input(turn)
        try:
            async with aclosing(self._answer(mapped_input, turn)) as chunks:
                async for chunk in chunks:
                    yield chunk
        except (asyncio.CancelledError, GeneratorExit):  # GeneratorExit if canceled at the yield
            cancel = getattr(self._adapter, "cancel", None)
            if cancel is not None:
                await maybe_await(cancel(**_ids_for(cancel, turn)))
            raise

    async def close(self) -> None:
        """Call the object's `close`, if it has that method."""
        close = getattr(self._adapter, "close", None)
        if close is not None:
            await maybe_await(close())

    async def _answer(self, prompt: Any, turn: Turn) -> AsyncGenerator[Any]:
        stream = getattr(self._adapter, "stream", None)
        has_begun = False
        if callable(stream):
            try:
                result: Any = stream(prompt, **_ids_for(stream, turn))
                values = result if hasattr(result, "__aiter__") else await result
                async with aclosing(as_generator(values)) as chunks:
                    async for chunk in chunks:
                        has_begun = True
                        yield chunk
                return
            except NotImplementedError:  # raised by the `stream` of an abstract base class
                if has_begun:
                    raise
        yield await self._call(self._adapter.invoke, prompt, turn)

    async def _call(self, function: Callable[..., Any], prompt: Any, turn: Turn) -> Any:
        call = partial(function, prompt, **_ids_for(function, turn))
        is_async = inspect.iscoroutinefunction(function)
        return await maybe_await(call() if is_async else await in_thread(call))


def _ids_for(function: Callable[..., Any], turn: Turn) -> Json:
    """Return the ids of a turn that a function takes as keywords."""
    parameters = inspect.signature(function).parameters
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    ids = {"context_id": turn.session_id, "task_id": turn.task_id}
    return {name: value for name, value in ids.items() if takes_all or name in parameters}


async def _iterate_in_threads(values: Iterator[Any]) -> AsyncGenerator[Any]:
    """Yield the values of an iterator whose steps run in threads."""
    end = object()
    close = getattr(values, "close", None)  # only generators have it
    step: Future[Any] | None = None
    try:
        while True:
            step = _submit(next, values, end)
            if (value := await asyncio.wrap_future(step)) is end:
                break
            yield value
    finally:
        if close is not None and step is not None and step.running():
            # a canceled step runs on in its thread, and a running generator can't be closed
            step.add_done_callback(lambda _: close())
        elif close is not None:
            await in_thread(close)


def _hints_of(function: Any) -> Mapping[str, Any]:
    """Return the annotations of a function; all unevaluated if one of them can't be evaluated."""
    inner = _inner_function(function)
    try:
        return typing.get_type_hints(inner, include_extras=True)
    except (NameError, TypeError):  # such as for a type that only type checkers import
        return dict(getattr(inner, "__annotations__", {}))


def _inner_function(function: Any) -> Any:
    """Return the function behind a `functools.partial` or an object with `__call__`."""
    inner = getattr(function, "func", function)
    return inner if inspect.isroutine(inner) else type(inner).__call__


def _kind_of_injected(name: str, hints: Mapping[str, Any]) -> str:
    """Return `turn` or `context` if a parameter gets that object; an empty string for an input."""
    hint = hints.get(name)
    # an annotation that can't be evaluated is a string, such as "Context[Any]"
    kind = hint.partition("[")[0] if isinstance(hint, str) else get_origin(hint) or hint
    if name == "turn" or kind in (Turn, "Turn"):
        return "turn"
    return "context" if kind in (Context, "Context") else ""


def _find_text_parameter(
    parameters: Sequence[inspect.Parameter], hints: Mapping[str, Any]
) -> inspect.Parameter | None:
    """Return the parameter that takes the user's text; None if the inputs are typed."""
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if len(named) == 1 and hints.get(named[0].name, inspect.Parameter.empty) in TEXT_TYPES:
        return named[0]
    return None


def _inputs_of(
    function: Any, parameters: Sequence[inspect.Parameter], hints: Mapping[str, Any]
) -> type[BaseModel]:
    """Return the model of the typed inputs of a function.

    Raises:
        AgentConfigError: A parameter has a type that has no JSON Schema.
    """

    def stand_in() -> None:
        """Stand in for the function, with only those of its parameters that are inputs."""

    names = {parameter.name for parameter in parameters}
    stand_in.__name__ = getattr(function, "__name__", "agent")
    stand_in.__doc__ = inspect.getdoc(function)
    stand_in.__annotations__ = {name: hint for name, hint in hints.items() if name in names}
    vars(stand_in)["__signature__"] = inspect.Signature(parameters)
    try:
        model: type[BaseModel] = generate_input_model(stand_in)
        model.model_json_schema()
    except PydanticUserError:
        raise AgentConfigError(
            f"{stand_in.__name__} can't be a skill: not all of its parameters "
            f"({', '.join(p.name for p in parameters)}) have types with a JSON Schema"
        ) from None
    return model


def _is_model(hint: object) -> TypeGuard[type[BaseModel]]:
    return isinstance(hint, type) and issubclass(hint, BaseModel)


class _DataclassOutput(RootModel[T]):
    """The output of a function that returns a dataclass, which is sent as an object."""

    @classmethod
    def model_validate(cls, obj: Any, *, strict: bool | None = None, **options: Any) -> Self:
        """Validate an output, never strictly: strict validation refuses dicts for dataclasses."""
        return super().model_validate(obj, **options)


def output_schema_of(hint: Any) -> Any:
    """Return the output schema for the return type of a function.

    It is `AgentReply` for values that may become text, a file or nothing.
    """
    kind = get_origin(hint) or hint
    is_stream = getattr(kind, "__name__", "") in STREAMS
    # a string is an annotation that can't be evaluated
    if is_stream or kind is dict or isinstance(hint, str):
        return AgentReply
    if _is_model(hint):
        return hint
    try:
        json_type = TypeAdapter(hint).json_schema().get("type")
    except PydanticUserError:  # a type without a JSON Schema, such as `File`
        return AgentReply
    if json_type == "object":
        return _DataclassOutput[hint] if is_dataclass(kind) else RootModel[hint]
    if json_type in ("array", "boolean", "integer", "number"):
        return create_model("Result", __config__=ALLOW_EXTRA, result=(hint, ...))
    return AgentReply
