"""Functions, generators and plain objects as agents."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from apcore_a2a_bridges import Turn

from tests.server.inloop import anyio_backend as anyio_backend

from .acceptance import Acceptance, Script

pytestmark = pytest.mark.anyio


class TestAsyncGenerator(Acceptance):
    """An asynchronous generator function passes what bridges of frameworks pass."""

    def agent(self, script: Script) -> Any:
        from apcore_a2a_bridges import Usage

        async def talk(text: str, turn: Turn) -> AsyncIterator[Any]:
            async for piece in script.say(*(m.text for m in turn.messages), text):
                yield piece
            yield Usage(Script.input_tokens, Script.output_tokens)

        return talk
