"""Body, headers and signatures of notifications (Standard Webhooks)."""

import hmac
from base64 import b64decode, b64encode
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from typing import TypeAlias

from apcore_a2a_core.data import Task, TaskPushNotificationConfig
from apcore_a2a_core.dialects import V03, V1
from apcore_a2a_core.values import dump_json
from standardwebhooks import Webhook as HmacSigner

from apcore_a2a_server.store import Notification, Version, Webhook

from .settings import ANY_RECEIVER, Secrets, origin_of, secrets_by_origin

Headers: TypeAlias = list[tuple[str, str]]

DIALECT_1 = V1()
DIALECT_03 = V03()
MEDIA_TYPES: dict[Version, str] = {"1.0": "application/a2a+json", "0.3": "application/json"}


def notification_body(notification: Notification, task: Task) -> bytes:
    """Return the JSON of a StreamResponse (A2A 1.0 §4.3.3), or of the task for a 0.3 webhook."""
    if notification.webhook.version == "0.3":
        return dump_json(DIALECT_03.task(task))
    return dump_json(DIALECT_1.event(notification.payload))


def protocol_headers(webhook: Webhook) -> Headers:
    """Return the protocol's headers, with the token and the credentials of the push config."""
    config = webhook.config
    headers = [
        ("content-type", MEDIA_TYPES[webhook.version]),
        ("user-agent", "apcore-a2a"),
        ("a2a-version", webhook.version),
        ("accept-encoding", "identity"),
    ]
    if config.token:
        headers.append(("x-a2a-notification-token", config.token))
    if config.authentication is not None and config.authentication.scheme:
        credentials = f"{schemes_of(config)[0]} {config.authentication.credentials}"
        headers.append(("authorization", credentials.strip()))
    return headers


def schemes_of(config: TaskPushNotificationConfig) -> list[str]:
    """Return the authentication schemes of a push config; 0.3 allows several, joined by commas."""
    authentication = config.authentication
    return authentication.scheme.split(",") if authentication and authentication.scheme else []


CACHE_SIZE = 1000
"""Number of URLs whose signers are cached."""


class Signer:
    """Signer of notifications, with different secrets for each receiver.

    Args:
        secrets: The `secrets` of `PushSettings`. A receiver without a secret of its own gets
            secrets that are derived from the master secrets; without master secrets, its
            notifications are not signed.

    Example:
        ```python
        from apcore_a2a_server.push.signing import Signer

        headers = dict(Signer([]).headers("n1", b"{}", "https://hooks.example.com/a2a"))
        print(sorted(headers))
        #> ['webhook-id', 'webhook-timestamp']
        ```
    """

    def __init__(self, secrets: Secrets) -> None:
        self._by_origin = secrets_by_origin(secrets)
        self._signers_of = lru_cache(CACHE_SIZE)(self._make_signers)

    def secrets(self, url: str) -> list[str]:
        """Return the secrets that sign notifications to the webhook at *url*, in configured order.

        Raises:
            ValueError: *url* is not the URL of a webhook.
        """
        origin = origin_of(url)
        if origin in self._by_origin:
            return self._by_origin[origin]
        return [receiver_secret(master, origin) for master in self._by_origin.get(ANY_RECEIVER, ())]

    def headers(self, notification_id: str, body: bytes, url: str) -> Headers:
        """Return the headers of an attempt: the notification's id, the time and the signatures."""
        now = datetime.now(UTC)
        timestamp = str(int(now.timestamp()))
        headers = [("webhook-id", notification_id), ("webhook-timestamp", timestamp)]
        if signers := self._signers_of(url):
            text = body.decode()
            signatures = [signer.sign(notification_id, now, text) for signer in signers]
            headers.append(("webhook-signature", " ".join(signatures)))
        return headers

    def _make_signers(self, url: str) -> list[HmacSigner]:
        try:
            secrets = self.secrets(url)
        except ValueError:  # a store has returned an invalid URL, which the transport refuses
            return []
        return [HmacSigner(secret) for secret in secrets]


def receiver_secret(master: str, origin: str) -> str:
    """Return the secret of receivers at *origin*: the HMAC-SHA256 of *origin*, with key *master*.

    Example:
        ```python
        from apcore_a2a_server.push.signing import receiver_secret

        print(receiver_secret("whsec_" + "QUJDREVG" * 4, "https://hooks.example.com")[:12])
        #> whsec_RMet9g
        ```
    """
    encoded = master.removeprefix("whsec_").rstrip("=")
    key = b64decode(encoded + "=" * (-len(encoded) % 4))
    return "whsec_" + b64encode(hmac.digest(key, origin.encode(), "sha256")).decode()


def notification_id(task_id: str, config_id: str, version: int) -> str:
    """Return the id of the notification for one webhook and one version of a task.

    It is the same for all attempts and replicas, so that receivers can drop duplicates.

    Example:
        ```python
        from apcore_a2a_server.push.signing import notification_id

        print(notification_id("t1", "c1", 3))
        #> msg_27983359ef70fa82eec3371e8c8e458d
        ```
    """
    digest = sha256(f"{task_id}\n{config_id}\n{version}".encode(errors="surrogatepass"))
    return "msg_" + digest.hexdigest()[:32]
