"""Subscriptions to tasks that pause: they stay open until the task ends."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from apcore_a2a_server import Limits

from .checking_client import Json
from .inloop import (
    DIALECTS,
    NEEDS_APPROVAL,
    ActionModule,
    Gate,
    Peer,
    echo,
    gapless,
    serving,
    wait_until,
)
from .inloop import anyio_backend as anyio_backend
from .test_disconnect import lose_send, lose_stream, outlast_grace_period

pytestmark = [pytest.mark.anyio, pytest.mark.rotating("agent", "rpc", "dialect")]
every_dialect = pytest.mark.parametrize("dialect", DIALECTS)

STORES: dict[str, Callable[[Path], Json]] = {
    "memory": lambda folder: {},
    "sqlite": lambda folder: {"task_store": f"sqlite:///{folder / 'tasks.db'}"},
}


def needing_approval(action: Any) -> ActionModule:
    return ActionModule(action, annotations=NEEDS_APPROVAL)


def approval(peer: Peer, task_id: str) -> Json:
    """Return the members of a message that approves the call of a task."""
    return {"parts": [peer.part(text="yes")], "taskId": task_id}


@every_dialect
@pytest.mark.parametrize("store", STORES)
async def test_a_subscription_to_a_paused_task_lasts_until_the_task_ends(
    dialect: str, store: str, tmp_path: Path
) -> None:
    modules = {"work": needing_approval(echo)}
    async with serving(modules, dialect, **STORES[store](tmp_path)) as peer:
        task_id = (await peer.send()).task["id"]
        async with peer.subscribe(task_id) as stream:
            frames = [await stream.next()]
            await peer.send(**approval(peer, task_id))
            frames += await stream.rest()
    expected = ["task input-required", "status working", "artifact", "status completed"]
    assert [str(frame) for frame in frames] == expected
    assert gapless(frames, 3)


@every_dialect
async def test_a_subscription_lasts_through_each_pause_of_a_task(dialect: str) -> None:
    gate = Gate()

    async def return_after_gate(inputs: Any, context: Any) -> Any:
        await gate(inputs, context)
        return inputs

    module = ActionModule(return_after_gate, annotations=NEEDS_APPROVAL)
    async with serving({"work": module}, dialect, keep_alive=0.02) as peer:
        async with peer.stream() as send_stream:
            task_id = (await send_stream.rest())[0].body["id"]
        async with peer.subscribe(task_id, 0) as stream:
            frames = [await stream.next() for _ in range(3)]
            unclear = {"parts": [peer.part(text="hm")], "taskId": task_id}
            await peer.send(**unclear)
            frames.append(await stream.next())
            await peer.start(**approval(peer, task_id))
            frames.append(await stream.next())
            gate.opened.set()
            frames += await stream.rest()
    states = [frame.state for frame in frames if frame.kind == "status"]
    assert states == ["working", "input-required", "input-required", "working", "completed"]
    assert gapless(frames)


@every_dialect
async def test_the_stream_of_a_send_ends_at_the_pause(dialect: str) -> None:
    modules = {"work": needing_approval(echo)}
    async with serving(modules, dialect) as peer, peer.stream() as stream:
        assert (await stream.rest())[-1].state == "input-required"


async def test_only_the_last_event_of_a_subscription_is_final_in_0_3() -> None:
    async with serving({"work": needing_approval(echo)}, "0.3") as peer:
        async with peer.stream() as send_stream:
            frames = await send_stream.rest()
        assert [frame.body["final"] for frame in frames if frame.kind == "status"] == [False, True]
        task_id = frames[0].body["id"]
        async with peer.subscribe(task_id, 0) as stream:
            frames = [await stream.next() for _ in frames]
            await peer.send(**approval(peer, task_id))
            frames += await stream.rest()
    final = [frame.body["final"] for frame in frames if frame.kind == "status"]
    assert final == [False, False, False, True]


@every_dialect
async def test_a_subscription_ends_when_the_input_times_out_or_the_task_is_canceled(
    dialect: str,
) -> None:
    async with serving({"work": needing_approval(echo)}, dialect, input_timeout=0.5) as peer:
        task_id = (await peer.send()).task["id"]
        async with peer.subscribe(task_id) as stream:
            assert [str(frame) for frame in await stream.rest()][1:] == ["status failed"]
        task_id = (await peer.send()).task["id"]
        async with peer.subscribe(task_id) as stream:
            await stream.next()
            await peer.ask("cancel", {"id": task_id})
            assert [str(frame) for frame in await stream.rest()] == ["status canceled"]


async def test_a_subscription_is_kept_alive_and_counted_while_the_task_is_paused() -> None:
    modules = {"work": needing_approval(echo)}
    async with serving(modules, keep_alive=0.02, max_streams=1) as peer:
        task_id = (await peer.send()).task["id"]
        async with peer.subscribe(task_id) as stream:
            comments = 0
            async for line in stream.response.aiter_lines():
                comments += line.startswith(":")
                if comments == 3:
                    break
            refused = await peer.ask("subscribe", {"id": task_id})
            assert refused.status == 429
        await wait_until(lambda: len(peer.agent.handler.streams) == 0)


@every_dialect
async def test_a_paused_task_can_be_subscribed_to_after_a_restart_of_the_agent(
    dialect: str, tmp_path: Path
) -> None:
    modules = {"work": needing_approval(echo)}
    options = STORES["sqlite"](tmp_path)
    async with serving(modules, dialect, **options) as peer:
        task_id = (await peer.send()).task["id"]
    async with serving(modules, dialect, **options) as peer, peer.subscribe(task_id) as stream:
        frames = [await stream.next()]
        await peer.send(**approval(peer, task_id))
        frames += await stream.rest()
    assert [str(frame) for frame in frames][-1] == "status completed"
    assert gapless(frames, 3)


@every_dialect
async def test_the_subscriber_of_a_paused_task_cancels_nothing_when_it_leaves(dialect: str) -> None:
    gate, other = Gate(), Gate()
    modules = {"work": needing_approval(gate), "other": ActionModule(other)}
    async with serving(modules, dialect, limits=Limits(disconnect_grace=0)) as peer:
        task_id = (await peer.send()).task["id"]
        async with peer.subscribe(task_id) as stream:
            await stream.next()
        async with peer.subscribe(task_id) as stream:
            await stream.next()
            answer_task = asyncio.create_task(peer.send(**approval(peer, task_id)))
            await gate.reached.wait()
        await outlast_grace_period(peer, other)
        assert await peer.state(task_id) == "working"
        gate.opened.set()
        assert (await answer_task).task["id"] == task_id
        assert await peer.state(task_id) == "completed"


@every_dialect
@pytest.mark.parametrize("lose", [lose_send, lose_stream])
async def test_a_subscriber_keeps_the_task_whose_answering_client_disconnects(
    dialect: str, lose: Any
) -> None:
    gate, other = Gate(), Gate()
    modules = {"work": needing_approval(gate), "other": ActionModule(other)}
    async with serving(modules, dialect, limits=Limits(disconnect_grace=0)) as peer:
        task_id = (await peer.send()).task["id"]
        async with peer.subscribe(task_id) as stream:
            await stream.next()
            await lose(peer, gate, **approval(peer, task_id))
            await outlast_grace_period(peer, other)
            assert await peer.state(task_id) == "working"
        await gate.canceled.wait()
        assert await peer.state(task_id) == "canceled"
