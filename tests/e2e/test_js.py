"""The JavaScript SDKs against the server, over JSON-RPC and HTTP+JSON."""

from pathlib import Path

import pytest

from tests.e2e.environments import node_modules, tool
from tests.e2e.programs import check, run_steps

SCRIPTS = Path(__file__).parent / "scripts"


@pytest.fixture(scope="module")
def packages() -> str:
    """Return the folder with both SDKs installed."""
    versions = {"sdk-v1": "1.3.0", "sdk-v03": "0.3.14"}
    names = (f"{name}@npm:@a2a-js/sdk@{version}" for name, version in versions.items())
    return str(node_modules(*names))


@pytest.mark.parametrize(
    ("binding", "version"),
    [("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("JSONRPC", "0.3"), ("HTTP+JSON", "0.3")],
)
def test_a_program_of_the_sdk_for_1_0_completes_every_step(
    agent: str, packages: str, binding: str, version: str
) -> None:
    script = str(SCRIPTS / "sdk_js.mjs")
    steps = run_steps(tool("node"), script, packages, binding, version, agent)
    check(steps, agent)
    assert steps["card"]["version"] == version
    assert None not in steps["error"]["names"]
    assert steps["error"]["names"][-1] == "TaskNotFoundError"


@pytest.mark.parametrize("transport", ["JSONRPC", "HTTP+JSON"])
def test_a_program_of_protocol_0_3_completes_every_step(
    agent: str, packages: str, transport: str
) -> None:
    script = str(SCRIPTS / "sdk_js_v03.mjs")
    steps = run_steps(tool("node"), script, packages, transport, agent)
    check(steps, agent)
    assert steps["card"]["version"] == "0.3.0"
    assert None not in steps["error"]["names"]
