"""Tasks whose process was lost: they run again here, or end."""

import logging
from contextlib import suppress

from a2a import types as a2a
from a2a.utils.errors import MethodNotFoundError
from apcore_a2a_modules import Pause, Skills
from apcore_a2a_store import Claim
from apcore_a2a_store.states import FAILED, PAUSED, WORKING

from apcore_a2a_server.admission import Call
from apcore_a2a_server.change import change
from apcore_a2a_server.engine import Engine
from apcore_a2a_server.errors import StaleTaskError
from apcore_a2a_server.handover.lost import Lost, Restart
from apcore_a2a_server.handover.stored import unpack
from apcore_a2a_server.run import Run
from apcore_a2a_server.shared.setup import Setup
from apcore_a2a_server.shared.updates import NewState
from apcore_a2a_server.shared.words import say

logger = logging.getLogger("apcore_a2a_server")

ATTEMPTS = 3
"""How often a task is run in all."""
REASON = "Replica lost while running"
AGAIN = "Started again: the replica that ran it was lost"


class Recovery:
    """Goes on with what other processes have left.

    Args:
        setup: What runs share.
        engine: Runs calls.
        skills: The modules.
    """

    def __init__(self, setup: Setup, engine: Engine, skills: Skills) -> None:
        self._setup = setup
        self._engine = engine
        self._skills = skills

    async def take(self, claim: Claim) -> None:
        """Run the task of *claim* again, when that does no harm; else let it fail."""
        record, lease = claim.record, claim.lease
        journal = self._setup.journal
        about = a2a.Message(task_id=record.task.id, context_id=record.task.context_id)
        if record.task.status.state in PAUSED:  # nobody has answered in time
            await self._engine.expire(about, Pause.unpack(record.resume or b""))
            return
        await journal.adopt(claim)
        call = self._call(claim) if claim.attempts < ATTEMPTS else None
        if call is None:
            logger.warning("Task %s fails: its replica was lost", record.task.id)
            update = NewState(FAILED, say(about, REASON))
            with suppress(StaleTaskError):  # somebody has canceled it just now
                await change(journal, record.task.id, update, expect=(WORKING,), lease=lease)
            return
        logger.warning("Task %s is started again: its replica was lost", record.task.id)
        lost = Lost(Restart(say(about, AGAIN), record.resume), lease)
        self._engine.run(Run(self._setup, call, lost=lost))

    def _call(self, claim: Claim) -> Call | None:
        """The call of a task, when it can be made again."""
        record = claim.record
        with suppress(MethodNotFoundError):  # this process does not have it
            skill = self._skills.get(record.skill)
            if record.resume is not None and skill.is_repeatable:
                return unpack(record.resume, skill, record)
        return None
