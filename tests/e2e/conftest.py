"""The agents under test."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from apcore_a2a_server.push import PushSettings

from tests.e2e import modules
from tests.serving import running


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield the folder that `files.delete` works in."""
    folder = tmp_path_factory.mktemp("sandbox")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("APCORE_EXAMPLE_ROOT", str(folder))
        yield folder


@pytest.fixture(scope="session")
def agent(sandbox: Path) -> Iterator[str]:
    """Yield the URL of an agent that serves the examples and the test modules."""
    with closing(modules.executor()) as executor, running(executor) as url:
        yield url


@pytest.fixture(scope="session")
def notifier(sandbox: Path) -> Iterator[str]:
    """Yield the URL of an agent like `agent` that also calls webhooks, even on this machine."""
    settings = PushSettings(dev=True, retries=())
    with (
        closing(modules.executor()) as executor,
        running(executor, push_notifications=settings) as url,
    ):
        yield url
