"""Delivery attempts for notifications, and their results: delivered, retried or failed."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from apcore_a2a_core.data import Task, TaskStatusUpdateEvent
from msgspec.structs import replace

from apcore_a2a_server.middleware.logs import begin_facts
from apcore_a2a_server.store import Notification
from apcore_a2a_server.store.live import LiveTasks
from apcore_a2a_server.store.webhooks import Attempt, AttemptResult
from apcore_a2a_server.trace_context import Trace

from .signing import Signer, notification_body, notification_id, protocol_headers
from .transport import WebhookResponse, WebhookTransport

if TYPE_CHECKING:  # the imported module needs the extra `otel`
    from apcore_a2a_server.spans import Spans

logger = logging.getLogger("apcore_a2a.push")

GONE = 410
"""The HTTP status of a receiver that wants no more notifications."""

OnResult: TypeAlias = Callable[[AttemptResult, int], None]
"""Callback that takes a result, and the number of notifications with this result."""


@dataclass(frozen=True, slots=True)
class WebhookSender:
    """Sender of notifications; `send` records the result of its attempt in the store.

    Attributes:
        tasks: The tasks, with their store.
        transport: The transport that posts to URLs.
        signer: The signer of notifications.
        retry_delays: Delays before further attempts, in seconds.
        on_result: Called by `send` with the result of each attempt, and by the queue for
            notifications that the queue gives up or loses.
        spans: The source of OpenTelemetry spans; None without OpenTelemetry.
    """

    tasks: LiveTasks
    transport: WebhookTransport
    signer: Signer
    retry_delays: Sequence[float]
    on_result: OnResult
    spans: "Spans | None" = None

    async def send(self, notification: Notification, deadline: float) -> float | None:
        """Make one attempt, unless the deadline has passed, or the body needs a deleted task.

        Args:
            notification: The notification to deliver.
            deadline: The latest time to start, by the clock of the event loop. After it, this
                replica's claim may have expired, so another replica may deliver the notification.

        Returns:
            Seconds until the next attempt; None after the last attempt, or if no attempt was made.
        """
        task_span = Trace.read(notification.webhook.trace)
        if task_span is not None:
            begin_facts(task=notification.task_id, trace_id=task_span.trace_id)
        task = await self._task(notification)
        is_late = asyncio.get_running_loop().time() > deadline
        if task is None or is_late:  # a deleted task has no notifications left to settle
            return None
        response, attempt = await self._time_attempt(self._attempt(notification, task, task_span))
        if response.is_success:
            await self.tasks.store.settle(notification, attempt)
            self.on_result("delivered", 1)
            return None
        if response.status == GONE or notification.attempts > len(self.retry_delays):
            await self._give_up(notification, response.reason, attempt)
            return None
        seconds = self._retry_delay(notification, response)
        await self.tasks.store.postpone(notification, seconds, attempt._replace(result="retried"))
        self.on_result("retried", 1)
        return seconds

    async def test(self, notification: Notification, task: Task) -> Attempt:
        """Make one attempt to deliver a notification that is not in an outbox; return the attempt.

        Args:
            notification: The notification.
            task: The task for the body of protocol 0.3.
        """
        task_span = Trace.read(notification.webhook.trace)
        _, attempt = await self._time_attempt(self._attempt(notification, task, task_span))
        return attempt

    async def _time_attempt(
        self, pending_response: Awaitable[WebhookResponse]
    ) -> tuple[WebhookResponse, Attempt]:
        """Return the response, and the attempt with the result `delivered` or `failed`."""
        at, start = time.time(), time.monotonic()
        response = await pending_response
        seconds = time.monotonic() - start
        if response.is_success:
            return response, Attempt(at, seconds, "delivered", response.status)
        return response, Attempt(at, seconds, "failed", response.status, response.kind)

    async def _task(self, notification: Notification) -> Task | None:
        """Return the task for the body; None if the body needs a task that was deleted."""
        payload = notification.payload
        if isinstance(payload, Task):
            return payload
        if notification.task is not None or notification.webhook.version == "1.0":
            return notification.task or Task()  # a 1.0 body has the event but no task
        record = await self.tasks.get(notification.task_id)
        if record is None:
            return None
        if isinstance(payload, TaskStatusUpdateEvent):  # the stored status may be newer
            return replace(record.task, status=payload.status)
        return record.task

    async def _attempt(
        self, notification: Notification, task: Task, parent: Trace | None
    ) -> WebhookResponse:
        """Make the attempt in a child of the task's span."""
        spans = self.spans
        if spans is None:
            return await self._post(notification, task, parent and parent.child())
        attributes = {
            "a2a.task.id": notification.task_id,
            "http.request.method": "POST",
            "server.address": notification.webhook.host,
        }
        with spans.span("webhook", spans.CLIENT, parent, attributes) as span:
            current = parent and spans.current(parent)
            response = await self._post(notification, task, current)
            if response.status:
                span.set_attribute("http.response.status_code", response.status)
            if not response.is_success:
                spans.fail_with(str(response.status or "no_response"))
            return response

    async def _post(
        self, notification: Notification, task: Task, span: Trace | None
    ) -> WebhookResponse:
        webhook = notification.webhook
        try:
            body = notification_body(notification, task)
        except Exception:  # counts as failed: if raised, the attempt would be repeated without end
            extra = {"event": "notification_not_encoded"}
            logger.exception("The notification for %s can't be encoded", notification, extra=extra)
            return WebhookResponse(0, "internal error", kind="not_encoded")
        message_id = notification_id(notification.task_id, webhook.config.id, notification.version)
        headers = protocol_headers(webhook)
        if span is not None:
            headers += span.headers().items()
        headers += self.signer.headers(message_id, body, webhook.config.url)
        return await self.transport.post(webhook.config.url, headers, body, notification.owner)

    async def _give_up(self, notification: Notification, reason: str, attempt: Attempt) -> None:
        """Mark the webhook as failed, unless it was replaced during the attempt."""
        dead_letter_count = await self.tasks.store.give_up(notification, reason, attempt)
        if dead_letter_count:
            # as text, a notification is "webhook … of task …"
            message = "The %s has failed: %s; it gets no more notifications"
            logger.warning(message, notification, reason, extra={"event": "webhook_failed"})
        self.on_result("failed", dead_letter_count)

    def _retry_delay(self, notification: Notification, response: WebhookResponse) -> float:
        """Log the failed attempt; return the seconds until the next one."""
        attempts, max_attempts = notification.attempts, len(self.retry_delays) + 1
        requested_delay = response.retry_after if response.status in (429, 503) else 0
        seconds = max(self.retry_delays[attempts - 1], requested_delay)
        message = "Attempt %d of %d for %s failed: %s; retrying in %.3g s"
        values = attempts, max_attempts, notification, response.reason, seconds
        logger.warning(message, *values, extra={"event": "delivery_retried"})
        return seconds
