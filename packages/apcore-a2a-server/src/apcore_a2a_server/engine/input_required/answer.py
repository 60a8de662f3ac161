"""What a message to a paused task means (FR-CTX-003)."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

from a2a.types import Message, Part, Role, Task
from apcore_a2a_core import from_value, load_json
from apcore_a2a_core.schema import is_object
from apcore_a2a_core.states import REJECTED, WORKING

from apcore_a2a_server.engine.change import NewState
from apcore_a2a_server.engine.messages import say

from .pause import Pause, asking, question

YES = frozenset({"yes", "y", "approve", "approved", "ok"})
NO = frozenset({"no", "n", "deny", "denied", "reject", "rejected"})
HOW_TO_ANSWER = 'Please answer yes or no, or {"approved": true} or {"approved": false}'


def answered(pause: Pause, message: Message) -> NewState:
    """The state that a message brings the task of *pause* into."""
    agreed = verdict(pause, message)
    if agreed:
        return NewState(WORKING, received=message)
    if agreed is False:
        return NewState(REJECTED, say(message, "Rejected by client"), received=message)
    again = say(message, HOW_TO_ANSWER, *question(pause)[1:])
    return replace(asking(pause, again), received=message)


def verdict(pause: Pause, message: Message) -> bool | None:
    """Whether the call goes on: yes, no (it is rejected), or None when that is not clear.

    A question for input is answered by any message; so is one that the executor's own approval
    handler decides.
    """
    if pause.token is not None or pause.question is not None:
        return True
    approved, pause_id = _said(message)
    return approved if pause_id in (None, pause.id) else None


def is_late_answer(task: Task, message: Message) -> bool:
    """Whether *message* answers a question of *task* that somebody has answered already."""
    asked = False
    for said in task.history:
        if asked and said.role == Role.ROLE_USER:
            return _said(message)[0] is not None
        ours = said.role == Role.ROLE_AGENT
        asked |= ours and any("approval" in part.data.struct_value for part in said.parts)
    return False


def _said(message: Message) -> tuple[bool | None, Any]:
    """What a message says to a request for approval, and to which; None for what is not clear.

    Its texts, and the data that say whether it is approved, have to say the same.
    """
    found = [_part(part) for part in message.parts if not _is_aside(part)]
    agree = found and all(answer == found[0] for answer in found)
    return found[0] if agree else (None, None)


def _is_aside(part: Part) -> bool:
    """Whether a part is no answer, and no words either."""
    return not part.HasField("text") and "approved" not in part.data.struct_value


def _part(part: Part) -> tuple[bool | None, Any]:
    value: Any = None
    with suppress(ValueError):
        value = from_value(part.data) if part.HasField("data") else load_json(part.text)
    if is_object(value) and isinstance(value.get("approved"), bool):
        return value["approved"], value.get("approvalId")
    word = part.text.strip().rstrip(".!").lower()
    return (word in YES, None) if word in YES | NO else (None, None)
