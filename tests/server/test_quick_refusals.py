"""Refused requests are as quick as accepted requests, and hardly delay other requests."""

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from .checking_client import Agent, Answer

pytestmark = pytest.mark.clock

ROUNDS = 7
"""The number of measurements; the shortest counts, since the others include noise."""

NOISE = 1.5
"""The tolerance of comparisons, as a factor."""

VERSION_7 = {"A2A-Version": "7.0"}
SMALL: dict[str, tuple[int, Callable[[Agent], Answer]]] = {
    "a parse error": (-32700, lambda agent: agent.post(b"{")),
    "an invalid request": (-32600, lambda agent: agent.post(b"[]")),
    "an unknown method": (-32601, lambda agent: agent.ask("send", {}, method="nope")),
    "invalid params": (-32602, lambda agent: agent.ask("send", {})),
    "an unknown skill": (-32601, lambda agent: agent.send("nope")),
    "an invalid input": (-32602, lambda agent: agent.send("order.total", agent.part(data={}))),
    "an unknown task": (-32001, lambda agent: agent.ask("get", {"id": "nope"})),
    "a message to an unknown task": (-32001, lambda agent: agent.send(taskId="nope")),
    "no push notifications": (-32003, lambda agent: agent.ask("push list", {"taskId": "nope"})),
    "another content type": (-32005, lambda agent: agent.post(b"{}", {"Content-Type": "x/y"})),
    "no extended card": (-32004, lambda agent: agent.ask("card")),
    "an unknown version": (
        -32009,
        lambda agent: agent.post(send_with_value(agent, "1"), VERSION_7),
    ),
}
"""Refused requests, each with the code of its error."""

LARGE = {
    "lists that are not closed": "[" * 400_000,
    "deeply nested lists": "[" * 200_000 + "]" * 200_000,
    "an object of many keys": json.dumps({str(number): 0 for number in range(200_000)}),
    "a list of many objects": f"[{'{},' * 300_000}0]",
    "a list of many numbers": f"[{'0,' * 300_000}0]",
    "a list of many texts": f"""[{'"",' * 300_000}0]""",
}
"""JSON with too many values, or nested too deeply, in bodies of an allowed size."""


def send_with_value(agent: Agent, value: str) -> bytes:
    """Return the body of a send with the JSON text *value* in its data."""
    params = agent.params("mirror", agent.part(data={"value": "HOLE"}))
    request = {"jsonrpc": "2.0", "id": 1, "method": agent.method("send"), "params": params}
    return json.dumps(request).replace('"HOLE"', value).encode()


def fastest(measure: Callable[[], float]) -> float:
    return min(measure() for _ in range(ROUNDS))


def seconds(ask: Callable[[], object]) -> float:
    """Return how many seconds a call takes."""
    started_at = time.perf_counter()
    ask()
    return time.perf_counter() - started_at


def slowest_health_during(agent: Agent, body: bytes) -> float:
    """Return the longest response time of `/health` while *body* is processed."""
    slowest = 0.0
    with ThreadPoolExecutor(1) as pool:
        busy = pool.submit(agent.post, body)
        while not busy.done():
            answer: httpx.Response = agent.client.get("/health")
            slowest = max(slowest, answer.elapsed.total_seconds())
    return slowest


@pytest.mark.parametrize("name", SMALL)
def test_a_refusal_takes_no_longer_than_a_send(rpc_v10: Agent, name: str) -> None:
    code, ask = SMALL[name]
    assert ask(rpc_v10).code == code
    refusal = fastest(lambda: seconds(lambda: ask(rpc_v10)))
    assert refusal <= NOISE * fastest(lambda: seconds(rpc_v10.send))


@pytest.mark.parametrize("name", LARGE)
def test_large_json_is_refused_as_quickly_as_a_text_is_accepted(rpc_v10: Agent, name: str) -> None:
    refused, accepted = (
        send_with_value(rpc_v10, LARGE[name]),
        send_with_value(rpc_v10, json.dumps("x" * len(LARGE[name]))),
    )
    assert rpc_v10.post(refused).is_too_large
    assert rpc_v10.post(accepted).state == "completed"
    limit = NOISE * fastest(lambda: seconds(lambda: rpc_v10.post(accepted)))
    assert fastest(lambda: seconds(lambda: rpc_v10.post(refused))) <= limit
    assert fastest(lambda: slowest_health_during(rpc_v10, refused)) <= limit
