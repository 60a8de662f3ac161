"""The function that verifies agent cards before they are used."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from apcore_a2a_client import A2ADiscoveryError, A2AError, CardRefusedError

from .raw import CARD_PATH, KINDS, WIRES, Client, Request, Step, agent, card, raw, reply, task
from .test_headers import answer

pytestmark = pytest.mark.rotating("kind")

kinds = pytest.mark.parametrize("kind", KINDS)
wires = pytest.mark.parametrize(("binding", "version"), WIRES)


class NotSignedError(Exception):
    """Error of a user's own function."""


def refuse(_: Any) -> None:
    raise NotSignedError("signed by a stranger")


async def refuse_async(_: Any) -> None:
    raise NotSignedError("signed by a stranger")


@kinds
@wires
@pytest.mark.parametrize("name", ["get_task", "stream_message", "call", "get_card"])
def test_a_refused_card_is_an_error_and_nothing_else_is_sent(
    kind: str, name: str, binding: str, version: str
) -> None:
    arguments = {"get_card": (), "call": ("skill", "hi")}.get(name, ("t-1",))
    checks: list[Callable[[Any], Any]] = [refuse, *([refuse_async] if kind == "async" else [])]
    for check in checks:
        script = agent(answer, **card("/", binding, version))
        with raw(script) as server, Client(kind, server.url, verify_card=check) as client:
            for _ in range(2):
                with pytest.raises(CardRefusedError, match="signed by a stranger") as caught:
                    client.do(name, *arguments)
                assert isinstance(caught.value, A2ADiscoveryError)
                assert isinstance(caught.value.__cause__, NotSignedError)
                assert caught.value.url == server.url + CARD_PATH
            assert not server.calls


@kinds
def test_the_function_gets_the_json_of_the_card_as_it_was_sent(kind: str) -> None:
    received_cards: list[Any] = []
    sent_card = card("/", unknown={"kept": [1, 2.5, None]}, signatures=[{"protected": "e30"}])
    script = agent(answer, **sent_card)
    with (
        raw(script) as server,
        Client(kind, server.url, verify_card=received_cards.append) as client,
    ):
        client.do("get_task", "t-1")
        client.do("get_task", "t-1")
        assert received_cards == [sent_card]


@kinds
def test_a_card_that_the_function_returns_is_used_instead(kind: str) -> None:
    script = agent(answer, **card("/wrong", skills=[{"id": "unsigned"}]))
    with (
        raw(script) as server,
        Client(kind, server.url, verify_card=lambda _: card("/signed")) as client,
    ):
        client.do("get_task", "t-1")
        assert [request.path for request in server.calls] == ["/signed"]
        assert client.do("get_card").skills == ()


@kinds
def test_an_asynchronous_function_is_awaited_or_refused(kind: str) -> None:
    received_cards: list[Any] = []

    async def check(data: Any) -> None:
        received_cards.append(data["name"])

    with raw(agent(answer)) as server, Client(kind, server.url, verify_card=check) as client:
        if kind == "sync":
            with pytest.raises(A2AError, match="can't await check"):
                client.do("get_card")
            assert not received_cards
        else:
            client.do("get_card")
            assert received_cards == ["raw"]


def answering_with_cards(*answers: Iterable[Step]) -> Callable[[Request], Iterable[Step]]:
    """Return a script that answers requests for the card with *answers* in turn."""
    remaining = iter(answers)
    return lambda request: next(remaining) if request.is_card else answer(request)


@kinds
def test_a_refreshed_card_that_is_refused_is_not_used(kind: str) -> None:
    def check(data: Any) -> None:
        if data["name"] != "raw":
            raise NotSignedError("changed")

    refused, accepted = reply(card("/", name="other")), reply(card("/"))
    script = answering_with_cards(accepted, refused, accepted)
    with (
        raw(script) as server,
        Client(kind, server.url, verify_card=check, card_ttl=0) as client,
    ):
        client.do("get_task", "t-1")
        with pytest.raises(CardRefusedError, match="changed"):
            client.do("get_task", "t-1")
        client.do("get_task", "t-1")
        assert len(server.calls) == 2


@kinds
def test_a_card_that_is_refused_before_the_earlier_one_has_expired_ends_its_use(kind: str) -> None:
    def check(data: Any) -> None:
        if data["name"] != "raw":
            raise NotSignedError("changed")

    refused, accepted = reply(card("/", name="other")), reply(card("/"))
    script = answering_with_cards(accepted, refused, refused, accepted)
    with raw(script) as server, Client(kind, server.url, verify_card=check) as client:
        client.do("get_task", "t-1")
        with pytest.raises(CardRefusedError, match="changed"):
            client.do("get_card", refresh=True)
        with pytest.raises(CardRefusedError, match="changed"):
            client.do("get_task", "t-1")
        client.do("get_task", "t-1")
        assert len(server.calls) == 2


@kinds
def test_a_card_that_has_not_changed_is_verified_again(kind: str) -> None:
    withdrawn: list[str] = []

    def check(_: Any) -> None:
        if withdrawn:
            raise NotSignedError(withdrawn[0])

    script = answering_with_cards(reply(card("/"), etag='"1"'), reply(b"", 304), reply(b"", 304))
    with (
        raw(script) as server,
        Client(kind, server.url, verify_card=check, card_ttl=0) as client,
    ):
        client.do("get_card")
        client.do("get_card")
        withdrawn.append("the key was withdrawn")
        with pytest.raises(CardRefusedError, match="withdrawn"):
            client.do("get_card")


@kinds
def test_the_card_itself_is_used_again_once_the_function_returns_no_other(kind: str) -> None:
    results: list[Any] = [card("/", name="other"), None]
    script = answering_with_cards(reply(card("/"), etag='"1"'), reply(b"", 304))
    with (
        raw(script) as server,
        Client(kind, server.url, verify_card=lambda _: results.pop(0), card_ttl=0) as client,
    ):
        assert client.do("get_card").name == "other"
        assert client.do("get_card").name == "raw"


@kinds
@pytest.mark.parametrize("card_reply", [reply(b"", 404), reply(b"not JSON")])
def test_an_agent_without_a_card_is_not_called_if_cards_are_verified(
    kind: str, card_reply: list[Step]
) -> None:
    def answer(request: Request) -> Iterable[Step]:
        if request.method == "GET":
            return card_reply
        return reply({"jsonrpc": "2.0", "id": request.json["id"], "result": task()})

    with raw(answer) as server:
        with Client(kind, server.url, protocol="1.0") as client:
            assert client.do("get_task", "t-1").id == "t-1"
        count_before = len(server.requests)
        with (
            Client(kind, server.url, protocol="1.0", verify_card=len) as client,
            pytest.raises(A2ADiscoveryError),
        ):
            client.do("get_task", "t-1")
        assert all(request.method == "GET" for request in server.requests[count_before:])


@kinds
@wires
def test_the_extended_card_is_verified_too(kind: str, binding: str, version: str) -> None:
    names: list[str] = []

    def check(data: Any) -> None:
        names.append(data["name"])
        if data["name"] == "extended":
            raise NotSignedError("no signature")

    def script(request: Request) -> Iterable[Step]:
        result: Any = card("/", name="extended")
        if request.bare_path == "/":
            result = {"jsonrpc": "2.0", "id": request.json["id"], "result": result}
        return reply(result)

    agent_script = agent(script, **card("/", binding, version))
    with raw(agent_script) as server, Client(kind, server.url, verify_card=check) as client:
        with pytest.raises(CardRefusedError, match="no signature"):
            client.do("extended_card")
        assert names == ["raw", "extended"]


@kinds
def test_a_value_that_is_not_a_function_is_refused(kind: str) -> None:
    with pytest.raises(TypeError, match="verify_card"):
        Client(kind, "http://127.0.0.1:1", verify_card="yes")
