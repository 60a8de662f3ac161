"""The last Python SDK of A2A 0.3 against the server, in an environment of its own."""

from pathlib import Path

from tests.e2e.environments import python_environment
from tests.e2e.programs import check, run_steps

SCRIPT = Path(__file__).parent / "scripts" / "sdk_v03.py"


def test_a_program_of_protocol_0_3_completes_every_step(agent: str) -> None:
    python = python_environment("sdk-v03", "a2a-sdk==0.3.26")
    steps = run_steps(str(python), "-I", "-W", "error", str(SCRIPT), agent)
    check(steps, agent)
    assert steps["card"]["version"] == "0.3.0"
    # A refused stream gets a plain JSON response; this SDK does not expose its code.
    assert steps["error"] == {"codes": [-32601, -32601, -32602, -32602, -32001]}
