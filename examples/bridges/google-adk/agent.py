"""An agent of google-adk; set GOOGLE_API_KEY and run `apcore-a2a serve agent.py:agent`."""

from google.adk.agents import LlmAgent

agent = LlmAgent(
    name="assistant",
    model="gemini-2.5-flash",
    description="Answers questions.",
    instruction="Answer in one sentence.",
)
