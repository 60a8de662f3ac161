"""Limits on concurrent calls: in total, for each client, and for each skill."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from apcore_a2a_server.errors import TooMuchError
from apcore_a2a_server.middleware import RateLimiter
from apcore_a2a_server.modules.threads import ThreadPool

from .call import Call
from .clients import Places


class HasCall(Protocol):
    """The part of a run that limits depend on."""

    call: Call


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Limits on calls that run at the same time, or wait for answers.

    Attributes:
        threads: The pool that runs synchronous modules.
        runs: The calls that run.
        paused: The tasks that wait for answers.
        per_skill: Maximum of concurrent calls for one skill; None for no limit.
        rate: Limit on how often a client may call each skill; None for no limit.
        total_rate: Limit on how often all clients may call each skill; None for no limit.
    """

    threads: ThreadPool
    runs: Places
    paused: Places
    per_skill: int | None = None
    rate: RateLimiter | None = None
    total_rate: RateLimiter | None = None

    async def check(self, call: Call, running: Collection[HasCall]) -> None:
        """Refuse *call* if it would exceed a limit beside the *running* calls.

        Raises:
            TooMuchError: A limit is reached; `retry_after` says when to try again, in seconds.
        """
        client, skill_id = call.caller.client, call.skill.id
        if self.rate is not None:
            await _use(self.rate, client, skill_id)
        if self.total_rate is not None:
            await _use(self.total_rate, skill_id)
        self.runs.check(client)
        # no timeout can end a thread, so one whose module hangs is occupied until it returns
        if call.skill.in_thread and self.threads.is_full(client):
            raise TooMuchError("Too many synchronous skills are stuck")
        if (
            self.per_skill
            and sum(run.call.skill.id == skill_id for run in running) >= self.per_skill
        ):
            raise TooMuchError("Too many tasks of this skill are running")


async def _use(rate: RateLimiter, *key: str) -> None:
    if seconds := await rate.wait(*key):
        error = TooMuchError("The rate limit of this skill is reached")
        error.retry_after = seconds
        raise error
