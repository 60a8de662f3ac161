"""A call as a store keeps it, so that another process can make it again."""

import json
from dataclasses import asdict
from typing import Any

from a2a import types as a2a
from apcore import Identity
from apcore_a2a_modules import Approvals, Skill
from apcore_a2a_store import TaskRecord

from apcore_a2a_server.admission import Call
from apcore_a2a_server.clients.caller import Caller


def pack(call: Call) -> bytes | None:
    """What it takes to make *call* again; None when it may be made once only, or has no JSON."""
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
