"""Push notifications, put together."""

import logging

from apcore_a2a_server.store import Journal

from .configs import PushConfigs
from .guard import Guard, Resolve
from .outbox import Outbox
from .poster import Poster
from .settings import PushSettings
from .stored import StoredOutbox
from .teller import Teller

logger = logging.getLogger("apcore_a2a.push")

HINT = "give secrets= or --push-secrets"


class Push:
    """What calls the webhooks of the tasks in a journal.

    Args:
        journal: The tasks; its outbox is set to the one here.
        settings: How webhooks are called.
        resolve: From a host and a port to addresses; else the system's resolver.

    Raises:
        ValueError: The journal's store keeps no webhooks.
    """

    def __init__(
        self, journal: Journal, settings: PushSettings, resolve: Resolve | None = None
    ) -> None:
        if not journal.keeps_webhooks:
            raise ValueError("push_notifications needs a task store that keeps them")
        if not settings.secrets:
            logger.warning("Notifications are not signed, so that anybody can forge them; %s", HINT)
        guard = Guard(settings, resolve)
        poster = Poster(settings, guard)
        self.configs = PushConfigs(journal, guard)
        teller = Teller(poster, guard.target, settings)
        kept = journal.store.keeps_outbox
        self.outbox: Outbox | StoredOutbox = (StoredOutbox if kept else Outbox)(
            journal, teller, settings
        )
        journal.outbox = self.outbox
