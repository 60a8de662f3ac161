"""An agent of pydantic-ai with a test model; run `apcore-a2a serve agent.py:agent`."""

from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

agent = Agent(TestModel(custom_output_text="Hello from pydantic-ai."), name="hello")
