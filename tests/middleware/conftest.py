"""A real agent, shared by all tests that only send requests."""

from collections.abc import Iterator

import pytest

from tests.facade.processes import COMMAND, extensions, process

from .byhand import KEY, TIMEOUT


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run an agent from the command line, with an API key and a short request timeout."""
    home = tmp_path_factory.mktemp("agent")
    folder = extensions(home, "echo.py", "nap.py")
    command = [*COMMAND, "serve", "--extensions-dir", str(folder), "--host=127.0.0.1", "--port=0"]
    options = ["--auth-type=apikey", "--auth-key", KEY, f"--request-timeout={TIMEOUT}"]
    with process([*command, *options, "--metrics"], home) as agent:
        yield agent.url
