"""What a notification says of itself in its headers (Standard Webhooks)."""

from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256

from standardwebhooks import Webhook as Secret

Headers = list[tuple[str, str]]


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
