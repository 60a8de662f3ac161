"""The last Python SDK of A2A 0.3 against the server, in a separate environment."""

from pathlib import Path

import pytest

from tests.e2e.environments import python_environment
from tests.e2e.programs import check, run_steps

SCRIPT = Path(__file__).parent / "scripts" / "sdk_v03.py"


CODES = {
    "JSONRPC": [-32601, -32601, -32602, -32602, -32001],
    "HTTP+JSON": [404, 404, 400, 400, 404],
}
"""Codes of errors in each transport: of JSON-RPC or of HTTP."""


@pytest.mark.parametrize("transport", CODES)
def test_a_program_of_protocol_0_3_completes_every_step(agent: str, transport: str) -> None:
    python = python_environment("sdk-v03", "a2a-sdk==0.3.26")
    steps = run_steps(str(python), "-I", "-W", "error", str(SCRIPT), agent, transport)
    check(steps, agent)
    assert steps["card"]["version"] == "0.3.0"
    assert steps["error"] == {"codes": CODES[transport]}
