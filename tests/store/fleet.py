"""Several replicas over one database, behind a load balancer."""

import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from tests.facade.processes import Process

from .invariants import count_unfinished
from .proxies import Balancer
from .replicas import TIMEOUT, Agent, Replica, write_modules

SERVE = """
import sys
from apcore_a2a_auth import APIKeyAuthenticator
from apcore_a2a_server.push import PushSettings
from apcore_a2a_server import serve
from apcore_a2a_server.store import open_store

store = open_store(sys.argv[2])
store.lease_seconds = float(sys.argv[3])
if "polling" in sys.argv:  # ignores change notifications
    store._report_change = lambda task_id, version: None
keys = APIKeyAuthenticator({"ada": "ada", "bob": "bob"}) if "keys" in sys.argv else None
push = PushSettings(dev=True, timeout=1, retries=[0.5] * 20)
serve(
    sys.argv[1], host="127.0.0.1", port=0, task_store=store, shutdown_timeout=1,
    push_notifications=push, auth=keys,
)
"""

CLAIM_SECONDS = 8.0
"""Seconds for which a replica claims a notification, with a timeout of 1 s."""
NO_KEEPALIVE = {"trust_env": False, "limits": httpx.Limits(max_keepalive_connections=0)}
"""Options for httpx: a new connection, and so another replica, for each request."""


class Fleet:
    """Replicas behind a load balancer.

    Args:
        home: The folder with the modules and their notes.
        stores: The address of the database, for each replica.
        lease: Seconds that a lease lasts.
        options: An option for each replica: "polling" ignores change notifications, "keys" requires
            API keys.

    Attributes:
        replicas: the replicas; a killed one stays here until it is restarted.
        agent: the whole fleet, as clients call it through the load balancer.
    """

    def __init__(
        self, home: Path, stores: Sequence[str], lease: float, options: Sequence[str] = ()
    ) -> None:
        self.home = home
        self._options = options or [""] * len(stores)
        self._folder = write_modules(home)
        self._stores = stores
        self._lease = lease
        self._cleanup = ExitStack()
        self.balancer = self._cleanup.enter_context(Balancer())
        self.replicas: list[Replica] = []
        self.agent = self._cleanup.enter_context(self._agent())

    @contextmanager
    def _agent(self) -> Iterator[Agent]:
        agent = Agent(self.balancer.url, self.home, **NO_KEEPALIVE)
        with agent.client:
            yield agent

    def start(self) -> None:
        """Start the replicas one after the other: started together, they are slow."""
        for number in range(len(self._stores)):
            self.replicas.append(self._replica(self._process(number)))
        self._balance()

    def restart(self, number: int) -> None:
        """Start a replica again after its process has ended."""
        self.replicas[number].client.close()
        self.replicas[number] = self._replica(self._process(number))
        self._balance()

    def kill(self, number: int) -> None:
        """Kill a replica."""
        self.replicas[number].process.end(signal.SIGKILL)

    def signal(self, number: int, signal_number: int) -> None:
        self.replicas[number].process.signal(signal_number)

    def stop(self) -> None:
        """Stop all replicas and the load balancer."""
        for replica in self.replicas:
            replica.client.close()
        self._cleanup.close()

    def _process(self, number: int) -> Process:
        arguments = self._stores[number], str(self._lease), self._options[number]
        command = [sys.executable, "-c", SERVE, str(self._folder), *arguments]
        process = Process(command, self.home, {})
        self._cleanup.callback(process.kill)
        return process

    def _replica(self, process: Process) -> Replica:
        process.wait_for("(Ctrl)", TIMEOUT)  # slow while other replicas run tasks
        return Replica(process, self.home)

    def _balance(self) -> None:
        urls = [urlsplit(replica.url) for replica in self.replicas]
        self.balancer.ports = [url.port for url in urls if url.port is not None]


@contextmanager
def fleet(
    home: Path, stores: Sequence[str], lease: float, options: Sequence[str] = ()
) -> Iterator[Fleet]:
    """Run a fleet with one replica for each of *stores*."""
    fleet = Fleet(home, stores, lease, options)
    try:
        fleet.start()
        yield fleet
    finally:
        fleet.stop()


def wait_for_tasks(address: str) -> float:
    """Wait until all tasks in a database have ended; return the monotonic time then."""
    return _wait(lambda: count_unfinished(address)[0], "tasks")


def wait_for_deliveries(address: str) -> float:
    """Wait until all tasks have ended and all notifications are delivered; return the time then.

    A notification that a killed replica had claimed is delivered after the claim has expired.
    """
    return _wait(lambda: sum(count_unfinished(address)), "tasks and notifications")


def _wait(count: Callable[[], int], label: str) -> float:
    deadline = time.monotonic() + TIMEOUT
    while remaining := count():
        assert time.monotonic() < deadline, f"{remaining} {label} are left"
        time.sleep(0.1)
    return time.monotonic()
