"""An agent of Strands; serve it with `apcore-a2a serve agent.py:agent`. It needs AWS credentials."""

from strands import Agent

agent = Agent(
    name="assistant",
    description="Answers questions.",
    system_prompt="Answer in one sentence.",
)
