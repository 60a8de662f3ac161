"""Three replicas behind a load balancer lose nothing when they or their database fail.

The scenarios are some of those of `tools/chaos`, with smaller numbers.
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


def test_all_tasks_of_a_killed_replica_end(trial: Trial) -> None:
    kills.kill_one_of_three(trial, rounds=5, tasks=40, seconds=1, lease=1.5)


def test_a_replica_that_sleeps_past_its_lease_writes_nothing_more(trial: Trial) -> None:
    sleeps.sleep_past_the_lease(trial, rounds=1, tasks=40, seconds=1, lease=1.5)


def test_a_short_outage_of_the_database_interrupts_no_task(trial: Trial) -> None:
    outages.lose_the_database(trial, rounds=1, tasks=40, seconds=2, lease=15, downtime=1)
    assert {note.event for note in notes(trial.home)} == {"begin", "end"}


def test_a_long_outage_of_the_database_fails_no_repeatable_task(trial: Trial) -> None:
    outages.lose_the_database(trial, rounds=1, tasks=40, seconds=1, lease=3, downtime=3)


def test_a_replica_that_is_cut_off_stops_before_others_take_over(trial: Trial) -> None:
    cuts.cut_one_off(trial, rounds=1, tasks=24, seconds=8, lease=8, cut=9)
