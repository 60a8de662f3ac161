"""A run: it calls one module, and writes the module's progress and result to the task."""

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from apcore import CancelToken, Context
from apcore.errors import ModuleTimeoutError
from apcore_a2a_core import OutputError, Progress, Usage, to_json
from apcore_a2a_core.authoring import REPORTS, USAGE, add_usage
from apcore_a2a_core.data import Json, Message, Part, Task, TaskStatus
from apcore_a2a_core.media_types import JSON
from apcore_a2a_core.parts import artifact_of, with_texts
from apcore_a2a_core.schema import text_field_of
from apcore_a2a_core.states import (
    CANCELED,
    COMPLETED,
    FAILED,
    PAUSED,
    REJECTED,
    SUBMITTED,
    WORKING,
)
from apcore_a2a_core.values import is_large_or_long, size_of
from msgspec import UNSET, to_builtins
from msgspec.structs import replace

from apcore_a2a_server.errors import StaleTaskError, forget_frames
from apcore_a2a_server.modules.approval import ApprovalPendingError, call_key, current_run
from apcore_a2a_server.modules.conversation import (
    MAX_METADATA,
    Conversation,
    History,
    added_metadata,
    create_context,
    input_request,
)
from apcore_a2a_server.modules.threads import value_thread
from apcore_a2a_server.store import Lease, TaskRecord, UnavailableError
from apcore_a2a_server.trace_context import SpanLog

from .call import Call, pack
from .change import NewParts, NewProgress, NewState, Restart, Update, change, create
from .clients import Verdict
from .messages import agent_message, now
from .pauses import Pause, input_required, question_parts
from .process import Done
from .setup import Setup

logger = logging.getLogger(__name__)

EVENTS_PER_YIELD = 10
"""Number of chunks, or of progress messages, after which a run yields to the event loop."""
MAX_PROGRESS = 10_000
"""Maximum length of a progress message, in characters; the rest is not sent."""
MAX_REPLY = 32 * 1024
"""Maximum size of an output's text in the history, in bytes; the rest is left out."""


class Run:
    """One call in the executor, as one asyncio task.

    Args:
        setup: The dependencies of runs.
        call: The call to run.
        resumed_from: For a paused task: the transition back to working, and the pause that it ends.
        restart: After a failover: the update that starts the task again.
        lease: After a failover: the lease to run the task.

    Attributes:
        task: The asyncio task; set when the run is launched.
        lease: The lease to run the A2A task; None until it is working, except after a failover.
        token: The cancel token that the module sees.
        threads: The pool that runs synchronous modules.
        processes: The processes for modules that declare `resources.cpu`.
        client: The client whose limits the run counts towards.
        approvals: The approvals of the A2A task.
        spans: The spans of the run.
        pause: The pause in which the run has ended, if any.
        ended_record: The record of the A2A task, once the run has completed it.
        has_pause_slot: Whether the run has taken a slot for a paused task.
        verdict: The verdict on the call: admitted or refused.
        is_repeatable: Whether the call is stored so that another replica can repeat it.
    """

    def __init__(
        self,
        setup: Setup,
        call: Call,
        resumed_from: tuple[NewState, Pause] | None = None,
        restart: Restart | None = None,
        lease: Lease | None = None,
    ) -> None:
        self.call = call
        self.task: asyncio.Task[None]
        self.token = CancelToken()
        self.threads = setup.threads
        self.processes = setup.processes
        self.client = call.caller.client
        self.approvals = call.approvals
        self.spans = SpanLog()
        self.pause: Pause | None = None
        self.ended_record: TaskRecord | None = None
        self.has_pause_slot = False
        self.verdict = Verdict()
        self._loop = asyncio.get_running_loop()
        self._setup = setup
        self._time_limit = min(call.skill.time_limit or float("inf"), setup.execution_timeout)
        self._metadata: Json = {}
        self._reply_texts: list[str] = []
        self._reply_size = 0
        self._progress_count = self._chunk_count = self._artifact_size = 0
        self._begin_error: Exception | None = None
        self.lease = lease
        self.resumed_from, self.restart = resumed_from, restart
        self.is_repeatable = restart is not None

    @property
    def has_verdict(self) -> bool:
        """Whether the call is admitted or refused; before that, the module has not started."""
        return self.verdict.is_known

    def stop(self) -> None:
        """Cancel the run, and the cancel token that its module sees."""
        self.token.cancel()
        self.task.cancel()

    async def admit(self) -> None:
        """Create the A2A task of a new call; other calls have their task already.

        The admit step of the pipeline calls this just before the module runs. For a new call, an
        exception up to the end of this step refuses the request; a later one fails the task.
        """
        self.spans.end_check()
        if self.restart is None:
            await self.begin()

    async def begin(self) -> None:
        """Create the A2A task or set it to working; do nothing after the first time.

        After a failover, `admit` does not call this: the execute step does, once a thread or
        process is free. If this replica is lost before that, the restart is not counted.
        """
        if not self.verdict.is_known:
            try:
                self.lease = await self._begin_task()
            except Exception as error:  # apcore wraps what a step raises: keep the original
                self._begin_error = error
                raise
            self.verdict.give(None)

    async def _begin_task(self) -> Lease | None:
        """Create the A2A task or set it to working; return the lease to run it."""
        tasks, task_id = self._setup.tasks, self.call.message.task_id
        if self.restart is not None:
            await self._change(self.restart)
            tasks.count_for(self.client, task_id)
            return self.lease
        # from here on, the memory of the message is counted with the task, not as a request body
        connection = self.call.caller.connection
        connection.before_store()
        self._setup.memory.keep_for(connection, task_id)
        if self.resumed_from is None:
            record, webhook, key = self._new_record(), self.call.webhook, self.call.key
            return await create(tasks, record, webhook, key, self.client)
        transition, pause = self.resumed_from
        if pause.question is not None:  # the answer may have changed the inputs
            await self._preflight()
        chosen_skill_id = None if pause.skill_id else self.call.skill.id
        transition = replace(transition, resume=self._pack_call(), skill_id=chosen_skill_id)
        packed_pause, webhook = pause.pack(), self.call.webhook
        await change(tasks, task_id, transition, expect=PAUSED, pause=packed_pause, webhook=webhook)
        tasks.count_for(self.client, task_id)
        return tasks.lease_of(task_id)

    async def _preflight(self) -> None:
        """Raise an error if the executor would refuse the call.

        The time limit also holds here, since a module's own check may hang.
        """
        if self.call.question is not None:
            return
        call, context, access = self.call, await self._build_context(), self._setup.access
        try:
            async with asyncio.timeout(self._time_limit):
                await access.preflight(call.skill.id, call.inputs, context, client=self.client)
        except TimeoutError:
            raise self._timeout_error() from None

    async def main(self) -> None:
        """Run the call, and write its outcome to the A2A task."""
        time_limit = self._setup.time_limits.limit(self._time_limit)
        current_run.set(self)
        try:
            with time_limit:
                updates = await self._execute()
            self.ended_record = await self._change(*updates)
        except StaleTaskError:  # the task was ended elsewhere, or the change was not saved
            return
        except TimeoutError as error:
            if not time_limit.is_exceeded:  # raised by the module itself
                await self._handle_error(error)
                forget_frames(error)
                return
            self.token.cancel()
            await self._handle_error(self._timeout_error())
        except BaseException as error:  # modules may raise anything; only their task may fail
            # re-raise a cancellation of the run itself; one that the module raised fails the task
            asyncio_task = asyncio.current_task()
            is_canceled = asyncio_task is not None and asyncio_task.cancelling() > 0
            if isinstance(error, asyncio.CancelledError) and is_canceled:
                raise
            await self._handle_error(error)
            forget_frames(error)
        finally:
            # break the cycle of references from the run to its asyncio task, to the contextvars
            # and back to the run, so that inputs are freed without the garbage collector
            current_run.set(None)

    def _timeout_error(self) -> ModuleTimeoutError:
        return ModuleTimeoutError(self.call.skill.id, int(self._time_limit * 1000))

    async def _execute(self) -> list[Update]:
        """Call the module; return the updates that complete the task."""
        if self.call.question is not None:
            raise self.call.question  # an exception, which pauses the task
        if self.resumed_from is not None:
            await self.begin()
        if not self._setup.has_steps and not self.verdict.is_known:
            await self._preflight()
            await self.begin()
        call, executor, context = self.call, self._setup.executor, await self._build_context()
        if self._setup.approval_policy.server_must_request(call.skill):
            approval_key = call_key(call.skill.id, call.inputs)
            if approval_key not in self.approvals.granted:
                self.approvals.requested = approval_key
                raise ApprovalPendingError
        inputs = {**call.inputs, **({} if call.token is None else {"_approval_token": call.token})}
        if call.streaming:
            return await self._stream(executor.stream(call.skill.id, inputs, context))
        return await self._complete(await executor.call_async(call.skill.id, inputs, context))

    async def _stream(self, chunks: Any) -> list[Update]:
        """Write each chunk as it comes; a skill that does not stream yields only its output."""
        output: Any = None
        try:
            async for chunk in chunks:
                if not self.verdict.is_known:
                    await self.begin()
                # apcore's own executor does not yield reports: our step has taken them
                if isinstance(chunk, REPORTS):
                    await self.take_report(chunk)
                elif self.call.skill.streams:
                    await self._write_chunk(chunk)
                else:
                    output = chunk
        finally:
            close = getattr(chunks, "aclose", None)
            if close is not None:
                await close()
        return await self._complete(output)

    async def _write_chunk(self, chunk: Any) -> None:
        new_parts = await self._new_parts(chunk)
        if new_parts.artifact.parts:
            await self._change(new_parts)
            self._chunk_count += 1
            if self._chunk_count % EVENTS_PER_YIELD == 0:
                await asyncio.sleep(0)

    def text_field(self, module_id: str) -> str | None:
        """Return the name of the output member that clients get as text; None if there is none."""
        return text_field_of(self._setup.skills.get_definition(module_id))

    async def report_progress(self, text: str, data: Any) -> None:
        """Write an event that reports progress; do nothing if the task has ended.

        Raises:
            OutputError: The data is not JSON, or is too large.
        """
        parts: list[str | Part] = [to_json(text[:MAX_PROGRESS])]
        if data is not None:
            document = to_json(data)
            if size_of(document) > MAX_METADATA:
                raise OutputError(f"progress data of more than {MAX_METADATA} bytes")
            parts.append(Part(data=document, media_type=JSON))
        with suppress(StaleTaskError):
            await self._change(NewProgress(self._message(*parts)))
        self._progress_count += 1
        if self._progress_count % EVENTS_PER_YIELD == 0:
            await asyncio.sleep(0)

    async def take_report(self, report: Progress | Usage) -> None:
        """Report progress, or add usage to the usage of the task."""
        if isinstance(report, Usage):
            self._metadata[USAGE] = add_usage(self._metadata.get(USAGE), report)
        else:
            await self.report_progress(report.text, report.data)

    def _report_from_anywhere(self, text: str, data: Any) -> Awaitable[None]:
        """Report progress from any thread; meanwhile, a thread without an event loop is blocked."""
        coroutine, loop = self.report_progress(text, data), self._loop
        try:
            running_loop = asyncio.get_running_loop()
        except RuntimeError:
            asyncio.run_coroutine_threadsafe(coroutine, loop).result()
            return Done()
        if running_loop is loop:
            return coroutine
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, loop))

    async def _complete(self, output: Any) -> list[Update]:
        await self.begin()
        new_parts = await self._new_parts(output, last=True)
        reply = self._reply() if self._reply_texts else None
        completed = NewState(COMPLETED, metadata=added_metadata(self._metadata), reply=reply)
        return [new_parts, completed] if new_parts.artifact.parts else [completed]

    def _reply(self) -> Message | None:
        """Return the text of the output as a message for the history, which later runs read."""
        text = "".join(self._reply_texts).encode()[:MAX_REPLY].decode(errors="ignore")
        return self._message(text) if text else None

    async def _new_parts(self, output: Any, *, last: bool = False) -> NewParts:
        """Return the update for a chunk, or for the output that ends the artifact (*last*).

        This also counts the size of the artifact, and collects its text for the reply. Large values
        are converted in the thread `value_thread`.

        Raises:
            OutputError: The output is not JSON, or makes the artifact too large.
        """
        skill, client = self.call.skill, self.client
        arguments = output, skill.descriptor, skill.text_field
        if is_slow := is_large_or_long(output):
            artifact = await value_thread.call(artifact_of, *arguments, client=client)
        else:
            artifact = artifact_of(*arguments)
        for part in artifact.parts:
            if part.text is not UNSET and self._reply_size < MAX_REPLY:
                self._reply_texts.append(part.text[:MAX_REPLY])
                self._reply_size += len(part.text)
        if self.call.wants_text or self._setup.text_results:
            # clients join chunks of text, so each chunk of JSON ends with a newline
            end = "\n" if self.call.streaming and skill.streams else ""
            artifact.parts = with_texts(artifact.parts, text_only=self.call.wants_text, end=end)
        parts = artifact.parts
        size = await value_thread.call(size_of, parts, client=client) if is_slow else size_of(parts)
        self._artifact_size += size
        if self._artifact_size > self._setup.max_artifact:
            raise OutputError(f"more than {self._setup.max_artifact} bytes")
        return NewParts(artifact, size, append=self._chunk_count > 0 and not last, last=last)

    async def _handle_error(self, error: BaseException) -> None:
        """Pause the task if *error* requests a pause; else refuse the call, or end its task."""
        error_type = type(error).__name__
        if error_type == "ApprovalPendingError" or input_request(error):
            await self._pause(error)
        elif not self.verdict.is_known and self.restart is None:
            self.verdict.give(self._setup.refusal_for(self._begin_error or error, self.call))
            # a task may exist although the call is refused. If `begin` failed in a durable store,
            # another replica may run that task; else only this run can fail it
            if self._begin_error is None or not self._setup.tasks.store.is_durable:
                await self._try_change(NewState(FAILED, self._message("Not admitted")))
        elif error_type == "ExecutionCancelledError":
            await self._try_change(NewState(CANCELED, self._message("Canceled")))
        else:
            explanation = self._setup.explain(error, self.call)
            details = Part(data=to_json(explanation), media_type=JSON)
            is_rejected = error_type in ("ApprovalDeniedError", "AgentRejectedError")
            state, detail_parts = (REJECTED, []) if is_rejected else (FAILED, [details])
            status_message = self._message(str(explanation["message"]), *detail_parts)
            metadata = None
            with suppress(OutputError):  # the task ends without invalid metadata
                metadata = added_metadata(self._metadata)
            await self._try_change(NewState(state, status_message, metadata=metadata))

    async def _pause(self, error: BaseException) -> None:
        """Pause the task for input or approval, or refuse a call that the executor would refuse."""
        self.spans.end_check()
        try:
            if not self.verdict.is_known and self.restart is None:
                await self._preflight()
            self._take_slot()
            await self.begin()
        except Exception as problem:  # executors may raise anything
            if self.verdict.is_known:
                await self._handle_error(problem)
            else:
                self.verdict.give(self._setup.refusal_for(problem, self.call))
            return
        try:
            expires = await self._setup.tasks.store.now() + self._setup.input_timeout
            keeps_identity = self._setup.keeps_identity
            pause = Pause.after(error, self.call, expires, keeps_identity=keeps_identity)
            transition = input_required(pause, self._message(*question_parts(pause)))
            transition = replace(transition, metadata=added_metadata(self._metadata))
        except UnavailableError:
            self._give_up_task()
            return
        except (TypeError, ValueError) as invalid:  # a malformed question, or invalid metadata
            await self._handle_error(invalid)
            return
        if await self._try_change(transition):
            self.pause = pause

    def _take_slot(self) -> None:
        """Take a slot for a paused task of the client, unless the task was resumed or restarted.

        Raises:
            RetryLaterError: There are too many paused tasks, or there is not enough memory.
        """
        if self.resumed_from is None and self.restart is None:
            self._setup.memory.make_room_for_pause(self.call.caller, size_of(self.call.message))
            self._setup.capacity.paused.take(self.client)
            self.has_pause_slot = True

    async def _try_change(self, update: NewState) -> bool:
        """Change the task; return False if it was ended elsewhere, or the change was not saved."""
        try:
            await self._change(update)
        except StaleTaskError:
            return False
        return True

    async def _change(self, *updates: Update) -> TaskRecord:
        tasks, task_id, expect = self._setup.tasks, self.call.message.task_id, (WORKING,)
        spans, lease = self.spans.dump() if isinstance(updates[-1], NewState) else "", self.lease
        try:
            return await change(tasks, task_id, *updates, expect=expect, lease=lease, spans=spans)
        except UnavailableError:
            if not tasks.store.is_durable:
                raise
            self._give_up_task()
            raise StaleTaskError from None

    def _give_up_task(self) -> None:
        """Let another replica claim the A2A task, since a change of it may not have been saved."""
        task_id, extra = self.call.message.task_id, {"event": "task_not_saved"}
        logger.error("Task %s: given up, since the store is unavailable", task_id, extra=extra)
        self._setup.tasks.forget(task_id)

    def _message(self, *parts: str | Part) -> Message:
        return agent_message(self.call.message, *parts)

    async def _build_context(self) -> "Context[Conversation]":
        """Return the apcore Context of the call, with the history of its conversation."""
        call, message = self.call, self.call.message
        earlier_messages: Sequence[Message] = ()
        if call.has_history:
            tasks, owner = self._setup.tasks, call.caller.owner
            messages = await tasks.store.conversation(owner, message.context_id, tasks.max_history)
            # a new task's own message, which may be stored already, is left out; an answer is not
            new_task_id = "" if self.resumed_from or call.resumption else message.task_id
            earlier_messages = [m for m in messages if m.task_id != new_task_id]
        conversation = Conversation(
            message.task_id,
            message.context_id,
            History(earlier_messages, to_builtins),
            [*call.other_parts],
            message.message_id,
            MappingProxyType(call.metadata),
            metadata=self._metadata,
            report=self._report_from_anywhere,
            principal=call.caller.principal,
        )
        if (resumption := call.resumption) is not None:
            conversation.answer, conversation.state = resumption.answer, resumption.state
            conversation.approved = resumption.approved
        return create_context(
            token=self.token,
            seconds=self._time_limit,
            identity=call.caller.identity,
            trace=call.trace,
            conversation=conversation,
        )

    def _new_record(self) -> TaskRecord:
        call, message = self.call, self.call.message
        skill = {"skillId": call.skill.id} if call.skill.id else {}  # else no skill is chosen yet
        new_task = Task(
            id=message.task_id,
            context_id=message.context_id,
            status=TaskStatus(state=SUBMITTED, timestamp=now()),
            history=[message],
            metadata={**skill, "apcore": {**call.trace.metadata(), **self._setup.metadata}},
        )
        return TaskRecord(new_task, call.caller.owner, call.skill.id, resume=self._pack_call())

    def _pack_call(self) -> bytes | None:
        """Return the call as bytes, so that other replicas can repeat it; None if they cannot."""
        setup = self._setup
        packed_call = pack(self.call, setup.converter) if setup.tasks.store.is_durable else None
        self.is_repeatable = packed_call is not None
        return packed_call
