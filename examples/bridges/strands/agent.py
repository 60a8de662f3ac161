"""An agent of Strands; set AWS credentials and run `apcore-a2a serve agent.py:agent`."""

from strands import Agent

agent = Agent(
    name="assistant",
    description="Answers questions.",
    system_prompt="Answer in one sentence.",
)
