"""Call the agent with the `A2AAgent` of Strands."""

# mypy: ignore-errors
# The library is in another environment.

from a2a.types import TaskArtifactUpdateEvent
from a2a.utils.artifact import get_artifact_text
from steps import LOCKED_URL, Unsupported, error_text, run
from strands.agent.a2a_agent import A2AAgent


async def ask(url: str, text: str) -> str:
    return str(await A2AAgent(url).invoke_async(text))


async def card(url: str) -> str:
    agent = A2AAgent(url)
    await agent.get_agent_card()
    return agent.name


async def send(url: str) -> str:
    return await ask(url, "hello")


async def stream(url: str) -> list[str]:
    pieces = []
    async for event in A2AAgent(f"{url}/count/").stream_async("go"):
        match event.get("event"):
            case (_, TaskArtifactUpdateEvent() as update):
                pieces.append(get_artifact_text(update.artifact))
    return pieces


async def question(url: str) -> list[str]:
    agent = A2AAgent(f"{url}/table/")
    seen = [str(await agent.invoke_async(text)) for text in ("A table, please", "friday")]
    if seen[0] == seen[1]:
        raise Unsupported("it shows the question, but sends no id of a task or conversation")
    return seen


async def result(url: str) -> str:
    return await ask(f"{url}/price/", "green tea")


async def refusal(url: str) -> list[str]:
    task_failure = await ask(f"{url}/order/", "50")
    input_refusal = await error_text(ask(f"{url}/order/", "many"))
    return [task_failure, input_refusal, await error_text(ask(LOCKED_URL, "hello"))]


run(card, send, stream, question, result, refusal)
