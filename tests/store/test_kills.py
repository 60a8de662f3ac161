"""An agent over a file that is killed at random moments loses nothing that it has said it has."""

from pathlib import Path

import pytest

from .postgresql import Database
from .scenarios.files import kill_over_a_file
from .trials import Trial

pytestmark = [pytest.mark.process, pytest.mark.soak]


def test_nothing_is_lost_at_random_kills(tmp_path: Path) -> None:
    kill_over_a_file(Trial(tmp_path, Database(tmp_path)), rounds=8)
