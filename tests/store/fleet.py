"""Several processes over one database, behind a balancer: one agent."""

import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from tests.facade.processes import Process

from .invariants import unfinished
from .proxies import Balancer
from .replicas import PATIENCE, Agent, Replica, modules

SERVE = """
import sys
from apcore_a2a_auth import APIKeyAuthenticator
from apcore_a2a_server.push import PushSettings
from apcore_a2a_server import serve
from apcore_a2a_server.store import open_store

store = open_store(sys.argv[2])
store.lease_seconds = float(sys.argv[3])
if "deaf" in sys.argv:  # word of what others have changed does not come
    store._report_change = lambda task_id, version: None
keys = APIKeyAuthenticator({"ada": "ada", "bob": "bob"}) if "keys" in sys.argv else None
push = PushSettings(dev=True, timeout=1, retries=[0.5] * 20)
serve(
    sys.argv[1], host="127.0.0.1", port=0, task_store=store, shutdown_timeout=1,
    push_notifications=push, auth=keys,
)
"""

CLAIMED = 8.0
"""Seconds that a notification is one process's, with a timeout of 1 s."""
EACH_ITS_OWN = {"trust_env": False, "limits": httpx.Limits(max_keepalive_connections=0)}
"""Each request has a connection of its own, so that each goes to another replica."""


class Fleet:
    """The processes, and the one address at which clients find them.

    Args:
        home: Where modules are, and leave their notes.
        stores: The address of the database, for each process.
        lease: Seconds that a lease lasts.
        options: How each serves: "deaf" to what others have changed, or for callers with "keys".

    Attributes:
        replicas: the processes; one that was killed stays here until another one begins.
        agent: all of them, as clients ask them.
    """

    def __init__(
        self, home: Path, stores: Sequence[str], lease: float, options: Sequence[str] = ()
    ) -> None:
        self.home = home
        self._options = options or [""] * len(stores)
        self._folder = modules(home)
        self._stores = stores
        self._lease = lease
        self._ended = ExitStack()
        self.balancer = self._ended.enter_context(Balancer())
        self.replicas: list[Replica] = []
        self.agent = self._ended.enter_context(self._agent())

    @contextmanager
    def _agent(self) -> Iterator[Agent]:
        found = Agent(self.balancer.url, self.home, **EACH_ITS_OWN)
        with found.client:
            yield found

    def start(self) -> None:
        """Begin all, one behind the other: together they are slow on small machines."""
        for number in range(len(self._stores)):
            self.replicas.append(self._replica(self._process(number)))
        self._balance()

    def begin(self, number: int) -> None:
        """Begin one anew, whose process has ended."""
        self.replicas[number].client.close()
        self.replicas[number] = self._replica(self._process(number))
        self._balance()

    def kill(self, number: int) -> None:
        """End one at once."""
        self.replicas[number].process.end(signal.SIGKILL)

    def signal(self, number: int, what: int) -> None:
        self.replicas[number].process.signal(what)

    def stop(self) -> None:
        """End all, and whatever belongs to them."""
        for replica in self.replicas:
            replica.client.close()
        self._ended.close()

    def _process(self, number: int) -> Process:
        arguments = self._stores[number], str(self._lease), self._options[number]
        command = [sys.executable, "-c", SERVE, str(self._folder), *arguments]
        found = Process(command, self.home, {})
        self._ended.callback(found.kill)
        return found

    def _replica(self, process: Process) -> Replica:
        process.wait_for("(Ctrl)", PATIENCE)  # while others work it is slow
        return Replica(process, self.home)

    def _balance(self) -> None:
        urls = [urlsplit(replica.url) for replica in self.replicas]
        self.balancer.ports = [url.port for url in urls if url.port is not None]


@contextmanager
def fleet(
    home: Path, stores: Sequence[str], lease: float, options: Sequence[str] = ()
) -> Iterator[Fleet]:
    """Processes over a database, one for each of *stores*; gone afterwards."""
    found = Fleet(home, stores, lease, options)
    try:
        found.start()
        yield found
    finally:
        found.stop()


def ended(address: str) -> float:
    """Wait until all tasks of a database have ended; the time then."""
    return _wait(lambda: unfinished(address)[0], "tasks")


def settled(address: str) -> float:
    """Wait until, besides, all webhooks are told; the time then.

    What a process was about to tell when it was killed is told when its time for that is over.
    """
    return _wait(lambda: sum(unfinished(address)), "tasks and notifications")


def _wait(left: Callable[[], int], what: str) -> float:
    deadline = time.monotonic() + PATIENCE
    while found := left():
        assert time.monotonic() < deadline, f"{found} {what} are left"
        time.sleep(0.1)
    return time.monotonic()
