"""A model of the OpenAI Agents SDK that follows a script."""

from collections.abc import AsyncIterator
from typing import Any

from agents import Model, ModelResponse
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
    ResponseUsage,
)
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails


def texts_of(items: Any) -> list[str]:
    """Return the texts of the items that a model gets."""
    if isinstance(items, str):
        return [items]
    texts: list[str] = []
    for item in items:
        content = item.get("content", item.get("output", ""))
        pieces = [content] if isinstance(content, str) else [c.get("text", "") for c in content]
        texts.append("".join(pieces))
    return texts


def message(text: str) -> ResponseOutputMessage:
    """Return an answer in text."""
    content = ResponseOutputText(text=text, type="output_text", annotations=[])
    return ResponseOutputMessage(
        id="m", content=[content], role="assistant", status="completed", type="message"
    )


def call_of(name: str, arguments: str, call_id: str) -> ResponseFunctionToolCall:
    """Return the call of a tool."""
    return ResponseFunctionToolCall(
        call_id=call_id, name=name, arguments=arguments, type="function_call"
    )


class AnsweringModel(Model):  # type: ignore[misc]  # not installed here
    """A model whose answers come from `answer`: pieces of text, or calls of tools."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer
        self.inputs: list[Any] = []

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        raise NotImplementedError

    async def stream_response(
        self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any
    ) -> AsyncIterator[Any]:
        """Yield the events of an answer."""
        self.inputs.append(input)
        text, output = "", []
        async for piece in self._answer(input):
            if isinstance(piece, ResponseFunctionToolCall):
                output.append(piece)
                continue
            text += piece
            yield ResponseTextDeltaEvent(
                content_index=0,
                delta=piece,
                item_id="m",
                logprobs=[],
                output_index=0,
                sequence_number=0,
                type="response.output_text.delta",
            )
        output += [message(text)] if text else []
        yield ResponseCompletedEvent(
            response=_response(output), sequence_number=1, type="response.completed"
        )


def _response(output: Any) -> Response:
    usage = ResponseUsage(
        input_tokens=7,
        output_tokens=3,
        total_tokens=10,
        input_tokens_details=InputTokensDetails(cached_tokens=0, cache_write_tokens=0),
        output_tokens_details=OutputTokensDetails(reasoning_tokens=0),
    )
    return Response(
        id="r",
        created_at=0,
        model="script",
        object="response",
        output=output,
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
        usage=usage,
    )


__all__ = ["AnsweringModel", "call_of", "texts_of"]
