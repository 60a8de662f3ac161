"""Call the agent with the `RemoteA2aAgent` of google-adk."""

# mypy: ignore-errors
# The library is in another environment.

from google.adk.agents import RunConfig
from google.adk.agents.remote_a2a_agent import AGENT_CARD_WELL_KNOWN_PATH, RemoteA2aAgent
from google.adk.agents.run_config import StreamingMode
from google.adk.events import Event
from google.adk.runners import InMemoryRunner
from google.genai.types import Content, Part
from steps import LOCKED_URL, run

STREAMING = RunConfig(streaming_mode=StreamingMode.SSE)


def remote(url: str) -> RemoteA2aAgent:
    return RemoteA2aAgent(name="tea", agent_card=f"{url}{AGENT_CARD_WELL_KNOWN_PATH}")


async def talk(agent: RemoteA2aAgent, *texts: str) -> list[list[Event]]:
    """Send *texts* in one conversation; return the events that answer each text."""
    runner = InMemoryRunner(agent=agent, app_name="tea")
    session = await runner.session_service.create_session(app_name="tea", user_id="ann")
    options = {"user_id": "ann", "session_id": session.id, "run_config": STREAMING}
    answers = []
    for text in texts:
        message = Content(role="user", parts=[Part(text=text)])
        answers.append([event async for event in runner.run_async(new_message=message, **options)])
    return answers


def text_of(event: Event) -> str:
    """Return the text of an event: an answer, a question or an error."""
    parts = event.content.parts if event.content else []
    questions = [part.function_call.args["input_required"] for part in parts if part.function_call]
    return "".join([event.error_message or "", *questions, *(part.text or "" for part in parts)])


async def ask(url: str, *texts: str) -> list[str]:
    return ["".join(map(text_of, events)) for events in await talk(remote(url), *texts)]


async def card(url: str) -> str:
    agent = remote(url)
    await talk(agent, "hello")  # reads the card first
    return agent.description


async def send(url: str) -> list[str]:
    return await ask(url, "hello")


async def stream(url: str) -> list[str]:
    # A session does not keep the pieces of a stream. To keep the answers of streaming skills, pass
    # `a2a_client_factory=ClientFactory(ClientConfig(streaming=False))` to `RemoteA2aAgent`.
    (events,) = await talk(remote(f"{url}/count"), "go")
    return [text_of(event) for event in events if event.partial]


async def question(url: str) -> list[str]:
    return await ask(f"{url}/table", "A table, please", "friday")


async def result(url: str) -> list[str]:
    return await ask(f"{url}/price", "green tea")


async def refusal(url: str) -> list[str]:
    return [*await ask(f"{url}/order", "50", "many"), *await ask(LOCKED_URL, "hello")]


run(card, send, stream, question, result, refusal)
