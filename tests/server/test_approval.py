"""Calls that need approval wait for a yes and then run with the approved arguments."""

import asyncio
import gc
import json
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from apcore import AlwaysDenyHandler, ApprovalResult, AutoApproveHandler, Executor
from apcore_a2a_core.states import CANCELED, INPUT_REQUIRED
from apcore_a2a_server import InMemoryTaskStore, Limits
from apcore_a2a_server.engine.change import NewState, change
from apcore_a2a_server.engine.pauses import Pause
from apcore_a2a_server.modules.approval import ApprovalPolicy, Approvals, call_key
from apcore_a2a_server.modules.skills import UNCHOSEN
from apcore_a2a_server.store import TaskRecord
from pydantic import BaseModel

from tests.serving import PATIENCE

from .checking_client import Json, state_of
from .inloop import (
    DIALECTS,
    NEEDS_APPROVAL,
    ActionModule,
    Gate,
    Peer,
    StreamModule,
    SyncActionModule,
    app_of,
    content_of,
    contents,
    echo,
    registry_of,
    serving,
    wait_until,
)
from .inloop import anyio_backend as anyio_backend
from .modules import Inputs

pytestmark = [pytest.mark.anyio, pytest.mark.rotating("agent", "rpc", "dialect")]


class Amount(BaseModel):
    amount: int


class PaymentAction:
    """An action that records its payments."""

    def __init__(self) -> None:
        self.paid: list[Inputs] = []

    async def __call__(self, inputs: Inputs, context: Any) -> Inputs:
        self.paid.append(inputs)
        return {"paid": inputs.get("amount")}

    async def stream(self, inputs: Inputs, context: Any) -> Any:
        yield await self(inputs, context)
        yield {"receipt": 1}


@pytest.fixture
def payments() -> PaymentAction:
    return PaymentAction()


def payment_modules(payments: PaymentAction, **other_modules: object) -> dict[str, object]:
    return {
        "work": ActionModule(payments, input_schema=Amount, annotations=NEEDS_APPROVAL),
        **other_modules,
    }


def approval_request(task: Json) -> tuple[str, Any]:
    """Return the text and the data of a paused task's status message."""
    text, data = task["status"]["message"]["parts"]
    return content_of(text), content_of(data)


async def pause(peer: Peer, amount: int = 5, **members: Any) -> Json:
    """Request a payment and return its task, which waits for approval."""
    task = (await peer.send("work", peer.part(data={"amount": amount}), **members)).task
    assert state_of(task) == "input-required"
    return task


async def say(peer: Peer, task: Json, *parts: Json, **members: Any) -> Json:
    """Answer a paused task and return the updated task."""
    params = peer.wire.params("work", *parts, taskId=task["id"], **members)
    return (await peer.ask("send", {"message": params["message"]})).task


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_call_that_needs_approval_pauses_and_describes_the_call(
    dialect: str, payments: PaymentAction
) -> None:
    async with serving(payment_modules(payments), dialect) as peer:
        text, data = approval_request(await pause(peer))
        assert text == "Approval required for module work\namount: 5"
        approval = data["approval"]
        assert (approval["skill"], approval["arguments"]) == ("work", {"amount": 5})
        seconds = (datetime.fromisoformat(approval["expiresAt"]) - datetime.now(UTC)).seconds
        assert 3500 < seconds <= 3600
        assert len(approval["id"]) == 36
        assert approval["decidedBy"] == "client"
        assert not payments.paid


YES = ["yes", "Yes", " YES ", "y", "ok", "OK.", "approve", "approved", "Approved!"]
NO = ["no", "No", "n", "deny", "Denied.", "reject", "rejected"]


@pytest.mark.parametrize("word", YES)
async def test_a_yes_runs_the_call(word: str, payments: PaymentAction) -> None:
    async with serving(payment_modules(payments)) as peer:
        task = await say(peer, await pause(peer), peer.part(text=word))
        assert contents(task) == [{"paid": 5}]
        assert payments.paid == [{"amount": 5}]


@pytest.mark.parametrize("word", NO)
async def test_a_no_rejects_the_task_for_good(word: str, payments: PaymentAction) -> None:
    async with serving(payment_modules(payments)) as peer:
        task = await say(peer, await pause(peer), peer.part(text=word))
        assert state_of(task) == "rejected"
        assert await say(peer, task, peer.part(text="yes")) == task
        late_answer = await peer.send("work", peer.part(text="Hello"), taskId=task["id"])
        assert late_answer.code == -32004
        assert await peer.get(task["id"]) == task
        assert not payments.paid


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize(("approved", "state"), [(True, "completed"), (False, "rejected")])
async def test_an_answer_can_be_data(
    dialect: str, approved: bool, state: str, as_text: bool, payments: PaymentAction
) -> None:
    async with serving(payment_modules(payments), dialect) as peer:
        data = {"approved": approved, "comment": "as we said"}
        part = peer.part(text=json.dumps(data)) if as_text else peer.part(data=data)
        task = await say(peer, await pause(peer), part)
        assert state_of(task) == state
        assert bool(payments.paid) == approved


UNCLEAR: list[Json] = [
    {"text": "maybe"},
    {"text": "yes or no?"},
    {"text": ""},
    {"text": "not yes"},
    {"data": {"approved": "true"}},
    {"data": {"approved": 1}},
    {"data": {"approved": None}},
    {"data": {}},
    {"text": '{"approved": "yes"}'},
    {"text": "[true]"},
    {"raw": "aGk="},
]


@pytest.mark.parametrize("part", UNCLEAR)
async def test_an_unclear_answer_asks_for_approval_again(
    part: Json, payments: PaymentAction
) -> None:
    async with serving(payment_modules(payments)) as peer:
        task = await say(peer, await pause(peer), part)
        assert state_of(task) == "input-required"
        text, data = approval_request(task)
        assert "yes" in text
        assert '{"approved": true}' in text
        assert data["approval"]["arguments"] == {"amount": 5}
        assert not payments.paid
        task = await say(peer, task, peer.part(text="yes"))
        assert state_of(task) == "completed"
        assert payments.paid == [{"amount": 5}]


@pytest.mark.parametrize("end", ["canceled", "failed"])
async def test_a_yes_after_an_unclear_answer_is_refused_if_the_task_has_ended(
    end: str, payments: PaymentAction
) -> None:
    async with serving(payment_modules(payments), input_timeout=1) as peer:
        task = await pause(peer)
        other_approval = {"approved": True, "approvalId": "another"}
        for unclear in ({"text": "hmm"}, {"data": other_approval}):
            assert state_of(await say(peer, task, peer.part(**unclear))) == "input-required"
        if end == "canceled":
            await peer.ask("cancel", {"id": task["id"]})
        await peer.until(task["id"], end)
        late_answer = await peer.send("work", peer.part(text="yes"), taskId=task["id"])
        assert late_answer.code == -32004
        assert not payments.paid


async def test_the_first_clear_answer_counts_after_an_unclear_one(payments: PaymentAction) -> None:
    async with serving(payment_modules(payments)) as peer:
        task = await pause(peer)
        await say(peer, task, peer.part(text="hmm"))
        task = await say(peer, task, peer.part(text="yes"))
        assert await say(peer, task, peer.part(text="no")) == task
        assert payments.paid == [{"amount": 5}]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_approval_request_and_its_answer_are_in_the_history(
    dialect: str, payments: PaymentAction
) -> None:
    async with serving(payment_modules(payments), dialect) as peer:
        task = await pause(peer)
        request = task["status"]["message"]
        task = await say(peer, task, peer.part(text="yes"), messageId="the answer")
        first, second, third = task["history"]
        assert (first["messageId"], second) == ("m1", request)
        assert third["messageId"] == "the answer"
        assert third["taskId"] == task["id"]


async def test_in_0_3_the_context_alone_finds_the_newest_paused_task(
    payments: PaymentAction,
) -> None:
    other_module = ActionModule(echo, annotations=NEEDS_APPROVAL)
    async with serving(payment_modules(payments, other=other_module), "0.3") as peer:
        older = await pause(peer, 1, contextId="ours")
        newer = (await peer.send("other", contextId="ours")).task
        await pause(peer, 3, contextId="theirs")
        message = peer.wire.params("", peer.part(text="yes"), contextId="ours")["message"]
        answer = await peer.ask("send", {"message": message})
        assert (answer.task["id"], answer.state) == (newer["id"], "completed")
        answer = await peer.ask("send", {"message": message})
        assert (answer.task["id"], answer.state) == (older["id"], "completed")
        assert payments.paid == [{"amount": 1}]


async def test_in_0_3_the_context_and_the_skill_find_the_paused_task(
    payments: PaymentAction,
) -> None:
    other_module = ActionModule(echo, annotations=NEEDS_APPROVAL)
    async with serving(payment_modules(payments, other=other_module), "0.3") as peer:
        older = await pause(peer, contextId="ours")
        newer = (await peer.send("other", contextId="ours")).task
        answer = await peer.send("work", peer.part(text="yes"), contextId="ours")
        assert (answer.task["id"], answer.state) == (older["id"], "completed")
        assert await peer.get(newer["id"]) == newer


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_another_skill_in_the_context_starts_a_task_of_its_own(
    dialect: str, payments: PaymentAction
) -> None:
    async with serving(payment_modules(payments, other=ActionModule(echo)), dialect) as peer:
        task = await pause(peer, contextId="ours")
        answer = await peer.send("other", peer.part(text="yes"), contextId="ours")
        assert answer.task["id"] != task["id"]
        assert contents(answer.task) == [{"text": "yes"}]
        assert await peer.state(task["id"]) == "input-required"


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_another_skill_for_the_paused_task_is_refused(
    dialect: str, payments: PaymentAction
) -> None:
    async with serving(payment_modules(payments, other=ActionModule(echo)), dialect) as peer:
        task = await pause(peer)
        answer = await peer.send("other", peer.part(text="yes"), taskId=task["id"])
        assert answer.code == -32602
        assert await peer.get(task["id"]) == task
        assert not payments.paid


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("data", [{"amount": "many"}, {}, {"amount": 1.5}])
async def test_a_call_with_invalid_inputs_is_refused_before_approval(
    dialect: str, data: Json, payments: PaymentAction
) -> None:
    async with serving(payment_modules(payments), dialect) as peer:
        answer = await peer.send("work", peer.part(data=data))
        assert (answer.code, answer.fields) == (-32602, ["amount"])
        assert not (await peer.ask("list")).result["tasks"]
        answer = await peer.ask("stream", peer.wire.params("work", peer.part(data=data)))
        assert answer.code == -32602


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_approved_call_runs_with_the_arguments_that_were_shown(
    dialect: str, payments: PaymentAction
) -> None:
    async with serving(payment_modules(payments), dialect) as peer:
        task = await pause(peer)
        approval = peer.part(data={"approved": True, "amount": 5000})
        task = await say(peer, task, approval, peer.part(data={"amount": 6000}))
        assert contents(task) == [{"paid": 5}]
        assert payments.paid == [{"amount": 5}]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_paused_stream_continues_in_a_new_stream(
    dialect: str, payments: PaymentAction
) -> None:
    modules = {"work": StreamModule(payments.stream, annotations=NEEDS_APPROVAL)}
    async with serving(modules, dialect) as peer:
        async with peer.stream("work", peer.part(data={"amount": 7})) as stream:
            end = (await stream.rest())[-1]
            assert end.state == "input-required"
            assert not payments.paid
        task_id = end.body["taskId"]
        async with peer.stream("work", peer.part(text="yes"), taskId=task_id) as stream:
            frames = await stream.rest()
        assert [frame.parts for frame in frames if frame.kind == "artifact"] == [
            [{"paid": 7}],
            [{"receipt": 1}],
        ]
        assert payments.paid == [{"amount": 7}]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_send_of_an_answer_may_return_before_the_task_ends(dialect: str) -> None:
    gate = Gate()
    async with serving({"work": ActionModule(gate, annotations=NEEDS_APPROVAL)}, dialect) as peer:
        task = (await peer.send()).task
        await peer.start("work", peer.part(text="yes"), taskId=task["id"])
        await gate.reached.wait()
        assert await peer.state(task["id"]) == "working"
        async with peer.subscribe(task["id"]) as stream:
            gate.opened.set()
            await stream.rest()
        assert await peer.state(task["id"]) == "completed"


async def test_a_synchronous_module_waits_for_approval() -> None:
    calls: list[str] = []

    def pay(inputs: Inputs, context: Any) -> Inputs:
        calls.append(threading.current_thread().name)
        return {}

    async with serving({"work": SyncActionModule(pay, annotations=NEEDS_APPROVAL)}) as peer:
        task = (await peer.send()).task
        assert not calls
        assert state_of(await say(peer, task, peer.part(text="yes"))) == "completed"
        assert len(calls) == 1
        assert calls[0] != threading.main_thread().name


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_nested_call_needs_approval_too(dialect: str, payments: PaymentAction) -> None:
    async def pays_twice(inputs: Inputs, context: Any) -> Any:
        executor = context.executor
        first = await executor.call_async("pay", {"amount": 1}, context)
        second = await executor.call_async("pay", {"amount": 2}, context)
        return {"both": [first, second]}

    modules = {"outer": ActionModule(pays_twice), "pay": payment_modules(payments)["work"]}
    async with serving(modules, dialect) as peer:
        task = (await peer.send("outer")).task
        assert state_of(task) == "input-required"
        assert not payments.paid
        task = await say(peer, task, peer.part(text="yes"))
        assert state_of(task) == "input-required"
        assert payments.paid == [{"amount": 1}]
        task = await say(peer, task, peer.part(text="yes"))
        assert contents(task) == [{"both": [{"paid": 1}, {"paid": 2}]}]
        assert {"amount": 2} in payments.paid


async def test_the_approval_request_of_a_nested_call_describes_that_call(
    payments: PaymentAction,
) -> None:
    async def pays(inputs: Inputs, context: Any) -> Any:
        return await context.executor.call_async("pay", {"amount": 1000}, context)

    async with serving(
        {"outer": ActionModule(pays), "pay": payment_modules(payments)["work"]}
    ) as peer:
        text, data = approval_request((await peer.send("outer")).task)
        approval = data["approval"]
        assert (approval["skill"], approval["arguments"]) == ("pay", {"amount": 1000})
        assert text == "Approval required for module pay\namount: 1000"


async def test_a_no_to_a_nested_call_rejects_the_task(payments: PaymentAction) -> None:
    async def pays(inputs: Inputs, context: Any) -> Any:
        return await context.executor.call_async("pay", {"amount": 1}, context)

    async with serving(
        {"outer": ActionModule(pays), "pay": payment_modules(payments)["work"]}
    ) as peer:
        task = (await peer.send("outer")).task
        assert state_of(await say(peer, task, peer.part(text="no"))) == "rejected"
        assert not payments.paid


async def test_an_approval_does_not_cover_other_arguments() -> None:
    payments, amounts = PaymentAction(), iter([1, 2, 3, 4])

    async def pays(inputs: Inputs, context: Any) -> Any:
        amount = next(amounts)
        return await context.executor.call_async("pay", {"amount": amount}, context)

    async with serving(
        {"outer": ActionModule(pays), "pay": payment_modules(payments)["work"]}
    ) as peer:
        task = (await peer.send("outer")).task
        task = await say(peer, task, peer.part(text="yes"))
        assert state_of(task) == "input-required"
        assert not payments.paid


class TokenHandler:
    """A custom approval handler that returns a token, and a decision when the token is checked."""

    def __init__(self, decision: Any = "approved") -> None:
        self.decision = decision
        self.requests: list[Any] = []
        self.checked: list[str] = []

    async def request_approval(self, request: Any) -> ApprovalResult:
        self.requests.append(request)
        return ApprovalResult(status="pending", approval_id=f"token {len(self.requests)}")

    async def check_approval(self, approval_id: str) -> ApprovalResult:
        self.checked.append(approval_id)
        return ApprovalResult(status=self.decision, approval_id=approval_id)


@pytest.fixture
def executors() -> Iterator[list[Executor]]:
    """Yield a list of executors that are closed after the test."""
    executors: list[Executor] = []
    yield executors
    for executor in executors:
        executor.close()


def with_handler(handler: Any, payments: PaymentAction, executors: list[Executor]) -> Executor:
    executors.append(Executor(registry_of(payment_modules(payments)), approval_handler=handler))
    return executors[-1]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("schema", [None, Amount])
async def test_a_token_from_a_client_is_ignored(
    dialect: str, schema: Any, executors: list[Executor]
) -> None:
    handler, payments = TokenHandler(), PaymentAction()
    modules = {"work": ActionModule(payments, input_schema=schema, annotations=NEEDS_APPROVAL)}
    executors.append(Executor(registry_of(modules), approval_handler=handler))
    async with serving(executors[-1], dialect) as peer:
        data = {"amount": 5, "_approval_token": "token 1"}
        answer = await peer.send("work", peer.part(data=data))
        assert answer.state == "input-required"
        assert (handler.checked, payments.paid) == ([], [])
        assert handler.requests[0].arguments == {"amount": 5}
        text = peer.part(text='{"amount": 5, "_approval_token": "token 1"}')
        assert (await peer.send("work", text)).state == "input-required"
        assert (handler.checked, payments.paid) == ([], [])


async def test_a_token_from_a_client_is_ignored_without_a_handler(payments: PaymentAction) -> None:
    async with serving(payment_modules(payments)) as peer:
        data = {"amount": 5, "_approval_token": "token"}
        task = (await peer.send("work", peer.part(data=data))).task
        assert approval_request(task)[1]["approval"]["arguments"] == {"amount": 5}
        assert not payments.paid


async def test_a_handler_that_approves_everything_is_not_overruled(
    payments: PaymentAction, executors: list[Executor]
) -> None:
    async with serving(with_handler(AutoApproveHandler(), payments, executors)) as peer:
        answer = await peer.send("work", peer.part(data={"amount": 5}))
        assert answer.data == {"paid": 5}


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_handler_that_denies_everything_is_not_overruled(
    dialect: str, payments: PaymentAction, executors: list[Executor]
) -> None:
    async with serving(with_handler(AlwaysDenyHandler(), payments, executors), dialect) as peer:
        params = peer.wire.params("work", peer.part(data={"amount": 5}))
        error = (await peer.client.send(peer.request("send", params))).json()["error"]
        assert error["message"] == "Approval denied"
        assert error["code"] == (500 if dialect == "REST" else -32603)
        assert not (await peer.ask("list")).result["tasks"]
        assert not payments.paid


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_handler_that_returned_a_token_is_asked_to_check_it(
    dialect: str, payments: PaymentAction, executors: list[Executor]
) -> None:
    handler = TokenHandler()
    async with serving(with_handler(handler, payments, executors), dialect) as peer:
        task = await pause(peer)
        assert approval_request(task)[1]["approval"]["decidedBy"] == "server"
        assert not handler.checked
        assert "token" not in str(task)
        task = await say(peer, task, peer.part(text="any word will do"))
        assert contents(task) == [{"paid": 5}]
        assert handler.checked == ["token 1"]
        assert payments.paid == [{"amount": 5}]


async def test_an_answer_after_the_handlers_approval_returns_the_unchanged_task(
    payments: PaymentAction, executors: list[Executor]
) -> None:
    async with serving(with_handler(TokenHandler(), payments, executors)) as peer:
        task = await say(peer, await pause(peer), peer.part(text="any word will do"))
        assert await say(peer, task, peer.part(text="yes")) == task
        assert payments.paid == [{"amount": 5}]


async def test_a_handler_that_has_not_decided_yet_keeps_the_task_paused(
    payments: PaymentAction, executors: list[Executor]
) -> None:
    handler = TokenHandler("pending")
    async with serving(with_handler(handler, payments, executors)) as peer:
        task = await pause(peer)
        task = await say(peer, task, peer.part(text="now?"))
        assert state_of(task) == "input-required"
        handler.decision = "approved"
        task = await say(peer, task, peer.part(text="now?"))
        assert state_of(task) == "completed"
        assert set(handler.checked) == {"token 1"}
        assert payments.paid == [{"amount": 5}]


async def test_a_rejection_by_the_handler_ends_the_task(
    payments: PaymentAction, executors: list[Executor]
) -> None:
    handler = TokenHandler("rejected")
    async with serving(with_handler(handler, payments, executors)) as peer:
        task = await say(peer, await pause(peer), peer.part(text="now?"))
        assert state_of(task) == "rejected"
        assert not payments.paid


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_paused_task_survives_a_restart(dialect: str, payments: PaymentAction) -> None:
    store = InMemoryTaskStore()
    async with serving(payment_modules(payments), dialect, task_store=store) as peer:
        task = await pause(peer)
    async with serving(payment_modules(payments), dialect, task_store=store) as peer:
        assert await peer.get(task["id"]) == task
        assert contents(await say(peer, task, peer.part(text="yes"))) == [{"paid": 5}]


async def test_a_paused_task_whose_module_was_removed_stays_paused(payments: PaymentAction) -> None:
    registry = registry_of(payment_modules(payments, other=ActionModule(echo)))
    async with serving(registry) as peer:
        task = await pause(peer)
        registry.unregister("work")
        answer = await peer.send("work", peer.part(text="yes"), taskId=task["id"])
        assert answer.code == -32601
        assert await peer.get(task["id"]) == task
        assert (await peer.ask("cancel", {"id": task["id"]})).state == "canceled"


class ConcurrencyDetector(Executor):
    """An executor that detects concurrent calls of `validate`, which apcore can't handle."""

    overlapped = False
    busy = 0
    lock = threading.Lock()

    def validate(self, *args: Any, **options: Any) -> Any:
        with self.lock:
            self.busy += 1
            self.overlapped |= self.busy > 1
        try:
            threading.Event().wait(0.005)
            return super().validate(*args, **options)
        finally:
            with self.lock:
                self.busy -= 1


async def test_concurrent_pauses_do_not_interfere(payments: PaymentAction) -> None:
    with closing(ConcurrencyDetector(registry_of(payment_modules(payments)))) as executor:
        async with serving(executor) as peer:
            await asyncio.gather(*(pause(peer) for _ in range(8)))
        assert not executor.overlapped


async def test_the_servers_own_executor_is_closed_with_it(payments: PaymentAction) -> None:
    """Apcore's executor has an event loop of its own once a call needs approval."""

    async def serve() -> None:
        app = app_of(registry_of(payment_modules(payments)))
        async with serving(app) as peer:
            await pause(peer)

    def open_idle_loops() -> int:
        loops = [loop for loop in gc.get_objects() if isinstance(loop, asyncio.AbstractEventLoop)]
        return sum(not (loop.is_closed() or loop.is_running()) for loop in loops)

    before = open_idle_loops()
    await serve()
    assert open_idle_loops() == before


CONTRADICTIONS: list[list[Json]] = [
    [{"text": "Do not do it"}, {"text": "ok"}],
    [{"text": "yes"}, {"data": {"approved": False}}],
    [{"data": {"approved": True}}, {"text": "no"}],
    [{"data": {"approved": True}}, {"text": "as long as it is not today"}],
    [{"text": "yes"}, {"data": {"approved": "true"}}],
]


@pytest.mark.parametrize("parts", CONTRADICTIONS)
async def test_a_contradictory_answer_is_unclear(
    parts: list[Json], payments: PaymentAction
) -> None:
    async with serving(payment_modules(payments)) as peer:
        task = await say(peer, await pause(peer), *(peer.part(**part) for part in parts))
        assert state_of(task) == "input-required"
        assert not payments.paid


AGREEMENTS: list[list[Json]] = [
    [{"text": "yes"}, {"data": {"approved": True, "approvalId": "ID"}}],
    [{"data": {"approved": True, "approvalId": "ID"}}, {"text": "OK."}],
    [{"data": {"approved": True}}, {"data": {"approved": True, "approvalId": "ID"}}],
    [{"text": "yes"}, {"data": {"approvalId": "ID"}}],
]


@pytest.mark.parametrize("parts", AGREEMENTS)
async def test_parts_that_agree_approve_only_the_request_that_one_of_them_names(
    parts: list[Json], payments: PaymentAction
) -> None:
    async with serving(payment_modules(payments)) as peer:
        task = await pause(peer)
        shown_id = approval_request(task)[1]["approval"]["id"]
        for approval_id, state in (("another", "input-required"), (shown_id, "completed")):
            named = json.loads(json.dumps(parts).replace("ID", approval_id))
            task = await say(peer, task, *(peer.part(**part) for part in named))
            assert state_of(task) == state
        assert payments.paid == [{"amount": 5}]


@pytest.mark.parametrize("others", [[], [{"text": "yes"}]])
async def test_parts_that_name_two_requests_are_unclear(
    others: list[Json], payments: PaymentAction
) -> None:
    async with serving(payment_modules(payments)) as peer:
        task = await pause(peer)
        shown_id = approval_request(task)[1]["approval"]["id"]
        for ids in ([shown_id, "another"], ["another", shown_id], [shown_id, {}]):
            named = [{"data": {"approved": True, "approvalId": each}} for each in ids]
            parts = [peer.part(**part) for part in (*others, *named)]
            assert state_of(await say(peer, task, *parts)) == "input-required"
        assert not payments.paid


async def answer_repeatedly(peer: Peer, task: Json, word: str, times: int) -> Json:
    for _ in range(times):
        assert state_of(task) == "input-required"
        task = await say(peer, task, peer.part(text=word))
    return task


@pytest.mark.parametrize("amounts", [[50, 70], [50, 50], [1, 2, 3]])
async def test_a_nested_call_is_approved_once_and_runs_once(
    amounts: list[int], payments: PaymentAction
) -> None:
    """The calling module starts over after each answer."""

    async def outer(inputs: Inputs, context: Any) -> Any:
        paid = [
            await context.executor.call_async("pay", {"amount": amount}, context)
            for amount in amounts
        ]
        return {"all": paid}

    async with serving(
        {"outer": ActionModule(outer), "pay": payment_modules(payments)["work"]}
    ) as peer:
        task = (await peer.send("outer")).task
        task = await answer_repeatedly(peer, task, "yes", len(amounts))
        assert contents(task) == [{"all": [{"paid": amount} for amount in amounts]}]
        assert payments.paid == [{"amount": amount} for amount in amounts]


@pytest.mark.parametrize(
    ("asks_client", "reads_yaml", "server_must_request"),
    [(True, True, True), (True, False, True), (False, True, False), (False, False, True)],
)
def test_the_server_requests_approval_where_the_executor_would_not(
    asks_client: bool, reads_yaml: bool, server_must_request: bool
) -> None:
    skill = replace(UNCHOSEN, needs_approval=True)  # only its YAML requires it
    policy = ApprovalPolicy(has_gate=True, asks_client=asks_client, reads_yaml=reads_yaml)
    assert policy.server_must_request(skill) == server_must_request
    assert not policy.server_must_request(replace(skill, is_gated=True))
    assert policy._replace(has_gate=False).server_must_request(replace(skill, is_gated=True))


def test_a_saved_result_is_not_used_for_an_equal_call_without_one() -> None:
    key, first_call, second_call = call_key("pay", {"amount": 5}), object(), object()

    def resume(done: dict[str, list[Any]]) -> Approvals:
        approvals = Approvals([key, key], json.loads(json.dumps(done)))
        assert approvals.use_approval(key, first_call)
        assert approvals.use_approval(key, second_call)
        return approvals

    approvals = resume({})
    approvals.save_result(first_call, object())  # not JSON
    approvals.save_result(second_call, {"n": 2})

    approvals = resume(approvals.done)
    assert approvals.result(first_call) == (False, None)
    assert approvals.result(second_call) == (True, {"n": 2})
    approvals.save_result(first_call, {"n": 1})

    approvals = resume(approvals.done)
    assert approvals.result(first_call) == (True, {"n": 1})
    assert approvals.result(second_call) == (True, {"n": 2})


async def test_concurrent_nested_calls_run_once_each(payments: PaymentAction) -> None:
    async def outer(inputs: Inputs, context: Any) -> Any:
        calls = [
            context.executor.call_async("pay", {"amount": amount}, context) for amount in (1, 2)
        ]
        return {"both": await asyncio.gather(*calls)}

    async with serving(
        {"outer": ActionModule(outer), "pay": payment_modules(payments)["work"]}
    ) as peer:
        task = await answer_repeatedly(peer, (await peer.send("outer")).task, "yes", 2)
        assert contents(task) == [{"both": [{"paid": 1}, {"paid": 2}]}]
        assert sorted(paid["amount"] for paid in payments.paid) == [1, 2]


async def test_a_nested_call_with_arguments_that_are_not_json_does_not_run(
    payments: PaymentAction,
) -> None:
    async def outer(inputs: Inputs, context: Any) -> Any:
        return await context.executor.call_async("pay", {"amount": {1, 2}}, context)

    modules = {
        "outer": ActionModule(outer),
        "pay": ActionModule(payments, annotations=NEEDS_APPROVAL),
    }
    async with serving(modules) as peer:
        assert state_of((await peer.send("outer")).task) in ("failed", "rejected")
        assert not payments.paid


@pytest.mark.parametrize("strategy", ["standard", "internal", "testing", "performance", "minimal"])
async def test_every_pipeline_strategy_requires_approval(
    strategy: str, payments: PaymentAction
) -> None:
    with closing(Executor(registry_of(payment_modules(payments)), strategy=strategy)) as executor:
        async with serving(app_of(executor)) as peer:
            task = await pause(peer)
            assert not payments.paid
            assert contents(await say(peer, task, peer.part(text="yes"))) == [{"paid": 5}]
            assert payments.paid == [{"amount": 5}]


async def test_answers_do_not_exceed_the_limit_of_runs() -> None:
    running = most_running = 0
    refused = asyncio.Event()

    async def work(inputs: Inputs, context: Any) -> Inputs:
        nonlocal running, most_running
        running += 1
        most_running = max(most_running, running)
        await refused.wait()
        running -= 1
        return {}

    async with serving(
        {"work": ActionModule(work, annotations=NEEDS_APPROVAL)},
        max_runs=2,
        limits=Limits(client_share=None),
    ) as peer:
        tasks = [(await peer.send()).task for _ in range(6)]
        requests = [
            peer.request("send", peer.wire.params("work", peer.part(text="yes"), taskId=task["id"]))
            for task in tasks
        ]
        sends = [asyncio.create_task(peer.client.send(request)) for request in requests]
        await wait_until(lambda: sum(send.done() for send in sends) == 4)
        refused.set()
        responses = await asyncio.gather(*sends)
        assert sorted(answer.status_code for answer in responses) == [200] * 2 + [429] * 4
        assert most_running == 2
        task = await say(peer, tasks[0], peer.part(text="no"))
        assert state_of(task) in ("rejected", "completed")


async def test_a_pause_that_another_replica_has_ended_counts_until_its_timer_fires(
    payments: PaymentAction,
) -> None:
    async with serving(payment_modules(payments)) as peer:
        tasks, paused = peer.agent.setup.tasks, peer.agent.setup.capacity.paused
        task = await pause(peer)
        record = await tasks.get(task["id"])
        assert record is not None
        assert record.resume is not None
        canceled = NewState(CANCELED)
        await change(tasks, task["id"], canceled, expect=(INPUT_REQUIRED,))
        peer.agent.engine.expiries.schedule(task["id"], Pause.unpack(record.resume), 0, "ada")
        assert len(paused) == 1
        await wait_until(lambda: len(paused) == 0)
        assert await peer.state(task["id"]) == "canceled"


class HeldValidation(Executor):
    """An executor whose validation waits until the test releases it."""

    release = threading.Event()
    ended = threading.Event()

    def validate(self, *args: Any, **options: Any) -> Any:
        assert self.release.wait(PATIENCE)
        try:
            return super().validate(*args, **options)
        finally:
            self.ended.set()


async def test_a_send_with_a_hanging_check_before_approval_times_out(
    payments: PaymentAction,
) -> None:
    with closing(HeldValidation(registry_of(payment_modules(payments)))) as executor:
        async with serving(executor, execution_timeout=0.05) as peer:
            answer = await peer.send("work", peer.part(data={"amount": 5}))
            assert not executor.release.is_set()
            executor.release.set()
            assert answer.message == "Execution timed out"
            assert not peer.agent.engine.runs
            await wait_until(executor.ended.is_set)


class FailsAtFirstPause(InMemoryTaskStore):
    """A store that fails once, when a task is about to pause."""

    fails = True

    async def save(self, record: TaskRecord) -> None:
        if self.fails and record.task.status.state == INPUT_REQUIRED:
            self.fails = False
            raise OSError("no room")
        await super().save(record)


async def test_a_task_that_cannot_pause_fails(payments: PaymentAction) -> None:
    async with serving(payment_modules(payments), task_store=FailsAtFirstPause()) as peer:
        task = (await peer.send("work", peer.part(data={"amount": 5}))).task
        assert state_of(task) == "failed"
        assert content_of(task["status"]["message"]["parts"][0]) == "Internal error"
