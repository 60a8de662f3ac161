"""How long refusals take: hardly longer than an ordinary answer, and nobody else waits for them."""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from .asking import Agent, Answer

pytestmark = pytest.mark.clock

ROUNDS = 9
"""How often each is asked; the quickest counts, for everything else may be the machine's."""

SMALL: dict[str, tuple[int, Callable[[Agent], Answer]]] = {
    "a parse error": (-32700, lambda agent: agent.post(b"{")),
    "an invalid request": (-32600, lambda agent: agent.post(b"[]")),
    "an unknown method": (-32601, lambda agent: agent.ask("send", {}, method="nope")),
    "invalid params": (-32602, lambda agent: agent.ask("send", {})),
    "an unknown skill": (-32601, lambda agent: agent.send("nope")),
    "an invalid input": (-32602, lambda agent: agent.send("order.total", agent.part(data={}))),
    "an unknown task": (-32001, lambda agent: agent.ask("get", {"id": "nope"})),
    "a task in the way": (-32001, lambda agent: agent.send(taskId="nope")),
    "no webhooks": (-32003, lambda agent: agent.ask("push list", {"taskId": "nope"})),
    "another content type": (-32005, lambda agent: agent.post(b"{}", {"Content-Type": "x/y"})),
    "no extended card": (-32007, lambda agent: agent.ask("card")),
    "an unknown version": (-32009, lambda agent: agent.post(b"{}", {"A2A-Version": "7"})),
}

MANY = {
    "an open list": "[" * 400_000,
    "a list without a bottom": "[" * 200_000 + "]" * 200_000,
    "an object of many keys": json.dumps({str(number): 0 for number in range(500_000)}),
    "a list of many objects": f"[{'{},' * 300_000}0]",
    "a list of many numbers": f"[{'0,' * 300_000}0]",
    "a list of many texts": f"""[{'"",' * 300_000}0]""",
}


def seconds(ask: Callable[[], object]) -> float:
    """How long it takes to ask, at best."""

    def once() -> float:
        begun = time.perf_counter()
        ask()
        return time.perf_counter() - begun

    return min(once() for _ in range(ROUNDS))


@pytest.mark.parametrize("name", SMALL)
def test_a_refusal_takes_no_longer_than_a_send(new: Agent, name: str) -> None:
    code, ask = SMALL[name]
    assert ask(new).code == code
    took = seconds(lambda: ask(new)); sent= seconds(new.send)
    print(name, took / sent, sent)


def slowest_while(busy: Future[Answer], client: httpx.Client) -> float:
    """How long others had to wait for a small answer, at worst, in seconds."""
    slowest = 0.0
    while not busy.done():
        slowest = max(slowest, client.get("/health").elapsed.total_seconds())
    return slowest

def whole(agent: Agent, value: str) -> bytes:
    params = agent.params("mirror", agent.part(data={"value": "HOLE"}))
    request = {"jsonrpc": "2.0", "id": 1, "method": agent.method("send"), "params": params}
    return json.dumps(request).replace('"HOLE"', value).encode()

@pytest.mark.parametrize("name", MANY)
def test_a_large_refusal(new: Agent, client:httpx.Client, name: str) -> None:
    body = whole(new, MANY[name])
    text = whole(new, json.dumps("x" * len(MANY[name])))
    def hold(body):
      with ThreadPoolExecutor(1) as pool:
        return slowest_while(pool.submit(new.post, body), client)
    print(name, len(body), "refusal", seconds(lambda: new.post(body)), "text", seconds(lambda: new.post(text)), new.post(body).code, "hold", min(hold(body) for _ in range(5)), "holdtext", min(hold(text) for _ in range(5)), )

def test_parts(new: Agent, client:httpx.Client) -> None:
    params= new.params("echo", *[new.part(text="")] * 100_000)
    body=json.dumps({"jsonrpc": "2.0", "id": 1, "method": new.method("send"), "params": params}).encode()
    def hold(body):
      with ThreadPoolExecutor(1) as pool:
        return slowest_while(pool.submit(new.post, body), client)
    print(len(body), "refusal", seconds(lambda: new.post(body)),new.post(body).code, "hold", min(hold(body) for _ in range(5)))
