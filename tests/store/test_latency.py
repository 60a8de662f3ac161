"""Replicas see each other's changes soon."""

from pathlib import Path

import pytest

from .postgresql import Database
from .scenarios.latency import measure_latency
from .trials import Trial

pytestmark = [pytest.mark.process, pytest.mark.soak]


def test_cancels_and_events_reach_other_replicas_soon(tmp_path: Path, server: Database) -> None:
    server.clear()
    measure_latency(Trial(tmp_path, server), rounds=15, slack=6)
