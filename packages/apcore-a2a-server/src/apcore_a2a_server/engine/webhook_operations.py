"""Webhook operations that A2A does not define: status, test and redelivery."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from apcore_a2a_core.data import TaskStatusUpdateEvent
from apcore_a2a_core.records import TaskRecord
from msgspec.structs import replace

from apcore_a2a_server.store import Notification, Store, Webhook
from apcore_a2a_server.store.webhooks import (
    MAX_WEBHOOKS,
    Attempt,
    WebhookFilter,
    WebhookQuery,
    WebhookStatus,
)

from .admission import Admission
from .clients import Caller
from .operators import audit

if TYPE_CHECKING:  # most agents need no queue
    from apcore_a2a_server.push.queue import DeliveryQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookOperations:
    """The operations on webhooks, for the owners of tasks and for operators.

    Attributes:
        admission: Finds the tasks of callers.
        store: The store that keeps the webhooks.
        queue: The queue that delivers notifications.
        is_operator: Returns whether a caller may operate the tasks of all principals.
    """

    admission: Admission
    store: Store
    queue: "DeliveryQueue"
    is_operator: Callable[[Caller], bool]

    async def list_all(
        self, caller: Caller, state: WebhookFilter, limit: int
    ) -> Sequence[WebhookStatus]:
        """Return the webhooks of the caller's tasks, or for an operator those of all tasks."""
        owner: str | None = caller.owner
        if self.is_operator(caller):
            owner = None
            # without authentication, all callers are one principal, so nothing is audited
            if caller.identity is not None:
                audit("ListWebhooks", caller)
        return await self.store.webhook_statuses(
            WebhookQuery(owner=owner, state=state, limit=limit)
        )

    async def of_task(self, task_id: str, caller: Caller) -> Sequence[WebhookStatus]:
        """Return the webhooks of a task.

        Raises:
            TaskNotFoundError: The task does not exist, or the caller may not operate it.
        """
        await self._find_task("ListTaskWebhooks", task_id, caller)
        query = WebhookQuery(task_id=task_id, limit=MAX_WEBHOOKS)
        return await self.store.webhook_statuses(query)

    async def test(self, task_id: str, config_id: str, caller: Caller) -> Attempt | None:
        """Send a test notification with the status of a task to a webhook; wait for the result.

        One attempt is made, even if the webhook has failed; the result does not change the webhook.

        Returns:
            The attempt; None if the task has no such webhook.

        Raises:
            TaskNotFoundError: The task does not exist, or the caller may not operate it.
        """
        record = await self._find_task("TestWebhook", task_id, caller)
        for webhook in await self.store.webhooks(task_id):
            if webhook.config.id == config_id:
                notification = _test_notification(record, webhook)
                return await self.queue.test(notification, notification.task or record.task)
        return None

    async def redeliver(self, task_id: str, config_id: str, caller: Caller) -> int | None:
        """Make a failed webhook active again; return how many notifications are due.

        Returns:
            The number, which is 0 if the webhook has not failed; None if the task has no such
            webhook.

        Raises:
            TaskNotFoundError: The task does not exist, or the caller may not operate it.
        """
        await self._find_task("RedeliverWebhook", task_id, caller)
        return await self.store.redeliver(task_id, config_id)

    async def _find_task(self, operation: str, task_id: str, caller: Caller) -> TaskRecord:
        is_operator = self.is_operator(caller)
        return await self.admission.get_operable_task(
            operation, task_id, caller, is_operator=is_operator
        )


def _test_notification(record: TaskRecord, webhook: Webhook) -> Notification:
    """Return a notification of a task's status, marked as a test."""
    task = record.task
    payload = TaskStatusUpdateEvent(
        task_id=task.id,
        context_id=task.context_id,
        status=task.status,
        metadata={"apcore": {"test": True}},
    )
    apcore_metadata = {**task.metadata.get("apcore", {}), "test": True}
    marked_task = replace(task, metadata={**task.metadata, "apcore": apcore_metadata})
    # no event has a negative version, so receivers do not drop the test as a duplicate
    version = -time.time_ns()
    return Notification(task.id, record.owner, version, payload, webhook, 1, marked_task)
