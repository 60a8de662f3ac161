"""The body of a notification, its headers, and its signature (Standard Webhooks)."""

from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, TypeAlias

from a2a import types as a2a
from apcore_a2a_core.dialects import V03, V1
from apcore_a2a_core.values import dump_json
from standardwebhooks import Webhook as Secret

from apcore_a2a_server.store import Notification, Version, Webhook

Headers: TypeAlias = list[tuple[str, str]]

DIALECT_1 = V1()
DIALECT_03 = V03()
MEDIA_TYPES: dict[Version, str] = {"1.0": "application/a2a+json", "0.3": "application/json"}


def notification_body(notification: Notification, task: a2a.Task) -> bytes:
    """Return the StreamResponse of 1.0 (§4.3.3), or the task as 0.3 has it."""
    body: dict[str, Any]
    if notification.webhook.version == "0.3":
        body = DIALECT_03.task(task)
    else:
        body = DIALECT_1.event(notification.payload)
    return dump_json(body)


def protocol_headers(webhook: Webhook) -> Headers:
    """Return the headers of the protocol, and those that the client wants."""
    config = webhook.config
    found = [
        ("content-type", MEDIA_TYPES[webhook.version]),
        ("user-agent", "apcore-a2a"),
        ("a2a-version", webhook.version),
        ("accept-encoding", "identity"),
    ]
    if config.token:
        found.append(("x-a2a-notification-token", config.token))
    if config.authentication.scheme:
        credentials = f"{config.authentication.scheme} {config.authentication.credentials}"
        found.append(("authorization", credentials.strip()))
    return found


class Signer:
    """Signs notifications with each of the server's secrets.

    Args:
        secrets: `whsec_` and base64, each; none for notifications that are not signed.

    Example:
        ```python
        from apcore_a2a_server.push.signing import Signer

        headers = dict(Signer([]).headers("n1", b"{}"))
        print(sorted(headers))
        #> ['webhook-id', 'webhook-timestamp']
        ```
    """

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = [Secret(secret) for secret in secrets]

    def headers(self, notification_id: str, body: bytes) -> Headers:
        """The headers of one attempt: an id that stays, the time now, and the signatures."""
        now = datetime.now(UTC)
        found = [("webhook-id", notification_id), ("webhook-timestamp", str(int(now.timestamp())))]
        if self._secrets:
            text = body.decode()
            signed = [secret.sign(notification_id, now, text) for secret in self._secrets]
            found.append(("webhook-signature", " ".join(signed)))
        return found


def notification_id(task_id: str, config_id: str, version: int) -> str:
    """The id of what a webhook is told of one version of a task: always the same.

    Example:
        ```python
        from apcore_a2a_server.push.signing import notification_id

        print(notification_id("t1", "c1", 3))
        #> msg_27983359ef70fa82eec3371e8c8e458d
        ```
    """
    digest = sha256(f"{task_id}\n{config_id}\n{version}".encode(errors="surrogatepass"))
    return "msg_" + digest.hexdigest()[:32]
