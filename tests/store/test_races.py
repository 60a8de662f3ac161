"""Of requests that race through several replicas, one counts."""

from pathlib import Path

import pytest

from .postgresql import Database
from .scenarios.races import race
from .trials import Trial

pytestmark = [pytest.mark.process, pytest.mark.soak]


def test_one_request_counts_and_one_replica_runs(tmp_path: Path, server: Database) -> None:
    server.clear()
    race(Trial(tmp_path, server), races=60)
