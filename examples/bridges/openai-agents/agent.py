"""An OpenAI Agents SDK agent with a scripted model; run `apcore-a2a serve agent.py:agent`."""

from agents import Agent
from agents.testing import ScriptedModel, assistant_message

model = ScriptedModel([[assistant_message("Hello from the Agents SDK.")]])
agent = Agent(name="hello", model=model)
