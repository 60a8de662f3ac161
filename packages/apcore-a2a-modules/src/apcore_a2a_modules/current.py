"""The run that the code of apcore is working for, if it works for this server at all."""

from contextvars import ContextVar
from typing import Protocol

from .threads import Threads


class Running(Protocol):
    """What apcore's pipeline and approval gate need of a run."""

    threads: Threads
    """Where synchronous modules run."""
    granted: frozenset[str]
    """The calls that have been approved, as `call_key` names them."""
    asked: str | None
    """The call that approval was asked for last."""

    async def admit(self) -> None:
        """Nothing can refuse the call any more: its task comes into being."""


current: ContextVar[Running | None] = ContextVar("apcore_a2a_run", default=None)
