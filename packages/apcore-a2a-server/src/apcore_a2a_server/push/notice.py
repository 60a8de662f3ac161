"""What a webhook is told of a transition, in the version that it was set in."""

import json
from typing import Any

from apcore_a2a_core.dialects import V03, V1

from apcore_a2a_server.store import Transition, Version, Webhook

from .signing import Headers

DIALECT_1 = V1()
DIALECT_03 = V03()
MEDIA_TYPES: dict[Version, str] = {"1.0": "application/a2a+json", "0.3": "application/json"}
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


class Notice:
    """A transition, and its bodies: made when the first webhook is to be told, and kept for all.

    Args:
        transition: What happened.
    """

    def __init__(self, transition: Transition) -> None:
        self.transition = transition
        self._bodies: dict[Version, bytes] = {}
        self.size = 2 * transition.task.ByteSize()  # the task, and the bytes made of it

    def body(self, version: Version) -> bytes:
        """The StreamResponse of 1.0 (§4.3.3), or the Task as 0.3 has it."""
        if version not in self._bodies:
            self._bodies[version] = _ENCODER.encode(self._json(version)).encode()
        return self._bodies[version]

    def headers(self, webhook: Webhook) -> Headers:
        """What the protocol has in the headers, and what the client wants there."""
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

    def _json(self, version: Version) -> dict[str, Any]:
        if version == "0.3":
            return DIALECT_03.task(self.transition.task)
        return DIALECT_1.event(self.transition.payload)
