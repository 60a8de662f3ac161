"""Agents of google-adk as skills."""

import runpy
from pathlib import Path
from typing import Any

import pytest
from apcore_a2a_bridges import Turn, bridge, meta_key
from apcore_a2a_bridges.google_adk import ADKAgent
from apcore_a2a_client import A2AClient, A2AServerError, Part
from apcore_a2a_remote import as_adk_tool
from google.adk.agents import BaseAgent, LlmAgent
from google.adk.events import Event
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools import FunctionTool, LongRunningFunctionTool
from google.genai import types
from pydantic import BaseModel, PrivateAttr

from tests.server.inloop import anyio_backend as anyio_backend
from tests.server.principals import HeaderAuth
from tests.serving import PATIENCE

from .acceptance import Acceptance, Script, client_of, serving_agent
from .forecast import forecast_tool

pytestmark = pytest.mark.anyio

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


class ScriptedLlm(BaseLlm):  # type: ignore[misc]  # not installed for mypy
    """Streams the answers of a script, piece by piece."""

    _script: Script = PrivateAttr()

    def __init__(self, script: Script) -> None:
        super().__init__(model="script")
        self._script = script

    async def generate_content_async(self, request: Any, stream: bool = False) -> Any:
        texts = [p.text for content in request.contents for p in content.parts if p.text]
        answer = ""
        async for piece in self._script.say(*texts):
            answer += piece
            if stream:
                yield LlmResponse(content=content_of(types.Part(text=piece)), partial=True)
        usage = types.GenerateContentResponseUsageMetadata(
            prompt_token_count=Script.input_tokens, candidates_token_count=Script.output_tokens
        )
        yield LlmResponse(content=content_of(types.Part(text=answer)), usage_metadata=usage)


class Llm(BaseLlm):  # type: ignore[misc]  # not installed for mypy
    """Answers with the result of a function of the contents."""

    _answer: Any = PrivateAttr()

    def __init__(self, answer: Any) -> None:
        super().__init__(model="function")
        self._answer = answer

    async def generate_content_async(self, request: Any, stream: bool = False) -> Any:
        answer = self._answer(request.contents)
        parts = answer if isinstance(answer, list) else [types.Part(text=answer)]
        yield LlmResponse(content=content_of(*parts))


def content_of(*parts: Any) -> Any:
    return types.Content(role="model", parts=[*parts])


class TestADK(Acceptance):
    def agent(self, script: Script) -> Any:
        return LlmAgent(name="talker", model=ScriptedLlm(script), description="Talks.")


def call(name: str, /, **arguments: Any) -> Any:
    return types.Part(function_call=types.FunctionCall(name=name, args=arguments))


def responses_in(contents: Any) -> list[Any]:
    """Return the responses of tools in the contents that a model gets."""
    parts = [part for content in contents for part in content.parts]
    return [part.function_response.response for part in parts if part.function_response]


def approve_refund(amount: int) -> dict[str, Any]:
    """Ask a manager for a refund."""
    return {"status": "pending"}


def refund_agent() -> Any:
    def answer(contents: Any) -> Any:
        responses = responses_in(contents)
        if not responses:
            return [types.Part(text="Let me ask. "), call("approve_refund", amount=9)]
        if responses[-1] == {"status": "pending"}:
            return "It is pending."
        return f"The manager says {responses[-1]}"

    return LlmAgent(
        name="refunds",
        model=Llm(answer),
        tools=[LongRunningFunctionTool(approve_refund)],
    )


@pytest.mark.parametrize(
    ("reply", "expected"),
    [("granted", {"result": "granted"}), ({"granted": True}, {"granted": True})],
)
async def test_a_long_running_tool_is_answered_on_another_server(
    tmp_path: Path, reply: Any, expected: Any
) -> None:
    store = f"sqlite:///{tmp_path / 'agent.db'}"
    async with serving_agent(refund_agent(), task_store=store) as url, client_of(url) as client:
        task = await client.send_message("A refund, please")
    assert task.status.state == "input-required"
    assert "approve_refund(amount=9)" in str(task.status.message)
    *_, part = task.status.message.parts if task.status.message else ()
    assert part.metadata == {"adk_type": "function_call", "adk_is_long_running": True}
    assert (part.data["name"], part.data["args"]) == ("approve_refund", {"amount": 9})
    assert "A refund, please" not in str(task.status.message)  # the session is private
    async with serving_agent(refund_agent(), task_store=store) as url, client_of(url) as client:
        task = await client.reply(task, reply)
    assert task.status.state == "completed"
    assert task.value == f"The manager says {expected}"


@pytest.mark.parametrize(
    ("answer", "expected"), [({"ticket": 7}, {"ticket": 7}), ("ticket 7", {"result": "ticket 7"})]
)
async def test_a_client_of_adk_can_answer_with_a_function_response(
    answer: Any, expected: Any
) -> None:
    async with serving_agent(refund_agent()) as url, client_of(url) as client:
        task = await client.send_message("A refund, please")
        assert task.status.message
        question = task.status.message.parts[-1].data
        response = {"id": question["id"], "name": question["name"], "response": answer}
        part = Part(data=response, metadata={meta_key("adk", "type"): "function_response"})
        task = await client.reply(task, [part])
    assert task.value == f"The manager says {expected}"


async def test_a_conversation_continues_after_a_canceled_question() -> None:
    async with serving_agent(refund_agent()) as url, client_of(url) as client:
        task = await client.send_message("A refund, please")
        await client.cancel_task(task.id)
        task = await client.send_message("And now?", context_id=task.context_id)
    assert task.status.state == "completed"
    assert task.value == "It is pending."


async def test_a_question_can_be_answered_if_the_session_is_in_a_database(tmp_path: Path) -> None:
    service = SqliteSessionService(str(tmp_path / "adk.db"))
    agent = ADKAgent(refund_agent(), session_service=service)
    async with serving_agent(agent) as url, client_of(url) as client:
        task = await client.send_message("A refund, please")
        task = await client.reply(task, "no")
    assert task.value == "The manager says {'result': 'no'}"


@pytest.mark.parametrize(
    ("reply", "expected"), [("yes", ["deleted a.txt"]), ("no", []), ("maybe", None)]
)
async def test_a_tool_that_needs_confirmation_asks_for_approval(
    tmp_path: Path, reply: str, expected: list[str] | None
) -> None:
    deletions: list[str] = []

    def delete(name: str) -> dict[str, str]:
        """Delete a file."""
        deletions.append(f"deleted {name}")
        return {"status": "ok"}

    def file_agent() -> Any:
        def answer(contents: Any) -> Any:
            responses = responses_in(contents)
            return f"Done: {responses[-1]}" if responses else [call("delete", name="a.txt")]

        tool = FunctionTool(delete, require_confirmation=True)
        return LlmAgent(name="files", model=Llm(answer), tools=[tool])

    store = f"sqlite:///{tmp_path / 'agent.db'}"
    async with serving_agent(file_agent(), task_store=store) as url, client_of(url) as client:
        task = await client.send_message("Delete a.txt")
    assert task.status.state == "input-required"
    assert "a.txt" in str(task.status.message)
    assert "approval" in str(task.status.message)
    async with serving_agent(file_agent(), task_store=store) as url, client_of(url) as client:
        task = await client.reply(task, reply)
        if expected is None:
            assert task.status.state == "input-required"
            return
    assert task.status.state == "completed"
    assert deletions == expected


async def test_files_reach_the_model_and_come_from_it() -> None:
    received: list[Any] = []

    def answer(contents: Any) -> Any:
        received.extend(contents[-1].parts)
        blob = types.Blob(data=PNG, mime_type="image/png", display_name="dot.png")
        link = types.FileData(file_uri="https://example.com/a.csv", mime_type="text/csv")
        return [
            types.Part(text="hidden", thought=True),
            types.Part(text="Here"),
            types.Part(inline_data=blob),
            types.Part(file_data=link),
        ]

    agent = LlmAgent(name="painter", model=Llm(answer))
    parts = [
        Part(text="Look"),
        Part(raw=PNG, filename="in.png", media_type="image/png"),
        Part(raw=b"ID3", filename="a.mp3", media_type="audio/mpeg"),
        Part(url="https://example.com/b.csv", filename="b.csv", media_type="text/csv"),
        Part(data={"n": 1}),
    ]
    async with serving_agent(agent) as url, client_of(url) as client:
        task = await client.send_message(parts)
    text, picture, link = task.artifacts[0].parts
    assert (text.text, picture.raw, picture.media_type) == ("Here", PNG, "image/png")
    assert (picture.filename, link.url, link.media_type) == (
        "dot.png",
        "https://example.com/a.csv",
        "text/csv",
    )
    blobs = [part.inline_data for part in received if part.inline_data]
    assert [(b.data, b.mime_type) for b in blobs] == [(PNG, "image/png"), (b"ID3", "audio/mpeg")]
    assert [p.file_data.file_uri for p in received if p.file_data] == ["https://example.com/b.csv"]
    assert [p.text for p in received if p.text] == ["Look", '{"n": 1}']


class Place(BaseModel):
    city: str


class Weather(BaseModel):
    degrees: int


async def test_an_agent_with_schemas_is_typed() -> None:
    def answer(contents: Any) -> str:
        assert contents[-1].parts[0].text == '{"city": "Oslo"}'
        return '{"degrees": 7}'

    agent = LlmAgent(name="weather", model=Llm(answer), input_schema=Place, output_schema=Weather)
    async with serving_agent(agent) as url, client_of(url) as client:
        assert (await client.send_message({"city": "Oslo"})).value == {"degrees": 7}
        with pytest.raises(A2AServerError):
            await client.send_message({"city": 7})


async def test_agents_that_run_in_parallel_repeat_and_lose_no_text() -> None:
    class Parallel(BaseAgent):  # type: ignore[misc]  # not installed for mypy
        async def _run_async_impl(self, ctx: Any) -> Any:
            for author, text, is_partial in (
                ("a", "Sun", True),
                ("b", "Moon", True),
                ("c", "Star", False),
                ("a", "Sun", False),
                ("b", "Moon", False),
                ("b", "!", False),
            ):
                content = content_of(types.Part(text=text))
                yield Event(author=author, partial=is_partial, content=content)

    async with serving_agent(Parallel(name="all")) as url, client_of(url) as client:
        assert await client.call(None, "Hello") == "SunMoonStar!"


async def test_an_error_of_the_model_fails_the_task() -> None:
    class Failing(BaseLlm):  # type: ignore[misc]  # not installed for mypy
        async def generate_content_async(self, request: Any, stream: bool = False) -> Any:
            yield LlmResponse(error_code="500", error_message="the password is hunter2")

    agent = LlmAgent(name="failing", model=Failing(model="failing"))
    async with serving_agent(agent) as url, client_of(url) as client:
        task = await client.send_message("Hello")
    assert task.status.state == "failed"
    assert "hunter2" not in str(task)


async def test_callbacks_can_change_and_drop_events_and_abort_a_run() -> None:
    log: list[Any] = []

    def before(turn: Turn) -> None:
        if turn.text == "forbidden":
            raise PermissionError

    def on_event(turn: Turn, event: Any, chunk: Any) -> Any:
        turn.metadata["author"] = event.author
        return None if chunk == "drop" else chunk.upper()

    def after(turn: Turn, output: Any, error: Any) -> None:
        log.append((output, type(error)))

    agent = LlmAgent(name="echo", model=Llm(lambda contents: contents[-1].parts[-1].text))
    options = {"before": before, "on_event": on_event, "after": after}
    server = serving_agent(agent, auth=HeaderAuth(), **options)
    async with server as url, client_of(url, "ada") as client:
        task = await client.send_message("hi")
        assert (task.value, task.metadata["author"]) == ("HI", "echo")
        assert task.metadata[meta_key("adk", "app_name")] == "echo"
        assert task.metadata[meta_key("adk", "user_id")] == "ada"
        assert not (await client.send_message("drop")).value
        assert (await client.send_message("forbidden")).status.state == "failed"
    assert log[0] == ({"text": "HI"}, type(None))
    assert log[2] == (None, PermissionError)


async def test_the_adk_id_of_an_anonymous_user_contains_the_context_id() -> None:
    agent = LlmAgent(name="echo", model=Llm(lambda contents: "Hi"))
    async with serving_agent(agent) as url, client_of(url) as client:
        task = await client.send_message("hi")
    assert task.metadata[meta_key("adk", "user_id")] == f"A2A_USER_{task.context_id}"


async def test_users_of_two_issuers_are_different_users_of_adk() -> None:
    agent = LlmAgent(name="echo", model=Llm(lambda contents: "Hi"))
    users: set[str] = set()
    async with serving_agent(agent, auth=HeaderAuth()) as url:
        for issuer in ("https://one.example.com", "https://two.example.com"):
            headers = {"x-name": "ada", "x-issuer": issuer}
            async with A2AClient(url, headers=headers, timeout=PATIENCE) as client:
                task = await client.send_message("hi")
            users.add(task.metadata[meta_key("adk", "user_id")])
    assert len(users) == 2


async def test_a_given_runner_stays_open() -> None:
    closed: list[str] = []

    class RecordingRunner(InMemoryRunner):  # type: ignore[misc]  # not installed for mypy
        async def close(self) -> None:
            closed.append(self.app_name)

    agent = LlmAgent(name="echo", model=Llm(lambda contents: "Hi"))
    async with serving_agent(agent, runner=RecordingRunner(agent)) as url, client_of(url) as client:
        assert (await client.send_message("hi")).value == "Hi"
    assert not closed


async def test_the_metadata_names_the_application_of_a_given_runner() -> None:
    agent = LlmAgent(name="echo", model=Llm(lambda contents: "Hi"))
    runner = InMemoryRunner(agent, app_name="tea")
    async with (
        serving_agent(agent, runner=runner, app_name="other") as url,
        client_of(url) as client,
    ):
        task = await client.send_message("hi")
    app_name, user_id = (task.metadata[meta_key("adk", name)] for name in ("app_name", "user_id"))
    assert app_name == "tea"
    sessions = await runner.session_service.list_sessions(app_name=app_name, user_id=user_id)
    assert len(sessions.sessions) == 1


def test_the_example_is_an_agent() -> None:
    path = Path(__file__).parents[2] / "examples/bridges/google-adk/agent.py"
    agent = bridge(runpy.run_path(str(path))["agent"])
    assert (agent.name, agent.description) == ("assistant", "Answers questions.")


async def test_an_agent_calls_modules_as_tools() -> None:
    def answer(contents: Any) -> Any:
        [part] = contents[-1].parts
        if part.function_response:
            return str(part.function_response.response)
        call = types.FunctionCall(name="weather__forecast", args={"city": "Bonn"})
        return [types.Part(function_call=call)]

    tool = forecast_tool(as_adk_tool)
    agent = LlmAgent(name="gateway", model=Llm(answer), tools=[tool])
    runner = InMemoryRunner(agent)
    events = await runner.run_debug("Weather?", quiet=True)
    assert events[-1].content.parts[0].text == "{'city': 'Bonn', 'by': 'ada'}"
