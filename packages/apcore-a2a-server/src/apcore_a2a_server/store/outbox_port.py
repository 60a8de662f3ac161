"""The part of a store's interface for the delivery of notifications."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from .webhooks import (
    Attempt,
    Backlog,
    ClaimRequest,
    Notification,
    WebhookQuery,
    WebhookStatus,
)


class OutboxPort(ABC):
    """The outbox of a store: pending notifications, and the attempts to deliver them."""

    _on_notification: Callable[[], None] | None = None
    _backlog = Backlog()

    def on_notification(self, listener: Callable[[], None]) -> None:
        """Set the listener, which is called when a method of this store makes a notification due.

        Poll as well: the listener is not called when another process adds a notification, or when
        a postponed one becomes due. Some stores do not call it in `settle`.
        """
        self._on_notification = listener

    def wake_listener(self) -> None:
        """Call the listener that `on_notification` has set, if any."""
        if self._on_notification is not None:
            self._on_notification()

    @abstractmethod
    async def claim_notifications(self, request: ClaimRequest) -> Sequence[Notification]:
        """Claim due notifications, at most the next one of each webhook."""

    @abstractmethod
    async def settle(self, notification: Notification, attempt: Attempt | None = None) -> None:
        """Delete a notification that was delivered; the webhook's next one becomes due.

        In the same transaction, *attempt* is added to the attempts of the webhook. `postpone` and
        `give_up` add it too. If the webhook was replaced since the claim, all three do nothing.
        """

    @abstractmethod
    async def postpone(
        self, notification: Notification, seconds: float, attempt: Attempt | None = None
    ) -> None:
        """Make a notification due again in *seconds*."""

    @abstractmethod
    async def give_up(
        self, notification: Notification, reason: str, attempt: Attempt | None = None
    ) -> int:
        """Mark the webhook as failed and give up its notifications; return how many.

        A durable store keeps them as dead letters; other stores drop them.
        """

    @abstractmethod
    async def webhook_statuses(self, query: WebhookQuery) -> Sequence[WebhookStatus]:
        """Return the webhooks that match *query*; those of the newest tasks come first.

        The webhooks of one task are returned oldest first.
        """

    @abstractmethod
    async def redeliver(self, task_id: str, config_id: str) -> int | None:
        """Make a failed webhook active again, and its dead letters due.

        States that the task has reached since the last dead letter become notifications too, if
        the store still has their events.

        Returns:
            The number of notifications that are pending now, 0 if the webhook has not failed, and
            None if there is no such webhook.
        """

    @property
    def backlog(self) -> Backlog:
        """The number of pending notifications at the last count, and the age of the oldest."""
        return self._backlog

    @abstractmethod
    async def limit_backlog(self, max_pending: int) -> int:
        """Limit the pending notifications of each owner to *max_pending*.

        A webhook with notifications beyond the limit fails, and all of its notifications are given
        up. `backlog` is updated.

        Returns:
            The number of notifications that were given up.
        """

    async def mark_due(self) -> None:  # noqa: B027 - durable stores keep notifications
        """Make notifications due at once if no other process can deliver them."""

    async def abandon_notifications(self) -> Sequence[tuple[Notification, int]]:
        """Drop all notifications that no other process can deliver.

        Returns:
            For each webhook, its next notification and the number of its dropped notifications.
        """
        return ()
