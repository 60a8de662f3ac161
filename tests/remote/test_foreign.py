"""Agents built on other libraries, each in a separate process, behind a gateway.

Their skills take and return text, whatever the library.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from apcore_a2a_client import Event, InputRequired, Task, TaskFailedError, TaskState
from apcore_a2a_remote import RemoteAgent

from tests.client.foreign import foreign_server
from tests.server.inloop import anyio_backend as anyio_backend
from tests.server.inloop import wait_until

from .agents import Agent, serving

pytestmark = [pytest.mark.anyio, pytest.mark.process]


@dataclass(frozen=True)
class Foreign:
    """A foreign agent and its capabilities.

    Attributes:
        server: The program in `tests/client/servers`.
        path: The path of its base URL.
        skill: The id of its skill; `agent` if its card lists none.
        chunks: The chunks of the answer to `count 3`.
        question: Its question in words; empty if it has none.
        error: The text of its error; some libraries hide the agent's own text.
    """

    server: str
    path: str = ""
    skill: str = "echo"
    chunks: tuple[str, ...] = ("1", "2", "3")
    question: str = "Which one?"
    error: str = "it broke"


AGENTS = {
    "a2a-sdk 1": Foreign("sdk1", "/jsonrpc"),
    "a2a-sdk 1 REST": Foreign("sdk1", "/rest"),
    "a2a-sdk 1 as 0.3": Foreign("sdk1", "/v03"),
    "a2a-sdk 0.3": Foreign("sdk03"),
    "a2a-js 1": Foreign("sdk-v1"),
    "a2a-js 0.3": Foreign("sdk-v03"),
    "google-adk": Foreign("adk", skill="adk", chunks=("3",), question=""),
    "strands": Foreign("strands_agent", skill="agent", question="", error="Agent execution failed"),
    "a2a-adapter": Foreign("adapter", skill="agent", question=""),
}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=pytest.mark.smoke if name == "a2a-sdk 1" else ())
        for name in AGENTS
    ],
)
def foreign(request: pytest.FixtureRequest) -> Iterator[tuple[Foreign, str]]:
    """Yield an agent and its URL."""
    agent = AGENTS[request.param]
    with foreign_server(agent.server) as url:
        yield agent, url + agent.path


@asynccontextmanager
async def gateway(foreign: tuple[Foreign, str]) -> AsyncIterator[tuple[Foreign, Agent, str]]:
    """Serve a foreign agent's skill; yield the agent, the gateway, and the skill's id there."""
    agent, url = foreign
    async with serving({}, RemoteAgent(url, name="far", expose=True)) as gateway_agent:
        skills = [skill.id for skill in (await gateway_agent.client.agent_card).skills]
        yield agent, gateway_agent, skills[0]


async def test_skills_of_a_foreign_agent_become_modules(foreign: tuple[Foreign, str]) -> None:
    async with gateway(foreign) as (agent, gateway_agent, skill):
        assert skill == f"remote.far.{agent.skill}"
        assert gateway_agent.registry.module_ids == [skill]


async def test_a_foreign_skill_takes_and_returns_text(foreign: tuple[Foreign, str]) -> None:
    async with gateway(foreign) as (_, gateway_agent, skill):
        assert (await gateway_agent.client.call(skill, "echo hello")).strip() == "hello"


async def test_chunks_of_a_foreign_skill_are_passed_on(foreign: tuple[Foreign, str]) -> None:
    async with gateway(foreign) as (agent, gateway_agent, skill):
        chunks = [chunk async for chunk in gateway_agent.client.stream(skill, "count 3")]
        assert tuple(chunk for chunk in map(str.strip, chunks) if chunk) == agent.chunks


async def test_a_question_of_a_foreign_agent_is_answered_through_the_gateway(
    foreign: tuple[Foreign, str],
) -> None:
    async with gateway(foreign) as (agent, gateway_agent, skill):
        if not agent.question:
            pytest.skip("the agent asks no questions in words")
        with pytest.raises(InputRequired, match=agent.question) as asked:
            await gateway_agent.client.call(skill, "ask")
        task = await gateway_agent.client.reply(asked.value.task, "this one")
        assert task.value == "got: this one"


async def test_a_cancel_reaches_a_foreign_agent(foreign: tuple[Foreign, str]) -> None:
    task_ids: list[str] = []

    class LeftError(Exception):
        """The reader has left."""

    def leave(event: Event) -> None:
        task_ids.append(event.id if isinstance(event, Task) else event.task_id)
        raise LeftError

    async with gateway(foreign) as (agent, gateway_agent, skill):
        remote = gateway_agent.remotes["far"]
        # the skill id is empty for an agent whose card lists no skills
        with pytest.raises(LeftError):
            await remote.send(agent.skill.removeprefix("agent"), "slow 60", on_event=leave)
        task = await remote.client.get_task(task_ids[0])
        assert task.status.state == TaskState.CANCELED
        gateway_task = await gateway_agent.client.send_message(
            "slow 60", skill=skill, blocking=False
        )
        await wait_until(lambda: remote.open_calls)
        assert (
            await gateway_agent.client.cancel_task(gateway_task.id)
        ).status.state == TaskState.CANCELED
        await wait_until(lambda: not remote.open_calls)


async def test_the_error_text_of_a_foreign_agent_is_only_in_the_log(
    foreign: tuple[Foreign, str], caplog: pytest.LogCaptureFixture
) -> None:
    async with gateway(foreign) as (agent, gateway_agent, skill):
        with pytest.raises(TaskFailedError) as failed:
            await gateway_agent.client.call(skill, "fail")
        assert agent.error not in str(failed.value.task.to_dict())
    assert agent.error in caplog.text
