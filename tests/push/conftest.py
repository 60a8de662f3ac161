"""Task stores for the agents: in memory, and in a file."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .agents import STORE


@pytest.fixture(params=["memory", "file"])
def each_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Run the test with either task store."""
    kind: str = request.param
    token = STORE.set("memory" if kind == "memory" else f"sqlite:///{tmp_path / 'agent.db'}")
    yield kind
    STORE.reset(token)
