"""One run of a module for one call: what happens in it becomes changes of its task."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from a2a import types as a2a
from apcore import CancelToken, Context
from apcore.errors import ModuleTimeoutError
from apcore_a2a_core import OutputError, to_value
from apcore_a2a_core.states import (
    CANCELED,
    COMPLETED,
    FAILED,
    PAUSED,
    REJECTED,
    SUBMITTED,
    WORKING,
)

from apcore_a2a_server.errors import StaleTaskError
from apcore_a2a_server.modules.approval import ApprovalPendingError, call_key, current
from apcore_a2a_server.modules.conversation import (
    Conversation,
    History,
    create_context,
    is_for_input,
)
from apcore_a2a_server.store import Lease, TaskRecord, UnavailableError
from apcore_a2a_server.store.live import LiveTasks

from .call import Call
from .change import NewParts, NewState, Restart, Update, change, create
from .messages import JSON, now, say
from .pauses import Pause, asking, question
from .setup import Setup

logger = logging.getLogger(__name__)

BURST = 10
"""After so many chunks others get their turn, readers among them."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The restart of an orphaned task, and the lease to run it."""

    restart: Restart
    lease: Lease


class Run:
    """Drives one call through the executor, as one asyncio task.

    Args:
        setup: What runs share.
        call: What to run.
        answer: What brings the call's task back to work, when it is a paused one, and its pause.
        lost: What begins it anew, when another process has left it at work.
    """

    def __init__(
        self,
        setup: Setup,
        call: Call,
        answer: tuple[NewState, Pause] | None = None,
        lost: Lost | None = None,
    ) -> None:
        self.call = call
        self.token = CancelToken()
        self.threads = setup.threads
        self.approvals = call.approvals
        self.paused: Pause | None = None
        self.admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._setup = setup
        self._seconds = min(call.skill.time_limit or float("inf"), setup.execution_timeout)
        self._chunks = 0
        self._size = 0
        self._refusal: Exception | None = None
        self.lease = None if lost is None else lost.lease
        self.answer = answer
        self.lost = lost
        self.is_kept = lost is not None

    async def admit(self) -> None:
        """Create the task, or bring it back to work; the first time only."""
        if not self.admitted.done():
            try:
                self.lease = await self._begin()
            except Exception as error:  # apcore would wrap it as a failure of the module
                self._refusal = error
                raise
            self.admitted.set_result(None)

    async def _begin(self) -> Lease | None:
        """Have the task work; the right to run it."""
        tasks, task_id = self._setup.tasks, self.call.message.task_id
        if self.lost is not None:
            await self._change(self.lost.restart)
            return self.lost.lease
        if self.answer is None:
            return await create(tasks, self._new_record(), self.call.webhook, self.call.key)
        update, pause = self.answer
        if pause.question is not None:
            await self._check()
        update = replace(update, resume=self._keep())
        packed, webhook = pause.pack(), self.call.webhook
        await change(tasks, task_id, update, expect=PAUSED, pause=packed, webhook=webhook)
        return tasks.lease_of(task_id)

    async def _check(self) -> None:
        """Raise what would refuse the call."""
        context = await self._context()
        await self._setup.access.preflight(self.call.skill.id, self.call.inputs, context)

    async def main(self) -> None:
        """Run the call to its end, whatever that is."""
        deadline = asyncio.timeout(self._seconds)
        try:
            async with deadline:
                current.set(self)  # behind the timer: loops keep the context of a canceled one
                updates = await self._execute()
            await self._change(*updates)
        except StaleTaskError:  # somebody else has ended the task
            return
        except TimeoutError as error:
            timeout = ModuleTimeoutError(self.call.skill.id, int(self._seconds * 1000))
            if deadline.expired():
                self.token.cancel()
            await self._fail(timeout if deadline.expired() else error)
        except BaseException as error:  # modules raise what they like: only their task may fail
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            await self._fail(error)

    async def _execute(self) -> list[Update]:
        """Call the module; the updates that complete the task."""
        if self.answer is not None or self.lost is not None:
            await self.admit()
        call, executor, context = self.call, self._setup.executor, await self._context()
        if not self._setup.has_steps and not self.admitted.done():
            await self._setup.access.preflight(call.skill.id, call.inputs, context)
            await self.admit()
        if self._setup.approval_policy.is_for_server(call.skill):
            key = call_key(call.skill.id, call.inputs)
            if key not in self.approvals.granted:
                self.approvals.asked = key
                raise ApprovalPendingError
        token = {} if call.token is None else {"_approval_token": call.token}
        inputs = {**call.inputs, **token}
        if call.streaming:
            return await self._stream(executor.stream(call.skill.id, inputs, context))
        return await self._complete(await executor.call_async(call.skill.id, inputs, context))

    async def _stream(self, chunks: Any) -> list[Update]:
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
            await self._change(NewParts(artifact, append=self._chunks > 0))
            self._chunks += 1
            if self._chunks % BURST == 0:
                await asyncio.sleep(0)

    async def _complete(self, output: Any) -> list[Update]:
        await self.admit()
        artifact = self._artifact(output)
        completed = NewState(COMPLETED)
        return [NewParts(artifact, last=True), completed] if artifact.parts else [completed]

    def _artifact(self, output: Any) -> a2a.Artifact:
        artifact = self._setup.converter.output_to_parts(output, self.call.skill.descriptor)
        self._size += artifact.ByteSize()
        if self._size > self._setup.max_artifact:
            raise OutputError(f"more than {self._setup.max_artifact} bytes")
        return artifact

    async def _fail(self, error: BaseException) -> None:
        """Refuse the call when it has no task yet; else let the task say what happened."""
        name = type(error).__name__
        if name == "ApprovalPendingError" or is_for_input(error):
            await self._pause(error)
        elif not self.admitted.done():
            raised = error if isinstance(error, Exception) else RuntimeError(name)
            self.admitted.set_exception(self._refusal or raised)
            ours = self.lost is not None or self._refusal is None  # else others may have it by now
            if ours or not self._setup.tasks.store.is_durable:
                await self._settle(NewState(FAILED, self._say("Not admitted")))
        elif name == "ExecutionCancelledError":
            await self._settle(NewState(CANCELED, self._say("Canceled")))
        elif name == "ApprovalDeniedError":
            await self._settle(NewState(REJECTED, self._say("Approval denied")))
        else:
            reason = self._setup.explain(error, self.call)
            detail = a2a.Part(data=to_value(reason), media_type="application/json")
            await self._settle(NewState(FAILED, self._say(str(reason["message"]), detail)))

    async def _pause(self, error: BaseException) -> None:
        """Wait for an answer; a call that would be refused anyway is refused instead."""
        try:
            if not self.admitted.done():
                await self._check()
                await self.admit()
        except Exception as refusal:  # whatever it is, it is for the one who sent the call
            self.admitted.set_exception(refusal)
            return
        try:
            pause = Pause.after(error, self.call, self._setup.input_timeout)
            asks = asking(pause, self._say(*question(pause)))
        except (TypeError, ValueError) as broken:  # what the module asks can't be sent
            await self._fail(broken)
            return
        if await self._settle(asks):
            self.paused = pause

    async def _settle(self, update: NewState) -> bool:
        try:
            await self._change(update)
        except StaleTaskError:  # somebody else has ended the task
            return False
        return True

    async def _change(self, *updates: Update) -> None:
        tasks, task_id = self._setup.tasks, self.call.message.task_id
        try:
            await change(tasks, task_id, *updates, expect=(WORKING,), lease=self.lease)
        except UnavailableError as error:
            raise left_to_others(tasks, task_id, error) from None

    def _say(self, *parts: str | a2a.Part) -> a2a.Message:
        return say(self.call.message, *parts)

    async def _context(self) -> "Context[Conversation]":
        call, message = self.call, self.call.message
        said: Sequence[a2a.Message] = ()
        if call.continues:
            tasks, owner = self._setup.tasks, call.caller.owner
            most = tasks.max_history
            said = await tasks.store.conversation(owner, message.context_id, most)
        return create_context(
            token=self.token,
            seconds=self._seconds,
            identity=call.caller.identity,
            headers=call.caller.headers,
            conversation=Conversation(
                message.task_id, message.context_id, History(said, JSON.message), [*call.rest]
            ),
        )

    def _new_record(self) -> TaskRecord:
        call, message = self.call, self.call.message
        task = a2a.Task(
            id=message.task_id,
            context_id=message.context_id,
            status=a2a.TaskStatus(state=SUBMITTED, timestamp=now()),
            history=[message],
            metadata={"skillId": call.skill.id, **self._setup.metadata},
        )
        return TaskRecord(task, call.caller.owner, call.skill.id, resume=self._keep())

    def _keep(self) -> bytes | None:
        """What another process needs to make the call again, where there is one."""
        kept = self._setup.keep(self.call) if self._setup.keep else None
        self.is_kept = kept is not None
        return kept


def left_to_others(tasks: LiveTasks, task_id: str, error: UnavailableError) -> Exception:
    """Let others have a task, when the store can't be told what has become of it; what to raise."""
    if not tasks.store.is_durable:
        return error
    logger.error("What has become of task %s could not be written", task_id)
    tasks.forget(task_id)
    return StaleTaskError()
