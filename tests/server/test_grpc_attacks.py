"""Hostile clients of the gRPC binding: sizes, unfinished calls, and many at once."""

import asyncio
import gc
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
import pytest
from a2a.types import a2a_pb2 as pb
from apcore import Identity
from apcore_a2a_auth import APIKeyAuthenticator
from apcore_a2a_server import Limits
from apcore_a2a_server.bindings import grpc as binding
from apcore_a2a_server.bindings import grpc_limits
from google.rpc.error_details_pb2 import (  # type: ignore[import-untyped]  # no py.typed
    ErrorInfo,
    RetryInfo,
)

from tests.serving import PATIENCE

from .grpc_caller import Caller, connected_caller, details_of, request_for, serving_grpc
from .inloop import ActionModule, Gate, echo, wait_until
from .inloop import anyio_backend as anyio_backend
from .test_grpc import failure

pytestmark = pytest.mark.anyio

Code = grpc.StatusCode
SEND = "/lf.a2a.v1.A2AService/SendMessage"
STREAM = "/lf.a2a.v1.A2AService/SendStreamingMessage"
MODULES: dict[str, object] = {"work": ActionModule(echo)}
TIMEOUT = 0.2
"""Seconds within which a request must arrive, in tests that wait for this timeout."""


@pytest.fixture
async def caller(anyio_backend: Any) -> AsyncIterator[Caller]:
    async with serving_grpc(MODULES, max_body=64 * 1024) as caller:
        yield caller
        assert (await caller.send("work", n=5)).status.state == pb.TASK_STATE_COMPLETED


def field(number: int, content: bytes) -> bytes:
    """Return a length-delimited field of a protobuf message."""
    size, digits = len(content), bytearray([number << 3 | 2])
    while size > 127:
        digits.append(size & 127 | 128)
        size >>= 7
    return bytes(digits) + bytes([size]) + content


def encoded_request(value: bytes) -> bytes:
    """Return an encoded send whose last part has the encoded data *value*."""
    return request_for().SerializeToString() + field(2, field(5, field(4, value)))


async def test_a_message_above_the_limit_is_refused(caller: Caller) -> None:
    error = await failure(caller.stub.SendMessage(request_for(text="x" * 100_000)))
    assert error.code() == Code.RESOURCE_EXHAUSTED


async def test_compressed_messages_are_refused_unread(caller: Caller) -> None:
    for algorithm in (grpc.Compression.Gzip, grpc.Compression.Deflate):
        call = caller.stub.SendMessage(request_for(text="x" * 1_000), compression=algorithm)
        assert (await failure(call)).code() == Code.UNIMPLEMENTED
    # a compressed message that claims to be plain is not decompressed either
    call = caller.channel.unary_unary(SEND)(gzip.compress(bytes(10_000_000)))
    assert (await failure(call)).code() == Code.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "body",
    [
        encoded_request(field(6, field(1, b"") * 20_000)),
        encoded_request(field(6, b"\x0a\x02\x08\x00" * 10_000)),
        encoded_request(field(5, field(1, field(1, b"k") + field(2, b"\x08\x00")) * 6_000)),
        field(2, field(5, b"") * 20_000),
        field(2, field(1, b"") * 20_000),
        b"\x0b" * 40_000,
        b"\xfb\x01" * 20_000,
    ],
    ids=["empty values", "nulls", "members", "parts", "ids", "groups", "unknown groups"],
)
async def test_too_many_values_are_refused_unparsed(body: bytes) -> None:
    async with serving_grpc(MODULES, limits=Limits(max_values=1000)) as caller:
        error = await failure(caller.channel.unary_unary(SEND)(body))
    assert (error.code(), error.details()) == (
        Code.INVALID_ARGUMENT,
        "The body has more than 1000 values",
    )
    assert details_of(error, ErrorInfo)


async def test_the_content_of_a_text_does_not_count_as_values() -> None:
    async with serving_grpc(MODULES, limits=Limits(max_values=100)) as caller:
        text = "*\n\x00," * 10_000
        task = await caller.send("work", text=text)
    assert task.artifacts[0].parts[0].data.struct_value["text"] == text


def nested(depth: int) -> bytes:
    value = b"\x08\x00"
    for _ in range(depth):
        value = field(6, field(1, value))
    return value


@pytest.mark.parametrize(
    "body",
    [b"\xff" * 100, b"\x80" * 60_000, field(2, b"\xff" * 10), field(2, field(1, b"\xff"))]
    + [encoded_request(nested(depth)) for depth in (32, 48, 49, 60, 2_000)],
)
@pytest.mark.parametrize("method", [SEND, STREAM])
async def test_malformed_and_too_deeply_nested_messages_are_invalid(
    caller: Caller, method: str, body: bytes
) -> None:
    call: Any = caller.channel.unary_unary(method)(body)
    error = await failure(call)
    assert error.code() == Code.INVALID_ARGUMENT
    assert details_of(error, ErrorInfo)[0].reason in ("INVALID_REQUEST", "INVALID_PARAMS")


async def test_a_call_without_a_message_is_invalid(caller: Caller) -> None:
    call = caller.channel.stream_unary(SEND)()
    await call.done_writing()
    assert (await failure(call)).code() == Code.INVALID_ARGUMENT


async def test_only_the_first_message_of_a_call_counts(caller: Caller) -> None:
    bodies = [request_for(n=n).SerializeToString() for n in range(3)]
    response = await caller.channel.stream_unary(SEND)(iter(bodies))
    task = pb.SendMessageResponse.FromString(response).task
    assert task.history[0].parts[0].data.struct_value["n"] == 0
    assert (await caller.stub.ListTasks(pb.ListTasksRequest())).total_size == 1


@pytest.mark.parametrize("method", ["stream_unary", "stream_stream"])
async def test_a_call_whose_message_does_not_arrive_in_time_is_ended(method: str) -> None:
    async with serving_grpc(MODULES, request_timeout=TIMEOUT, max_body=1000) as caller:
        call = getattr(caller.channel, method)(SEND if method == "stream_unary" else STREAM)()
        assert await call.code() == Code.DEADLINE_EXCEEDED
        assert await call.details() == "The request did not arrive in time"
        await caller.send()


async def test_a_client_with_unfinished_messages_delays_only_its_own_messages() -> None:
    metadata = [("x-name", "eve")]
    options: Any = {"max_body": 1000, "limits": Limits(memory=8000)}  # four read slots
    async with (
        serving_grpc(MODULES, client_key=lambda headers, _: headers["x-name"], **options) as eve,
        connected_caller(eve.peer, eve.address, {"x-name": "ada"}) as ada,
    ):
        unfinished = [eve.channel.stream_unary(SEND)(metadata=metadata) for _ in range(6)]
        for call in unfinished:
            await call.wait_for_connection()
        await ada.send()
        delayed = eve.channel.unary_unary(SEND)(
            request_for().SerializeToString(), metadata=metadata
        )
        await ada.send()
        assert not delayed.done()
        for call in unfinished:
            call.cancel()
        await delayed


async def test_huge_metadata_is_refused(caller: Caller) -> None:
    for metadata in ([("x", "y" * 1_000_000)], [(f"x-{n}", "y" * 100) for n in range(10_000)]):
        call = caller.stub.ListTasks(pb.ListTasksRequest(), metadata=metadata)
        assert (await failure(call)).code() in (Code.RESOURCE_EXHAUSTED, Code.UNAVAILABLE)
        async with connected_caller(caller.peer, caller.address, {}) as second:
            await second.send()


@pytest.mark.parametrize("text", ["x", "\n", "é", "😀"])
async def test_a_long_error_reaches_the_client(caller: Caller, text: str) -> None:
    error = await failure(caller.stub.SendMessage(request_for(text * 10_000)))
    assert error.code() == Code.NOT_FOUND
    assert details_of(error, ErrorInfo)


async def test_calls_beyond_the_limit_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_limits, "OTHER_CALLS", 0)
    reads, original_read = list[str](), binding.CallInterceptor._read

    async def recorded_read(self: Any, requests: Any, client: str) -> Any:
        reads.append(client)
        return await original_read(self, requests, client)

    monkeypatch.setattr(binding.CallInterceptor, "_read", recorded_read)
    gate = Gate()
    options: Any = {"max_runs": 2, "max_streams": 1, "limits": Limits(client_share=None)}
    async with serving_grpc({"wait": ActionModule(gate)}, **options) as caller:
        task = await caller.start("wait")
        waiting = asyncio.ensure_future(caller.send("wait"))
        await wait_until(lambda: len(caller.peer.agent.engine.runs) == 2)
        subscription = caller.stub.SubscribeToTask(pb.SubscribeToTaskRequest(id=task.id))
        await subscription.read()
        before = len(reads)
        third = caller.channel.stream_unary(SEND)()
        await third.wait_for_connection()
        await wait_until(lambda: len(reads) > before)
        error = await failure(caller.stub.ListTasks(pb.ListTasksRequest()))
        assert error.code() == Code.RESOURCE_EXHAUSTED
        third.cancel()
        gate.opened.set()
        await waiting
        await caller.stub.ListTasks(pb.ListTasksRequest())


@asynccontextmanager
async def eve_and_ada(**options: Any) -> AsyncIterator[tuple[Caller, Caller]]:
    """Yield two clients of one agent, each with a connection of its own."""
    metadata = {"x-name": "eve"}
    async with (
        serving_grpc(
            MODULES, metadata, client_key=lambda headers, _: headers["x-name"], **options
        ) as eve,
        connected_caller(eve.peer, eve.address, {"x-name": "ada"}) as ada,
    ):
        yield eve, ada


@pytest.fixture
def eight_calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return options for an agent that allows eight open calls."""
    monkeypatch.setattr(grpc_limits, "OTHER_CALLS", 0)
    return {"max_runs": 6, "max_streams": 2}


@asynccontextmanager
async def calls_without_message(caller: Caller, count: int) -> AsyncIterator[list[Any]]:
    """Begin calls that send only headers, half of them of a method that streams."""
    channel, metadata = caller.channel, caller.pairs
    calls = [channel.stream_unary(SEND)(metadata=metadata) for _ in range(count // 2)]
    calls += [channel.stream_stream(STREAM)(metadata=metadata) for _ in range(count // 2)]
    yield calls
    for call in calls:
        call.cancel()
        await call.code()


async def send_until_accepted(caller: Caller) -> None:
    """Send a message until it is accepted: the server may notice late that calls have ended."""
    while True:
        with suppress(grpc.aio.AioRpcError):
            await caller.send()
            return


async def test_a_client_may_have_half_of_the_open_calls(eight_calls: dict[str, Any]) -> None:
    async with eve_and_ada(**eight_calls) as (eve, ada):
        # eight at most: gRPC itself refuses more before their client is known
        async with calls_without_message(eve, 8) as calls:
            await wait_until(lambda: sum(call.done() for call in calls) == 4)
            for call in calls:
                if call.done():
                    assert await call.code() == Code.RESOURCE_EXHAUSTED
                    assert await call.details() == "Too many calls of this client are open"
            error = await failure(eve.send())
            assert details_of(error, ErrorInfo)
            (retry,) = details_of(error, RetryInfo)
            assert retry.retry_delay.ToSeconds() == 1
            await ada.send()
        await send_until_accepted(eve)


@pytest.mark.parametrize("share", [None, 1.0, 0.25])
async def test_the_share_of_open_calls_can_be_chosen(
    share: float | None, eight_calls: dict[str, Any]
) -> None:
    async with (
        eve_and_ada(**eight_calls, limits=Limits(client_share=share)) as (eve, ada),
        calls_without_message(eve, 10) as calls,
    ):
        await wait_until(lambda: sum(call.done() for call in calls) == (8 if share == 0.25 else 2))
        if share == 0.25:
            await ada.send()
        else:
            assert (await failure(ada.send())).code() == Code.RESOURCE_EXHAUSTED


async def test_the_metrics_count_open_calls_and_those_without_a_message() -> None:
    gate = Gate()
    async with serving_grpc({"wait": ActionModule(gate)}, metrics=True) as caller:

        async def wait_for_counts(open_calls: int, unread_calls: int) -> None:
            expected, counts = (open_calls, unread_calls), (-1, -1)
            while counts != expected:
                page = (await caller.peer.client.get("/metrics")).json()
                counts = page["grpc_open_calls"], page["grpc_unread_calls"]

        await wait_for_counts(0, 0)
        waiting = asyncio.ensure_future(caller.send("wait"))
        await gate.reached.wait()
        async with calls_without_message(caller, 4):
            await wait_for_counts(5, 4)
        gate.opened.set()
        await waiting
        await wait_for_counts(0, 0)


async def test_a_call_is_open_until_its_response_is_read(eight_calls: dict[str, Any]) -> None:
    large = request_for(text="x" * 1_000_000).SerializeToString()
    small_window = ("grpc.http2.bdp_probe", 0)  # else it grows to the whole response
    async with (
        eve_and_ada(**eight_calls) as (eve, ada),
        connected_caller(eve.peer, eve.address, eve.metadata, small_window) as slow,
    ):
        completed = pb.ListTasksRequest(status=pb.TASK_STATE_COMPLETED)
        calls = list[Any]()
        for count in range(1, 5):  # one after the other: only three tasks of eve may run at once
            calls.append(slow.channel.unary_stream(SEND)(large, metadata=eve.pairs))
            while (await ada.stub.ListTasks(completed, metadata=ada.pairs)).total_size < count:
                assert not calls[-1].done()
        error = await failure(eve.send())
        assert error.details() == "Too many calls of this client are open"
        await ada.send()
        for call in calls:
            assert await call.read()
            assert await call.code() == Code.OK
        await send_until_accepted(eve)


@pytest.mark.parametrize("data", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 100, b"PRI * HTTP/2.0"])
async def test_a_connection_that_does_not_speak_http_2_is_closed(data: bytes) -> None:
    async with serving_grpc(MODULES, request_timeout=TIMEOUT) as caller:
        host, _, port = caller.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(data)
        async with asyncio.timeout(PATIENCE):
            await reader.read(-1)
        writer.close()
        await caller.send()


async def test_many_canceled_calls_leak_nothing(caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate()
    modules = {"wait": ActionModule(gate), "work": ActionModule(echo)}
    async with serving_grpc(modules, limits=Limits(disconnect_grace=0)) as caller:
        agent = caller.peer.agent
        for method in ("SendMessage", "SendStreamingMessage"):
            calls = [getattr(caller.stub, method)(request_for("wait")) for _ in range(50)]
            await wait_until(lambda: len(agent.engine.runs) == 50)
            for call in calls:
                call.cancel()
            await wait_until(lambda: not agent.engine.runs)
        await wait_until(lambda: len(agent.handler.streams) == 0)
        assert not agent.handler.watchers._watchers
        gc.collect()
        await caller.send()
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_call_with_wrong_credentials_is_refused_before_its_message() -> None:
    keys = APIKeyAuthenticator({"the key of ada": Identity("ada")})
    async with serving_grpc(MODULES, {"x-api-key": "the key of ada"}, auth=keys) as caller:
        call = caller.channel.stream_unary(SEND)(metadata=[("x-api-key", "wrong")])
        assert await call.code() == Code.UNAUTHENTICATED
        await caller.send()
