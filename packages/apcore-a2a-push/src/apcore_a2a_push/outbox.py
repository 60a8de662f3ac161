"""The outbox: what webhooks still have to be told, and the workers that tell them.

Each webhook of a task is a lane, with its notifications in their order and a worker of its own
as long as there are any. Lanes wait for receivers; tasks, and other lanes, wait for none of them.
"""

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from a2a.utils.errors import TaskNotFoundError
from apcore_a2a_core.errors import clean
from apcore_a2a_store import Journal, Transition, Webhook

from .guard import Target
from .notice import Notice
from .poster import Answer, Poster
from .settings import PushSettings
from .signing import Signer, notification_id

logger = logging.getLogger("apcore_a2a.push")

PER_HOST = 8
"""How many notifications are under way to a host at a time: slow ones keep to themselves."""
PER_OWNER = 32
"""How many of one principal."""
GONE = 410

Result: TypeAlias = Literal["delivered", "retried", "failed"]
OnResult: TypeAlias = Callable[[Result], None]


@dataclass(slots=True)
class Row:
    """One transition that a webhook has to be told."""

    id: str
    notice: Notice
    since: float = field(default_factory=time.monotonic)


@dataclass(slots=True, eq=False)
class Lane:
    """What one webhook of a task has to be told, in this order."""

    task_id: str
    owner: str
    webhook: Webhook
    rows: deque[Row] = field(default_factory=deque[Row])
    hurry: asyncio.Event = field(default_factory=asyncio.Event)
    worker: "asyncio.Task[None] | None" = None
    closed: bool = False
    is_full: bool = False

    def __str__(self) -> str:
        config = self.webhook.config
        host = clean(urlsplit(config.url).hostname or "", 100)
        return f"webhook {clean(config.id, 60)} of task {self.task_id} at {host}"


class Outbox:
    """Tells webhooks, at least once and in order, or says that it could not.

    Args:
        journal: Where it is written down that a webhook has failed.
        poster: Sends a notification.
        target: From a webhook's URL to where it leads.
        settings: How often, how long, and with what signature.

    Attributes:
        on_result: Is told what comes of notifications: delivered, retried, failed.
    """

    def __init__(
        self,
        journal: Journal,
        poster: Poster,
        target: Callable[[str], Target],
        settings: PushSettings,
    ) -> None:
        self.on_result: OnResult = lambda result: None
        self._journal = journal
        self._poster = poster
        self._target = target
        self._retries = tuple(settings.retries)
        self._max_pending = settings.max_pending
        self._signer = Signer(settings.secrets)
        self._lanes: dict[str, dict[str, Lane]] = {}
        self._pending: Counter[str] = Counter()
        self._places: WeakValueDictionary[tuple[str, str], asyncio.Semaphore]
        self._places = WeakValueDictionary()

    @property
    def pending(self) -> int:
        """How many notifications wait."""
        return self._pending.total()

    @property
    def age(self) -> float:
        """Seconds since the oldest of them came."""
        firsts = [lane.rows[0].since for lane in self._all() if lane.rows]
        return time.monotonic() - min(firsts) if firsts else 0

    def put(self, transition: Transition, webhooks: Sequence[Webhook]) -> None:
        """Have each of *webhooks* told of a transition; returns at once."""
        notice = Notice(transition)
        for webhook in webhooks:
            if not webhook.failure:
                self._put(notice, webhook)

    def update(self, task_id: str, webhooks: Sequence[Webhook]) -> None:
        """The webhooks of a task are now these; who is no more among them is told nothing more."""
        current = {w.config.id: w for w in webhooks if not w.failure}
        for config_id, lane in [*self._lanes.get(task_id, {}).items()]:
            if config_id in current:
                lane.webhook, lane.closed = current[config_id], False
                lane.hurry.set()
            elif not lane.closed:
                self._clear(lane)
                if lane.worker is not None:
                    lane.worker.cancel()

    async def drain(self, seconds: float) -> None:
        """Try what waits once more, at once, and for *seconds*; report what is left then."""
        for lane in self._all():
            lane.hurry.set()
        await _ended(self._workers(), seconds)
        for lane in self._all():
            if lane.rows:
                told = "%d notifications for %s are lost: the server ends"
                logger.warning(told, len(lane.rows), lane)
                self._clear(lane, "failed")
        for worker in self._workers():
            worker.cancel()
        await _ended(self._workers(), 1)
        await self._poster.close()

    def _put(self, notice: Notice, webhook: Webhook) -> None:
        about = notice.transition
        lanes = self._lanes.setdefault(about.task.id, {})
        lane = lanes.get(webhook.config.id)
        if lane is None:
            lane = lanes[webhook.config.id] = Lane(about.task.id, about.owner, webhook)
        if lane.closed:
            return
        if self._pending[lane.owner] >= self._max_pending:
            lane.is_full = True
        else:
            row_id = notification_id(lane.task_id, webhook.config.id, about.version)
            lane.rows.append(Row(row_id, notice))
            self._pending[lane.owner] += 1
        if lane.worker is None:
            self._start(lane)

    def _start(self, lane: Lane) -> None:
        lane.worker = asyncio.get_running_loop().create_task(self._work(lane))
        lane.worker.add_done_callback(partial(self._on_done, lane))

    async def _work(self, lane: Lane) -> None:
        """Deliver a lane's notifications, one behind the other, until there are no more."""
        while lane.rows or lane.is_full:
            if lane.is_full:
                await self._fail(lane, "too many notifications wait")
            elif failure := await self._deliver(lane, lane.rows[0]):
                await self._fail(lane, failure)
            else:
                lane.rows.popleft()
                self._pending[lane.owner] -= 1
                self.on_result("delivered")

    async def _deliver(self, lane: Lane, row: Row) -> str:
        """Try until it is delivered; why it could not be, if so."""
        attempts = len(self._retries) + 1
        for number, seconds in enumerate((*self._retries, None), 1):
            answer = await self._attempt(lane, row)
            if answer.is_success:
                return ""
            if answer.status == GONE or seconds is None:
                return answer.reason
            seconds = max(seconds, answer.retry_after if answer.status in (429, 503) else 0)
            told = "Attempt %d of %d for %s failed: %s; again in %.3g s"
            logger.warning(told, number, attempts, lane, answer.reason, seconds)
            self.on_result("retried")
            await _pause(lane, seconds)
        raise AssertionError("unreachable")  # the last has no seconds

    async def _attempt(self, lane: Lane, row: Row) -> Answer:
        webhook = lane.webhook
        try:
            host = self._target(webhook.config.url).host
        except ValueError:  # it was set when the settings were others
            return Answer(0, "its address is not allowed")
        async with self._place("host", host, PER_HOST), self._place("owner", lane.owner, PER_OWNER):
            body = row.notice.body(webhook.version)
            headers = row.notice.headers(webhook) + self._signer.headers(row.id, body)
            return await self._poster.post(webhook.config.url, headers, body)

    def _place(self, kind: str, name: str, limit: int) -> asyncio.Semaphore:
        """What admits so many at a time; it is gone when nobody has it."""
        place = self._places.get((kind, name))
        if place is None:
            place = self._places[kind, name] = asyncio.Semaphore(limit)
        return place

    async def _fail(self, lane: Lane, reason: str) -> None:
        """Give up on a webhook, and write that down."""
        lane.closed, lane.is_full = True, False
        failing = lane.webhook
        logger.warning("The %s has failed: %s; it is told nothing more", lane, reason)
        self._clear(lane, "failed")

        def mark(webhooks: Sequence[Webhook]) -> Sequence[Webhook]:
            failed = Webhook(failing.config, failing.version, reason)
            return [failed if webhook == failing else webhook for webhook in webhooks]

        try:
            await self._journal.edit_webhooks(lane.task_id, mark)
        except TaskNotFoundError:  # it has left, and its webhooks with it
            return
        except Exception as error:  # a user's store may raise anything
            logger.warning("That it has failed was not saved: %s", type(error).__name__)

    def _clear(self, lane: Lane, result: Result | None = None) -> None:
        self._pending[lane.owner] -= len(lane.rows)
        if result is not None:
            for _ in lane.rows:
                self.on_result(result)
        lane.rows.clear()

    def _on_done(self, lane: Lane, worker: "asyncio.Task[None]") -> None:
        """A lane's worker has ended: the lane goes, unless it has got more to do meanwhile."""
        lane.worker = None
        if not worker.cancelled() and (error := worker.exception()):
            logger.error("Telling the %s failed", lane, exc_info=error)
            self._clear(lane, "failed")
        if lane.rows:
            self._start(lane)
            return
        del self._lanes[lane.task_id][lane.webhook.config.id]
        if not self._lanes[lane.task_id]:
            del self._lanes[lane.task_id]
        if not self._pending[lane.owner]:
            del self._pending[lane.owner]

    def _workers(self) -> list["asyncio.Task[None]"]:
        return [lane.worker for lane in self._all() if lane.worker is not None]

    def _all(self) -> list[Lane]:
        return [lane for lanes in self._lanes.values() for lane in lanes.values()]


async def _ended(workers: Sequence["asyncio.Task[None]"], seconds: float) -> None:
    """Wait until these have ended, or so many seconds."""
    if workers:
        await asyncio.wait(workers, timeout=seconds)


async def _pause(lane: Lane, seconds: float) -> None:
    """Wait for the next attempt, or until there is a reason not to."""
    lane.hurry.clear()
    with suppress(TimeoutError):
        await asyncio.wait_for(lane.hurry.wait(), seconds)
