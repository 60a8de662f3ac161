"""An agent of google-adk; serve it with `apcore-a2a serve agent.py:agent`. It needs an API key."""

from google.adk.agents import LlmAgent

agent = LlmAgent(
    name="assistant",
    model="gemini-2.5-flash",
    description="Answers questions.",
    instruction="Answer in one sentence.",
)
