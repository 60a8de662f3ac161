"""A database that executes statements while its responses are lost."""

import signal
from pathlib import Path

import httpx
import pytest

from .postgresql import Database
from .proxies import CuttableLink
from .replicas import LEASE, check_log, replica

pytestmark = pytest.mark.process

MESSAGE = {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": {"seconds": 0}}]}
SEND = {
    "message": {**MESSAGE, "metadata": {"idempotencyKey": "k"}},
    "metadata": {"skillId": "again"},
    "configuration": {"returnImmediately": True},
}


def test_a_task_whose_creation_was_not_confirmed_still_runs(
    tmp_path: Path, server: Database
) -> None:
    server.clear()
    with (
        CuttableLink(server.port) as link,
        replica(tmp_path, link.rerouted_url(server.url), LEASE) as agent,
    ):
        agent.wait_for_end(agent.start("again", seconds=0))  # connects to the database
        link.cut(responses_only=True)
        refused = agent.client.post("/", json=agent.request("SendMessage", **SEND))
        assert refused.status_code == httpx.codes.SERVICE_UNAVAILABLE
        link.heal()
        task_id = agent.ask("SendMessage", **SEND)["result"]["task"]["id"]
        assert agent.wait_for_end(task_id) == ["completed"]
        assert agent.count_starts(task_id) == 1
        check_log(agent.events(task_id))


def test_a_replica_without_database_responses_still_shuts_down(
    tmp_path: Path, server: Database
) -> None:
    server.clear()
    url = server.url
    with (
        CuttableLink(server.port) as link,
        replica(tmp_path, link.rerouted_url(url), lease=15) as agent,
    ):
        agent.start("again", seconds=60)
        agent.start("once", seconds=60)
        link.cut()
        assert agent.process.end(signal.SIGTERM) == 0
        assert "Traceback" not in agent.process.log
