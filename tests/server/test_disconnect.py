"""Clients that disconnect: some of their tasks are canceled, others continue, and nothing leaks."""

import asyncio
import logging
import os
import random
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import h11
import httpx
import pytest
from apcore_a2a_core import InputRequiredError
from apcore_a2a_server import InMemoryTaskStore, Limits
from apcore_a2a_server.store import Event, UnavailableError

from .checking_client import state_of
from .inloop import (
    DIALECTS,
    NEEDS_APPROVAL,
    ActionModule,
    Gate,
    Peer,
    StreamModule,
    gapless,
    serving,
    wait_until,
)
from .inloop import anyio_backend as anyio_backend
from .modules import Inputs
from .test_streams import Steps
from .test_under_load import as_bytes

pytestmark = [pytest.mark.anyio, pytest.mark.rotating("agent", "rpc", "dialect")]

GRACE = 0.2
"""Seconds in which a client may reconnect; the default would take too long."""


async def lose_stream(peer: Peer, gate: Gate, skill: str = "work", **members: Any) -> str:
    """Open a stream, disconnect while the module is running, and return the task's id."""
    async with peer.stream(skill, **members) as stream:
        frame = await stream.next()
        await gate.reached.wait()
    task_id: str = frame.body["id"] if frame.kind == "task" else frame.body["taskId"]
    return task_id


async def lose_send(peer: Peer, gate: Gate, skill: str = "work", **members: Any) -> str:
    """Send a blocking message, disconnect while the module is running, and return its task's id."""
    before = {*peer.agent.engine.runs}
    sending = asyncio.create_task(peer.send(skill, **members))
    await gate.reached.wait()
    (task_id,) = {*peer.agent.engine.runs} - before
    sending.cancel()
    with suppress(asyncio.CancelledError):
        await sending
    return task_id


DISCONNECTS = {"stream": lose_stream, "send": lose_send}
every_dialect = pytest.mark.parametrize("dialect", DIALECTS)


class GatedModules:
    """Two gated modules, one called by a streaming client and one by a blocking send."""

    def __init__(self) -> None:
        self.gates = {name: Gate() for name in DISCONNECTS}
        self.modules = {name: ActionModule(gate) for name, gate in self.gates.items()}

    async def lose(self, peer: Peer) -> list[str]:
        """Disconnect a client of each kind and return the ids of their tasks."""
        return [await lose(peer, self.gates[name], name) for name, lose in DISCONNECTS.items()]

    def open(self) -> None:
        for gate in self.gates.values():
            gate.opened.set()


async def wait_until_canceled(*gates: Gate) -> None:
    """Wait until the modules behind *gates* have been canceled."""
    for gate in gates:
        await gate.canceled.wait()


async def outlast_grace_period(peer: Peer, gate: Gate) -> None:
    """Disconnect the client of another task and wait until that task is canceled.

    By then, the server has handled clients that disconnected earlier.
    """
    await lose_stream(peer, gate, "other")
    await wait_until_canceled(gate)


async def wait_for_disconnects(peer: Peer, count: int = 1) -> None:
    """Wait until the server has noticed *count* disconnects and their grace period runs."""
    await wait_until(lambda: len(peer.agent.handler.watchers._grace_timers) == count)


async def end_of(peer: Peer, task_id: str) -> tuple[str, str]:
    """Return the state of a task and the text of its status message."""
    task = await peer.get(task_id)
    return state_of(task), task["status"]["message"]["parts"][0]["text"]


LOST = ("canceled", "Client disconnected")


@pytest.mark.clock
async def test_by_default_a_client_has_three_seconds_to_reconnect() -> None:
    gated = GatedModules()
    async with serving(gated.modules) as peer:
        await gated.lose(peer)
        started_at = time.monotonic()
        await wait_until_canceled(*gated.gates.values())
        assert 3 <= time.monotonic() - started_at < 5


@every_dialect
async def test_the_task_of_a_disconnected_client_is_canceled(dialect: str) -> None:
    gated = GatedModules()
    async with serving(gated.modules, dialect, limits=Limits(disconnect_grace=GRACE)) as peer:
        lost_ids = await gated.lose(peer)
        await wait_until_canceled(*gated.gates.values())
        assert all(gate.contexts[0].cancel_token.is_cancelled for gate in gated.gates.values())
        assert [await end_of(peer, task_id) for task_id in lost_ids] == [LOST, LOST]
        await wait_until(lambda: not peer.agent.engine.runs)


@every_dialect
async def test_a_task_keeps_running_without_its_client_if_configured(dialect: str) -> None:
    gated = GatedModules()
    options: Any = {"cancel_on_disconnect": False, "limits": Limits(disconnect_grace=0)}
    async with serving(gated.modules, dialect, **options) as peer:
        before = asyncio.all_tasks()
        lost_ids = await gated.lose(peer)
        runs = {run.task for run in peer.agent.engine.runs.values()}
        await wait_until(lambda: asyncio.all_tasks() - before == runs)
        assert [await peer.state(task_id) for task_id in lost_ids] == ["working"] * 2
        gated.open()
        await asyncio.wait(runs)
        assert [await peer.state(task_id) for task_id in lost_ids] == ["completed"] * 2


@every_dialect
async def test_a_client_that_reconnects_in_time_keeps_its_task(dialect: str) -> None:
    steps, other_gate = Steps(), Gate()
    modules = {"work": StreamModule(steps), "other": ActionModule(other_gate)}
    async with serving(modules, dialect, limits=Limits(disconnect_grace=GRACE)) as peer:
        async with peer.stream() as stream:
            steps.push({"n": 0})
            first_frames = [await stream.next() for _ in range(2)]
        await wait_for_disconnects(peer)
        async with peer.subscribe(first_frames[0].body["id"], first_frames[-1].id) as resumed:
            await outlast_grace_period(peer, other_gate)
            steps.push({"n": 1})
            steps.end()
            later_frames = await resumed.rest()
    assert [str(frame) for frame in later_frames] == ["artifact", "artifact", "status completed"]
    assert gapless([*first_frames, *later_frames])


@every_dialect
async def test_a_task_runs_until_its_last_reader_disconnects(dialect: str) -> None:
    gate, other_gate = Gate(), Gate()
    modules = {"work": ActionModule(gate), "other": ActionModule(other_gate)}
    async with serving(modules, dialect, limits=Limits(disconnect_grace=GRACE)) as peer:
        async with peer.stream() as stream:
            task_id = (await stream.next()).body["id"]
            async with peer.subscribe(task_id) as second_stream:
                await second_stream.next()
                await stream.response.aclose()
                await outlast_grace_period(peer, other_gate)
                assert await peer.state(task_id) == "working"
        await wait_until_canceled(gate)
        assert await end_of(peer, task_id) == LOST


class FailingStore(InMemoryTaskStore):
    """A store whose events can't be read while it is down."""

    is_down = False

    async def events(self, task_id: str, after: int, limit: int = 1000) -> list[Event] | None:
        if self.is_down:
            raise UnavailableError("The store is down")
        return await super().events(task_id, after, limit)


@every_dialect
async def test_a_task_keeps_running_if_its_stream_ends_because_the_store_fails(
    dialect: str, caplog: pytest.LogCaptureFixture
) -> None:
    steps, store = Steps(), FailingStore()
    options: Any = {"limits": Limits(disconnect_grace=0), "task_store": store}
    async with (
        serving({"work": StreamModule(steps)}, dialect, **options) as peer,
        peer.stream() as stream,
    ):
        task = await stream.next()
        await steps.started.wait()
        store.is_down = True
        steps.push({"n": 1})
        with pytest.raises(httpx.RemoteProtocolError):
            await stream.rest()
        store.is_down = False
        await peer.get(task.body["id"])  # by then, the server has handled the end of the stream
        steps.end()
        await peer.until(task.body["id"], "completed")
    logged = [record for record in caplog.records if record.name.startswith("apcore_a2a")]
    assert [record.exc_info for record in logged if record.levelno >= logging.WARNING] == [None]


@every_dialect
async def test_a_non_blocking_task_is_not_canceled_when_a_reader_disconnects(dialect: str) -> None:
    gate, other_gate = Gate(), Gate()
    modules = {"work": ActionModule(gate), "other": ActionModule(other_gate)}
    async with serving(modules, dialect, limits=Limits(disconnect_grace=0)) as peer:
        task_id = await peer.start()
        async with peer.subscribe(task_id) as stream:
            await stream.next()
        await outlast_grace_period(peer, other_gate)
        assert await peer.state(task_id) == "working"
        gate.opened.set()
        await wait_until(lambda: not peer.agent.engine.runs)
        assert await peer.state(task_id) == "completed"


@every_dialect
async def test_a_task_that_pauses_after_a_disconnect_is_not_canceled(dialect: str) -> None:
    gated, other_gate = GatedModules(), Gate()

    def pausing_module(gate: Gate) -> ActionModule:
        async def pause(inputs: Inputs, context: Any) -> None:
            await gate(inputs, context)
            raise InputRequiredError("Which one?")

        return ActionModule(pause)

    modules = {name: pausing_module(gate) for name, gate in gated.gates.items()}
    async with serving(
        {**modules, "other": ActionModule(other_gate)},
        dialect,
        limits=Limits(disconnect_grace=GRACE),
    ) as peer:
        lost_ids = await gated.lose(peer)
        await wait_for_disconnects(peer, len(lost_ids))
        gated.open()
        await wait_until(lambda: not peer.agent.engine.runs)
        await outlast_grace_period(peer, other_gate)
        paused = ("input-required", "Which one?")
        assert [await end_of(peer, task_id) for task_id in lost_ids] == [paused] * 2


@every_dialect
@pytest.mark.parametrize("lose", DISCONNECTS.values(), ids=DISCONNECTS)
async def test_a_resumed_task_is_canceled_when_the_answering_client_disconnects(
    dialect: str, lose: Callable[..., Awaitable[str]]
) -> None:
    gate = Gate()
    modules = {"work": ActionModule(gate, annotations=NEEDS_APPROVAL)}
    async with serving(modules, dialect, limits=Limits(disconnect_grace=0)) as peer:
        task_id = (await peer.send()).task["id"]
        params = {"taskId": task_id, "parts": [peer.part(text="yes")]}
        assert await lose(peer, gate, **params) == task_id
        await wait_until_canceled(gate)
        assert await end_of(peer, task_id) == LOST


# Many at once


class Endless:
    """An action that runs for minutes and counts its cancellations."""

    def __init__(self) -> None:
        self.tokens: list[Any] = []
        self.canceled = 0

    async def __call__(self, inputs: Inputs, context: Any) -> None:
        self.tokens.append(context.cancel_token)
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            self.canceled += 1
            raise

    async def stream(self, inputs: Inputs, context: Any) -> AsyncIterator[Inputs]:
        yield {"n": 0}
        await self(inputs, context)


async def hang_up(peer: Peer, number: int, seconds: float) -> None:
    """Send a request, then close or reset the connection after *seconds*."""
    client, url = peer.in_dialect(DIALECTS[number % 3]), peer.client.base_url
    operation = "stream" if number % 2 else "send"
    request = client.request(operation, client.wire.params(operation))
    _, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(as_bytes(h11.Connection(h11.CLIENT), request))
    await asyncio.sleep(seconds)
    if number % 4 < 2:
        connection = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


def descriptors() -> int:
    """Return the number of files and sockets this process has open."""
    return len(os.listdir("/dev/fd"))


LOOPS = {"asyncio": False, "uvloop": True}


@pytest.mark.parametrize(
    "anyio_backend",
    [("asyncio", {"use_uvloop": use}) for use in LOOPS.values()],
    ids=LOOPS,
)
@pytest.mark.parametrize("clients", [50, pytest.param(500, marks=pytest.mark.soak)])
async def test_many_disconnects_leak_nothing(clients: int) -> None:
    endless, delays = Endless(), random.Random(clients)
    modules = {"send": ActionModule(endless), "stream": StreamModule(endless.stream)}
    limits = Limits(max_streams_per_client=clients, disconnect_grace=0.1, client_share=None)
    options: Any = {"max_streams": clients, "max_runs": clients, "limits": limits}
    async with serving(modules, **options) as peer:
        await peer.ask("list")
        tasks, files = asyncio.all_tasks(), descriptors()
        async with asyncio.TaskGroup() as group:
            for number in range(clients):
                seconds = delays.uniform(0, clients * 0.003)
                group.create_task(hang_up(peer, number, seconds))
        await wait_until(lambda: not peer.agent.engine.runs)
        await wait_until(lambda: asyncio.all_tasks() == tasks)
        assert len(endless.tokens) > clients / 2
        assert endless.canceled == len(endless.tokens)
        assert all(token.is_cancelled for token in endless.tokens)
        assert len(peer.agent.handler.streams) == 0
        assert not peer.agent.handler.watchers._watchers
        assert not peer.agent.handler.watchers._grace_timers
        canceled = await peer.ask("list", {"status": "TASK_STATE_CANCELED"})
        assert canceled.result["totalSize"] == len(endless.tokens)
        await wait_until(lambda: descriptors() <= files)
