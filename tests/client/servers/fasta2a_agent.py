"""Agent of fasta2a: objects of A2A 1.0, with JSON-RPC methods of 1.0 and of 0.3.

`python fasta2a_agent.py PORT` serves it on loopback, in a separate environment.

The first word of a message selects the action: echo, count, slow, ask, fail; data is sent back.
Any other word makes the agent raise an error. Limits of fasta2a:

- An answer is always a task, never a message.
- Tasks are not resumed: each message makes a new task, whatever task it names. So the answer to a
  question is a new task of the same context.
- The message of a status (an error or a question) is streamed, but stored only as the last message
  of the task's history.
- Chunks are not stored one by one: the agent stores the complete artifact at the end.
"""

# mypy: ignore-errors
# The library is in another environment.

import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import uvicorn
from fasta2a import FastA2A, Worker
from fasta2a.broker import InMemoryBroker
from fasta2a.schema import Artifact, Message, Part, Skill, TaskIdParams, TaskSendParams, TaskState
from fasta2a.storage import InMemoryStorage

PORT = sys.argv[1]
WORKERS = 8  # operations at a time, cancellations included


def artifact(part: Part, key: str = "output") -> Artifact:
    """Return an artifact of one *part*."""
    return Artifact(artifact_id=key, name=key, parts=[part])


class Run:
    """Run of the agent for one message."""

    def __init__(self, worker: "Agent", params: TaskSendParams, rest: str) -> None:
        self.worker = worker
        self.ids = (params["id"], params["context_id"])
        self.rest = rest

    async def end(self, state: TaskState, text: str) -> None:
        """Leave the task in *state*, with a message that explains it."""
        message = Message(role="agent", message_id=str(uuid.uuid4()), parts=[Part(text=text)])
        await self.worker.storage.update_task(self.ids[0], state, new_messages=[message])
        await self.worker.publish_status(*self.ids, state, message)
        await self.worker.broker.event_bus.close(self.ids[0])

    async def finish(self, part: Part) -> None:
        """Complete the task with an artifact of one *part*."""
        await self.worker.publish_artifact(*self.ids, artifact(part))
        await self.worker.storage.update_task(self.ids[0], "completed", [artifact(part)])

    async def echo(self) -> None:
        """Complete the task with the text."""
        await self.finish(Part(text=self.rest))

    async def count(self) -> None:
        """Count to a number; each number is a chunk of one artifact."""
        last = int(self.rest)
        parts = [Part(text=str(number)) for number in range(1, last + 1)]
        for number, part in enumerate(parts, 1):
            await self.worker.publish_artifact(
                *self.ids,
                artifact(part, "numbers"),
                append=number > 1,
                last_chunk=number == last,
            )
        complete_artifact = Artifact(artifact_id="numbers", name="numbers", parts=parts)
        await self.worker.storage.update_task(self.ids[0], "completed", [complete_artifact])

    async def slow(self) -> None:
        """Complete the task after some seconds."""
        with anyio.CancelScope() as scope:
            self.worker.scopes[self.ids[0]] = scope
            await anyio.sleep(float(self.rest))
            await self.finish(Part(text="done"))

    async def ask(self) -> None:
        """Ask a question; the next message of the context is its answer."""
        await self.worker.storage.update_context(self.ids[1], "asked")
        await self.end("input-required", "Which one?")

    async def fail(self) -> None:
        """Fail with a message."""
        await self.end("failed", "it broke")


class Agent(Worker):
    """Agent that runs the actions."""

    def __init__(self, broker: InMemoryBroker, storage: InMemoryStorage) -> None:
        super().__init__(broker=broker, storage=storage)
        self.scopes: dict[str, anyio.CancelScope] = {}

    async def run_task(self, params: TaskSendParams) -> None:
        """Run the action that the first word of the message selects."""
        await self.storage.update_task(params["id"], "working")
        await self.publish_status(params["id"], params["context_id"], "working")
        (part,) = params["message"]["parts"]
        text = part.get("text", "")
        word, _, rest = text.partition(" ")
        run = Run(self, params, rest)
        if await self.storage.load_context(params["context_id"]) == "asked":
            await self.storage.update_context(params["context_id"], "answered")
            await run.finish(Part(text=f"got: {text}"))
        elif "data" in part:
            await run.finish(Part(data=part["data"]))
        else:
            await getattr(run, word)()

    async def cancel_task(self, params: TaskIdParams) -> None:
        """Cancel the run of the task, if there is one."""
        if scope := self.scopes.pop(params["id"], None):
            await self.storage.update_task(params["id"], "canceled")
            scope.cancel()

    def build_message_history(self, history: list[Message]) -> list[Message]:
        """Return *history*; the base class requires this method, but nothing here calls it."""
        return history

    def build_artifacts(self, result: Part) -> list[Artifact]:
        """Return an artifact of *result*; required like `build_message_history`."""
        return [artifact(result)]


def application() -> FastA2A:
    """Return the application of the agent, with its workers."""
    broker, storage = InMemoryBroker(), InMemoryStorage()
    worker = Agent(broker, storage)

    @asynccontextmanager
    async def lifespan(app: FastA2A) -> AsyncIterator[None]:
        async with app.task_manager, AsyncExitStack() as workers:
            for _ in range(WORKERS):
                await workers.enter_async_context(worker.run())
            yield

    return FastA2A(
        storage=storage,
        broker=broker,
        lifespan=lifespan,
        name="fasta2a",
        description="An agent of fasta2a",
        url=f"http://127.0.0.1:{PORT}",
        skills=[Skill(id="echo", name="Echo", description="Echoes a text", tags=["text"])],
    )


if __name__ == "__main__":
    uvicorn.run(application(), port=int(PORT), log_level="warning")
