"""Readers that resume after a cut miss no event and see none twice."""

from pathlib import Path

import pytest

from .postgresql import Database
from .scenarios.readers import cut_readers
from .trials import Trial

pytestmark = [pytest.mark.process, pytest.mark.soak]


def test_readers_resume_at_any_replica(tmp_path: Path, server: Database) -> None:
    server.clear()
    cut_readers(Trial(tmp_path, server), cuts=60)
