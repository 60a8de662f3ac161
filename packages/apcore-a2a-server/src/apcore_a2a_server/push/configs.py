"""Operations on push configs (A2A 1.0 §3.1.7 to §3.1.10, FR-PSH-001, FR-PSH-004)."""

import re
from collections.abc import Sequence
from functools import partial
from typing import Any
from uuid import uuid4

from a2a.utils.errors import InvalidParamsError, TaskNotFoundError
from apcore_a2a_core.data import (
    AuthenticationInfo,
    DeleteTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
    SendMessageRequest,
    TaskPushNotificationConfig,
)
from apcore_a2a_core.dialects import Json, invalid
from msgspec import to_builtins
from msgspec.structs import replace

from apcore_a2a_server.store import Store, Version, Webhook, with_webhook
from apcore_a2a_server.trace_context import Trace

from .guard import Guard, RefusedError
from .signing import schemes_of

CONFIG_ID = re.compile(r"[\x21-\x7e]{1,256}")
AUTH_SCHEME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
"""A `token` in the grammar of HTTP (RFC 9110 §5.6.2)."""
SCHEME_RULES: dict[Version, tuple[int, str, str]] = {
    "1.0": (1, "authentication.scheme", "must be one HTTP authentication scheme, such as Bearer"),
    "0.3": (
        10,
        "authentication.schemes",
        "must be at most 10 HTTP authentication schemes, such as Bearer",
    ),
}
"""The maximum number of authentication schemes in each version, their member, and its rule."""
HEADER_VALUE = re.compile(r"(?! )[\x20-\x7e]{0,4096}(?<! )")
"""A field value of visible ASCII characters and inner spaces (RFC 9110 §5.5)."""
HEADER_VALUE_RULE = "must be at most 4096 printable ASCII characters, without spaces at either end"


class PushConfigs:
    """The operations on the push configs of tasks.

    Args:
        store: The store of the tasks.
        guard: Decides which URLs are allowed.
    """

    def __init__(self, store: Store, guard: Guard) -> None:
        self._store = store
        self._guard = guard

    async def answer(
        self, request: Any, version: Version, principal: str, trace: Trace | None
    ) -> Any:
        """Perform an operation on the push configs of a caller's task; return its result as JSON.

        Results have the format of A2A 1.0 §3.1.7 to §3.1.10, or of 0.3 §7.5 to §7.8.

        Args:
            request: The request.
            version: The protocol version of the request.
            principal: The caller's principal.
            trace: The trace of the task.

        Raises:
            InvalidParamsError: A member is invalid, the URL is not allowed, or the task has too
                many push configs.
            TaskNotFoundError: The task has no such push config, or was deleted.
        """
        if isinstance(request, TaskPushNotificationConfig):
            webhook = await self._checked_webhook(request, version, principal, trace)
            edit = partial(with_webhook, webhook=webhook)
            await self._store.edit_webhooks(request.task_id, edit)
            return _webhook_json(webhook, version)
        webhooks = await self._store.webhooks(request.task_id)
        if isinstance(request, ListTaskPushNotificationConfigsRequest):
            configs = [_webhook_json(webhook, version) for webhook in webhooks]
            return configs if version == "0.3" else {"configs": configs}
        matches = [webhook for webhook in webhooks if request.id in ("", webhook.config.id)]
        if isinstance(request, DeleteTaskPushNotificationConfigRequest):
            await self._delete(request, matches, version)
            return None if version == "0.3" else {}
        if not matches:
            raise TaskNotFoundError("Push notification config not found")
        return _webhook_json(matches[0], version)

    async def requested_webhook(
        self, request: SendMessageRequest, version: Version, principal: str, trace: Trace | None
    ) -> Webhook:
        """Return the webhook that a message requests for its task (A2A 1.0 §3.2.2).

        Raises:
            InvalidParamsError: A member is invalid, or the URL is not allowed.
        """
        config = request.configuration.task_push_notification_config or TaskPushNotificationConfig()
        config = replace(config, task_id=request.message.task_id)
        return await self._checked_webhook(config, version, principal, trace)

    async def _checked_webhook(
        self,
        config: TaskPushNotificationConfig,
        version: Version,
        principal: str,
        trace: Trace | None,
    ) -> Webhook:
        _check_members(config, version)
        try:
            await self._guard.check(config.url, principal)
        except RefusedError as error:
            errors = [{"field": "url", "code": "invalid", "message": str(error)}]
            raise InvalidParamsError(str(error), data={"errors": errors}) from None
        # In 0.3 a task has at most one config without an id: a second `set` replaces it, as in
        # the SDK. In 1.0 every `create` without an id makes another config.
        config_id = config.id or (config.task_id if version == "0.3" else str(uuid4()))
        trace_text = "" if trace is None else str(trace if trace.span_id else trace.child())
        return Webhook(replace(config, tenant="", id=config_id), version, trace=trace_text)

    async def _delete(
        self,
        request: DeleteTaskPushNotificationConfigRequest,
        matches: Sequence[Webhook],
        version: Version,
    ) -> None:
        """Delete *matches*; only in 0.3 is it an error if there are none (FR-PSH-004.3)."""
        if not request.id and version != "0.3":
            raise invalid("params.id", "must be given")
        if not matches and version == "0.3":
            raise TaskNotFoundError("Push notification config not found")
        deleted_ids = {webhook.config.id for webhook in matches}
        if deleted_ids:
            await self._store.edit_webhooks(
                request.task_id,
                lambda webhooks: [old for old in webhooks if old.config.id not in deleted_ids],
            )


def _check_members(config: TaskPushNotificationConfig, version: Version) -> None:
    authentication, schemes = config.authentication or AuthenticationInfo(), schemes_of(config)
    if config.id and not CONFIG_ID.fullmatch(config.id):
        raise invalid("id", "must be at most 256 visible ASCII characters")
    if not HEADER_VALUE.fullmatch(config.token):
        raise invalid("token", HEADER_VALUE_RULE)
    if not HEADER_VALUE.fullmatch(authentication.credentials):
        raise invalid("authentication.credentials", HEADER_VALUE_RULE)
    max_schemes, scheme_field, rule = SCHEME_RULES[version]
    if len(schemes) > max_schemes or not all(map(AUTH_SCHEME.fullmatch, schemes)):
        raise invalid(scheme_field, rule)
    if authentication.credentials and not authentication.scheme:
        raise invalid(scheme_field, "must be given if there are credentials")


def _webhook_json(webhook: Webhook, version: Version) -> Json:
    """Return the push config and its status (§7.1.7 of our requirements specification) as JSON.

    The status is not part of the protocol; in 1.0, it is added only if the webhook has failed.
    """
    config: Json = to_builtins(webhook.config)
    schemes = schemes_of(webhook.config)
    failure = {"status": "failed", "reason": webhook.failure} if webhook.failure else {}
    if version == "1.0":
        if schemes:
            config["authentication"]["scheme"] = schemes[0]
        return {**config, **failure}
    task_id = config.pop("taskId")
    if "authentication" in config:
        authentication = config["authentication"]
        authentication.pop("scheme", None)
        config["authentication"] = {"schemes": schemes, **authentication}
    return {"taskId": task_id, "pushNotificationConfig": config, "status": "active", **failure}
