"""Agents of other Python libraries, which are installed in environments of their own."""

# mypy: ignore-errors
# The libraries are in other environments.

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette


async def fasta2a() -> Starlette:
    """Build an agent with fasta2a as its documentation shows; it answers before the task ends."""
    from fasta2a import FastA2A, Worker
    from fasta2a.broker import InMemoryBroker
    from fasta2a.storage import InMemoryStorage

    class NoopWorker(Worker):
        async def run_task(self, params: Any) -> None:
            task = await self.storage.load_task(params["id"])
            await self.storage.update_task(task["id"], state="working")
            artifacts = self.build_artifacts(task["history"][0]["parts"])
            await self.storage.update_task(task["id"], "completed", new_artifacts=artifacts)

        async def cancel_task(self, params: Any) -> None:
            raise NotImplementedError

        def build_message_history(self, history: list[Any]) -> list[Any]:
            return history

        def build_artifacts(self, result: Any) -> list[Any]:
            return [{"artifact_id": "a", "parts": result}]

    broker, storage = InMemoryBroker(), InMemoryStorage()

    @asynccontextmanager
    async def lifespan(app: FastA2A) -> AsyncIterator[None]:
        async with app.task_manager, NoopWorker(broker, storage).run():
            yield

    return FastA2A(storage=storage, broker=broker, lifespan=lifespan)


async def a2a_adapter() -> Starlette:
    """Build an agent from a function with a2a-adapter, as its documentation shows."""
    from a2a_adapter import CallableAdapter, to_a2a

    async def noop(inputs: dict[str, Any]) -> str:
        return "hello"

    # a2a-adapter warns about messages without text, such as those of this benchmark
    logging.getLogger("a2a_adapter").setLevel(logging.ERROR)
    return to_a2a(CallableAdapter(noop, name="noop"))
