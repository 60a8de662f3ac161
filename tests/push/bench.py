"""A queue of deliveries whose transport is in a test's hand: for what depends on order."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from a2a import types as a2a
from apcore_a2a_core.states import WORKING
from apcore_a2a_server import InMemoryTaskStore
from apcore_a2a_server.push import PushSettings
from apcore_a2a_server.push.guard import Guard
from apcore_a2a_server.push.queue import DeliveryQueue
from apcore_a2a_server.push.sender import WebhookSender
from apcore_a2a_server.push.signing import Signer
from apcore_a2a_server.push.transport import Answer, WebhookTransport
from apcore_a2a_server.store import Webhook
from apcore_a2a_server.store.live import LiveTasks

from tests.server.test_memory_store import record
from tests.serving import PATIENCE

OLD, NEW, LATER = (f"http://127.0.0.1:9/{name}" for name in ("old", "new", "later"))
OK = Answer(200, "status 200")


def hook(url: str = OLD, name: str = "c1", **members: Any) -> Webhook:
    config = a2a.TaskPushNotificationConfig(task_id="t", id=name, url=url, **members)
    return Webhook(config)


def answering(status: int) -> Answer:
    return Answer(status, f"status {status}")


@dataclass(frozen=True, eq=False)
class Attempt:
    """An attempt that is under way until it has an answer."""

    url: str
    id: str
    answer: asyncio.Future[Answer]


class Hand(WebhookTransport):
    """A transport of which a test decides by hand what comes of an attempt, and when."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.twice: list[str] = []
        """Deliveries to an address during an earlier delivery there."""
        self._new: asyncio.Queue[Attempt] = asyncio.Queue()
        self._always: Answer | None = None

    @property
    def urls(self) -> list[str]:
        return [attempt.url for attempt in self.attempts]

    @property
    def under_way(self) -> int:
        return sum(not attempt.answer.done() for attempt in self.attempts)

    async def post(
        self, url: str, headers: list[tuple[str, str]], body: bytes, principal: str
    ) -> Answer:
        told = dict(headers)["webhook-id"]
        under_way = [known for known in self.attempts if not known.answer.done()]
        if any((known.url, known.id) == (url, told) for known in under_way):
            self.twice.append(told)
        attempt = Attempt(url, told, asyncio.get_running_loop().create_future())
        self.attempts.append(attempt)
        self._new.put_nowait(attempt)
        if self._always is not None:
            attempt.answer.set_result(self._always)
        return await attempt.answer

    async def close(self) -> None:
        pass

    async def next(self) -> Attempt:
        """The next attempt, as soon as it is under way."""
        return await self._new.get()

    async def answer(self, *statuses: int) -> None:
        """Answer the next attempts."""
        for status in statuses:
            (await self.next()).answer.set_result(answering(status))

    def answer_all(self) -> None:
        """Answer what is under way, and all that comes, with 200."""
        self._always = OK
        for attempt in self.attempts:
            if not attempt.answer.done():
                attempt.answer.set_result(OK)


@dataclass(frozen=True)
class Bench:
    """A queue over a store, whose transport is in a test's hand; the task is named t."""

    store: InMemoryTaskStore
    tasks: LiveTasks
    queue: DeliveryQueue
    hand: Hand

    @property
    def deliveries(self) -> list[asyncio.Task[None]]:
        """The attempts that are under way, or about to be."""
        return [*self.queue._deliveries]

    def left(self) -> list[Any]:
        """The notifications in the outbox: none, in the end."""
        outbox, queue = self.store._outbox, self.queue
        kept = outbox._queues, outbox._due, outbox._pending, outbox._bytes, outbox._failing
        held = queue._deliveries, queue._of_owner, queue._of_host
        return [each for each in (*kept, *held) if each]

    async def set(self, *webhooks: Webhook) -> None:
        await self.tasks.store.edit_webhooks("t", lambda _: webhooks)

    async def move(self, state: a2a.TaskState) -> None:
        """Bring the task into another state."""
        entry = await self.tasks.open("t")
        assert entry
        task = a2a.Task()
        task.CopyFrom(entry.record.task)
        task.status.state = state
        event = a2a.TaskStatusUpdateEvent(task_id="t", context_id="c", status=task.status)
        changed = replace(entry.record, task=task, version=entry.record.version + 1)
        async with entry.lock:
            await self.tasks.write(entry, changed, [event])

    async def failures(self) -> dict[str, str]:
        return {w.config.id: w.failure for w in await self.tasks.store.webhooks("t")}


@asynccontextmanager
async def bench(
    *webhooks: Webhook,
    store: InMemoryTaskStore | None = None,
    retries: Sequence[float] = (600, 600),
) -> AsyncIterator[Bench]:
    """A queue; in the end nothing may be left in it, and nobody may have complained."""
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: complaints.append(about))
    settings, hand = PushSettings(dev=True, retries=retries), Hand()
    store = InMemoryTaskStore() if store is None else store
    tasks = LiveTasks(store)
    guard, signer = Guard(settings), Signer(settings.secrets)
    sender = WebhookSender(tasks, hand, guard, signer, retries, lambda result, number: None)
    queue = DeliveryQueue(store, sender, settings, lambda result, number: None)
    queue.start()
    given = record("t", WORKING, owner="ada")
    async with asyncio.timeout(PATIENCE):
        await tasks.create(given, [given.task], webhooks)
        it = Bench(store, tasks, queue, hand)
        yield it
        hand.answer_all()
        await queue.drain(PATIENCE)
    assert not complaints, complaints
    assert not hand.twice, hand.twice
    assert not it.left(), it.left()
