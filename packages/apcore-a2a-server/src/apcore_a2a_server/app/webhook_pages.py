"""The routes of webhooks below `/apcore/`: attempts, tests, and redelivery."""

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from apcore_a2a_server.bindings.own_routes import OwnError, OwnRequest, OwnRoute
from apcore_a2a_server.engine.clients import Caller
from apcore_a2a_server.engine.webhook_operations import WebhookOperations
from apcore_a2a_server.store.webhooks import Attempt, WebhookFilter, WebhookStatus

from .agent import Agent
from .operate import counts_as_operator, timestamp
from .options import Settings

DEFAULT_LIMIT, MAX_LIMIT = 50, 200
"""Default and maximum of the parameter `limit`, the number of webhooks in a list."""
LIMIT_PATTERN = re.compile("[0-9]{1,9}")
STATES: dict[str, WebhookFilter] = {"all": "all", "active": "active", "failed": "failed"}
NO_WEBHOOK = "The task has no webhook with this id"


def webhook_routes(agent: Agent, settings: Settings) -> list[OwnRoute]:
    """Return the routes of webhooks; none if push notifications are off."""
    if agent.push is None:
        return []
    handler = agent.handler
    operations = WebhookOperations(
        admission=handler.admission,
        store=agent.setup.tasks.store,
        queue=agent.push.queue,
        is_operator=lambda caller: counts_as_operator(
            settings, handler.operator_rules, caller.identity
        ),
    )
    lists_all = settings.auth is not None or settings.shows_figures
    return WebhookPages(operations).routes(lists_all=lists_all)


class WebhookPages:
    """The functions of the webhook routes.

    Args:
        operations: The operations on webhooks.
    """

    def __init__(self, operations: WebhookOperations) -> None:
        self._operations = operations

    def routes(self, *, lists_all: bool) -> list[OwnRoute]:
        """Return the routes; with *lists_all* also `GET /apcore/webhooks`."""
        path = "tasks/{id}/webhooks"
        routes = [
            OwnRoute("GET", path, self.list_of_task),
            OwnRoute("POST", path + "/{config}/test", self.test),
            OwnRoute("POST", path + "/{config}/redeliver", self.redeliver, status=202),
        ]
        return [OwnRoute("GET", "webhooks", self.list_all), *routes] if lists_all else routes

    async def list_all(self, request: OwnRequest) -> dict[str, Any]:
        """Return the webhooks of the caller's tasks, or for an operator those of all tasks.

        Raises:
            OwnError: A parameter is invalid.
        """
        state, limit = request.query.get("state", "all"), str(request.query.get("limit", ""))
        if state not in STATES:
            raise OwnError(400, f"state must be one of {', '.join(STATES)}")
        if limit and not (LIMIT_PATTERN.fullmatch(limit) and 1 <= int(limit) <= MAX_LIMIT):
            raise OwnError(400, f"limit must be from 1 to {MAX_LIMIT}")
        count = int(limit or DEFAULT_LIMIT)
        statuses = await self._operations.list_all(request.caller, STATES[state], count)
        return {"webhooks": _documents(statuses, request.caller)}

    async def list_of_task(self, request: OwnRequest) -> dict[str, Any]:
        """Return the webhooks of a task."""
        statuses = await self._operations.of_task(request.path_params["id"], request.caller)
        return {"webhooks": _documents(statuses, request.caller)}

    async def test(self, request: OwnRequest) -> dict[str, Any]:
        """Send a test notification to a webhook; return the attempt.

        Raises:
            OwnError: The task has no such webhook.
        """
        task_id, config_id = request.path_params["id"], request.path_params["config"]
        attempt = await self._operations.test(task_id, config_id, request.caller)
        if attempt is None:
            raise OwnError(404, NO_WEBHOOK)
        return {"attempt": _attempt(attempt)}

    async def redeliver(self, request: OwnRequest) -> dict[str, Any]:
        """Make a failed webhook active again; return how many notifications are queued again.

        Raises:
            OwnError: The task has no such webhook.
        """
        task_id, config_id = request.path_params["id"], request.path_params["config"]
        count = await self._operations.redeliver(task_id, config_id, request.caller)
        if count is None:
            raise OwnError(404, NO_WEBHOOK)
        return {"requeued": count}


def _documents(statuses: Sequence[WebhookStatus], caller: Caller) -> list[dict[str, Any]]:
    return [_document(status, for_owner=status.owner == caller.owner) for status in statuses]


def _document(status: WebhookStatus, *, for_owner: bool) -> dict[str, Any]:
    webhook = status.webhook
    return {
        "taskId": status.task_id,
        "id": webhook.config.id,
        "url": shown_url(webhook.config.url, with_path=for_owner),
        "state": "failed" if webhook.failure else "active",
        "reason": webhook.failure or None,
        "pending": status.pending,
        "nextAttemptAt": None if status.due is None else timestamp(status.due),
        "attempts": [_attempt(attempt) for attempt in status.attempts],
    }


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "at": timestamp(attempt.at),
        "status": attempt.status or None,
        "seconds": round(attempt.seconds, 6),
        "result": attempt.result,
        "reason": attempt.reason or None,
    }


def shown_url(url: str, *, with_path: bool) -> str:
    """Return the URL of a webhook without parts that may be secret: user, query and fragment.

    Receivers such as chat services have a secret in the path too, which only the owner may see.

    >>> shown_url("https://ada:x@hooks.example.com:8443/T1/B2?key=y", with_path=False)
    'https://hooks.example.com:8443'
    """
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:  # a store has returned an invalid URL
        return ""
    return f"{parts.scheme}://{host}{parts.path if with_path else ''}"
