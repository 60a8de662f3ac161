"""Approval: who is asked for it, and what has been approved for a task (FR-EXE-002)."""

import json
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

from apcore.approval import ApprovalResult
from apcore_a2a_core import Executor

from .access import step_of
from .skills import Skill
from .threads import ThreadPool


def call_key(skill_id: str, arguments: Mapping[str, Any]) -> str:
    """One call that needs approval, as canonical text.

    Raises:
        TypeError: The arguments are not JSON.
    """
    return json.dumps([skill_id, arguments], sort_keys=True)


class Approvals:
    """The approvals of a task, and the results of approved calls.

    A task that goes on after a pause runs its module from the beginning. The calls that were
    approved on the way and have been made by then are not made again: they give what they gave.
    Each approval is for one call; the same call once more needs another one.

    Args:
        granted: The calls that have been approved, as `call_key` names them.
        done: What those of them gave that have been made.
    """

    def __init__(
        self, granted: list[str] | None = None, done: dict[str, list[Any]] | None = None
    ) -> None:
        self.granted = granted or []
        self.done = done or {}
        self.asked: str | None = None
        """The call that approval was asked for last."""
        self._seen: Counter[str] = Counter()
        self._calls: dict[int, tuple[object, str, int]] = {}

    def admit(self, key: str, context: object) -> bool:
        """Whether a call may be made; if not, it is the one that approval is asked for."""
        self._seen[key] += 1
        if self._seen[key] > self.granted.count(key):
            self.asked = key
            return False
        self._calls[id(context)] = (context, key, self._seen[key])
        return True

    def result(self, context: object) -> tuple[bool, Any]:
        """Whether the call has been made in an earlier run, and what it gave."""
        _, key, number = self._calls.get(id(context), (None, "", 0))
        made = self.done.get(key, [])
        return (True, made[number - 1]) if 0 < number <= len(made) else (False, None)

    def keep(self, context: object, output: Any) -> None:
        """Remember what an approved call gave, if that is JSON."""
        _, key, _ = self._calls.pop(id(context), (None, "", 0))
        with suppress(TypeError, ValueError):
            if key:
                self.done.setdefault(key, []).append(json.loads(json.dumps(output)))


class Running(Protocol):
    """The side of a run that apcore's pipeline and approval gate use."""

    threads: ThreadPool
    """Where synchronous modules run."""
    approvals: Approvals
    """The approvals of the run."""

    async def admit(self) -> None:
        """Nothing can refuse the call any more: its task comes into being."""


current: ContextVar[Running | None] = ContextVar("apcore_a2a_run", default=None)


class ApprovalPendingError(Exception):
    """A call needs approval first; named as apcore's own."""


class ClientApproval:
    """apcore's ApprovalHandler that asks the A2A client, by pausing the task."""

    async def request_approval(self, request: Any) -> Any:
        """Approved when the client has approved just this call; pending otherwise."""
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
        return ApprovalResult(status="rejected", approval_id=approval_id)


class ApprovalPolicy(NamedTuple):
    """The side that asks for approval of a call: the executor, or else the server."""

    has_gate: bool
    """Whether the executor's pipeline has a step that asks."""
    asks_client: bool
    """Whether it is the client who is asked, not a handler of the executor's user."""

    def is_for_server(self, skill: Skill) -> bool:
        """Return whether the server has to ask before it calls *skill*.

        Executors without steps and pipelines without a gate do not ask. The gate of apcore
        before 0.31 does not know of approvals that a module's YAML asks for.
        """
        asked = self.has_gate and (skill.is_gated or not self.asks_client)
        return skill.needs_approval and not asked


def install_approval(executor: Executor) -> ApprovalPolicy:
    """Have *executor* ask the client where it would not ask at all."""
    gate = step_of(executor, "approval_gate")
    if gate is None:
        return ApprovalPolicy(has_gate=False, asks_client=True)
    handler: object = getattr(gate, "_handler", None)
    if handler is None:
        install: Any = executor  # its gate is apcore's, and so is the executor
        install.set_approval_handler(ClientApproval())
    return ApprovalPolicy(has_gate=True, asks_client=isinstance(handler, ClientApproval | None))
