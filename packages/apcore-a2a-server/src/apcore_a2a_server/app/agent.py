"""The parts of an agent, and how they are put together."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from a2a.utils.errors import MethodNotFoundError
from apcore_a2a_core import ErrorMapper, Executor, PartConverter, SchemaConverter

from apcore_a2a_server.engine.admission import Admission
from apcore_a2a_server.engine.clients import Streams, Watchers
from apcore_a2a_server.engine.engine import Engine
from apcore_a2a_server.engine.failover import Recovery, pack
from apcore_a2a_server.engine.handler import Handler
from apcore_a2a_server.engine.limits import Capacity
from apcore_a2a_server.engine.process import ProcessState
from apcore_a2a_server.engine.setup import Setup
from apcore_a2a_server.fields import OptionError
from apcore_a2a_server.middleware import RateLimiter
from apcore_a2a_server.modules.access import Access
from apcore_a2a_server.modules.approval import install_approval
from apcore_a2a_server.modules.skills import Skills
from apcore_a2a_server.modules.steps import install_steps
from apcore_a2a_server.modules.threads import ThreadPool
from apcore_a2a_server.push import PushSettings
from apcore_a2a_server.store import InMemoryTaskStore, Retention
from apcore_a2a_server.store.adapters import store_of
from apcore_a2a_server.store.leases import LeaseKeeper
from apcore_a2a_server.store.live import LiveTasks

from .cards import CardPages
from .health import HealthPage
from .options import Settings

if TYPE_CHECKING:
    from apcore_a2a_server.push.push import Push

    from .metrics import Metrics

LAST_WORDS = 2.0
"""Seconds in which webhooks can be told at least of how the last tasks ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """The parts of a running agent that its process needs to know."""

    setup: Setup
    engine: Engine
    handler: Handler
    cards: CardPages
    health: HealthPage
    settings: Settings
    push: "Push | None" = None
    keeper: LeaseKeeper | None = None
    metrics: "Metrics | None" = None

    async def open(self) -> None:
        """Open the store; again without harm.

        Raises:
            StoreError: The store can't be used; the message says why.
        """
        on_change = None if self.keeper is None else self.keeper.on_change
        await self.setup.tasks.store.start(retention=_retention(self.settings), on_change=on_change)

    async def start(self) -> None:
        """Open the store, and take messages; again after an earlier end.

        Raises:
            StoreError: The store can't be used; the message says why.
        """
        await self.open()
        self.setup.state.is_draining = False
        if self.keeper is not None:
            self.keeper.start()
        if self.push is not None:
            self.push.queue.start()

    async def close(self) -> None:
        """Close the store."""
        if self.keeper is not None:
            await self.keeper.stop()
        await self.setup.tasks.store.close()

    async def drain(self, seconds: float | None = None) -> None:
        """Let running tasks end and webhooks be called, for *seconds* or the configured time."""
        self.setup.state.is_draining = True
        timeout = self.settings.shutdown_timeout if seconds is None else seconds
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout
        if self.keeper is not None:
            self.keeper.claims_orphans = False
        await self.engine.drain(timeout)
        if self.push is not None:
            left = max(end - loop.time(), min(LAST_WORDS, timeout))
            await self.push.queue.drain(left)

    def gauges(self) -> dict[str, Callable[[], float]]:
        """Return the figures that can be read at any time, by name."""
        found: dict[str, Callable[[], float]] = {
            "active_tasks": lambda: len(self.engine.runs),
            "open_streams": lambda: len(self.handler.streams),
            "stuck_threads": lambda: self.setup.threads.stuck,
        }
        if self.keeper is not None:
            keeper = self.keeper
            found["lease_age_seconds"] = lambda: round(keeper.age, 3)
        if self.push is not None:
            store = self.setup.tasks.store
            found["webhooks_pending"] = lambda: store.backlog.pending
            found["webhooks_pending_age_seconds"] = lambda: round(store.backlog.age, 3)
        return found


def build(executor: Executor, settings: Settings) -> Agent:
    """Build the agent of *executor*.

    Raises:
        ValueError: There are no modules, or the default skill is none of them.
        TypeError: The task store lacks the methods of one.
    """
    metrics = _metrics(settings)
    setup = _setup(executor, settings, metrics)
    tasks, engine, limits = setup.tasks, Engine(setup), settings.limits
    push = _push(tasks, settings, metrics)
    grace = limits.disconnect_grace if settings.cancel_on_disconnect else None
    cards = CardPages(setup.skills, setup.access, settings)
    handler = Handler(
        engine=engine,
        admission=Admission(setup, settings.default_skill, limits.max_parts),
        tasks=tasks,
        watchers=Watchers(engine.abandon, grace),
        streams=Streams(settings.max_streams, limits.max_streams_per_client),
        keep_alive=settings.keep_alive,
        card=cards.extended if settings.auth is not None else None,
        push=None if push is None else push.configs,
    )
    agent = Agent(
        setup=setup,
        engine=engine,
        handler=handler,
        cards=cards,
        health=HealthPage(setup),
        settings=settings,
        push=push,
        keeper=_keeper(setup, engine),
        metrics=metrics,
    )
    if metrics is not None:
        metrics.add_gauges(agent.gauges())
    return agent


def _metrics(settings: Settings) -> "Metrics | None":
    if not settings.metrics:
        return None
    from .metrics import Metrics  # takes 30 ms, and most do without

    return Metrics(webhooks=bool(settings.push_notifications))


def _keeper(setup: Setup, engine: Engine) -> LeaseKeeper | None:
    """Return the keeper that takes over tasks of lost replicas, if the store is durable."""
    tasks = setup.tasks
    if not tasks.store.is_durable:
        return None
    return LeaseKeeper(tasks, engine.lose, Recovery(setup, engine).take)


def _push(tasks: LiveTasks, settings: Settings, metrics: "Metrics | None") -> "Push | None":
    wanted = settings.push_notifications
    if not wanted:
        return None
    from apcore_a2a_server.push.push import Push  # takes 30 ms, and most do without

    push_settings = PushSettings() if wanted is True else wanted
    if metrics is None:
        return Push(tasks, push_settings)
    return Push(tasks, push_settings, on_result=metrics.on_delivery)


def _skills(executor: Executor, settings: Settings) -> Skills:
    skills = Skills(executor.registry, schema_cache=settings.limits.schema_cache)
    if not len(skills):
        raise ValueError("There are no modules to serve: the registry is empty")
    if settings.default_skill is not None:
        try:
            skills.get(settings.default_skill)
        except MethodNotFoundError as error:
            raise OptionError("default_skill", f"is unknown: {error}") from None
    return skills


def _retention(settings: Settings) -> Retention:
    return Retention(
        max_logs=settings.max_tasks,
        log_ttl=settings.task_ttl,
        max_events=settings.limits.max_events,
    )


def _tasks(settings: Settings, metrics: "Metrics | None") -> LiveTasks:
    kept, store = settings.limits.max_history, settings.task_store
    if store is None or store == "memory":
        ttl, capacity = settings.task_ttl, settings.max_tasks
        store = InMemoryTaskStore(ttl=ttl, max_capacity=capacity, max_history=kept)
    on_state = None if metrics is None else metrics.on_state
    return LiveTasks(store_of(store), max_history=kept, on_state=on_state)


def _capacity(settings: Settings, threads: ThreadPool) -> Capacity:
    rate, storage = settings.skill_rate_limit, settings.rate_limit_storage
    return Capacity(
        threads,
        settings.max_runs,
        settings.max_runs_per_client,
        settings.max_runs_per_skill,
        RateLimiter(rate, storage, "skill_rate_limit") if rate else None,
    )


def _setup(executor: Executor, settings: Settings, metrics: "Metrics | None") -> Setup:
    threads, tasks = ThreadPool(settings.max_threads), _tasks(settings, metrics)
    return Setup(
        executor=executor,
        skills=_skills(executor, settings),
        state=ProcessState(),
        tasks=tasks,
        keep=pack if tasks.store.is_durable else None,
        converter=PartConverter(SchemaConverter()),
        mapper=ErrorMapper(),
        threads=threads,
        capacity=_capacity(settings, threads),
        access=Access(executor),
        execution_timeout=settings.execution_timeout,
        input_timeout=settings.input_timeout,
        max_artifact=settings.limits.max_artifact,
        has_steps=install_steps(executor),
        approval_policy=install_approval(executor),
        metadata={"apcore": {"stateHistory": []}} if settings.state_history else {},
    )
