"""The tests that the bridge of every framework has to pass, with a model that follows a script."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import httpx
import pytest
from a2a.client import ClientConfig, create_client
from a2a.helpers import new_text_message
from a2a.types import Role, SendMessageRequest
from apcore_a2a_bridges import to_a2a
from apcore_a2a_client import A2AClient, Event, Task, TaskFailedError
from apcore_a2a_server.middleware import RedactingFormatter

from tests.server.inloop import listening
from tests.server.principals import HeaderAuth
from tests.serving import PATIENCE

CANARY = "hunter2"
"""A text in an exception that must reach neither a client nor the log."""
TOKENS = [f"t{number} " for number in range(20)]
CONVERSATIONS = 50  # at the same time


class Script:
    """The answers of a framework's model, and a record of its prompts.

    By default, the model answers "You said: " and the last message that it gets, in two pieces.

    Attributes:
        prompts: The texts of the messages of each call, oldest first.
        called: Set when the model has been called.
        canceled: Set when an answer was canceled.
    """

    input_tokens, output_tokens = 7, 3

    def __init__(self) -> None:
        self.prompts: list[list[str]] = []
        self.called = asyncio.Event()
        self.canceled = asyncio.Event()
        self._answer: Callable[[Sequence[str]], AsyncIterator[str]] = _repeat

    def answer_by(self, answer: Callable[[Sequence[str]], AsyncIterator[str]]) -> None:
        """Let *answer*, an asynchronous generator function of the texts, answer instead."""
        self._answer = answer

    async def say(self, *texts: str) -> AsyncIterator[str]:
        """Yield the pieces of the answer to messages; the fake model of a framework calls this."""
        self.prompts.append([*texts])
        self.called.set()
        try:
            async for piece in self._answer(texts):
                yield piece
        except asyncio.CancelledError:
            self.canceled.set()
            raise


async def _repeat(texts: Sequence[str]) -> AsyncIterator[str]:
    yield "You said: "
    yield texts[-1]


def task_of(event: Event) -> Task:
    """Return the first event of a stream, which is the task."""
    assert isinstance(event, Task)
    return event


async def wait_for(event: asyncio.Event) -> None:
    await asyncio.wait_for(event.wait(), PATIENCE)


@asynccontextmanager
async def serving_agent(agent: Any, **options: Any) -> AsyncIterator[str]:
    """Serve an agent in this event loop, and yield its URL."""
    defaults = {"shutdown_timeout": 0, "allowed_hosts": ["*"], "metrics": True}
    async with listening(to_a2a(agent, **{**defaults, **options})) as url:
        yield url


def client_of(url: str, principal: str = "", **options: Any) -> A2AClient:
    headers = {"x-name": principal} if principal else {}
    return A2AClient(url, headers=headers, timeout=PATIENCE, **options)


class Acceptance:
    """Tests of a bridge. A subclass defines `agent`, and the limits of its framework.

    Attributes:
        options: Options of the bridge.
        streams: Whether the framework yields pieces of an answer as its model writes them.
        cancels: Whether a cancellation reaches the model.
        concurrency: The number of turns that the framework can run at the same time.
        usage: The tokens counted for "Hello"; None if the framework counts none.
    """

    options: ClassVar[dict[str, Any]] = {}
    streams = True
    cancels = True
    concurrency = CONVERSATIONS
    usage: ClassVar[dict[str, int] | None] = {"inputTokens": 7, "outputTokens": 3}

    def agent(self, script: Script) -> Any:
        """Return an agent of the framework, whose model calls `script.say`."""
        raise NotImplementedError

    @pytest.fixture
    def script(self) -> Script:
        return Script()

    @pytest.fixture
    async def url(self, script: Script) -> AsyncIterator[str]:
        async with serving_agent(self.agent(script), auth=HeaderAuth(), **self.options) as url:
            yield url

    @pytest.mark.parametrize("protocol", ["1.0", "0.3"])
    async def test_a_text_is_answered_with_a_text(self, url: str, protocol: str) -> None:
        async with client_of(url, "ada", protocol=protocol) as client:
            task = await client.send_message("Hello")
            assert task.value == "You said: Hello"
            pieces = [piece async for piece in client.stream(None, "Hello")]
        assert "".join(pieces) == "You said: Hello"

    async def test_the_client_of_the_sdk_gets_the_answer(self, url: str) -> None:
        async with httpx.AsyncClient(headers={"x-name": "ada"}, timeout=PATIENCE) as http:
            config = ClientConfig(httpx_client=http, streaming=False)
            client = await create_client(url, config)
            message = new_text_message("Hello", role=Role.ROLE_USER)
            events = [e async for e in client.send_message(SendMessageRequest(message=message))]
        (part,) = events[-1].task.artifacts[0].parts
        assert part.text == "You said: Hello"

    async def test_pieces_are_sent_as_the_model_writes_them(self, url: str, script: Script) -> None:
        first_piece_received = asyncio.Event()
        if not self.streams:  # the client gets nothing before the whole answer
            first_piece_received.set()

        async def tokens(texts: Sequence[str]) -> AsyncIterator[str]:
            for number, token in enumerate(TOKENS):
                if number == 2:  # the client must have the first piece before the third is written
                    await wait_for(first_piece_received)
                yield token
                await asyncio.sleep(0)

        script.answer_by(tokens)
        pieces: list[str] = []
        async with client_of(url, "ada") as client:
            async for piece in client.stream(None, "Count"):
                pieces.append(piece)
                first_piece_received.set()
            full_answer = await client.call(None, "Count")
        assert len(pieces) >= (18 if self.streams else 1)
        assert "".join(pieces) == full_answer == "".join(TOKENS)

    async def test_conversations_at_the_same_time_do_not_mix(
        self, url: str, script: Script
    ) -> None:
        started_count = 0
        all_started = asyncio.Event()

        async def answer_when_all_have_started(texts: Sequence[str]) -> AsyncIterator[str]:
            nonlocal started_count
            started_count += 1
            if started_count == self.concurrency:
                all_started.set()
            await wait_for(all_started)
            yield f"answer to {texts[-1]}"

        script.answer_by(answer_when_all_have_started)
        async with client_of(url, "ada") as client:
            sends = [client.send_message(f"number {n}") for n in range(CONVERSATIONS)]
            tasks = await asyncio.gather(*sends)
        expected = [f"answer to number {n}" for n in range(CONVERSATIONS)]
        assert [task.value for task in tasks] == expected

    @pytest.mark.parametrize("is_streaming", [True, False])
    async def test_a_cancellation_reaches_the_model(
        self, url: str, script: Script, is_streaming: bool
    ) -> None:
        released = asyncio.Event()

        async def answer_until_released(texts: Sequence[str]) -> AsyncIterator[str]:
            yield "Well, "
            await released.wait()
            yield "nothing"

        script.answer_by(answer_until_released)
        async with client_of(url, "ada") as client:
            if is_streaming:
                events = client.stream_message("Hello")
                task_id = task_of(await anext(events)).id
            else:
                task_id = (await client.send_message("Hello", blocking=False)).id
            await wait_for(script.called)
            task = await client.cancel_task(task_id)
            assert task.status.state == "canceled"
            if self.cancels:
                await wait_for(script.canceled)
            released.set()
            if is_streaming:
                await events.aclose()

    async def test_a_conversation_is_remembered_with_the_answers(
        self, url: str, script: Script
    ) -> None:
        async with client_of(url, "ada") as client:
            first = await client.send_message("My name is Ada")
            await client.send_message("What is my name?", context_id=first.context_id)
            remembered = "\n".join(script.prompts[-1])
            await client.send_message("Who am I?")
            new_conversation_prompts = "\n".join(script.prompts[-1])
        async with client_of(url, "eve") as stranger:
            await stranger.send_message("Who am I?", context_id=first.context_id)
            stranger_prompts = "\n".join(script.prompts[-1])
        assert "My name is Ada" in remembered
        assert "You said: My name is Ada" in remembered
        assert "Ada" not in new_conversation_prompts
        assert "Ada" not in stranger_prompts

    async def test_texts_of_exceptions_are_neither_sent_nor_logged(
        self, url: str, script: Script, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)

        async def fail(texts: Sequence[str]) -> AsyncIterator[str]:
            yield "Well, "
            raise RuntimeError(f"the password is {CANARY}")

        script.answer_by(fail)
        async with client_of(url, "ada") as client:
            events = [event async for event in client.stream_message("Hello")]
            with pytest.raises(TaskFailedError) as failed:
                await client.call(None, "Hello")
            task = await client.get_task(task_of(events[0]).id)
        assert task.status.state == "failed"
        assert CANARY not in f"{events} {failed.value} {task}"
        # the server redacts exceptions in its own records, but not in records of frameworks
        own_formatter, other_formatter = (
            RedactingFormatter(logging.Formatter()),
            logging.Formatter(),
        )
        formatters = [
            own_formatter if r.name.startswith("apcore_a2a") else other_formatter
            for r in caplog.records
        ]
        logged = [f.format(r) for f, r in zip(formatters, caplog.records, strict=True)]
        assert CANARY not in "\n".join(logged)

    async def test_tokens_are_counted_in_the_metadata_of_the_task(self, url: str) -> None:
        async with client_of(url, "ada") as client:
            task = await client.send_message("Hello")
        assert task.metadata.get("usage") == self.usage
        assert isinstance(task.value, str)
