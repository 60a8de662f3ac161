"""The same agents behind a bridge of this project and behind a2a-adapter.

They run in an environment with the bridges, a2a-adapter, a2a-sdk and LangGraph.
"""

# mypy: ignore-errors
# The libraries are in another environment.

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.applications import Starlette

SLOWLY = "slowly"
"""The message that asks for an answer as slow as a language model's."""
PAUSE = 0.05
"""Seconds between two words of a slow answer."""
WORDS = [f"word{number} " for number in range(10)]


async def words(text: str) -> AsyncIterator[str]:
    """Say ten words, slowly if the message is `SLOWLY`."""
    for word in WORDS:
        yield word
        await asyncio.sleep(PAUSE if text == SLOWLY else 0)


async def hello(text: str) -> str:
    """Say hello."""
    return "hello"


async def our_function() -> Starlette:
    """Build an agent from a function, with this project."""
    return _ours(hello)


async def our_generator() -> Starlette:
    """Build an agent from a generator, with this project."""
    return _ours(words)


async def our_graph() -> Starlette:
    """Build an agent from a chat graph, with this project."""
    return _ours(chat_graph())


async def adapter_function() -> Starlette:
    """Build an agent from a function, with a2a-adapter."""
    from a2a_adapter import CallableAdapter, to_a2a

    async def answer(inputs: dict[str, Any]) -> str:
        return await hello(inputs["message"])

    return to_a2a(CallableAdapter(answer, name="hello"))


async def adapter_generator() -> Starlette:
    """Build an agent from a generator, with a2a-adapter."""
    from a2a_adapter import CallableAdapter, to_a2a

    def answer(inputs: dict[str, Any]) -> AsyncIterator[str]:
        return words(inputs["message"])

    return to_a2a(CallableAdapter(answer, name="words", streaming=True))


async def adapter_graph() -> Starlette:
    """Build an agent from a chat graph, with a2a-adapter as its documentation shows."""
    from a2a_adapter import LangGraphAdapter, to_a2a

    return to_a2a(LangGraphAdapter(graph=chat_graph(), name="graph"))


def _ours(agent: Any) -> Starlette:
    from apcore_a2a_bridges import to_a2a

    return to_a2a(agent)


def chat_graph() -> Any:
    """Build a graph whose only node asks a model for ten words."""
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, AIMessageChunk
    from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
    from langgraph.graph import END, START, MessagesState, StateGraph

    class Model(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "words"

        def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatResult:
            reply = AIMessage("".join(WORDS))
            return ChatResult(generations=[ChatGeneration(message=reply)])

        async def _astream(
            self, messages: Any, *args: Any, **kwargs: Any
        ) -> AsyncIterator[ChatGenerationChunk]:
            async for word in words(messages[-1].content):
                yield ChatGenerationChunk(message=AIMessageChunk(word))

    model = Model()

    async def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("ask", ask)
    builder.add_edge(START, "ask")
    builder.add_edge("ask", END)
    return builder.compile()


APPS: dict[str, Callable[[], Awaitable[Starlette]]] = {
    "ours, function": our_function,
    "a2a-adapter, function": adapter_function,
    "ours, generator": our_generator,
    "a2a-adapter, generator": adapter_generator,
    "ours, LangGraph": our_graph,
    "a2a-adapter, LangGraph": adapter_graph,
}
"""The agents to compare, in pairs: the same agent with each library."""
