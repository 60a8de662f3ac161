"""What all runs share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from anyio import CapacityLimiter
from apcore_a2a_core import ErrorMapper, PartConverter

from apcore_a2a_server.modules import Gate, Skill, Threads, preflight
from apcore_a2a_server.store import Journal

from .limits import Capacity


def keep_nothing(call: Any) -> None:
    """Nothing, for no other process goes on with the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What all runs share.

    Attributes:
        executor: The apcore Executor, or what looks like one.
        journal: Where tasks live.
        converter: Between parts and module inputs and outputs.
        mapper: From exceptions to errors.
        threads: Where synchronous modules run.
        preflights: Has one preflight wait for the other.
        execution_timeout: Seconds that a run may take.
        input_timeout: Seconds that a paused task waits for its answer.
        max_artifact: The largest artifact, in bytes.
        one_pass: Whether the executor's pipeline has our steps.
        gate: How the executor asks for approval.
        capacity: How much may run.
        metadata: What each task's metadata begin with.
        keep: From a call to what another process needs to make it again; None where there is none.
    """

    executor: Any
    journal: Journal
    converter: PartConverter
    mapper: ErrorMapper
    threads: Threads
    preflights: CapacityLimiter
    gate: Gate
    capacity: Capacity
    execution_timeout: float = 300
    input_timeout: float = 3600
    max_artifact: int = 32 * 1024 * 1024
    one_pass: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    keep: Callable[[Any], bytes | None]

    def explain(self, error: BaseException, call: Any) -> dict[str, Any]:
        """The error of a run, as clients may see it."""
        return self.mapper.to_jsonrpc_error(
            error, skill=call.skill.id, inputs=call.inputs, schema=call.skill.schema
        )

    def asks_itself(self, skill: Skill) -> bool:
        """Whether the server has to ask for approval, for the executor would not."""
        seen = self.gate.is_there and (skill.is_gated or not self.gate.asks_client)
        return skill.needs_approval and not seen

    async def preflight(self, call: Any, context: Any) -> None:
        """Raise what would refuse the call."""
        await preflight(self.executor, call.skill.id, call.inputs, context, self.preflights)
