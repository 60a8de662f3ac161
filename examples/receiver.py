"""Webhook receiver: set PUSH_SECRET to the webhook's secret and run `python examples/receiver.py`.

The agent's operator prints the secret with `apcore-a2a webhooks secret http://127.0.0.1:9000/`.
Verifies signatures, prints new notifications, and ignores repeated ones. Needs `pip install
standardwebhooks`.
"""

import os
import sys
from collections import OrderedDict
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks import Webhook, WebhookVerificationError

MAX_BODY = 64 * 1024 * 1024  # bytes
MAX_KNOWN_IDS = 10_000


class Inbox:
    """Verifier that remembers the ids of notifications to detect duplicates."""

    def __init__(self, secret: str) -> None:
        self._webhook = Webhook(secret)
        self._known: OrderedDict[str, None] = OrderedDict()

    def receive(self, body: bytes, headers: dict[str, str]) -> dict[str, Any] | None:
        """Return the notification, or None if it is a duplicate.

        Raises:
            WebhookVerificationError: The signature is missing or invalid, or its time is more
                than five minutes off.
        """
        notification: dict[str, Any] = self._webhook.verify(body, headers)
        notification_id = headers["webhook-id"]
        if notification_id in self._known:
            return None
        self._known[notification_id] = None
        if len(self._known) > MAX_KNOWN_IDS:
            self._known.popitem(last=False)
        return notification


def describe(notification: dict[str, Any]) -> str:
    """Return a line about a notification: a task of A2A 0.3, or an event of A2A 1.0."""
    event = notification.get("task") or notification.get("statusUpdate") or notification
    task_id = event.get("taskId") or event["id"]
    state = event["status"]["state"].removeprefix("TASK_STATE_").lower().replace("_", "-")
    return f"task {task_id} is {state}"


class Handler(BaseHTTPRequestHandler):
    """Handler that answers 204 to signed notifications, and 401 to others."""

    inbox: Inbox

    def do_POST(self) -> None:
        """Receive one notification."""
        digits = self.headers.get("content-length", "0")
        if not digits.isdecimal():
            return self._answer(400)
        if len(digits) > len(str(MAX_BODY)) or int(digits) > MAX_BODY:
            return self._answer(413)
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            notification = self.inbox.receive(self.rfile.read(int(digits)), headers)
        except (WebhookVerificationError, ValueError):
            return self._answer(401)
        if notification is not None:
            print(describe(notification), flush=True)
        return self._answer(204)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log requests."""


def main() -> None:
    """Receive notifications until Ctrl+C."""
    secret = os.environ.get("PUSH_SECRET")
    if not secret:
        sys.exit("PUSH_SECRET must be the secret that `apcore-a2a webhooks secret URL` prints")
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 9000
    Handler.inbox = Inbox(secret)
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    print(f"Receiving at http://127.0.0.1:{port}/", file=sys.stderr)
    with suppress(KeyboardInterrupt):
        server.serve_forever()


if __name__ == "__main__":
    main()
