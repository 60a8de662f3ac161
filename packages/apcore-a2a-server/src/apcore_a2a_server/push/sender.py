"""One attempt to deliver a notification, and what follows from its outcome."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from a2a import types as a2a

from apcore_a2a_server.store import Notification
from apcore_a2a_server.store.live import LiveTasks

from .guard import Guard
from .signing import Signer, notification_body, notification_id, protocol_headers
from .transport import Answer, WebhookTransport

logger = logging.getLogger("apcore_a2a.push")

GONE = 410
NOT_ALLOWED = Answer(0, "its address is not allowed")

Result: TypeAlias = Literal["delivered", "retried", "failed"]
OnResult: TypeAlias = Callable[[Result, int], None]
"""Takes the outcome of attempts, and how many notifications had it."""


@dataclass(frozen=True, slots=True)
class WebhookSender:
    """Delivers notifications, and tells the store what came of it.

    Attributes:
        tasks: The tasks, and their store.
        transport: Sends bytes to an address.
        guard: Judges the addresses.
        signer: Signs notifications.
        retries: Seconds before each further attempt.
        on_result: Called with the outcome of each notification.
    """

    tasks: LiveTasks
    transport: WebhookTransport
    guard: Guard
    signer: Signer
    retries: Sequence[float]
    on_result: OnResult

    async def send(self, notification: Notification, deadline: float) -> float | None:
        """Make one attempt, unless it is too late.

        Args:
            notification: What to deliver.
            deadline: When others may have claimed it, by the clock of the event loop.

        Returns:
            Seconds until the next attempt, if there is to be one.
        """
        task = await self._task(notification)
        if task is None:  # the task is gone, and its webhooks with it
            return None
        if asyncio.get_running_loop().time() > deadline:  # this process was asleep
            return None
        answer = await self._post(notification, task)
        if answer.is_success:
            await self.tasks.store.settle(notification)
            self.on_result("delivered", 1)
            return None
        if answer.status == GONE or notification.attempts > len(self.retries):
            await self._give_up(notification, answer.reason)
            return None
        seconds = self._pause(notification, answer)
        await self.tasks.store.postpone(notification, seconds)
        self.on_result("retried", 1)
        return seconds

    async def close(self) -> None:
        """Close the connections."""
        await self.transport.close()

    async def _task(self, notification: Notification) -> a2a.Task | None:
        """Return the task as it was, as far as a notification shows it."""
        payload = notification.payload
        if isinstance(payload, a2a.Task):
            return payload
        if notification.task is not None or notification.webhook.version == "1.0":
            return notification.task or a2a.Task()
        record = await self.tasks.get(notification.task_id)
        if record is None:
            return None
        task = a2a.Task()
        task.CopyFrom(record.task)
        if isinstance(payload, a2a.TaskStatusUpdateEvent):  # it may be in another one by now
            task.status.CopyFrom(payload.status)
        return task

    async def _post(self, notification: Notification, task: a2a.Task) -> Answer:
        webhook = notification.webhook
        try:
            self.guard.target(webhook.config.url)
        except ValueError:  # it was set when the settings were others
            return NOT_ALLOWED
        try:
            body = notification_body(notification, task)
        except Exception:  # what can't be written as JSON must not hold up what waits behind it
            logger.exception("The %s gets no notification", notification)
            return Answer(0, "internal error")
        about = notification.task_id, webhook.config.id, notification.version
        signature = self.signer.headers(notification_id(*about), body)
        headers = protocol_headers(webhook) + signature
        return await self.transport.post(webhook.config.url, headers, body, notification.owner)

    async def _give_up(self, notification: Notification, reason: str) -> None:
        """Have the webhook fail; nothing follows if it was set again meanwhile."""
        dead = await self.tasks.store.give_up(notification, reason)
        if dead:
            told = "The %s has failed: %s; it is told nothing more"
            logger.warning(told, notification, reason)
        self.on_result("failed", dead)

    def _pause(self, notification: Notification, answer: Answer) -> float:
        """Return the seconds until the next attempt."""
        attempts, most = notification.attempts, len(self.retries)
        wait = answer.retry_after if answer.status in (429, 503) else 0
        seconds = max(self.retries[attempts - 1], wait)
        told = "Attempt %d of %d for %s failed: %s; again in %.3g s"
        logger.warning(told, attempts, most + 1, notification, answer.reason, seconds)
        return seconds
