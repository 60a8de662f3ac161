"""Operations end at their timeout if no whole answer has arrived."""

from collections.abc import Iterator
from time import monotonic

import pytest
from apcore_a2a_client import A2ATimeoutError

from .raw import HOLD, KINDS, OPERATIONS, Client, Request, Script, Step, agent, events, head, raw

pytestmark = pytest.mark.clock

SHORT_TIMEOUT = 0.3
"""Timeout in seconds: short enough for a test, but longer than everything except waiting."""


def slow_bytes(request: Request) -> Iterator[Step]:
    """Yield a byte at a time, slowly, for longer than any test."""
    yield head(content_type="application/json", content_length="1000")
    for _ in range(500):
        yield b"x"
        yield 0.02


SCRIPTS: dict[str, tuple[str, Script]] = {
    "a card that never arrives": ("get_card", lambda _: [HOLD]),
    "a card that arrives slowly": ("get_card", slow_bytes),
    "a response that never arrives": ("send_message", agent(lambda _: [HOLD])),
    "a response that arrives slowly": ("send_message", agent(slow_bytes)),
    "a stream that never begins": ("stream_message", agent(lambda _: events(then=HOLD))),
}


def duration(kind: str, operation: str, script: Script, timeout: float) -> float:
    """Return the seconds until the operation times out."""
    with raw(script) as server, Client(kind, server.url, timeout=timeout) as client:
        started = monotonic()
        with pytest.raises(A2ATimeoutError):
            client.do(operation, *OPERATIONS.get(operation, ()))
        return monotonic() - started


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SCRIPTS)
def test_an_operation_ends_at_its_timeout(kind: str, name: str) -> None:
    short, long = (
        duration(kind, *SCRIPTS[name], timeout) for timeout in (SHORT_TIMEOUT, 3 * SHORT_TIMEOUT)
    )
    assert short >= SHORT_TIMEOUT
    assert 2 < long / short < 4
