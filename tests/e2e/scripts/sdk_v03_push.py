"""What a program with the SDK for A2A 0.3 does about webhooks; one JSON line for each step.

Runs in an environment of its own, with the agent's URL and the webhook's as its arguments.
"""

# mypy: ignore-errors
# The types are those of the other version.

import asyncio
import json
import sys
from typing import Any
from uuid import uuid4

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import (
    DataPart,
    GetTaskPushNotificationConfigParams,
    Message,
    Part,
    PushNotificationAuthenticationInfo,
    PushNotificationConfig,
    Role,
    TaskPushNotificationConfig,
)


def tell(step: str, **facts: Any) -> None:
    print(json.dumps({"step": step, **facts}), flush=True)


def shown(found: TaskPushNotificationConfig) -> Any:
    config = found.push_notification_config
    return config.model_dump(mode="json", by_alias=True, exclude_none=True)


async def main(url: str, hook: str) -> None:
    wish = PushNotificationConfig(
        id="c1",
        url=hook,
        token="t-1",
        authentication=PushNotificationAuthenticationInfo(schemes=["Bearer"], credentials="sesame"),
    )
    async with httpx.AsyncClient(timeout=20, trust_env=False) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        tell("card", push=card.capabilities.push_notifications)
        config = ClientConfig(httpx_client=http, streaming=False)
        config.push_notification_configs = [wish]
        client = ClientFactory(config).create(card)
        parts = [Part(root=DataPart(data={"n": 1}))]
        message = Message(message_id=str(uuid4()), role=Role.user, parts=parts)
        about = {"request_metadata": {"skillId": "test.echo"}}
        ((task, _),) = [event async for event in client.send_message(message, **about)]
        asked = GetTaskPushNotificationConfigParams(id=task.id, push_notification_config_id="c1")
        tell("send", task=task.id, config=shown(await client.get_task_callback(asked)))
        other = TaskPushNotificationConfig(
            task_id=task.id, push_notification_config=PushNotificationConfig(url=hook)
        )
        tell("set", config=shown(await client.set_task_callback(other)))


asyncio.run(main(*sys.argv[1:]))
