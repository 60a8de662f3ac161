"""How long calls take that never end: what takes three times the timeout takes three times it."""

from collections.abc import Iterator
from time import monotonic

import pytest
from apcore_a2a_client import A2ATimeoutError

from .raw import HOLD, KINDS, OPERATIONS, Client, Request, Script, Step, agent, events, head, raw

pytestmark = pytest.mark.clock

SHORT = 0.3
"""A timeout that a test can wait for, and that is long beside all that is no waiting."""


def drips(request: Request) -> Iterator[Step]:
    """A byte now and then, for longer than any test."""
    yield head(content_type="application/json", content_length="1000")
    for _ in range(500):
        yield b"x"
        yield 0.02


SCRIPTS: dict[str, tuple[str, Script]] = {
    "a card that never comes": ("get_card", lambda _: [HOLD]),
    "a card that drips": ("get_card", drips),
    "an answer that never comes": ("send_message", agent(lambda _: [HOLD])),
    "an answer that drips": ("send_message", agent(drips)),
    "a stream that never begins": ("stream_message", agent(lambda _: events(then=HOLD))),
}


def seconds(kind: str, operation: str, script: Script, timeout: float) -> float:
    """How long the operation takes."""
    with raw(script) as server, Client(kind, server.url, timeout=timeout) as client:
        begun = monotonic()
        with pytest.raises(A2ATimeoutError):
            client.do(operation, *OPERATIONS.get(operation, ()))
        return monotonic() - begun


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SCRIPTS)
def test_an_operation_ends_at_its_timeout(kind: str, name: str) -> None:
    short, long = (seconds(kind, *SCRIPTS[name], timeout) for timeout in (SHORT, 3 * SHORT))
    assert short >= SHORT
    assert 2 < long / short < 4
