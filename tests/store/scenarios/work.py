"""The load that scenarios put on replicas before something goes wrong."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.push.receiver import Receiver, receiving
from tests.store.clients import Clients
from tests.store.fleet import Fleet, fleet, wait_for_deliveries
from tests.store.invariants import check
from tests.store.trials import Trial

KINDS = ("once", "again", "steps", "hooked")
"""Kinds of tasks: the skills that they call; "hooked" is one of the first two, with a webhook."""
STEPS = 10
"""Chunks of a task that streams."""


@contextmanager
def three_replicas(
    trial: Trial, lease: float, stores: Sequence[str] = ()
) -> Iterator[tuple[Fleet, Receiver, Clients]]:
    """Run three replicas with *stores* (default: one database), a webhook receiver and clients."""
    with (
        fleet(trial.home, stores or [trial.server.url] * 3, lease) as agents,
        receiving() as receiver,
        Clients(agents.agent, receiver.url) as clients,
    ):
        yield agents, receiver, clients


def start_tasks(trial: Trial, clients: Clients, tasks: int, seconds: float) -> None:
    """Start tasks of all kinds in random order, equally many of each, that run for *seconds*."""
    kinds = [kind for kind in KINDS for _ in range(tasks // len(KINDS))]
    trial.random.shuffle(kinds)
    for kind in kinds:
        if kind == "steps":
            clients.stream("steps", seconds=seconds / STEPS, steps=STEPS)
        else:
            skill = trial.random.choice(["once", "again"]) if kind == "hooked" else kind
            clients.send(skill, with_webhook=kind == "hooked", seconds=seconds)
    clients.wait()


def finish_tasks(trial: Trial, clients: Clients, receiver: Receiver) -> None:
    """Wait until all tasks have ended and check the invariants."""
    clients.finish()
    wait_for_deliveries(trial.server.url)
    clients.poll()
    for delivery in receiver.deliveries:
        event = delivery.json.get("task") or delivery.json["statusUpdate"]
        clients.observed.notified.add((event.get("taskId") or event["id"], delivery.state))
    check(trial.server.url, trial.home, clients.observed, must_succeed=True)
