"""Everything that all runs share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from apcore_a2a_core import ErrorMapper, Executor, PartConverter

from apcore_a2a_server.modules.access import Access
from apcore_a2a_server.modules.approval import ApprovalPolicy
from apcore_a2a_server.modules.skills import Skills
from apcore_a2a_server.modules.threads import ThreadPool
from apcore_a2a_server.store.live import LiveTasks

from .call import Call
from .limits import Capacity
from .process import ProcessState


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Everything that all runs share.

    Attributes:
        executor: The apcore Executor, or what looks like one.
        skills: The modules.
        state: The state of the process: while it drains, nothing is started.
        tasks: Where tasks live.
        converter: Between parts and module inputs and outputs.
        mapper: From exceptions to errors.
        threads: Where synchronous modules run.
        execution_timeout: Seconds that a run may take.
        input_timeout: Seconds that a paused task waits for its answer.
        max_artifact: The largest artifact, in bytes.
        access: Whether calls would be refused.
        has_steps: Whether the executor's pipeline has our steps, which admit calls in passing.
        approval_policy: Who asks for approval.
        capacity: How much may run.
        metadata: What each task's metadata begin with.
        keep: Packs a call so that another process can make it again; None where none can.
    """

    executor: Executor
    skills: Skills
    state: ProcessState
    tasks: LiveTasks
    converter: PartConverter
    mapper: ErrorMapper
    threads: ThreadPool
    access: Access
    approval_policy: ApprovalPolicy
    capacity: Capacity
    execution_timeout: float = 300
    input_timeout: float = 3600
    max_artifact: int = 32 * 1024 * 1024
    has_steps: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    keep: Callable[[Call], bytes | None] | None = None

    def explain(self, error: BaseException, call: Call) -> dict[str, Any]:
        """The error of a run, as clients may see it."""
        return self.mapper.to_jsonrpc_error(
            error, skill=call.skill.id, inputs=call.inputs, schema=call.skill.schema
        )
