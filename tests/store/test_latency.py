"""Replicas know soon what others have done."""

from pathlib import Path

import pytest

from .postgresql import Database
from .scenarios.latency import tell_others
from .trials import Trial

pytestmark = [pytest.mark.process, pytest.mark.soak]


def test_cancels_and_events_are_soon_known_elsewhere(tmp_path: Path, server: Database) -> None:
    server.clear()
    tell_others(Trial(tmp_path, server), rounds=15, slack=6)
