"""Our steps in apcore's pipeline, and the engine that runs the pipeline.

`Admit` creates the task: an error in an earlier step refuses the request, and an error in a later
step, such as `Execute`, fails the task. `OffLoop` keeps apcore's own steps from blocking the event
loop. Outside the runs of this server, these steps change nothing, except that `TracedExecute` still
makes spans. Executors that the server makes from a registry also have `DirectEngine`.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager, aclosing, suppress
from typing import TYPE_CHECKING, Any, TypeAlias

import apcore
from apcore import ModuleError
from apcore.builtin_steps import BuiltinExecute, BuiltinMiddlewareAfter, BuiltinMiddlewareBefore
from apcore.errors import ModuleTimeoutError
from apcore.pipeline import (
    BaseStep,
    ExecutionStrategy,
    PipelineContext,
    PipelineEngine,
    PipelineTrace,
    Step,
    StepResult,
)
from apcore_a2a_core import Executor, InputRequiredError
from apcore_a2a_core.authoring import REPORTS
from apcore_a2a_core.values import is_large_or_long, is_object

from apcore_a2a_server.trace_context import SpanKind, SpanRow

from .access import step_of, strategy_of
from .approval import PipelineRun, current_run
from .conversation import InputRequiredModuleError
from .processes import NotPortableError
from .redaction import Redaction, SchemaStandIn, skips_redaction
from .skills import is_asynchronous, is_cpu_bound, time_limit
from .threads import ThreadPool, check_threads, value_thread
from .validation import install_stand_ins, needs_stand_in

if TYPE_CHECKING:  # the spans need an extra
    from apcore_a2a_server.spans import Spans


def install_steps(executor: Executor, spans: "Spans | None" = None) -> bool:
    """Put our steps into the executor's pipeline, unless it has them already.

    Args:
        executor: The executor.
        spans: Makes a span for each call of a module; None for no spans.

    Returns:
        Whether the pipeline has our steps now; False if it has no replaceable `execute`.
    """
    strategy, builtin = strategy_of(executor), step_of(executor, "execute")
    if strategy is None or builtin is None or not builtin.replaceable:
        return False
    if step_of(executor, "a2a_admit") is None:
        step = Execute(builtin) if spans is None else TracedExecute(builtin, spans)
        strategy.replace("execute", step)
        strategy.insert_before("execute", Admit())
        # a slice assignment, since `replace` refuses the lookup step
        strategy.steps[:] = map(_off_loop, strategy.steps)
    return True


def _off_loop(step: Step) -> Step:
    is_builtin = type(step).__module__ == "apcore.builtin_steps"
    return OffLoop(step) if is_builtin and step.name in SLOW_STEPS else step


SLOW_STEPS = {
    "module_lookup": ("inputs", "input_schema", "redacted_inputs"),
    "input_validation": ("inputs", "input_schema", "redacted_inputs"),
    "output_validation": ("output", "output_schema", "redacted_output"),
}
"""apcore's steps that take some 30 microseconds per JSON value, each with the names of three
attributes: the value in the pipeline context, the schema of the value in the module, and the
redacted value in the apcore Context."""


class OffLoop(BaseStep):
    """Wrapper that runs one of apcore's steps, in another thread for large values and slow checks.

    It redacts with `Redaction` instead of apcore's slower function. Output validation and the steps
    after it get the whole text of a stream (see `ModuleStream`).

    Args:
        step: The step.
    """

    def __init__(self, step: Step) -> None:
        super().__init__(step.name, step.description, removable=step.removable)
        for name, value in vars(step).items():
            setattr(self, name, value)
        self._step = step
        self._value, self._schema, self._redacted = SLOW_STEPS[step.name]
        # in older versions of apcore, the step has no rules for redaction
        rules = getattr(step, "_redaction", None)
        self._redact = None if rules is None else Redaction(rules)

    def execute(self, ctx: PipelineContext) -> Any:
        """Return the coroutine that runs the step."""
        # if this were `async`, each step would need one more coroutine
        run = current_run.get()
        if run is None:
            return self._step.execute(ctx)
        if isinstance(ctx.output_stream, ModuleStream):
            ctx.output = ctx.output_stream.complete(ctx.output)
        schema = getattr(ctx.module, self._schema, None)
        if not isinstance(schema, SchemaStandIn):
            schema = self._stand_in(ctx, schema)
        if schema is not None and schema.is_slow:
            return check_threads.call(self._run, ctx, client=run.client)
        if is_large_or_long(getattr(ctx, self._value)):
            return value_thread.call(self._run, ctx, client=run.client)
        return self._execute(ctx)

    def _stand_in(self, ctx: PipelineContext, schema: Any) -> SchemaStandIn | None:
        """Return the stand-in for a module's schema; None if the schema needs none.

        A module that only other modules have called so far has no stand-ins yet.
        """
        schema_type = schema if isinstance(schema, type) else type(schema)
        if needs_stand_in(schema_type):
            install_stand_ins(ctx.module_id, ctx.module)
            schema = getattr(ctx.module, self._schema, None)
        return schema if isinstance(schema, SchemaStandIn) else None

    def _run(self, ctx: PipelineContext) -> StepResult:
        return asyncio.run(self._execute(ctx))

    async def _execute(self, ctx: PipelineContext) -> StepResult:
        if self._redact is None:
            return await self._step.execute(ctx)
        token = skips_redaction.set(True)
        try:
            result = await self._step.execute(ctx)
        finally:
            skips_redaction.reset(token)
        schema = getattr(ctx.module, self._schema, None)
        if isinstance(schema, SchemaStandIn):
            redacted = self._redact(getattr(ctx, self._value), schema)
            setattr(ctx.context, self._redacted, redacted)
        return result


CONTINUE = StepResult(action="continue")


class Admit(BaseStep):
    """Pipeline step that creates the task, once nothing can refuse the call any more."""

    def __init__(self) -> None:
        super().__init__("a2a_admit", "Create the A2A task", removable=True, replaceable=True)

    async def execute(self, ctx: PipelineContext) -> StepResult:
        """Create the task of a new call; otherwise, do nothing."""
        run = current_run.get()
        if run is not None:
            await run.admit()
        return CONTINUE


class Execute(BuiltinExecute):
    """Pipeline step that calls the module with support for cancellation and time limits.

    apcore's own step runs the module in a separate asyncio task that cancellation does not reach,
    applies apcore's timeouts even to modules with a longer limit, and lets `SystemExit` end the
    event loop.
    """

    def __init__(self, builtin: Step) -> None:
        super().__init__()
        self._builtin = builtin

    async def execute(self, ctx: PipelineContext) -> StepResult:
        """Call `ctx.module`; outside runs of this server, use apcore's own step."""
        run = current_run.get()
        if run is None:
            return await self._builtin.execute(ctx)
        token = ctx.context.cancel_token
        if token is not None:
            token.check()
        inputs = ctx.validated_inputs if ctx.validated_inputs is not None else ctx.inputs
        span = run.spans.begin(ctx.module_id, span_kind_of(ctx.module), ctx.context.call_chain)
        try:
            stream: Any = getattr(ctx.module, "stream", None) if ctx.stream else None
            if stream is not None:
                text_field = run.text_field(ctx.module_id)
                chunks = stream(inputs, ctx.context)
                ctx.output_stream = ModuleStream(run, chunks, text_field, span)
                return StepResult(action="skip_to", skip_to="return_result")
            is_saved, ctx.output = run.approvals.result(ctx.context)
            if not is_saved:
                ctx.output = await self._within_limit(ctx, inputs, run, span)
                run.approvals.save_result(ctx.context, ctx.output)
        except BaseException as error:  # any exception ends the span too
            run.spans.end(span, error)
            raise
        run.spans.end(span)
        return CONTINUE

    async def _within_limit(
        self, ctx: PipelineContext, inputs: Any, run: PipelineRun, span: SpanRow
    ) -> Any:
        seconds = time_limit(ctx.module)
        if seconds is None:
            return await _call(run, span, ctx.module, inputs, ctx.context)
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await _call(run, span, ctx.module, inputs, ctx.context)
        except TimeoutError:
            if not limit.expired():
                raise
            # The module may keep running in a thread, where only the token can tell it to stop.
            if ctx.context.cancel_token is not None:
                ctx.context.cancel_token.cancel()
            raise ModuleTimeoutError(ctx.module_id, int(seconds * 1000)) from None


def span_kind_of(module: object) -> SpanKind:
    """Return the kind of span for calls of a module."""
    return "remote" if getattr(type(module), "is_remote", False) is True else "call"


async def _call(run: PipelineRun, span: SpanRow, module: Any, inputs: Any, context: object) -> Any:
    try:
        if is_asynchronous(module):
            await run.begin()
            run.spans.start_module(span)
            return await module.execute(inputs, context)
        if is_cpu_bound(module) and not ThreadPool.is_inside():
            begin = _begin_callback(run, span)
            with suppress(NotPortableError):
                return await run.processes.run(module, inputs, context, begin, client=run.client)
        execute = _in_thread(run, span, module.execute)
        return await run.threads.run(execute, inputs, context, client=run.client)
    except InputRequiredError as error:
        raise _as_apcore_error(error) from None
    except (SystemExit, KeyboardInterrupt, TimeoutError) as error:
        raise _as_module_error(error) from None


def _begin_callback(run: PipelineRun, span: SpanRow) -> Callable[[], Awaitable[None]]:
    """Return the callback that begins the run just before a process starts the module."""

    async def begin() -> None:
        await run.begin()
        run.spans.start_module(span)

    return begin


def _in_thread(run: PipelineRun, span: SpanRow, execute: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function for a thread: begin the run, unless it has begun, and call *execute*."""
    loop = None if run.has_verdict else asyncio.get_running_loop()

    def begin_and_execute(inputs: Any, context: Any) -> Any:
        if loop is not None:
            asyncio.run_coroutine_threadsafe(run.begin(), loop).result()
            run.token.check()  # the run may have ended meanwhile
        run.spans.start_module(span)
        return execute(inputs, context)

    return begin_and_execute


class ModuleStream:
    """The chunks of a module, and the text that they make together.

    apcore merges chunks for output validation and middleware, but keeps only the last chunk of a
    text.

    Args:
        run: The run that the call belongs to.
        chunks: The module's chunks.
        text_field: The member of the output that is text; None if there is none.
        span_row: The call's row in `run.spans`; it ends when the stream ends.

    Attributes:
        span: The OpenTelemetry span of the stream, as a context manager; None without tracing.
    """

    def __init__(
        self,
        run: PipelineRun,
        chunks: AsyncGenerator[Any],
        text_field: str | None,
        span_row: SpanRow,
    ) -> None:
        self._run = run
        self._span_row = span_row
        self._chunks = chunks
        self._text_field = text_field
        self._texts: list[str] = []
        self.span: AbstractContextManager[Any] | None = None

    def __aiter__(self) -> AsyncGenerator[Any]:
        """Yield the chunks, and pass on the reports of progress and usage between them."""
        return self._outputs() if self.span is None else self._outputs_in(self.span)

    async def _outputs_in(self, span: AbstractContextManager[Any]) -> AsyncGenerator[Any]:
        with span:
            async with aclosing(self._outputs()) as outputs:
                async for output in outputs:
                    yield output

    async def _outputs(self) -> AsyncGenerator[Any]:
        run, text_field, span_row = self._run, self._text_field, self._span_row
        try:
            await run.begin()
            run.spans.start_module(span_row)
            async with aclosing(self._chunks) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, REPORTS):
                        await run.take_report(chunk)
                        continue
                    if text_field is not None and is_object(chunk):
                        text = chunk.get(text_field)
                        if isinstance(text, str):
                            self._texts.append(text)
                    yield chunk
        except InputRequiredError as error:
            run.spans.end(span_row, error)
            raise _as_apcore_error(error) from None
        except BaseException as error:  # any exception ends the span too
            run.spans.end(span_row, error)
            if isinstance(error, SystemExit | KeyboardInterrupt):
                raise _as_module_error(error) from None
            raise
        run.spans.end(span_row)

    def complete(self, merged: Any) -> Any:
        """Return the merged chunks of a stream, with its whole text instead of the last chunk's."""
        return merged | {self._text_field: "".join(self._texts)} if self._texts else merged


class TracedExecute(Execute):
    """Pipeline step that calls the module in a span of OpenTelemetry.

    Args:
        builtin: apcore's own step.
        spans: Makes the span of each call.
    """

    def __init__(self, builtin: Step, spans: "Spans") -> None:
        super().__init__(builtin)
        self._spans = spans

    async def execute(self, ctx: PipelineContext) -> StepResult:
        """Call `ctx.module`; the span of a stream lasts until its end."""
        if ctx.stream and hasattr(ctx.module, "stream"):
            result = await super().execute(ctx)
            if isinstance(ctx.output_stream, ModuleStream):
                ctx.output_stream.span = self._spans.module(ctx.module_id)
            return result
        with self._spans.module(ctx.module_id):
            return await super().execute(ctx)


class DirectExecutor(apcore.Executor):
    """apcore's Executor with `DirectEngine`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._pipeline_engine = DirectEngine(self)


Plan: TypeAlias = list[tuple[Step, bool]]
"""Steps, and for each whether it calls middlewares."""


class DirectEngine(PipelineEngine):
    """apcore's engine, changed to record the steps of a call only if something shows the records.

    apcore's own engine records the time, the result and the output of each step, which takes as
    long as most steps. The records are shown only in traces and dry runs, to middlewares of steps,
    and to the conditions of `run_until`. Calls with any of these, or in pipelines with steps that
    are not plain (see `_is_plain`), use apcore's engine. In other calls, apcore's engine takes over
    after a step that raises, aborts, or skips to a step that is not a later one.

    Args:
        executor: The executor, whose middlewares are called by two of the steps.
    """

    def __init__(self, executor: apcore.Executor) -> None:
        self._executor = executor
        self._plans: dict[str, tuple[list[Step], Plan]] = {}
        """For each strategy with a plan, by its name: the steps and their plan."""

    async def run(
        self,
        strategy: ExecutionStrategy,
        ctx: PipelineContext,
        *,
        run_until: Any = None,
    ) -> tuple[Any, PipelineTrace]:
        """Run the steps; return the output, and a trace that is empty if nothing shows it."""
        # only `call_async_with_trace` sets `ctx.strategy`
        is_shown = strategy.step_middlewares or ctx.strategy or run_until or ctx.run_until
        plan = None if is_shown or ctx.dry_run else self._plan_of(strategy)
        if plan is None:
            return await super().run(strategy, ctx, run_until=run_until)
        while plan:
            rest: Plan | None = None
            for step, calls_middlewares in plan:
                if calls_middlewares and self._is_idle(step, ctx):
                    continue
                try:
                    result = await step.execute(ctx)
                except Exception as error:  # any error of a step: apcore's engine handles it below
                    outcome = _Outcome(step, error=error)
                else:
                    if result.action == "continue":
                        continue
                    if rest := _rest_after_skip(plan, step, result):
                        break
                    outcome = _Outcome(step, result=result)
                planned_steps = [planned for planned, _ in plan]
                steps = [outcome, *planned_steps[planned_steps.index(step) + 1 :]]
                remaining = ExecutionStrategy(strategy.name, steps, validate_dependencies=False)
                return await super().run(remaining, ctx)
            plan = rest
        return ctx.output, PipelineTrace(ctx.module_id, strategy.name)

    def _plan_of(self, strategy: ExecutionStrategy) -> Plan | None:
        """Return the plan of a strategy; None if apcore's engine would do more than call each step.

        The plan is kept until the steps change.
        """
        steps, plan = self._plans.get(strategy.name, (None, None))
        if steps != strategy.steps:
            if not all(map(_is_plain, strategy.steps)):
                return None
            plan = [(step, type(step) in MIDDLEWARE_STEPS) for step in strategy.steps]
            self._plans[strategy.name] = [*strategy.steps], plan
        return plan

    def _is_idle(self, step: Step, ctx: PipelineContext) -> bool:
        """Return whether a middleware step has nothing to do, because there are no middlewares."""
        # `BuiltinMiddlewareAfter` also replaces an empty output with {}
        return not self._executor.middlewares and (
            bool(ctx.output) or type(step) is BuiltinMiddlewareBefore
        )


MIDDLEWARE_STEPS = (BuiltinMiddlewareBefore, BuiltinMiddlewareAfter)


def _rest_after_skip(plan: Plan, step: Step, result: StepResult) -> Plan | None:
    """Return the rest of the plan after a skip; None if *step* does not skip to a later step."""
    names = [planned.name for planned, _ in plan]
    if result.action != "skip_to" or result.skip_to not in names[names.index(step.name) + 1 :]:
        return None
    return plan[names.index(result.skip_to) :]


def _is_plain(step: Any) -> bool:
    """Return whether a step has no timeout, runs for all modules, and fails calls if it fails."""
    return (
        getattr(step, "match_modules", None) is None
        and not getattr(step, "ignore_errors", False)
        and not getattr(step, "timeout_ms", 0)
    )


class _Outcome(BaseStep):
    """Stand-in for a step that has run already: it raises or returns the outcome of that step."""

    def __init__(
        self, step: Step, result: StepResult | None = None, error: Exception | None = None
    ) -> None:
        super().__init__(step.name)
        self._result = result or StepResult(action="continue")
        self._error = error

    async def execute(self, ctx: PipelineContext) -> StepResult:
        """Return the result, or raise the error."""
        # the traceback of the error refers to this step: avoid a reference cycle
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
            return self._result
        finally:
            del error


def _as_apcore_error(error: InputRequiredError) -> InputRequiredError:
    # an error of a nested call is converted already
    return error if isinstance(error, ModuleError) else InputRequiredModuleError(error)


def _as_module_error(error: BaseException) -> RuntimeError:
    return RuntimeError(f"The module raised {type(error).__name__}")
