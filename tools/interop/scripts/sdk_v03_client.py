"""Call the agent with the last Python SDK for A2A 0.3."""

# mypy: ignore-errors
# The SDK is in another environment.

from typing import Any

from a2a.client import (
    A2ACardResolver,
    ClientConfig,
    ClientFactory,
    create_text_message_object,
)
from a2a.types import Task, TaskArtifactUpdateEvent
from a2a.utils import get_message_text
from a2a.utils.artifact import get_artifact_text
from httpx import AsyncClient
from steps import LOCKED_URL, error_text, run


async def card(url: str) -> list[str]:
    async with AsyncClient() as http:
        card = await A2ACardResolver(http, url).get_agent_card()
    return [card.name, *(skill.name for skill in card.skills)]


async def call(url: str, text: str, *, streaming: bool = False, task_id: str | None = None) -> Any:
    message = create_text_message_object(content=text)
    message.task_id = task_id
    async with AsyncClient() as http:
        client = await ClientFactory.connect(url, ClientConfig(streaming, httpx_client=http))
        async for event in client.send_message(message):
            yield event


async def ask(url: str, text: str, **options: str) -> Task:
    ((task, _),) = [event async for event in call(url, text, **options)]
    return task


async def send(url: str) -> str:
    task = await ask(url, "hello")
    return get_artifact_text(task.artifacts[0])


async def stream(url: str) -> list[str]:
    return [
        get_artifact_text(event.artifact)
        async for _, event in call(f"{url}/count/", "go", streaming=True)
        if isinstance(event, TaskArtifactUpdateEvent)
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
