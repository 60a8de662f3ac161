"""The engine: starts runs, ends them, and keeps the table of those in progress."""

import asyncio
import logging
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING

from a2a.utils.errors import InternalError, InvalidParamsError, UnsupportedOperationError
from apcore_a2a_core.data import Message, TaskState
from apcore_a2a_core.dialects import invalid
from apcore_a2a_core.states import CANCELED, FAILED, INPUT_REQUIRED, OPEN, PAUSED, WORKING
from msgspec.structs import replace

from apcore_a2a_server.errors import DrainingError, NotStartedError, StaleTaskError
from apcore_a2a_server.middleware.logs import begin_facts
from apcore_a2a_server.modules.tenants import principal_and_tenant
from apcore_a2a_server.store import (
    KeyReusedError,
    Lease,
    RepeatedError,
    TaskRecord,
    UnavailableError,
    Webhook,
    with_webhook,
)

from .abandoned import call_on_abandoned
from .call import Call, Ticket
from .change import Decision, NewState, change
from .messages import agent_message
from .pauses import (
    Expiries,
    Pause,
    approval_in,
    asks_yes_or_no,
    is_late_decision,
    problem_of,
    repeat_question,
    transition_for_answer,
)
from .process import BackgroundTasks
from .run import Run
from .setup import Setup

if TYPE_CHECKING:  # `spans` needs an extra
    from apcore_a2a_server.spans import Spans

logger = logging.getLogger(__name__)

SHUTDOWN_WRITE_TIMEOUT = 1
"""Seconds that writes may take at the end of a drain; the store may have stopped responding."""
MAX_CANCEL_ATTEMPTS = 2
"""Attempts to cancel a task that may pause or resume meanwhile; one more accepts any open state."""


class Engine:
    """The runs of this process, at most one for each task.

    Args:
        setup: The dependencies of runs.

    Attributes:
        expiries: The timers of the tasks that this process has paused.
        runs: Runs in progress, by task id.
    """

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self.expiries = Expiries(setup.tasks, setup.capacity.paused, self._call_on_abandoned)
        self._background = BackgroundTasks()
        self.runs: dict[str, Run] = {}

    async def start(self, call: Call) -> Ticket:
        """Run *call* as a new task; return when the task is stored.

        A message that repeats an idempotency key gets the ticket of the existing task.

        Raises:
            A2AError: The call is refused.
        """
        run = Run(self._setup, call)
        try:
            await self._admit(run)
        except KeyReusedError:
            reason = "was used for another message; use a new key"
            raise invalid("metadata.idempotencyKey", reason) from None
        except RepeatedError as error:
            return Ticket(error.task_id, 0)
        return Ticket(call.message.task_id, 0, run.ended_record)

    async def resume(self, record: TaskRecord, call: Call, pause: Pause) -> Ticket:
        """Apply an answer to a paused task; of several answers, the first counts.

        An answer after the deadline fails the task, and raises nothing.

        Raises:
            A2AError: The answer is refused: the task stays paused, or its pause has already ended.
        """
        ticket = Ticket(record.task.id, record.version)
        transition, webhook = transition_for_answer(pause, call.message, call.problem), call.webhook
        if call.answered_by and transition.state != INPUT_REQUIRED:
            decision = Decision(call.answered_by, _act_of(call.message, pause))
            transition = replace(transition, decision=decision)
        if pause.expires <= await self._setup.tasks.store.now():
            await self.add_webhook(ticket.task_id, webhook)
            await self.expiries.expire(call.message, pause, call.caller.principal)
            return ticket
        is_first = False
        if transition.state == WORKING:
            try:
                is_first = await self._admit(Run(self._setup, call, (transition, pause)))
            except InvalidParamsError as error:
                if not call.asks_again:
                    raise
                transition = repeat_question(pause, call.message, problem_of(error))
        if transition.state != WORKING:
            is_first = await self._update(record, transition, webhook)
            if is_first and transition.state != INPUT_REQUIRED:
                self._call_on_abandoned(call.message, pause, call.caller.principal)
        if transition.state != INPUT_REQUIRED:
            self.expiries.cancel(ticket.task_id, pause.id)
        if not is_first:
            await self._check_late(record, call.message)
            await self.add_webhook(ticket.task_id, webhook)
        return ticket

    async def _check_late(self, paused: TaskRecord, message: Message) -> None:
        """Refuse a late answer, unless it says yes or no to an answered request for approval.

        Raises:
            UnsupportedOperationError: The pause ended before the answer came.
        """
        record = await self._setup.tasks.get_own(paused.task.id, paused.owner)
        if record is None or not is_late_decision(record.task, message):
            raise UnsupportedOperationError("The task no longer waits for this answer")

    async def _update(self, record: TaskRecord, update: NewState, webhook: Webhook | None) -> bool:
        """Change a paused task without starting a run; return False if its pause is over."""
        tasks, task_id, pause = self._setup.tasks, record.task.id, record.resume
        try:
            await change(tasks, task_id, update, expect=PAUSED, pause=pause, webhook=webhook)
        except StaleTaskError:
            return False
        return True

    def count_running(self) -> Counter[str]:
        """Return the number of tasks that this process runs, by skill.

        A run whose task is not stored yet does not count. Nor does a run that has lost its lease
        but takes some time to stop: another replica may run its task by now.
        """
        lease_of, runs = self._setup.tasks.lease_of, self.runs.items()
        return Counter(
            run.call.skill.id
            for task_id, run in runs
            if run.lease is not None and run.lease == lease_of(task_id)
        )

    async def add_webhook(self, task_id: str, webhook: Webhook | None) -> None:
        """Add the push config of a message that does not change its task."""
        if webhook is not None:
            add = partial(with_webhook, webhook=webhook)
            await self._setup.tasks.store.edit_webhooks(task_id, add)

    async def cancel(self, record: TaskRecord, canceled_by: str = "") -> None:
        """Cancel a task that has not ended, and its run.

        Args:
            record: The task.
            canceled_by: The operator that cancels it; empty if its own principal does.

        Raises:
            StaleTaskError: The task has ended.
        """
        reply_to = Message(task_id=record.task.id, context_id=record.task.context_id)
        text = "Canceled by an operator" if canceled_by else "Canceled by client"
        decision = Decision(canceled_by, "canceled") if canceled_by else None
        canceled = NewState(CANCELED, agent_message(reply_to, text), decision=decision)
        task_id, latest = record.task.id, record
        for _ in range(MAX_CANCEL_ATTEMPTS):
            if await self._cancel_paused(latest, canceled):
                break
            with suppress(StaleTaskError):
                await self._end_task(canceled, task_id, OPEN - PAUSED)
                break
            # the task has paused, or its pause has ended, since it was read
            latest = await self._setup.tasks.get(task_id) or latest
        else:
            await self._end_task(canceled, task_id, OPEN)
        self.expiries.cancel(task_id)

    async def _cancel_paused(self, record: TaskRecord, canceled: NewState) -> bool:
        """Cancel a paused task; return False if *record* is not paused, or its pause is over."""
        if record.task.status.state not in PAUSED or record.resume is None:
            return False
        if not await self._update(record, canceled, None):
            return False
        reply_to = Message(task_id=record.task.id, context_id=record.task.context_id)
        principal, _ = principal_and_tenant(record.owner, record.skill)
        self._call_on_abandoned(reply_to, Pause.unpack(record.resume), principal)
        return True

    def _call_on_abandoned(self, reply_to: Message, pause: Pause, principal: str) -> None:
        """Call `on_abandoned` of the module whose paused task has ended without another run."""
        coroutine = call_on_abandoned(self._setup, reply_to, pause, principal)
        self._background.start(coroutine, f"Calling on_abandoned of {pause.skill_id}")

    async def on_clients_lost(self, task_id: str) -> None:
        """Cancel a running task whose clients have left (FR-MSG-005).

        Detached tasks and tasks with a webhook that works need no clients.
        """
        run = self.runs.get(task_id)
        if run is None or run.call.detached:
            return
        # the client may have left before the task was stored: wait until it is
        if await run.verdict.wait() is not None:
            return
        webhooks = await self._setup.tasks.store.webhooks(task_id)
        if all(webhook.failure for webhook in webhooks):
            await self._end_run(run, CANCELED, "Client disconnected")

    async def drain(self, seconds: float) -> None:
        """Wait up to *seconds* for runs to end; then hand over or fail the remaining tasks."""
        self.expiries.cancel_all()
        if runs := [*self.runs.values()]:
            await asyncio.wait([run.task for run in runs], timeout=seconds)
            # a task that the store is still saving can't be failed yet
            verdicts = (run.verdict.wait() for run in runs if run.restart is None)
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.gather(*verdicts), SHUTDOWN_WRITE_TIMEOUT)
        released_ids = await self._release_tasks()
        remaining = [run for task_id, run in self.runs.items() if task_id not in released_ids]
        coroutines = [self._end_run(run, FAILED, "Server shutdown") for run in remaining]
        if coroutines:
            # `gather` collects the errors of a failing store, which asyncio would log otherwise
            writes = asyncio.gather(*coroutines, return_exceptions=True)
            await asyncio.wait({writes}, timeout=SHUTDOWN_WRITE_TIMEOUT)
        for run in self.runs.values():
            run.task.cancel()

    async def _release_tasks(self) -> set[str]:
        """Stop the repeatable runs, and release their leases; return the task ids."""
        live_tasks = self._setup.tasks
        leases: list[Lease] = []
        for run in self.runs.values():
            if run.lease is not None and run.is_repeatable:
                run.stop()
                live_tasks.hand_over(run.lease.task_id)
                leases.append(run.lease)
        if leases:
            with suppress(UnavailableError):  # the leases will expire
                await live_tasks.store.release(leases)
        return {lease.task_id for lease in leases}

    async def _admit(self, run: Run) -> bool:
        """Launch *run*, and wait until its task is working.

        Returns:
            Whether *run* set the task to working; False if the pause was already over.

        Raises:
            A2AError: The call is refused.
        """
        call = run.call
        state = self._setup.state
        if state.is_draining or not state.has_started:
            raise DrainingError if state.is_draining else NotStartedError
        if run.resumed_from is None:  # not for answers: they end tasks, which frees memory
            self._setup.memory.make_room(call.caller)
        await self._setup.capacity.check(call, self.runs.values())
        # of several answers at once, the first counts; if it is refused, the next one
        while (earlier := self.runs.get(call.message.task_id)) and not earlier.task.done():
            if earlier.lease not in (None, self._setup.tasks.lease_of(call.message.task_id)):
                break  # the earlier run has lost its lease, but takes some time to stop
            if await earlier.verdict.wait() is None:
                return False
            await asyncio.wait({earlier.task})
        if state.is_draining:  # checked again: the shutdown may have begun meanwhile
            raise DrainingError
        self.launch(run)
        refusal = await run.verdict.wait()
        if refusal is not None:
            raise refusal
        return run.lease is not None

    def launch(self, run: Run) -> None:
        """Start *run* as an asyncio task, without checking any limit."""
        self._setup.capacity.runs.enter(run.client)
        self.runs[run.call.message.task_id] = run
        call, context = run.call, copy_context()
        if run.restart is not None:  # no request: the run needs log facts of its own
            facts = {"task": call.message.task_id, "skill": call.skill.id}
            context.run(begin_facts, **facts, trace_id=call.trace.trace_id)
        spans = self._setup.spans
        main = run.main() if spans is None else _in_span(spans, run)
        run.task = asyncio.create_task(main, context=context)
        run.task.add_done_callback(partial(self._on_done, run))

    def on_lease_lost(self, lease: Lease) -> None:
        """Stop the run of a task whose lease this replica has lost."""
        run = self.runs.get(lease.task_id)
        if run is not None and run.lease == lease:
            run.stop()

    def _on_done(self, run: Run, asyncio_task: asyncio.Task[None]) -> None:
        """Clean up after a run.

        This is a callback, not a `finally` in `Run.main`: an asyncio task that is canceled before
        its first step never enters `main`.
        """
        task_id, client = run.call.message.task_id, run.client
        self._setup.capacity.runs.leave(client)
        if self.runs.get(task_id) is run:  # else a later run has replaced it
            del self.runs[task_id]
        if run.has_pause_slot:
            self._setup.capacity.paused.leave(client)
        if run.pause is not None and not self._setup.state.is_draining:
            timeout = self._setup.input_timeout  # in full: the task was paused just now
            self.expiries.schedule(task_id, run.pause, timeout, client)
        # `_admit` must not wait forever. If the run for an answer has no verdict by now, another
        # answer or a cancellation has changed its task: that is not an error.
        if not run.verdict.is_known:
            run.verdict.give(None if run.resumed_from is not None else InternalError())
        if not asyncio_task.cancelled() and (error := asyncio_task.exception()):
            message, event = "Task %s: run crashed outside its error handling", "run_crashed"
            logger.error(message, task_id, exc_info=error, extra={"event": event})
            failed = NewState(FAILED, agent_message(run.call.message, "Internal error"))
            coroutine = self._end_task(failed, task_id)
            self._background.start(coroutine, f"Failing task {task_id}")

    async def _end_run(self, run: Run, state: TaskState, text: str) -> None:
        with suppress(StaleTaskError):  # the task has ended or paused
            message = run.call.message
            await self._end_task(NewState(state, agent_message(message, text)), message.task_id)

    async def _end_task(
        self, transition: NewState, task_id: str, expect: Collection[TaskState] = (WORKING,)
    ) -> None:
        """End a task, and only then stop its run: a stopping run could change the task."""
        run = self.runs.get(task_id)
        spans = "" if run is None else run.spans.dump()
        await change(self._setup.tasks, task_id, transition, expect=expect, spans=spans)
        if task_id in self.runs:
            self.runs[task_id].stop()


def _act_of(message: Message, pause: Pause) -> str:
    """Return the `act` of a `Decision` about an answer."""
    if not asks_yes_or_no(pause):
        return "answered"
    return "approved" if approval_in(message, pause) else "rejected"


async def _in_span(spans: "Spans", run: Run) -> None:
    """Run a call in a span, the parent of the spans of calls that its module makes."""
    call = run.call
    attributes = {
        "a2a.skill.id": call.skill.id,
        "a2a.task.id": call.message.task_id,
        "gen_ai.conversation.id": call.message.context_id,
    }
    with spans.span("run", parent=call.trace, attributes=attributes):
        run.call = replace(call, trace=spans.current(call.trace))
        await run.main()
