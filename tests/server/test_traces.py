"""Traces: W3C Trace Context from the client through tasks to their webhooks, and in logs."""

import asyncio
import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from apcore import CancelToken, Context, Identity
from apcore.trace_context import TraceContext, TraceParent, parse_tracestate
from apcore_a2a_core import InputRequiredError
from apcore_a2a_server.middleware.logs import JsonFormatter, RequestFacts, TextFormatter
from apcore_a2a_server.modules.conversation import Conversation, create_context
from apcore_a2a_server.push import PushSettings
from apcore_a2a_server.trace_context import Trace, bounded_state, received_trace
from pydantic import BaseModel

from tests.push.receiver import Receiver, receiving

from .checking_client import Json
from .inloop import DIALECTS, ActionModule, Gate, Peer, serving
from .inloop import anyio_backend as anyio_backend
from .modules import Inputs
from .webhooks import Hooks

TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"
OTHER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
pytestmark = pytest.mark.anyio

DEV = PushSettings(dev=True, retries=())


class TraceRecorder(ActionModule):
    """A module that records the trace headers that it would send."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(self.record, **attributes)
        self.sent: list[Json] = []

    async def record(self, inputs: Inputs, context: Any) -> Inputs:
        self.sent.append(TraceContext.inject(context))
        logging.getLogger("apcore_a2a.module").warning("It runs")
        return inputs


async def send(peer: Peer, headers: Json, **options: Any) -> Json:
    return (await peer.ask("send", {**peer.wire.params("work"), **options}, headers)).task


@pytest.mark.parametrize("state", ["", "vendor=1,other=2"])
@pytest.mark.parametrize("flags", ["00", "01"])
def test_contexts_are_those_that_apcore_creates(flags: str, state: str) -> None:
    trace, conversation = Trace(TRACE_ID, SPAN_ID, flags, state), Conversation("t1", "c1")
    identity, token = Identity("ada", roles=("admin",)), CancelToken()
    context = create_context(
        token=token, seconds=5, identity=identity, trace=trace, conversation=conversation
    )
    parent = TraceParent("00", TRACE_ID, SPAN_ID, flags, tuple(parse_tracestate(state)))
    expected: Any = Context.create(
        identity=identity,
        trace_parent=parent,
        cancel_token=token,
        data=conversation.data(),
        services=conversation,
        global_deadline=context.global_deadline,
    )
    assert vars(context) == vars(expected)


# The headers


@pytest.mark.parametrize(
    "traceparent",
    [
        "",
        "00",
        TRACEPARENT.upper(),
        f"{TRACEPARENT}-more",
        f"{TRACEPARENT}, {TRACEPARENT}",
        f"ff-{TRACE_ID}-{SPAN_ID}-01",
        f"0-{TRACE_ID}-{SPAN_ID}-01",
        f"00-{'0' * 32}-{SPAN_ID}-01",
        f"00-{'f' * 32}-{SPAN_ID}-01",
        f"00-{TRACE_ID}-{'0' * 16}-01",
        f"00-{TRACE_ID[1:]}-{SPAN_ID}-01",
        f"00-{TRACE_ID}-{SPAN_ID}-1",
        f"00-{TRACE_ID}-{SPAN_ID}-0x",
        f"00-{TRACE_ID}-{SPAN_ID}-01\u0661",
    ],
)
def test_an_invalid_traceparent_names_no_trace(traceparent: str) -> None:
    assert received_trace({"traceparent": traceparent, "tracestate": "a=1"}) is None


@pytest.mark.parametrize(
    ("traceparent", "flags"),
    [
        (TRACEPARENT, "01"),
        (f"00-{TRACE_ID}-{SPAN_ID}-00", "00"),
        (f"00-{TRACE_ID}-{SPAN_ID}-ff", "03"),
        (f"cc-{TRACE_ID}-{SPAN_ID}-01-what-comes-later", "01"),
        (f" {TRACEPARENT}\t", "01"),
    ],
)
def test_a_valid_traceparent_names_its_trace_with_the_known_flags(
    traceparent: str, flags: str
) -> None:
    trace = received_trace({"traceparent": traceparent})
    assert trace is not None
    assert (trace.trace_id, trace.span_id, trace.flags) == (TRACE_ID, SPAN_ID, flags)


@pytest.mark.parametrize(
    ("received", "kept"),
    [
        ("", ""),
        ("a=1", "a=1"),
        ("a=1 ,\tb@c=2,,", "a=1,b@c=2"),
        ("a", ""),
        ("A=1", ""),
        ("a=1,b", ""),
        ("a=1,a=2", ""),
        ("a=1=2", ""),
        ("a=\u00e9", ""),
        (",".join(f"a{n}=1" for n in range(32)), ",".join(f"a{n}=1" for n in range(32))),
        (",".join(f"a{n}=1" for n in range(33)), ""),
        (f"a=1,b={'x' * 250},c={'x' * 250},d=2", "a=1,d=2"),
        (
            ",".join(f"a{n}={'x' * 100}" for n in range(9)),
            ",".join(f"a{n}={'x' * 100}" for n in range(4)),
        ),
    ],
)
def test_a_valid_tracestate_is_kept_up_to_512_bytes(received: str, kept: str) -> None:
    assert bounded_state(received) == kept
    assert len(kept) <= 512


# Tasks


def trace_members(task: Json) -> Json:
    """Return the `apcore` metadata of a task without the time of its creation."""
    own = {**task["metadata"]["apcore"]}
    del own["createdAt"]
    return own


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_task_continues_the_trace_of_its_message(dialect: str) -> None:
    recorder = TraceRecorder()
    async with serving({"work": recorder}, dialect) as peer:
        task = await send(peer, {"traceparent": TRACEPARENT, "tracestate": "a=1, b=2"})
        assert trace_members(task) == {"traceId": TRACE_ID}
    assert re.fullmatch(f"00-{TRACE_ID}-[0-9a-f]{{16}}-01", recorder.sent[0]["traceparent"])
    assert SPAN_ID not in recorder.sent[0]["traceparent"]
    assert recorder.sent[0]["tracestate"] == "a=1,b=2"


async def test_a_trace_that_is_not_sampled_stays_unsampled() -> None:
    recorder = TraceRecorder()
    async with serving({"work": recorder}) as peer:
        task = await send(peer, {"traceparent": f"00-{TRACE_ID}-{SPAN_ID}-00"})
    assert recorder.sent[0]["traceparent"].endswith("-00")
    assert trace_members(task) == {"traceId": TRACE_ID, "traceFlags": "00"}


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_message_with_an_invalid_trace_begins_a_new_one(dialect: str) -> None:
    recorder = TraceRecorder()
    async with serving({"work": recorder}, dialect) as peer:
        headers = {"traceparent": TRACEPARENT.upper(), "tracestate": "a=1"}
        tasks = [await send(peer, headers) for _ in range(2)]
    traces = {task["metadata"]["apcore"]["traceId"] for task in tasks}
    assert len(traces) == 2
    assert {sent["traceparent"].split("-")[1] for sent in recorder.sent} == traces
    assert TRACE_ID not in traces
    assert not any("tracestate" in sent for sent in recorder.sent)


class Count(BaseModel):
    count: int


@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.parametrize(
    ("answer_headers", "expected"), [({}, TRACE_ID), ({"traceparent": OTHER}, OTHER[3:35])]
)
async def test_a_resumed_task_continues_its_trace_unless_the_answer_has_one(
    answer_headers: Json, expected: str, store: str, tmp_path: Any
) -> None:
    trace_headers: list[Json] = []

    async def ask(inputs: Inputs, context: Any) -> Inputs:
        trace_headers.append(TraceContext.inject(context))
        if not inputs["count"]:
            raise InputRequiredError("How many?")
        return inputs

    task_store = "memory" if store == "memory" else f"sqlite:///{tmp_path / 'tasks.db'}"
    module = ActionModule(ask, input_schema=Count)
    async with serving({"work": module}, task_store=task_store) as peer:
        part = peer.part(data={"count": 0})
        headers = {"traceparent": TRACEPARENT, "tracestate": "a=1"}
        paused = (await peer.ask("send", peer.wire.params("work", part), headers)).task
        params = peer.wire.params("work", peer.part(data={"count": 1}), taskId=paused["id"])
        task = (await peer.ask("send", params, answer_headers)).task
    assert [sent["traceparent"].split("-")[1] for sent in trace_headers] == [TRACE_ID, expected]
    assert trace_headers[1].get("tracestate") == (None if answer_headers else "a=1")
    assert trace_members(task) == {"traceId": TRACE_ID}


# Webhooks


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as started:
        yield started


@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_each_delivery_attempt_continues_the_trace_of_its_task(
    dialect: str, store: str, receiver: Receiver, tmp_path: Any
) -> None:
    task_store = "memory" if store == "memory" else f"sqlite:///{tmp_path / 'tasks.db'}"
    gate = Gate()
    options: Json = {"push_notifications": DEV, "task_store": task_store}
    async with serving({"work": ActionModule(gate)}, dialect, **options) as peer:
        hooks = Hooks(peer.wire)
        hook = {"id": "c1", "url": f"{receiver.url}/first"}
        params = hooks.send_params("work", hook=hook)
        no_wait = {"returnImmediately": True} if peer.wire.modern else {"blocking": False}
        params["configuration"] |= no_wait
        headers = {"traceparent": TRACEPARENT, "tracestate": "a=1"}
        task_id = (await peer.ask("send", params, headers)).task["id"]
        second = {"id": "c2", "url": f"{receiver.url}/second"}
        await peer.ask("push set", hooks.create_params(task_id, **second), {"traceparent": OTHER})
        gate.opened.set()
        await asyncio.to_thread(receiver.wait, 4)
    sent = [delivery.headers["traceparent"] for delivery in receiver.deliveries]
    assert {traceparent[:36] for traceparent in sent} == {f"00-{TRACE_ID}-"}
    assert len({traceparent[36:52] for traceparent in sent} - {SPAN_ID}) == len(sent)
    assert {traceparent[53:] for traceparent in sent} == {"01"}
    first = [delivery for delivery in receiver.deliveries if delivery.path.endswith("/first")]
    assert {delivery.headers["tracestate"] for delivery in first} == {"a=1"}


# Logs


@contextmanager
def captured_lines(formatter: logging.Formatter) -> Iterator[list[str]]:
    """Collect the lines of our loggers, as the command would write them."""
    lines: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    handler, loggers = Collector(), [logging.getLogger(name) for name in ("apcore_a2a", "apcore")]
    handler.addFilter(RequestFacts())
    handler.setFormatter(formatter)
    for logger in loggers:
        logger.addHandler(handler)
    level, loggers[0].level = loggers[0].level, logging.INFO
    try:
        yield lines
    finally:
        loggers[0].level = level
        for logger in loggers:
            logger.removeHandler(handler)


@pytest.mark.parametrize("log_format", ["json", "text"])
@pytest.mark.parametrize("headers", [{}, {"traceparent": TRACEPARENT}])
async def test_every_record_of_a_request_and_its_run_has_the_id_of_the_trace(
    headers: Json, log_format: str
) -> None:
    formatter = JsonFormatter() if log_format == "json" else TextFormatter()
    async with serving({"work": TraceRecorder()}) as peer:
        with captured_lines(formatter) as lines:
            task = await send(peer, headers)
            await peer.ask("get", {"id": "unknown"}, {"traceparent": OTHER})
    trace_id = task["metadata"]["apcore"]["traceId"]
    run, access, other = (line for line in lines if "It runs" in line or "POST" in line)
    if log_format == "json":
        trace_ids = [json.loads(line)["trace_id"] for line in (run, access, other)]
        assert trace_ids == [trace_id, trace_id, OTHER[3:35]]
    else:
        assert f"trace_id={trace_id}" in run
        assert f"trace_id={trace_id}" in access
        assert f"trace_id={OTHER[3:35]}" in other
    if headers:
        assert trace_id == TRACE_ID
