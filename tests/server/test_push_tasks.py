"""Webhooks that come with a message or with an answer, and tasks whose client has disconnected."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, suppress
from typing import Any
from uuid import uuid4

import httpx
import pytest
from apcore import ACL, ACLRule, Executor
from apcore_a2a_core import InputRequiredError
from apcore_a2a_server import Limits
from apcore_a2a_server.push import PushSettings
from pydantic import BaseModel

from tests.push.receiver import Receiver, Reply, receiving
from tests.serving import PATIENCE, running

from .checking_client import Agent, Answer, Json
from .inloop import (
    DIALECTS,
    NEEDS_APPROVAL,
    ActionModule,
    Gate,
    Peer,
    echo,
    registry_of,
    serving,
    wait_until,
)
from .inloop import anyio_backend as anyio_backend
from .modules import Inputs
from .test_disconnect import LOST, end_of, outlast_grace_period, wait_until_canceled
from .webhooks import UNREACHABLE, Hooks

ALL_STATES = ["submitted", "working", "completed"]


class Count(BaseModel):
    count: int


async def ask_for_more(inputs: Inputs, context: Any) -> Inputs:
    if not inputs["count"]:
        raise InputRequiredError("How many?")
    return inputs


MODULES: dict[str, object] = {
    "ask": ActionModule(ask_for_more, input_schema=Count),
    "echo": ActionModule(echo),
    "pay": ActionModule(echo, annotations=NEEDS_APPROVAL),
}
QUICK = PushSettings(dev=True, retries=())
"""Push settings without retries."""


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with (
        running(registry_of(MODULES), push_notifications=QUICK) as url,
        httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE) as client,
    ):
        yield client


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def hooks(agent: Agent) -> Hooks:
    return Hooks(agent)


def start_paused_task(agent: Agent, **members: Any) -> str:
    """Start a task that waits for approval and return its id."""
    answer = agent.send("pay", **members)
    assert answer.state == "input-required"
    task_id: str = answer.task["id"]
    return task_id


def answer_with_hook(hooks: Hooks, text: str, hook: Json, **members: Any) -> Answer:
    """Answer a paused task with a message that includes a webhook."""
    part = hooks.agent.part(text=text)
    return hooks.agent.ask("send", hooks.send_params("pay", part, hook=hook, **members))


# With a message


@pytest.mark.parametrize("operation", ["send", "stream"])
def test_the_webhook_of_a_message_gets_every_state_and_is_listed(
    hooks: Hooks, receiver: Receiver, operation: str
) -> None:
    hook = {"id": "c1", "url": receiver.url, "token": "t-1"}
    answer = hooks.agent.ask(operation, hooks.send_params("echo", hook=hook))
    task_id = answer.task_id if operation == "stream" else answer.task["id"]
    receiver.wait(3)
    assert receiver.states == ALL_STATES
    assert {delivery.headers["x-a2a-notification-token"] for delivery in receiver.deliveries} == {
        "t-1"
    }
    assert hooks.get(task_id, "c1").result == hooks.as_shown(task_id, **hook)
    assert hooks.ids(task_id) == ["c1"]


def test_a_task_id_in_the_webhook_of_a_message_is_ignored(hooks: Hooks, receiver: Receiver) -> None:
    another = start_paused_task(hooks.agent)
    hook = {"url": receiver.url, "taskId": another}
    task_id = hooks.agent.ask("send", hooks.send_params("echo", hook=hook)).task["id"]
    assert [config["taskId"] for config in hooks.of(task_id)] == [task_id]
    assert hooks.of(another) == []


def test_the_webhook_of_a_message_gets_an_id(hooks: Hooks) -> None:
    task_id = hooks.agent.ask("send", hooks.send_params("echo", hook={"url": UNREACHABLE})).task[
        "id"
    ]
    (config_id,) = hooks.ids(task_id)
    assert (config_id == task_id) is not hooks.agent.modern  # 0.3 uses the task's id


def test_a_denied_call_reveals_nothing_about_its_webhook() -> None:
    rules = ACL([ACLRule(["@external"], ["echo"], "allow")], default_effect="deny")
    with (
        closing(Executor(registry_of(MODULES), acl=rules)) as executor,
        running(executor, push_notifications=QUICK) as url,
        httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE) as client,
    ):
        for dialect in DIALECTS:
            hooks = Hooks(Agent(client, dialect))
            webhooks = [{"url": UNREACHABLE}, {"url": "ftp://127.0.0.1/"}, {}]
            answers = [
                hooks.agent.ask("send", hooks.send_params("pay", hook=hook)) for hook in webhooks
            ]
            assert [answer.code for answer in answers] == [-32001] * 3
            assert len({answer.response.text for answer in answers}) == 1


# With an answer


@pytest.mark.parametrize("addressed_by", ["task", "context"])
def test_the_webhook_of_an_answer_gets_the_later_states(
    hooks: Hooks, receiver: Receiver, addressed_by: str
) -> None:
    context = str(uuid4())
    task_id = start_paused_task(hooks.agent, contextId=context)
    by_task = addressed_by == "task" or hooks.agent.modern  # only 0.3 answers by context
    target = {"taskId": task_id} if by_task else {"contextId": context}
    assert (
        answer_with_hook(hooks, "yes", {"id": "c1", "url": receiver.url}, **target).task["id"]
        == task_id
    )
    receiver.wait(2)
    assert receiver.states == ["working", "completed"]
    assert hooks.ids(task_id) == ["c1"]


def test_the_webhook_of_an_answer_is_added_to_the_others(hooks: Hooks, receiver: Receiver) -> None:
    hook = {"id": "c1", "url": f"{receiver.url}/first"}
    paused = hooks.agent.ask("send", hooks.send_params("pay", hook=hook))
    task_id = paused.task["id"]
    answer_with_hook(hooks, "yes", {"id": "c2", "url": f"{receiver.url}/second"}, taskId=task_id)
    receiver.wait(7)
    states_by_path = {
        path: [delivery.state for delivery in receiver.deliveries if delivery.path == path]
        for path in ("/hook/first", "/hook/second")
    }
    assert states_by_path == {
        "/hook/first": ["submitted", "working", "input-required", "working", "completed"],
        "/hook/second": ["working", "completed"],
    }
    assert hooks.ids(task_id) == ["c1", "c2"]


def test_an_answer_with_an_invalid_webhook_is_refused(hooks: Hooks) -> None:
    task_id = start_paused_task(hooks.agent)
    assert (
        answer_with_hook(hooks, "yes", {"url": "ftp://127.0.0.1/"}, taskId=task_id).code == -32602
    )
    assert hooks.agent.ask("get", {"id": task_id}).state == "input-required"
    assert hooks.of(task_id) == []
    assert answer_with_hook(hooks, "yes", {"url": UNREACHABLE}, taskId=task_id).state == "completed"


def test_a_refused_answer_adds_no_webhook(hooks: Hooks) -> None:
    agent = hooks.agent
    paused = agent.send("ask", agent.part(data={"count": 0}))
    assert paused.state == "input-required"
    task_id = paused.task["id"]
    wrong = agent.part(data={"count": "many"})
    params = hooks.send_params("ask", wrong, hook={"url": UNREACHABLE}, taskId=task_id)
    assert agent.ask("send", params).code == -32602
    assert agent.ask("get", {"id": task_id}).state == "input-required"
    assert hooks.of(task_id) == []


# After the client has disconnected


@asynccontextmanager
async def without_client(
    dialect: str, receiver: Receiver, operation: str
) -> AsyncIterator[tuple[Peer, str, Gate, Gate]]:
    """Start a task with a webhook and disconnect its client.

    Yields:
        A client of the agent, the task's id, its gate, and the gate of the skill `other`.
    """
    gate, other = Gate(), Gate()
    modules = {"work": ActionModule(gate), "other": ActionModule(other)}
    async with serving(
        modules, dialect, limits=Limits(disconnect_grace=0), push_notifications=QUICK
    ) as peer:
        params = Hooks(peer.wire).send_params("work", hook={"id": "c1", "url": receiver.url})
        if operation == "stream":
            async with peer.streaming("stream", params) as stream:
                await stream.next()
                task_id = await wait_until_working(peer, gate, receiver)
        else:
            send_task = asyncio.create_task(peer.ask("send", params))
            task_id = await wait_until_working(peer, gate, receiver)
            send_task.cancel()
            with suppress(asyncio.CancelledError):
                await send_task
        yield peer, task_id, gate, other


async def wait_until_working(peer: Peer, gate: Gate, receiver: Receiver) -> str:
    """Return the id of the only task, once it is running and no notification is pending."""
    await gate.reached.wait()
    (task_id,) = peer.agent.engine.runs
    await asyncio.to_thread(receiver.wait, 1)
    gauges = peer.agent.gauges()
    await wait_until(lambda: not gauges["webhooks_pending"]())
    return task_id


every_dialect = pytest.mark.parametrize("dialect", DIALECTS)
each_operation = pytest.mark.parametrize("operation", ["send", "stream"])


@every_dialect
@each_operation
@pytest.mark.anyio
async def test_a_task_with_a_webhook_keeps_running_without_its_client(
    dialect: str, operation: str, receiver: Receiver
) -> None:
    async with without_client(dialect, receiver, operation) as (peer, task_id, gate, other):
        await outlast_grace_period(peer, other)
        assert await peer.state(task_id) == "working"
        gate.opened.set()
        await asyncio.to_thread(receiver.wait, 3)
        assert receiver.states == ALL_STATES


@every_dialect
@each_operation
@pytest.mark.anyio
async def test_a_task_whose_webhook_has_failed_is_canceled_when_its_client_disconnects(
    dialect: str, operation: str
) -> None:
    with receiving(lambda delivery: Reply(500)) as receiver:
        async with without_client(dialect, receiver, operation) as (peer, task_id, gate, _):
            await wait_until_canceled(gate)
            assert await end_of(peer, task_id) == LOST


@every_dialect
@pytest.mark.anyio
async def test_a_task_whose_webhook_was_deleted_is_canceled_when_its_client_disconnects(
    dialect: str, receiver: Receiver
) -> None:
    gate = Gate()
    modules = {"work": ActionModule(gate)}
    async with serving(
        modules, dialect, limits=Limits(disconnect_grace=0), push_notifications=QUICK
    ) as peer:
        hooks = Hooks(peer.wire)
        params = hooks.send_params("work", hook={"id": "c1", "url": receiver.url})
        async with peer.streaming("stream", params) as stream:
            await stream.next()
            task_id = await wait_until_working(peer, gate, receiver)
            assert (await peer.ask("push delete", hooks.params_of(task_id, "c1"))).error is None
        await wait_until_canceled(gate)
        assert await end_of(peer, task_id) == LOST
