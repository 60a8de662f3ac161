"""Assembly of the parts that deliver push notifications."""

import logging
from typing import TYPE_CHECKING

from apcore_a2a_server.store.live import LiveTasks

from .configs import PushConfigs
from .guard import Guard, Resolve
from .queue import DeliveryQueue
from .sender import OnResult, WebhookSender
from .settings import ANY_RECEIVER, PushSettings, secrets_by_origin
from .signing import Signer
from .transport import WebhookTransport

if TYPE_CHECKING:  # the spans need an extra
    from apcore_a2a_server.spans import Spans

logger = logging.getLogger("apcore_a2a.push")


class Push:
    """Webhooks of tasks: their push configs and the delivery of notifications.

    Args:
        tasks: The tasks, with their store.
        settings: The settings of webhooks.
        on_result: Callback that counts deliveries, retries and failures (see `OnResult`).
        resolve: Resolves names; by default the system's resolver.
        spans: Makes a span for each attempt; None for no spans.

    Attributes:
        configs: The push configs of tasks.
        queue: The queue that delivers notifications.
    """

    def __init__(
        self,
        tasks: LiveTasks,
        settings: PushSettings,
        *,
        on_result: OnResult = lambda result, count: None,
        resolve: Resolve | None = None,
        spans: "Spans | None" = None,
    ) -> None:
        if ANY_RECEIVER not in secrets_by_origin(settings.secrets):
            subject = (
                "Notifications to receivers without a secret"
                if settings.secrets
                else "Notifications"
            )
            text = "%s are not signed and can be forged; set secrets= or --push-secrets"
            logger.warning(text, subject, extra={"event": "notifications_unsigned"})
        guard = Guard(settings, resolve)
        transport = WebhookTransport(settings, guard)
        signer = Signer(settings.secrets)
        sender = WebhookSender(tasks, transport, signer, settings.retries, on_result, spans)
        self.configs = PushConfigs(tasks.store, guard)
        self.queue = DeliveryQueue(tasks.store, sender, settings)
