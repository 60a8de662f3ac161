"""The official Python SDK's client against the server, over JSON-RPC and HTTP+JSON."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from a2a.client import A2ACardResolver, A2AClientError, Client, ClientConfig, ClientFactory
from a2a.helpers import get_data_parts, get_raw_parts, new_data_message, new_text_message
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Role,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from a2a.utils.errors import (
    A2AError,
    InvalidParamsError,
    MethodNotFoundError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from google.protobuf.json_format import MessageToDict

pytestmark = pytest.mark.anyio

BINDINGS = {
    "jsonrpc-1.0": ("JSONRPC", "1.0"),
    "rest-1.0": ("HTTP+JSON", "1.0"),
    "jsonrpc-0.3": ("JSONRPC", "0.3"),
    "rest-0.3": ("HTTP+JSON", "0.3"),
}
COMPLETED = TaskState.TASK_STATE_COMPLETED
CANCELED = TaskState.TASK_STATE_CANCELED
WORKING = TaskState.TASK_STATE_WORKING
INPUT_REQUIRED = TaskState.TASK_STATE_INPUT_REQUIRED
TERMINAL = {COMPLETED, CANCELED, TaskState.TASK_STATE_FAILED, TaskState.TASK_STATE_REJECTED}


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=20) as client:
        yield client


@pytest.fixture
async def card(http: httpx.AsyncClient, agent: str) -> AgentCard:
    return await A2ACardResolver(http, agent).get_agent_card()


@pytest.fixture(params=BINDINGS)
def binding(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Clients:
    """A client that streams, one that waits for the result, and one that does not wait."""

    def __init__(self, http: httpx.AsyncClient, card: AgentCard, binding: str) -> None:
        protocol, version = BINDINGS[binding]
        card_of_binding = AgentCard()
        card_of_binding.CopyFrom(card)
        del card_of_binding.supported_interfaces[:]
        card_of_binding.supported_interfaces.extend(
            interface
            for interface in card.supported_interfaces
            if (interface.protocol_binding, interface.protocol_version) == (protocol, version)
        )
        self._http, self._card, self._protocol = http, card_of_binding, protocol
        self.streaming = self._client(streaming=True)
        self.blocking = self._client(streaming=False)
        self.polling = self._client(streaming=False, polling=True)

    def _client(self, streaming: bool, polling: bool = False) -> Client:
        config = ClientConfig(streaming, polling, self._http)
        config.supported_protocol_bindings = [self._protocol]
        return ClientFactory(config).create(self._card)

    async def send(self, message: SendMessageRequest) -> Task:
        """Send a message and return its task once it has ended or paused."""
        return await task_of(self.blocking, message)

    async def start(self, message: SendMessageRequest) -> Task:
        """Send a message and return its task as soon as it exists."""
        return await task_of(self.polling, message)

    async def stream(self, message: SendMessageRequest) -> list[StreamResponse]:
        return [event async for event in self.streaming.send_message(message)]

    async def get(self, task: Task) -> Task:
        return await self.blocking.get_task(GetTaskRequest(id=task.id))

    async def cancel(self, task: Task) -> Task:
        return await self.blocking.cancel_task(CancelTaskRequest(id=task.id))

    @asynccontextmanager
    async def subscribed(self, task: Task) -> AsyncIterator[AsyncIterator[StreamResponse]]:
        """Subscribe to a task and yield its events after the first, which is the task itself."""
        request = SubscribeToTaskRequest(id=task.id)
        subscription = self.streaming.subscribe(request)
        assert isinstance(subscription, AsyncGenerator)
        async with aclosing(subscription) as events:
            first = await anext(events)
            assert first.task.id == task.id
            yield events


@pytest.fixture
def clients(http: httpx.AsyncClient, card: AgentCard, binding: str) -> Clients:
    return Clients(http, card, binding)


async def task_of(client: Client, message: SendMessageRequest) -> Task:
    (response,) = [event async for event in client.send_message(message)]
    assert response.HasField("task")
    return response.task


def request_to(
    skill: str | None, content: Any, task_id: str = "", context_id: str = ""
) -> SendMessageRequest:
    """Return a request that sends data or text to a skill."""
    if isinstance(content, str):
        message: Message = new_text_message(content, role=Role.ROLE_USER)
    else:
        message = new_data_message(content, role=Role.ROLE_USER)
    message.MergeFrom(Message(task_id=task_id, context_id=context_id))
    request = SendMessageRequest(message=message)
    if skill is not None:
        request.metadata.update({"skillId": skill})
    return request


def output(task: Task) -> Any:
    (artifact,) = task.artifacts
    (data,) = get_data_parts(artifact.parts)
    return data


def state(event: StreamResponse) -> TaskState:
    update_or_task = event.status_update if event.HasField("status_update") else event.task
    return update_or_task.status.state


async def test_the_card_lists_the_bindings_and_skills(card: AgentCard, agent: str) -> None:
    interfaces = [(i.protocol_binding, i.protocol_version) for i in card.supported_interfaces]
    assert interfaces == [
        ("JSONRPC", "1.0"),
        ("JSONRPC", "0.3"),
        ("HTTP+JSON", "1.0"),
        ("HTTP+JSON", "0.3"),
    ]
    assert {i.url for i in card.supported_interfaces} == {f"{agent}/"}
    assert {skill.id for skill in card.skills} >= {"csv.summary", "jobs.countdown", "test.echo"}
    assert all(skill.tags for skill in card.skills)
    assert card.capabilities.streaming


async def test_both_card_urls_return_the_same_card(
    http: httpx.AsyncClient, card: AgentCard, agent: str
) -> None:
    resolver = A2ACardResolver(http, agent, agent_card_path="/.well-known/agent.json")
    assert await resolver.get_agent_card() == card


async def test_a_blocking_send_returns_the_result(clients: Clients) -> None:
    task = await clients.send(request_to("csv.summary", {"text": "name,age\nAda,36\nAlan,41\n"}))
    assert task.status.state == COMPLETED
    assert output(task)["rows"] == 2
    assert await clients.get(task) == task


async def test_text_is_accepted_by_a_skill_with_a_text_input(clients: Clients) -> None:
    task = await clients.send(request_to("markdown.html", "# Tea"))
    assert output(task) == {"html": "<h1>Tea</h1>"}


async def test_whole_numbers_arrive_exactly(clients: Clients) -> None:
    order = {
        "customer": {"name": "Ada", "address": {"city": "London", "country": "GB"}},
        "lines": [{"sku": "tea", "quantity": 3, "unit_cents": 10_000_000}],
    }
    task = await clients.send(request_to("orders.price", order))
    assert output(task)["total_cents"] == 36_000_000
    numbers = {"largest": 2**53, "smallest": -(2**53), "odd": 2**53 - 1, "half": 0.5}
    assert output(await clients.send(request_to("test.echo", numbers))) == numbers


async def test_bytes_arrive_as_a_file(clients: Clients, binding: str) -> None:
    task = await clients.send(request_to("test.pack", {"text": "grüße"}))
    (artifact,) = task.artifacts
    if binding == "rest-0.3":  # the SDKs disagree on bytes here, so the agent sends a URL
        (url,) = [part.url for part in artifact.parts if part.url]
        assert url == "data:text/plain;base64,Z3LDvMOfZQ=="
    else:
        assert get_raw_parts(artifact.parts) == ["grüße".encode()]
    assert [part.filename for part in artifact.parts if part.filename] == ["note.txt"]
    assert get_data_parts(artifact.parts) == [{"size": 7}]


async def test_a_task_sent_without_waiting_can_be_followed_to_its_end(clients: Clients) -> None:
    gate = str(uuid4())
    task = await clients.start(request_to("test.wait", {"gate": gate}))
    assert task.status.state not in TERMINAL
    assert (await clients.get(task)).status.state not in TERMINAL
    async with clients.subscribed(task) as events:
        await clients.send(request_to("test.open", {"gate": gate}))
        *_, last = [event async for event in events]
    assert state(last) == COMPLETED
    assert output(await clients.get(task)) == {"opened": gate}


async def test_a_stream_delivers_chunks_then_the_final_state(clients: Clients) -> None:
    events = await clients.stream(request_to("text.stats", {"text": "To be\n\nor not\n\nto be"}))
    first, *updates_before_last, last = events
    assert first.task.status.state == TaskState.TASK_STATE_SUBMITTED
    assert state(updates_before_last[0]) == WORKING
    updates = [event.artifact_update for event in updates_before_last[1:]]
    assert [update.append for update in updates] == [False, True, True, True]
    assert {update.artifact.artifact_id for update in updates} == {"result"}
    assert state(last) == COMPLETED
    (artifact,) = (await clients.get(first.task)).artifacts
    assert list(artifact.parts) == [part for update in updates for part in update.artifact.parts]


async def test_every_event_of_a_stream_names_its_task_and_context(clients: Clients) -> None:
    first, *rest = await clients.stream(request_to("markdown.html", "tea", context_id="c-1"))
    assert first.task.context_id == "c-1"
    for event in rest:
        update = event.status_update if event.HasField("status_update") else event.artifact_update
        assert (update.task_id, update.context_id) == (first.task.id, "c-1")


async def test_a_slow_job_can_be_canceled(clients: Clients) -> None:
    events = clients.streaming.send_message(
        request_to("jobs.countdown", {"seconds": 300, "step": 300})
    )
    first = await anext(events)
    while state(event := await anext(events)) != WORKING:
        assert event.HasField("status_update")
    canceled = await clients.cancel(first.task)
    assert canceled.status.state == CANCELED
    *_, last = [event async for event in events]
    assert state(last) == CANCELED
    with pytest.raises(TaskNotCancelableError):
        await clients.cancel(first.task)


async def test_two_subscribers_receive_the_same_last_event(clients: Clients) -> None:
    gate = str(uuid4())
    task = await clients.start(request_to("test.wait", {"gate": gate}))
    async with clients.subscribed(task) as first_events, clients.subscribed(task) as second_events:
        await clients.send(request_to("test.open", {"gate": gate}))
        last_events = [
            [event async for event in events][-1] for events in (first_events, second_events)
        ]
    assert last_events[0] == last_events[1]
    assert state(last_events[0]) == COMPLETED


async def test_a_subscription_to_a_finished_task_returns_it_in_0_3_and_fails_in_1_0(
    clients: Clients, binding: str
) -> None:
    task = await clients.send(request_to("test.echo", {}))
    request = SubscribeToTaskRequest(id=task.id)
    if binding.endswith("0.3"):
        (event,) = [event async for event in clients.streaming.subscribe(request)]
        assert state(event) == COMPLETED
    else:
        with pytest.raises(UnsupportedOperationError):
            await anext(clients.streaming.subscribe(request))


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (request_to("no.such", {}), MethodNotFoundError),
        (request_to(None, {}), InvalidParamsError),
        (request_to("csv.summary", {"text": 5}), InvalidParamsError),
        (request_to("test.echo", {}, task_id="no-such"), TaskNotFoundError),
    ],
)
async def test_a_request_that_cannot_run_is_an_error_and_creates_no_task(
    clients: Clients, binding: str, message: SendMessageRequest, error: type[A2AError]
) -> None:
    message.message.context_id = context = str(uuid4())
    for client in (clients.blocking, clients.streaming):
        with pytest.raises(A2AError) as caught:
            await anext(client.send_message(message))
        if binding == "rest-1.0" and caught.type is A2AClientError:
            # the SDK maps only the protocol's own reasons
            assert "400 Bad Request" in str(caught.value)
        else:
            assert caught.type is error
    if not binding.endswith("0.3"):
        page = await clients.blocking.list_tasks(ListTasksRequest(context_id=context))
        assert not page.tasks


async def test_an_unknown_task_is_not_found(clients: Clients) -> None:
    unknown = Task(id=str(uuid4()))
    for operation in (clients.get, clients.cancel):
        with pytest.raises(TaskNotFoundError):
            await operation(unknown)
    with pytest.raises(TaskNotFoundError):
        await anext(clients.streaming.subscribe(SubscribeToTaskRequest(id=unknown.id)))


async def test_a_finished_task_accepts_no_message(clients: Clients) -> None:
    task = await clients.send(request_to("test.echo", {}))
    with pytest.raises(UnsupportedOperationError):
        await clients.send(request_to("test.echo", {}, task_id=task.id))


async def test_a_module_that_raises_fails_its_task_without_details(clients: Clients) -> None:
    task = await clients.send(request_to("test.fail", {}))
    assert task.status.state == TaskState.TASK_STATE_FAILED
    (reason,) = get_data_parts(task.status.message.parts)
    assert reason["code"] == -32603
    assert "secret" not in str(MessageToDict(task))


async def test_push_notifications_are_refused(clients: Clients) -> None:
    message = request_to("test.echo", {})
    config = message.configuration.task_push_notification_config
    config.url = "https://example.com/hook"
    with pytest.raises(PushNotificationNotSupportedError):
        await clients.send(message)


async def test_a_destructive_skill_runs_after_approval(clients: Clients, sandbox: Path) -> None:
    file = sandbox / f"{uuid4()}.txt"
    file.write_text("old", encoding="utf-8")
    paused = await clients.send(request_to("files.delete", {"path": file.name}))
    assert paused.status.state == INPUT_REQUIRED
    assert file.exists()
    resumed = await clients.send(
        request_to(None, "yes", task_id=paused.id, context_id=paused.context_id)
    )
    assert resumed.id == paused.id
    assert resumed.status.state == COMPLETED
    assert output(resumed) == {"deleted": file.name, "size": 3}
    assert not file.exists()


async def test_a_rejected_destructive_skill_does_not_run(clients: Clients, sandbox: Path) -> None:
    file = sandbox / f"{uuid4()}.txt"
    file.write_text("old", encoding="utf-8")
    first, *_, pause = await clients.stream(request_to("files.delete", {"path": file.name}))
    assert state(pause) == INPUT_REQUIRED
    events = await clients.stream(request_to(None, {"approved": False}, task_id=first.task.id))
    assert state(events[-1]) == TaskState.TASK_STATE_REJECTED
    assert file.exists()


async def test_tasks_are_listed_by_context_page_by_page(clients: Clients, binding: str) -> None:
    context = str(uuid4())
    sent = [
        await clients.send(request_to("test.echo", {"n": n}, context_id=context)) for n in range(3)
    ]
    request = ListTasksRequest(context_id=context, page_size=2, include_artifacts=True)
    if binding.endswith("0.3"):
        with pytest.raises(NotImplementedError):
            await clients.blocking.list_tasks(request)
        return
    first_page = await clients.blocking.list_tasks(request)
    assert (first_page.total_size, first_page.page_size, len(first_page.tasks)) == (3, 2, 2)
    request.page_token = first_page.next_page_token
    second_page = await clients.blocking.list_tasks(request)
    assert second_page.next_page_token == ""
    assert [*first_page.tasks, *second_page.tasks] == sent[::-1]
