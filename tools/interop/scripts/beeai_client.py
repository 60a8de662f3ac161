"""Call the agent with the `A2AAgent` of BeeAI."""

# mypy: ignore-errors
# The library is in another environment.

from a2a.types import TaskArtifactUpdateEvent
from a2a.utils.artifact import get_artifact_text
from beeai_framework.adapters.a2a.agents import A2AAgent
from beeai_framework.errors import FrameworkError
from beeai_framework.memory import UnconstrainedMemory
from steps import LOCKED_URL, error_text, run


def remote(url: str) -> A2AAgent:
    return A2AAgent(url=url, memory=UnconstrainedMemory())


async def ask(url: str, *texts: str) -> list[str]:
    agent = remote(url)
    return [(await agent.run(text)).last_message.text for text in texts]


async def card(url: str) -> str:
    agent = remote(url)
    await agent.check_agent_exists()
    return agent.name


async def send(url: str) -> list[str]:
    return await ask(url, "hello")


async def stream(url: str) -> list[str]:
    pieces = []

    def on_update(data, event) -> None:
        match data.value:
            case (_, TaskArtifactUpdateEvent() as update):
                pieces.append(get_artifact_text(update.artifact))

    await remote(f"{url}/count/").run("go").on("update", on_update)
    return pieces


async def question(url: str) -> list[str]:
    return await ask(f"{url}/table/", "A table, please", "friday")


async def result(url: str) -> list[str]:
    return await ask(f"{url}/price/", "green tea")


async def refusal(url: str) -> list[str]:
    (task_failure,) = await ask(f"{url}/order/", "50")
    input_refusal = await error_text(ask(f"{url}/order/", "many"))
    try:
        await ask(LOCKED_URL, "hello")
    except FrameworkError as locked:
        return [task_failure, input_refusal, locked.explain()]
    raise AssertionError("The locked agent accepted a call without credentials")


run(card, send, stream, question, result, refusal)
