"""The run that the code of apcore is working for, if it works for this server at all."""

from contextvars import ContextVar
from typing import Protocol

from .approvals import Approvals
from .threads import Threads


class Running(Protocol):
    """What apcore's pipeline and approval gate need of a run."""

    threads: Threads
    """Where synchronous modules run."""
    approvals: Approvals
    """What has been approved."""

    async def admit(self) -> None:
        """Nothing can refuse the call any more: its task comes into being."""


current: ContextVar[Running | None] = ContextVar("apcore_a2a_run", default=None)
