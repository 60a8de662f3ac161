"""Limits on concurrent calls: in total, for each client, and for each skill."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from apcore_a2a_server.errors import TooMuchError
from apcore_a2a_server.middleware import RateLimiter
from apcore_a2a_server.modules.threads import ThreadPool

from .call import Call


class HasCall(Protocol):
    """The part of a run that limits depend on."""

    call: Call


@dataclass(frozen=True, slots=True)
class Capacity:
    """Limits on calls that run at the same time.

    Attributes:
        threads: The pool that runs synchronous modules.
        total: Maximum number of concurrent calls.
        per_client: Maximum for one principal or anonymous client address; None for no limit.
        per_skill: Maximum for one skill; None for no limit.
        rate: Limit on how often a client may call each skill; None for no limit.
    """

    threads: ThreadPool
    total: int = 2000
    per_client: int | None = None
    per_skill: int | None = None
    rate: RateLimiter | None = None

    async def check(self, call: Call, running: Collection[HasCall]) -> None:
        """Refuse *call* if it would exceed a limit beside the *running* calls.

        Raises:
            TooMuchError: A limit is reached; `retry_after` says when to try again, in seconds.
        """
        retry_after = await self.rate.wait(call.caller.client, call.skill.id) if self.rate else 0
        if retry_after:
            error = TooMuchError("The rate limit of this skill is reached")
            error.retry_after = retry_after
            raise error
        if len(running) >= self.total:
            raise TooMuchError("Too many tasks are running")
        # no timeout can end a thread, so one whose module hangs is occupied until it returns
        if call.skill.in_thread and self.threads.full:
            raise TooMuchError("Too many synchronous skills are stuck")
        if self.per_client or self.per_skill:
            self._check_shares(call, [run.call for run in running])

    def _check_shares(self, call: Call, calls: Sequence[Call]) -> None:
        client, skill_id = call.caller.client, call.skill.id
        of_client = sum(other.caller.client == client for other in calls)
        if self.per_client and of_client >= self.per_client:
            raise TooMuchError("Too many tasks of this client are running")
        if self.per_skill and sum(other.skill.id == skill_id for other in calls) >= self.per_skill:
            raise TooMuchError("Too many tasks of this skill are running")
