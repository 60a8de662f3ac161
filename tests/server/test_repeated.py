"""Sends that clients repeat with an idempotency key."""

import asyncio
from typing import Any

import pytest

from .checking_client import Answer
from .inloop import ActionModule, Gate, Peer, StreamModule, serving
from .inloop import anyio_backend as anyio_backend
from .modules import Inputs

pytestmark = pytest.mark.anyio

DIALECTS = ["0.3", "1.0", "REST"]
KEY = {"Idempotency-Key": "order-66"}


class CountingAction:
    """An action that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    async def __call__(self, inputs: Inputs, context: Any) -> Inputs:
        self.calls += 1
        return inputs


async def send(peer: Peer, text: str = "hello", headers: Any = None, **message: Any) -> Answer:
    params = peer.wire.params("work", peer.part(data={"text": text}), **message)
    return await peer.ask("send", params, headers)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_repeated_send_returns_the_existing_task(dialect: str) -> None:
    action = CountingAction()
    async with serving({"work": ActionModule(action)}, dialect) as peer:
        first, second = await send(peer, headers=KEY), await send(peer, headers=KEY)
        assert second.task == first.task
        assert second.state == "completed"
        assert action.calls == 1


async def test_the_key_can_be_in_the_messages_metadata() -> None:
    action = CountingAction()
    async with serving({"work": ActionModule(action)}) as peer:
        metadata = {"idempotencyKey": "order-66"}
        first = await send(peer, metadata=metadata)
        assert (await send(peer, headers=KEY)).task["id"] == first.task["id"]
        assert action.calls == 1


async def test_a_key_of_null_in_the_metadata_leaves_the_key_of_the_header() -> None:
    action = CountingAction()
    async with serving({"work": ActionModule(action)}) as peer:
        metadata = {"idempotencyKey": None}
        first = await send(peer, headers=KEY, metadata=metadata)
        second = await send(peer, headers=KEY, metadata=metadata)
        assert second.task["id"] == first.task["id"]
        assert action.calls == 1


async def test_the_refusal_of_an_invalid_key_says_where_the_key_was() -> None:
    async with serving({"work": ActionModule(CountingAction())}) as peer:
        in_header = await send(peer, headers={"Idempotency-Key": "a b"})
        assert "Idempotency-Key" in in_header.body["error"]["message"]
        in_metadata = await send(peer, metadata={"idempotencyKey": "a b"})
        assert "metadata.idempotencyKey" in in_metadata.body["error"]["message"]


async def test_without_a_key_every_send_creates_a_task() -> None:
    action = CountingAction()
    async with serving({"work": ActionModule(action)}) as peer:
        first, second = await send(peer), await send(peer)
        assert first.task["id"] != second.task["id"]
        assert action.calls == 2


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_key_cannot_be_reused_for_another_message(dialect: str) -> None:
    async with serving({"work": ActionModule(CountingAction())}, dialect) as peer:
        await send(peer, headers=KEY)
        assert (await send(peer, "good bye", headers=KEY)).code == -32602


@pytest.mark.parametrize("key", ["", "a b", "ü", "x" * 257])
async def test_an_invalid_key_is_refused(key: str) -> None:
    action = CountingAction()
    async with serving({"work": ActionModule(action)}) as peer:
        assert (await send(peer, metadata={"idempotencyKey": key})).code == -32602
        assert (await send(peer, metadata={"idempotencyKey": 7})).code == -32602
        assert action.calls == 0


async def test_sends_repeated_during_the_run_wait_for_it() -> None:
    gate = Gate()
    async with serving({"work": ActionModule(gate)}) as peer:
        sends = [asyncio.create_task(send(peer, headers=KEY)) for _ in range(5)]
        await gate.reached.wait()
        await asyncio.sleep(0.05)
        gate.opened.set()
        answers = await asyncio.gather(*sends)
        assert len({answer.task["id"] for answer in answers}) == 1
        assert {answer.state for answer in answers} == {"completed"}
        assert len(gate.calls) == 1


async def test_a_repeated_stream_has_the_same_events() -> None:
    async def count_to_three(inputs: Inputs, context: Any) -> Any:
        for number in range(3):
            yield {"n": number}

    async with serving({"work": StreamModule(count_to_three)}) as peer:
        params = peer.wire.params("work", peer.part(data={}))
        async with peer.streaming("stream", params, KEY) as first:
            frames = await first.rest()
        async with peer.streaming("stream", params, KEY) as second:
            assert await second.rest() == frames
        assert len(frames) == 6


async def test_a_key_whose_send_was_refused_can_be_used_again() -> None:
    action = CountingAction()
    async with serving({"work": ActionModule(action)}, max_tasks=1) as peer:
        params = peer.wire.params("nothing", peer.part(data={}))
        assert (await peer.ask("send", params, KEY)).code == -32601
        assert (await send(peer, headers=KEY)).state == "completed"
