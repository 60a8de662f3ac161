"""A paused call: why, and how it goes on (FR-EXE-002, FR-CTX-003)."""

import json
import time
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from uuid import uuid4

from .approvals import Approvals
from .conversation import INPUT_REQUIRED


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A call that waits for an answer: all that is needed to go on with it.

    Attributes:
        id: Of this pause; each question has a new one.
        skill_id: The skill that was called.
        inputs: What it was called with.
        parts: The other parts of its message.
        expires: When nobody need answer any more, in seconds since the epoch.
        granted: The calls that have been approved, as `call_key` names them.
        done: What those of them gave that have been made.
        asked: The call that approval is asked for.
        token: The approval id to go on with, when the executor has its user's handler.
        question: What a module asks for, when it is input and not approval.
        data: What goes with the question.
    """

    id: str
    skill_id: str
    inputs: dict[str, Any]
    expires: float
    parts: list[Any] = field(default_factory=list[Any])
    granted: list[str] = field(default_factory=list[str])
    done: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    asked: str | None = None
    token: str | None = None
    question: str | None = None
    data: Any = None

    @classmethod
    def after(cls, error: BaseException, call: Any, seconds: float) -> "Pause":
        """The pause that *error* leads to: for input, or for approval.

        Args:
            error: What was raised.
            call: The call that pauses: its `skill`, `inputs`, `rest` and `approvals`.
            seconds: How long there is for an answer.
        """
        found = cls(
            id=str(uuid4()),
            skill_id=call.skill.id,
            inputs=call.inputs,
            expires=time.time() + seconds,
            parts=[*call.rest],
            granted=call.approvals.granted,
            done=call.approvals.done,
        )
        if is_for_input(error):
            details: dict[str, Any] = getattr(error, "details", None) or {}
            question = str(getattr(error, "message", ""))
            return replace(found, question=question, data=details.get("data"))
        asked = call.approvals.asked
        token = getattr(error, "approval_id", None) if asked is None else None
        return replace(found, asked=asked, token=token)

    def pack(self) -> bytes:
        """The pause as a store keeps it."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def unpack(cls, data: bytes) -> "Pause":
        """The pause that *data* was made of."""
        return cls(**json.loads(data))

    def is_over(self) -> bool:
        """Whether it is too late for an answer."""
        return self.expires <= time.time()

    def over(self) -> str:
        """What the task says when nobody has answered in time."""
        what = "Approval" if self.question is None else "The question"
        return f"{what} expired: nobody has answered in time"

    def approved(self) -> Approvals:
        """What has been approved when the client says yes."""
        return Approvals([*self.granted, *([self.asked] if self.asked else ())], self.done)


def is_over(packed: bytes | None) -> bool:
    """Whether it is too late to answer a packed pause."""
    return packed is not None and Pause.unpack(packed).is_over()


def is_for_input(error: BaseException) -> bool:
    """Whether a module asks for more input with *error*."""
    return getattr(error, "code", None) == INPUT_REQUIRED
