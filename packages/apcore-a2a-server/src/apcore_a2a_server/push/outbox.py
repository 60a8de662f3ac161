"""The outbox: tells webhooks, at least once and in order, or says that it could not.

Each webhook of a task is a lane of notifications. Lanes wait for receivers; tasks, and other
lanes, wait for none of them.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from a2a.utils.errors import TaskNotFoundError

from apcore_a2a_server.store import Journal, Transition, Webhook
from apcore_a2a_server.store.webhooks import TOO_MANY

from .lanes import Lane, Row
from .notice import Notice
from .settings import PushSettings
from .teller import FAILED, OnResult, Result, Teller
from .turns import Desk, Work

logger = logging.getLogger("apcore_a2a.push")

MAX_BYTES = 256 * 1024 * 1024
"""How large all that waits for a principal may be."""


class Outbox:
    """What webhooks still have to be told, and the work of telling them.

    Args:
        journal: Where it is written down that a webhook has failed.
        teller: Tells a webhook.
        settings: How much may wait.

    Attributes:
        on_result: Is told what comes of notifications: delivered, retried, failed.
    """

    def __init__(self, journal: Journal, teller: Teller, settings: PushSettings) -> None:
        self.on_result: OnResult = lambda result: None
        self._journal = journal
        self._teller = teller
        self._max_pending = settings.max_pending
        self._lanes: dict[str, dict[str, Lane]] = {}
        self._desk: Desk[Lane] = Desk(self._work, self._on_done)
        self._pending: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    def start(self) -> None:
        """Begin, again after an earlier end."""

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
                self._put(self._lane(transition, webhook), notice)

    def update(self, task_id: str, webhooks: Sequence[Webhook]) -> None:
        """The webhooks of a task are now these; who is no more among them is told nothing more."""
        current = {w.config.id: w for w in webhooks if not w.failure}
        for config_id, lane in [*self._lanes.get(task_id, {}).items()]:
            webhook = current.get(config_id)
            if webhook is None and not lane.closed:
                self._stop(lane)
            elif webhook is not None and (lane.closed or webhook != lane.webhook):
                self._begin_anew(lane, webhook)

    async def drain(self, seconds: float) -> None:
        """Try what waits once more, at once, and for *seconds*; report what is left then."""
        if self.pending:
            logger.info("Ending; notifications that wait: %d, for %.3g s", self.pending, seconds)
        for lane in self._all():
            self._hurry(lane)
        await self._emptied(seconds)
        for lane in self._all():
            if lane.rows:
                told = "%d notifications for %s are lost: the server ends"
                logger.warning(told, len(lane.rows), lane)
            self._stop(lane, "failed")
        await self._emptied(1)
        await self._teller.close()

    async def _emptied(self, seconds: float) -> None:
        """Wait until nothing waits any more, or so many seconds."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while self._lanes and (left := end - loop.time()) > 0:
            if works := self._desk.works:
                await asyncio.wait(works, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                continue
            times = [lane.timer.when() for lane in self._all() if lane.timer is not None]
            if min(times, default=0) > end:  # no attempt is due any more
                return
            await asyncio.sleep(min(left, 0.05))

    def _begin_anew(self, lane: Lane, webhook: Webhook) -> None:
        """A webhook has been set again: what it still has to be told is tried at once."""
        lane.webhook, lane.closed, lane.failure = webhook, False, ""
        for row in lane.rows:
            row.attempts = 0
        self._hurry(lane)

    def _stop(self, lane: Lane, result: Result | None = None) -> None:
        """Have a lane end, with what it still had to tell."""
        self._clear(lane, result)
        lane.failure = ""
        if lane.work is not None:
            lane.work.cancel()
        self._hurry(lane)

    def _lane(self, about: Transition, webhook: Webhook) -> Lane:
        lanes = self._lanes.setdefault(about.task.id, {})
        lane = lanes.get(webhook.config.id)
        if lane is None:
            lane = lanes[webhook.config.id] = Lane(about.task.id, about.owner, webhook)
        return lane

    def _put(self, lane: Lane, notice: Notice) -> None:
        if lane.closed:
            return
        lane.rows.append(Row(notice))
        self._pending[lane.owner] += 1
        self._bytes[lane.owner] += notice.size
        too_large = self._bytes[lane.owner] > MAX_BYTES
        if too_large or self._pending[lane.owner] > self._max_pending:
            self._give_up(lane, TOO_MANY)
            self._hurry(lane)
        if lane.is_idle:
            self._ready(lane)

    def _hurry(self, lane: Lane) -> None:
        if lane.hurry():
            self._ready(lane)

    def _ready(self, lane: Lane) -> None:
        """A lane has something to do: it waits for its turn."""
        lane.timer = None
        if lane.work is not None:  # its end goes on with it; a timer may be before that
            return
        self._desk.wait(lane)

    def _on_done(self, lane: Lane, work: Work) -> None:
        if not work.cancelled() and (error := work.exception()):
            logger.error("Telling the %s", lane, exc_info=error)
            self._give_up(lane, "internal error")
        if lane.is_done:
            self._drop(lane)
        elif lane.is_idle:
            self._ready(lane)

    async def _work(self, lane: Lane) -> None:
        """One turn of a lane: an attempt to deliver its first notification."""
        if lane.rows:
            await self._tell(lane, lane.rows[0])
        if lane.failure:
            await self._mark(lane)

    async def _tell(self, lane: Lane, row: Row) -> None:
        webhook = lane.webhook
        answer = await self._teller.tell(webhook, row.notice)
        gone = not lane.rows or lane.rows[0] is not row  # it has been closed, or cleared
        if gone or lane.webhook is not webhook:  # or set again: then it is told there
            return
        row.attempts += 1
        if answer.is_success:
            lane.rows.popleft()
            self._forget(lane, [row])
            self.on_result("delivered")
            return
        seconds = self._teller.pause(webhook, lane.task_id, row.attempts, answer)
        if seconds is None:
            self._close(lane, answer.reason)
            return
        self.on_result("retried")
        lane.timer = asyncio.get_running_loop().call_later(seconds, self._ready, lane)

    def _give_up(self, lane: Lane, reason: str) -> None:
        logger.warning(FAILED, lane, reason)
        self._close(lane, reason)

    def _close(self, lane: Lane, reason: str) -> None:
        """A webhook has failed."""
        lane.closed, lane.failure = True, reason
        self._clear(lane, "failed")

    async def _mark(self, lane: Lane) -> None:
        """Write down that a webhook has failed."""
        reason, lane.failure = lane.failure, ""

        def mark(webhooks: Sequence[Webhook]) -> Sequence[Webhook]:
            if not lane.closed:  # it has been set again meanwhile
                return webhooks
            name = lane.webhook.config.id
            return [replace(w, failure=reason) if w.config.id == name else w for w in webhooks]

        try:
            await self._journal.edit_webhooks(lane.task_id, mark, must_save=False)
        except TaskNotFoundError:  # it has left, and its webhooks with it
            return
        except Exception as error:  # a user's store may raise anything
            logger.warning("That it has failed was not saved: %s", type(error).__name__)

    def _clear(self, lane: Lane, result: Result | None = None) -> None:
        self._forget(lane, lane.rows)
        if result is not None:
            for _ in lane.rows:
                self.on_result(result)
        lane.rows.clear()

    def _forget(self, lane: Lane, rows: Collection[Row]) -> None:
        self._pending[lane.owner] -= len(rows)
        self._bytes[lane.owner] -= sum(row.notice.size for row in rows)

    def _drop(self, lane: Lane) -> None:
        lanes = self._lanes[lane.task_id]
        del lanes[lane.webhook.config.id]
        if not lanes:
            del self._lanes[lane.task_id]
        if not self._pending[lane.owner]:
            del self._pending[lane.owner], self._bytes[lane.owner]

    def _all(self) -> list[Lane]:
        return [lane for lanes in self._lanes.values() for lane in lanes.values()]
