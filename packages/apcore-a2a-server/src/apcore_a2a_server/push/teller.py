"""One attempt to tell a webhook something, and what follows from its outcome."""

import logging
from collections.abc import Callable
from typing import Literal, TypeAlias

from apcore_a2a_server.store import Webhook

from .guard import Target
from .lanes import name
from .notice import Notice
from .poster import Answer, Poster
from .resolver import principal
from .settings import PushSettings
from .signing import Signer, notification_id

logger = logging.getLogger("apcore_a2a.push")

GONE = 410
FAILED = "The %s has failed: %s; it is told nothing more"
NOT_ALLOWED = Answer(0, "its address is not allowed")

Result: TypeAlias = Literal["delivered", "retried", "failed"]
OnResult: TypeAlias = Callable[[Result], None]


class Teller:
    """Tells webhooks.

    Args:
        poster: Sends a notification.
        target: From a webhook's URL to where it leads.
        settings: How often, and with what signature.
    """

    def __init__(
        self, poster: Poster, target: Callable[[str], Target], settings: PushSettings
    ) -> None:
        self._poster = poster
        self._target = target
        self._retries = tuple(settings.retries)
        self._signer = Signer(settings.secrets)

    async def tell(self, webhook: Webhook, notice: Notice) -> Answer:
        """Make one attempt."""
        about = notice.transition
        principal.set(about.owner)
        try:
            self._target(webhook.config.url)
        except ValueError:  # it was set when the settings were others
            return NOT_ALLOWED
        body = notice.body(webhook.version)
        row_id = notification_id(about.task.id, webhook.config.id, about.version)
        headers = notice.headers(webhook) + self._signer.headers(row_id, body)
        return await self._poster.post(webhook.config.url, headers, body)

    def pause(self, webhook: Webhook, task_id: str, attempts: int, answer: Answer) -> float | None:
        """Seconds to wait behind so many attempts; None when the webhook has failed."""
        called, most = name(webhook, task_id), len(self._retries)
        if answer.status == GONE or attempts > most:
            logger.warning(FAILED, called, answer.reason)
            return None
        wait = answer.retry_after if answer.status in (429, 503) else 0
        seconds = max(self._retries[attempts - 1], wait)
        told = "Attempt %d of %d for %s failed: %s; again in %.3g s"
        logger.warning(told, attempts, most + 1, called, answer.reason, seconds)
        return seconds

    async def close(self) -> None:
        """Let go of connections."""
        await self._poster.close()
