"""The client's operations on webhooks, which only agents of this project have."""

from typing import Any

import pytest
from apcore_a2a_client import A2AProtocolError

from .raw import KINDS, Client, agent, raw, reply

CALLS: dict[str, tuple[str, tuple[str, ...], Any]] = {
    "list_webhooks": ("webhooks", (), [{"id": "w1"}]),
    "test_webhook": ("attempt", ("t1", "w1"), {"status": 200}),
    "redeliver_webhook": ("requeued", ("t1", "w1"), 3),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", CALLS)
def test_an_answer_is_returned_or_refused(kind: str, method: str) -> None:
    member, arguments, value = CALLS[method]
    answers = [{member: value}, {member: None}, {member: "x"}, {"other": 1}]
    with (
        raw(agent(lambda _: reply(answers.pop(0)))) as server,
        Client(kind, server.url) as client,
    ):
        assert client.do(method, *arguments) == value
        for _ in range(3):
            with pytest.raises(A2AProtocolError, match="not A2A"):
                client.do(method, *arguments)
