"""The example gateway serves two agents under its own access rules."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from apcore_a2a_client import InputRequired, SyncA2AClient, TaskNotFoundError

from tests.facade.processes import COMMAND, free_port, process
from tests.serving import PATIENCE

pytestmark = pytest.mark.process

EXAMPLES = Path(__file__).parents[2] / "examples"
EXTENSIONS = EXAMPLES / "extensions"
KEY = "a-long-random-key"


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[str]:
    """Start both agents and the gateway as the example says, on free ports."""
    folder = shutil.copytree(EXAMPLES / "gateway", tmp_path / "gateway")
    config = (folder / "gateway.yaml").read_text(encoding="utf-8")
    ports = {configured: str(free_port()) for configured in ("8000", "8001", "8002")}
    for configured, port in ports.items():
        assert configured in config
        config = config.replace(configured, port)
    (folder / "gateway.yaml").write_text(config, encoding="utf-8")
    tools = [str(EXTENSIONS / "units/convert.py"), str(EXTENSIONS / "text/stats.py")]
    files = [str(EXTENSIONS / "files/delete.py"), "--auth-type", "apikey"]
    sandbox = tmp_path / "sandbox"
    sandbox.mkdir()
    (sandbox / "old.txt").write_text("old", encoding="utf-8")
    with ExitStack() as stack:
        for port, command, variables in [
            (ports["8001"], tools, {}),
            (
                ports["8002"],
                files,
                {"APCORE_A2A_AUTH_KEY": KEY, "APCORE_EXAMPLE_ROOT": str(sandbox)},
            ),
        ]:
            listen = ["--host", "127.0.0.1", "--port", port]
            agent = process([*COMMAND, "serve", *command, *listen], folder, variables)
            assert stack.enter_context(agent).url
        key = {"APCORE_A2A_REMOTE_KEY_FILES": KEY}
        command = [*COMMAND, "serve", "--config", "gateway.yaml"]
        yield stack.enter_context(process(command, folder, key)).url


def test_the_gateway_serves_both_agents_under_its_own_rules(gateway: str, tmp_path: Path) -> None:
    health = httpx.get(f"{gateway}/health", trust_env=False).json()
    assert health["companions"] == {"tools": "ready", "files": "ready"}
    with SyncA2AClient(gateway, timeout=PATIENCE) as client:
        skills = client.get_card().skills
        assert [skill.id for skill in skills] == ["remote.files.delete", "remote.tools.convert"]
        with pytest.raises(TaskNotFoundError):
            client.call("remote.tools.stats", "one two")

        with pytest.raises(InputRequired) as paused:
            client.call("remote.tools.convert", "5 km")
        answered = client.reply(paused.value.task, "mi")
        expected = {"text": "5 km = 3.10686 mi", "amount": 3.10686, "unit": "mi"}
        assert answered.value == expected

        with pytest.raises(InputRequired) as paused:
            client.call("remote.files.delete", {"path": "old.txt"})
        assert (tmp_path / "sandbox" / "old.txt").exists()
        approved = client.reply(paused.value.task, "yes")
        assert approved.value == {"deleted": "old.txt", "size": 3}
        assert not (tmp_path / "sandbox" / "old.txt").exists()
