"""Delivery queue with a transport controlled by the test, for tests that depend on order."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from apcore_a2a_core.data import (
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from apcore_a2a_core.states import WORKING
from apcore_a2a_server import InMemoryTaskStore
from apcore_a2a_server.push import PushSettings
from apcore_a2a_server.push.queue import DeliveryQueue
from apcore_a2a_server.push.sender import WebhookSender
from apcore_a2a_server.push.signing import Signer
from apcore_a2a_server.push.transport import WebhookResponse, WebhookTransport
from apcore_a2a_server.store import Webhook
from apcore_a2a_server.store.live import LiveTasks
from msgspec import structs

from tests.server.test_memory_store import record
from tests.serving import PATIENCE

OLD, NEW, LATER = (f"http://127.0.0.1:9/{name}" for name in ("old", "new", "later"))
OK = WebhookResponse(200, "status 200")


def hook(url: str = OLD, name: str = "c1", **members: Any) -> Webhook:
    config = TaskPushNotificationConfig(task_id="t", id=name, url=url, **members)
    return Webhook(config)


def response_with(status: int) -> WebhookResponse:
    return WebhookResponse(status, f"status {status}")


@dataclass(frozen=True, eq=False)
class Attempt:
    """Attempt that is in flight until it has an answer."""

    url: str
    id: str
    answer: asyncio.Future[WebhookResponse]


class ManualTransport(WebhookTransport):
    """Transport whose attempts are answered by the test."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.overlapping: list[str] = []
        """Ids of notifications posted again to a URL while an earlier attempt was in flight."""
        self._new: asyncio.Queue[Attempt] = asyncio.Queue()
        self._default_response: WebhookResponse | None = None

    @property
    def urls(self) -> list[str]:
        return [attempt.url for attempt in self.attempts]

    @property
    def in_flight(self) -> int:
        return sum(not attempt.answer.done() for attempt in self.attempts)

    async def post(
        self, url: str, headers: list[tuple[str, str]], body: bytes, principal: str
    ) -> WebhookResponse:
        notification_id = dict(headers)["webhook-id"]
        in_flight = [attempt for attempt in self.attempts if not attempt.answer.done()]
        if any((attempt.url, attempt.id) == (url, notification_id) for attempt in in_flight):
            self.overlapping.append(notification_id)
        attempt = Attempt(url, notification_id, asyncio.get_running_loop().create_future())
        self.attempts.append(attempt)
        self._new.put_nowait(attempt)
        if self._default_response is not None:
            attempt.answer.set_result(self._default_response)
        return await attempt.answer

    async def close(self) -> None:
        pass

    async def next(self) -> Attempt:
        """Return the next attempt once it is in flight."""
        return await self._new.get()

    async def answer(self, *statuses: int) -> None:
        """Answer the next attempts with these statuses."""
        for status in statuses:
            (await self.next()).answer.set_result(response_with(status))

    def answer_all(self) -> None:
        """Answer all attempts, those in flight and those to come, with 200."""
        self._default_response = OK
        for attempt in self.attempts:
            if not attempt.answer.done():
                attempt.answer.set_result(OK)


@dataclass(frozen=True)
class Bench:
    """Delivery queue over a store, with a transport controlled by the test; the task's id is t."""

    store: InMemoryTaskStore
    tasks: LiveTasks
    queue: DeliveryQueue
    transport: ManualTransport

    @property
    def deliveries(self) -> list[asyncio.Task[None]]:
        """Attempts that are in flight or about to start."""
        return [*self.queue._deliveries]

    def leftovers(self) -> list[Any]:
        """Return the remains of notifications in the outbox and the queue."""
        outbox, queue = self.store._outbox, self.queue
        in_outbox = (
            outbox._queues,
            outbox._due,
            outbox._pending,
            outbox._bytes_of,
            outbox._tasks_with_failures,
        )
        in_queue = queue._deliveries, queue._owner_counts, queue._host_counts
        return [remains for remains in (*in_outbox, *in_queue) if remains]

    async def set_webhooks(self, *webhooks: Webhook) -> None:
        await self.tasks.store.edit_webhooks("t", lambda _: webhooks)

    async def change_state(self, state: TaskState) -> None:
        """Move the task to another state."""
        entry = await self.tasks.open("t")
        assert entry
        task = structs.replace(entry.record.task, status=TaskStatus(state=state))
        event = TaskStatusUpdateEvent(task_id="t", context_id="c", status=task.status)
        changed_record = structs.replace(entry.record, task=task, version=entry.record.version + 1)
        async with entry.lock:
            await self.tasks.write(entry, changed_record, [event])

    async def failures(self) -> dict[str, str]:
        return {w.config.id: w.failure for w in await self.tasks.store.webhooks("t")}


@asynccontextmanager
async def bench(
    *webhooks: Webhook,
    store: InMemoryTaskStore | None = None,
    retries: Sequence[float] = (600, 600),
) -> AsyncIterator[Bench]:
    """Yield a bench; then check that nothing is left in its queue and no error was unhandled."""
    unhandled_errors: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, error_context: unhandled_errors.append(error_context)
    )
    settings, transport = PushSettings(dev=True, retries=retries), ManualTransport()
    store = InMemoryTaskStore() if store is None else store
    tasks = LiveTasks(store)
    signer = Signer(settings.secrets)
    sender = WebhookSender(tasks, transport, signer, retries, lambda result, number: None)
    queue = DeliveryQueue(store, sender, settings)
    queue.start()
    new_record = record("t", WORKING, owner="ada")
    async with asyncio.timeout(PATIENCE):
        await tasks.create(new_record, [new_record.task], webhooks)
        delivery_bench = Bench(store, tasks, queue, transport)
        yield delivery_bench
        transport.answer_all()
        await queue.drain(PATIENCE)
    assert not unhandled_errors, unhandled_errors
    assert not transport.overlapping, transport.overlapping
    assert not delivery_bench.leftovers(), delivery_bench.leftovers()
