"""The bound on the bytes that a process keeps: tasks, events, conversations and bodies."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from a2a.types import a2a_pb2 as pb
from apcore import ModuleAnnotations
from apcore_a2a_server import Limits
from apcore_a2a_server.app.options import Settings
from apcore_a2a_server.engine.clients import Caller
from apcore_a2a_server.fields import OptionError
from apcore_a2a_server.store.sqlite import SqliteStore

from .checking_client import Answer, state_of
from .grpc_caller import request_for, serving_grpc
from .inloop import (
    DIALECTS,
    NEEDS_APPROVAL,
    ActionModule,
    Gate,
    Peer,
    StreamModule,
    always,
    echo,
    serving,
    wait_until,
)
from .inloop import anyio_backend as anyio_backend
from .modules import Inputs
from .principals import HeaderAuth, acting_as
from .test_grpc import failure

pytestmark = pytest.mark.anyio

UNIT = 128 * 1024  # bytes of a large message
LARGE = "large" * (UNIT // 5)
REPEATABLE = ModuleAnnotations(idempotent=True)


def stored_bytes(peer: Peer) -> int:
    return peer.agent.setup.tasks.store.kept_bytes


def kept_bytes(peer: Peer) -> int:
    memory = peer.agent.setup.memory
    return memory.body_bytes + memory.running_bytes + memory.stored_bytes


def text_in(message: Any) -> str:
    (part,) = message["parts"]
    text: str = part["text"]
    return text


@asynccontextmanager
async def serving_within(
    size: int, modules: dict[str, Any], dialect: str = "1.0", **options: Any
) -> AsyncIterator[Peer]:
    """Serve *modules* with *size* bytes of memory, which the largest body nearly fills."""
    options |= {"limits": Limits(memory=size, client_share=None), "max_body": size * 7 // 8}
    async with serving(modules, dialect, **options) as peer:
        yield peer


async def send_large(peer: Peer, skill: str = "work", **members: Any) -> Answer:
    return await peer.send(skill, peer.part(text=LARGE), **members)


async def start_large(peer: Peer, skill: str = "work") -> str:
    return await peer.start(skill, peer.part(text=LARGE))


async def check_refused(peer: Peer, skill: str = "work") -> None:
    """Send a large message that must be refused for lack of memory."""
    params = peer.wire.params(skill, peer.part(text=LARGE))
    response = await peer.client.send(peer.request("send", params))
    error = response.json()["error"]
    assert response.status_code == 429
    assert int(response.headers["retry-after"]) >= 1
    assert error["code"] == (429 if peer.wire.restful else -32029)
    assert "memory" in error["message"]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_large_input_is_kept_once_and_returned_everywhere(dialect: str) -> None:
    async with serving({"work": always({})}, dialect) as peer:
        task = (await send_large(peer)).task
        assert UNIT * 0.98 < stored_bytes(peer) < UNIT * 1.02
        assert text_in((await peer.get(task["id"]))["history"][0]) == LARGE
        (listed,) = (await peer.ask("list")).result["tasks"]
        assert text_in(listed["history"][0]) == LARGE
        async with peer.subscribe(task["id"], last=0) as stream:
            frames = await stream.rest()
        assert text_in(frames[0].body["history"][0]) == LARGE
        assert [frame.id for frame in frames] == [*range(1, len(frames) + 1)]


async def test_a_conversation_keeps_no_second_copy_of_a_message() -> None:
    gate = Gate()
    gate.opened.set()
    text = 2 * LARGE  # so large that the 3 KB of two tasks and their events are less than 2 %
    async with serving({"work": ActionModule(gate)}) as peer:
        task = (await peer.send("work", peer.part(text=text))).task
        await peer.send("work", peer.part(text="again"), contextId=task["contextId"])
        (earlier,) = gate.contexts[-1].services.history
        assert text_in(earlier) == text
        assert stored_bytes(peer) < 2 * UNIT * 1.02


async def test_ended_tasks_are_evicted_by_their_bytes() -> None:
    async with serving_within(4 * UNIT, {"work": always({})}) as peer:
        task_ids = [(await send_large(peer)).task["id"] for _ in range(8)]
        answers = [await peer.ask("get", {"id": task_id}) for task_id in task_ids]
        assert [answer.code for answer in answers[:5]] == [-32001] * 5
        assert [answer.code for answer in answers[-2:]] == [None, None]
        assert stored_bytes(peer) <= 4 * UNIT


async def test_large_outputs_are_evicted_too() -> None:
    async with serving_within(4 * UNIT, {"work": always({"text": LARGE})}) as peer:
        for _ in range(8):
            assert (await peer.send()).state == "completed"
        assert stored_bytes(peer) <= 6 * UNIT  # the last output is kept in any case


async def test_expired_tasks_free_their_bytes() -> None:
    modules = {"work": always({"text": LARGE}), "small": always({})}
    async with serving(modules, task_ttl=0.05) as peer:
        for _ in range(3):
            await send_large(peer)
        await asyncio.sleep(0.06)
        await peer.send("small")  # the event logs of ended tasks are deleted when another task ends
        await wait_until(lambda: stored_bytes(peer) < UNIT / 10)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_a_send_is_refused_when_nothing_can_be_evicted(
    dialect: str, store: str, tmp_path: Path
) -> None:
    gate = Gate()
    modules = {"work": ActionModule(gate)}
    task_store = None if store == "memory" else SqliteStore(tmp_path / "agent.db")
    async with serving_within(4 * UNIT, modules, dialect, task_store=task_store) as peer:
        running = [await start_large(peer) for _ in range(3)]
        await check_refused(peer)
        assert set(peer.agent.engine.runs) == {*running}
        assert await peer.state(running[0]) == "working"
        assert (await peer.ask("cancel", {"id": running[0]})).state == "canceled"
        if store == "memory":  # a canceled task can be evicted when its run has ended
            await wait_until(lambda: len(peer.agent.engine.runs) == 2)
        await start_large(peer)
        gate.opened.set()
        await wait_until(lambda: not peer.agent.engine.runs)


async def test_small_sends_are_refused_too_when_there_is_no_memory() -> None:
    gate = Gate()
    async with serving_within(4096, {"work": ActionModule(gate)}) as peer:
        task_id = await peer.start("work", peer.part(text="x" * 3000))
        response = await peer.client.send(peer.request("send", peer.wire.params("work")))
        assert response.status_code == 429
        assert set(peer.agent.engine.runs) == {task_id}
        gate.opened.set()


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_inputs_of_paused_tasks_count_and_answers_are_accepted(
    store: str, tmp_path: Path
) -> None:
    modules = {"pay": ActionModule(echo, annotations=NEEDS_APPROVAL)}
    task_store = None if store == "memory" else SqliteStore(tmp_path / "agent.db")
    async with serving_within(3 * UNIT, modules, task_store=task_store) as peer:
        paused = (await send_large(peer, "pay")).task
        assert paused["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        assert kept_bytes(peer) > 2 * UNIT
        if store == "memory":
            await check_refused(peer, "pay")
        else:  # durable: the paused task can be dropped from memory
            assert (await send_large(peer, "pay")).state == "input-required"
        answered = await peer.send("pay", peer.part(text="yes"), taskId=paused["id"])
        assert answered.state == "completed"
        assert await peer.state(paused["id"]) == "completed"


async def test_chunks_of_a_running_stream_count() -> None:
    gate = Gate()

    async def chunks(inputs: Inputs, context: Any) -> AsyncIterator[Any]:
        for _ in range(3):
            yield {"text": LARGE}
        await gate(inputs, context)
        yield {}

    async with (
        serving_within(4 * UNIT, {"work": StreamModule(chunks)}) as peer,
        peer.stream() as stream,
    ):
        await gate.reached.wait()
        await check_refused(peer)
        gate.opened.set()
        frames = await stream.rest()
        assert str(frames[-1]) == "status completed"


@asynccontextmanager
async def unfinished_body(peer: Peer, size: int) -> AsyncIterator[asyncio.StreamReader]:
    """Send *size* bytes of a body that is one byte longer."""
    reader, writer = await asyncio.open_connection(
        peer.client.base_url.host, peer.client.base_url.port
    )
    head = f"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: {size + 1}\r\n\r\n"
    writer.write(head.encode() + b" " * size)
    await writer.drain()
    try:
        yield reader
    finally:
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_unfinished_bodies_count_until_their_clients_disconnect(dialect: str) -> None:
    async with serving_within(4 * UNIT, {"work": always({})}, dialect) as peer:
        memory = peer.agent.setup.memory
        async with unfinished_body(peer, 2 * UNIT), unfinished_body(peer, UNIT):
            await wait_until(lambda: memory.body_bytes == 3 * UNIT)
            await check_refused(peer)
            assert (await peer.send()).state == "completed"  # a small body
        await wait_until(lambda: memory.body_bytes == 0)
        assert (await send_large(peer)).state == "completed"
        assert memory.body_bytes == 0


async def test_a_body_for_which_there_is_no_memory_is_not_kept() -> None:
    async with serving_within(2 * UNIT, {"work": always({})}) as peer:
        async with unfinished_body(peer, UNIT + UNIT // 2):
            await wait_until(lambda: kept_bytes(peer) == UNIT + UNIT // 2)
            for _ in range(3):
                await check_refused(peer)
                assert kept_bytes(peer) == UNIT + UNIT // 2
        assert (await send_large(peer)).state == "completed"


async def test_many_unfinished_bodies_stay_below_the_bound() -> None:
    async with serving_within(2 * UNIT, {"work": always({})}) as peer, AsyncExitStack() as stack:
        memory = peer.agent.setup.memory
        for _ in range(12):
            await stack.enter_async_context(unfinished_body(peer, UNIT // 2))
            assert memory.body_bytes <= 2 * UNIT
        await wait_until(lambda: memory.body_bytes == 2 * UNIT)


async def test_a_client_beyond_its_share_leaves_memory_to_others() -> None:
    options: Any = {"limits": Limits(memory=8 * UNIT), "max_body": 7 * UNIT}
    async with serving({"work": always({})}, **options) as peer:
        memory = peer.agent.setup.memory
        async with unfinished_body(peer, 4 * UNIT), unfinished_body(peer, 2 * UNIT):
            await wait_until(lambda: memory.body_bytes == 6 * UNIT)
            await check_refused(peer)  # less than an eighth would be left for other clients
            memory.take(Caller(client="another client"), 2 * UNIT)
            memory.release("another client", 2 * UNIT)
        await wait_until(lambda: memory.body_bytes == 0)
        assert (await send_large(peer)).state == "completed"


async def test_unfinished_tasks_and_bodies_of_a_client_count_towards_one_share() -> None:
    gate = Gate()
    options: Any = {"limits": Limits(memory=8 * UNIT), "max_body": 7 * UNIT}
    async with serving({"work": ActionModule(gate)}, **options) as peer:
        for _ in range(4):
            await start_large(peer)
        async with unfinished_body(peer, 2 * UNIT):
            await wait_until(lambda: peer.agent.setup.memory.body_bytes == 2 * UNIT)
            await check_refused(peer)  # less than an eighth would be left for other clients
        gate.opened.set()
        await wait_until(lambda: not peer.agent.engine.runs)


@asynccontextmanager
async def ada_and_bob(source: Any, **options: Any) -> AsyncIterator[tuple[Peer, Peer]]:
    """Serve *source* within 16 units of memory, and yield two clients."""
    bounds = {"limits": Limits(memory=16 * UNIT), "max_body": 14 * UNIT}
    options = {"auth": HeaderAuth(), **bounds, **options}
    async with (
        serving(source, **options) as peer,
        acting_as(peer, {"x-name": "ada"}) as ada,
        acting_as(peer, {"x-name": "bob"}) as bob,
    ):
        yield ada, bob


async def start_until_refused(peer: Peer, skill: str = "work") -> list[str]:
    """Start tasks with large inputs until one is refused; return their ids."""
    params = peer.wire.params(skill, peer.part(text=LARGE))
    params["configuration"] = {"returnImmediately": True}
    started: list[str] = []
    while (answer := await peer.ask("send", params)).response.status_code == 200:
        started.append(answer.task["id"])
    assert answer.response.status_code == 429
    return started


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_running_tasks_of_one_client_leave_memory_to_others(
    store: str, tmp_path: Path
) -> None:
    gate = Gate()
    task_store = None if store == "memory" else SqliteStore(tmp_path / "agent.db")
    modules = {"work": ActionModule(gate), "fast": always({})}
    async with ada_and_bob(modules, task_store=task_store) as (ada, bob):
        running = await start_until_refused(ada)
        assert 8 < len(running) < 14  # more than ada's share, as bob uses no memory yet
        tasks, client = ada.agent.setup.tasks, ada.agent.engine.runs[running[0]].client
        assert tasks.bytes_of(client) > len(running) * UNIT * 0.98
        await check_refused(ada, "fast")
        assert (await send_large(bob, "fast")).state == "completed"
        assert (await ada.ask("cancel", {"id": running.pop()})).state == "canceled"
        await wait_until(lambda: len(ada.agent.engine.runs) == len(running))
        await start_large(ada)
        gate.opened.set()
        await wait_until(lambda: not ada.agent.engine.runs)
        assert (await send_large(ada)).state == "completed"
        assert tasks.bytes_of(client) == 0


async def test_paused_tasks_of_one_client_leave_memory_to_others() -> None:
    modules = {"pay": ActionModule(echo, annotations=NEEDS_APPROVAL)}
    async with ada_and_bob(modules) as (ada, bob):
        paused = await start_until_refused(ada, "pay")
        assert 8 * UNIT < kept_bytes(ada) < 14 * UNIT
        assert (await send_large(bob, "pay")).state == "input-required"
        yes = ada.part(text="yes")
        for task_id in paused:
            assert (await ada.send("pay", yes, taskId=task_id)).state == "completed"
        assert (await send_large(ada, "pay")).state == "input-required"


async def test_paused_tasks_in_a_durable_store_do_not_count_towards_the_share(
    tmp_path: Path,
) -> None:
    modules = {"pay": ActionModule(echo, annotations=NEEDS_APPROVAL)}
    async with ada_and_bob(modules, task_store=SqliteStore(tmp_path / "agent.db")) as (ada, bob):
        paused = [(await send_large(ada, "pay")).task["id"] for _ in range(12)]
        assert (await send_large(bob, "pay")).state == "input-required"
        answer = await ada.send("pay", ada.part(text="yes"), taskId=paused[0])
        assert answer.state == "completed"


async def test_tasks_that_pause_together_leave_memory_to_others() -> None:
    gate = Gate()

    async def ask(inputs: Inputs, context: Any) -> None:
        await gate(inputs, context)
        context.services.ask("And?")

    async with ada_and_bob({"work": ActionModule(ask), "fast": always({})}) as (ada, bob):
        running = await start_until_refused(ada)
        gate.opened.set()
        await wait_until(lambda: not ada.agent.engine.runs)
        tasks = (await ada.ask("list")).result["tasks"]
        paused = [task for task in tasks if state_of(task) == "input-required"]
        assert 0 < len(paused) < len(running)
        assert (await send_large(bob, "fast")).state == "completed"


async def test_an_open_conversation_keeps_no_messages_of_evicted_tasks() -> None:
    modules = {"pay": ActionModule(echo, annotations=NEEDS_APPROVAL), "fast": always({})}
    async with ada_and_bob(modules) as (ada, bob):
        for _ in range(3):
            paused = (await ada.send("pay", ada.part(text="small"))).task
            for _ in range(7):
                await send_large(ada, "fast", contextId=paused["contextId"])
        assert (await send_large(bob, "pay")).state == "input-required"


@pytest.mark.parametrize("share", [None, 1.0, 0.25])
async def test_the_share_of_the_memory_can_be_chosen(share: float | None) -> None:
    gate = Gate()
    limits = Limits(memory=16 * UNIT, client_share=share)
    async with ada_and_bob({"work": ActionModule(gate)}, limits=limits) as (ada, bob):
        running = await start_until_refused(ada)
        if share == 0.25:
            await start_large(bob)
        else:
            assert len(running) > 13
            await check_refused(bob)
        gate.opened.set()


async def test_a_gateways_clients_have_shares_of_the_memory() -> None:
    gate = Gate()
    options: Any = {"client_key": lambda headers, identity: headers.get("x-user")}
    async with ada_and_bob({"work": ActionModule(gate)}, **options) as (gateway, _):
        ada, bob = ({"x-name": "gateway", "x-user": user} for user in ("ada", "bob"))
        async with acting_as(gateway, ada) as first, acting_as(gateway, bob) as second:
            await start_until_refused(first)
            await start_large(second)
        gate.opened.set()


async def test_the_input_of_a_blocking_send_counts_once() -> None:
    gate = Gate()
    async with serving({"work": ActionModule(gate)}) as peer:
        sending = asyncio.create_task(send_large(peer))
        await gate.reached.wait()
        assert peer.agent.setup.memory.body_bytes == 0
        assert kept_bytes(peer) < 1.1 * UNIT
        gate.opened.set()
        assert (await sending).state == "completed"


async def test_the_metrics_show_the_memory_by_kind() -> None:
    async with serving_within(8 * UNIT, {"work": always({})}, metrics=True) as peer:
        await send_large(peer)
        async with unfinished_body(peer, UNIT):
            await wait_until(lambda: peer.agent.setup.memory.body_bytes)
            figures = (await peer.client.get("/metrics")).json()
        text = (await peer.client.get("/metrics", headers={"accept": "text/plain"})).text
    assert figures["memory_bodies_bytes"] > 0
    assert figures["memory_stored_bytes"] > UNIT
    assert figures["memory_running_bytes"] == 0
    assert "apcore_a2a_memory_stored_bytes" in text


async def test_a_message_over_grpc_counts_until_its_call_ends() -> None:
    gate = Gate()
    async with serving_grpc({"work": ActionModule(gate)}, metrics=True) as caller:

        async def body_bytes() -> int:
            figures = (await caller.peer.client.get("/metrics")).json()
            return int(figures["memory_bodies_bytes"])

        sending = asyncio.create_task(caller.send(text=LARGE))
        await gate.reached.wait()
        assert UNIT * 0.98 < await body_bytes() < UNIT * 1.02
        await caller.start("work", text="small")
        assert await body_bytes() < UNIT * 1.02
        gate.opened.set()
        assert (await sending).status.state == pb.TASK_STATE_COMPLETED
        assert await body_bytes() == 0


async def test_a_canceled_message_over_grpc_no_longer_counts() -> None:
    gate = Gate()
    async with serving_grpc({"work": ActionModule(gate)}) as caller:
        memory = caller.peer.agent.setup.memory
        call = caller.stub.SendMessage(request_for(text=LARGE))
        await gate.reached.wait()
        assert memory.body_bytes > UNIT * 0.98
        call.cancel()
        await wait_until(lambda: memory.body_bytes == 0)


async def test_a_message_over_grpc_for_which_there_is_no_memory_is_refused() -> None:
    options: Any = {"limits": Limits(memory=2 * UNIT), "max_body": UNIT + UNIT // 2}
    async with serving_grpc({"work": always({})}, **options) as caller:
        async with unfinished_body(caller.peer, UNIT + UNIT // 2):
            await wait_until(lambda: kept_bytes(caller.peer) == UNIT + UNIT // 2)
            for _ in range(3):
                error = await failure(caller.send(text=LARGE))
                assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
                assert "memory" in (error.details() or "")
                assert kept_bytes(caller.peer) == UNIT + UNIT // 2
        assert (await caller.send(text=LARGE)).status.state == pb.TASK_STATE_COMPLETED


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_least_memory_is_enough_for_the_largest_body(dialect: str) -> None:
    def limits(memory: int) -> dict[str, Any]:
        return {"limits": Limits(memory=memory), "max_body": 7 * UNIT}

    for limit in (-1, 0, 1, 8 * UNIT - 1):
        with pytest.raises(
            OptionError, match=rf"^memory must be {8 * UNIT} or more.*, not {limit};"
        ):
            Settings(**limits(limit))
    async with serving({"work": always({})}, dialect, **limits(8 * UNIT)) as peer:
        text = "x" * (7 * UNIT - 1000)  # the rest of the message has a few hundred bytes
        assert (await peer.send("work", peer.part(text=text))).state == "completed"


async def test_after_a_restart_a_large_call_is_repeated_from_its_message(tmp_path: Path) -> None:
    """The call's inputs are not stored a second time, and survive several restarts."""
    store = SqliteStore(tmp_path / "agent.db")
    store.restart_pauses = (0, 0, 0)
    gates = [Gate(), Gate(), Gate(), Gate()]
    task_id = ""
    for gate in gates:
        modules = {"work": ActionModule(gate, annotations=REPEATABLE)}
        async with serving(modules, task_store=store) as peer:
            task_id = task_id or await start_large(peer)
            await gate.reached.wait()
            record = await store.get(task_id)
            assert record is not None
            assert record.resume is not None
            assert len(record.resume) < 1000
            assert gate.calls == gates[0].calls
            if gate is gates[-1]:
                gate.opened.set()
                await wait_until(lambda: not peer.agent.engine.runs)
                assert await peer.state(task_id) == "completed"


async def test_after_a_restart_large_data_has_the_same_numbers_and_order(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "agent.db")
    store.restart_pauses = (0,)
    inputs = {"text": LARGE, "number": 2**60 + 1, **{f"member {n}": n for n in range(20)}}
    gates = [Gate(), Gate()]
    for gate in gates:
        async with serving(
            {"work": ActionModule(gate, annotations=REPEATABLE)}, task_store=store
        ) as peer:
            if gate is gates[0]:
                await peer.start("work", peer.part(data=inputs))
            await gate.reached.wait()
            (repeated,) = gate.calls
            assert [*repeated.items()] == [*inputs.items()]


async def test_ended_tasks_of_a_client_above_its_share_are_evicted_first() -> None:
    limits = Limits(memory=8 * UNIT, client_share=0.5)
    options: dict[str, Any] = {"limits": limits, "auth": HeaderAuth(), "max_body": 2 * UNIT}
    async with serving({"work": always({})}, **options) as peer:
        ids_by_client: dict[str, list[str]] = {"ada": [], "eve": [], "bob": []}
        for name in ("ada", "eve", "eve", "eve", "eve", "eve", "eve", "ada", "bob"):
            async with acting_as(peer, {"x-name": name}) as client:
                ids_by_client[name].append((await send_large(client)).task["id"])
        codes: dict[str, list[int | None]] = {}
        for name, task_ids in ids_by_client.items():
            async with acting_as(peer, {"x-name": name}) as client:
                answers = [await client.ask("get", {"id": task_id}) for task_id in task_ids]
            codes[name] = [answer.code for answer in answers]
        assert codes["ada"] == [None, None]
        assert codes["bob"] == [None]
        assert codes["eve"][0] == -32001
        assert codes["eve"][-3:] == [None] * 3


async def test_ended_tasks_of_the_caller_are_evicted_before_those_of_others() -> None:
    options: dict[str, Any] = {
        "auth": HeaderAuth(),
        "client_key": lambda headers, identity: headers.get("x-device"),
    }
    async with serving_within(4 * UNIT, {"work": always({})}, **options) as peer:
        async with acting_as(peer, {"x-name": "eve"}) as eve:
            first_id = (await send_large(eve)).task["id"]
        async with acting_as(peer, {"x-name": "ada", "x-device": "phone"}) as ada:
            for _ in range(8):
                assert (await send_large(ada)).state == "completed"
        async with acting_as(peer, {"x-name": "eve"}) as eve:
            answer = await eve.ask("get", {"id": first_id})
        assert answer.code is None
