"""Operations end at their timeout if no whole answer has arrived."""

import asyncio
from collections.abc import Iterable, Iterator
from time import monotonic

import pytest
from apcore_a2a_client import A2AClient, A2ATimeoutError

from .raw import (
    HOLD,
    KINDS,
    OPERATIONS,
    Client,
    Request,
    Script,
    Step,
    agent,
    events,
    head,
    raw,
    rpc,
    task,
)

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


@pytest.mark.anyio
async def test_a_call_does_not_fail_with_the_timeout_of_a_concurrent_call() -> None:
    def script(request: Request) -> Iterable[Step]:
        answer = agent(lambda request: rpc(request, result=task()))(request)
        return [3 * SHORT_TIMEOUT, *answer] if request.is_card else answer

    with raw(script) as server:
        async with A2AClient(server.url) as client:
            impatient_call = client.call("skill", "hi", timeout=SHORT_TIMEOUT)
            error, found_task = await asyncio.gather(
                impatient_call, client.get_task("t-1"), return_exceptions=True
            )
    assert isinstance(error, A2ATimeoutError)
    assert getattr(found_task, "id", found_task) == "t-1"


@pytest.mark.anyio
async def test_concurrent_calls_wait_for_the_card_only_until_their_timeout() -> None:
    with raw(lambda _: [HOLD]) as server:
        async with A2AClient(server.url, timeout=SHORT_TIMEOUT, retries=0) as client:
            started = monotonic()
            errors = await asyncio.gather(
                *(client.get_card() for _ in range(10)), return_exceptions=True
            )
            assert monotonic() - started < 3 * SHORT_TIMEOUT
    assert {type(error) for error in errors} == {A2ATimeoutError}
