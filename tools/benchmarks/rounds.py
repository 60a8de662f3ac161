"""The measurements: interleaved rounds on fresh servers, then a server with a full store."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from tools.benchmarks import messages
from tools.benchmarks.child import loop_factory
from tools.benchmarks.figures import FactKey, Figures, Key, Results, percentile
from tools.benchmarks.load import EVENT, Load, Tally, run_load
from tools.benchmarks.messages import Requests
from tools.benchmarks.scenarios import BURSTS, BUSY, GET, GET_FULL, STEADY, Scenario
from tools.benchmarks.servers import Server, ServerFailed, Stack, State
from tools.benchmarks.subject import Subject, task_ids

LEFTOVER = "asyncio tasks left over"
TASK_BYTES = "bytes per stored task"
STORED = "tasks stored"

_COMPLETED = b'"completed"'


@dataclass(frozen=True, slots=True)
class Plan:
    """The extent of the measurements."""

    stacks: list[Stack]
    servers: list[str]
    rounds: int
    bursts: int
    """Number of rounds with bursts."""
    seconds: float
    """Duration of each load."""
    stored: int
    """Number of tasks in a full store."""
    programs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The commands that run servers in other environments."""
    scenarios: Sequence[Scenario] = tuple(STEADY)
    only_scenarios: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """For servers that run only some scenarios and no bursts, the names of these scenarios."""
    warm_up: int = 20
    """Number of requests of each kind that warm up a server."""


def client_loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return the factory of the fastest event loop, so that the load generator takes little CPU."""
    try:
        return loop_factory("uvloop")
    except ImportError:
        return loop_factory("asyncio")


class Bench:
    """A context manager that runs a plan and fills in the results."""

    def __init__(self, plan: Plan, results: Results, say: Callable[[str], None]) -> None:
        self._plan = plan
        self._results = results
        self._say = say
        self._runner = asyncio.Runner(loop_factory=client_loop_factory())

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.close()

    def run_rounds(self) -> None:
        """Run all scenarios on all servers, in several rounds."""
        for number in range(self._plan.rounds):
            for stack in self._plan.stacks:
                self._say(f"round {number + 1} of {self._plan.rounds}, {stack.name}")
                with ExitStack() as running:
                    subjects = self._start(stack, running)
                    self._run_round(subjects, with_bursts=number < self._plan.bursts)

    def run_full_store(self, name: str, stack: Stack) -> None:
        """Fill the store of a new server; measure memory per task and reads of tasks."""
        if name in self._results.unavailable:
            return
        self._say(f"{name}, {stack.name}: {self._plan.stored:,} sends to fill the store")
        with self._spawn(name, stack) as server:
            subject = Subject(server)
            if self._comes_up(server):
                with self._recording_failure(subject, GET_FULL):
                    self._read_full_store(subject, self._fill_store(subject))

    def _start(self, stack: Stack, running: ExitStack) -> list[Subject]:
        """Start all servers at once; return those that come up and pass the warm-up."""
        names = [n for n in self._plan.servers if n not in self._results.unavailable]
        servers = [running.enter_context(self._spawn(name, stack)) for name in names]
        subjects = [Subject(server) for server in servers if self._comes_up(server)]
        return [subject for subject in subjects if self._warm_up(subject)]

    def _spawn(self, name: str, stack: Stack) -> Server:
        program = self._plan.programs.get(name)
        return Server(name, stack, program) if program else Server(name, stack)

    def _comes_up(self, server: Server) -> bool:
        try:
            server.wait_until_up()
        except ServerFailed as failure:
            self._give_up(server.name, str(failure))
            return False
        return True

    def _give_up(self, name: str, reason: str) -> None:
        self._results.unavailable[name] = reason
        self._say(f"  {name} cannot be measured: {reason}")

    def _warm_up(self, subject: Subject) -> bool:
        """Send each request a few times; return whether the server can be measured.

        Afterwards, imports and empty caches do not affect the figures.
        """
        with self._recording_failure(subject, "warming up"):
            if self._reads_tasks() and not subject.is_bare and not self._store_task(subject):
                return False
            for scenario in self._scenarios_of(subject):
                expect = scenario.expected_of(subject.name)
                requests = scenario.requests(subject.request_options)
                limit = self._plan.warm_up
                self._run_load(subject, requests, expect, connections=4, limit=limit)
            time.sleep(0.2)
            subject.idle_asyncio_tasks = subject.count_asyncio_tasks()
            return True
        return False

    def _scenarios_of(self, subject: Subject) -> list[Scenario]:
        names = self._plan.only_scenarios.get(subject.name)
        return [s for s in self._plan.scenarios if names is None or s.name in names]

    def _reads_tasks(self) -> bool:
        return any(scenario.name == GET for scenario in self._plan.scenarios)

    def _store_task(self, subject: Subject) -> bool:
        """Store a task to read; return whether the server stored it."""
        requests = messages.send_requests(in_message=subject.request_options.in_message)
        tally = self._run_load(subject, requests, _COMPLETED, limit=1, keep=1)
        for task_id in task_ids(tally.bodies):
            subject.task_id = task_id
            return True
        self._give_up(subject.name, f"first send: {(*tally.failures, 'no task')[0]}")
        return False

    def _run_round(self, subjects: list[Subject], *, with_bursts: bool) -> None:
        for scenario in self._plan.scenarios:
            self._say(f"  {scenario.name}")
            for connections in scenario.connections:
                for subject in subjects:
                    if scenario in self._scenarios_of(subject):
                        self._run_steady(subject, scenario, connections)
        agents = [s for s in subjects if not s.is_bare and s.name not in self._plan.only_scenarios]
        for scenario in BURSTS if with_bursts else []:
            self._say(f"  {scenario.name}")
            for subject in agents:
                self._run_burst(subject, scenario)
        for subject in agents if self._plan.bursts else []:
            self._count_leftovers(subject)

    def _run_steady(self, subject: Subject, scenario: Scenario, connections: int) -> None:
        with self._recording_failure(subject, scenario.name):
            before = subject.server.state()
            requests = scenario.requests(subject.request_options)
            expect = scenario.expected_of(subject.name)
            seconds, timed_bytes = self._plan.seconds, scenario.timed_bytes
            tally = self._run_load(
                subject, requests, expect, connections, seconds, timed_bytes=timed_bytes
            )
            self._record(subject, scenario.name, connections, before, tally)

    def _run_burst(self, subject: Subject, scenario: Scenario) -> None:
        (count,) = scenario.connections
        with self._recording_failure(subject, scenario.name):
            before = subject.server.state()
            requests = scenario.requests(subject.request_options)
            tally = self._run_load(subject, requests, scenario.expect, count, limit=count)
            self._record(subject, scenario.name, count, before, tally)

    def _run_load(
        self,
        subject: Subject,
        requests: Requests,
        expect: bytes,
        connections: int = 1,
        seconds: float = 60.0,
        *,
        limit: int = 1_000_000,
        keep: int = 0,
        timed_bytes: bytes = EVENT,
    ) -> Tally:
        port = subject.server.port
        load = Load(port, requests, expect, connections, seconds, limit, keep, timed_bytes)
        return self._runner.run(run_load(load))

    def _record(
        self, subject: Subject, name: str, connections: int, before: State, tally: Tally
    ) -> None:
        if tally.failures:
            example = f"{len(tally.failures)} wrong answers, such as {tally.failures[0]}"
            self._fail(subject, name, example)
        if tally.latencies:
            cpu = subject.server.state().cpu - before.cpu
            key = Key(subject.stack, subject.name, name, connections)
            self._results.add(key, figures_of(tally, cpu))

    def _fail(self, subject: Subject, name: str, reason: str) -> None:
        line = f"{subject}: {name}: {reason}"
        self._results.failures.append(line)
        self._say(f"  WRONG {line}")

    @contextmanager
    def _recording_failure(self, subject: Subject, name: str) -> Iterator[None]:
        """Record a failure of the server instead of raising it."""
        try:
            yield
        except (ServerFailed, OSError) as failure:
            self._fail(subject, name, str(failure))

    def _count_leftovers(self, subject: Subject) -> None:
        with self._recording_failure(subject, LEFTOVER):
            leftover = subject.leftover_asyncio_tasks()
            fact = FactKey(subject.stack, subject.name, LEFTOVER)
            self._results.facts[fact] = max(leftover, self._results.facts.get(fact, 0))
            if leftover:
                tasks = subject.server.state().tasks
                self._say(f"  {subject} has {leftover} asyncio tasks left over: {tasks}")

    def _fill_store(self, subject: Subject) -> list[str]:
        warm_up = self._plan.warm_up
        self._run_load(subject, messages.send_requests(), _COMPLETED, limit=warm_up)
        before = subject.server.state("collect")
        count = self._plan.stored - warm_up
        tally = self._run_load(
            subject, messages.send_requests(), _COMPLETED, BUSY, limit=count, keep=1000
        )
        if tally.failures:
            raise ServerFailed(f"filling the store: {tally.failures[0]}")
        growth = subject.server.state("collect").resident - before.resident
        self._results.facts[FactKey(subject.stack, subject.name, TASK_BYTES)] = growth / count
        self._results.facts[FactKey(subject.stack, subject.name, STORED)] = self._plan.stored
        return task_ids(tally.bodies)

    def _read_full_store(self, subject: Subject, ids: list[str]) -> None:
        for connections in (1, BUSY):
            before = subject.server.state()
            requests = messages.get_task_requests(ids)
            seconds = 2 * self._plan.seconds
            tally = self._run_load(subject, requests, _COMPLETED, connections, seconds)
            self._record(subject, GET_FULL, connections, before, tally)


def figures_of(tally: Tally, cpu: float) -> Figures:
    """Return the figures of one load that took *cpu* CPU seconds of the server."""
    answers = len(tally.latencies)
    return Figures(
        answers=answers,
        rate=answers / tally.elapsed,
        cpu=cpu / answers,
        p50=percentile(tally.latencies, 0.5),
        p99=percentile(tally.latencies, 0.99),
        first_p50=percentile(tally.first_latencies, 0.5),
        first_p99=percentile(tally.first_latencies, 0.99),
        delivery_p50=percentile(tally.deliveries, 0.5),
        delivery_p99=percentile(tally.deliveries, 0.99),
    )


def profile(stack: Stack, seconds: float, store: str) -> str:
    """Send messages to this project's server under cProfile; return the profile.

    Args:
        stack: The stack of the server.
        seconds: The duration of the load.
        store: The address of the server's task store.

    Raises:
        ServerFailed: The server does not start, or gives wrong answers.
    """
    with (
        Server("ours", stack, store=store) as server,
        asyncio.Runner(loop_factory=client_loop_factory()) as runner,
    ):
        server.wait_until_up()
        load = Load(server.port, messages.send_requests(), _COMPLETED, BUSY, seconds)
        runner.run(run_load(replace(load, limit=BUSY)))
        server.state("profile")
        tally = runner.run(run_load(load))
        if tally.failures:
            raise ServerFailed(tally.failures[0])
        return server.stop()
