"""Starts runs, ends them, and knows which there are."""

import asyncio
import logging
from collections.abc import Collection
from contextlib import suppress
from functools import partial

from a2a import types as a2a
from a2a.utils.errors import InternalError
from apcore_a2a_core.dialects import invalid
from apcore_a2a_core.states import CANCELED, FAILED, INPUT_REQUIRED, OPEN, PAUSED, WORKING

from apcore_a2a_server.errors import DrainingError, StaleTaskError, refusal
from apcore_a2a_server.store import (
    KeyReusedError,
    Lease,
    RepeatedError,
    TaskRecord,
    UnavailableError,
    Webhook,
    with_webhook,
)

from .call import Call, Ticket
from .change import NewState, change
from .messages import say
from .pauses import Expiries, Pause, answered
from .process import Background
from .run import Run
from .setup import Setup

logger = logging.getLogger(__name__)


class Engine:
    """The table of runs.

    Args:
        setup: What runs share.
    """

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self.expiries = Expiries(setup.tasks)
        self._background = Background()
        self.runs: dict[str, tuple[Run, asyncio.Task[None]]] = {}

    async def start(self, call: Call) -> Ticket:
        """Run *call* as a new task; return when the task is there.

        Raises:
            A2AError: Whatever refuses the call, as clients may see it.
        """
        try:
            await self._admitted(Run(self._setup, call))
        except KeyReusedError:
            raise invalid("metadata.idempotencyKey", "was used for another message") from None
        except RepeatedError as error:
            return Ticket(error.task_id, 0)
        return Ticket(call.message.task_id, 0)

    async def resume(self, record: TaskRecord, call: Call, pause: Pause) -> Ticket:
        """Go on with a paused task as the message says; of several answers the first counts.

        Raises:
            A2AError: Whatever refuses the answer; the task waits for another one then.
        """
        ticket = Ticket(record.task.id, record.version)
        update, webhook = answered(pause, call.message), call.webhook
        if pause.is_over():
            await self._add_webhook(ticket.task_id, webhook)
            await self.expiries.end(call.message, pause)
            return ticket
        if update.state == WORKING:
            counts = await self._admitted(Run(self._setup, call, (update, pause)))
        else:
            counts = await self._answer(record, update, webhook)
        if not counts:
            await self._add_webhook(ticket.task_id, webhook)
        if update.state != INPUT_REQUIRED:
            self.expiries.forget(ticket.task_id, pause.id)
        return ticket

    async def _answer(self, record: TaskRecord, update: NewState, webhook: Webhook | None) -> bool:
        """Change a paused task that does not run again; False when another answer was faster."""
        tasks, task_id, pause = self._setup.tasks, record.task.id, record.resume
        try:
            await change(tasks, task_id, update, expect=PAUSED, pause=pause, webhook=webhook)
        except StaleTaskError:
            return False
        return True

    async def _add_webhook(self, task_id: str, webhook: Webhook | None) -> None:
        """Add the webhook of an answer that changes nothing itself."""
        if webhook is not None:
            edit = partial(with_webhook, webhook=webhook)
            await self._setup.tasks.store.edit_webhooks(task_id, edit)

    async def cancel(self, record: TaskRecord) -> None:
        """Cancel a task that has not ended, and the run that works for it.

        Raises:
            StaleTaskError: It has ended meanwhile.
        """
        about = a2a.Message(task_id=record.task.id, context_id=record.task.context_id)
        await self._end(about, CANCELED, "Canceled by client", OPEN)
        self.expiries.forget(record.task.id)

    async def abandon(self, task_id: str) -> None:
        """Cancel a running task without clients or working webhooks (FR-MSG-005)."""
        run, _ = self.runs.get(task_id, (None, None))
        if run is None or run.call.detached:
            return
        webhooks = await self._setup.tasks.store.webhooks(task_id)
        if all(webhook.failure for webhook in webhooks):
            await self._stop(run, CANCELED, "Client disconnected")

    async def drain(self, seconds: float) -> None:
        """Let running tasks end for *seconds*; hand over or fail those that have not."""
        self.expiries.forget_all()
        if runs := [*self.runs.values()]:
            await asyncio.wait([task for _, task in runs], timeout=seconds)
            # their tasks may be on their way to the store
            await asyncio.wait([run.admitted for run, _ in runs], timeout=1)
        kept = await self._hand_over()
        left = [run for task_id, (run, _) in self.runs.items() if task_id not in kept]
        ends = [self._stop(run, FAILED, "Server shutdown") for run in left]
        if ends:  # a store may not answer any more
            await asyncio.wait([*map(asyncio.ensure_future, ends)], timeout=1)
        for _, task in [*self.runs.values()]:
            task.cancel()

    async def _hand_over(self) -> set[str]:
        """Give tasks that other replicas may run again to them at once; return the tasks' ids."""
        tasks = self._setup.tasks
        leases: list[Lease] = []
        for run, task in self.runs.values():
            if run.lease is not None and run.is_kept:
                run.token.cancel()
                task.cancel()
                tasks.forget(run.lease.task_id)
                leases.append(run.lease)
        if leases:
            with suppress(UnavailableError):  # the leases expire by themselves then
                await tasks.store.release(leases)
        return {lease.task_id for lease in leases}

    async def _admitted(self, run: Run) -> bool:
        """Run, and return when the run's task works; or raise what refuses it.

        Returns:
            Whether it was this run that made it work; if not, another answer was faster.
        """
        call = run.call
        if self._setup.state.is_draining:
            raise DrainingError
        await self._setup.capacity.check(call, self.runs.values())
        current = self.runs.get(call.message.task_id)
        if current is None or current[1].done():  # else somebody's answer is on its way
            current = self.run(run)
        try:
            await asyncio.shield(current[0].admitted)
        except (RepeatedError, UnavailableError):
            raise
        except Exception as error:  # modules, middleware and stores raise what they like
            raise refusal(self._setup.explain(error, call)) from None
        return current[0] is run and run.lease is not None

    def run(self, run: Run) -> tuple[Run, asyncio.Task[None]]:
        """Run, whatever else runs."""
        task = asyncio.create_task(run.main())
        current = self.runs[run.call.message.task_id] = (run, task)
        task.add_done_callback(partial(self._on_done, run))
        return current

    def lose(self, lease: Lease) -> None:
        """Stop a run that this process may not go on with; its task is another's."""
        run, task = self.runs.get(lease.task_id, (None, None))
        if run is not None and task is not None and run.lease == lease:
            run.token.cancel()
            task.cancel()

    def _on_done(self, run: Run, task: asyncio.Task[None]) -> None:
        """Clean up; a task that is canceled before its first step can't do so itself."""
        task_id = run.call.message.task_id
        if self.runs.get(task_id) == (run, task):
            del self.runs[task_id]
        if run.paused is not None and not self._setup.state.is_draining:
            self.expiries.expect(run.call.message, run.paused)
        if not run.admitted.done() and run.answer is not None:
            run.admitted.set_result(None)  # somebody else has answered, or has ended the task
        if not run.admitted.done():
            run.admitted.set_exception(InternalError())
        run.admitted.exception()  # retrieve it: the caller may have gone
        if not task.cancelled() and (error := task.exception()):
            logger.error("Task %s could not end by itself", task_id, exc_info=error)
            ending = self._end(run.call.message, FAILED, "Internal error")
            self._background.start(ending, f"Failing task {task_id}")

    async def _stop(self, run: Run, state: a2a.TaskState, text: str) -> None:
        with suppress(StaleTaskError):  # it has ended by itself just now
            await self._end(run.call.message, state, text)

    async def _end(
        self,
        about: a2a.Message,
        state: a2a.TaskState,
        text: str,
        expect: Collection[a2a.TaskState] = (WORKING,),
    ) -> None:
        update = NewState(state, say(about, text))
        await change(self._setup.tasks, about.task_id, update, expect=expect)
        if about.task_id in self.runs:
            run, task = self.runs[about.task_id]
            run.token.cancel()
            task.cancel()
