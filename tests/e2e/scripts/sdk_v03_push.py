"""Set up webhooks with the SDK for A2A 0.3; print one JSON line for each step.

Runs in a separate environment. Its arguments are the URLs of the agent and of the webhook,
and the transport.
"""

# mypy: ignore-errors
# mypy knows only the types of the SDK for 1.0.

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


def report(step: str, **result: Any) -> None:
    print(json.dumps({"step": step, **result}), flush=True)


def as_json(response: TaskPushNotificationConfig) -> Any:
    config = response.push_notification_config
    return config.model_dump(mode="json", by_alias=True, exclude_none=True)


async def main(url: str, hook: str, transport: str) -> None:
    push_config = PushNotificationConfig(
        id="c1",
        url=hook,
        token="t-1",
        authentication=PushNotificationAuthenticationInfo(schemes=["Bearer"], credentials="sesame"),
    )
    async with httpx.AsyncClient(timeout=20, trust_env=False) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        report("card", push=card.capabilities.push_notifications)
        config = ClientConfig(httpx_client=http, streaming=False, supported_transports=[transport])
        config.push_notification_configs = [push_config]
        client = ClientFactory(config).create(card)
        parts = [Part(root=DataPart(data={"n": 1}))]
        message = Message(message_id=str(uuid4()), role=Role.user, parts=parts)
        options = {"request_metadata": {"skillId": "test.echo"}}
        ((task, _),) = [event async for event in client.send_message(message, **options)]
        get_params = GetTaskPushNotificationConfigParams(
            id=task.id, push_notification_config_id="c1"
        )
        report("send", task=task.id, config=as_json(await client.get_task_callback(get_params)))
        second_config = TaskPushNotificationConfig(
            task_id=task.id, push_notification_config=PushNotificationConfig(url=hook)
        )
        report("set", config=as_json(await client.set_task_callback(second_config)))


asyncio.run(main(*sys.argv[1:]))
