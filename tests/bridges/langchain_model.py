"""A chat model of LangChain that follows a script."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from pydantic import ConfigDict

from .acceptance import Script

USAGE: Any = {
    "input_tokens": Script.input_tokens,
    "output_tokens": Script.output_tokens,
    "total_tokens": Script.input_tokens + Script.output_tokens,
}


class ScriptedModel(BaseChatModel):  # type: ignore[misc]  # not installed here
    """Streams the answers of the script."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    script: Script

    async def _astream(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **options: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        async for piece in self.script.say(*(str(message.text) for message in messages)):
            chunk = ChatGenerationChunk(message=AIMessageChunk(piece))
            if run_manager:
                await run_manager.on_llm_new_token(piece, chunk=chunk)
            yield chunk
        yield ChatGenerationChunk(message=AIMessageChunk("", usage_metadata=USAGE))

    def _generate(self, messages: list[BaseMessage], *args: Any, **options: Any) -> ChatResult:
        raise AssertionError("agents call the asynchronous methods")

    @property
    def _llm_type(self) -> str:
        return "scripted"


class MessagesModel(BaseChatModel):  # type: ignore[misc]  # not installed here
    """Answers with the message that a function returns, which may hold calls of tools or files."""

    answer: Callable[[Sequence[BaseMessage]], AIMessage]

    async def _agenerate(
        self, messages: list[BaseMessage], *args: Any, **options: Any
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self.answer(messages))])

    def _generate(self, messages: list[BaseMessage], *args: Any, **options: Any) -> ChatResult:
        raise AssertionError("agents call the asynchronous methods")

    def bind_tools(self, tools: Any, **options: Any) -> Runnable[Any, AIMessage]:
        return self

    @property
    def _llm_type(self) -> str:
        return "messages"
