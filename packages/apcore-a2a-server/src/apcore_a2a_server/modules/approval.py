"""The client's approval of calls, and the record that a task keeps of it (FR-EXE-002)."""

import json
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

import apcore
from apcore import CancelToken
from apcore.approval import ApprovalResult
from apcore_a2a_core import Executor, Progress, Usage

from apcore_a2a_server.trace_context import SpanLog

from .access import step_of
from .processes import ProcessPool
from .skills import Skill
from .threads import ThreadPool


def call_key(skill_id: str, arguments: Mapping[str, Any]) -> str:
    """Return the key of a call that needs approval: its canonical JSON.

    Raises:
        TypeError: The arguments can't be represented in JSON.
        ValueError: The arguments contain themselves.
    """
    return json.dumps([skill_id, arguments], sort_keys=True)


class Approvals:
    """The approvals of a task, and the results of approved calls.

    A task that resumes after a pause runs its module from the beginning. Approved calls whose
    results were saved before the pause are not repeated: these results are used again. Each
    approval is for one call; if a module makes the same call twice, it needs two approvals.

    Args:
        granted: The keys of approved calls (see `call_key`), one for each approval.
        done: The saved results of approved calls, by key, in the order of the calls. After a call
            without a saved result, each further result has a key such as `key#3` (third call).
    """

    def __init__(
        self, granted: list[str] | None = None, done: dict[str, list[Any]] | None = None
    ) -> None:
        self.granted = granted or []
        self.done = done or {}
        self.requested: str | None = None
        """The key of the last call that needed an approval and had none."""
        # In this run: the number of calls by key, and each approved call by the `id()` of
        # its Context. The Context is kept too, since Python reuses the ids of deleted objects.
        self._call_counts: dict[str, int] = {}  # not a Counter: it takes longer to make
        self._approved_calls: dict[int, tuple[object, str, int]] = {}

    def use_approval(self, key: str, context: object) -> bool:
        """Use an approval for a call, and return True; if none is left, only set `requested`."""
        self._call_counts[key] = self._call_counts.get(key, 0) + 1
        if self._call_counts[key] > self.granted.count(key):
            self.requested = key
            return False
        self._approved_calls[id(context)] = (context, key, self._call_counts[key])
        return True

    def result(self, context: object) -> tuple[bool, Any]:
        """Return whether an earlier run has saved the call's result, and the result."""
        if not self._approved_calls:
            return False, None
        _, key, number = self._approved_calls.get(id(context), (None, "", 0))
        results = self.done.get(key, [])[number - 1 : number] if number else []
        results = results or self.done.get(_numbered(key, number), [])
        return (True, results[0]) if results else (False, None)

    def save_result(self, context: object, output: Any) -> None:
        """Save the result of an approved call, if it can be represented in JSON."""
        if not self._approved_calls:
            return
        _, key, number = self._approved_calls.pop(id(context), (None, "", 0))
        if not key:
            return
        with suppress(TypeError, ValueError):
            result, results = json.loads(json.dumps(output)), self.done.get(key, [])
            if number == len(results) + 1:
                self.done[key] = [*results, result]
            else:
                self.done[_numbered(key, number)] = [result]


def _numbered(key: str, number: int) -> str:
    """Return the key for the result of call *number* among those with the same *key*."""
    return f"{key}#{number}"


class PipelineRun(Protocol):
    """The part of a run that apcore's pipeline and approval gate use."""

    threads: ThreadPool
    """The threads for synchronous modules."""
    processes: ProcessPool
    """The processes for modules that declare `resources.cpu`."""
    client: str
    """The client whose share of threads and processes the run uses."""
    approvals: Approvals
    """The approvals of the task."""
    token: CancelToken
    """The cancel token that the module sees."""
    spans: SpanLog
    """The spans of the run."""

    @property
    def has_verdict(self) -> bool:
        """Whether the call is admitted or refused; before that, the module has not started."""
        ...

    async def admit(self) -> None:
        """Create the task of a new call, once nothing can refuse the call any more."""

    async def begin(self) -> None:
        """Make sure that the task is working, just before the module starts."""

    def text_field(self, module_id: str) -> str | None:
        """Return the name of the output member that clients get as text; None if there is none."""

    async def take_report(self, report: Progress | Usage) -> None:
        """Report progress to subscribers, or add usage to the usage of the task."""


current_run: ContextVar[PipelineRun | None] = ContextVar("apcore_a2a_run", default=None)
"""The run that the current call belongs to; None outside this server's runs."""


class ApprovalPendingError(Exception):
    """A call needs approval first; runs also recognize apcore's own error of this name."""


class ClientApproval:
    """An apcore ApprovalHandler that asks the A2A client, by pausing the task."""

    async def request_approval(self, request: Any) -> Any:
        """Return "approved" if the client has approved exactly this call, else "pending".

        Calls outside this server's runs, and calls with arguments that are not JSON, are rejected.
        """
        run = current_run.get()
        if run is None:
            reason = "Approval needs an A2A client, and this call has none"
            return ApprovalResult(status="rejected", reason=reason)
        try:
            key = call_key(request.module_id, request.arguments)
        except (TypeError, ValueError):
            reason = "The arguments can't be represented in JSON"
            return ApprovalResult(status="rejected", reason=reason)
        if run.approvals.use_approval(key, request.context):
            return ApprovalResult(status="approved", approved_by="client")
        return ApprovalResult(status="pending")

    async def check_approval(self, approval_id: str) -> Any:
        """Reject the approval id, since this handler issues none."""
        return ApprovalResult(status="rejected", approval_id=approval_id)


class ApprovalPolicy(NamedTuple):
    """The rule that decides whether the executor or the server requests approval of a call."""

    has_gate: bool
    """Whether the executor's pipeline has a step for approval."""
    asks_client: bool
    """Whether that step asks the client, and not the operator's own handler."""
    reads_yaml: bool
    """Whether that step can request approval that only the YAML of a module requires."""

    def server_must_request(self, skill: Skill) -> bool:
        """Return whether the server has to request approval before it calls *skill*.

        Executors without an approval gate do not request approval. If only the YAML of a module
        requires approval, the gate requests it if apcore is 0.31 or later and the handler is the
        operator's.
        """
        covers_yaml = self.reads_yaml and not self.asks_client
        executor_requests = self.has_gate and (skill.is_gated or covers_yaml)
        return skill.needs_approval and not executor_requests


def install_approval(executor: Executor) -> ApprovalPolicy:
    """Let *executor* ask the client, unless it has an approval handler; return the policy."""
    gate = step_of(executor, "approval_gate")
    if gate is None:
        return ApprovalPolicy(has_gate=False, asks_client=True, reads_yaml=False)
    handler: object = getattr(gate, "_handler", None)
    if handler is None:
        apcore_executor: Any = executor  # only executors of apcore have this gate
        apcore_executor.set_approval_handler(ClientApproval())
    return ApprovalPolicy(
        has_gate=True,
        asks_client=isinstance(handler, ClientApproval | None),
        reads_yaml=hasattr(apcore.Registry, "get_declared_annotations"),
    )
