"""The trace of a task: how its time was spent, for its owner and operators."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from apcore import Executor
from apcore_a2a_server.push import PushSettings
from apcore_a2a_server.trace_context import MAX_SPANS, SpanLog, parse_spans

from tests.push.receiver import receiving
from tests.store.conftest import server as server
from tests.store.postgresql import Database

from .checking_client import Json
from .inloop import (
    NEEDS_APPROVAL,
    ActionModule,
    Gate,
    Peer,
    StreamModule,
    SyncActionModule,
    echo,
    registry_of,
    serving,
    wait_until,
)
from .inloop import anyio_backend as anyio_backend
from .test_operators import ADA, BOB, BOSS, OP, keys

pytestmark = pytest.mark.anyio

ROUNDING = 4e-6
"""Tolerance in seconds for times of spans, which are rounded to microseconds."""


class NestedModules:
    """Modules that call each other through the executor of the agent."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.registry = registry_of(self.modules())
        self.executor = Executor(self.registry)

    def modules(self) -> dict[str, object]:
        async def call_one_and_sync(inputs: Any, context: Any) -> Any:
            calls = (self.executor.call_async(name, inputs, context) for name in ("one", "sync"))
            await asyncio.gather(*calls)
            return inputs

        async def call_two(inputs: Any, context: Any) -> Any:
            return await self.executor.call_async("two", inputs, context)

        async def call_often(inputs: Any, context: Any) -> Any:
            for _ in range(MAX_SPANS + 3):
                await self.executor.call_async("two", inputs, context)
            return inputs

        async def call_pay(inputs: Any, context: Any) -> Any:
            return await self.executor.call_async("pay", inputs, context)

        async def ask_name(inputs: Any, context: Any) -> Any:
            if "name" not in inputs:
                context.services.ask("Which name?", field="name")
            return inputs

        async def fail(inputs: Any, context: Any) -> Any:
            raise RuntimeError("secret")

        async def catch_failure(inputs: Any, context: Any) -> Any:
            try:
                await self.executor.call_async("breaks", inputs, context)
            except Exception:  # apcore wraps what the module raised
                return inputs

        async def stream_counts(inputs: Any, context: Any) -> Any:
            yield {"n": 1}
            await self.executor.call_async("two", inputs, context)
            yield {"n": 2}

        return {
            "nest": ActionModule(call_one_and_sync),
            "one": ActionModule(call_two),
            "two": ActionModule(echo),
            "sync": SyncActionModule(lambda inputs, context: inputs),
            "many": ActionModule(call_often),
            "pays": ActionModule(call_pay),
            "pay": ActionModule(echo, annotations=NEEDS_APPROVAL),
            "asks": ActionModule(ask_name),
            "breaks": ActionModule(fail),
            "tries": ActionModule(catch_failure),
            "counts": StreamModule(stream_counts),
            "wait": ActionModule(self.gate),
        }


async def trace_of(peer: Peer, task: Json, headers: Mapping[str, str] | None = None) -> Json:
    response = await peer.client.get(f"/apcore/tasks/{task['id']}/trace", headers=headers)
    assert response.status_code == 200, response.text
    trace: Json = response.json()
    return trace


def shape(trace: Json) -> list[tuple[Any, ...]]:
    """Return the kind, name and status of each span, and the name of its parent."""
    names = {span["id"]: span["name"] for span in trace["spans"]}
    return [
        (span["kind"], span["name"], span["status"], names.get(span["parentId"]))
        for span in trace["spans"]
    ]


def times_of(span: Json) -> tuple[float, float]:
    """Return when a span began and ended, in seconds since 1970."""
    start = datetime.fromisoformat(span["startedAt"]).timestamp()
    return start, start + span["seconds"]


@pytest.fixture
def nested() -> Iterator[NestedModules]:
    """Return the modules, with an executor that is closed after the test."""
    nested = NestedModules()
    with closing(nested.executor):
        yield nested


DURABLE = ["file", pytest.param("database", marks=pytest.mark.database)]


@pytest.fixture(params=["memory", *DURABLE])
def options(request: pytest.FixtureRequest, tmp_path: Path) -> Json:
    """Return the options of an agent with each task store."""
    stores = {"memory": "memory", "file": f"sqlite:///{tmp_path}/agent.db"}
    return {"task_store": stores.get(request.param) or database_url(request)}


def database_url(request: pytest.FixtureRequest) -> str:
    """Return the URL of an empty database."""
    server: Database = request.getfixturevalue("server")
    server.clear()
    return server.url


async def send(peer: Peer, skill: str, **members: Any) -> Json:
    return (
        await peer.ask("send", peer.wire.params(skill, peer.part(data={"n": 1}), **members))
    ).task


async def test_the_check_the_queue_the_module_and_nested_calls_are_spans(
    options: Json, nested: NestedModules
) -> None:
    async with serving(nested.executor, **options) as peer:
        trace = await trace_of(peer, task := await send(peer, "nest"))
    assert sorted(shape(trace), key=str) == sorted(
        [
            ("check", "check", "ok", None),
            ("queue", "queue", "ok", None),
            ("module", "nest", "ok", None),
            ("call", "one", "ok", "nest"),
            ("call", "two", "ok", "one"),
            ("call", "sync", "ok", "nest"),
        ],
        key=str,
    )
    assert (trace["taskId"], trace["state"], trace["dropped"]) == (task["id"], "completed", 0)
    assert trace["traceId"] == task["metadata"]["apcore"]["traceId"]
    starts = [span["startedAt"] for span in trace["spans"]]
    assert starts == sorted(starts)
    assert all(span["seconds"] >= 0 for span in trace["spans"])
    spans = {span["id"]: span for span in trace["spans"]}
    for span in trace["spans"]:
        if span["parentId"]:
            start, end = times_of(span)
            outer_start, outer_end = times_of(spans[span["parentId"]])
            assert outer_start - ROUNDING <= start <= end <= outer_end + ROUNDING


async def test_an_approval_is_a_wait_between_two_runs(options: Json, nested: NestedModules) -> None:
    async with serving(nested.executor, **options) as peer:
        task = await send(peer, "pays")
        paused_trace = await trace_of(peer, task)
        assert shape(paused_trace)[-1] == ("wait", "approval", "running", None)
        assert paused_trace["spans"][-1]["seconds"] is None
        params = peer.wire.params("", peer.part(data={"approved": True}), taskId=task["id"])
        await peer.ask("send", {"message": params["message"]})
        trace = await trace_of(peer, task)
    spans = [(kind, name, status) for kind, name, status, _ in shape(trace)]
    assert spans.count(("wait", "approval", "ok")) == 1
    assert spans.count(("module", "pays", "ok")) == 2
    assert ("call", "pay", "ok") in spans
    assert trace["state"] == "completed"
    wait = next(span for span in trace["spans"] if span["kind"] == "wait")
    assert wait["seconds"] > 0


@pytest.mark.parametrize("end", ["answer", "cancel"])
async def test_a_wait_for_input_ends_with_the_answer_or_the_task(
    end: str, options: Json, nested: NestedModules
) -> None:
    async with serving(nested.executor, **options) as peer:
        task = await send(peer, "asks")
        if end == "cancel":
            await peer.ask("cancel", {"id": task["id"]})
        else:
            params = peer.wire.params("", peer.part(data={"name": "x"}), taskId=task["id"])
            await peer.ask("send", {"message": params["message"]})
        trace = await trace_of(peer, task)
    waits = [span[:3] for span in shape(trace) if span[0] == "wait"]
    assert waits == [("wait", "input", "ok")]


async def test_failures_are_shown_without_their_text(options: Json, nested: NestedModules) -> None:
    async with serving(nested.executor, **options) as peer:
        failed = await trace_of(peer, await send(peer, "breaks"))
        recovered = await trace_of(peer, await send(peer, "tries"))
    assert ("module", "breaks", "error", None) in shape(failed)
    assert ("call", "breaks", "error", "tries") in shape(recovered)
    assert ("module", "tries", "ok", None) in shape(recovered)
    assert "secret" not in str(failed)


async def test_the_span_of_a_stream_ends_after_the_calls_within_it(
    options: Json, nested: NestedModules
) -> None:
    async with serving(nested.executor, **options) as peer:
        async with peer.stream("counts", peer.part(data={"n": 1})) as stream:
            task_id = (await stream.rest())[0].body["id"]
        trace = await trace_of(peer, {"id": task_id})
    assert ("call", "two", "ok", "counts") in shape(trace)
    assert ("module", "counts", "ok", None) in shape(trace)
    times = {span["name"]: times_of(span) for span in trace["spans"]}
    assert times["counts"][0] <= times["two"][0] <= times["two"][1] <= times["counts"][1]


async def test_a_running_task_shows_what_it_does_now(options: Json, nested: NestedModules) -> None:
    async with serving(nested.executor, **options) as peer:
        params = peer.wire.params("wait", peer.part(data={"n": 1}))
        params["configuration"] = {"returnImmediately": True}
        task = (await peer.ask("send", params)).task
        await nested.gate.reached.wait()
        running = await trace_of(peer, task)
        assert ("module", "wait", "running", None) in shape(running)
        await peer.ask("cancel", {"id": task["id"]})
        canceled = await trace_of(peer, task)
    assert canceled["state"] == "canceled"
    assert ("module", "wait", "error", None) in shape(canceled)


async def test_spans_that_were_cut_off_do_not_hide_those_of_a_running_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = Gate()

    async def ask_and_wait(inputs: Any, context: Any) -> Any:
        if "name" not in inputs:
            context.services.ask("Which name?", field="name")
        return await gate(inputs, context)

    monkeypatch.setattr("apcore_a2a_server.store.inprocess.MAX_SPANS_SIZE", 20)
    async with serving({"asks": ActionModule(ask_and_wait)}) as peer:
        task = (await peer.send("asks", peer.part(data={}))).task
        async with asyncio.TaskGroup() as group:
            group.create_task(peer.send("asks", peer.part(data={"name": "Ada"}), taskId=task["id"]))
            await gate.reached.wait()
            trace = await trace_of(peer, task)
            gate.opened.set()
    assert ("module", "asks", "running", None) in shape(trace)
    assert trace["dropped"] == 1


async def test_a_trace_has_at_most_200_spans_and_counts_the_others(
    options: Json, nested: NestedModules
) -> None:
    async with serving(nested.executor, **options) as peer:
        trace = await trace_of(peer, await send(peer, "many"))
    assert len(trace["spans"]) == MAX_SPANS
    # the run has 206 spans: the check, the queue, the module and 203 calls
    assert trace["dropped"] == 6


async def test_delivery_attempts_are_spans(options: Json, nested: NestedModules) -> None:
    push = PushSettings(dev=True, retries=())
    with receiving() as receiver:
        async with serving(
            nested.executor, push_notifications=push, metrics=True, **options
        ) as peer:
            params = peer.wire.params("two", peer.part(data={"n": 1}))
            hook = {"id": "w", "url": receiver.url}
            params["configuration"] = {"taskPushNotificationConfig": hook}
            task = (await peer.ask("send", params)).task
            await asyncio.to_thread(receiver.wait, 3)
            figures = peer.agent.figures
            await wait_until(lambda: figures.totals("webhooks", ["delivered"])["delivered"] == 3)
            hooks = await webhook_spans(peer, task)
    assert [(span["name"], span["status"]) for span in hooks] == [("127.0.0.1", "ok")] * 3
    assert hooks[0]["attributes"] == {
        "webhook": "w",
        "result": "delivered",
        "status": 200,
        "reason": None,
    }


async def webhook_spans(peer: Peer, task: Json) -> list[Json]:
    trace = await trace_of(peer, task)
    return [span for span in trace["spans"] if span["kind"] == "webhook"]


async def test_only_owners_and_operators_see_a_trace(options: Json, nested: NestedModules) -> None:
    rules: Json = {"auth": keys(), "operators": "operator", "approvers": "boss"}
    async with serving(nested.executor, **rules, **options) as peer:
        params = peer.wire.params("two", peer.part(data={"n": 1}))
        task = (await peer.ask("send", params, dict(ADA))).task
        assert await trace_of(peer, task, ADA) == await trace_of(peer, task, OP)
        for headers in (BOB, BOSS):
            path = f"/apcore/tasks/{task['id']}/trace"
            response = await peer.client.get(path, headers=headers)
            assert response.status_code == 404
        assert (await peer.client.get("/apcore/tasks/none/trace", headers=OP)).status_code == 404


@pytest.mark.parametrize("options", DURABLE, indirect=True)
async def test_a_trace_survives_a_restart(options: Json, nested: NestedModules) -> None:
    async with serving(nested.executor, **options) as peer:
        task = await send(peer, "pays")
    async with serving(nested.executor, **options) as peer:
        params = peer.wire.params("", peer.part(data={"approved": True}), taskId=task["id"])
        await peer.ask("send", {"message": params["message"]})
        trace = await trace_of(peer, task)
    kinds = [span["kind"] for span in trace["spans"]]
    assert [kind for kind in kinds if kind in ("module", "wait")] == ["module", "wait", "module"]


def test_spans_that_were_cut_off_count_as_dropped() -> None:
    log = SpanLog()
    log.end_check()
    text = log.dump()
    assert [chunk.dropped for chunk in parse_spans(text + text[:9])] == [0, 1]
