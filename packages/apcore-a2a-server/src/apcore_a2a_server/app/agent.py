"""The parts of an agent: created, connected, started and stopped in one place."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from a2a.utils.errors import MethodNotFoundError
from apcore_a2a_core import ErrorMapper, Executor, PartConverter, SchemaConverter
from msgspec.structs import replace

from apcore_a2a_server.engine.admission import Admission
from apcore_a2a_server.engine.clients import Slots, Streams, Watchers
from apcore_a2a_server.engine.engine import Engine
from apcore_a2a_server.engine.failover import Recovery
from apcore_a2a_server.engine.handler import Handler
from apcore_a2a_server.engine.limits import Capacity, Memory
from apcore_a2a_server.engine.operators import OperatorRules
from apcore_a2a_server.engine.process import ProcessState
from apcore_a2a_server.engine.setup import Setup
from apcore_a2a_server.fields import OptionError
from apcore_a2a_server.middleware import RateLimiter
from apcore_a2a_server.middleware.rates import MEMORY, storage_of
from apcore_a2a_server.modules.access import Access
from apcore_a2a_server.modules.approval import install_approval
from apcore_a2a_server.modules.fairness import share_of
from apcore_a2a_server.modules.processes import ProcessPool
from apcore_a2a_server.modules.skills import Skills
from apcore_a2a_server.modules.steps import install_steps
from apcore_a2a_server.modules.tenants import Tenants
from apcore_a2a_server.modules.threads import ThreadPool
from apcore_a2a_server.push import PushSettings
from apcore_a2a_server.store import InMemoryTaskStore, Retention
from apcore_a2a_server.store.custom_stores import store_of
from apcore_a2a_server.store.leases import LeaseKeeper
from apcore_a2a_server.store.live import LiveTasks
from apcore_a2a_server.store.replicas import Replica, this_process

from .cards import CardPages
from .companions import Companions, figure_names
from .figures import Figures
from .health import HealthPage
from .options import AUTH_RATE_LIMIT, Settings
from .sharing import check_server
from .skill_figures import SkillRecorder
from .tenant_names import RESERVED, check_name, read_tenants

if TYPE_CHECKING:
    from apcore_a2a_server.push.push import Push
    from apcore_a2a_server.spans import Spans

    from .metrics import Metrics

ASK = "ask"
"""Value of the option `default_skill`: the agent asks clients to choose a skill."""
MIN_WEBHOOK_DRAIN = 2.0
"""Minimum seconds for the last notifications at shutdown.

If `drain` has a shorter timeout, the minimum is that timeout.
"""


class Agent:
    """An agent: the engine, the store, the request handler, the webhooks, cards and metrics.

    Args:
        executor: The executor that runs the modules.
        settings: The options.
        figures: Counters and gauges that worker processes share; None if there is only one process.

    Raises:
        ValueError: There are no modules, or an option is invalid or does not fit the modules.
        TypeError: The task store or a companion lacks required methods.
        ImportError: An option needs an extra that is not installed.
    """

    def __init__(
        self, executor: Executor, settings: Settings, figures: Figures | None = None
    ) -> None:
        self.settings = settings
        self.figures = figures or Figures(extra_gauges=figure_names(settings.companions))
        self.companions = Companions(settings.companions)
        self.limiter = _limiter(settings.rate_limit, settings, "rate_limit")
        self.auth_limiter = _auth_limiter(settings)
        self.metrics = _metrics(settings, self.figures)
        self.recorder: SkillRecorder | None = None
        if settings.metrics or settings.shows_figures:
            self.recorder = self.figures.skills.recorder(self.figures.worker)
        self.setup = setup = _setup(executor, settings, self.recorder)
        self.engine = Engine(setup)
        self.push = _push(setup.tasks, settings, self.metrics, setup.spans)
        self.keeper: LeaseKeeper | None = None
        self._replica: Replica | None = None
        if setup.tasks.store.is_durable:  # a replica may have to resume orphaned tasks
            recovery = Recovery(setup, self.engine)
            self.keeper = LeaseKeeper(
                setup.tasks, self.replica, self.engine.on_lease_lost, recovery.take
            )
        self.health = HealthPage(setup, self.figures, self.companions)
        self.cards = CardPages(setup.skills, setup.access, settings)
        limits = settings.limits
        grace = limits.disconnect_grace if settings.cancel_on_disconnect else None
        self.handler = Handler(
            engine=self.engine,
            admission=_admission(setup, settings),
            tasks=setup.tasks,
            watchers=Watchers(self.engine.on_clients_lost, grace),
            streams=Streams(
                settings.max_streams,
                share_of(settings.max_streams, limits.client_share, limits.max_streams_per_client),
            ),
            keep_alive=settings.keep_alive,
            make_card=self.cards.extended if settings.auth is not None else None,
            push=None if self.push is None else self.push.configs,
            tenants=_tenants(setup, settings),
            operator_rules=_operator_rules(settings),
        )
        if self.metrics is not None:
            self.metrics.add_gauges(self.gauges())

    async def open(self) -> None:
        """Open the store, unless it is open.

        Raises:
            StoreError: The store cannot be used; the message says why.
            ValueError: The ASGI server has started several processes, which can't share the store.
        """
        check_server(self.setup.tasks.store)
        retention = Retention(
            max_logs=self.settings.max_tasks,
            log_ttl=self.settings.task_ttl,
            max_events=self.settings.limits.max_events,
        )
        on_change = None if self.keeper is None else self.keeper.on_change
        if self._replica is None:  # not in `__init__`: forked processes would have the same id
            self._replica = this_process()
        await self.setup.tasks.store.start(
            retention=retention, on_change=on_change, replica_id=self._replica.id
        )

    async def start(self) -> None:
        """Open the store and accept messages; may be called again after `drain` and `close`.

        Raises:
            StoreError: The store cannot be used; the message says why.
            ValueError: The ASGI server has started several processes, which can't share the store.
        """
        await self.open()
        self.setup.state.is_draining = False
        self.setup.state.has_started = True
        if self.keeper is not None:
            self.keeper.start()
        if self.push is not None:
            self.push.queue.start()
        try:
            await self.companions.start(self.setup.executor.registry)
        except BaseException:  # a companion may raise anything
            await self.drain(0)
            await self.close()
            raise

    async def close(self) -> None:
        """Close the companions and the store, and end the processes of modules."""
        async with AsyncExitStack() as stack:  # runs all callbacks, even if one raises
            stack.push_async_callback(self.setup.tasks.store.close)
            stack.push_async_callback(self.setup.processes.close)
            if self.keeper is not None:
                stack.push_async_callback(self.keeper.stop)
            await self.companions.aclose()

    async def drain(self, seconds: float | None = None) -> None:
        """Let tasks finish within *seconds*, by default `shutdown_timeout`; deliver notifications.

        Notifications get the time that remains when the tasks have ended, but at least the smaller
        of `MIN_WEBHOOK_DRAIN` and *seconds*.
        """
        self.setup.state.is_draining = True
        timeout = self.settings.shutdown_timeout if seconds is None else seconds
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        if self.keeper is not None:
            self.keeper.claims_orphans = False
        await self.engine.drain(timeout)
        if self.push is not None:
            remaining = max(deadline - loop.time(), min(MIN_WEBHOOK_DRAIN, timeout))
            await self.push.queue.drain(remaining)

    def replica(self) -> Replica:
        """Return this process as a replica, with its current figures; any thread may call this."""
        assert self._replica is not None  # `open` has made it
        return replace(
            self._replica,
            seen_at=time.time(),
            is_draining=self.setup.state.is_draining,
            leases=len(self.setup.tasks.leases()),
            running=len(self.engine.runs),
        )

    def publish(self) -> None:
        """Share the current figures with the other workers, which may get requests for them."""
        if self.metrics is not None:
            self.metrics.publish()
        if self.recorder is not None:
            self.recorder.publish(self.engine.count_running())
            for name, read in self.gauges().items():
                self.figures.set(name, read())

    def gauges(self) -> dict[str, Callable[[], float]]:
        """Return functions that read the current figures, by metric name."""
        gauges: dict[str, Callable[[], float]] = {
            "active_tasks": lambda: self.engine.count_running().total(),
            "open_streams": lambda: len(self.handler.streams),
            "busy_threads": lambda: self.setup.threads.running,
            "stuck_threads": lambda: self.setup.threads.stuck,
            "memory_bodies_bytes": lambda: self.setup.memory.body_bytes,
            "memory_running_bytes": lambda: self.setup.memory.running_bytes,
            "memory_stored_bytes": lambda: self.setup.memory.stored_bytes,
            "uptime_seconds": lambda: round(time.monotonic() - self.figures.started_monotonic, 3),
            **self.companions.gauges(),
        }
        if self.keeper is not None and self.setup.tasks.store.is_shared:
            keeper = self.keeper
            gauges["lease_age_seconds"] = lambda: round(keeper.seconds_since_renewal, 3)
        if self.push is not None:
            store = self.setup.tasks.store
            gauges["webhooks_pending"] = lambda: store.backlog.pending
            gauges["webhooks_pending_age_seconds"] = lambda: round(store.backlog.age, 3)
        return gauges


def _limiter(rate: str | None, settings: Settings, option: str) -> RateLimiter | None:
    """Return the limiter for the rate of an option; None without a rate."""
    storage = settings.rate_limit_storage
    if storage != MEMORY:
        storage_of(storage)  # reject an invalid URL even if there is no rate limit
    return RateLimiter(rate, storage, option) if rate else None


def _auth_limiter(settings: Settings) -> RateLimiter | None:
    """Return the limiter of refused credentials; it counts in this process alone."""
    rate = settings.auth_rate_limit
    # importing `limits` takes 150 ms; without auth, a limiter only checks a non-default rate
    is_unused = settings.auth is None and rate == AUTH_RATE_LIMIT
    return RateLimiter(rate, option="auth_rate_limit") if rate and not is_unused else None


def _metrics(settings: Settings, figures: Figures) -> "Metrics | None":
    if not settings.metrics:
        return None
    from .metrics import Metrics  # takes 30 ms, and most agents do not need it

    return Metrics(figures, shows_webhooks=bool(settings.push_notifications))


def _spans(settings: Settings) -> "Spans | None":
    """Return the source of OpenTelemetry spans; None if the option `otel` is off.

    Raises:
        ImportError: OpenTelemetry is not installed.
    """
    if not settings.otel:
        return None
    try:
        from apcore_a2a_server.spans import Spans
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "opentelemetry":
            raise
        message = "otel needs the otel part: pip install 'apcore-a2a[otel]'"
        raise ImportError(message, name=error.name) from None
    return Spans()


def _push(
    tasks: LiveTasks,
    settings: Settings,
    metrics: "Metrics | None",
    spans: "Spans | None",
) -> "Push | None":
    value = settings.push_notifications
    if not value:
        return None
    from apcore_a2a_server.push.push import Push  # takes 30 ms, and most agents do not need it

    push_settings = PushSettings() if value is True else value
    if metrics is None:
        return Push(tasks, push_settings, spans=spans)
    return Push(tasks, push_settings, on_result=metrics.on_delivery, spans=spans)


def _skills(executor: Executor, settings: Settings) -> Skills:
    skills = Skills(executor.registry, schema_cache=settings.limits.schema_cache)
    if not len(skills) and not (settings.allow_empty or settings.companions):
        raise ValueError("There are no modules to serve: the registry is empty, or hides them all")
    if settings.default_skill == ASK:
        if ASK in executor.registry.list():
            problem = f"can't be {ASK!r}, since a module has this id: rename the module"
            raise OptionError("default_skill", problem)
    elif settings.default_skill is not None:
        try:
            skills.get(settings.default_skill)
        except MethodNotFoundError as error:
            raise OptionError("default_skill", f"is unknown: {error}") from None
    return skills


def _admission(setup: Setup, settings: Settings) -> Admission:
    asks_for_skill = settings.default_skill == ASK
    default_skill = None if asks_for_skill else settings.default_skill
    max_parts = settings.limits.max_parts
    return Admission(setup, default_skill, max_parts, asks_for_skill, _operator_rules(settings))


def _operator_rules(settings: Settings) -> OperatorRules:
    return OperatorRules(
        operators=settings.operators,
        approvers=settings.approvers,
        read_content=settings.operators_read == "content",
    )


def _tenants(setup: Setup, settings: Settings) -> Tenants | None:
    declared = read_tenants(settings.tenants)
    if declared is None:
        return None
    skills_by_tenant = None if isinstance(declared, str) else declared
    tenants = Tenants(setup.skills, setup.access, skills_by_tenant)
    reserved = reserved_names(settings)
    for name in setup.skills.list() if skills_by_tenant is None else skills_by_tenant:
        check_name(name)
        if name in reserved:
            problem = f"can't have the name {name!r}, which is a path of the agent"
            raise OptionError("tenants", f"{problem}; map another name to the skill")
        if tenants.get(name) is None:
            problem = f"has no skill for {name!r}: the tenant's skill is unknown or hidden"
            raise OptionError("tenants", problem)
    return tenants


def reserved_names(settings: Settings) -> frozenset[str]:
    """Return the first segments of the agent's paths, which can't be names of tenants."""
    paths = (settings.explorer_path, *Companions(settings.companions).routes())
    return frozenset({*RESERVED, *(path.strip("/").partition("/")[0] for path in paths)})


def _tasks(settings: Settings, recorder: SkillRecorder | None) -> LiveTasks:
    max_history, store = settings.limits.max_history, settings.task_store
    if store is None or store == "memory":
        ttl, capacity = settings.task_ttl, settings.max_tasks
        store = InMemoryTaskStore(ttl=ttl, max_capacity=capacity, max_history=max_history)
    on_state = None if recorder is None else recorder.on_state
    return LiveTasks(store_of(store), max_history=max_history, on_state=on_state)


def _capacity(threads: ThreadPool, settings: Settings) -> Capacity:
    share, max_runs, max_tasks = settings.limits.client_share, settings.max_runs, settings.max_tasks
    per_client = share_of(max_runs, share, settings.max_runs_per_client)
    return Capacity(
        threads=threads,
        runs=Slots(("tasks", "are running"), max_runs, per_client),
        paused=Slots(("tasks", "wait for input"), max_tasks, share_of(max_tasks, share)),
        per_skill=settings.max_runs_per_skill,
        rate=_limiter(settings.skill_rate_limit, settings, "skill_rate_limit"),
        total_rate=_limiter(settings.total_skill_rate_limit, settings, "total_skill_rate_limit"),
    )


def _setup(executor: Executor, settings: Settings, recorder: SkillRecorder | None) -> Setup:
    tasks, memory = _tasks(settings, recorder), settings.limits.memory
    spans = _spans(settings)
    threads = ThreadPool(settings.max_threads, share=settings.limits.client_share)
    return Setup(
        executor=executor,
        skills=_skills(executor, settings),
        state=ProcessState(),
        tasks=tasks,
        converter=PartConverter(SchemaConverter()),
        mapper=ErrorMapper(),
        threads=threads,
        processes=ProcessPool(share=settings.limits.client_share),
        capacity=_capacity(threads, settings),
        memory=Memory(tasks, memory, share_of(memory, settings.limits.client_share)),
        access=Access(executor),
        execution_timeout=settings.execution_timeout,
        input_timeout=settings.input_timeout,
        max_artifact=settings.limits.max_artifact,
        has_steps=install_steps(executor, spans),
        spans=spans,
        approval_policy=install_approval(executor),
        metadata={"stateHistory": []} if settings.state_history else {},
        text_results=settings.text_results,
        keeps_identity=_operator_rules(settings).are_set,
    )
