"""Only one of several racing requests takes effect, whichever replicas get them."""

from pathlib import Path

import pytest

from .postgresql import Database
from .scenarios.races import race
from .trials import Trial

pytestmark = [pytest.mark.process, pytest.mark.soak]


def test_one_request_takes_effect_and_one_replica_runs_the_task(
    tmp_path: Path, server: Database
) -> None:
    server.clear()
    race(Trial(tmp_path, server), races=60)
