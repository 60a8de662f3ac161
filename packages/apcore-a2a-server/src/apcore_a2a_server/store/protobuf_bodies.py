"""Conversion to JSON of protobuf bodies, which durable stores had up to schema version 3.

Only migrations import this module.
"""

from a2a import types as a2a
from apcore_a2a_core import from_sdk
from apcore_a2a_core.values import dump_json
from google.protobuf.message import Message

BODY_TYPES: dict[str, type[Message]] = {
    "tasks": a2a.Task,
    "messages": a2a.Message,
    "webhooks": a2a.TaskPushNotificationConfig,
}
"""Types of bodies by table, for the tables whose bodies are of one type."""
PAYLOAD_TYPES: tuple[type[Message], ...] = (
    a2a.Task,
    a2a.TaskStatusUpdateEvent,
    a2a.TaskArtifactUpdateEvent,
)
"""Types of bodies in the other tables, by the first byte of the body."""
TABLES = (*BODY_TYPES, "events", "outbox")
"""All tables with bodies."""


def as_json(table: str, body: bytes) -> bytes:
    """Convert a body of a table to JSON; in `events` and `outbox`, keep its first byte.

    Example:
        ```python
        from a2a.types import Message
        from apcore_a2a_server.store.protobuf_bodies import as_json

        print(as_json("messages", Message(message_id="m").SerializeToString()))
        #> b'{"messageId":"m"}'
        ```
    """
    if table in BODY_TYPES:
        return dump_json(from_sdk(BODY_TYPES[table].FromString(body)))
    return body[:1] + dump_json(from_sdk(PAYLOAD_TYPES[body[0]].FromString(body[1:])))
