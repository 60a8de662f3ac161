"""The dependencies and limits that all runs share."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from apcore_a2a_core import ErrorMapper, Executor, PartConverter

from apcore_a2a_server.errors import refusal
from apcore_a2a_server.modules.access import Access
from apcore_a2a_server.modules.approval import ApprovalPolicy
from apcore_a2a_server.modules.processes import ProcessPool
from apcore_a2a_server.modules.skills import Skills
from apcore_a2a_server.modules.threads import ThreadPool
from apcore_a2a_server.store import RepeatedError, UnavailableError
from apcore_a2a_server.store.live import LiveTasks

from .call import Call
from .limits import Capacity, Memory, TimeLimits
from .process import ProcessState

if TYPE_CHECKING:  # the spans need an extra
    from apcore_a2a_server.spans import Spans


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The dependencies and limits that all runs share.

    Attributes:
        executor: The apcore Executor, or an object with the same methods.
        skills: The modules of the registry as skills.
        state: The state of the process; while it drains, no run starts.
        tasks: The live tasks of this process, and the store behind them.
        converter: Converts parts into module inputs, and module outputs into parts.
        mapper: Converts exceptions into JSON-RPC errors.
        threads: The pool that runs synchronous modules.
        processes: The pool that runs modules that declare `resources.cpu`.
        access: Checks whether the executor would refuse calls.
        approval_policy: Decides whether the executor or the server asks for approval.
        capacity: Limits on concurrent calls.
        memory: The bytes that the process keeps, and their limit.
        time_limits: The time limits of the runs.
        execution_timeout: Maximum duration of a run, in seconds.
        input_timeout: Time that a paused task waits for its answer, in seconds.
        max_artifact: Maximum size of an artifact, in bytes.
        has_steps: Whether the executor's pipeline has our steps, one of which admits each call.
        metadata: Members under `apcore` in the metadata of each new task.
        text_results: Whether results that are data are sent as text too.
        spans: Makes OpenTelemetry spans; None if OpenTelemetry is off.
        keeps_identity: Whether paused tasks keep the identity of their caller, for answers by
            other principals.
    """

    executor: Executor
    skills: Skills
    state: ProcessState
    tasks: LiveTasks
    converter: PartConverter
    mapper: ErrorMapper
    threads: ThreadPool
    processes: ProcessPool
    access: Access
    approval_policy: ApprovalPolicy
    capacity: Capacity
    memory: Memory
    time_limits: TimeLimits = field(default_factory=TimeLimits)
    execution_timeout: float = 300
    input_timeout: float = 3600
    max_artifact: int = 32 * 1024 * 1024
    has_steps: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    text_results: bool = False
    spans: "Spans | None" = None
    keeps_identity: bool = False

    def refusal_for(self, error: BaseException, call: Call) -> Exception:
        """Return the error with which the request of a refused call fails."""
        if isinstance(error, RepeatedError | UnavailableError):  # engine and bindings handle these
            return error
        return refusal(self.explain(error, call))

    def explain(self, error: BaseException, call: Call) -> dict[str, Any]:
        """Return the JSON-RPC error for an exception, without internals.

        The current span is marked as failed.
        """
        if self.spans is not None:
            self.spans.fail(error)
        return self.mapper.to_jsonrpc_error(
            error, skill=call.skill.id, inputs=call.inputs, schema=call.skill.schema
        )
