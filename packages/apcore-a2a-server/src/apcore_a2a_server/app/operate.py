"""The agent's own routes for people who use and operate it, below `/apcore/`."""

import asyncio
import json
import time
from base64 import urlsafe_b64decode
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from operator import add, attrgetter
from typing import Any

from apcore_a2a_core import Identity
from apcore_a2a_core.data import TaskState
from apcore_a2a_core.states import FAILED, INPUT_REQUIRED, NAMES, SUBMITTED, WORKING

from apcore_a2a_server.bindings.own_routes import OwnError, OwnRequest, OwnRoute
from apcore_a2a_server.engine.erasure import delete_tasks_of
from apcore_a2a_server.engine.operators import OperatorRules, audit, matches
from apcore_a2a_server.store import UnavailableError
from apcore_a2a_server.store.replicas import Replica

from .agent import Agent
from .figures import Figures
from .options import Settings
from .skill_figures import ENDED, MINUTES, STATES, SkillHour

OPEN_STATES = {
    SUBMITTED: "submitted",
    WORKING: "working",
    INPUT_REQUIRED: "inputRequired",
    TaskState.TASK_STATE_AUTH_REQUIRED: "authRequired",
}
"""The states that are not final, with their names in responses."""
MAX_LEASES = 200
"""Maximum number of tasks in one request to `/apcore/leases`."""
SKILLS_PER_TURN = 20
"""Number of skills to add up before other requests may run; one skill takes up to 0.2 ms."""


def own_routes(agent: Agent, settings: Settings) -> list[OwnRoute]:
    """Return the routes for the identity, the deletion of tasks, the figures and the leases."""
    identity_page = IdentityPage(settings, agent.handler.operator_rules)
    erasure = Erasure(agent)
    routes = [
        OwnRoute("GET", "whoami", identity_page.show),
        OwnRoute("DELETE", "principals/{principal}/tasks", erasure.delete, for_operators=True),
    ]
    if settings.auth is not None or settings.shows_figures:
        skills_page = SkillsPage(agent.figures, agent.publish)
        routes.append(OwnRoute("GET", "skills", skills_page.show, for_operators=True))
        now_page = NowPage(agent)
        routes.append(OwnRoute("GET", "now", now_page.show, for_operators=True))
        leases_page = LeasesPage(agent)
        routes.append(OwnRoute("GET", "leases", leases_page.show, for_operators=True))
    return routes


def counts_as_operator(settings: Settings, rules: OperatorRules, identity: Identity | None) -> bool:
    """Return whether a caller may use the routes for operators.

    Without authentication, all callers are one principal, which sees all tasks anyway.
    """
    return settings.auth is None or matches(rules.operators, identity)


class IdentityPage:
    """`GET /apcore/whoami`: the identity and the permissions of the caller.

    Args:
        settings: The options.
        rules: The rules for operators and approvers.
    """

    def __init__(self, settings: Settings, rules: OperatorRules) -> None:
        self._settings = settings
        self._rules = rules

    async def show(self, request: OwnRequest) -> dict[str, Any]:
        """Return the identity of the caller, and its permissions beyond its own tasks."""
        caller, rules = request.caller, self._rules
        identity = caller.identity
        is_operator = counts_as_operator(self._settings, rules, identity)
        # without authentication, all callers are one principal: no content belongs to others
        reads_content = rules.read_content or self._settings.auth is None
        reads = "content" if reads_content else "state"
        roles = () if identity is None else identity.roles or ()
        expires_at = None if identity is None else token_expiry(caller.headers)
        return {
            "authenticated": identity is not None,
            "principal": caller.principal or None,
            "roles": [*map(str, roles)],
            "operator": is_operator,
            "operatorReads": reads if is_operator else None,
            "approver": rules.is_approver(caller),
            "expiresAt": None if expires_at is None else timestamp(expires_at),
        }


class Erasure:
    """`DELETE /apcore/principals/{principal}/tasks`: delete all tasks of a principal.

    Args:
        agent: The agent.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    async def delete(self, request: OwnRequest) -> dict[str, Any]:
        """Cancel the principal's open tasks, and delete all of its tasks.

        Raises:
            OwnError: The task store can't delete all tasks of a principal. The principal's open
                tasks have been canceled.
        """
        caller, principal = request.caller, request.path_params["principal"]
        audit("DeleteTasks", caller, principal=principal)
        cancel = partial(self._agent.engine.cancel, canceled_by=caller.principal)
        deletion = delete_tasks_of(self._agent.setup.tasks, principal, cancel)
        # shielded: once begun, the deletion goes on even if its client disconnects
        deleted = await asyncio.shield(deletion)
        if deleted is None:
            raise OwnError(501, "The task store can't delete the tasks of a principal")
        return {"deleted": deleted}


class SkillsPage:
    """`GET /apcore/skills`: each skill's last hour, summed over all workers of this server.

    Args:
        figures: The figures of all workers.
        publish: Shares the current figures of this worker with the other workers.
    """

    def __init__(self, figures: Figures, publish: Callable[[], None]) -> None:
        self._figures = figures
        self._publish = publish

    async def show(self, request: OwnRequest) -> dict[str, Any]:
        """Return the figures of skills that run, or whose tasks began or ended in the last hour."""
        self._publish()
        now = time.time()
        skills: list[dict[str, Any]] = []
        async for hour in hours_of(self._figures, now):
            if hour.running or any(hour.started) or any(map(any, hour.ended.values())):
                skills.append(_skill_document(hour))
        oldest_minute = (now // 60 - MINUTES + 1) * 60
        return {
            "at": timestamp(now),
            "scope": "workers" if self._figures.workers > 1 else "process",
            "since": timestamp(max(oldest_minute, self._figures.started_at)),
            "skills": skills,
        }


class NowPage:
    """`GET /apcore/now`: the activity of the agent, at this moment and in the last hour.

    Args:
        agent: The agent.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    async def show(self, request: OwnRequest) -> dict[str, Any]:
        """Return the figures; even with a shared store, many cover only this server's workers."""
        agent, figures = self._agent, self._agent.figures
        status, _ = await agent.health.status()
        agent.publish()
        now = time.time()
        ended = {state: [0] * MINUTES for state in ENDED}
        started = [0] * MINUTES
        async for hour in hours_of(figures, now):
            started = [*map(add, started, hour.started)]
            ended = {state: [*map(add, ended[state], hour.ended[state])] for state in ENDED}
        server_scope = "workers" if figures.workers > 1 else "process"
        return {
            "at": timestamp(now),
            "status": status,
            # the scope of the figures from `_stored`
            "scope": "store" if agent.setup.tasks.store.is_durable else server_scope,
            "workers": max(figures.count_alive(), 1),
            "lastHour": {NAMES[state]: sum(minutes) for state, minutes in ended.items()},
            "perMinute": {"started": started, "failed": ended[FAILED]},
            **self._capacity(),
            **await self._stored(now),
            "replicas": await self._replicas(),
        }

    async def _replicas(self) -> list[dict[str, Any]] | None:
        """Return this replica and those that share its store; None if the store can't be used."""
        this_replica = self._agent.replica()
        try:
            stored = await self._agent.setup.tasks.store.replicas()
        except UnavailableError:
            return None
        other_replicas = [replica for replica in stored if replica.id != this_replica.id]
        replicas = sorted([this_replica, *other_replicas], key=attrgetter("started_at", "id"))
        return [_replica_document(replica, is_self=replica is this_replica) for replica in replicas]

    async def _stored(self, now: float) -> dict[str, Any]:
        """Return figures of tasks and webhooks; those from the store are None while it fails."""
        store, webhooks = self._agent.setup.tasks.store, None
        tasks = failed = None
        with suppress(UnavailableError):
            tasks = await self._agent.setup.tasks.open_tasks()
            failed = await store.count_failed_webhooks()
        counts = dict.fromkeys(OPEN_STATES, None if tasks is None else 0)
        oldest: Mapping[TaskState, float] = {}
        if tasks is not None:
            counts, oldest = {**counts, **tasks.counts}, tasks.oldest
        if self._agent.push is not None:
            pending = int(self._agent.figures.total("webhooks_pending"))
            webhooks = {"pending": pending, "failed": failed}
        return {
            "tasks": {name: counts[state] for state, name in OPEN_STATES.items()},
            "oldest": {
                "workingSeconds": _age(oldest.get(WORKING), now),
                "waitingSeconds": _age(oldest.get(INPUT_REQUIRED), now),
            },
            "webhooks": webhooks,
        }

    def _capacity(self) -> dict[str, Any]:
        """Return the threads and memory that all workers use, and the limits for them."""
        figures, settings = self._agent.figures, self._agent.settings
        workers = max(figures.count_alive(), 1)
        kinds = ("bodies", "running", "stored")
        return {
            "threads": {
                "busy": int(figures.total("busy_threads")),
                "limit": workers * settings.max_threads,
                "stuck": int(figures.total("stuck_threads")),
            },
            "memory": {
                "bytes": int(sum(figures.total(f"memory_{kind}_bytes") for kind in kinds)),
                "limit": workers * settings.limits.memory,
            },
        }


class LeasesPage:
    """`GET /apcore/leases?tasks=ID,ID`: which replicas run these tasks.

    Args:
        agent: The agent.
    """

    def __init__(self, agent: Agent) -> None:
        self._tasks = agent.setup.tasks

    async def show(self, request: OwnRequest) -> dict[str, Any]:
        """Return the leases of these tasks; tasks that do not run have none.

        Raises:
            OwnError: There are too many tasks.
        """
        task_ids = [*filter(None, str(request.query.get("tasks", "")).split(","))]
        if len(task_ids) > MAX_LEASES:
            raise OwnError(400, f"tasks must be at most {MAX_LEASES} ids, separated by commas")
        holders = await self._tasks.lease_holders(task_ids)
        return {
            "shared": self._tasks.store.is_shared,
            "leases": [
                {"taskId": task_id, "replica": replica_id}
                for task_id, replica_id in holders.items()
            ],
        }


def _replica_document(replica: Replica, *, is_self: bool) -> dict[str, Any]:
    return {
        "id": replica.id,
        "host": replica.host,
        "pid": replica.pid,
        "version": replica.version,
        "startedAt": timestamp(replica.started_at),
        "lastSeenAt": timestamp(replica.seen_at),
        "draining": replica.is_draining,
        "leases": replica.leases,
        "running": replica.running,
        "self": is_self,
    }


def _age(moment: float | None, now: float) -> float | None:
    return None if moment is None else round(max(now - moment, 0), 3)


async def hours_of(figures: Figures, now: float) -> AsyncGenerator[SkillHour]:
    """Yield the last hour of each skill, and let other requests run in between."""
    for number, hour in enumerate(figures.skills.hours(now), 1):
        if number % SKILLS_PER_TURN == 0:
            await asyncio.sleep(0)
        yield hour


def _skill_document(hour: SkillHour) -> dict[str, Any]:
    per_minute = [sum(counts) for counts in zip(*hour.ended.values(), strict=True)]
    failed = hour.ended[FAILED]
    percentiles = {f"p{percent}Seconds": hour.percentile(percent / 100) for percent in (50, 95, 99)}
    return {
        "id": hour.skill,
        "running": hour.running,
        "runs": sum(per_minute),
        "failed": sum(failed),
        "errors": dict(hour.errors.most_common()),
        **{name: _rounded(seconds) for name, seconds in percentiles.items()},
        "perMinute": per_minute,
        "failedPerMinute": failed,
        "slowest": [
            {
                "taskId": run.task_id,
                "seconds": _rounded(run.seconds),
                "at": timestamp(run.at),
                "state": NAMES[STATES[run.position]],
            }
            for run in hour.slowest
        ],
        "failures": [
            {"taskId": failure.task_id, "code": code, "at": timestamp(failure.at)}
            for failure, code in hour.failures
        ],
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)


def timestamp(seconds: float, precision: str = "milliseconds") -> str:
    """Return a time in seconds since 1970 as text (RFC 3339).

    Args:
        seconds: The time.
        precision: "milliseconds" or "microseconds".

    >>> timestamp(1.5)
    '1970-01-01T00:00:01.500Z'
    """
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec=precision)
    return text.replace("+00:00", "Z")


def token_expiry(headers: Mapping[str, str]) -> float | None:
    """Return when the bearer token of a request expires, in seconds since 1970; None if unknown.

    The token is not verified here: an authenticator that accepts bearer tokens has done that, and
    only the caller who sent the token gets the result.
    """
    scheme, _, token = headers.get("authorization", "").partition(" ")
    parts = token.strip().split(".")
    if scheme.lower() != "bearer" or len(parts) != 3:
        return None
    payload = parts[1]
    try:
        claims: Any = json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        expiry: float = claims["exp"]
        timestamp(expiry)
    except (ValueError, LookupError, TypeError, OverflowError, OSError, RecursionError):
        return None  # no claims, or no valid time
    return expiry
