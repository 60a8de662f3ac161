"""The last Python SDK of A2A 0.3 against the server, in an environment of its own."""

from pathlib import Path

from tests.e2e.environments import python_environment
from tests.e2e.programs import check, told

SCRIPT = Path(__file__).parent / "scripts" / "sdk_v03.py"


def test_a_program_of_protocol_0_3_finds_all_it_needs(agent: str) -> None:
    python = python_environment("sdk-v03", "a2a-sdk==0.3.26")
    steps = told(str(python), "-I", "-W", "error", str(SCRIPT), agent)
    check(steps, agent)
    assert steps["card"]["version"] == "0.3.0"
    # A stream that is refused is answered with plain JSON, whose code this SDK does not tell.
    assert steps["error"] == {"codes": [-32601, None, -32602, None, -32001]}
