"""The operations on push configurations (A2A 1.0 §3.1.7 to §3.1.10, FR-PSH-001, FR-PSH-004)."""

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from a2a import types as a2a
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError
from apcore_a2a_core.dialects import invalid

from apcore_a2a_server.store import Journal, Version, Webhook

from .errors import RefusedError
from .forms import Result, written
from .guard import Guard
from .resolver import principal

MAX_CONFIGS = 10
"""How many webhooks a task may have."""
ID = re.compile(r"[\x21-\x7e]{1,256}")
SCHEME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
"""A token of RFC 9110 §5.6.2."""
VALUE = re.compile(r"(?! )[\x20-\x7e]{0,4096}(?<! )")
"""What can stand in a header (RFC 9110 §5.5)."""
TEXT = "must have at most 4096 ASCII characters, and no outer blanks"


class PushConfigs:
    """The webhooks of tasks, as their owners see them.

    Args:
        journal: Where they are kept.
        guard: Judges their addresses.
    """

    def __init__(self, journal: Journal, guard: Guard) -> None:
        self._journal = journal
        self._guard = guard
        self._before: dict[tuple[str, str], list[Webhook]] = {}
        """What answers that are being looked at have replaced."""

    def asked_by(self, owner: str) -> "PushConfigs":
        """The same, in a request of this principal: others' names are not held up by its own."""
        principal.set(owner)
        return self

    async def answer(self, asked: Any, version: Version) -> Any:
        """Do what a request about the caller's own task asks for, and answer it in JSON.

        Args:
            asked: A message of the SDK.
            version: The version of the protocol that it came in.

        Raises:
            InvalidParamsError: A member makes no sense.
            TaskNotFoundError: There is no such configuration.
        """
        return written(await self._perform(asked, version), version)

    async def _perform(self, asked: Any, version: Version) -> Result:
        if isinstance(asked, a2a.TaskPushNotificationConfig):
            return await self.set(asked.task_id, await self.read(asked, asked.task_id, version))
        webhooks = await self._journal.webhooks(asked.task_id)
        if isinstance(asked, a2a.ListTaskPushNotificationConfigsRequest):
            return webhooks
        found = [webhook for webhook in webhooks if asked.id in ("", webhook.config.id)]
        if isinstance(asked, a2a.DeleteTaskPushNotificationConfigRequest):
            await self._delete(asked, found, version)
            return None
        if not found:
            raise TaskNotFoundError("Push notification config not found")
        return found[0]

    async def wish(self, send: a2a.SendMessageRequest, version: Version) -> Webhook:
        """The webhook that a message wants for its task (A2A 1.0 §3.2.2).

        Raises:
            InvalidParamsError: It can't be had.
        """
        config = send.configuration.task_push_notification_config
        return await self.read(config, send.message.task_id, version)

    @asynccontextmanager
    async def adding(self, send: a2a.SendMessageRequest, version: Version) -> AsyncGenerator[None]:
        """Add the webhook that an answer wants to its task, unless the answer is refused.

        Raises:
            InvalidParamsError: It can't be had.
        """
        task_id, webhook = send.message.task_id, await self.wish(send, version)
        key = task_id, webhook.config.id
        known = await self._journal.webhooks(task_id)
        before = [one for one in known if one.config.id == webhook.config.id]
        before = [*self._before.get(key, before)]

        def undo(webhooks: Sequence[Webhook]) -> Sequence[Webhook]:
            if self._before.get(key) is not before or webhook not in webhooks:
                return webhooks  # somebody has set or deleted it meanwhile
            return [*before, *(one for one in webhooks if one != webhook)]

        await self.set(task_id, webhook)
        self._before[key] = before
        try:
            yield
        except Exception:  # whatever refuses the answer
            await self._journal.edit_webhooks(task_id, undo)
            raise
        finally:
            if self._before.get(key) is before:
                del self._before[key]

    async def read(
        self, config: a2a.TaskPushNotificationConfig, task_id: str, version: Version
    ) -> Webhook:
        """The webhook that a client wants for a task, when it may have it.

        Raises:
            InvalidParamsError: Nothing is sent to its address, or a member can't be sent.
        """
        _check(config)
        try:
            await self._guard.check(config.url)
        except RefusedError as error:
            errors = [{"field": "url", "code": "invalid", "message": str(error)}]
            raise InvalidParamsError(str(error), data={"errors": errors}) from None
        kept = a2a.TaskPushNotificationConfig()
        kept.CopyFrom(config)
        kept.ClearField("tenant")
        kept.task_id = task_id
        # of 0.3's `set` a second one without an id replaces the first, as with the SDK
        kept.id = config.id or (task_id if version == "0.3" else str(uuid4()))
        return Webhook(kept, version)

    async def set(self, task_id: str, webhook: Webhook) -> Webhook:
        """Add a webhook to a task, or replace the one with the same id.

        Raises:
            InvalidParamsError: The task has too many.
        """

        def put(webhooks: Sequence[Webhook]) -> Sequence[Webhook]:
            others = [known for known in webhooks if known.config.id != webhook.config.id]
            if len(others) >= MAX_CONFIGS:
                raise InvalidParamsError(f"A task has at most {MAX_CONFIGS} push configurations")
            return [*others, webhook]

        await self._journal.edit_webhooks(task_id, put)
        self._before.pop((task_id, webhook.config.id), None)
        return webhook

    async def _delete(
        self,
        asked: a2a.DeleteTaskPushNotificationConfigRequest,
        found: Sequence[Webhook],
        version: Version,
    ) -> None:
        """Forget these; that there are none is an error in 0.3 alone (FR-PSH-004.3)."""
        if not asked.id and version != "0.3":
            raise invalid("params.id", "must be given")
        if not found and version == "0.3":
            raise TaskNotFoundError("Push notification config not found")
        gone = {webhook.config.id for webhook in found}
        for name in gone:
            self._before.pop((asked.task_id, name), None)
        if gone:
            await self._journal.edit_webhooks(
                asked.task_id, lambda webhooks: [w for w in webhooks if w.config.id not in gone]
            )


def _check(config: a2a.TaskPushNotificationConfig) -> None:
    authentication = config.authentication
    if config.id and not ID.fullmatch(config.id):
        raise invalid("id", "must have at most 256 visible ASCII characters")
    if not VALUE.fullmatch(config.token):
        raise invalid("token", TEXT)
    if not VALUE.fullmatch(authentication.credentials):
        raise invalid("authentication.credentials", TEXT)
    if authentication.scheme and not SCHEME.fullmatch(authentication.scheme):
        raise invalid("authentication.scheme", "must be the name of a scheme, such as Bearer")
    if authentication.credentials and not authentication.scheme:
        raise invalid("authentication.scheme", "must be given with credentials")
