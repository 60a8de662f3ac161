"""Push notifications, put together."""

import logging

from apcore_a2a_server.store.live import LiveTasks

from .configs import PushConfigs
from .guard import Guard, Resolve
from .queue import DeliveryQueue
from .sender import OnResult, WebhookSender
from .settings import PushSettings
from .signing import Signer
from .transport import WebhookTransport

logger = logging.getLogger("apcore_a2a.push")

HINT = "give secrets= or --push-secrets"


class Push:
    """Calls the webhooks of tasks.

    Args:
        tasks: The tasks.
        settings: How webhooks are called.
        on_result: Called with the outcome of each notification.
        resolve: Looks up names; else the system's resolver does.

    Attributes:
        configs: The push configurations of tasks.
        queue: Delivers notifications.
    """

    def __init__(
        self,
        tasks: LiveTasks,
        settings: PushSettings,
        *,
        on_result: OnResult = lambda result, number: None,
        resolve: Resolve | None = None,
    ) -> None:
        if not settings.secrets:
            logger.warning("Notifications are not signed, so that anybody can forge them; %s", HINT)
        guard = Guard(settings, resolve)
        transport = WebhookTransport(settings, guard)
        sender = WebhookSender(
            tasks, transport, guard, Signer(settings.secrets), settings.retries, on_result
        )
        self.configs = PushConfigs(tasks.store, guard)
        self.queue = DeliveryQueue(tasks.store, sender, settings, on_result)
