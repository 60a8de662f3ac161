"""The clients, their packages, and the texts that their users have to see."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.environments import node_modules, python_environment, tool

SCRIPTS = Path(__file__).parent / "scripts"

STEPS = {
    "card": ["Tea room"],
    "send": ["You said: hello"],
    "stream": ["one", "two", "three"],
    "question": ["For which day?", "Booked for Friday."],
    "result": ["450"],
    "refusal": ["We have tea for 10 cups", "cups must be a whole number", "401"],
}
"""The texts that the user of a client has to see in each step, in this order."""


@dataclass(frozen=True, slots=True)
class Client:
    """A client: its packages, and the script that uses it."""

    packages: Sequence[str]
    script: str

    @property
    def environment(self) -> str:
        """The name of its environment."""
        return (
            "node" if self.script.endswith(".mjs") else f"client-{self.script.split('_client')[0]}"
        )

    def install(self) -> list[str]:
        """Install the packages; return the command that runs the script.

        Raises:
            pytest.skip.Exception: The packages can't be installed.
            subprocess.TimeoutExpired: The installation takes too long.
        """
        script = str(SCRIPTS / self.script)
        if self.environment == "node":
            return [tool("node"), script, str(node_modules(*self.packages))]
        return [str(python_environment(self.environment, *self.packages)), script]


_JS = ["sdk-v1@npm:@a2a-js/sdk@1.3.0", "sdk-v03@npm:@a2a-js/sdk@0.3.14"]

CLIENTS = {
    "a2a-sdk-1.3": Client(["a2a-sdk==1.3.0", "httpx"], "sdk_v1_client.py"),
    "a2a-sdk-0.3": Client(["a2a-sdk==0.3.26"], "sdk_v03_client.py"),
    "a2a-js-1.3": Client(_JS, "sdk_js_v1_client.mjs"),
    "a2a-js-0.3": Client(_JS, "sdk_js_v03_client.mjs"),
    "google-adk": Client(["google-adk[a2a]==2.13.0"], "adk_client.py"),
    "strands": Client(["strands-agents[a2a]==1.62.0"], "strands_client.py"),
    "crewai": Client(["crewai[a2a]==1.15.30"], "crewai_client.py"),
    "agent-framework": Client(["agent-framework-a2a==1.0.0b261022"], "agent_framework_client.py"),
    "beeai": Client(["beeai-framework[a2a]==0.1.85"], "beeai_client.py"),
}
"""The clients, by their names on the command line."""
