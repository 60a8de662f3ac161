"""Replicas that are killed take nothing with them."""

from pathlib import Path

from .postgresql import Database
from .scenarios.kills import kill_one_of_three
from .trials import Trial


def test_what_one_of_three_ran_ends_on_the_others(tmp_path: Path, server: Database) -> None:
    server.clear()
    kill_one_of_three(Trial(tmp_path, server), rounds=5, tasks=60, seconds=2, lease=1.5)
