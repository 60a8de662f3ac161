"""The gRPC binding, called by the client of the official SDK and by a bare stub."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import closing
from typing import Any

import grpc
import pytest
from a2a.client import A2AClientError
from a2a.types import a2a_pb2 as pb
from a2a.utils import errors
from apcore import Identity
from apcore_a2a_auth import APIKeyAuthenticator
from apcore_a2a_core import EXTENSION_URI
from apcore_a2a_server import InMemoryTaskStore, Limits
from apcore_a2a_server.bindings.grpc import host_of
from apcore_a2a_server.push import PushSettings
from apcore_a2a_server.store import Event, TaskRecord, UnavailableError
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc.error_details_pb2 import (  # type: ignore[import-untyped]  # no py.typed
    BadRequest,
    ErrorInfo,
    RetryInfo,
)

from .grpc_caller import Caller, connected_caller, details_of, request_for, serving_grpc, status_of
from .inloop import (
    NEEDS_APPROVAL,
    ActionModule,
    Gate,
    LateCallbackLoop,
    StreamModule,
    echo,
    wait_until,
)
from .inloop import anyio_backend as anyio_backend
from .modules import SECRET

pytestmark = pytest.mark.anyio

Code = grpc.StatusCode
ADA, BOB = {"x-api-key": "the key of ada"}, {"x-api-key": "the key of bob"}
CARD = "/.well-known/agent-card.json"


async def count(inputs: Any, context: Any) -> AsyncIterator[Any]:
    for number in range(3):
        yield {"n": number}


async def fail(inputs: Any, context: Any) -> Any:
    raise RuntimeError(SECRET)


def modules(gate: Gate | None = None) -> dict[str, object]:
    return {
        "work": ActionModule(echo),
        "wait": ActionModule(gate or Gate()),
        "count": StreamModule(count),
        "fail": ActionModule(fail),
        "pay": ActionModule(echo, annotations=NEEDS_APPROVAL),
    }


def keys() -> APIKeyAuthenticator:
    return APIKeyAuthenticator(
        {ADA["x-api-key"]: Identity("ada"), BOB["x-api-key"]: Identity("bob")}
    )


@pytest.fixture
async def caller(anyio_backend: Any) -> AsyncIterator[Caller]:
    async with serving_grpc(modules()) as caller:
        yield caller


async def failure(call: Any) -> grpc.aio.AioRpcError:
    """Return the error of a call, unary or streaming."""
    response = call.read() if isinstance(call, grpc.aio.UnaryStreamCall) else call
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await response
    return raised.value


# The SDK's client


async def test_the_sdks_client_sends_a_message(caller: Caller) -> None:
    (response,) = [event async for event in caller.blocking.send_message(request_for("work", n=5))]
    task = response.task
    assert task.status.state == pb.TASK_STATE_COMPLETED
    assert task.artifacts[0].parts[0].data.struct_value["n"] == 5
    assert await caller.client.get_task(pb.GetTaskRequest(id=task.id)) == task


async def test_the_sdks_client_reads_a_stream(caller: Caller) -> None:
    events = [event async for event in caller.client.send_message(request_for("count"))]
    assert [event.WhichOneof("payload") for event in events] == [
        "task",
        "status_update",
        "artifact_update",
        "artifact_update",
        "artifact_update",
        "status_update",
    ]
    assert events[-1].status_update.status.state == pb.TASK_STATE_COMPLETED


async def test_the_sdks_client_lists_its_tasks_page_by_page(caller: Caller) -> None:
    ids = [(await caller.send("work", n=n)).id for n in range(3)]
    page = await caller.client.list_tasks(pb.ListTasksRequest(page_size=2))
    assert [task.id for task in page.tasks] == ids[:0:-1]
    assert (page.page_size, page.total_size) == (2, 3)
    second_page = pb.ListTasksRequest(page_size=2, page_token=page.next_page_token)
    assert [task.id for task in (await caller.client.list_tasks(second_page)).tasks] == ids[:1]


async def test_the_sdks_client_subscribes_to_a_task_and_cancels_it() -> None:
    gate = Gate()
    async with serving_grpc(modules(gate)) as caller:
        task = await caller.start("wait")
        await gate.reached.wait()
        events = caller.client.subscribe(pb.SubscribeToTaskRequest(id=task.id))
        assert (await anext(events)).task.status.state == pb.TASK_STATE_WORKING
        canceled = await caller.client.cancel_task(pb.CancelTaskRequest(id=task.id))
        assert canceled.status.state == pb.TASK_STATE_CANCELED
        last = [event async for event in events][-1]
        assert last.status_update.status.state == pb.TASK_STATE_CANCELED
        await gate.canceled.wait()
        with pytest.raises(errors.TaskNotCancelableError):
            await caller.client.cancel_task(pb.CancelTaskRequest(id=task.id))
        with pytest.raises(errors.UnsupportedOperationError):
            await anext(caller.client.subscribe(pb.SubscribeToTaskRequest(id=task.id)))


async def test_the_sdks_client_manages_push_configs() -> None:
    async with serving_grpc(modules(), push_notifications=PushSettings(dev=True)) as caller:
        task = await caller.send()
        config = pb.TaskPushNotificationConfig(
            task_id=task.id, id="c1", url="http://127.0.0.1:9/hook", token="t-1"
        )
        names = {"task_id": task.id, "id": "c1"}
        client = caller.client
        assert await client.create_task_push_notification_config(config) == config
        get_request = pb.GetTaskPushNotificationConfigRequest(**names)
        assert await client.get_task_push_notification_config(get_request) == config
        list_request = pb.ListTaskPushNotificationConfigsRequest(task_id=task.id)
        assert [*(await client.list_task_push_notification_configs(list_request)).configs] == [
            config
        ]
        delete_request = pb.DeleteTaskPushNotificationConfigRequest(**names)
        await client.delete_task_push_notification_config(delete_request)
        with pytest.raises(errors.TaskNotFoundError):
            await client.get_task_push_notification_config(get_request)


async def test_the_sdks_client_reads_the_extended_card() -> None:
    async with serving_grpc(modules(), ADA, auth=keys()) as caller:
        request = pb.GetExtendedAgentCardRequest()
        card = await caller.client.get_extended_agent_card(request, context=caller.context)
        assert "pay" in {skill.id for skill in card.skills}


# Parity with the other bindings


async def test_a_task_sent_over_grpc_can_be_read_over_json_rpc(caller: Caller) -> None:
    task = await caller.send("work", n=5, list=[1, 2.5, None, True, "x"])
    over_http = await caller.peer.get(task.id)
    assert over_http["artifacts"][0]["parts"][0]["data"] == {
        "n": 5,
        "list": [1, 2.5, None, True, "x"],
    }
    assert over_http["history"][0]["messageId"] == task.history[0].message_id


async def test_whole_numbers_reach_modules_as_integers() -> None:
    received: list[Any] = []

    async def record(inputs: Any, context: Any) -> Any:
        received.append(json.dumps(inputs))
        return {}

    async with serving_grpc({"record": ActionModule(record)}) as caller:
        await caller.send("record", n=5, x=0.5)
    assert received == ['{"n": 5, "x": 0.5}']


async def test_history_and_artifacts_are_shortened_as_requested(caller: Caller) -> None:
    task = await caller.send("work", n=5)
    assert len(task.history) == 1
    short = await caller.stub.GetTask(pb.GetTaskRequest(id=task.id, history_length=0))
    assert (len(short.history), len(short.artifacts)) == (0, 1)
    (listed,) = (await caller.stub.ListTasks(pb.ListTasksRequest())).tasks
    assert len(listed.artifacts) == 0
    (listed,) = (await caller.stub.ListTasks(pb.ListTasksRequest(include_artifacts=True))).tasks
    assert len(listed.artifacts) == 1


async def test_a_module_continues_the_callers_trace() -> None:
    gate = Gate()
    gate.opened.set()
    trace = "0af7651916cd43dd8448eb211c80319c"
    metadata = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
    async with serving_grpc(modules(gate), metadata) as caller:
        await caller.send("wait")
    assert gate.contexts[0].trace_id == trace


@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage", "ListTasks"])
async def test_the_response_names_the_requested_extensions_that_the_agent_has(
    caller: Caller, method: str
) -> None:
    request = pb.ListTasksRequest() if method == "ListTasks" else request_for()
    for requested, expected in (
        (f"https://x, {EXTENSION_URI}", EXTENSION_URI),
        ("https://x", None),
    ):
        call = getattr(caller.stub, method)(request, metadata=[("a2a-extensions", requested)])
        if method == "SendStreamingMessage":
            assert [event async for event in call]
        assert dict(await call.initial_metadata()).get("a2a-extensions") == expected
        assert await call.code() == Code.OK


async def test_an_answer_resumes_a_paused_task(caller: Caller) -> None:
    task = await caller.send("pay", price=3)
    assert task.status.state == pb.TASK_STATE_INPUT_REQUIRED
    answer = request_for("pay", approved=True)
    answer.message.task_id = task.id
    task = (await caller.stub.SendMessage(answer)).task
    assert task.artifacts[0].parts[0].data.struct_value["price"] == 3


async def test_a_subscription_stays_open_at_a_pause(caller: Caller) -> None:
    task = await caller.send("pay", price=3)
    subscription = caller.stub.SubscribeToTask(pb.SubscribeToTaskRequest(id=task.id))
    events = aiter(subscription)
    assert (await anext(events)).task.status.state == pb.TASK_STATE_INPUT_REQUIRED
    answer = request_for("pay", approved=True)
    answer.message.task_id = task.id
    await caller.stub.SendMessage(answer)
    *_, last = [event async for event in events]
    assert last.status_update.status.state == pb.TASK_STATE_COMPLETED


async def test_a_send_with_a_used_idempotency_key_returns_the_same_task() -> None:
    async with serving_grpc(modules(), {"idempotency-key": "k1"}) as caller:
        first, second = await caller.send("work", n=5), await caller.send("work", n=5)
        assert first.id == second.id


async def test_the_card_names_grpc_last(caller: Caller) -> None:
    card = (await caller.peer.client.get(CARD)).json()
    *other_interfaces, last = card["supportedInterfaces"]
    assert last == {"url": "127.0.0.1:1", "protocolBinding": "GRPC", "protocolVersion": "1.0"}
    assert all(interface["protocolBinding"] != "GRPC" for interface in other_interfaces)


# Errors


def _request_with(**fields: Any) -> pb.SendMessageRequest:
    request = request_for()
    for name, value in fields.items():
        setattr(request.message, name, value)
    return request


INVALID: list[tuple[str, Any, str]] = [
    ("SendMessage", pb.SendMessageRequest(), "params.message"),
    ("SendMessage", _request_with(message_id=""), "params.message.messageId"),
    ("SendMessage", _request_with(role=pb.ROLE_AGENT), "params.message.role"),
    ("SendStreamingMessage", _request_with(message_id=""), "params.message.messageId"),
    ("GetTask", pb.GetTaskRequest(), "params.id"),
    ("GetTask", pb.GetTaskRequest(id="x", history_length=-1), "params.historyLength"),
    ("ListTasks", pb.ListTasksRequest(page_size=0), "params.pageSize"),
    ("ListTasks", pb.ListTasksRequest(page_size=101), "params.pageSize"),
    ("CancelTask", pb.CancelTaskRequest(), "params.id"),
    ("SubscribeToTask", pb.SubscribeToTaskRequest(), "params.id"),
    (
        "GetTaskPushNotificationConfig",
        pb.GetTaskPushNotificationConfigRequest(task_id="x"),
        "params.id",
    ),
]


@pytest.mark.parametrize(("method", "request_message", "field"), INVALID)
async def test_an_invalid_field_is_named(
    caller: Caller, method: str, request_message: Any, field: str
) -> None:
    error = await failure(getattr(caller.stub, method)(request_message))
    assert error.code() == Code.INVALID_ARGUMENT
    (info,) = details_of(error, ErrorInfo)
    assert (info.reason, info.domain) == ("INVALID_PARAMS", "a2a-protocol.org")
    (bad,) = details_of(error, BadRequest)
    assert [violation.field for violation in bad.field_violations] == [field]


def _with_number(number: float) -> pb.SendMessageRequest:
    request = request_for()
    request.message.parts[0].data.struct_value.update({"n": number})
    return request


@pytest.mark.parametrize(
    ("method", "request_message"),
    [
        ("SendMessage", _with_number(float("nan"))),
        ("SendMessage", _with_number(float("inf"))),
        ("ListTasks", pb.ListTasksRequest(status=99)),  # type: ignore[arg-type]  # an unknown state
        ("ListTasks", pb.ListTasksRequest(status_timestamp_after=Timestamp(seconds=2**62))),
    ],
)
async def test_values_that_json_cannot_represent_are_refused(
    caller: Caller, method: str, request_message: Any
) -> None:
    error = await failure(getattr(caller.stub, method)(request_message))
    assert error.code() == Code.INVALID_ARGUMENT
    assert details_of(error, ErrorInfo)[0].reason == "INVALID_PARAMS"


FAILURES: list[tuple[str, Any, grpc.StatusCode, str]] = [
    ("GetTask", pb.GetTaskRequest(id="x"), Code.NOT_FOUND, "TASK_NOT_FOUND"),
    ("CancelTask", pb.CancelTaskRequest(id="x"), Code.NOT_FOUND, "TASK_NOT_FOUND"),
    ("SubscribeToTask", pb.SubscribeToTaskRequest(id="x"), Code.NOT_FOUND, "TASK_NOT_FOUND"),
    ("SendMessage", request_for("unknown"), Code.NOT_FOUND, "MODULE_NOT_FOUND"),
    ("SendStreamingMessage", request_for("unknown"), Code.NOT_FOUND, "MODULE_NOT_FOUND"),
    (
        "ListTaskPushNotificationConfigs",
        pb.ListTaskPushNotificationConfigsRequest(task_id="x"),
        Code.FAILED_PRECONDITION,
        "PUSH_NOTIFICATION_NOT_SUPPORTED",
    ),
    (
        "GetExtendedAgentCard",
        pb.GetExtendedAgentCardRequest(),
        Code.FAILED_PRECONDITION,
        "UNSUPPORTED_OPERATION",
    ),
]


@pytest.mark.parametrize(("method", "request_message", "code", "reason"), FAILURES)
async def test_errors_have_the_codes_and_details_of_the_protocol(
    caller: Caller, method: str, request_message: Any, code: grpc.StatusCode, reason: str
) -> None:
    error = await failure(getattr(caller.stub, method)(request_message))
    assert error.code() == code
    (info,) = details_of(error, ErrorInfo)
    domain = "apcore" if reason == "MODULE_NOT_FOUND" else "a2a-protocol.org"
    assert (info.reason, info.domain) == (reason, domain)
    status = status_of(error)
    assert (status.code, status.message) == (code.value[0], error.details())


@pytest.mark.parametrize("version", ["0.3", "2.0", "1", "x"])
async def test_other_versions_of_the_protocol_are_refused(caller: Caller, version: str) -> None:
    call = caller.stub.ListTasks(pb.ListTasksRequest(), metadata=[("a2a-version", version)])
    error = await failure(call)
    assert error.code() == Code.FAILED_PRECONDITION
    assert details_of(error, ErrorInfo)[0].reason == "VERSION_NOT_SUPPORTED"


@pytest.mark.parametrize("version", ["1.0", "1.0.1", ""])
async def test_version_1_and_an_empty_version_are_accepted(caller: Caller, version: str) -> None:
    metadata = [("a2a-version", version)]
    await caller.stub.ListTasks(pb.ListTasksRequest(), metadata=metadata)


async def test_an_exceptions_text_does_not_reach_the_client(caller: Caller) -> None:
    task = await caller.send("fail")
    assert task.status.state == pb.TASK_STATE_FAILED
    assert SECRET not in str(task)


@pytest.mark.parametrize("kind", [RuntimeError, TimeoutError])
async def test_details_of_a_bug_in_the_server_do_not_reach_the_client(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    async def broken(*args: Any) -> Any:
        raise kind(SECRET)

    monkeypatch.setattr(type(caller.peer.agent.handler.tasks.store), "query", broken)
    error = await failure(caller.stub.ListTasks(pb.ListTasksRequest()))
    assert error.code() == Code.INTERNAL
    assert SECRET not in f"{error.details()} {error.trailing_metadata()}"


async def test_a_method_that_the_protocol_does_not_have_is_unimplemented(caller: Caller) -> None:
    error = await failure(caller.channel.unary_unary("/lf.a2a.v1.A2AService/Nothing")(b""))
    assert error.code() == Code.UNIMPLEMENTED


# Callers


async def test_callers_without_valid_credentials_are_refused_before_their_message_is_read() -> None:
    async with serving_grpc(modules(), auth=keys(), max_body=100) as caller:
        for metadata in ({}, {"x-api-key": "another"}, {"authorization": "Bearer x"}):
            huge = request_for(text="x" * 10_000)
            error = await failure(caller.stub.SendMessage(huge, metadata=[*metadata.items()]))
            assert (error.code(), error.details()) == (
                Code.UNAUTHENTICATED,
                "Authentication required",
            )
            trailing = dict(error.trailing_metadata() or ())
            assert trailing["www-authenticate"] == "ApiKey"
        with pytest.raises(A2AClientError):
            await caller.client.list_tasks(pb.ListTasksRequest())


async def test_a_caller_with_credentials_owns_its_tasks() -> None:
    async with serving_grpc(modules(), ADA, auth=keys()) as ada:
        task = await ada.send("work", n=5)
        async with connected_caller(ada.peer, ada.address, BOB) as bob:
            for call in (
                bob.client.get_task(pb.GetTaskRequest(id=task.id), context=bob.context),
                bob.client.cancel_task(pb.CancelTaskRequest(id=task.id), context=bob.context),
                anext(
                    bob.client.subscribe(pb.SubscribeToTaskRequest(id=task.id), context=bob.context)
                ),
            ):
                with pytest.raises(errors.TaskNotFoundError):
                    await call
            listed = await bob.client.list_tasks(pb.ListTasksRequest(), context=bob.context)
            assert listed.total_size == 0
            follow_up = request_for("work")
            follow_up.message.task_id = task.id
            error = await failure(bob.stub.SendMessage(follow_up, metadata=bob.pairs))
            assert error.code() == Code.NOT_FOUND
        assert (await ada.get(task.id)).id == task.id
        assert (await ada.peer.ask("get", {"id": task.id}, ADA)).task["id"] == task.id


async def test_a_failing_authenticator_lets_no_call_pass() -> None:
    class Broken:
        def authenticate(self, headers: Any) -> Identity:
            raise RuntimeError(SECRET)

    async with serving_grpc(modules(), auth=Broken()) as caller:
        error = await failure(caller.stub.ListTasks(pb.ListTasksRequest()))
    assert (error.code(), error.details()) == (
        Code.UNAVAILABLE,
        "Authentication is unavailable",
    )
    assert details_of(error, RetryInfo)[0].retry_delay.seconds == 5


async def test_http_and_grpc_share_one_rate_limit() -> None:
    async with serving_grpc(modules(), ADA, auth=keys(), rate_limit="2/hour") as caller:
        await caller.stub.ListTasks(pb.ListTasksRequest(), metadata=caller.pairs)
        await caller.peer.ask("list", {}, ADA)
        error = await failure(caller.stub.ListTasks(pb.ListTasksRequest(), metadata=caller.pairs))
        assert (error.code(), error.details()) == (Code.RESOURCE_EXHAUSTED, "Too many requests")
        assert 0 < details_of(error, RetryInfo)[0].retry_delay.seconds <= 3600
        metadata = [*BOB.items()]
        await caller.stub.ListTasks(pb.ListTasksRequest(), metadata=metadata)


async def test_runs_and_streams_are_limited_as_over_http() -> None:
    gate = Gate()
    limits = Limits(max_streams_per_client=1)
    async with serving_grpc(modules(gate), max_runs=1, limits=limits) as caller:
        task = await caller.start("wait")
        await gate.reached.wait()
        error = await failure(caller.stub.SendMessage(request_for("work")))
        assert error.code() == Code.RESOURCE_EXHAUSTED
        assert details_of(error, RetryInfo)
        stream = caller.stub.SubscribeToTask(pb.SubscribeToTaskRequest(id=task.id))
        await stream.read()
        second = caller.stub.SubscribeToTask(pb.SubscribeToTaskRequest(id=task.id))
        assert (await failure(second)).code() == Code.RESOURCE_EXHAUSTED
        stream.cancel()
        await wait_until(lambda: len(caller.peer.agent.handler.streams) == 0)


async def test_new_tasks_are_refused_while_the_server_drains(caller: Caller) -> None:
    caller.peer.agent.setup.state.is_draining = True
    error = await failure(caller.stub.SendMessage(request_for()))
    assert (error.code(), error.details()) == (Code.UNAVAILABLE, "The server is shutting down")
    assert details_of(error, RetryInfo)
    await caller.stub.ListTasks(pb.ListTasksRequest())


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:192.0.2.1:5000", "192.0.2.1"),
        ("ipv6:%5B2001:db8::1%5D:5000", "2001:db8::1"),
        ("ipv6:[::ffff:192.0.2.1]:5000", "192.0.2.1"),
        ("ipv6:%5Bfe80::1%25eth0%5D:5000", "fe80::1%eth0"),
        ("unix:/run/agent.sock", ""),
    ],
)
async def test_the_host_of_a_caller_is_read_from_its_address(peer: str, host: str) -> None:
    assert host_of(peer) == host


# Clients that disconnect


@pytest.mark.parametrize("ended_by", ["cancel", "deadline", "connection"])
@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage"])
async def test_the_task_of_a_disconnected_client_is_canceled(method: str, ended_by: str) -> None:
    gate = Gate()
    async with serving_grpc(modules(gate), limits=Limits(disconnect_grace=0)) as caller:
        async with connected_caller(caller.peer, caller.address, {}) as second:
            timeout = 0.5 if ended_by == "deadline" else None
            call = getattr(second.stub, method)(request_for("wait"), timeout=timeout)
            await gate.reached.wait()
            if ended_by == "cancel":
                call.cancel()
            if ended_by != "connection":
                await gate.canceled.wait()
        await gate.canceled.wait()
        await wait_until(lambda: not caller.peer.agent.engine.runs)
        (task,) = (await caller.stub.ListTasks(pb.ListTasksRequest())).tasks
        assert task.status.state == pb.TASK_STATE_CANCELED


@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage"])
async def test_a_task_whose_client_disconnects_during_its_creation_is_canceled(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    creating, proceed = asyncio.Event(), asyncio.Event()

    class LateStore(InMemoryTaskStore):
        async def save(self, record: TaskRecord) -> None:
            creating.set()
            await proceed.wait()
            await super().save(record)

    caplog.set_level("INFO", "apcore_a2a.access")
    options: Any = {"limits": Limits(disconnect_grace=0), "task_store": LateStore()}
    async with serving_grpc(modules(), **options) as caller:
        call = getattr(caller.stub, method)(request_for("wait"))
        await creating.wait()
        call.cancel()
        await wait_until(lambda: " 499 " in caplog.text)
        proceed.set()
        await wait_until(lambda: not caller.peer.agent.engine.runs)
        (task,) = (await caller.stub.ListTasks(pb.ListTasksRequest())).tasks
        assert task.status.state == pb.TASK_STATE_CANCELED


async def test_a_stream_that_the_store_interrupts_may_be_retried() -> None:
    class FailingStore(InMemoryTaskStore):
        async def events(self, task_id: str, after: int, limit: int = 1000) -> list[Event] | None:
            if after:
                raise UnavailableError("The store is down")
            return await super().events(task_id, after, limit)

    gate = Gate()
    async with serving_grpc(modules(gate), task_store=FailingStore()) as caller:

        async def read_stream() -> None:
            async for _ in caller.stub.SendStreamingMessage(request_for("wait")):
                gate.opened.set()

        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await read_stream()
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        assert caught.value.details() == "The task store can't be reached"


async def test_a_non_blocking_task_outlives_its_client() -> None:
    gate = Gate()
    async with serving_grpc(modules(gate), limits=Limits(disconnect_grace=0)) as caller:
        async with connected_caller(caller.peer, caller.address, {}) as second:
            task = await second.start("wait")
        gate.opened.set()
        await caller.peer.until(task.id, "completed")


# Limits for each client


async def test_failed_authentications_are_limited_but_valid_credentials_still_pass() -> None:
    async with serving_grpc(modules(), BOB, auth=keys(), auth_rate_limit="2/hour") as caller:
        for code in ("UNAUTHENTICATED", "UNAUTHENTICATED", "RESOURCE_EXHAUSTED"):
            error = await failure(caller.stub.GetTask(pb.GetTaskRequest(id="t1")))
            assert error.code().name == code
        assert (await caller.send()).status.state == pb.TASK_STATE_COMPLETED


async def test_a_client_may_take_half_of_the_slots_and_client_key_identifies_clients() -> None:
    gate = Gate()

    def user_of(headers: Any, identity: Any) -> str | None:
        user: str | None = headers.get("x-user")
        return user

    options: Any = {"auth": keys(), "max_runs": 4, "client_key": user_of}
    async with serving_grpc({"work": ActionModule(gate)}, ADA, **options) as caller:
        for _ in range(2):
            await caller.start("work")
        request = request_for("work")
        error = await failure(caller.stub.SendMessage(request, metadata=caller.pairs))
        assert error.details() == "Too many tasks of this client are running"
        request.configuration.return_immediately = True
        for _ in range(2):
            user = [*caller.pairs, ("x-user", "one")]
            await caller.stub.SendMessage(request, metadata=user)
        gate.opened.set()


# The event loop of the tests


def test_a_call_that_outlives_its_loop_does_not_disturb_the_next_loop() -> None:
    problems, channels = list[Any](), list[Any]()
    nowhere = "127.0.0.1:1"

    async def leave_a_call() -> None:
        channel = grpc.aio.insecure_channel(nowhere)
        method: Any = channel.unary_unary("/x/y")
        call = method(b"", wait_for_ready=True, timeout=0.2)
        channels.append((channel, call))  # keeps them open until the loop is closed
        await asyncio.sleep(0)

    async def call_later() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, facts: problems.append(facts))
        async with grpc.aio.insecure_channel(nowhere) as channel:
            method: Any = channel.unary_unary("/x/y")
            await failure(method(b"", wait_for_ready=True, timeout=0.4))

    for main in (leave_a_call, call_later):
        with closing(LateCallbackLoop()) as loop:
            loop.run_until_complete(main())
    assert not problems
