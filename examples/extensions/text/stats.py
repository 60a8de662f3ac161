"""`text.stats`: word statistics, streamed paragraph by paragraph."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from apcore import Context, ModuleAnnotations, ModuleExample
from pydantic import BaseModel, ConfigDict, Field

WORD = re.compile(r"[^\W_]+(?:['\u2019-][^\W_]+)*")
PARAGRAPH_BREAK = re.compile(r"\n\s*\n")
MAX_COMMON_WORDS = 10


class StatsInput(BaseModel):
    """Text to measure."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field(
        description="The text to measure; blank lines divide its paragraphs.",
        pattern=r"\S",
        max_length=1_000_000,
    )


class Size(BaseModel):
    """Size of a text."""

    words: int = Field(description="The number of words.")
    characters: int = Field(description="The number of characters, including spaces.")


class StatsOutput(BaseModel):
    """Statistics. A stream sends the size of each paragraph, then the rest."""

    paragraphs: dict[str, Size] = Field(description="Sizes of the paragraphs, by number from 1.")
    total: Size = Field(description="The size of all paragraphs together.")
    unique: int = Field(description="The number of different words, ignoring case.")
    longest: str = Field(description="The longest word; the first one if there are several.")
    common: dict[str, int] = Field(
        description=f"The {MAX_COMMON_WORDS} most common words, and how often each occurs."
    )


class Stats:
    """Count the words of a text."""

    name = "Text statistics"
    description = (
        "Count the words of a text, in each paragraph and in total. Also returns the number of "
        "different words, the longest word and the most common words. Streams the size of each "
        "paragraph."
    )
    version = "1.0.0"
    tags = ["text", "statistics", "streaming"]
    annotations = ModuleAnnotations(
        readonly=True, idempotent=True, open_world=False, streaming=True
    )
    examples = [
        ModuleExample(
            title="Two paragraphs",
            inputs={"text": "To be, or not to be.\n\nThat is the question."},
            output={
                "paragraphs": {
                    "1": {"words": 6, "characters": 20},
                    "2": {"words": 4, "characters": 21},
                },
                "total": {"words": 10, "characters": 41},
                "unique": 8,
                "longest": "question",
                "common": {
                    "to": 2,
                    "be": 2,
                    "or": 1,
                    "not": 1,
                    "that": 1,
                    "is": 1,
                    "the": 1,
                    "question": 1,
                },
            },
        )
    ]
    input_schema = StatsInput
    output_schema = StatsOutput

    async def execute(self, inputs: dict[str, Any], context: "Context[Any]") -> dict[str, Any]:
        """Return all statistics at once."""
        paragraphs: dict[str, Any] = {}
        whole: dict[str, Any] = {}
        async for chunk in self.stream(inputs, context):
            paragraphs |= chunk.pop("paragraphs", {})
            whole |= chunk
        return {"paragraphs": paragraphs, **whole}

    async def stream(
        self, inputs: dict[str, Any], context: "Context[Any]"
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield the size of each paragraph, then the statistics of the whole text."""
        text = StatsInput.model_validate(inputs).text
        counts: Counter[str] = Counter()
        characters = 0
        for number, paragraph in enumerate(PARAGRAPH_BREAK.split(text.strip()), start=1):
            if context.cancel_token:
                context.cancel_token.check()
            words = WORD.findall(paragraph.casefold())
            counts.update(words)
            characters += len(paragraph)
            size = {"words": len(words), "characters": len(paragraph)}
            yield {"paragraphs": {str(number): size}}
            await asyncio.sleep(0)  # let other tasks of the event loop run
        yield {
            "total": {"words": counts.total(), "characters": characters},
            "unique": len(counts),
            "longest": max(counts, key=len, default=""),
            "common": dict(counts.most_common(MAX_COMMON_WORDS)),
        }
