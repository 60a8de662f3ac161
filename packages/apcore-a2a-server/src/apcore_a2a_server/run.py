"""One run of a module for one call: what happens in it becomes changes of its task."""

import asyncio
import time
from typing import TYPE_CHECKING, Any

from a2a.types import Artifact, Part, Task, TaskStatus
from apcore import Context
from apcore.cancel import CancelToken
from apcore.errors import ModuleTimeoutError
from apcore.trace_context import TraceContext
from apcore_a2a_core import TaskRecord, to_struct, to_value

from .admission import Call
from .approval import ApprovalPendingError, Pause, key
from .change import NewParts, NewState, change, create
from .current import current
from .errors import StaleTaskError
from .ids import now
from .messages import say
from .preflight import preflight
from .states import CANCELED, COMPLETED, FAILED, INPUT_REQUIRED, SUBMITTED, WORKING

if TYPE_CHECKING:
    from .engine import Engine

Update = NewParts | NewState


class Run:
    """Drives one call through the executor, as one asyncio task.

    Args:
        engine: What runs share.
        call: What to run.
        admitted: Whether the call's task is there already (a resumed one).
    """

    def __init__(self, engine: "Engine", call: Call, *, admitted: bool = False) -> None:
        self.call = call
        self.token = CancelToken()
        self.threads = engine.threads
        self.granted = call.granted
        self.asked: str | None = None
        self.admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._engine = engine
        self._limit = min(call.skill.time_limit or float("inf"), engine.execution_timeout)
        self._streamed = False
        if admitted:
            self.admitted.set_result(None)

    async def admit(self) -> None:
        """Create the task; the first time only."""
        if not self.admitted.done():
            await create(self._engine.journal, self._new_record())
            self.admitted.set_result(None)

    async def main(self) -> None:
        """Run the call to its end, whatever that is."""
        current.set(self)
        deadline = asyncio.timeout(self._limit)
        try:
            async with deadline:
                updates = await self._execute()
            await self._change(*updates)
        except StaleTaskError:  # somebody else has ended the task
            return
        except TimeoutError as error:
            await self._fail(self._timed_out() if deadline.expired() else error)
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            # the one boundary: modules raise what they like, and only their task may fail
            await self._fail(error)

    async def _execute(self) -> tuple[Update, ...]:
        """Call the module; the updates that complete the task."""
        call, executor = self.call, self._engine.executor
        context = self._context()
        if not self._engine.one_pass and not self.admitted.done():
            await preflight(executor, call.skill.id, call.inputs, context)
            await self.admit()
        if self._engine.asks_itself:
            self._ask()
        inputs = call.inputs
        if call.token is not None:
            inputs = {**inputs, "_approval_token": call.token}
        if call.streaming:
            return await self._stream(executor.stream(call.skill.id, inputs, context))
        return await self._complete(await executor.call_async(call.skill.id, inputs, context))

    async def _stream(self, chunks: Any) -> tuple[Update, ...]:
        """Add each chunk as it comes; what is no stream ends with its one chunk."""
        output: Any = None
        try:
            async for chunk in chunks:
                await self.admit()
                if self.call.skill.streams:
                    await self._add(chunk)
                else:
                    output = chunk
        finally:
            close = getattr(chunks, "aclose", None)
            if close is not None:
                await close()
        return await self._complete(output)

    async def _add(self, chunk: Any) -> None:
        artifact = self._artifact(chunk)
        if artifact.parts:
            await self._change(NewParts(artifact, append=self._streamed))
            self._streamed = True

    async def _complete(self, output: Any) -> tuple[Update, ...]:
        await self.admit()
        artifact = self._artifact(output)
        completed = NewState(COMPLETED)
        return (NewParts(artifact, last=True), completed) if artifact.parts else (completed,)

    def _artifact(self, output: Any) -> Artifact:
        return self._engine.converter.output_to_parts(output, self.call.skill.descriptor)

    def _ask(self) -> None:
        """Stand in for the approval gate that apcore did not have before 0.7."""
        self.asked = key(self.call.skill.id, self.call.inputs)
        if self.call.skill.needs_approval and self.asked not in self.granted:
            raise ApprovalPendingError

    async def _fail(self, error: BaseException) -> None:
        """Refuse the call when it has no task yet; else let the task say what happened."""
        name = type(error).__name__
        if name == "ApprovalPendingError":
            await self._pause(error)
        elif not self.admitted.done():
            self.admitted.set_exception(_exception(error))
        elif name == "ExecutionCancelledError":
            await self._settle(NewState(CANCELED, self._say("Canceled")))
        else:
            reason = self._engine.explain(error, self.call)
            detail = Part(data=to_value(reason), media_type="application/json")
            await self._settle(NewState(FAILED, self._say(str(reason["message"]), detail)))

    async def _pause(self, error: BaseException) -> None:
        """Wait for approval; a call that would be refused anyway is refused instead."""
        call = self.call
        try:
            if not self.admitted.done():
                await preflight(self._engine.executor, call.skill.id, call.inputs, self._context())
                await self.admit()
        except Exception as refusal:  # whatever it is, it is for the one who sent the call
            self.admitted.set_exception(refusal)
            return
        token = getattr(error, "approval_id", None) if self.asked is None else None
        pause = Pause(call.skill.id, call.inputs, tuple(call.granted), self.asked, token)
        question = self._say(f"Approval required for module {call.skill.id}", pause.question())
        await self._settle(NewState(INPUT_REQUIRED, question, resume=pause.pack()))

    async def _settle(self, update: NewState) -> None:
        try:
            await self._change(update)
        except StaleTaskError:
            return

    async def _change(self, *updates: Update) -> None:
        await change(self._engine.journal, self.call.task_id, *updates, expect=(WORKING,))

    def _say(self, text: str, *parts: Part) -> Any:
        return say(self.call.task_id, self.call.context_id, text, *parts)

    def _timed_out(self) -> ModuleTimeoutError:
        return ModuleTimeoutError(self.call.skill.id, int(self._limit * 1000))

    def _context(self) -> Any:
        """The apcore Context of the call, made the way that all versions understand."""
        call = self.call
        data = {
            "ext.a2a.task_id": call.task_id,
            "ext.a2a.context_id": call.context_id,
            "ext.a2a.parts": list(call.rest),
        }
        trace_parent = TraceContext.extract(dict(call.caller.headers))
        context: Any = Context.create(
            identity=call.caller.identity, trace_parent=trace_parent, data=data
        )
        context.cancel_token = self.token
        context.global_deadline = time.time() + self._limit
        if not hasattr(context, "bind_executor"):
            context.executor = self._engine.executor
        return context

    def _new_record(self) -> TaskRecord:
        call = self.call
        task = Task(
            id=call.task_id,
            context_id=call.context_id,
            status=TaskStatus(state=SUBMITTED, timestamp=now()),
            history=[call.message],
            metadata=to_struct({"skillId": call.skill.id, **self._engine.task_metadata}),
        )
        return TaskRecord(task, call.caller.owner, call.skill.id)


def _exception(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else RuntimeError(type(error).__name__)
