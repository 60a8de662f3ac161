"""Approval: what a paused task asks, and what an answer means (FR-EXE-002)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from a2a.types import Message, Part
from apcore_a2a_core import from_value
from apcore_a2a_core.schema import is_object

from apcore_a2a_server.decode import carried

from .current import current

YES = frozenset({"yes", "y", "approve", "approved", "ok"})
NO = frozenset({"no", "n", "deny", "denied", "reject", "rejected"})


def key(skill_id: str, arguments: Mapping[str, Any]) -> str:
    """One call that needs approval, as canonical text."""
    return json.dumps([skill_id, arguments], sort_keys=True, default=str)


class ApprovalPendingError(Exception):
    """A call needs approval first; named as apcore's own."""


class ClientApproval:
    """apcore's ApprovalHandler that asks the A2A client, by pausing the task."""

    async def request_approval(self, request: Any) -> Any:
        """Approved when the client has approved just this call; pending otherwise."""
        from apcore.approval import ApprovalResult

        run = current.get()
        if run is None:
            return ApprovalResult(status="rejected", reason="Nobody can be asked here")
        asked = key(request.module_id, request.arguments)
        if asked in run.granted:
            return ApprovalResult(status="approved", approved_by="client")
        run.asked = asked
        return ApprovalResult(status="pending")

    async def check_approval(self, approval_id: str) -> Any:
        """Refused: this handler gives out no tokens."""
        from apcore.approval import ApprovalResult

        return ApprovalResult(status="rejected", approval_id=approval_id)


@dataclass(frozen=True, slots=True)
class Pause:
    """A call that waits for approval: all that is needed to go on with it."""

    skill_id: str
    inputs: dict[str, Any]
    granted: tuple[str, ...] = ()
    asked: str | None = None
    token: str | None = None

    def pack(self) -> bytes:
        values = [self.skill_id, self.inputs, self.granted, self.asked, self.token]
        return json.dumps(values).encode()

    @classmethod
    def unpack(cls, data: bytes) -> "Pause":
        skill_id, inputs, granted, asked, token = json.loads(data)
        return cls(skill_id, inputs, tuple(granted), asked, token)

    def approved(self) -> frozenset[str]:
        """What has been approved when the client says yes."""
        return frozenset((*self.granted, *([self.asked] if self.asked else ())))

    def question(self) -> list[Part]:
        """What approval is asked for: it may be a call that the skill makes."""
        skill_id, arguments = json.loads(self.asked or "null") or (self.skill_id, self.inputs)
        data = {"approval": {"skill": skill_id, "arguments": arguments}}
        text = f"Approval required for module {skill_id}"
        return [Part(text=text), Part(data=carried(data), media_type="application/json")]


def answer(message: Message) -> bool | None:
    """What a message says to a request for approval; None when that is not clear."""
    for part in message.parts:
        if part.HasField("data"):
            value = from_value(part.data)
            approved = value.get("approved") if is_object(value) else None
            if isinstance(approved, bool):
                return approved
        word = part.text.strip().rstrip(".!").lower()
        if word in YES | NO:
            return word in YES
    return None


def install(executor: Any) -> bool:
    """Have *executor* ask the client where it would ask nobody; False if it can't ask at all."""
    set_handler = getattr(executor, "set_approval_handler", None)
    if set_handler is not None and not _has_handler(executor):
        set_handler(ClientApproval())
    return set_handler is not None


def _has_handler(executor: Any) -> bool:
    strategy = getattr(executor, "current_strategy", None)
    for step in getattr(strategy, "steps", ()):
        if step.name == "approval_gate":
            return getattr(step, "_handler", None) is not None
    return getattr(executor, "_approval_handler", None) is not None
