"""Agents that keep their tasks in memory, and in a file."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .agents import STORE


@pytest.fixture(params=["memory", "file"])
def everywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The test is for both."""
    kind: str = request.param
    token = STORE.set("memory" if kind == "memory" else f"sqlite:///{tmp_path / 'agent.db'}")
    yield kind
    STORE.reset(token)
