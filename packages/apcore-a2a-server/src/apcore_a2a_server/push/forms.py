"""Push configurations as JSON of either version."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from apcore_a2a_server.store import Version, Webhook

from .notice import DIALECT_1

Json: TypeAlias = dict[str, Any]
Result: TypeAlias = Webhook | Sequence[Webhook] | None


def written(result: Result, version: Version) -> Any:
    """What an operation answers (A2A 1.0 §3.1.7 to §3.1.10, 0.3 §7.5 to §7.8)."""
    if isinstance(result, Webhook):
        return _webhook(result, version)
    if isinstance(result, Sequence):
        configs = [_webhook(webhook, version) for webhook in result]
        return configs if version == "0.3" else {"configs": configs}
    return None if version == "0.3" else {}


def _webhook(webhook: Webhook, version: Version) -> Json:
    """One webhook; its status (SRS 7.1.7) is beside what the protocol has.

    1.0 knows no other members than its own, so that it tells the status of a failed one alone.
    """
    config = DIALECT_1.message(webhook.config)
    failed = {"status": "failed", "reason": webhook.failure} if webhook.failure else {}
    if version == "1.0":
        return {**config, **failed}
    task_id = config.pop("taskId")
    if "authentication" in config:
        known = config["authentication"]
        scheme = known.pop("scheme", None)
        config["authentication"] = {"schemes": [scheme] if scheme else [], **known}
    return {"taskId": task_id, "pushNotificationConfig": config, "status": "active", **failed}
