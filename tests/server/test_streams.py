"""Streams of events: their order, their ids, and readers that join, leave and resume."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from apcore_a2a_server import InMemoryTaskStore

from .checking_client import Agent, Json
from .inloop import (
    DIALECTS,
    NEEDS_APPROVAL,
    ActionModule,
    Frame,
    Gate,
    Peer,
    StreamModule,
    always,
    content_of,
    contents,
    echo,
    gapless,
    serving,
    wait_until,
)
from .inloop import anyio_backend as anyio_backend
from .modules import Inputs
from .test_custom_stores import DictStore

pytestmark = [pytest.mark.anyio, pytest.mark.rotating("agent", "rpc", "dialect")]


async def count_to_three(inputs: Inputs, context: Any) -> AsyncIterator[Inputs]:
    for number in range(3):
        yield {"n": number}


async def stream_nothing(inputs: Inputs, context: Any) -> AsyncIterator[Inputs]:
    if inputs is None:
        yield inputs


class Steps:
    """A stream of chunks that the test controls."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Inputs | None] = asyncio.Queue()
        self.started = asyncio.Event()
        self.closed = asyncio.Event()

    async def __call__(self, inputs: Inputs, context: Any) -> AsyncIterator[Inputs]:
        self.started.set()
        try:
            while (chunk := await self.queue.get()) is not None:
                yield chunk
        finally:
            self.closed.set()

    def push(self, *chunks: Inputs) -> None:
        for chunk in chunks:
            self.queue.put_nowait(chunk)

    def end(self) -> None:
        self.queue.put_nowait(None)


def names(frames: list[Frame]) -> list[str]:
    return [str(frame) for frame in frames]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_stream_has_the_task_its_states_its_chunks_and_the_final_state(
    dialect: str,
) -> None:
    async with (
        serving({"work": StreamModule(count_to_three)}, dialect) as peer,
        peer.stream() as stream,
    ):
        kind = stream.response.headers["content-type"]
        frames = await stream.rest()
        assert kind.startswith("text/event-stream")
        assert names(frames) == [
            "task submitted",
            "status working",
            "artifact",
            "artifact",
            "artifact",
            "status completed",
        ]
        assert gapless(frames)
        chunks = [frame for frame in frames if frame.kind == "artifact"]
        assert [chunk.parts for chunk in chunks] == [[{"n": 0}], [{"n": 1}], [{"n": 2}]]
        assert [chunk.body.get("append", False) for chunk in chunks] == [False, True, True]
        assert len({chunk.body["artifact"]["artifactId"] for chunk in chunks}) == 1


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_every_event_names_its_task_and_its_context(dialect: str) -> None:
    async with serving({"work": StreamModule(count_to_three)}, dialect) as peer:
        async with peer.stream(contextId="ours") as stream:
            first, *others = await stream.rest()
        assert first.body["contextId"] == "ours"
        ids = {(frame.body["taskId"], frame.body["contextId"]) for frame in others}
        assert ids == {(first.body["id"], "ours")}


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_task_has_all_chunks_in_one_artifact(dialect: str) -> None:
    async with serving({"work": StreamModule(count_to_three)}, dialect) as peer:
        async with peer.stream() as stream:
            frames = await stream.rest()
        task = await peer.get(frames[0].body["id"])
        assert contents(task) == [{"n": 0}, {"n": 1}, {"n": 2}]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_chunks_keep_their_timestamps_when_they_are_read_again(
    dialect: str,
) -> None:
    async with serving({"work": StreamModule(count_to_three)}, dialect) as peer:
        before = datetime.now(UTC) - timedelta(seconds=1)  # times are truncated
        async with peer.stream() as stream:
            frames = await stream.rest()
        after = datetime.now(UTC)
        task_id = frames[0].body["id"]
        async with peer.subscribe(task_id, 2) as resumed:
            assert await resumed.rest() == frames[2:]
        task = await peer.get(task_id)
    chunks = frames[2:5]
    times = [
        datetime.fromisoformat(chunk.body["metadata"]["apcore"]["timestamp"]) for chunk in chunks
    ]
    assert before < times[0] <= times[1] <= times[2] <= after
    assert "metadata" not in task["artifacts"][0]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_stream_of_a_module_without_streaming_has_one_result(dialect: str) -> None:
    async with serving({"work": always({"a": 1})}, dialect) as peer, peer.stream() as stream:
        frames = await stream.rest()
        assert names(frames) == [
            "task submitted",
            "status working",
            "artifact",
            "status completed",
        ]
        assert gapless(frames)
        result = frames[2].body
        assert (result.get("append", False), result["lastChunk"]) == (False, True)
        assert frames[2].parts == [{"a": 1}]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_stream_without_chunks_completes(dialect: str) -> None:
    async with (
        serving({"work": StreamModule(stream_nothing)}, dialect) as peer,
        peer.stream() as stream,
    ):
        frames = await stream.rest()
        assert names(frames) == ["task submitted", "status working", "status completed"]
        assert gapless(frames)


async def test_a_send_to_a_streaming_module_calls_execute() -> None:
    async with serving({"work": StreamModule(count_to_three)}) as peer:
        assert (await peer.send()).data == {"streamed": False}


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_error_during_a_stream_fails_the_task(dialect: str) -> None:
    async def fail_midway(inputs: Inputs, context: Any) -> AsyncIterator[Inputs]:
        yield {"n": 0}
        raise ValueError("a secret")

    async with (
        serving({"work": StreamModule(fail_midway)}, dialect) as peer,
        peer.stream() as stream,
    ):
        frames = await stream.rest()
        assert names(frames)[-2:] == ["artifact", "status failed"]
        assert gapless(frames)
        assert frames[-1].status_text == "Internal error"
        assert content_of(frames[-1].body["status"]["message"]["parts"][1])["code"] == -32603


@pytest.mark.parametrize("modules", [{"work": StreamModule(count_to_three)}, {"work": always({})}])
async def test_only_the_last_event_of_0_3_is_final(modules: dict[str, Any]) -> None:
    async with serving(modules, "0.3") as peer, peer.stream() as stream:
        statuses = [frame for frame in await stream.rest() if frame.kind == "status"]
        assert [frame.body["final"] for frame in statuses] == [False, True]


async def test_a_stream_ends_at_a_pause_which_is_final_in_0_3() -> None:
    modules = {"work": ActionModule(echo, annotations=NEEDS_APPROVAL)}
    async with serving(modules, "0.3") as peer, peer.stream() as stream:
        frames = await stream.rest()
        assert names(frames) == ["task submitted", "status working", "status input-required"]
        assert [frame.body["final"] for frame in frames[1:]] == [False, True]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_stream_resumed_after_a_pause_has_no_gap(dialect: str) -> None:
    modules = {"work": ActionModule(echo, annotations=NEEDS_APPROVAL)}
    async with serving(modules, dialect) as peer:
        async with peer.stream() as stream:
            before = await stream.rest()
        task_id = before[0].body["id"]
        async with peer.stream("work", peer.part(text="yes"), taskId=task_id) as stream:
            after = await stream.rest()
        assert names(after) == ["status working", "artifact", "status completed"]
        assert gapless([*before, *after])


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_first_events_arrive_before_the_first_chunk(dialect: str) -> None:
    steps = Steps()
    async with serving({"work": StreamModule(steps)}, dialect) as peer, peer.stream() as stream:
        assert str(await stream.next()) == "task submitted"
        assert str(await stream.next()) == "status working"
        steps.push({"n": 0})
        assert (await stream.next()).parts == [{"n": 0}]
        steps.end()
        assert names(await stream.rest()) == ["status completed"]


async def test_a_silent_stream_has_keep_alive_comments() -> None:
    gate = Gate()
    async with (
        serving({"work": ActionModule(gate)}, keep_alive=0.02) as peer,
        peer.stream() as stream,
    ):
        comments = 0
        async for line in stream.response.aiter_lines():
            comments += line.startswith(":")
            if comments == 3:
                gate.opened.set()
            if line.startswith("data:"):
                last = json.loads(line[5:])["result"]
        assert comments >= 3
        assert last["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_subscribers_get_a_snapshot_and_then_the_same_events(dialect: str) -> None:
    steps = Steps()
    async with serving({"work": StreamModule(steps)}, dialect) as peer, peer.stream() as first:
        first_frames = [await first.next() for _ in range(2)]
        steps.push({"n": 0}, {"n": 1})
        first_frames += [await first.next() for _ in range(2)]
        async with (
            peer.subscribe(first_frames[0].body["id"]) as second,
            peer.subscribe(first_frames[0].body["id"]) as third,
        ):
            snapshots = [await second.next(), await third.next()]
            steps.push({"n": 2})
            steps.end()
            rest = await first.rest()
            assert await second.rest() == await third.rest() == rest
    assert names(rest) == ["artifact", "status completed"]
    assert gapless([*first_frames, *rest])
    for snapshot in snapshots:
        assert (str(snapshot), snapshot.id) == ("task working", 4)
        assert contents(snapshot.body) == [{"n": 0}, {"n": 1}]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_reader_that_resumes_gets_exactly_the_missed_events(dialect: str) -> None:
    steps = Steps()
    async with serving({"work": StreamModule(steps)}, dialect) as peer, peer.stream() as stream:
        steps.push({"n": 0}, {"n": 1})
        first_frames = [await stream.next() for _ in range(4)]
        task_id = first_frames[0].body["id"]
        for last in range(5):
            async with peer.subscribe(task_id, last) as resumed:
                missed = [await resumed.next() for _ in first_frames[last:]]
                assert missed == first_frames[last:]
        async with peer.subscribe(task_id, 3) as resumed:
            steps.end()
            ended = [*first_frames, *(await stream.rest())]
            assert await resumed.rest() == ended[3:]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_reader_gets_the_missed_events_of_an_ended_task(dialect: str) -> None:
    async with serving({"work": StreamModule(count_to_three)}, dialect) as peer:
        async with peer.stream() as stream:
            frames = await stream.rest()
        for last in range(len(frames) + 1):
            async with peer.subscribe(frames[0].body["id"], last) as resumed:
                assert await resumed.rest() == frames[last:]


async def test_a_subscription_to_an_ended_task_gets_its_final_event_in_0_3() -> None:
    async with serving({"work": StreamModule(count_to_three)}, "0.3") as peer:
        async with peer.stream() as stream:
            frames = await stream.rest()
        async with peer.subscribe(frames[0].body["id"]) as resumed:
            assert await resumed.rest() == frames[-1:]


@pytest.mark.parametrize("dialect", ["1.0", "REST"])
async def test_a_subscription_to_an_ended_task_is_an_error_in_1_0(dialect: str) -> None:
    async with serving({"work": always({})}, dialect) as peer:
        task_id = (await peer.send()).task["id"]
        assert (await peer.ask("subscribe", {"id": task_id})).code == -32004


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("headers", [{}, {"Last-Event-ID": "1"}])
async def test_a_subscription_to_an_unknown_task_is_refused(dialect: str, headers: Json) -> None:
    async with serving({"work": always({})}, dialect) as peer:
        assert (await peer.ask("subscribe", {"id": "unknown"}, headers)).code == -32001


async def test_a_reader_gets_a_snapshot_if_the_missed_events_are_lost() -> None:
    """After a restart, the events are lost: a user's own store keeps only the task."""
    store = DictStore()
    async with (
        serving({"work": StreamModule(count_to_three)}, task_store=store) as peer,
        peer.stream() as stream,
    ):
        frames = await stream.rest()
    task_id = frames[0].body["id"]
    async with serving({"work": StreamModule(count_to_three)}, task_store=store) as peer:
        async with peer.subscribe(task_id, 2) as resumed:
            (snapshot,) = await resumed.rest()
        assert (str(snapshot), snapshot.id) == ("task completed", len(frames))
        assert contents(snapshot.body) == [{"n": 0}, {"n": 1}, {"n": 2}]
        async with peer.subscribe(task_id, len(frames)) as resumed:
            assert await resumed.rest() == []


async def test_only_the_event_logs_of_the_newest_ended_tasks_are_kept() -> None:
    store = InMemoryTaskStore(max_capacity=100)
    modules = {"work": StreamModule(count_to_three)}
    async with serving(modules, task_store=store, max_tasks=2) as peer:
        ended = []
        for _ in range(3):
            async with peer.stream() as stream:
                ended.append(await stream.rest())
        resumed_frames = []
        for frames in ended:
            async with peer.subscribe(frames[0].body["id"], 2) as resumed:
                resumed_frames.append(await resumed.rest())
        (snapshot,) = resumed_frames[0]
        assert (str(snapshot), snapshot.id) == ("task completed", 6)
        assert resumed_frames[1:] == [frames[2:] for frames in ended[1:]]


@pytest.mark.parametrize("seconds", [0, 0.6])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_reader_that_disconnects_leaks_nothing(dialect: str, seconds: float) -> None:
    """It disconnects soon after the start, or later, when the server watches for disconnects."""
    steps = Steps()
    async with serving({"work": StreamModule(steps)}, dialect) as peer:
        before = asyncio.all_tasks()
        async with peer.stream() as stream:
            task_id = (await stream.next()).body["id"]
            await steps.started.wait()
            await asyncio.sleep(seconds)
            task_count = len(asyncio.all_tasks() - before)
        run = peer.agent.engine.runs[task_id].task
        await wait_until(lambda: asyncio.all_tasks() - before == {run})
        assert task_count > 1
        steps.push({"n": 0})
        steps.end()
        await wait_until(lambda: not asyncio.all_tasks() - before)
        task = await peer.get(task_id)
        assert contents(task) == [{"n": 0}]
        assert task["status"]["state"].lower().endswith("completed")


async def test_a_reader_that_disconnects_does_not_affect_others() -> None:
    steps = Steps()
    async with serving({"work": StreamModule(steps)}) as peer, peer.stream() as staying:
        first_frames = [await staying.next() for _ in range(2)]
        async with peer.subscribe(first_frames[0].body["id"]) as leaving:
            await leaving.next()
        steps.push({"n": 0})
        steps.end()
        assert gapless([*first_frames, *(await staying.rest())])


async def test_a_finished_stream_leaks_nothing() -> None:
    async with serving({"work": StreamModule(count_to_three)}) as peer:
        before = asyncio.all_tasks()
        for _ in range(5):
            async with peer.stream() as stream:
                await stream.rest()
        await wait_until(lambda: asyncio.all_tasks() == before)
        assert not peer.agent.engine.runs


async def open_unread_stream(peer: Peer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a stream without reading it; return the connection."""
    url = peer.client.base_url
    reader, writer = await asyncio.open_connection(url.host, url.port, limit=1024)
    request = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "message/stream",
        "params": peer.in_dialect("0.3").wire.params("work"),
    }
    body = json.dumps(request).encode()
    head = f"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\nconnection: close\r\n"
    writer.write(f"{head}content-type: application/json\r\n\r\n".encode() + body)
    await writer.drain()
    return reader, writer


async def test_a_slow_reader_delays_no_others_and_misses_no_event() -> None:
    steps, chunk, count = Steps(), {"much": "x" * 1_000_000}, 20
    async with serving({"work": StreamModule(steps)}, "0.3") as peer:
        before = asyncio.all_tasks()
        reader, writer = await open_unread_stream(peer)
        await steps.started.wait()
        (task_id,) = peer.agent.engine.runs
        async with peer.subscribe(task_id) as quick_stream:
            await quick_stream.next()
            steps.push(*[chunk] * count)
            steps.end()
            frames = await quick_stream.rest()
        assert names(frames) == ["artifact"] * count + ["status completed"]
        assert gapless(frames, 3)
        await wait_until(lambda: not peer.agent.engine.runs)
        assert asyncio.all_tasks() - before, "the slow reader has already received everything"
        received = (await reader.read()).decode()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
    assert received.count("x" * 1_000_000) == count
    assert '"state":"completed"' in received


async def test_nothing_is_logged_when_a_reader_disconnects(
    caplog: pytest.LogCaptureFixture,
) -> None:
    steps = Steps()
    caplog.set_level(logging.WARNING)
    async with serving({"work": StreamModule(steps)}) as peer:
        before = asyncio.all_tasks()
        async with peer.stream() as stream:
            await stream.next()
        steps.push({"n": 0})
        steps.end()
        await wait_until(lambda: asyncio.all_tasks() == before)
    assert [record.message for record in caplog.records] == []


async def test_the_event_log_of_an_ended_task_expires() -> None:
    """Later subscribers get a snapshot from a store that keeps the task for longer."""
    store = InMemoryTaskStore()
    async with serving(
        {"work": StreamModule(count_to_three)}, task_store=store, task_ttl=0.5
    ) as peer:
        async with peer.stream() as stream:
            task_id = (await stream.rest())[0].body["id"]
        async with peer.subscribe(task_id, 2) as resumed:
            assert gapless(await resumed.rest(), 3)
        await asyncio.sleep(0.55)
        async with peer.stream() as stream:  # the end of another task triggers the cleanup
            await stream.rest()
        async with peer.subscribe(task_id, 2) as resumed:
            (snapshot,) = await resumed.rest()
        assert (str(snapshot), snapshot.id) == ("task completed", 6)


@pytest.mark.parametrize(("length", "kept"), [(None, 1), (0, 0), (1, 1), (5, 1)])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_stream_has_as_much_history_as_requested(
    dialect: str, length: int | None, kept: int
) -> None:
    async with serving({"work": StreamModule(count_to_three)}, dialect) as peer:
        configuration = {} if length is None else {"historyLength": length}
        params = {**peer.wire.params("work"), "configuration": configuration}
        async with peer.streaming("stream", params) as stream:
            task = (await stream.next()).body
        assert len(task.get("history", [])) == kept


@pytest.mark.parametrize("method", ["message/stream", "tasks/resubscribe"])
def test_a_refused_stream_of_0_3_is_a_stream_of_one_event(rpc_v03: Agent, method: str) -> None:
    params = {"id": "unknown"} if "tasks" in method else rpc_v03.params("no.such")
    for request_params in (params, {}):
        request = {"jsonrpc": "2.0", "id": 7, "method": method, "params": request_params}
        response = rpc_v03.post(json.dumps(request).encode()).response
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        line = response.text.removeprefix("data: ")
        reply = json.loads(line)
        assert (reply["jsonrpc"], reply["id"]) == ("2.0", 7)
        assert reply["error"]["code"] in {-32001, -32601, -32602}


def test_a_stream_of_0_3_with_too_large_a_body_is_refused_in_json(rpc_v03: Agent) -> None:
    request = {"jsonrpc": "2.0", "id": 7, "method": "message/stream", "params": [[0] * 200_000]}
    response = rpc_v03.post(json.dumps(request).encode()).response
    assert response.status_code == 413
    assert response.headers["content-type"] == "application/json"
