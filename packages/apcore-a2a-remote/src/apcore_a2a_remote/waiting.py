"""Waiting for the end of tasks that are not streamed, by polling or by notifications."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import nullcontext, suppress
from typing import Any

from apcore_a2a_client import (
    A2AClient,
    Event,
    Message,
    PushNotificationConfig,
    PushNotificationNotSupportedError,
    Task,
)

from .receiver import WebhookReceiver

FIRST_POLL, MAX_POLL = 0.2, 5.0
"""Seconds between two requests for a task, at first and at most."""
NOTIFIED_POLL = 30.0
"""Seconds after which a task is fetched even though no notification has arrived."""
POLL_GROWTH = 1.5


async def poll_events(
    client: A2AClient,
    message: Message,
    *,
    skill: str | None,
    task_id: str | None,
    context_id: str | None,
    metadata: Mapping[str, Any],
    headers: Callable[[], Mapping[str, str]],
    question_id: str,
    receiver: WebhookReceiver | None,
) -> AsyncGenerator[Event]:
    """Send a message without waiting for its task to end; yield the task after each fetch.

    Args:
        client: The client.
        message: The message.
        skill: The skill; None for an agent without skills.
        task_id: The task that the message answers.
        context_id: The conversation.
        metadata: The metadata of the request.
        headers: Returns the headers of a request.
        question_id: The id of the question that the message answers; empty if there is none.
        receiver: Receives notifications; None to poll.
    """
    expecting = nullcontext((None, None)) if receiver is None else receiver.expecting()
    with expecting as (push_config, notification):

        async def send(webhook: PushNotificationConfig | None) -> Task:
            return await client.send_message(
                message,
                skill=skill,
                context_id=context_id,
                task_id=task_id,
                metadata=metadata,
                blocking=False,
                push_config=webhook,
                headers=headers(),
            )

        try:
            task = await send(push_config)
        except PushNotificationNotSupportedError:  # refused, so the message can be sent again
            notification, task = None, await send(None)
        if not task.id:  # the agent has answered with a message
            yield task.status.message or task
            return
        interval = FIRST_POLL if notification is None else NOTIFIED_POLL
        # until the task ends or pauses; a pause for the question just answered does not count
        while not task.status.state.is_settled or _shows_question(task, question_id):
            yield task
            await _wait(notification, interval)
            if notification is None:
                interval = min(interval * POLL_GROWTH, MAX_POLL)
            task = await client.get_task(task.id, headers=headers())
        yield task


async def _wait(notification: asyncio.Event | None, seconds: float) -> None:
    if notification is None:
        await asyncio.sleep(seconds)
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await notification.wait()
    notification.clear()


def _shows_question(task: Task, question_id: str) -> bool:
    """Return whether a task still shows the question that was answered."""
    message = task.status.message
    return bool(question_id and message and message.message_id == question_id)
