"""Three replicas behind a balancer lose nothing, whatever is done to them or to their database.

The scenarios are those of `tools/chaos`, with smaller numbers.
"""

from pathlib import Path

import pytest

from .postgresql import Database
from .replicas import notes
from .scenarios import cuts, kills, outages, sleeps
from .trials import Trial

pytestmark = [pytest.mark.process, pytest.mark.soak]


@pytest.fixture
def trial(tmp_path: Path, server: Database) -> Trial:
    server.clear()
    return Trial(tmp_path, server)


def test_what_a_killed_replica_ran_ends_on_the_others(trial: Trial) -> None:
    kills.kill_one_of_three(trial, rounds=5, tasks=40, seconds=1, lease=1.5)


def test_what_has_slept_past_its_lease_writes_nothing_more(trial: Trial) -> None:
    sleeps.sleep_past_the_lease(trial, rounds=1, tasks=40, seconds=1, lease=1.5)


def test_a_database_that_is_back_soon_costs_nothing(trial: Trial) -> None:
    outages.lose_the_database(trial, rounds=1, tasks=40, seconds=2, lease=15, gone=1)
    assert {note.what for note in notes(trial.home)} == {"begin", "end"}


def test_after_a_longer_time_without_a_database_what_may_runs_again(trial: Trial) -> None:
    outages.lose_the_database(trial, rounds=1, tasks=40, seconds=1, lease=3, gone=3)


def test_who_is_cut_off_stops_working_before_others_take_over(trial: Trial) -> None:
    cuts.cut_one_off(trial, rounds=1, tasks=24, seconds=8, lease=8, cut=9)
