"""Generated hosts and credentials: only permitted callers get through; see `tools/fuzz`."""

import pytest
from hypothesis import given, settings

from tests.server.test_fuzz import PROFILE

from .storms import Credentials, Hosts, hosts, storms


@pytest.mark.parametrize("examples", [300, pytest.param(20_000, marks=pytest.mark.soak)])
def test_only_allowed_hosts_are_served_for_any_host_header(examples: int) -> None:
    with Hosts() as agent:
        settings(PROFILE, max_examples=examples)(given(headers=hosts)(agent.check))()
    assert min(agent.outcomes["served"], agent.outcomes["refused"]) > examples / 20


@pytest.mark.parametrize("examples", [50, pytest.param(2000, marks=pytest.mark.soak)])
def test_only_valid_credentials_are_served_in_any_storm_of_refusals(examples: int) -> None:
    with Credentials() as agent:
        settings(PROFILE, max_examples=examples)(given(storm=storms())(agent.check))()
    assert {*agent.outcomes} == {"200", "401", "429"}
