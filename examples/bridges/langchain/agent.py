"""A chain of LangChain with a fake model; run `python agent.py`."""

from apcore_a2a_bridges import serve_agent
from langchain_core.language_models import FakeListChatModel
from langchain_core.prompts import ChatPromptTemplate

prompt = ChatPromptTemplate([("placeholder", "{history}"), ("human", "{text}")])
model = FakeListChatModel(responses=["Hello! I am a chain."])  # or init_chat_model("gpt-5")
chain = prompt | model

if __name__ == "__main__":
    serve_agent(chain, name="poet")
