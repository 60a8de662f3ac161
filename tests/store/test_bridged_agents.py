"""Questions of an agent behind a bridge are answered at another replica."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from apcore_a2a_bridges import Agent, Turn

from tests.bridges.acceptance import client_of, serving_agent

from .postgresql import Database

pytestmark = [pytest.mark.anyio, pytest.mark.soak]


class Guide(Agent):
    """Asks twice, and keeps the first answer in the state of the pause."""

    async def run(self, turn: Turn) -> AsyncIterator[Any]:
        if turn.state is None:
            turn.ask("Where to?", state={"steps": 1})
        if turn.state["steps"] == 1:
            turn.ask("How many days?", state={"steps": 2, "place": turn.answer})
        yield f"{turn.answer} days in {turn.state['place']}"


async def test_each_question_of_an_agent_is_answered_at_another_replica(server: Database) -> None:
    server.clear()
    async with (
        serving_agent(Guide(), task_store=server.url) as first,
        serving_agent(Guide(), task_store=server.url) as second,
        client_of(first) as at_first,
        client_of(second) as at_second,
    ):
        task = await at_first.send_message("Plan a trip")
        assert task.status.state == "input-required"
        assert "steps" not in str(task.to_dict())
        task = await at_second.reply(task, "Rome")
        assert task.status.state == "input-required"
        task = await at_first.reply(task, "3")
    assert task.value == "3 days in Rome"
