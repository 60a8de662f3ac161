"""Starts runs, ends them, and knows which there are."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from a2a.types import Message
from a2a.utils.errors import InternalError
from anyio import CapacityLimiter
from apcore_a2a_core import ErrorMapper, PartConverter, TaskRecord

from . import approval
from .admission import Call, Caller
from .approval import Pause, answer
from .change import NewState, change
from .errors import StaleTaskError, StoreFullError, TooMuchError, refusal
from .journal import Journal
from .messages import say
from .run import Run
from .skills import Skills
from .states import CANCELED, FAILED, INPUT_REQUIRED, PAUSED, REJECTED, RUNNING, WORKING

logger = logging.getLogger("apcore_a2a.engine")


@dataclass(frozen=True, slots=True)
class Ticket:
    """A message that has been admitted: its task, and the version it starts behind."""

    task_id: str
    since: int


class Engine:
    """What all runs share, and the table of those that are running.

    Args:
        executor: The apcore Executor, or what looks like one.
        journal: Where tasks live.
        skills: The executor's modules.
        converter: Between parts and module inputs and outputs.
        mapper: From exceptions to errors.
        execution_timeout: Seconds that a run may take.
        state_history: Whether tasks keep their former states.
        max_threads: How many synchronous modules may run at a time.
    """

    def __init__(
        self,
        executor: Any,
        journal: Journal,
        skills: Skills,
        converter: PartConverter,
        mapper: ErrorMapper,
        *,
        execution_timeout: float = 300,
        state_history: bool = False,
        max_threads: int = 64,
    ) -> None:
        self.executor = executor
        self.journal = journal
        self.converter = converter
        self.execution_timeout = execution_timeout
        self.threads = CapacityLimiter(max_threads)
        self.one_pass = _install_steps(executor)
        self.asks_itself = not approval.install(executor)
        self.task_metadata: Mapping[str, Any] = (
            {"apcore": {"stateHistory": []}} if state_history else {}
        )
        self.runs: dict[str, tuple[Run, asyncio.Task[None]]] = {}
        self._skills = skills
        self._mapper = mapper

    async def start(self, call: Call) -> Ticket:
        """Run *call* as a new task; return when the task is there.

        Raises:
            A2AError: Whatever refuses the call, as clients may see it.
        """
        run = self._launch(Run(self, call))
        try:
            await run.admitted
        except StoreFullError:
            raise TooMuchError from None
        except Exception as error:  # modules, middleware and stores raise what they like
            raise refusal(self.explain(error, call)) from None
        return Ticket(call.task_id, 0)

    async def resume(
        self, record: TaskRecord, message: Message, caller: Caller, *, streaming: bool
    ) -> Ticket:
        """Go on with a paused task, as *message* says; of several answers the first counts."""
        task = record.task
        pause = Pause.unpack(record.resume or b"")
        agreed = answer(message) if pause.token is None else True
        message.task_id, message.context_id = task.id, task.context_id
        call = Call(
            skill=self._skills.get(record.skill),
            inputs=pause.inputs,
            message=message,
            caller=caller,
            task_id=task.id,
            context_id=task.context_id,
            streaming=streaming,
            granted=frozenset((*pause.granted, *filter(None, [pause.asked]))),
            token=pause.token,
        )
        update = _answered(record, message, pause, agreed)
        try:
            await change(self.journal, task.id, update, expect=PAUSED)
        except StaleTaskError:
            return Ticket(task.id, record.version)
        if agreed:
            self._launch(Run(self, call, admitted=True))
        return Ticket(task.id, record.version)

    async def cancel(self, record: TaskRecord, reason: str = "Canceled by client") -> None:
        """Cancel a task that has not ended, and the run that works for it.

        Raises:
            StaleTaskError: It has ended meanwhile.
        """
        await self._end(record, NewState(CANCELED, _about(record, reason)))

    async def drain(self, seconds: float) -> None:
        """Let what runs end for *seconds*; fail what has not ended then."""
        tasks = [task for _, task in self.runs.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)
        for task_id in list(self.runs):
            record = await self.journal.get(task_id)
            if record is not None:
                failed = NewState(FAILED, _about(record, "Server shutdown"))
                await self._end(record, failed)

    def explain(self, error: BaseException, call: Call) -> dict[str, Any]:
        """The error of a run, as clients may see it."""
        return self._mapper.to_jsonrpc_error(
            error, skill=call.skill.id, inputs=call.inputs, schema=call.skill.schema
        )

    def _launch(self, run: Run) -> Run:
        task = asyncio.create_task(run.main())
        self.runs[run.call.task_id] = (run, task)
        task.add_done_callback(partial(self._on_done, run))
        return run

    def _on_done(self, run: Run, task: asyncio.Task[None]) -> None:
        """Clean up; a task canceled before its first step never gets to do so itself."""
        if self.runs.get(run.call.task_id, (None,))[0] is run:
            del self.runs[run.call.task_id]
        if not run.admitted.done():
            run.admitted.set_exception(InternalError())
        run.admitted.exception()  # it may be that nobody waits for it any more
        if not task.cancelled() and (error := task.exception()):
            logger.error("Task %s was left as it is", run.call.task_id, exc_info=error)

    async def _end(self, record: TaskRecord, update: NewState) -> None:
        await change(self.journal, record.task.id, update, expect=RUNNING | PAUSED)
        run, task = self.runs.get(record.task.id, (None, None))
        if run is not None and task is not None:
            run.token.cancel()
            task.cancel()


def _install_steps(executor: Any) -> bool:
    """Whether the executor's pipeline takes our steps (apcore 0.16 and later)."""
    if not hasattr(executor, "current_strategy"):
        return False
    from apcore.errors import ModuleError

    from . import steps

    try:
        steps.install(executor)
    except ModuleError:
        return False
    return True


def _about(record: TaskRecord, text: str) -> Message:
    return say(record.task.id, record.task.context_id, text)


def _answered(record: TaskRecord, message: Message, pause: Pause, agreed: bool | None) -> NewState:
    """The state that an answer brings a paused task into."""
    if agreed:
        return NewState(WORKING, received=message)
    if agreed is False:
        return NewState(REJECTED, _about(record, "Rejected by client"), received=message)
    again = say(
        record.task.id,
        record.task.context_id,
        'Please answer yes or no, or {"approved": true} or {"approved": false}',
        pause.question(),
    )
    return NewState(INPUT_REQUIRED, again, received=message, resume=record.resume)
