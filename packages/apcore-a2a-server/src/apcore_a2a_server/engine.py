"""Starts runs, ends them, and knows which there are."""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from a2a import types as a2a
from a2a.utils.errors import InternalError
from apcore_a2a_store import TaskRecord
from apcore_a2a_store.states import (
    CANCELED,
    FAILED,
    INPUT_REQUIRED,
    OPEN,
    PAUSED,
    REJECTED,
    WORKING,
)

from .admission import Call, Caller
from .change import NewState, change, say
from .errors import DrainingError, StaleTaskError, refusal
from .modules.approval import Pause, answer
from .modules.setup import Setup
from .modules.skills import Skills
from .run import Run

logger = logging.getLogger(__name__)

HOW_TO_ANSWER = 'Please answer yes or no, or {"approved": true} or {"approved": false}'


@dataclass(frozen=True, slots=True)
class Ticket:
    """A message that has been admitted: its task, and the version it starts behind."""

    task_id: str
    since: int


class Engine:
    """The table of runs.

    Args:
        setup: What runs share.
        skills: The modules.
    """

    def __init__(self, setup: Setup, skills: Skills) -> None:
        self._setup = setup
        self._skills = skills
        self.draining = False
        self.runs: dict[str, tuple[Run, asyncio.Task[None]]] = {}

    async def start(self, call: Call) -> Ticket:
        """Run *call* as a new task; return when the task is there.

        Raises:
            A2AError: Whatever refuses the call, as clients may see it.
        """
        if self.draining:
            raise DrainingError
        run = self._launch(Run(self._setup, call))
        try:
            await asyncio.shield(run.admitted)
        except Exception as error:  # modules, middleware and stores raise what they like
            raise refusal(self._setup.explain(error, call)) from None
        return Ticket(call.message.task_id, 0)

    async def resume(
        self, record: TaskRecord, message: a2a.Message, caller: Caller, *, streaming: bool
    ) -> Ticket:
        """Go on with a paused task, as *message* says; of several answers the first counts."""
        if self.draining:
            raise DrainingError
        task, pause = record.task, Pause.unpack(record.resume or b"")
        message.task_id, message.context_id = task.id, task.context_id
        agreed = answer(message) if pause.token is None else True
        skill = self._skills.get(record.skill)
        call = Call(
            skill, pause.inputs, message, caller, streaming, (), pause.approved(), pause.token
        )
        try:
            update = _answered(record, message, pause, agreed)
            await change(self._setup.journal, task.id, update, expect=PAUSED)
        except StaleTaskError:  # somebody else has answered
            agreed = False
        if agreed:
            self._launch(Run(self._setup, call, admitted=True))
        return Ticket(task.id, record.version)

    async def cancel(self, record: TaskRecord) -> None:
        """Cancel a task that has not ended, and the run that works for it.

        Raises:
            StaleTaskError: It has ended meanwhile.
        """
        await self._end(record.task.history[0], CANCELED, "Canceled by client")

    async def drain(self, seconds: float) -> None:
        """Start nothing more; let what runs end for *seconds*, and fail what has not then."""
        self.draining = True
        if self.runs:
            await asyncio.wait([task for _, task in self.runs.values()], timeout=seconds)
        for run, task in list(self.runs.values()):
            await asyncio.wait({run.admitted}, timeout=1)  # its task may be on its way to the store
            with suppress(StaleTaskError):  # it has ended by itself just now
                await self._end(run.call.message, FAILED, "Server shutdown")
            task.cancel()

    def _launch(self, run: Run) -> Run:
        task = asyncio.create_task(run.main())
        self.runs[run.call.message.task_id] = (run, task)
        task.add_done_callback(partial(self._on_done, run))
        return run

    def _on_done(self, run: Run, task: asyncio.Task[None]) -> None:
        """Clean up; a task that is canceled before its first step can't do so itself."""
        task_id = run.call.message.task_id
        if self.runs.get(task_id) == (run, task):
            del self.runs[task_id]
        if not run.admitted.done():
            run.admitted.set_exception(InternalError())
        run.admitted.exception()  # it may be that nobody waits for it any more
        if not task.cancelled() and (error := task.exception()):
            logger.error("Task %s was left as it is", task_id, exc_info=error)

    async def _end(self, about: a2a.Message, state: a2a.TaskState, text: str) -> None:
        update = NewState(state, say(about, text))
        await change(self._setup.journal, about.task_id, update, expect=OPEN)
        if about.task_id in self.runs:
            run, task = self.runs[about.task_id]
            run.token.cancel()
            task.cancel()


def _answered(
    record: TaskRecord, message: a2a.Message, pause: Pause, agreed: bool | None
) -> NewState:
    """The state that an answer brings a paused task into."""
    if agreed:
        return NewState(WORKING, received=message)
    if agreed is False:
        return NewState(REJECTED, say(message, "Rejected by client"), received=message)
    again = say(message, HOW_TO_ANSWER, pause.question()[1])
    return NewState(INPUT_REQUIRED, again, received=message, resume=record.resume)
