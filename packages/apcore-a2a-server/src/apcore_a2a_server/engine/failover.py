"""Running tasks survive their replica: a call is stored, claimed and made again."""

import json
import logging
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from a2a import types as a2a
from a2a.utils.errors import MethodNotFoundError
from apcore import Identity
from apcore_a2a_core.states import FAILED, PAUSED, WORKING

from apcore_a2a_server.errors import StaleTaskError
from apcore_a2a_server.modules.approval import Approvals
from apcore_a2a_server.modules.skills import Skill
from apcore_a2a_server.store import Claim, TaskRecord

from .call import Call
from .change import NewState, Restart, change
from .clients import Caller
from .engine import Engine
from .messages import say
from .pauses import Pause
from .run import Lost, Run
from .setup import Setup


def pack(call: Call) -> bytes | None:
    """Pack *call* so that it can be made again; None if it must not be, or has no JSON."""
    identity = call.caller.identity
    if not call.skill.is_repeatable or not isinstance(identity, Identity | None):
        return None
    kept = {
        "inputs": call.inputs,
        "identity": None if identity is None else asdict(identity),
        "streaming": call.streaming,
        "rest": [*call.rest],
        "continues": call.continues,
        "granted": call.approvals.granted,
        "done": call.approvals.done,
        "token": call.token,
    }
    try:
        return json.dumps(kept).encode()
    except (TypeError, ValueError):  # an identity's attributes may be anything
        return None


def unpack(data: bytes, skill: Skill, record: TaskRecord) -> Call:
    """The call that *data* was made of, for the task of *record*."""
    kept: dict[str, Any] = json.loads(data)
    task, who = record.task, kept["identity"]
    identity = who and Identity(who["id"], who["type"], tuple(who["roles"]), who["attrs"])
    return Call(
        skill,
        kept["inputs"],
        a2a.Message(task_id=task.id, context_id=task.context_id),
        Caller(record.owner, identity),
        streaming=kept["streaming"],
        rest=kept["rest"],
        continues=kept["continues"],
        detached=True,
        approvals=Approvals(kept["granted"], kept["done"]),
        token=kept["token"],
    )


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
    """

    def __init__(self, setup: Setup, engine: Engine) -> None:
        self._setup = setup
        self._engine = engine

    async def take(self, claim: Claim) -> None:
        """Run the task of *claim* again, when that does no harm; else let it fail."""
        record, lease = claim.record, claim.lease
        tasks = self._setup.tasks
        about = a2a.Message(task_id=record.task.id, context_id=record.task.context_id)
        if record.task.status.state in PAUSED:  # the answer has not come in time
            await self._engine.expiries.end(about, Pause.unpack(record.resume or b""))
            return
        await tasks.adopt(claim)
        call = self._call(claim) if claim.attempts < ATTEMPTS else None
        if call is None:
            logger.warning("Task %s fails: its replica was lost", record.task.id)
            update = NewState(FAILED, say(about, REASON))
            with suppress(StaleTaskError):  # it was canceled just now
                await change(tasks, record.task.id, update, expect=(WORKING,), lease=lease)
            return
        logger.warning("Task %s is started again: its replica was lost", record.task.id)
        lost = Lost(Restart(say(about, AGAIN), record.resume), lease)
        self._engine.run(Run(self._setup, call, lost=lost))

    def _call(self, claim: Claim) -> Call | None:
        """The call of a task, when it can be made again."""
        record = claim.record
        with suppress(MethodNotFoundError):  # this process does not have it
            skill = self._setup.skills.get(record.skill)
            if record.resume is not None and skill.is_repeatable:
                return unpack(record.resume, skill, record)
        return None
