"""Approval: apcore's gate asks the A2A client, by pausing the task (FR-EXE-002)."""

import json
from collections.abc import Mapping
from typing import Any

from .current import current


def call_key(skill_id: str, arguments: Mapping[str, Any]) -> str:
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
        asked = call_key(request.module_id, request.arguments)
        if asked in run.granted:
            return ApprovalResult(status="approved", approved_by="client")
        run.asked = asked
        return ApprovalResult(status="pending")

    async def check_approval(self, approval_id: str) -> Any:
        """Refused: this handler gives out no tokens."""
        from apcore.approval import ApprovalResult

        return ApprovalResult(status="rejected", approval_id=approval_id)


def install_approval(executor: Any) -> bool:
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
