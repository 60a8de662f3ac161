"""A graph of LangGraph with a fake model; run `python agent.py`."""

from apcore_a2a_bridges import serve_agent
from langchain.agents import create_agent
from langchain_core.language_models import FakeListChatModel
from langgraph.checkpoint.memory import InMemorySaver

model = FakeListChatModel(responses=["Hello! I am a graph."])  # or "openai:gpt-5"
graph = create_agent(model, name="assistant", checkpointer=InMemorySaver())

if __name__ == "__main__":
    serve_agent(graph)
