"""An agent of Agno; set OPENAI_API_KEY and run `apcore-a2a serve agent.py:agent`."""

from agno.agent import Agent
from agno.models.openai import OpenAIChat

agent = Agent(
    name="assistant",
    model=OpenAIChat(id="gpt-5-mini"),
    description="Answers questions.",
    instructions="Answer in one sentence.",
)
