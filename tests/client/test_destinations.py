"""Hosts that an agent chooses: the caller's function decides about connections to them."""

from collections.abc import Iterable

import pytest
from apcore_a2a_client import Destination, DestinationRefusedError
from apcore_a2a_client.destinations import MAX_ORIGINS

from .raw import KINDS, Client, Request, Step, agent, card, raw, reply, rpc, task

kinds = pytest.mark.parametrize("kind", KINDS)


def answer(request: Request) -> Iterable[Step]:
    return rpc(request, result=task())


@kinds
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_the_function_gets_the_host_its_address_and_the_source_of_the_card(
    kind: str, host: str
) -> None:
    destinations: list[Destination] = []

    def check(destination: Destination) -> bool:
        destinations.append(destination)
        return True

    with raw(answer) as elsewhere:
        url = elsewhere.url.replace("127.0.0.1", host)
        with (
            raw(lambda _: reply(card(url))) as server,
            Client(kind, server.url, check_destination=check) as client,
        ):
            client.do("get_task", "t-1")
    assert {*destinations} == {Destination(host, "127.0.0.1", "127.0.0.1")}


@kinds
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_nothing_is_sent_to_a_host_that_is_not_allowed(kind: str, host: str) -> None:
    with raw(answer) as elsewhere:
        url = elsewhere.url.replace("127.0.0.1", host)
        with (
            raw(lambda _: reply(card(url))) as server,
            Client(kind, server.url, check_destination=lambda _: False) as client,
            pytest.raises(DestinationRefusedError, match=host) as caught,
        ):
            client.do("get_task", "t-1")
        assert elsewhere.requests == []
    assert caught.value.foreign == url


@kinds
def test_an_error_of_the_function_does_not_allow_the_host(kind: str) -> None:
    def check(destination: Destination) -> bool:
        raise ValueError("unknown network")

    with raw(answer) as elsewhere:
        with (
            raw(lambda _: reply(card(elsewhere.url))) as server,
            Client(kind, server.url, check_destination=check) as client,
            pytest.raises(ValueError, match="unknown network"),
        ):
            client.do("get_task", "t-1")
        assert elsewhere.requests == []


@kinds
def test_the_agents_own_origin_is_not_checked(kind: str) -> None:
    with (
        raw(agent(answer)) as server,
        Client(kind, server.url, check_destination=lambda _: False) as client,
    ):
        assert client.do("get_task", "t-1").id == "t-1"
        assert client.do("get_task", "t-1").id == "t-1"


@kinds
def test_a_redirect_is_checked(kind: str) -> None:
    with raw(agent(answer)) as elsewhere:
        with (
            raw(lambda _: reply(status=302, location=elsewhere.url)) as server,
            Client(kind, server.url, check_destination=lambda _: False) as client,
            pytest.raises(DestinationRefusedError),
        ):
            client.do("get_card")
        assert elsewhere.requests == []


@kinds
def test_redirects_are_followed_beyond_the_number_of_remembered_origins(kind: str) -> None:
    targets = (f"http://localhost:{port}/" for port in range(1, 200))
    with (
        raw(lambda _: reply(status=302, location=next(targets))) as server,
        Client(kind, server.url, check_destination=lambda _: True) as client,
    ):
        for _ in range(MAX_ORIGINS + 10):
            with pytest.raises(Exception, match="connect"):
                client.do("get_card", refresh=True)


def test_check_destination_must_be_a_function() -> None:
    with pytest.raises(TypeError, match="check_destination"):
        Client("sync", "http://agent.example", check_destination=["localhost"])
