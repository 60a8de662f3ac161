"""Failover: run or end the tasks that this replica has claimed."""

import logging
from contextlib import suppress

from a2a.utils.errors import (
    ContentTypeNotSupportedError,
    InvalidParamsError,
    MethodNotFoundError,
)
from apcore_a2a_core.data import Message
from apcore_a2a_core.states import FAILED, PAUSED, WORKING

from apcore_a2a_server.errors import StaleTaskError
from apcore_a2a_server.modules.tenants import principal_and_tenant
from apcore_a2a_server.store import Claim

from .call import Call, unpack
from .change import NewState, Restart, change
from .engine import Engine
from .messages import agent_message
from .pauses import Pause
from .run import Run
from .setup import Setup

logger = logging.getLogger("apcore_a2a_server")

UNREADABLE = (
    ContentTypeNotSupportedError,
    InvalidParamsError,
    KeyError,
    TypeError,
    ValueError,
)
"""Errors of reading a stored call: another release wrote it, or its message is gone or invalid."""
LOST_TEXT = "Replica lost while running"
LOST_AGAIN_TEXT = "Replica lost while running: the task was started {} times, which is the limit"
RESTART_TEXT = "Started again: the replica that ran it was lost"


class Recovery:
    """Failover of the tasks that this replica has claimed: they run again, or end.

    Args:
        setup: The dependencies of runs.
        engine: The engine that runs the calls.
    """

    def __init__(self, setup: Setup, engine: Engine) -> None:
        self._setup = setup
        self._engine = engine

    async def take(self, claim: Claim) -> None:
        """Run the claimed task again if its call can be repeated once more; otherwise fail it.

        A paused task is claimed when its deadline has passed, and fails.
        """
        record, lease = claim.record, claim.lease
        task_id, live_tasks = record.task.id, self._setup.tasks
        reply_to = Message(task_id=task_id, context_id=record.task.context_id)
        if record.task.status.state in PAUSED:
            pause = Pause.unpack(record.resume or b"")
            principal, _ = principal_and_tenant(record.owner, record.skill)
            await self._engine.expiries.expire(reply_to, pause, principal)
            return
        # from here on the task is live in this process, which renews its lease
        await live_tasks.adopt(claim)
        # `restart_pauses` has the seconds to wait before each restart, so its length is the limit
        may_restart = claim.attempts <= len(live_tasks.store.restart_pauses)
        call = self._repeated_call(claim) if may_restart else None
        if call is None:
            event = {"event": "task_lost"}
            logger.warning("Task %s fails: its replica was lost", task_id, extra=event)
            text = LOST_TEXT if may_restart else LOST_AGAIN_TEXT.format(claim.attempts)
            failure = NewState(FAILED, agent_message(reply_to, text))
            with suppress(StaleTaskError):  # it was canceled just now
                await change(live_tasks, task_id, failure, expect=(WORKING,), lease=lease)
            return
        event = {"event": "task_restarted"}
        logger.warning("Task %s is started again: its replica was lost", task_id, extra=event)
        restart = Restart(agent_message(reply_to, RESTART_TEXT), record.resume)
        self._engine.launch(Run(self._setup, call, restart=restart, lease=lease))

    def _repeated_call(self, claim: Claim) -> Call | None:
        """Return the stored call of the claimed task; None if it cannot be repeated."""
        record = claim.record
        with suppress(MethodNotFoundError, *UNREADABLE):  # this replica may lack the module
            skill = self._setup.skills.get(record.skill)
            if record.resume is not None and skill.is_repeatable:
                return unpack(record.resume, skill, record, self._setup.converter)
        return None
