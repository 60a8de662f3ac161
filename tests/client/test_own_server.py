"""Both clients with our own server, over each binding that they support."""

import asyncio
import json
import pickle
from asyncio import FIRST_COMPLETED
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import pytest
from apcore import Context, FunctionModule, InvalidInputError
from apcore_a2a_client import (
    A2AClient,
    A2AError,
    A2ATimeoutError,
    AuthenticationInfo,
    ExtendedAgentCardNotConfiguredError,
    InputRequired,
    InvalidParamsError,
    Message,
    MethodNotFoundError,
    Part,
    PushNotificationConfig,
    PushNotificationNotSupportedError,
    Role,
    SkillNotFoundError,
    SyncA2AClient,
    Task,
    TaskArtifactUpdateEvent,
    TaskFailedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    TaskState,
    TaskStatusUpdateEvent,
    UnsupportedOperationError,
)
from apcore_a2a_client.tasks import apply_event
from apcore_a2a_core import InputRequiredError
from apcore_a2a_server import Limits
from apcore_a2a_server.push import PushSettings

from tests.push.receiver import Reply, receiving
from tests.server import modules as samples
from tests.server.inloop import (
    NEEDS_APPROVAL,
    ActionModule,
    Gate,
    StreamModule,
    always,
    echo,
    registry_of,
    wait_until,
)
from tests.server.inloop import anyio_backend as anyio_backend
from tests.server.modules import Inputs
from tests.serving import PATIENCE, running

from .both import (
    CARD,
    DIALECTS,
    POLLED,
    RequestLog,
    connected_client,
    each_dialect,
    each_kind,
    serving_agent,
)

pytestmark = [pytest.mark.anyio, pytest.mark.rotating("kind", "dialect")]

EXAMPLES = Path(__file__).parents[2] / "examples" / "extensions"
ORDER = {"customer": {"text": "Ada"}, "items": [{"name": "tea", "count": 2}]}
Events = AsyncGenerator[Any]


@asynccontextmanager
async def agent(
    source: Any,
    dialect: str = "1.0",
    kind: str = "async",
    *,
    options: dict[str, Any] | None = None,
    **client_options: Any,
) -> AsyncIterator[A2AClient]:
    """Yield a client of an agent served in this event loop with *options*."""
    async with (
        serving_agent(source, **(options or {})) as server,
        connected_client(server.base_url(dialect), kind, **client_options) as client,
    ):
        yield client


def streaming_module(*chunks: Any, error: Exception | None = None) -> StreamModule:
    """Return a module that streams *chunks*, and then raises *error* if there is one."""

    async def source(inputs: Inputs, context: "Context[Any]") -> AsyncIterator[Any]:
        for chunk in chunks:
            yield chunk
        if error:
            raise error

    return StreamModule(source)


def slow_module(seconds: float) -> ActionModule:
    """Return a module that takes *seconds*."""

    async def action(inputs: Inputs, context: "Context[Any]") -> Inputs:
        await asyncio.sleep(seconds)
        return {"took": seconds}

    return ActionModule(action)


def kinds_of(events: list[Any]) -> list[str]:
    """Return the kinds of the events of a stream: the state of a task, or an artifact."""
    return [
        "artifact" if isinstance(event, TaskArtifactUpdateEvent) else str(event.status.state)
        for event in events
    ]


# Agent Card


class Clock:
    """Clock that only moves when a test advances it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("apcore_a2a_client.discovery.monotonic", clock)
    return clock


@asynccontextmanager
async def client_with_log(
    kind: str, source: dict[str, Any] | None = None, **options: Any
) -> AsyncIterator[tuple[A2AClient, RequestLog]]:
    """Yield a client and the log of its server's requests."""
    modules = source or {"give": ActionModule(echo)}
    async with (
        serving_agent(modules) as server,
        connected_client(server.url, kind, **options) as client,
    ):
        yield client, server.request_log


@each_kind
async def test_a_card_is_cached_and_then_revalidated(kind: str, clock: Clock) -> None:
    async with client_with_log(kind, card_ttl=60) as (client, request_log):
        first = await client.get_card()
        clock.now += 59
        assert await client.get_card() is first
        assert await client.agent_card is first
        await client.call("give", {"n": 1})
        assert request_log.card_statuses == [200]
        clock.now += 2
        assert await client.get_card() == first
        assert request_log.card_statuses == [200, 304]
        clock.now += 59
        assert await client.get_card() == first
        assert request_log.card_statuses == [200, 304]


@each_kind
async def test_a_card_is_revalidated_when_a_fresh_one_is_requested(kind: str, clock: Clock) -> None:
    async with client_with_log(kind) as (client, request_log):
        cards = [await client.get_card(), await client.get_card(refresh=True)]
        assert cards[0] == cards[1]
        assert request_log.card_statuses == [200, 304]


@each_kind
async def test_a_card_with_a_ttl_of_0_is_revalidated_each_time(kind: str) -> None:
    async with client_with_log(kind, card_ttl=0) as (client, request_log):
        await client.get_card()
        await client.call("give", {})
    assert request_log.card_statuses[0] == 200
    assert {*request_log.card_statuses[1:]} == {304}


async def test_concurrent_calls_fetch_the_card_once() -> None:
    async with client_with_log("async") as (client, request_log):
        await asyncio.gather(*(client.call("give", {"n": n}) for n in range(10)))
        assert request_log.card_statuses == [200]


@each_dialect
@each_kind
async def test_the_card_describes_the_agent(dialect: str, kind: str) -> None:
    modules = {"give": ActionModule(echo), "echo": samples.Echo()}
    async with agent(modules, dialect, kind, options={"name": "tester"}) as client:
        card = await client.agent_card
    assert card.name == "tester"
    assert [skill.id for skill in card.skills] == ["echo", "give"]
    assert card.capabilities.streaming
    skill = card.skill("echo")
    assert skill is not None
    assert skill.description == "A module of the tests"
    assert card.skill("missing") is None


async def test_the_url_of_the_card_may_be_given_instead_of_the_base_url() -> None:
    async with (
        serving_agent({"give": ActionModule(echo)}) as server,
        connected_client(server.url + CARD) as client,
    ):
        assert await client.call("give", {"n": 1}) == {"n": 1}


@each_dialect
@each_kind
async def test_a_missing_extended_card_raises_an_error(dialect: str, kind: str) -> None:
    async with agent({"give": ActionModule(echo)}, dialect, kind) as client:
        with pytest.raises((ExtendedAgentCardNotConfiguredError, UnsupportedOperationError)):
            await client.extended_card()


# Messages


@each_dialect
@each_kind
@pytest.mark.parametrize(
    ("content", "received"),
    [
        ("hello", {"text": "hello"}),
        ({"text": "hello"}, {"text": "hello"}),
        (["hello"], {"text": "hello"}),
        ([{"text": "hello"}, b"\x00\xff"], {"text": "hello"}),
        (Part(data={"text": "hello"}), {"text": "hello"}),
        (Message(parts=(Part(text="hello"),)), {"text": "hello"}),
    ],
    ids=["text", "data", "list", "data and bytes", "part", "message"],
)
async def test_content_is_converted_to_a_message(
    dialect: str, kind: str, content: Any, received: Inputs
) -> None:
    async with agent({"echo": samples.Echo()}, dialect, kind) as client:
        task = await client.send_message(content, skill="echo")
    assert task.status.state == TaskState.COMPLETED
    assert task.value == received
    assert task.artifacts[0].value == received


@each_dialect
@each_kind
async def test_a_message_gets_an_id_unless_it_has_one(dialect: str, kind: str) -> None:
    message_with_id = Message(parts=(Part(text="hello"),), message_id="my own")
    async with agent({"echo": samples.Echo()}, dialect, kind) as client:
        tasks = [
            await client.send_message(content, skill="echo")
            for content in (message_with_id, "b", "c")
        ]
    first, *others = [task.history[0].message_id for task in tasks]
    assert first == "my own"
    assert len({*others} - {""}) == 2
    assert {task.history[0].role for task in tasks} == {Role.USER}


@each_dialect
@each_kind
async def test_a_message_is_sent_with_its_context_and_its_task(dialect: str, kind: str) -> None:
    async with agent({"give": ActionModule(echo)}, dialect, kind) as client:
        first = await client.send_message({"n": 1}, skill="give", context_id="talk")
        message = Message(parts=(Part(data={"n": 2}),), context_id="talk")
        second = await client.send_message(message, skill="give")
        separate = await client.send_message({"n": 3}, metadata={"skillId": "give"})
        with pytest.raises(TaskNotFoundError):
            await client.send_message({"n": 4}, skill="give", task_id="unknown")
    assert first.context_id == second.context_id == "talk"
    assert separate.context_id not in ("", "talk")
    assert len({first.id, second.id, separate.id}) == 3


@each_dialect
@each_kind
async def test_a_task_of_a_nonblocking_send_can_be_awaited_later(dialect: str, kind: str) -> None:
    gate = Gate()
    async with agent({"work": ActionModule(gate)}, dialect, kind) as client:
        task = await client.send_message({}, skill="work", blocking=False)
        await gate.reached.wait()
        assert not task.status.state.is_settled
        waiting = asyncio.create_task(client.wait(task))
        gate.opened.set()
        finished = await waiting
        assert (finished.id, finished.status.state, finished.value) == (
            task.id,
            "completed",
            {"done": True},
        )
        assert await client.wait(task) == finished
        assert await client.wait(finished) is finished


@each_dialect
@each_kind
async def test_the_length_of_the_history_can_be_limited(dialect: str, kind: str) -> None:
    async with agent({"give": ActionModule(echo)}, dialect, kind) as client:
        task = await client.send_message({"n": 1}, skill="give", history_length=0)
        assert task.history == ()
        assert (await client.get_task(task.id, history_length=0)).history == ()
        assert len((await client.get_task(task.id)).history) == 1
        (listed,) = (await client.list_tasks(history_length=0)).tasks
        assert listed.history == ()


# Calls

OUTPUTS: list[Any] = [
    {"a": 1, "b": [1, None, {"c": "ü\u2028"}]},
    {},
    {"large": 2**53, "small": 1, "float": 0.1, "yes": True},
    {"note.txt": b"\x00\xff", "size": 2},
    "some text",
    "",
]


def module_returning(output: Any) -> object:
    """Return a module with this *output*; only a `FunctionModule` may return text."""

    def text() -> str:
        output_text: str = output
        return output_text

    return FunctionModule(text, "text") if isinstance(output, str) else always(output)


@each_dialect
@each_kind
async def test_a_call_returns_the_output_of_the_module(dialect: str, kind: str) -> None:
    modules = {f"m{n}": module_returning(output) for n, output in enumerate(OUTPUTS)}
    async with agent(modules, dialect, kind) as client:
        values = [await client.call(name, {}) for name in modules]
    assert values == OUTPUTS
    assert type(values[2]["large"]) is type(values[3]["size"]) is int


@each_dialect
@each_kind
async def test_a_single_file_is_returned_as_its_bytes(dialect: str, kind: str) -> None:
    async with agent({"pack": always({"note.txt": b"tea"})}, dialect, kind) as client:
        task = await client.send_message({}, skill="pack")
        assert await client.call("pack", {}) == b"tea"
    (part,) = task.artifacts[0].parts
    assert (part.raw, part.filename) == (b"tea", "note.txt")


@each_dialect
@each_kind
async def test_integers_and_floats_keep_their_types(dialect: str, kind: str) -> None:
    numbers = {"small": 5, "large": 2**53, "negative": -3, "float": 0.5, "zero": 0, "yes": True}
    async with agent({"json": samples.JsonTextModule()}, dialect, kind) as client:
        received = json.loads((await client.call("json", numbers))["json"])
    assert received == numbers
    assert {name: type(value) for name, value in received.items()} == {
        name: type(value) for name, value in numbers.items()
    }


LONG = 1.6
"""Seconds that a module takes: longer than the timeout SHORT."""
SHORT = 0.6  # seconds


@pytest.mark.parametrize(
    ("dialect", "kind", "keep_alive"),
    [*product(DIALECTS, ["async"], [0.1, 60]), ("1.0", "sync", 0.1), ("0.3", "sync", 60)],
)
async def test_a_call_may_take_longer_than_the_timeout_of_a_request(
    dialect: str, kind: str, keep_alive: float
) -> None:
    options = {"keep_alive": keep_alive}
    async with agent(
        {"work": slow_module(LONG)}, dialect, kind, options=options, timeout=SHORT
    ) as client:
        assert await client.call("work", {}) == {"took": LONG}


@pytest.mark.parametrize(
    ("dialect", "kind"), [("1.0", "async"), ("0.3", "sync"), ("REST", "async")]
)
async def test_a_stream_may_be_silent_for_longer_than_the_timeout(dialect: str, kind: str) -> None:
    async with agent({"work": slow_module(LONG)}, dialect, kind, timeout=SHORT) as client:
        events = [event async for event in client.stream_message({}, skill="work")]
        assert kinds_of(events) == ["submitted", "working", "artifact", "completed"]


@each_dialect
@each_kind
async def test_a_blocking_send_times_out(dialect: str, kind: str) -> None:
    gate = Gate()
    async with agent({"work": ActionModule(gate)}, dialect, kind, timeout=SHORT) as client:
        started = monotonic()
        with pytest.raises(A2ATimeoutError) as raised:
            await client.send_message({}, skill="work")
        assert monotonic() - started >= SHORT
        assert raised.value.sent
        assert len(gate.calls) == 1


@each_dialect
@each_kind
async def test_invalid_input_is_reported_field_by_field(dialect: str, kind: str) -> None:
    invalid_order = {"customer": {}, "items": [{"name": "tea", "count": 0}]}
    async with agent({"order": samples.OrderTotal()}, dialect, kind) as client:
        with pytest.raises(InvalidParamsError) as raised:
            await client.call("order", invalid_order)
        assert await client.call("order", ORDER) == {"total": 2}
    fields = [error["field"] for error in raised.value.errors]
    assert raised.value.code == -32602
    assert len(fields) == 2
    assert all("customer" in field or "items" in field for field in fields)
    assert all(error["message"] for error in raised.value.errors)


@each_dialect
@each_kind
async def test_an_agent_chooses_the_skill_of_a_call_that_names_none(
    dialect: str, kind: str
) -> None:
    async with agent({"give": ActionModule(echo)}, dialect, kind) as client:
        output = await client.call("give", {"text": "hi"})
        assert await client.call(None, {"text": "hi"}) == output
        assert [chunk async for chunk in client.stream(None, {"text": "hi"})] == [output]


@each_dialect
@each_kind
async def test_an_unknown_skill_is_not_found(dialect: str, kind: str) -> None:
    async with agent({"give": ActionModule(echo)}, dialect, kind) as client:
        with pytest.raises(SkillNotFoundError) as raised:
            await client.call("nothing", {})
        with pytest.raises(SkillNotFoundError):
            _ = [chunk async for chunk in client.stream("nothing", {})]
    assert raised.value.code == -32601
    assert not isinstance(raised.value, MethodNotFoundError)


@each_dialect
@each_kind
async def test_a_failed_call_raises_an_error_with_its_task(dialect: str, kind: str) -> None:
    async def action(inputs: Inputs, context: "Context[Any]") -> Any:
        raise InvalidInputError("not like this")

    async with agent({"work": ActionModule(action)}, dialect, kind) as client:
        with pytest.raises(TaskFailedError) as raised:
            await client.call("work", {})
        error = raised.value
        assert error.task == await client.get_task(error.task.id)
    assert error.task.status.state == TaskState.FAILED
    assert "not like this" in str(error)
    assert error.code == -32602


@each_dialect
@each_kind
async def test_a_call_whose_task_is_canceled_raises(dialect: str, kind: str) -> None:
    gate = Gate()
    async with agent({"work": ActionModule(gate)}, dialect, kind) as client:
        call = asyncio.create_task(client.call("work", {}, context_id="talk"))
        await gate.reached.wait()
        (task,) = (await client.list_tasks("talk")).tasks
        canceled = await client.cancel_task(task.id)
        assert canceled.status.state == TaskState.CANCELED
        with pytest.raises(TaskFailedError) as raised:
            await call
        assert raised.value.task.status.state == TaskState.CANCELED
        with pytest.raises(TaskNotCancelableError):
            await client.cancel_task(task.id)


@each_dialect
@each_kind
@pytest.mark.parametrize("answer", ["yes", "no"])
async def test_a_reply_approves_or_rejects_a_paused_call(
    dialect: str, kind: str, answer: str
) -> None:
    modules = {"pay": ActionModule(echo, annotations=NEEDS_APPROVAL)}
    async with agent(modules, dialect, kind) as client:
        with pytest.raises(InputRequired) as raised:
            await client.call("pay", {"amount": 5})
        paused = raised.value.task
        assert "Approval required" in str(raised.value)
        assert paused.status.state.is_paused
        task = await client.reply(paused, answer)
        assert task.id == paused.id
        if answer == "yes":
            assert (task.status.state, task.value) == ("completed", {"amount": 5})
        else:
            assert task.status.state == "rejected"
        with pytest.raises(UnsupportedOperationError):
            await client.reply(paused, "What was it about?")


@each_dialect
@each_kind
async def test_a_reply_completes_missing_input(dialect: str, kind: str) -> None:
    async with agent(str(EXAMPLES), dialect, kind) as client:
        with pytest.raises(InputRequired, match="in which unit"):
            await client.call("units.convert", "5 km", context_id="talk")
        (paused,) = [task async for task in client.iter_tasks("talk", state="input-required")]
        answered = await client.reply(paused, "mi")
    assert answered.value["text"] == "5 km = 3.10686 mi"


@each_dialect
@each_kind
async def test_waiting_for_a_resumed_task_lasts_to_its_end(dialect: str, kind: str) -> None:
    """The earlier pause must not end the wait."""
    gate = Gate()
    modules = {"pay": ActionModule(gate, annotations=NEEDS_APPROVAL)}
    async with agent(modules, dialect, kind) as client:
        paused = await client.send_message({"amount": 5}, skill="pay")
        replying = asyncio.create_task(client.reply(paused, "yes"))
        await gate.reached.wait()
        working = await client.get_task(paused.id)
        waiting = asyncio.create_task(client.wait(working))
        gate.opened.set()
        finished = [await replying, await waiting]
    assert [(task.status.state, task.value) for task in finished] == [
        ("completed", {"done": True})
    ] * 2


@each_dialect
@each_kind
async def test_a_call_repeated_with_its_idempotency_key_waits_for_the_answered_task(
    dialect: str, kind: str
) -> None:
    gate = Gate()
    headers = {"Idempotency-Key": "order-66"}
    modules = {"pay": ActionModule(gate, annotations=NEEDS_APPROVAL)}
    async with agent(modules, dialect, kind) as client:
        with pytest.raises(InputRequired) as raised:
            await client.call("pay", {"amount": 5}, headers=headers)
        replying = asyncio.create_task(client.reply(raised.value.task, "yes"))
        await gate.reached.wait()
        repeated_call = asyncio.create_task(client.call("pay", {"amount": 5}, headers=headers))
        await asyncio.wait([repeated_call], timeout=0.2)
        gate.opened.set()
        assert await repeated_call == {"done": True}
        assert (await replying).value == {"done": True}


@pytest.mark.parametrize(
    ("skill", "inputs"), [("nothing", {}), ("order", {}), ("fail", {"what": "value"}), ("pay", {})]
)
async def test_an_error_survives_pickling(skill: str, inputs: Inputs) -> None:
    modules = {
        "order": samples.OrderTotal(),
        "fail": samples.RaisingModule(),
        "pay": ActionModule(echo, annotations=NEEDS_APPROVAL),
    }
    async with agent(modules) as client:
        with pytest.raises(A2AError) as raised:
            await client.call(skill, inputs)
    error = pickle.loads(pickle.dumps(raised.value))
    assert (type(error), str(error)) == (type(raised.value), str(raised.value))
    assert vars(error) == vars(raised.value)


# Streams


@each_dialect
@each_kind
async def test_a_stream_has_all_events_in_order(dialect: str, kind: str) -> None:
    async with agent({"count": streaming_module({"n": 1}, {"n": 2})}, dialect, kind) as client:
        stream = client.stream_message({}, skill="count")
        events = [event async for event in stream]
        task: Task | None = None
        for event in events:
            task = apply_event(task, event)
        assert task is not None
        fetched = await client.get_task(task.id)
    assert kinds_of(events) == ["submitted", "working", "artifact", "artifact", "completed"]
    assert (task.status, task.artifacts) == (fetched.status, fetched.artifacts)


@each_dialect
@each_kind
async def test_a_stream_yields_the_values_of_its_chunks(dialect: str, kind: str) -> None:
    async with agent(
        {"count": streaming_module({"n": 1}, {"n": 2, "f": b"x"})}, dialect, kind
    ) as client:
        chunks = [chunk async for chunk in client.stream("count", {})]
    assert chunks == [{"n": 1}, {"n": 2, "f": b"x"}]


@each_dialect
@each_kind
async def test_chunks_arrive_while_the_module_runs(dialect: str, kind: str) -> None:
    gate = Gate()

    async def source(inputs: Inputs, context: "Context[Any]") -> AsyncIterator[Any]:
        yield {"n": 1}
        yield await gate(inputs, context)

    async with agent({"work": StreamModule(source)}, dialect, kind) as client:
        chunks = client.stream("work", {})
        assert await anext(chunks) == {"n": 1}
        gate.opened.set()
        assert [chunk async for chunk in chunks] == [{"done": True}]


@each_dialect
@each_kind
async def test_a_stream_whose_task_fails_raises_after_its_chunks(dialect: str, kind: str) -> None:
    failing = streaming_module({"n": 1}, error=InvalidInputError("no more"))
    async with agent({"work": failing}, dialect, kind) as client:
        stream = client.stream("work", {})
        assert await anext(stream) == {"n": 1}
        with pytest.raises(TaskFailedError, match="no more"):
            await anext(stream)


@each_dialect
@each_kind
async def test_a_stream_whose_task_pauses_raises_input_required(dialect: str, kind: str) -> None:
    modules = {"pay": ActionModule(echo, annotations=NEEDS_APPROVAL)}
    async with agent(modules, dialect, kind) as client:
        with pytest.raises(InputRequired) as raised:
            _ = [chunk async for chunk in client.stream("pay", {"amount": 5})]
        task = raised.value.task
        events = client.stream_message("yes", task_id=task.id, context_id=task.context_id)
        kinds = kinds_of([event async for event in events])
    assert kinds[-2:] == ["artifact", "completed"]


@each_dialect
@each_kind
async def test_a_paused_task_is_answered_by_a_streamed_message(dialect: str, kind: str) -> None:
    """The stream starts with the paused task, and must not end there."""
    modules = {"pay": ActionModule(echo, annotations=NEEDS_APPROVAL)}
    async with agent(modules, dialect, kind) as client:
        paused = await client.send_message({"amount": 5}, skill="pay")
        assert paused.status.state.is_paused
        events = [event async for event in client.stream_message("no", task_id=paused.id)]
        fetched = await client.get_task(paused.id)
    assert kinds_of(events)[-1] == fetched.status.state == "rejected"


def client_of_waiting_agent(
    kind: str, gate: Gate
) -> AbstractAsyncContextManager[tuple[A2AClient, RequestLog]]:
    """Return a client of an agent whose module waits, and the log of the server's requests."""
    return client_with_log(kind, {"work": ActionModule(gate), "give": ActionModule(echo)})


STREAMS: dict[str, Callable[[A2AClient], Events]] = {
    "stream_message": lambda client: client.stream_message({}, skill="work"),
    "stream": lambda client: client.stream("work", {}),
}


@each_kind
async def test_a_stream_that_is_closed_early_closes_its_connection(kind: str) -> None:
    gate = Gate()
    async with client_of_waiting_agent(kind, gate) as (client, request_log):
        async for _ in (stream := client.stream_message({}, skill="work")):
            break
        await gate.reached.wait()
        assert request_log.open_requests == 1
        await stream.aclose()
        await wait_until(lambda: not request_log.open_requests)
        assert await client.call("give", {"n": 1}) == {"n": 1}


async def test_a_stream_that_is_garbage_collected_closes_its_connection() -> None:
    gate = Gate()
    async with client_of_waiting_agent("async", gate) as (client, request_log):
        async for _ in client.stream_message({}, skill="work"):
            break
        await wait_until(lambda: not request_log.open_requests)


async def test_a_cancelled_call_closes_its_connection_and_its_task_continues() -> None:
    gate = Gate()
    async with client_of_waiting_agent("async", gate) as (client, request_log):
        call = asyncio.create_task(client.call("work", {}, context_id="talk"))
        await gate.reached.wait()
        await wait_until(lambda: request_log.open_requests)
        call.cancel()
        with suppress(asyncio.CancelledError):
            await call
        await wait_until(lambda: not request_log.open_requests)
        (task,) = (await client.list_tasks("talk")).tasks
        waiting = asyncio.create_task(client.wait(task))
        gate.opened.set()
        assert (await waiting).value == {"done": True}


@pytest.mark.parametrize("name", STREAMS)
async def test_a_cancelled_stream_closes_its_connection(name: str) -> None:
    gate = Gate()

    async def read(stream: Events) -> None:
        async for _ in stream:
            pass

    async with client_of_waiting_agent("async", gate) as (client, request_log):
        reading = asyncio.create_task(read(STREAMS[name](client)))
        await gate.reached.wait()
        assert request_log.open_requests == 1
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading
        await wait_until(lambda: not request_log.open_requests)


@each_dialect
@each_kind
async def test_a_running_task_can_be_subscribed_to(dialect: str, kind: str) -> None:
    gate = Gate()
    async with agent({"work": ActionModule(gate)}, dialect, kind) as client:
        task = await client.send_message({}, skill="work", blocking=False)
        await gate.reached.wait()
        async with aclosing(client.subscribe(task.id)) as stream:
            first = await anext(stream)
            gate.opened.set()
            rest = [event async for event in stream]
        assert isinstance(first, Task)
        assert kinds_of([first, *rest]) == ["working", "artifact", "completed"]
        if dialect == "0.3":  # which sends the final state of a task that has ended
            assert kinds_of([event async for event in client.subscribe(task.id)]) == ["completed"]
        else:
            with pytest.raises(UnsupportedOperationError):
                await anext(client.subscribe(task.id))


@each_dialect
@each_kind
async def test_reading_a_task_stops_at_a_pause_and_closes_the_stream(
    dialect: str, kind: str
) -> None:
    """The agent keeps a subscription open until the task ends."""
    gate = Gate()

    async def ask(inputs: Inputs, context: "Context[Any]") -> Inputs:
        await gate(inputs, context)
        raise InputRequiredError("Which one?")

    def streams_of(client: A2AClient, task: Task) -> list[Events]:
        return [client.subscribe(task.id), client.follow(task)]

    async def states_of(events: Events) -> list[str]:
        return [kind for kind in kinds_of([event async for event in events]) if kind != "artifact"]

    async with (
        serving_agent({"work": ActionModule(ask)}, keep_alive=0.05) as server,
        connected_client(server.base_url(dialect), kind) as client,
    ):
        streams = server.app.state.agent.handler.streams
        task = await client.send_message({}, skill="work", blocking=False)
        await gate.reached.wait()
        reading = [asyncio.create_task(states_of(events)) for events in streams_of(client, task)]
        waiting = asyncio.create_task(client.wait(task))
        # over 0.3, `follow` and `wait` poll
        await wait_until(lambda: dialect == "0.3" or len(streams) == 3)
        gate.opened.set()
        assert [(await states)[-1] for states in reading] == ["input-required"] * 2
        paused = await waiting
        assert paused.status.state.is_paused
        assert await states_of(client.subscribe(task.id)) == ["input-required"]
        assert await states_of(client.follow(paused)) == []
        await wait_until(lambda: not len(streams))


@each_dialect
@each_kind
async def test_a_subscription_can_start_after_a_known_event(dialect: str, kind: str) -> None:
    async with agent({"count": streaming_module({"n": 1}, {"n": 2})}, dialect, kind) as client:
        task = await client.send_message({}, skill="count", blocking=False)
        finished = await client.wait(task)
        all_events = [event async for event in client.subscribe(task.id, last_event_id="0")]
        rest = [event async for event in client.subscribe(task.id, last_event_id="2")]
    assert finished.status.state == TaskState.COMPLETED
    assert rest == all_events[2:]
    assert kinds_of(rest)[-1] == "completed"
    assert isinstance(rest[-1], TaskStatusUpdateEvent)


@each_dialect
@each_kind
async def test_a_task_can_be_followed_to_its_end(dialect: str, kind: str) -> None:
    gate = Gate()
    async with agent({"work": ActionModule(gate)}, dialect, kind) as client:
        task = await client.send_message({}, skill="work", blocking=False)
        await gate.reached.wait()
        gate.opened.set()
        events = [event async for event in client.follow(task)]
        fetched = await client.get_task(task.id)
        assert [event async for event in client.follow(fetched)] == []
    folded: Task = task
    for event in events:
        folded = apply_event(folded, event)
    assert (folded.status, folded.artifacts) == (fetched.status, fetched.artifacts)


@pytest.mark.parametrize("dialect", ["1.0" + POLLED, "0.3" + POLLED])
@each_kind
async def test_an_agent_without_streaming_is_polled(dialect: str, kind: str) -> None:
    modules = {
        "work": slow_module(0.3),
        "pay": ActionModule(echo, annotations=NEEDS_APPROVAL),
    }
    async with agent(modules, dialect, kind) as client:
        assert not (await client.agent_card).capabilities.streaming
        assert await client.call("work", {}) == {"took": 0.3}
        kinds = kinds_of([event async for event in client.stream_message({}, skill="work")])
        assert kinds[-1] == "completed"
        with pytest.raises(InputRequired) as raised:
            await client.call("pay", {"amount": 5})
        assert (await client.reply(raised.value.task, "yes")).value == {"amount": 5}


@pytest.mark.parametrize("dialect", ["1.0" + POLLED, "0.3" + POLLED])
@each_kind
async def test_the_value_is_the_only_chunk_of_an_agent_without_streaming(
    dialect: str, kind: str
) -> None:
    async with agent({"give": ActionModule(echo)}, dialect, kind) as client:
        assert [chunk async for chunk in client.stream("give", {"n": 1})] == [{"n": 1}]


# Tasks


@each_dialect
@each_kind
async def test_an_unknown_task_is_not_found(dialect: str, kind: str) -> None:
    async with agent({"give": ActionModule(echo)}, dialect, kind) as client:
        with pytest.raises(TaskNotFoundError) as raised:
            await client.get_task("no such task?")
        with pytest.raises(TaskNotFoundError):
            await client.cancel_task("nothing")
        with pytest.raises(TaskNotFoundError):
            _ = [event async for event in client.subscribe("nothing")]
    assert raised.value.code == -32001


@each_dialect
@each_kind
async def test_tasks_are_listed_in_pages(dialect: str, kind: str) -> None:
    modules = {"give": ActionModule(echo), "fail": samples.RaisingModule()}
    async with agent(modules, dialect, kind) as client:
        sent_tasks = [
            await client.send_message({"n": n}, skill="give", context_id="a") for n in range(5)
        ]
        failed_task = await client.send_message({"what": "value"}, skill="fail", context_id="b")
        first = await client.list_tasks(page_size=2)
        second = await client.list_tasks(page_size=2, cursor=first.next_cursor)
        all_ids = [task.id async for task in client.iter_tasks(page_size=2)]
        ids_in_context = [task.id async for task in client.iter_tasks("a", page_size=2)]
        failures = [task.id async for task in client.iter_tasks(state="failed")]
        page = await client.list_tasks("a", state="completed", page_size=5)
        with pytest.raises(ValueError, match="nonsense"):
            await client.list_tasks(state="nonsense")
        with pytest.raises(InvalidParamsError):
            await client.list_tasks(cursor="nonsense")
    ids = [task.id for task in sent_tasks]
    assert sorted(all_ids) == sorted([*ids, failed_task.id])
    assert [task.id for task in (*first.tasks, *second.tasks)] == all_ids[:4]
    assert sorted(ids_in_context) == sorted(ids)
    assert failures == [failed_task.id]
    assert len(page.tasks) == 5
    assert page.next_cursor == ""


@each_dialect
@each_kind
@pytest.mark.parametrize("operation", ["set", "get", "list", "delete"])
async def test_push_configs_raise_an_error_if_the_agent_has_no_push_notifications(
    dialect: str, kind: str, operation: str
) -> None:
    async with agent({"give": ActionModule(echo)}, dialect, kind) as client:
        task = await client.send_message({}, skill="give")
        config = PushNotificationConfig(url="https://hook.example", task_id=task.id)
        operations: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
            "set": lambda: client.set_push_config(config),
            "get": lambda: client.get_push_config(task.id, "c"),
            "list": lambda: client.list_push_configs(task.id),
            "delete": lambda: client.delete_push_config(task.id, "c"),
        }
        with pytest.raises(PushNotificationNotSupportedError):
            await operations[operation]()
        with pytest.raises(PushNotificationNotSupportedError):
            await client.send_message({}, skill="give", push_config=config)


def without_status(config: PushNotificationConfig) -> PushNotificationConfig:
    """Return *config* without the status that our server adds."""
    return replace(config, extra={})


WITH_PUSH = {"push_notifications": PushSettings(dev=True, retries=())}


@each_dialect
@each_kind
async def test_push_configs_are_set_read_listed_and_deleted(dialect: str, kind: str) -> None:
    async with agent({"give": ActionModule(echo)}, dialect, kind, options=WITH_PUSH) as client:
        task = await client.send_message({}, skill="give")
        config = PushNotificationConfig(
            url="http://127.0.0.1:9/hook",
            task_id=task.id,
            id="c1",
            token="t-1",
            authentication=AuthenticationInfo(scheme="Bearer", credentials="sesame"),
        )
        assert without_status(await client.set_push_config(config)) == config
        assert without_status(await client.get_push_config(task.id, "c1")) == config
        second_config = replace(config, id="c2", authentication=None)
        await client.set_push_config(second_config)
        assert [*map(without_status, await client.list_push_configs(task.id))] == [
            config,
            second_config,
        ]
        await client.delete_push_config(task.id, "c1")
        assert [*map(without_status, await client.list_push_configs(task.id))] == [second_config]
        with pytest.raises(TaskNotFoundError):
            await client.get_push_config(task.id, "c1")
        with pytest.raises(InvalidParamsError, match="URL"):
            await client.set_push_config(replace(config, url="ftp://127.0.0.1/"))


@each_dialect
@each_kind
async def test_a_message_can_set_a_push_config(dialect: str, kind: str) -> None:
    with receiving() as receiver:
        config = PushNotificationConfig(url=receiver.url, id="c1", token="t-1")
        async with agent({"give": ActionModule(echo)}, dialect, kind, options=WITH_PUSH) as client:
            task = await client.send_message({}, skill="give", push_config=config)
            (stored,) = await client.list_push_configs(task.id)
            assert without_status(stored) == replace(config, task_id=task.id)
            await asyncio.to_thread(receiver.wait, 3)
    assert receiver.states == ["submitted", "working", "completed"]


@each_dialect
@each_kind
async def test_a_push_config_has_the_reason_of_a_failed_delivery(dialect: str, kind: str) -> None:
    with receiving(lambda delivery: Reply(500)) as receiver:
        config = PushNotificationConfig(url=receiver.url, id="c1")
        async with agent({"give": ActionModule(echo)}, dialect, kind, options=WITH_PUSH) as client:
            task = await client.send_message({}, skill="give", push_config=config)
            await asyncio.to_thread(receiver.wait, 1)
            stored = await client.get_push_config(task.id, "c1")
            while stored.extra.get("status") != "failed":  # there is no event to await
                stored = await client.get_push_config(task.id, "c1")
            assert without_status(stored) == replace(config, task_id=task.id)
            assert stored.extra["reason"] == "status 500"
            assert await client.list_push_configs(task.id) == (stored,)


# Use of a client


@each_dialect
@each_kind
async def test_a_client_makes_concurrent_calls(dialect: str, kind: str) -> None:
    async with agent({"give": ActionModule(echo)}, dialect, kind) as client:
        calls = (client.call("give", {"n": n}) for n in range(40))
        assert await asyncio.gather(*calls) == [{"n": n} for n in range(40)]


@pytest.mark.clock
async def test_more_than_100_calls_can_wait_at_the_same_time() -> None:
    """By default, a pool of httpx has 100 connections; the pool of our clients has no limit."""
    gate, count = Gate(), 110
    options: dict[str, Any] = {"max_runs": 200, "max_streams": 200}
    options["limits"] = Limits(max_streams_per_client=200, client_share=None)
    options["keep_alive"] = 1  # so that no stream ends because it is silent
    async with agent(
        {"work": ActionModule(gate)}, options=options, timeout=10, retries=0
    ) as client:
        await client.get_card()
        calls = [asyncio.create_task(client.call("work", {})) for _ in range(count)]
        # longer than the 10 s after which a call without a connection fails
        finished_calls, _ = await asyncio.wait(calls, timeout=12, return_when=FIRST_COMPLETED)
        gate.opened.set()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert not finished_calls
    assert outcomes == [{"done": True}] * count


@each_dialect
@each_kind
async def test_a_client_can_be_used_after_errors(dialect: str, kind: str) -> None:
    modules = {
        "give": ActionModule(echo),
        "order": samples.OrderTotal(),
        "fail": samples.RaisingModule(),
    }
    async with agent(modules, dialect, kind) as client:
        failing_calls: list[tuple[str, Inputs]] = [
            ("nothing", {}),
            ("order", {}),
            ("fail", {"what": "value"}),
        ]
        for skill, inputs in failing_calls * 2:
            with pytest.raises(A2AError):
                await client.call(skill, inputs)
            with pytest.raises(A2AError):
                _ = [chunk async for chunk in client.stream(skill, inputs)]
            assert await client.call("give", {"n": 1}) == {"n": 1}


async def test_an_httpx_client_of_the_caller_stays_open() -> None:
    async with serving_agent({"give": ActionModule(echo)}) as server:
        url = server.url
        async with httpx.AsyncClient() as http:
            async with A2AClient(url, http_client=http) as client:
                assert await client.call("give", {"n": 1}) == {"n": 1}
            assert not http.is_closed
            async with A2AClient(url, http_client=http) as client:
                assert await client.call("give", {"n": 2}) == {"n": 2}
    assert http.is_closed


def test_a_blocking_httpx_client_of_the_caller_stays_open() -> None:
    with running(registry_of({"give": ActionModule(echo)})) as url, httpx.Client() as http:
        with SyncA2AClient(url, http_client=http) as client:
            assert client.call("give", {"n": 1}) == {"n": 1}
        assert not http.is_closed


@each_kind
async def test_a_closed_client_raises_an_error(kind: str) -> None:
    async with serving_agent({"give": ActionModule(echo)}) as server:
        async with connected_client(server.url, kind) as client:
            await client.call("give", {"n": 1})
        await client.aclose()
        with pytest.raises((A2AError, RuntimeError), match="closed"):
            await client.call("give", {"n": 1})


async def test_the_blocking_client_works_inside_an_event_loop() -> None:
    def use(url: str) -> tuple[Any, list[Any]]:
        with SyncA2AClient(url) as client:
            return client.call("give", {"n": 1}), list(client.stream("count", {}))

    modules = {"give": ActionModule(echo), "count": streaming_module({"n": 1}, {"n": 2})}
    with running(registry_of(modules)) as url:
        expected = ({"n": 1}, [{"n": 1}, {"n": 2}])
        assert use(url) == expected
        assert await asyncio.wait_for(asyncio.to_thread(use, url), PATIENCE) == expected


def test_the_blocking_client_needs_no_context_manager() -> None:
    with running(str(EXAMPLES)) as url:
        client = SyncA2AClient(url)
        assert client.agent_card.skill("text.stats") is not None
        stats = client.call("text.stats", {"text": "To be, or not to be."})
        assert stats["total"]["words"] == 6
        reports = list(client.stream("jobs.countdown", {"seconds": 0.1, "step": 0.05}))
        client.close()
    assert [report["done"] for report in reports] == [False, False, True]


async def test_a_module_can_call_another_agent() -> None:
    """The agent in the middle is both client and server."""
    with running(registry_of({"give": ActionModule(echo)})) as url:
        async with A2AClient(url) as remote:

            async def action(inputs: Inputs, context: "Context[Any]") -> Any:
                return await remote.call("give", inputs)

            async with agent({"relay": ActionModule(action)}) as client:
                assert await client.call("relay", {"n": 1}) == {"n": 1}


@each_dialect
@each_kind
async def test_a_subscription_resumes_after_a_given_event_id(dialect: str, kind: str) -> None:
    """Another process could resume too: the ids of the task and of the event are enough."""
    async with agent({"count": streaming_module({"n": 1}, {"n": 2})}, dialect, kind) as client:
        events = [event async for event in client.stream_message({}, skill="count")]
        assert [event.event_id for event in events] == [str(n + 1) for n in range(len(events))]
        last_seen_event = events[2]
        assert isinstance(last_seen_event, TaskArtifactUpdateEvent)
        rest = [
            e
            async for e in client.subscribe(
                last_seen_event.task_id, last_event_id=last_seen_event.event_id
            )
        ]
    assert rest == events[3:]
    assert "event_id" not in repr(last_seen_event)
    assert last_seen_event.to_dict().keys() == {"taskId", "contextId", "artifact", "metadata"}


@each_dialect
async def test_streams_reuse_their_connection(dialect: str) -> None:
    connects: list[str] = []

    async def record_connect(event: str, _: Any) -> None:
        if event == "connection.connect_tcp.complete":
            connects.append(event)

    async def trace(request: httpx.Request) -> None:
        request.extensions["trace"] = record_connect

    async with (
        httpx.AsyncClient(event_hooks={"request": [trace]}) as http,
        agent({"count": streaming_module({"n": 1}, {"n": 2})}, dialect, http_client=http) as client,
    ):
        for _ in range(3):
            events = [event async for event in client.stream_message({}, skill="count")]
            assert len(events) == 5
    assert len(connects) == 1
