"""Use an agent with the SDK for A2A 0.3; print one JSON line for each step.

Runs in a separate environment, with the agent's URL and the transport as its arguments.
"""

# mypy: ignore-errors
# mypy knows only the types of the SDK for 1.0.

import asyncio
import json
import sys
from collections.abc import Awaitable
from contextlib import aclosing
from typing import Any
from uuid import uuid4

import httpx
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientError, A2AClientHTTPError, A2AClientJSONRPCError
from a2a.types import (
    AgentCard,
    DataPart,
    Message,
    Part,
    Role,
    Task,
    TaskIdParams,
    TaskQueryParams,
    TextPart,
)


def report(step: str, **result: Any) -> None:
    print(json.dumps({"step": step, **result}), flush=True)


def send_arguments(skill: str | None, content: Any, **ids: str) -> dict[str, Any]:
    """Return the arguments of `Client.send_message`."""
    root = TextPart(text=content) if isinstance(content, str) else DataPart(data=content)
    parts = [Part(root=root)]
    message = Message(message_id=str(uuid4()), role=Role.user, parts=parts, **ids)
    return {"request": message, "request_metadata": {"skillId": skill} if skill else None}


def output(task: Task) -> Any:
    (artifact,) = task.artifacts or []
    (part,) = artifact.parts
    return part.root.data


async def task_of(client: Client, message: dict[str, Any]) -> Task:
    ((task, _),) = [event async for event in client.send_message(**message)]
    return task


def kind(update: Any) -> str:
    """Return the kind of an event's update; the first event is the task, without an update."""
    return "task" if update is None else update.kind


def state(task: Task) -> str:
    return task.status.state.value


class Clients:
    """A client that streams, one that waits for the result, and one that does not wait."""

    def __init__(self, card: AgentCard, http: httpx.AsyncClient, transport: str) -> None:
        def client(**options: bool) -> Client:
            config = ClientConfig(httpx_client=http, supported_transports=[transport], **options)
            return ClientFactory(config).create(card)

        self.streaming = client()
        self.blocking = client(streaming=False)
        self.polling = client(streaming=False, polling=True)

    async def send(self) -> None:
        task = await task_of(self.blocking, send_arguments("markdown.html", "# Tea"))
        fetched = await self.blocking.get_task(TaskQueryParams(id=task.id))
        report("send", state=state(task), output=output(task), same=fetched == task)

    async def numbers(self) -> None:
        task = await task_of(self.blocking, send_arguments("test.echo", {"n": 2**53, "half": 0.5}))
        report("numbers", output=output(task))

    async def stream(self) -> None:
        message = send_arguments("text.stats", "To be\n\nor not")
        events = [event async for event in self.streaming.send_message(**message)]
        report("stream", kinds=[kind(update) for _, update in events], state=state(events[-1][0]))

    async def cancel(self) -> None:
        task = await task_of(self.polling, send_arguments("jobs.countdown", {"seconds": 300}))
        canceled = await self.blocking.cancel_task(TaskIdParams(id=task.id))
        report("cancel", before=state(task), after=state(canceled))

    async def resubscribe(self) -> None:
        gate = str(uuid4())
        task = await task_of(self.polling, send_arguments("test.wait", {"gate": gate}))
        async with aclosing(self.streaming.resubscribe(TaskIdParams(id=task.id))) as events:
            first = [kind((await anext(events))[1])]
            await task_of(self.blocking, send_arguments("test.open", {"gate": gate}))
            rest = [event async for event in events]
        last = rest[-1][0]
        report(
            "resubscribe",
            kinds=first + [kind(update) for _, update in rest],
            state=state(last),
            output=output(last)["opened"] == gate,
        )

    async def approve(self) -> None:
        paused = await task_of(self.blocking, send_arguments("files.delete", {"path": "none.txt"}))
        resumed = await task_of(self.blocking, send_arguments(None, "no", task_id=paused.id))
        report("approve", before=state(paused), after=state(resumed), same=paused.id == resumed.id)

    async def error(self) -> None:
        attempts = [
            task_of(client, send_arguments(skill, content))
            for skill, content in (("no.such", {}), ("csv.summary", {"text": 5}))
            for client in (self.blocking, self.streaming)
        ]
        attempts.append(self.blocking.get_task(TaskQueryParams(id="no-such")))
        report("error", codes=[await code(attempt) for attempt in attempts])


async def code(attempt: Awaitable[Task]) -> Any:
    """Return the code of the error that *attempt* raises, or the state of its task.

    The code is from JSON-RPC or HTTP; it is None for an error of the SDK without a code.
    """
    try:
        task = await attempt
    except A2AClientHTTPError as error:
        return error.status_code
    except A2AClientError as error:
        return error.error.code if isinstance(error, A2AClientJSONRPCError) else None
    return state(task)


async def main(url: str, transport: str) -> None:
    async with httpx.AsyncClient(timeout=20, trust_env=False) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        report(
            "card",
            version=card.protocol_version,
            url=card.url,
            streaming=card.capabilities.streaming,
            skills=[skill.id for skill in card.skills],
        )
        clients = Clients(card, http, transport)
        await clients.send()
        await clients.numbers()
        await clients.stream()
        await clients.cancel()
        await clients.resubscribe()
        await clients.approve()
        await clients.error()


asyncio.run(main(*sys.argv[1:]))
