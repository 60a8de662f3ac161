"""The example client for gRPC, run as a user runs it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.facade.processes import environment, process, serve_command
from tests.serving import PATIENCE

pytestmark = pytest.mark.process

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_client_prints_the_events_of_its_task(tmp_path: Path) -> None:
    with process(serve_command(EXAMPLES / "extensions", grpc_port=0), tmp_path) as agent:
        agent.wait_for_card(agent.url)
        result = subprocess.run(
            [sys.executable, str(EXAMPLES / "grpc_client.py"), agent.url],
            env=environment(tmp_path, {"NO_PROXY": "*"}),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
    first, *_, last = result.stdout.splitlines()
    assert "TASK_STATE_SUBMITTED" in first
    assert "TASK_STATE_COMPLETED" in last
    assert "'words': 6.0" in result.stdout
