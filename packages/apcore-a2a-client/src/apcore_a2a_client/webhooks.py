"""Webhook operations that A2A does not define: only agents of this project have them."""

from __future__ import annotations

from math import inf
from typing import Any

from . import bindings
from .bindings import Operation
from .discovery import Discovery
from .errors import Json
from .exchange import BufferedResponse, Steps
from .headers import Headers, check_headers
from .params import check_id, without_none

MEMBER_TYPES: dict[str, type] = {"attempt": dict, "requeued": int, "webhooks": list}
"""Members of responses to operations that A2A does not define, and their types."""


class WebhookOperations:
    """Operations on webhooks of the agent found by *discovery*."""

    def __init__(self, discovery: Discovery) -> None:
        self._discovery = discovery

    def list_webhooks(
        self,
        task_id: str | None = None,
        *,
        state: str | None = None,
        limit: int | None = None,
        headers: Headers | None = None,
    ) -> Steps[list[Json]]:
        """Return webhooks of a task or of all tasks, with their last delivery attempts, as JSON.

        Like `test_webhook` and `redeliver_webhook`, this operation is not defined by A2A; only
        agents of this project have it.

        Args:
            task_id: The task; None for all tasks of the caller or, for an operator, of all callers.
            state: Return only webhooks in this state, `"active"` or `"failed"`; ignored with
                *task_id*.
            limit: The maximum number of webhooks, 1 to 200, by default 50; ignored with *task_id*.
            headers: Further headers of the request.

        Raises:
            A2AServerError: The agent has no such task, or *state* or *limit* is invalid.
            A2AError: The agent has no such operation.
        """
        if task_id is None:
            params = without_none(state=state, limit=limit)
            result = yield from self._request_member(bindings.WEBHOOKS, params, headers, "webhooks")
        else:
            params = {"taskId": check_id(task_id)}
            operation = bindings.TASK_WEBHOOKS
            result = yield from self._request_member(operation, params, headers, "webhooks")
        webhooks: list[Json] = result
        return webhooks

    def test_webhook(self, task_id: str, id: str, *, headers: Headers | None = None) -> Steps[Json]:
        """Make the agent send a test notification to a webhook; return the attempt as JSON.

        Raises:
            A2AServerError: The agent has no such task or webhook.
            A2AError: The agent has no such operation.
        """
        params = {"taskId": check_id(task_id), "id": check_id(id)}
        operation = bindings.TEST_WEBHOOK
        attempt: Json = yield from self._request_member(operation, params, headers, "attempt")
        return attempt

    def redeliver_webhook(
        self, task_id: str, id: str, *, headers: Headers | None = None
    ) -> Steps[int]:
        """Reactivate a failed webhook; return the number of notifications that are now due.

        Raises:
            A2AServerError: The agent has no such task or webhook.
            A2AError: The agent has no such operation.
        """
        params = {"taskId": check_id(task_id), "id": check_id(id)}
        operation = bindings.REDELIVER_WEBHOOK
        count: int = yield from self._request_member(operation, params, headers, "requeued")
        return count

    def _request_member(
        self, operation: Operation, params: Json, headers: Headers | None, member: str
    ) -> Steps[Any]:
        """Call an operation that A2A does not define; return a member of the response.

        Raises:
            A2AProtocolError: The response lacks the member, or the member has a wrong type.
        """
        request_headers = check_headers(headers)
        # lets an `APIKey` or `ClientCredentials` use the card; the result is not needed
        yield from self._discovery.binding(inf, request_headers)
        binding = bindings.HTTPJSON(self._discovery.base, "1.0")
        request = binding.request(operation, params).with_headers(request_headers)
        response = yield from self._discovery.exchange.send(request)
        assert isinstance(response, BufferedResponse)
        result: Json = binding.result(response)
        value: Any = result.get(member)
        if type(value) is not MEMBER_TYPES[member]:
            raise bindings.not_a2a(response)
        return value
