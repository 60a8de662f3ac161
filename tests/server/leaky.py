"""Modules and other components that fail with secrets in every message."""

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import apcore
import apcore.errors
import pydantic
from a2a.client.errors import A2AClientError
from a2a.utils.errors import A2AError, InternalError, InvalidParamsError, TaskNotFoundError
from apcore import Context, InvalidInputError, ModuleError
from apcore.cancel import ExecutionCancelledError
from pydantic import BaseModel

from .inloop import NEEDS_APPROVAL, ActionModule, StreamModule, SyncActionModule
from .modules import Inputs, Module

Failure = Callable[[str], BaseException]
"""Function that makes an exception with the given text."""


class Ledger:
    """An object whose `repr()` contains its memory address."""


LEDGER = Ledger()
OUTPUT = "output-5ec4e7"
"""Marks outputs of modules; they must not be logged."""


def log_injection(mark: str) -> str:
    """Return text that imitates log lines after each kind of line break."""
    line = f"00:00:00 ERROR   {mark}-line all is well"
    return f"\r\n{line}\x1b[2K\x85{line}\u2028{line}\n"


PATH = "/srv/secret-path/ledger.sqlite"
STACK = f'\nTraceback (most recent call last):\n  File "{PATH}.py", line 7, in pay\n'
ADVICE = "The amount is too high"
CALLER_MESSAGE = f"{ADVICE}, see {PATH} or C:\\secret-path\\a{STACK}"
"""The message of an error meant for callers; they get its text without paths and stacks."""

SECRETS = (
    PATH,
    "SELECT * FROM secret_table WHERE password=hunter9",
    "sk-live-5ec4e7",
    f"{LEDGER!r}",
    "DATABASE_URL=postgres://ledger:pa55phrase@db.internal/books",
    f"{STACK}LedgerError: no{log_injection('forged')}",
)
FRAGMENTS = "secret-path|secret_table|hunter9|sk-live-|ledger object at|pa55phrase|forged-line"
"""Pattern of fragments that show that a secret has leaked, even if only in part."""

issued: list[str] = []
"""Has an item for each call of `issue_secrets`, so that tests can check that there was one."""

waiting: list[Inputs] = []
"""The inputs of the calls that wait until they are canceled."""


def issue_secrets(inputs: Inputs | None = None) -> str:
    """Return all secrets, followed by the values that the client has sent."""
    issued.append("")
    return " ".join([*SECRETS, *map(str, (inputs or {}).values())])


class LedgerError(Exception):
    """An exception class of a module's own."""


class UnprintableError(LedgerError):
    """An exception whose `str()` and `repr()` raise."""

    def __str__(self) -> str:
        raise LedgerError(issue_secrets())

    __repr__ = __str__


class NonStringError(LedgerError):
    """An exception whose `str()` is not a string."""

    def __str__(self) -> str:
        return 7  # type: ignore[return-value]  # wrong on purpose


class TrapError(ModuleError):
    """A `ModuleError` whose attributes raise when they are read."""

    def __init__(self, text: str) -> None:
        Exception.__init__(self, text)

    def __getattribute__(self, name: str) -> Any:
        if name in ("message", "details", "code", "cause"):
            raise LedgerError(issue_secrets())
        return super().__getattribute__(name)


class LimitError(A2AError):
    """A protocol error that a user defines."""


class Payment(BaseModel):
    amount: int


class Model(BaseModel):
    """A model that can't be serialized."""

    text: str

    @pydantic.model_serializer
    def serialize(self) -> Any:
        raise LedgerError(self.text)


class UnreadableDict(dict[str, Any]):
    """A mapping whose items can't be read."""

    def items(self) -> Any:
        raise LedgerError(issue_secrets())

    keys = __iter__ = items


class UnreadableList(list[str]):
    """A list that raises a `ValueError` with forged log lines when it is iterated."""

    def __iter__(self) -> Any:
        raise ValueError(log_injection("author"))


def chained(text: str) -> Exception:
    """Return an error with a cause, a context of the cause, and notes."""
    error, cause = LedgerError(text), KeyError(text)
    cause.__context__ = OSError(2, text, PATH)
    error.__cause__ = cause
    error.add_note(text)
    return error


def nested(text: str) -> Exception:
    """Return nested exception groups."""
    return ExceptionGroup(text, [chained(text), ExceptionGroup(text, [UnprintableError(text)])])


def with_caller_message(kind: Callable[[str], Exception], text: str) -> Exception:
    """Return an error whose message is for callers, with a cause and notes that are not."""
    error = kind(CALLER_MESSAGE)
    error.__cause__ = LedgerError(text)
    error.add_note(text)
    return error


def error_of(action: Callable[[str], object]) -> Failure:
    """Return a failure with the error that *action* raises for the text."""

    def failure(text: str) -> BaseException:
        try:
            action(text)
        except Exception as error:  # any error will do
            return error
        raise AssertionError("the action did not raise")

    return failure


def argument(parameter: inspect.Parameter, text: str) -> Any:
    """Return an argument for *parameter* that contains *text* if its type allows."""
    result = apcore.ApprovalResult("rejected", text, text, text)
    return {"int": 7, "list[str]": [text], "Any": result}.get(str(parameter.annotation), text)


def apcore_failure(kind: Any, *, foreign: bool) -> Failure:
    """Return a failure with an apcore error full of the text; a *foreign* one names another module.

    The message of a denial has forged lines instead of secrets, because it is logged.
    """

    def failure(text: str) -> BaseException:
        message = log_injection("denied") if kind is apcore.ACLDeniedError else text
        parameters = inspect.signature(kind).parameters.values()
        required = [p for p in parameters if p.default is p.empty and p.kind != p.VAR_KEYWORD]
        error: ModuleError = kind(**{p.name: argument(p, message) for p in required})
        error.cause, error.trace_id = OSError(text), text
        error.ai_guidance = error.suggestion = text
        if not foreign:
            error.details = {
                "note": message,
                "caller_id": message,
                "errors": [{"message": message}],
            }
        if kind is apcore.SchemaValidationError:
            error.details["errors"] = entries(text)
        error.message = CALLER_MESSAGE if kind is InvalidInputError else text
        return error

    return failure


def entries(text: str) -> list[dict[str, Any]]:
    """Return validation errors: one with a message for callers, the others with secrets."""
    entry = {"field": "amount", "code": "int_type", "message": "Input should be an integer"}
    quoting = (f"Value error, {text}", f"{text!r} is not of type 'integer'", f"['{text}'] is long")
    return [
        {**entry, "message": CALLER_MESSAGE},
        {**entry, "input": text, "ctx": {text: text}, text: text},
        {**entry, "code": "missing", "message": text},
        {"path": "/amount", "keyword": "additionalProperties", "message": text},
        *({**entry, "message": message} for message in quoting),
    ]


PLAIN: list[Any] = [
    *(ValueError, KeyError, OSError, RuntimeError, AssertionError, AttributeError, ImportError),
    *(ModuleNotFoundError, NotImplementedError, MemoryError, RecursionError, TimeoutError),
    *(StopIteration, StopAsyncIteration, GeneratorExit, asyncio.CancelledError, BaseException),
    *(SystemExit, KeyboardInterrupt, LedgerError, UnprintableError, NonStringError, TrapError),
]
APCORE: list[Any] = [
    kind
    for kind in (*vars(apcore.errors).values(), ExecutionCancelledError)
    if isinstance(kind, type) and issubclass(kind, ModuleError) and kind is not ModuleError
]
PROTOCOL: list[Any] = [InvalidParamsError, TaskNotFoundError, InternalError, LimitError]

FAILURES: dict[str, Failure] = {
    **{kind.__name__: kind for kind in PLAIN},
    **{f"apcore's {kind.__name__}": apcore_failure(kind, foreign=False) for kind in APCORE},
    **{
        f"a foreign {kind.__name__}": apcore_failure(kind, foreign=True)
        for kind in APCORE
        if "module_id" in inspect.signature(kind).parameters
    },
    **{f"a2a's {kind.__name__}": partial(with_caller_message, kind) for kind in PROTOCOL},
    "a2a's A2AClientError": A2AClientError,
    "the module's own InvalidInputError": partial(
        with_caller_message, type("InvalidInputError", (LedgerError,), {})
    ),
    "the module's own SchemaValidationError": type("SchemaValidationError", (LedgerError,), {}),
    "entries": lambda text: apcore.SchemaValidationError(text, errors=entries(text)),
    "advice": lambda text: InvalidInputError(
        CALLER_MESSAGE, details={text: text}, cause=OSError(text)
    ),
    "a code of its own": lambda text: ModuleError(text, text, {text: text}),
    "a chain": chained,
    "groups": nested,
    "a fatal group": lambda text: BaseExceptionGroup(text, [SystemExit(text), chained(text)]),
    "an error of json": error_of(json.loads),
    "an error of pydantic": error_of(Payment.model_validate_json),
    "an error of a codec": error_of(lambda text: f"{text}\ud800".encode()),
    "an error of the compiler": error_of(lambda text: compile(text, PATH, "exec")),
}
NUMBERS = {name: number for number, name in enumerate(FAILURES)}


def failure(inputs: Inputs) -> BaseException:
    """Return the exception that the input gives by number, as its name would look like a leak."""
    return [*FAILURES.values()][inputs["failure"]](issue_secrets(inputs))


MISFITS: dict[str, Callable[[str], Any]] = {
    "another type": lambda text: {"amount": text},
    "another name": lambda text: {text: text},
    "a list": lambda text: [text],
    "a text": lambda text: text,
}
"""Outputs that do not fit their schema."""

UNSENDABLE: dict[str, Callable[[str], Any]] = {
    "an object": lambda text: {"more": LEDGER, "text": text},
    "a bare object": lambda text: LEDGER,
    "an error": lambda text: {"more": LedgerError(text)},
    "a broken model": lambda text: {"more": Model(text=text)},
    "a broken mapping": lambda text: UnreadableDict(text=text),
    "not a number": lambda text: {"text": text, "more": float("nan")},
    "a long integer": lambda text: {"text": text, "more": 10**5000},
    "a surrogate": lambda text: {"more": f"{text}\ud800"},
    "bytes for a key": lambda text: {b"\xff": text},
    "a tuple for a key": lambda text: {(text, 1): text},
    "too much": lambda text: {"more": text * 1000},
}
"""Outputs that the crawled agents can't send."""

OUTPUTS = MISFITS | UNSENDABLE


def fails_in_thread(inputs: Inputs, context: Context[Any]) -> Any:
    raise failure(inputs)


async def fails(inputs: Inputs, context: Context[Any]) -> Any:
    raise failure(inputs)


async def fails_in_stream(inputs: Inputs, context: Context[Any]) -> AsyncIterator[Inputs]:
    yield {"chunk": OUTPUT}
    yield {"chunk": 2}
    raise failure(inputs)


async def fails_in_call(inputs: Inputs, context: Context[Any]) -> Any:
    executor: Any = context.executor
    return await executor.call_async("in_thread", inputs, context)


async def calls_wrongly(inputs: Inputs, context: Context[Any]) -> Any:
    executor: Any = context.executor
    return await executor.call_async("strict", {"amount": issue_secrets(inputs)}, context)


async def fails_in_background(inputs: Inputs, context: Context[Any]) -> None:
    asyncio.get_running_loop().create_task(fails(inputs, context))


async def fails_in_callback(inputs: Inputs, context: Context[Any]) -> None:
    asyncio.get_running_loop().call_soon(partial(fails_in_thread, inputs, context))


async def fails_when_stopped(inputs: Inputs, context: Context[Any]) -> Any:
    waiting.append(inputs)
    try:
        await asyncio.Event().wait()
    finally:
        raise failure(inputs)


async def works(inputs: Inputs, context: Context[Any]) -> Any:
    return {"more": OUTPUT}


async def returns_date(inputs: Inputs, context: Context[Any]) -> Any:
    return {"date": OUTPUT}


async def returns_output(inputs: Inputs, context: Context[Any]) -> Any:
    return OUTPUTS[inputs["output"]](issue_secrets(inputs))


async def streams_output(inputs: Inputs, context: Context[Any]) -> AsyncIterator[Any]:
    yield {"chunk": OUTPUT}
    yield OUTPUTS[inputs["output"]](issue_secrets(inputs))


async def misfits_in_stream(inputs: Inputs, context: Context[Any]) -> AsyncIterator[Any]:
    """Yield a chunk that violates the schema; it is sent unchecked, so it holds no secret."""
    yield OUTPUTS[inputs["output"]](OUTPUT)


DATED = {"type": "object", "properties": {"date": {"type": "string", "format": "date-time"}}}
MODULES: dict[str, Module] = {
    "in_thread": SyncActionModule(fails_in_thread),
    "in_loop": ActionModule(fails),
    "in_stream": StreamModule(fails_in_stream),
    "in_call": ActionModule(fails_in_call),
    "in_background": ActionModule(fails_in_background),
    "in_callback": ActionModule(fails_in_callback),
    "in_cancel": ActionModule(fails_when_stopped),
    "in_timeout": ActionModule(fails_when_stopped, resources={"timeout": 20}),
    "gated": ActionModule(fails, annotations=NEEDS_APPROVAL, preflight=fails_in_thread),
    "in_wrong_call": ActionModule(calls_wrongly),
    "works": ActionModule(works),
    "strict": ActionModule(works, input_schema=Payment),
    "dated": ActionModule(returns_date, input_schema=DATED, output_schema=DATED),
    "returns_output": ActionModule(returns_output),
    "streams_output": StreamModule(streams_output),
    "misfits": ActionModule(returns_output, output_schema=Payment),
    "misfits_in_stream": StreamModule(misfits_in_stream, output_schema=Payment),
}


class LeakyMiddleware(apcore.Middleware):
    """A middleware that fails at the stage that the input names."""

    def before(self, module_id: str, inputs: Inputs, context: Any) -> None:
        self._fail_at("before", inputs)

    def after(self, module_id: str, inputs: Inputs, output: Any, context: Any) -> None:
        self._fail_at("after", inputs)

    def on_error(self, module_id: str, inputs: Inputs, error: Exception, context: Any) -> None:
        self._fail_at("on_error", inputs)

    def _fail_at(self, stage: str, inputs: Inputs) -> None:
        if inputs["stage"] == stage:
            raise failure(inputs)


class LeakyApprovalHandler:
    """An approval handler whose results hold secrets, or that raises when it is called."""

    async def request_approval(self, request: Any) -> Any:
        verdict, text = request.arguments["verdict"], issue_secrets(request.arguments)
        if verdict == "raises":
            raise failure(request.arguments)
        status: Any = log_injection(verdict) if verdict == "another" else verdict
        return apcore.ApprovalResult(status, text, text, text, {text: text})

    async def check_approval(self, approval_id: str) -> Any:
        raise LedgerError(issue_secrets())


class DuckExecutor:
    """An executor that is not apcore's and has no pipeline, so the server validates calls."""

    def __init__(self, registry: apcore.Registry) -> None:
        self.registry = registry

    def validate(self, module_id: str, inputs: Inputs, context: Any) -> Any:
        if not inputs:  # the server only asks whether the caller may call the module
            return SimpleNamespace(valid=True, checks=[])
        check, text = inputs["verdict"], issue_secrets(inputs)
        if check == "raises":
            raise failure(inputs)
        errors = [{"errors": entries(text)}, {"details": {"errors": entries(text)}}, {text: text}]
        if check != "schema":  # all secrets together would look like a line of a stack
            errors = [{"message": secret} for secret in SECRETS[1:-1]]
        failed = SimpleNamespace(check=check, passed=False)
        return SimpleNamespace(valid=check == "passes", checks=[failed], errors=errors)

    async def call_async(self, module_id: str, inputs: Inputs, context: Any) -> Any:
        raise failure(inputs)

    async def stream(self, module_id: str, inputs: Inputs, context: Any) -> AsyncIterator[Inputs]:
        yield {"chunk": OUTPUT}
        raise failure(inputs)
