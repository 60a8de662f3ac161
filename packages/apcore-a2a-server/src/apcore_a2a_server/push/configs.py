"""The operations on push configurations (A2A 1.0 §3.1.7 to §3.1.10, FR-PSH-001, FR-PSH-004)."""

import re
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias
from uuid import uuid4

from a2a import types as a2a
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError
from apcore_a2a_core.dialects import invalid

from apcore_a2a_server.store import Store, Version, Webhook, with_webhook

from .guard import Guard, RefusedError
from .signing import DIALECT_1

Json: TypeAlias = dict[str, Any]
Result: TypeAlias = Webhook | Sequence[Webhook] | None

ID = re.compile(r"[\x21-\x7e]{1,256}")
SCHEME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
"""A token of RFC 9110 §5.6.2."""
VALUE = re.compile(r"(?! )[\x20-\x7e]{0,4096}(?<! )")
"""What can stand in a header (RFC 9110 §5.5)."""
TEXT = "must have at most 4096 ASCII characters, and no outer blanks"


class PushConfigs:
    """The webhooks of tasks, as their owners see them.

    Args:
        store: Where they are kept.
        guard: Judges their addresses.
    """

    def __init__(self, store: Store, guard: Guard) -> None:
        self._store = store
        self._guard = guard

    async def answer(self, asked: Any, version: Version, principal: str) -> Any:
        """Do what a request about the caller's own task asks for, and answer it in JSON.

        Args:
            asked: A message of the SDK.
            version: The version of the protocol that it came in.
            principal: The id of the caller.

        Raises:
            InvalidParamsError: A member makes no sense.
            TaskNotFoundError: There is no such configuration.
        """
        return _written(await self._perform(asked, version, principal), version)

    async def _perform(self, asked: Any, version: Version, principal: str) -> Result:
        if isinstance(asked, a2a.TaskPushNotificationConfig):
            webhook = await self._read(asked, asked.task_id, version, principal)
            await self.set(asked.task_id, webhook)
            return webhook
        webhooks = await self._store.webhooks(asked.task_id)
        if isinstance(asked, a2a.ListTaskPushNotificationConfigsRequest):
            return webhooks
        found = [webhook for webhook in webhooks if asked.id in ("", webhook.config.id)]
        if isinstance(asked, a2a.DeleteTaskPushNotificationConfigRequest):
            await self._delete(asked, found, version)
            return None
        if not found:
            raise TaskNotFoundError("Push notification config not found")
        return found[0]

    async def wish(self, send: a2a.SendMessageRequest, version: Version, principal: str) -> Webhook:
        """Return the webhook that a message brings for its task (A2A 1.0 §3.2.2).

        Raises:
            InvalidParamsError: Nothing is sent to its address, or a member can't be sent.
        """
        config = send.configuration.task_push_notification_config
        return await self._read(config, send.message.task_id, version, principal)

    async def set(self, task_id: str, webhook: Webhook) -> None:
        """Add a webhook to a task, or replace the one with the same id.

        Raises:
            InvalidParamsError: The task has too many.
        """
        await self._store.edit_webhooks(task_id, partial(with_webhook, webhook=webhook))

    async def _read(
        self,
        config: a2a.TaskPushNotificationConfig,
        task_id: str,
        version: Version,
        principal: str,
    ) -> Webhook:
        _check(config)
        try:
            await self._guard.check(config.url, principal)
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
        if gone:
            await self._store.edit_webhooks(
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


def _written(result: Result, version: Version) -> Any:
    """Return the answer of an operation as JSON (A2A 1.0 §3.1.7 to §3.1.10, 0.3 §7.5 to §7.8)."""
    if isinstance(result, Webhook):
        return _webhook(result, version)
    if isinstance(result, Sequence):
        configs = [_webhook(webhook, version) for webhook in result]
        return configs if version == "0.3" else {"configs": configs}
    return None if version == "0.3" else {}


def _webhook(webhook: Webhook, version: Version) -> Json:
    """One webhook; its status (SRS 7.1.7) is beside what the protocol has.

    1.0 knows no other members than its own, so that it tells the status of a failed one alone.
    """
    config = DIALECT_1.message(webhook.config)
    failed = {"status": "failed", "reason": webhook.failure} if webhook.failure else {}
    if version == "1.0":
        return {**config, **failed}
    task_id = config.pop("taskId")
    if "authentication" in config:
        known = config["authentication"]
        scheme = known.pop("scheme", None)
        config["authentication"] = {"schemes": [scheme] if scheme else [], **known}
    return {"taskId": task_id, "pushNotificationConfig": config, "status": "active", **failed}
