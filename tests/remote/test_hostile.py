"""Broken and hostile remote agents: answers are bounded or refused, and calls are not retried."""

import asyncio
import resource
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from apcore import Executor, Registry
from apcore.errors import ModuleError, ModuleTimeoutError
from apcore_a2a_client import (
    A2ADiscoveryError,
    A2AError,
    Artifact,
    Part,
    Task,
    TaskArtifactUpdateEvent,
    TaskFailedError,
    TaskStatusUpdateEvent,
)
from apcore_a2a_core import EXTENSION_URI, File
from apcore_a2a_remote import RemoteAgent, RemoteFailedError
from apcore_a2a_remote.content import MAX_OUTPUT, Output

from tests.client.raw import (
    CLOSE,
    CUT,
    HOLD,
    RawServer,
    Request,
    Script,
    Step,
    agent,
    card,
    events,
    flood,
    head,
    raw,
    reply,
    rpc,
    task,
)
from tests.server.inloop import ActionModule, echo
from tests.server.inloop import anyio_backend as anyio_backend
from tests.serving import PATIENCE

from .agents import serving

pytestmark = pytest.mark.anyio

MEGABYTE = 2**20
TOKEN = "s3cr3t-of-the-gateway"
ERROR_TEXT = "words-of-the-agent"
SKILLS = [{"id": "s", "name": "Skill"}]
STREAM = head(content_type="text/event-stream")


@asynccontextmanager
async def serving_registered_skill(
    script: Script, **options: Any
) -> AsyncIterator[tuple[Executor, RawServer, RemoteAgent]]:
    """Serve an agent that answers calls with *script*, and register its skill."""
    registry = Registry()
    with raw(agent(script, skills=SKILLS)) as server:
        agent_options = {
            "auth": f"Bearer {TOKEN}",
            "max_bytes": MEGABYTE,
            "timeout": PATIENCE,
            **options,
        }
        async with RemoteAgent(server.url, name="c", **agent_options) as remote:
            assert await remote.register(registry) == ["remote.c.s"]
            yield Executor(registry), server, remote


def event(request: Request, **result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request.json["id"], "result": result}


def artifact(text: str) -> dict[str, Any]:
    parts = [{"text": text}]
    return {"taskId": "t-1", "artifact": {"artifactId": "a", "parts": parts}, "append": True}


def many_chunks(request: Request) -> Iterable[Step]:
    """Answer with chunks each of which is within the limit, but far too many of them."""
    yield events(event(request, task=task(state="TASK_STATE_WORKING")))[0]
    yield events(event(request, task=task(state="TASK_STATE_WORKING")))[1]
    chunk = events(event(request, artifactUpdate=artifact("x" * MEGABYTE)))[1]
    for _ in range(64):
        yield chunk
    yield CLOSE


def nested(request: Request) -> Iterable[Step]:
    text = b'{"jsonrpc":"2.0","id":1,"result":{"task":' + b'{"a":' * 50_000
    return reply(text)


HOSTILE: dict[str, Script] = {
    "redirect to a file": lambda _: reply(status=307, location="file:///etc/passwd"),
    "redirect to a private address": lambda _: reply(status=307, location="http://169.254.169.254"),
    "redirect in a circle": lambda request: reply(status=307, location=request.path),
    "redirect to a GET": lambda _: reply(status=303, location="/elsewhere"),
    "a page": lambda _: reply(b"<html>" + ERROR_TEXT.encode(), content_type="text/html"),
    "an image": lambda _: reply(b"\x89PNG", content_type="image/png"),
    "deep JSON": nested,
    "endless JSON": lambda _: flood(head(content_type="application/json"), b"[" * 65536),
    "endless line": lambda _: flood(STREAM + b"data: ", b"x" * 65536),
    "endless comments": lambda _: flood(STREAM, b": " + b"x" * 65536),
    "no task": lambda request: rpc(request, result={}),
    "error": lambda request: rpc(request, error={"code": -32603, "message": ERROR_TEXT}),
    "compressed": lambda _: reply(b"\x1f\x8b", content_encoding="gzip"),
    "stream without events": lambda _: [STREAM, CLOSE],
}


@pytest.mark.parametrize("answer", HOSTILE)
async def test_a_hostile_answer_fails_the_call(
    answer: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    async with serving_registered_skill(HOSTILE[answer]) as (executor, server, _):
        with pytest.raises(RemoteFailedError) as caught:
            await executor.call_async("remote.c.s", {"text": "hello"})
        sent = [request for request in server.calls if b"SendStreamingMessage" in request.body]
    assert caught.value.code == "REMOTE_FAILED"
    assert ERROR_TEXT not in str(caught.value)
    assert TOKEN not in caplog.text
    if "redirect" not in answer:
        assert len(sent) == 1


async def test_a_polled_task_without_an_id_does_not_return_our_own_message() -> None:
    def script(request: Request) -> Iterable[Step]:
        return rpc(request, result={"task": task("")})

    async with serving_registered_skill(script, wait="poll") as (executor, _, _agent):
        assert await executor.call_async("remote.c.s", {"text": "hello"}) == {}


async def test_a_file_does_not_take_the_place_of_the_text() -> None:
    """Agents that publish no schemas choose the names of files."""
    parts = [{"text": "hello"}, {"raw": "aGk=", "filename": "text"}]

    def script(request: Request) -> Iterable[Step]:
        return rpc(request, result={"task": task(artifacts=[{"artifactId": "a", "parts": parts}])})

    async with serving_registered_skill(script) as (executor, _, _agent):
        output = await executor.call_async("remote.c.s", {"text": "hello"})
    assert output["text"] == "hello"
    assert output["file"].name == "text"


def test_a_file_does_not_take_the_place_of_data() -> None:
    output = Output("remote.c.s", None, "")
    parts = (Part(data={"city": "Rome"}), *(Part(raw=b"hi", filename="city") for _ in range(2)))
    output.add(TaskArtifactUpdateEvent("t", Artifact("a", parts)))
    file = File(b"hi", name="city")
    assert output.value == {"city": "Rome", "file": [file, file]}


@pytest.mark.parametrize("snapshots", [False, True])
def test_parts_that_are_replaced_do_not_count_towards_the_limit(snapshots: bool) -> None:
    output = Output("remote.c.s", None, "")
    for number in range(2 * MAX_OUTPUT // MEGABYTE):
        artifact = Artifact("a", (Part(text=f"{number}" + "x" * MEGABYTE),))
        if snapshots:
            output.add(Task.from_dict(task(artifacts=[artifact.to_dict()])))
        else:
            output.add(TaskArtifactUpdateEvent("t", artifact))
    assert output.value["text"].startswith(f"{number}x")


async def test_an_output_that_is_too_large_is_cut_off_and_its_task_canceled() -> None:
    methods: list[str] = []

    def script(request: Request) -> Iterable[Step]:
        methods.append(request.json["method"])
        if methods[-1] == "SendStreamingMessage":
            return many_chunks(request)
        return rpc(request, result=task(state="TASK_STATE_CANCELED"))

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with serving_registered_skill(script, max_bytes=2 * MEGABYTE) as (executor, server, _):
        with pytest.raises(RemoteFailedError, match="too large"):
            await executor.call_async("remote.c.s", {"text": "hello"})
        assert server.sent < 64 * MEGABYTE
    growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024  # MiB
    assert growth < 200
    assert methods == ["SendStreamingMessage", "CancelTask"]


@pytest.mark.parametrize("when", ["before the headers", "after the headers"])
async def test_a_message_whose_response_is_lost_is_not_sent_again(when: str) -> None:
    """An agent that does not know idempotency keys might do the work twice."""

    def script(_: Request) -> Iterable[Step]:
        return [CUT] if when == "before the headers" else [STREAM, CUT]

    async with serving_registered_skill(script) as (executor, server, _):
        with pytest.raises(RemoteFailedError) as caught:
            await executor.call_async("remote.c.s", {"text": "hello"})
        assert caught.value.retryable is True
        assert len(server.calls) == 1


@pytest.mark.parametrize("start", [b"", STREAM, STREAM + b"data: "], ids=["head", "stream", "line"])
async def test_a_slow_answer_is_cut_off_at_the_timeout_of_the_call(start: bytes) -> None:
    def script(_: Request) -> Iterable[Step]:
        yield start
        for _number in range(100):
            yield b":" if start else b""
            yield 0.05
        yield HOLD

    async with serving_registered_skill(script, timeout=0.3) as (executor, server, _):
        with pytest.raises(ModuleTimeoutError):
            await executor.call_async("remote.c.s", {"text": "hello"})
        assert len(server.calls) == 1


CARDS: dict[str, Script] = {
    "redirect to a file": lambda _: reply(status=302, location="file:///etc/passwd"),
    "redirect in a circle": lambda request: reply(status=302, location=request.path),
    "endless": lambda _: flood(head(content_type="application/json"), b'"' + b"x" * 65536),
    "deep": lambda _: reply(b"[" * 100_000),
    "page": lambda _: reply(b"<html>" + ERROR_TEXT.encode(), content_type="text/html"),
    "lost": lambda _: [CUT],
    "interface of another kind": lambda _: reply(card("file:///etc/passwd")),
}


@pytest.mark.parametrize("kind", CARDS)
async def test_a_hostile_card_raises_one_of_our_errors(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    with raw(CARDS[kind]) as server:
        async with RemoteAgent(server.url, name="c", auth=f"Bearer {TOKEN}", retries=0) as remote:
            with pytest.raises(A2AError):
                await remote.client.get_task("t-1")  # needs the card, and an interface on it
            assert server.sent < 16 * MEGABYTE
    assert TOKEN not in caplog.text


async def test_credentials_do_not_follow_a_card_to_another_origin() -> None:
    """Neither by a redirect, nor by the address of the agent's interface."""
    with raw(lambda request: reply(card("/", skills=SKILLS))) as thief:
        location = f"{thief.url}/.well-known/agent-card.json"
        with raw(lambda _: reply(status=302, location=location)) as server:
            async with RemoteAgent(server.url, name="c", auth=f"Bearer {TOKEN}") as remote:
                await remote.register(Registry())
        with raw(lambda _: reply(card(thief.url, skills=SKILLS))) as server:
            registry = Registry()
            async with RemoteAgent(server.url, name="c", auth=f"Bearer {TOKEN}") as remote:
                await remote.register(registry)
                with pytest.raises(RemoteFailedError):
                    await Executor(registry).call_async("remote.c.s", {"text": "hello"})
        assert thief.requests
        assert all("authorization" not in request.headers for request in thief.requests)


async def test_a_call_that_has_begun_keeps_its_schemas_when_they_change() -> None:
    """The next call is checked against the new ones."""
    schemas = [{"type": "object", "required": [name]} for name in ("old", "new")]
    started, version = asyncio.Event(), 0
    loop = asyncio.get_running_loop()

    def script(request: Request) -> Iterable[Step]:
        if request.is_card:
            params = {"skills": {"s": {"inputSchema": schemas[version]}}}
            extensions = [{"uri": EXTENSION_URI, "params": params}]
            capabilities = {"streaming": True, "extensions": extensions}
            url = f"http://{request.headers['host']}/"
            yield from reply(card(url, skills=SKILLS, capabilities=capabilities))
            return
        loop.call_soon_threadsafe(started.set)
        yield 0.2
        yield from rpc(request, result={"task": task()})

    registry = Registry()
    with raw(script) as server:
        async with RemoteAgent(server.url, name="c") as remote:
            await remote.register(registry)
            executor = Executor(registry)
            call = asyncio.create_task(executor.call_async("remote.c.s", {"old": 1}))
            await started.wait()
            version = 1
            await remote.refresh()
            assert await call == {}
            with pytest.raises(ModuleError, match="new"):
                await executor.call_async("remote.c.s", {"old": 1})


@pytest.mark.parametrize("details", [{}, {"inputSchema": {"type": "string"}}])
async def test_a_skill_without_a_schema_for_an_object_has_no_text_field_of_its_own(
    details: dict[str, Any],
) -> None:
    """Its display says that the text is in `text`."""
    artifact = {"artifactId": "a", "parts": [{"text": "hello"}]}

    def answer(request: Request) -> Iterable[Step]:
        return rpc(request, result={"task": task(artifacts=[artifact])})

    params = {"skills": {"s": {**details, "textField": "answer"}}}
    capabilities = {"extensions": [{"uri": EXTENSION_URI, "params": params}]}
    registry = Registry()
    with raw(agent(answer, skills=SKILLS, capabilities=capabilities)) as server:
        async with RemoteAgent(server.url, name="c") as remote:
            await remote.register(registry)
            output = await Executor(registry).call_async("remote.c.s", {"text": "hi"})
            assert registry.get("remote.c.s").display["a2a"]["text_field"] == "text"
    assert output == {"text": "hello"}


async def test_a_gateway_answers_other_calls_while_an_agent_is_hostile(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Beside twenty calls that never end and twenty that flood, other calls are answered."""

    def script(request: Request) -> Iterable[Step]:
        if b"flood" in request.body:
            return flood(STREAM, b": " + b"x" * 65536, total=8 * MEGABYTE)
        return [STREAM, HOLD]

    with raw(agent(script, skills=SKILLS)) as server:
        remote = RemoteAgent(
            server.url, name="c", expose=True, auth=f"Bearer {TOKEN}", max_open=100
        )
        async with serving({"own": ActionModule(echo)}, remote) as gateway:
            calls = [
                asyncio.create_task(gateway.client.call("remote.c.s", text))
                for text in ["hold", "flood"] * 20
            ]
            for number in range(20):
                assert await gateway.client.call("own", {"n": number}) == {"n": number}
            floods = await asyncio.gather(*calls[1::2], return_exceptions=True)
            assert all(isinstance(outcome, TaskFailedError) for outcome in floods)
            for held_call in calls[::2]:
                held_call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
    assert TOKEN not in caplog.text


async def test_an_agent_that_answers_with_errors_is_not_ready() -> None:
    with raw(lambda _: reply(status=500)) as server:
        async with RemoteAgent(server.url, name="c", retries=0) as remote:
            with pytest.raises(A2ADiscoveryError):
                await remote.register(Registry())
            assert not remote.is_ready()


async def test_progress_before_a_restart_is_reported_once() -> None:
    def update(request: Request, text: str = "", **members: Any) -> dict[str, Any]:
        message = {"messageId": text, "role": "ROLE_AGENT", "parts": [{"text": text}]}
        status = {"state": "TASK_STATE_WORKING", **({"message": message} if text else {})}
        return event(request, statusUpdate={"taskId": "t-1", "status": status, **members})

    def script(request: Request) -> Iterable[Step]:
        return events(
            event(request, task=task(state="TASK_STATE_WORKING")),
            update(request, "Reading"),
            update(request, metadata={"apcore": {"restarted": True}}),
            update(request, "Writing"),
            event(request, task=task()),
        )

    with raw(agent(script, skills=SKILLS)) as server:
        async with serving({}, RemoteAgent(server.url, name="c", expose=True)) as gateway:
            sent = [
                event
                async for event in gateway.client.stream_message("go", skill="remote.c.s")
                if isinstance(event, TaskStatusUpdateEvent) and event.status.message
            ]
    assert [e.status.message and e.status.message.parts[0].text for e in sent] == [
        "Reading",
        "Writing",
    ]
