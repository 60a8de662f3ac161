"""Results: their media types, files, replies in the history, and chunks of streams."""

from base64 import b64encode
from contextlib import closing
from typing import Any

import pytest
from apcore import Executor, Middleware
from apcore_a2a_core import File, Reply
from pydantic import BaseModel, ConfigDict, Field

from .checking_client import Json, state_of
from .inloop import (
    DIALECTS,
    ActionModule,
    Gate,
    Peer,
    StreamModule,
    always,
    content_of,
    contents,
    registry_of,
    serving,
)
from .inloop import anyio_backend as anyio_backend
from .modules import Inputs

pytestmark = pytest.mark.anyio


class Total(BaseModel):
    total: int


async def send(peer: Peer, *accepted: str) -> Any:
    """Send a message whose client accepts these media types; return the answer."""
    configuration = {"acceptedOutputModes": [*accepted]}
    params = peer.wire.params("work", peer.part(data={}))
    return await peer.ask("send", {**params, "configuration": configuration})


def texts(task: Json) -> list[str]:
    """Return the texts of a task's artifact."""
    return [part["text"] for part in task["artifacts"][0]["parts"] if "text" in part]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("accepted", ["text/plain", "text", "TEXT/*; q=0.5"])
async def test_a_client_that_accepts_only_text_gets_data_as_text(
    dialect: str, accepted: str
) -> None:
    async with serving({"work": always({"total": 5})}, dialect) as peer:
        task = (await send(peer, "image/png", accepted)).task
        assert contents(task) == ['{"total": 5}']


@pytest.mark.parametrize("accepted", [[], ["application/json"], ["text/plain", "*/*"], ["data"]])
async def test_a_client_that_accepts_data_gets_data(accepted: list[str]) -> None:
    async with serving({"work": always({"total": 5})}) as peer:
        assert contents((await send(peer, *accepted)).task) == [{"total": 5}]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_client_that_accepts_neither_text_nor_data_is_refused(dialect: str) -> None:
    module = always({"total": 5})
    module.output_schema = Total  # type: ignore[misc]  # set on this instance only
    async with serving({"work": module}, dialect) as peer:
        answer = await send(peer, "video/mp4")
        assert answer.code == -32005
        assert not peer.agent.engine.runs


async def test_a_skill_without_an_output_schema_may_return_files() -> None:
    async with serving({"work": always({"image": b"\x89PNG..."})}) as peer:
        task = (await send(peer, "image/png")).task
        assert task["artifacts"][0]["parts"][0]["mediaType"] == "image/png"


async def test_the_media_types_accepted_with_an_answer_apply_to_its_result() -> None:
    async def ask(inputs: Inputs, context: Any) -> Inputs:
        if context.services.answer is None:
            context.services.ask("Which?")
        return {"total": 5}

    async with serving({"work": ActionModule(ask)}) as peer:
        task = (await peer.send("work", peer.part(data={}))).task
        params = peer.wire.params("work", peer.part(data={}), taskId=task["id"])
        params["configuration"] = {"acceptedOutputModes": ["text/plain"]}
        assert contents((await peer.ask("send", params)).task) == ['{"total": 5}']


async def test_the_option_text_results_adds_the_text_of_data() -> None:
    async with serving({"work": always({"total": 5})}, text_results=True) as peer:
        assert contents((await send(peer)).task) == [{"total": 5}, '{"total": 5}']
        assert contents((await send(peer, "text/plain")).task) == ['{"total": 5}']


async def test_the_option_text_results_leaves_a_result_with_text_unchanged() -> None:
    module = always({"text": "five", "total": 5})
    module.output_schema = Reply  # type: ignore[misc]  # set on this instance only
    async with serving({"work": module}, text_results=True) as peer:
        assert contents((await send(peer)).task) == ["five", {"total": 5}]


async def test_chunks_of_data_become_lines_of_text() -> None:
    async def source(inputs: Inputs, context: Any) -> Any:
        yield {"n": 1}
        yield {"n": 2}

    async with serving({"work": StreamModule(source)}) as peer:
        params = peer.wire.params("work", peer.part(data={}))
        params["configuration"] = {"acceptedOutputModes": ["text/plain"]}
        async with peer.streaming("stream", params) as stream:
            frames = await stream.rest()
        task = await peer.get(frames[0].body["id"])
        assert "".join(texts(task)) == '{"n": 1}\n{"n": 2}\n'


async def test_long_data_becomes_indented_text() -> None:
    async with serving({"work": always({"text": "x" * 80})}) as peer:
        (text,) = contents((await send(peer, "text/plain")).task)
        assert text.splitlines()[0] == "{"


async def test_files_have_names_and_media_types() -> None:
    output = {
        "rows": 2,
        "table": File(b"a,b\n1,2\n", name="table.csv"),
        "sound": File(bytearray(b"\xff\xfb"), name="a.mp3", media_type="audio/mp3"),
        "pages": [File(url="https://example.com/a.docx"), File(b"%PDF-1.7")],
    }
    async with serving({"work": always(output)}) as peer:
        task = (await send(peer)).task
        data, table, sound, page, pdf = task["artifacts"][0]["parts"]
        assert content_of(data) == {"rows": 2}
        raw = b64encode(b"a,b\n1,2\n").decode()
        assert table == {"raw": raw, "filename": "table.csv", "mediaType": "text/csv"}
        assert (sound["filename"], sound["mediaType"]) == ("a.mp3", "audio/mp3")
        assert page["url"] == "https://example.com/a.docx"
        assert page["mediaType"].endswith("wordprocessingml.document")
        assert (pdf["filename"], pdf["mediaType"]) == ("pages", "application/pdf")
        assert state_of(task) == "completed"


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_result_may_be_a_single_file(dialect: str) -> None:
    async with serving({"work": always({"table": File(b"a,b", name="t.csv")})}, dialect) as peer:
        (content,) = contents((await send(peer)).task)
        assert "YSxi" in str(content)


def test_a_file_has_either_data_or_a_url() -> None:
    with pytest.raises(ValueError, match="either"):
        File()
    with pytest.raises(ValueError, match="either"):
        File(b"x", "https://example.com")


def messages_of(task: Json) -> list[tuple[str, Any]]:
    """Return the role and the first content of each message in a task's history."""
    messages = [(message["role"], content_of(message["parts"][0])) for message in task["history"]]
    return [(role.removeprefix("ROLE_").lower(), content) for role, content in messages]


async def reply_with_history(inputs: Inputs, context: Any) -> Inputs:
    earlier = [content_of(message["parts"][0]) for message in context.services.history]
    return {"text": f"{inputs['text']}, after {len(earlier)}: {earlier}"}


class ReplyModule(ActionModule):
    output_schema = Reply


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_agent_finds_its_own_replies_in_the_conversation(dialect: str) -> None:
    async with serving({"work": ReplyModule(reply_with_history)}, dialect) as peer:
        first = (await peer.send("work", peer.part(text="one"), contextId="c")).task
        reply = "one, after 0: []"
        assert contents(first) == [reply]
        assert messages_of(await peer.get(first["id"])) == [("user", "one"), ("agent", reply)]
        second = (await peer.send("work", peer.part(text="two"), contextId="c")).task
        assert contents(second) == [f"two, after 2: {['one', reply]}"]


async def test_a_reply_in_the_history_is_bounded() -> None:
    async with serving({"work": ReplyModule(echo_at_length)}) as peer:
        task = (await peer.send("work", peer.part(text="é"))).task
        assert len(contents(task)[0]) == 40_001
        assert task["history"][-1]["parts"][0]["text"] == "x" + "é" * (32 * 512 - 1)


async def echo_at_length(inputs: Inputs, context: Any) -> Inputs:
    return {"text": "x" + inputs["text"] * 40_000}


async def test_results_without_text_are_not_in_the_history() -> None:
    async with serving({"work": always({"total": 5})}, text_results=True) as peer:
        task = (await send(peer, "text/plain")).task
        assert len(task["history"]) == 1


class ReplyStream(StreamModule):
    output_schema = Reply


async def tokens(inputs: Inputs, context: Any) -> Any:
    for number in range(1000):
        yield {"text": f"{number:04} "}


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_tokens_of_a_text_are_stored_as_one_part(dialect: str) -> None:
    async with serving({"work": ReplyStream(tokens)}, dialect) as peer:
        async with peer.stream("work", peer.part(data={})) as stream:
            frames = await stream.rest()
        chunks = [frame for frame in frames if frame.kind == "artifact"]
        assert [frame.parts for frame in chunks] == [[f"{n:04} "] for n in range(1000)]
        assert not any(frame.body.get("lastChunk") for frame in chunks)
        assert frames[-1].state == "completed"
        task = await peer.get(frames[-1].body["taskId"])
        full_text = "".join(f"{n:04} " for n in range(1000))
        assert contents(task) == [full_text]
        assert messages_of(task)[-1] == ("agent", full_text)


async def test_only_neighboring_texts_are_joined() -> None:
    async def source(inputs: Inputs, context: Any) -> Any:
        yield {"text": "a"}
        yield {"text": "b", "n": 1}
        yield {"text": "c", "file": b"f"}
        yield {"text": "d" * 20_000}
        yield {"text": "e"}

    async with serving({"work": ReplyStream(source)}) as peer:
        async with peer.stream("work", peer.part(data={})) as stream:
            frames = await stream.rest()
        task = await peer.get(frames[-1].body["taskId"])
        assert contents(task) == ["ab", {"n": 1}, "c", "Zg==", "d" * 20_000 + "e"]


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_a_task_that_still_streams_has_its_texts_joined(store: str, tmp_path: Any) -> None:
    gate = Gate()

    async def source(inputs: Inputs, context: Any) -> Any:
        for letter in "abc":
            yield {"text": letter}
        await gate(inputs, context)

    options = {} if store == "memory" else {"task_store": f"sqlite:///{tmp_path / 'tasks.db'}"}
    async with serving({"work": ReplyStream(source)}, **options) as peer:
        async with peer.stream("work", peer.part(data={})) as stream:
            task_id = (await stream.next()).body["id"]
            await gate.reached.wait()
            assert contents(await peer.get(task_id)) == ["abc"]
            gate.opened.set()
            await stream.rest()
        assert contents(await peer.get(task_id)) == ["abc"]


class OutputRecorder(Middleware):
    """A middleware that records the outputs that it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.outputs: list[Any] = []

    def after(self, module_id: str, inputs: Inputs, output: Inputs, context: Any) -> None:
        self.outputs.append(dict(output))


class Short(BaseModel):
    """An output with room for each chunk of `count_to_three`, but not for the joined text."""

    model_config = ConfigDict(json_schema_extra={"x-text-field": "text"})

    text: str = Field(max_length=5)
    n: int = 0


async def count_to_three(inputs: Inputs, context: Any) -> Any:
    for number, text in enumerate(["one ", "two ", "three"]):
        yield {"text": text, "n": number}


async def test_middleware_sees_the_whole_output_of_a_stream() -> None:
    module, recorder = StreamModule(count_to_three), OutputRecorder()
    module.output_schema = Reply  # type: ignore[misc]  # set on this instance only
    executor = Executor(registry_of({"work": module}), middlewares=[recorder])
    with closing(executor):
        async with serving(executor) as peer, peer.stream("work", peer.part(data={})) as stream:
            frames = await stream.rest()
    assert recorder.outputs == [{"text": "one two three", "n": 2}]
    chunks = [frame.parts[0] for frame in frames if frame.kind == "artifact"]
    assert chunks == ["one ", "two ", "three"]


async def test_an_outer_module_gets_each_chunk_of_an_inner_stream() -> None:
    async def outer(inputs: Inputs, context: Any) -> Inputs:
        return {"n": [chunk async for chunk in context.executor.stream("inner", {}, context)]}

    inner, recorder = StreamModule(count_to_three), OutputRecorder()
    inner.output_schema = Reply  # type: ignore[misc]  # set on this instance only
    executor = Executor(
        registry_of({"work": ActionModule(outer), "inner": inner}), middlewares=[recorder]
    )
    with closing(executor):
        async with serving(executor) as peer:
            (output,) = contents((await send(peer)).task)
    assert [chunk["text"] for chunk in output["n"]] == ["one ", "two ", "three"]
    assert recorder.outputs[0] == {"text": "one two three", "n": 2}


async def test_output_validation_checks_the_whole_output_of_a_stream(
    caplog: pytest.LogCaptureFixture,
) -> None:
    module, recorder = StreamModule(count_to_three), OutputRecorder()
    module.output_schema = Short  # type: ignore[misc]  # set on this instance only
    executor = Executor(registry_of({"work": module}), middlewares=[recorder])
    with closing(executor):
        async with serving(executor) as peer, peer.stream("work", peer.part(data={})) as stream:
            await stream.rest()
    assert not recorder.outputs
    assert "Post-stream validation/middleware failed" in caplog.text
