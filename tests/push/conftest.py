"""Task stores for the agents: in memory, in a file, and in a database."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.store.conftest import server as server
from tests.store.postgresql import Database

from .agents import STORE


@pytest.fixture(params=["memory", "file"])
def local_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Run the test with a task store in memory and with one in a file."""
    with using_store(request, tmp_path) as kind:
        yield kind


@pytest.fixture(params=["memory", "file", pytest.param("database", marks=pytest.mark.database)])
def every_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Run the test with each task store."""
    with using_store(request, tmp_path) as kind:
        yield kind


@contextmanager
def using_store(request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    """Let the agents of a test use the store that the fixture's parameter names."""
    kind: str = request.param
    address = {"memory": "memory", "file": f"sqlite:///{folder / 'agent.db'}"}.get(kind)
    if address is None:
        server: Database = request.getfixturevalue("server")
        server.clear()
        address = server.url
    token = STORE.set(address)
    yield kind
    STORE.reset(token)
