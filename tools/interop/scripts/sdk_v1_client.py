"""Call the agent with the Python SDK for A2A 1.0."""

# mypy: ignore-errors
# The SDK is in another environment.

from typing import Any

from a2a.client import A2ACardResolver, ClientConfig, create_client
from a2a.helpers import get_artifact_text, get_message_text, new_text_message
from a2a.types import Role, SendMessageRequest, Task
from httpx import AsyncClient
from steps import LOCKED_URL, error_text, run


async def card(url: str) -> list[str]:
    async with AsyncClient() as http:
        card = await A2ACardResolver(http, url).get_agent_card()
    return [card.name, *(skill.name for skill in card.skills)]


async def call(url: str, text: str, *, streaming: bool = False, **ids: str) -> Any:
    message = new_text_message(text, role=Role.ROLE_USER, **ids)
    async with await create_client(url, ClientConfig(streaming=streaming)) as client:
        async for event in client.send_message(SendMessageRequest(message=message)):
            yield event


async def ask(url: str, text: str, **ids: str) -> Task:
    (event,) = [event async for event in call(url, text, **ids)]
    return event.task


async def send(url: str) -> str:
    task = await ask(url, "hello")
    return get_artifact_text(task.artifacts[0])


async def stream(url: str) -> list[str]:
    return [
        get_artifact_text(event.artifact_update.artifact)
        async for event in call(f"{url}/count/", "go", streaming=True)
        if event.HasField("artifact_update")
    ]


async def question(url: str) -> list[str]:
    paused = await ask(f"{url}/table/", "A table, please")
    booked = await ask(f"{url}/table/", "friday", task_id=paused.id)
    return [get_message_text(paused.status.message), get_artifact_text(booked.artifacts[0])]


async def result(url: str) -> str:
    task = await ask(f"{url}/price/", "green tea")
    return get_artifact_text(task.artifacts[0])


async def refusal(url: str) -> list[str]:
    failed_task = await ask(f"{url}/order/", "50")
    input_refusal = await error_text(ask(f"{url}/order/", "many"))
    return [
        get_message_text(failed_task.status.message),
        input_refusal,
        await error_text(ask(LOCKED_URL, "hello")),
    ]


run(card, send, stream, question, result, refusal)
