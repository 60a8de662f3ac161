"""The work that scenarios have under way when something goes wrong."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.push.receiver import Receiver, receiving
from tests.store.clients import Clients
from tests.store.fleet import Fleet, fleet, settled
from tests.store.invariants import check
from tests.store.trials import Trial

KINDS = ("once", "again", "steps", "hooked")
STEPS = 10


@contextmanager
def three(
    trial: Trial, lease: float, stores: Sequence[str] = ()
) -> Iterator[tuple[Fleet, Receiver, Clients]]:
    """Three replicas, over one database or what leads to it; a receiver of webhooks; clients."""
    with (
        fleet(trial.home, stores or [trial.server.url] * 3, lease) as agents,
        receiving() as receiver,
        Clients(agents.agent, receiver.url) as clients,
    ):
        yield agents, receiver, clients


def begin(trial: Trial, clients: Clients, tasks: int, seconds: float) -> None:
    """Have tasks of all kinds at work, each for so long: of equal numbers, in any order."""
    kinds = [kind for kind in KINDS for _ in range(tasks // len(KINDS))]
    trial.random.shuffle(kinds)
    for kind in kinds:
        if kind == "steps":
            clients.stream("steps", seconds=seconds / STEPS, steps=STEPS)
        else:
            skill = trial.random.choice(["once", "again"]) if kind == "hooked" else kind
            clients.send(skill, hooked=kind == "hooked", seconds=seconds)
    clients.wait()


def end(trial: Trial, clients: Clients, receiver: Receiver) -> None:
    """Have all of it end, and hold it against what must hold."""
    clients.finish()
    settled(trial.server.url)
    clients.look()
    for delivery in receiver.deliveries:
        about = delivery.json.get("task") or delivery.json["statusUpdate"]
        clients.told.heard.add((about.get("taskId") or about["id"], delivery.state))
    check(trial.server.url, trial.home, clients.told, spared=True)
