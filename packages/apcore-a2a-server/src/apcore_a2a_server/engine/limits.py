"""How much may run: in all, of one client, of one skill."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from apcore_a2a_server.errors import TooMuchError
from apcore_a2a_server.middleware import RateLimiter
from apcore_a2a_server.modules.threads import ThreadPool

from .call import Call


class HasCall(Protocol):
    """A run, as far as limits go."""

    call: Call


@dataclass(frozen=True, slots=True)
class Capacity:
    """Limits of what runs.

    Attributes:
        threads: Where synchronous modules run.
        total: How many calls may run at a time.
        per_client: How many for a principal, or for an address without one; None for all.
        per_skill: How many of a skill; None for all.
        rate: How often a client may call each skill; None for any.
    """

    threads: ThreadPool
    total: int = 2000
    per_client: int | None = None
    per_skill: int | None = None
    rate: RateLimiter | None = None

    async def check(self, call: Call, running: Collection[tuple[HasCall, object]]) -> None:
        """Refuse *call* when it would be too much beside the runs that there are.

        Raises:
            TooMuchError: It would.
        """
        seconds = await self.rate.wait(call.caller.client, call.skill.id) if self.rate else 0
        if seconds:
            error = TooMuchError("The skill is called too often")
            error.retry_after = seconds
            raise error
        if len(running) >= self.total:
            raise TooMuchError("Too many tasks are running")
        if call.skill.in_thread and self.threads.full:
            raise TooMuchError("Too many synchronous skills do not end")
        if self.per_client or self.per_skill:
            self._check_shares(call, [run.call for run, _ in running])

    def _check_shares(self, call: Call, calls: Sequence[Call]) -> None:
        client, skill = call.caller.client, call.skill.id
        if self.per_client and sum(c.caller.client == client for c in calls) >= self.per_client:
            raise TooMuchError("Too many tasks of this client are running")
        if self.per_skill and sum(c.skill.id == skill for c in calls) >= self.per_skill:
            raise TooMuchError("Too many tasks of this skill are running")
