"""Workflows of n8n behind a server with the interface of its webhooks."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from apcore import ModuleAnnotations
from apcore_a2a_bridges import Turn, load_bridge
from apcore_a2a_bridges.n8n import N8nAgent, StreamEvent
from apcore_a2a_client import Part, Task
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from tests.server.inloop import anyio_backend as anyio_backend
from tests.server.inloop import listening
from tests.server.principals import HeaderAuth

from .acceptance import Acceptance, Script, client_of, serving_agent
from .hooks import Hooks, Talk, Workflow, event, streamed

pytestmark = pytest.mark.anyio

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
MP3 = b"ID3" + bytes(40)


class TestStreamingWebhook(Acceptance):
    """A workflow continues after its caller has left: no cancellation reaches its model."""

    cancels = False
    usage = None

    @pytest.fixture
    async def url(self, script: Script) -> AsyncIterator[str]:
        talk = Talk(script, streams=self.streams)
        async with listening(Hooks(talk=talk).app) as hooks:
            agent = N8nAgent(f"{hooks}/webhook/talk", name="talk")
            async with serving_agent(agent, auth=HeaderAuth()) as url:
                yield url


class TestWebhook(TestStreamingWebhook):
    streams = False


async def answer_of(workflow: Workflow, message: Any = "Hello", **options: Any) -> Task:
    """Serve a workflow, send it a message, and return the task."""
    async with listening(Hooks(flow=workflow).app) as hooks:
        agent = N8nAgent(f"{hooks}/webhook/flow", **{"backoff": 0, **options})
        async with serving_agent(agent) as url, client_of(url) as client:
            return await client.send_message(message)


def workflow_returning(value: Any, status: int = 200, **headers: str) -> Workflow:
    async def answer(body: dict[str, Any], request: Request) -> Response:
        header_fields = {name.replace("_", "-"): value for name, value in headers.items()}
        return JSONResponse(value, status, headers=header_fields)

    return answer


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ([{"output": "Hi"}], "Hi"),
        ({"text": "Hi"}, "Hi"),
        ({"message": "Workflow was started"}, "Workflow was started"),
        ({"output": "Hi", "score": 3}, ["Hi", {"score": 3}]),
        ({"n": 1}, {"n": 1}),
        ({"type": ["a"], "metadata": {}}, {"type": ["a"], "metadata": {}}),  # looks like an event
        ([{"n": 1}, {"n": 2}], {"result": [{"n": 1}, {"n": 2}]}),
        (7, {"result": 7}),
        ("Hi", "Hi"),
    ],
)
async def test_an_answer_becomes_text_or_data(answer: Any, expected: Any) -> None:
    assert (await answer_of(workflow_returning(answer))).value == expected


async def test_an_output_key_names_the_member_that_is_the_text() -> None:
    task = await answer_of(workflow_returning({"reply": "Hi", "text": "no"}), output_key="reply")
    assert task.value == "Hi"


async def test_the_member_of_the_output_key_is_the_text_even_beside_other_texts() -> None:
    answer = {"summary": "S", "output": "O"}
    task = await answer_of(workflow_returning(answer), output_key="summary")
    assert task.value == ["S", {"output": "O"}]


async def test_a_member_of_the_output_key_that_is_an_object_is_sent_as_json() -> None:
    answer = workflow_returning({"reply": {"is_good": True}})
    assert (await answer_of(answer, output_key="reply")).value == '{"is_good": true}'


SEPARATORS = "a\u2028b\u2029c\x85d"
"""Text with characters that end a line for Python, but not in JSON."""


async def test_lines_end_only_at_line_feeds() -> None:
    async def pieces(body: dict[str, Any], request: Request) -> Response:
        return streamed(event("item", "AI Agent", SEPARATORS), event("item", "AI Agent", "!"))

    async def text(body: dict[str, Any], request: Request) -> Response:
        return PlainTextResponse(f"{SEPARATORS}\r\ntwo\n")

    assert (await answer_of(pieces)).value == f"{SEPARATORS}!"
    assert (await answer_of(text)).value == f"{SEPARATORS}\ntwo"
    assert (await answer_of(workflow_returning({"output": SEPARATORS}))).value == SEPARATORS


async def test_plain_text_and_an_empty_response_are_answers() -> None:
    async def text(body: dict[str, Any], request: Request) -> Response:
        return PlainTextResponse("one\ntwo")

    async def empty(body: dict[str, Any], request: Request) -> Response:
        return Response()

    assert (await answer_of(text)).value == "one\ntwo"
    assert (await answer_of(empty)).status.state == "completed"


async def test_the_workflow_gets_the_same_body_as_from_the_chat_of_n8n() -> None:
    hooks = Hooks(flow=workflow_returning({"output": "Hi"}))
    async with listening(hooks.app) as address:
        agent = N8nAgent(f"{address}/webhook/flow", headers={"X-Key": "k"}, input_key="chatInput")
        async with serving_agent(agent, auth=HeaderAuth()) as url, client_of(url, "ada") as client:
            first = await client.send_message("Hello")
            await client.send_message("Again", context_id=first.context_id)
        async with serving_agent(agent, auth=HeaderAuth()) as url, client_of(url, "eve") as client:
            await client.send_message("Hello", context_id=first.context_id)
    session = hooks.bodies[0]["sessionId"]
    assert hooks.bodies[0] == {"chatInput": "Hello", "sessionId": session, "action": "sendMessage"}
    assert hooks.bodies[1]["sessionId"] == session != hooks.bodies[2]["sessionId"]
    assert hooks.headers[0]["x-key"] == "k"
    assert hooks.headers[0]["traceparent"].startswith("00-")


async def test_an_input_mapper_replaces_the_inputs() -> None:
    hooks = Hooks(flow=workflow_returning({"output": "Hi"}))

    def mapper(inputs: dict[str, Any], turn: Turn) -> Any:
        return {"question": inputs["text"].upper()}

    async with listening(hooks.app) as address:
        agent = N8nAgent(f"{address}/webhook/flow", input_mapper=mapper)
        async with serving_agent(agent) as url, client_of(url) as client:
            await client.send_message("Hello")
    assert hooks.bodies[0]["question"] == "HELLO"


async def test_only_pieces_of_the_named_nodes_are_sent() -> None:
    async def two_nodes(body: dict[str, Any], request: Request) -> Response:
        return streamed(
            event("begin", "Search"),
            event("item", "Search", "3 hits"),
            event("end", "Search"),
            event("item", "AI Agent", "Three "),
            event("item", "AI Agent", {"n": 3}),
        )

    assert (await answer_of(two_nodes)).value == '3 hitsThree {"n": 3}'
    assert (await answer_of(two_nodes, nodes=["AI Agent"])).value == 'Three {"n": 3}'

    def shout(turn: Turn, answer: Any, chunk: Any) -> Any:
        assert isinstance(answer, StreamEvent)
        return chunk.upper()

    assert (await answer_of(two_nodes, on_event=shout)).value == '3 HITSTHREE {"N": 3}'


async def test_files_are_received_and_sent_with_their_names_and_types() -> None:
    hooks = Hooks()

    async def copy(body: dict[str, Any], request: Request) -> Response:
        name, data, media_type = hooks.files[-1]
        disposition = f'attachment; filename="{name}"'
        return Response(data, media_type=media_type, headers={"content-disposition": disposition})

    hooks.workflows["flow"] = copy
    files = [
        Part(raw=PNG, filename="dot.png", media_type="image/png"),
        Part(raw=MP3, filename="song.mp3", media_type="audio/mpeg"),
    ]
    link = Part(url="https://example.com/table.csv", filename="table.csv", media_type="text/csv")
    async with listening(hooks.app) as address:
        agent = N8nAgent(f"{address}/webhook/flow")
        async with serving_agent(agent) as url, client_of(url) as client:
            task = await client.send_message([Part(text="Copy"), *files, link])
    assert hooks.files == [("dot.png", PNG, "image/png"), ("song.mp3", MP3, "audio/mpeg")]
    assert hooks.bodies[0]["chatInput"] == "Copy"
    assert "https://example.com/table.csv" in hooks.bodies[0]["fileUrls"]
    (part,) = task.artifacts[0].parts
    assert (part.raw, part.filename, part.media_type) == (MP3, "song.mp3", "audio/mpeg")


class WaitingWorkflow:
    """A workflow with two Wait nodes, which ask for a day and a time."""

    def __init__(self, *, streams: bool) -> None:
        self._streams = streams
        self._answers: list[Any] = []
        self.remaining_conflicts = 1
        self.hooks = Hooks(book=self._ask_day, w1=self._ask_time, w2=self._finish)

    def _question(self, name: str, **members: Any) -> Response:
        # n8n builds the URL from its public address, which may differ from the configured one
        question = {"resumeUrl": f"https://n8n.example.com/webhook-waiting/{name}?s=1", **members}
        if self._streams:
            lines = event("item", content="Well. "), event("item", content=json_text(question))
            return streamed(*lines)
        return JSONResponse(question)

    async def _ask_day(self, body: dict[str, Any], request: Request) -> Response:
        return self._question("w1", question="Which day?", choices=["Friday", "Sunday"])

    async def _ask_time(self, body: dict[str, Any], request: Request) -> Response:
        if self.remaining_conflicts:
            self.remaining_conflicts -= 1
            return JSONResponse({"message": "The execution is running already."}, 409)
        assert request.query_params["s"] == "1"
        self._answers.append(body["answer"])
        return self._question("w2", message="At what time?", free=[7, 8])

    async def _finish(self, body: dict[str, Any], request: Request) -> Response:
        self._answers.append(body["answer"])
        return JSONResponse({"output": f"Booked: {self._answers}"})


def json_text(value: Any) -> str:
    return JSONResponse(value).body.decode()  # type: ignore[union-attr]  # it is bytes


@pytest.mark.parametrize("streams", [True, False])
async def test_a_wait_node_asks_and_another_server_can_pass_on_the_answer(
    tmp_path: Path, streams: bool
) -> None:
    waiting = WaitingWorkflow(streams=streams)
    async with listening(waiting.hooks.app) as address:

        def serving_workflow() -> Any:
            agent = N8nAgent(f"{address}/webhook/book", backoff=0)
            return serving_agent(agent, task_store=f"sqlite:///{tmp_path / 'agent.db'}")

        async with serving_workflow() as url, client_of(url) as client:
            task = await client.send_message("A table")
        assert (task.status.state, "Which day?" in str(task)) == ("input-required", True)
        assert "resumeUrl" not in str(task)
        async with serving_workflow() as url, client_of(url) as client:
            task = await client.reply(task, "Friday")
            assert "'free': (7, 8)" in str(task).replace("[7, 8]", "(7, 8)")
            task = await client.reply(task, {"hour": 7})
    assert task.value == "Booked: ['Friday', {'hour': 7}]"
    assert waiting.remaining_conflicts == 0


@pytest.mark.parametrize(
    ("status", "headers", "idempotent", "requests"),
    [
        (503, {"Retry_After": "0"}, False, 2),
        (429, {"Retry_After": "0"}, False, 2),
        (503, {}, False, 1),
        (502, {"Retry_After": "0"}, False, 1),
        (502, {}, True, 2),
        (500, {}, True, 1),
    ],
)
async def test_a_request_is_repeated_only_if_that_is_safe(
    status: int, headers: dict[str, str], idempotent: bool, requests: int
) -> None:
    calls = 0

    async def flow(body: dict[str, Any], request: Request) -> Response:
        nonlocal calls
        calls += 1
        workflow = (
            workflow_returning({"message": "busy"}, status, **headers)
            if calls == 1
            else workflow_returning("Hi")
        )
        return await workflow(body, request)

    task = await answer_of(flow, annotations=ModuleAnnotations(idempotent=idempotent))
    assert calls == requests
    assert task.status.state == ("failed" if requests == 1 else "completed")


async def test_an_unreachable_server_fails_the_task() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    agent = N8nAgent(f"http://127.0.0.1:{port}/webhook/flow", backoff=0)
    async with serving_agent(agent) as url, client_of(url) as client:
        task = await client.send_message("Hello")
    assert task.status.state == "failed"
    assert str(port) not in str(task.status.message)


async def test_a_request_is_not_repeated_after_a_lost_connection() -> None:
    calls = 0

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        calls += 1
        await reader.readline()
        writer.close()

    server = await asyncio.start_server(cut, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        agent = N8nAgent(f"http://127.0.0.1:{port}/webhook/flow", backoff=0)
        async with serving_agent(agent) as url, client_of(url) as client:
            assert (await client.send_message("Hello")).status.state == "failed"
    assert calls == 1


async def test_an_unknown_webhook_fails_the_task() -> None:
    async with listening(Hooks().app) as address:
        agent = N8nAgent(f"{address}/webhook/flow")
        async with serving_agent(agent) as url, client_of(url) as client:
            task = await client.send_message("Hello")
    assert task.status.state == "failed"


def test_the_example_is_a_config() -> None:
    path = Path(__file__).parents[2] / "examples/bridges/n8n/agent.yaml"
    assert load_bridge(yaml.safe_load(path.read_text())).module_id == "assistant"


def test_a_config_creates_the_bridge() -> None:
    config = {"bridge": "n8n", "url": "https://n8n.example.com/webhook/echo", "name": "Echo"}
    assert load_bridge(config).module_id == "echo"
    with pytest.raises(ValueError, match="begins with http"):
        N8nAgent("n8n.example.com/webhook/echo")
