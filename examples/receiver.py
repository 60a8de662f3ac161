"""A receiver of webhooks: `python examples/receiver.py`, with the agent's secret in PUSH_SECRET.

It believes what is signed, tells what is new, and takes what comes twice for what it is. Needs
`pip install standardwebhooks`.
"""

import os
import sys
from collections import OrderedDict
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks import Webhook, WebhookVerificationError

MAX_BODY = 64 * 1024 * 1024
MAX_KNOWN = 10_000


class Inbox:
    """Knows which notifications have been told before, by their ids."""

    def __init__(self, secret: str) -> None:
        self._webhook = Webhook(secret)
        self._known: OrderedDict[str, None] = OrderedDict()

    def open(self, body: bytes, headers: dict[str, str]) -> dict[str, Any] | None:
        """The notification; None when it has come before.

        Raises:
            WebhookVerificationError: It is not the agent's, or more than five minutes old.
        """
        found: dict[str, Any] = self._webhook.verify(body, headers)
        notification_id = headers["webhook-id"]
        if notification_id in self._known:
            return None
        self._known[notification_id] = None
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        return found


def tell(notification: dict[str, Any]) -> str:
    """One line about a task of A2A 0.3, or an event of A2A 1.0."""
    event = notification.get("task") or notification.get("statusUpdate") or notification
    task_id = event.get("taskId") or event["id"]
    state = event["status"]["state"].removeprefix("TASK_STATE_").lower().replace("_", "-")
    return f"task {task_id} is {state}"


class Handler(BaseHTTPRequestHandler):
    """Answers 204 to what it has taken, and 401 to what is not signed."""

    inbox: Inbox

    def do_POST(self) -> None:
        """One notification."""
        length = int(self.headers.get("content-length") or 0)
        if length > MAX_BODY:
            return self._answer(413)
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            notification = self.inbox.open(self.rfile.read(length), headers)
        except (WebhookVerificationError, ValueError):
            return self._answer(401)
        if notification is not None:
            print(tell(notification), flush=True)
        return self._answer(204)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing of each request."""


def main() -> None:
    """Receive until Ctrl+C."""
    secret = os.environ.get("PUSH_SECRET")
    if not secret:
        sys.exit("PUSH_SECRET must be the secret that the agent signs with: whsec_...")
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 9000
    Handler.inbox = Inbox(secret)
    print(f"Receiving at http://127.0.0.1:{port}/", file=sys.stderr)
    with suppress(KeyboardInterrupt):
        ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main()
