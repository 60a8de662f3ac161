"""Call the agent with the `A2AAgent` of Microsoft's Agent Framework."""

# mypy: ignore-errors
# The library is in another environment.

from a2a.client import A2ACardResolver
from agent_framework.a2a import A2AAgent
from httpx import AsyncClient
from steps import LOCKED_URL, error_text, run


async def remote(url: str) -> A2AAgent:
    async with AsyncClient() as http:
        return A2AAgent(agent_card=await A2ACardResolver(http, url).get_agent_card())


async def ask(url: str, *texts: str) -> list[str]:
    async with await remote(url) as agent:
        session = agent.create_session()
        return [(await agent.run(text, session=session)).text for text in texts]


async def stream_pieces(url: str, text: str) -> list[str]:
    async with await remote(url) as agent:
        return [update.text async for update in agent.run(text, stream=True)]


async def card(url: str) -> str:
    return (await remote(url)).name


async def send(url: str) -> list[str]:
    return await ask(url, "hello")


async def stream(url: str) -> list[str]:
    return await stream_pieces(f"{url}/count/", "go")


async def question(url: str) -> list[str]:
    return await ask(f"{url}/table/", "A table, please", "friday")


async def result(url: str) -> list[str]:
    return await ask(f"{url}/price/", "green tea")


async def refusal(url: str) -> list[str]:
    # Without `stream=True`, the response for a failed task repeats the request, without the reason.
    task_failure = "".join(await stream_pieces(f"{url}/order/", "50"))
    input_refusal = await error_text(ask(f"{url}/order/", "many"))
    return [task_failure, input_refusal, await error_text(ask(LOCKED_URL, "hello"))]


run(card, send, stream, question, result, refusal)
