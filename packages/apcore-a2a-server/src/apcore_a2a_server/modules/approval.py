"""Approval: apcore's gate asks the A2A client, by pausing the task (FR-EXE-002)."""

from typing import Any, NamedTuple

from .approvals import call_key
from .current import current


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
        try:
            key = call_key(request.module_id, request.arguments)
        except (TypeError, ValueError):
            return ApprovalResult(status="rejected", reason="The arguments are not JSON")
        if run.approvals.admit(key, request.context):
            return ApprovalResult(status="approved", approved_by="client")
        return ApprovalResult(status="pending")

    async def check_approval(self, approval_id: str) -> Any:
        """Refused: this handler gives out no tokens."""
        from apcore.approval import ApprovalResult

        return ApprovalResult(status="rejected", approval_id=approval_id)


class Gate(NamedTuple):
    """How an executor asks for approval."""

    is_there: bool
    """Whether calls pass a gate that asks."""
    asks_client: bool
    """Whether it is the client who is asked, not a handler of the executor's user."""


def install_approval(executor: Any) -> Gate:
    """Have *executor* ask the client where it would ask nobody."""
    set_handler = getattr(executor, "set_approval_handler", None)
    strategy = getattr(executor, "current_strategy", None)
    if set_handler is None or (strategy and "approval_gate" not in strategy.step_names()):
        return Gate(is_there=False, asks_client=True)
    found = _handler(executor)
    if found is None:
        set_handler(ClientApproval())
    return Gate(is_there=True, asks_client=isinstance(found, ClientApproval | None))


def _handler(executor: Any) -> Any:
    strategy = getattr(executor, "current_strategy", None)
    for step in getattr(strategy, "steps", ()):
        if step.name == "approval_gate":
            return getattr(step, "_handler", None)
    return getattr(executor, "_approval_handler", None)
