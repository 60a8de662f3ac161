"""An agent with a SQLite file that is killed at random moments loses no acknowledged task."""

from pathlib import Path

import pytest

from .postgresql import Database
from .scenarios.files import kill_agent_with_sqlite_file
from .trials import Trial

pytestmark = [pytest.mark.process, pytest.mark.soak]


def test_random_kills_lose_nothing(tmp_path: Path) -> None:
    unused = Database(tmp_path)
    kill_agent_with_sqlite_file(Trial(tmp_path, unused), rounds=8)
