"""Executors that were written for the server of a2a-sdk run on this server."""

import asyncio
import runpy
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from a2a.helpers import (
    get_data_parts,
    new_data_part,
    new_task_from_user_message,
    new_text_message,
    new_text_part,
    new_url_part,
)
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types import AgentCard, AgentSkill, TaskState
from a2a.utils.errors import InvalidParamsError, UnsupportedOperationError
from apcore_a2a_bridges import bridge, build_agent_card
from apcore_a2a_bridges.a2a_sdk import MAX_EVENTS, Events
from apcore_a2a_client import Part, Task

from tests.server.inloop import anyio_backend as anyio_backend
from tests.server.principals import HeaderAuth
from tests.serving import PATIENCE

from .acceptance import Acceptance, Script, client_of, serving_agent, task_of, wait_for

pytestmark = pytest.mark.anyio

FILES = {
    "dot.png": (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "image/png"),
    "table.csv": (b"a,b\n1,2\n", "text/csv"),
    "song.mp3": (b"ID3" + bytes(40), "audio/mpeg"),
}


class ScriptExecutor(AgentExecutor):
    """Follows a script, and keeps a memory for each context id."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._memory: dict[str, list[str]] = defaultdict(list)

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message
        assert context.task_id
        assert context.context_id
        await event_queue.enqueue_event(new_task_from_user_message(context.message))
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work()
        memory = self._memory[context.context_id]
        memory.append(context.get_user_input())
        answer = ""
        async for piece in self._script.say(*memory):
            is_more, answer = bool(answer), answer + piece
            parts = [new_text_part(piece)]
            await updater.add_artifact(parts, artifact_id="answer", append=is_more)
        memory.append(answer)
        usage = {"inputTokens": Script.input_tokens, "outputTokens": Script.output_tokens}
        state = TaskState.TASK_STATE_WORKING
        await updater.update_status(state, metadata={"usage": usage})
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise UnsupportedOperationError


class TestExecutor(Acceptance):
    def agent(self, script: Script) -> Any:
        return ScriptExecutor(script)


Execute = Callable[[RequestContext, TaskUpdater], Awaitable[None]]


class Executor(AgentExecutor):
    """Executes a function of the context and an updater; records the cancellations."""

    def __init__(self, function: Execute) -> None:
        self._function = function
        self.canceled: list[RequestContext] = []

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id
        assert context.context_id
        await self._function(context, TaskUpdater(event_queue, context.task_id, context.context_id))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id
        assert context.context_id
        self.canceled.append(context)
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


async def answer_to(function: Execute, message: Any = "Hello", **options: Any) -> Task:
    """Serve an executor, send it a message, and return the task."""
    async with serving_agent(Executor(function), **options) as url, client_of(url) as client:
        return await client.send_message(message)


def status_text(task: Task) -> Any:
    assert task.status.message
    return task.status.message.parts[0].text


async def book(context: RequestContext, updater: TaskUpdater) -> None:
    """Ask twice, as in the SDK's documentation; then repeat the answers."""
    task = context.current_task
    if task is None:
        assert context.message
        await updater.event_queue.enqueue_event(new_task_from_user_message(context.message))
        await updater.add_artifact([new_text_part("Looking. ")], artifact_id="log")
        question = updater.new_agent_message([new_text_part("Which day?"), new_data_part({"n": 1})])
        await updater.requires_input(question)
        return
    assert task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
    if len(task.history) < 5:
        await updater.add_artifact([new_text_part("Asking. ")], artifact_id="log", append=True)
        await updater.requires_input(updater.new_agent_message([new_text_part("At what time?")]))
        return
    assert context.message
    texts = [part.text for message in task.history for part in message.parts if part.text]
    (time,) = get_data_parts(context.message.parts)
    await updater.add_artifact([new_text_part(f"{texts[2]} at {time['hour']:g}")])
    await updater.complete()


async def test_questions_are_answered_on_another_server(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'agent.db'}"
    async with serving_agent(Executor(book), task_store=store) as url, client_of(url) as client:
        task = await client.send_message("A table")
        assert (task.status.state, status_text(task)) == ("input-required", "Which day?")
        assert '"n": 1' in str(task.to_dict()).replace("'", '"')
    async with serving_agent(Executor(book), task_store=store) as url, client_of(url) as client:
        task = await client.reply(task, "Friday")
        assert (task.status.state, status_text(task)) == ("input-required", "At what time?")
    async with serving_agent(Executor(book), task_store=store) as url, client_of(url) as client:
        task = await client.reply(task, {"hour": 7})
    assert task.status.state == "completed"
    assert task.value == "Looking. Asking. Friday at 7"


async def test_a_cancellation_calls_cancel_and_ends_execute() -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def wait(context: RequestContext, updater: TaskUpdater) -> None:
        await updater.start_work()
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    executor = Executor(wait)
    async with serving_agent(executor) as url, client_of(url) as client:
        task = await client.send_message("Go", blocking=False)
        await wait_for(started)
        assert (await client.cancel_task(task.id)).status.state == "canceled"
        await wait_for(ended)
    assert [context.task_id for context in executor.canceled] == [task.id]


async def test_a_task_is_canceled_even_if_its_executor_swallows_the_cancellation() -> None:
    started, released = asyncio.Event(), asyncio.Event()

    async def update_repeatedly(context: RequestContext, updater: TaskUpdater) -> None:
        started.set()
        while not released.is_set():
            try:
                await updater.start_work()
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                released.set()

    async with serving_agent(Executor(update_repeatedly)) as url, client_of(url) as client:
        task = await client.send_message("Go", blocking=False)
        await wait_for(started)
        assert (await client.cancel_task(task.id)).status.state == "canceled"
        await wait_for(released)


async def canceled_context(executor: Executor) -> RequestContext:
    """Return the only context with which *executor* is asked to cancel a task."""
    for _ in range(100):
        if executor.canceled:
            break
        await asyncio.sleep(0)
    (context,) = executor.canceled
    return context


async def test_the_cancellation_of_a_paused_task_calls_cancel() -> None:
    executor = Executor(book)
    async with serving_agent(executor) as url, client_of(url) as client:
        task = await client.send_message("A table")
        await client.cancel_task(task.id)
        context = await canceled_context(executor)
    assert context.task_id == task.id
    assert context.current_task
    assert context.current_task.artifacts[0].parts[0].text == "Looking. "


async def test_the_context_of_a_canceled_question_has_the_caller() -> None:
    executor = Executor(book)
    server = serving_agent(executor, auth=HeaderAuth())
    async with server as url, client_of(url, "ada") as client:
        task = await client.reply(await client.send_message("A table"), "Friday")
        await client.cancel_task(task.id)
        context = await canceled_context(executor)
    user = context.call_context.user
    assert (user.user_name, user.is_authenticated) == ("ada", True)


async def test_a_task_gets_its_state_from_the_last_status_of_the_executor() -> None:
    async def end(context: RequestContext, updater: TaskUpdater) -> None:
        state: Any = TaskState.Value(f"TASK_STATE_{context.get_user_input()}")
        message = updater.new_agent_message([new_text_part("Not on Sundays")])
        await updater.update_status(state, message=message)

    async with serving_agent(Executor(end)) as url, client_of(url) as client:
        for state in ("FAILED", "REJECTED"):
            task = await client.send_message(state)
            assert (task.status.state, status_text(task)) == (state.lower(), "Not on Sundays")
        assert (await client.send_message("CANCELED")).status.state == "canceled"
        task = await client.send_message("AUTH_REQUIRED")
        assert (task.status.state, status_text(task)) == ("input-required", "Not on Sundays")
        assert (await client.send_message("COMPLETED")).value == "Not on Sundays"
        assert (await client.send_message("WORKING")).status.state == "completed"


async def test_clients_see_texts_of_protocol_errors_but_not_of_crashes() -> None:
    async def refuse(context: RequestContext, updater: TaskUpdater) -> None:
        raise InvalidParamsError("The day is missing")

    async def crash(context: RequestContext, updater: TaskUpdater) -> None:
        raise RuntimeError("the password is hunter2")

    assert status_text(await answer_to(refuse)) == "The day is missing"
    assert status_text(await answer_to(crash)) == "Internal error"


async def test_a_message_or_a_whole_task_is_an_answer() -> None:
    async def reply(context: RequestContext, updater: TaskUpdater) -> None:
        await updater.event_queue.enqueue_event(new_text_message("By message"))

    async def publish_task(context: RequestContext, updater: TaskUpdater) -> None:
        assert context.message
        task = new_task_from_user_message(context.message)
        task.artifacts.add(artifact_id="a").parts.append(new_text_part("By task"))
        task.status.state = TaskState.TASK_STATE_COMPLETED
        task.metadata["length"] = 7
        await updater.event_queue.enqueue_event(task)

    assert (await answer_to(reply)).value == "By message"
    task = await answer_to(publish_task)
    assert (task.value, task.metadata["length"]) == ("By task", 7)


async def test_status_messages_are_progress_and_not_part_of_an_artifact() -> None:
    async def work(context: RequestContext, updater: TaskUpdater) -> None:
        await updater.start_work(updater.new_agent_message([new_text_part("Reading")]))
        await updater.add_artifact([new_text_part("Done")])
        await updater.complete(updater.new_agent_message([new_text_part("Three pages")]))

    async with serving_agent(Executor(work)) as url, client_of(url) as client:
        events = [event async for event in client.stream_message("Go")]
        task = await client.get_task(task_of(events[0]).id)
    assert "Reading" in str(events)
    assert "Three pages" in str(events)
    assert task.value == "Done"


async def test_parts_of_all_kinds_are_received_and_sent_unchanged() -> None:
    received: list[Any] = []

    async def copy(context: RequestContext, updater: TaskUpdater) -> None:
        assert context.message
        received.append(context.message)
        await updater.add_artifact(list(context.message.parts))
        await updater.add_artifact(
            [new_url_part("https://example.com/a.csv", media_type="text/csv")]
        )

    files = [Part(raw=d, filename=n, media_type=t) for n, (d, t) in FILES.items()]
    task = await answer_to(copy, [Part(text="Hi"), *files, Part(data={"n": 2})])
    (artifact,) = task.artifacts
    by_name = {part.filename: (part.raw, part.media_type) for part in artifact.parts if part.raw}
    assert by_name == FILES
    assert [part.url for part in artifact.parts if part.url] == ["https://example.com/a.csv"]
    assert [part.data for part in artifact.parts if part.data] == [{"n": 2}]
    assert received[0].parts[0].text == "Hi"
    data_task = await answer_to(copy, {"n": 3})
    assert [part.data for part in data_task.artifacts[0].parts if part.data] == [{"n": 3}]
    answer_task = await answer_to(copy, {"answer": 42})  # the name of answers to questions
    assert [part.data for part in answer_task.artifacts[0].parts if part.data] == [{"answer": 42}]
    file_task = await answer_to(copy, files[:1])
    assert file_task.artifacts[0].parts[0].raw == FILES["dot.png"][0]


async def test_the_context_has_the_caller_the_metadata_and_the_turn() -> None:
    async def describe_context(context: RequestContext, updater: TaskUpdater) -> None:
        user, turn = context.call_context.user, context.call_context.state["turn"]
        assert context.message
        identity = f"{user.user_name}{user.is_authenticated} {context.metadata['lang']}"
        is_same = context.task_id == turn.task_id and context.message.message_id == turn.message_id
        await updater.complete(new_text_message(f"{identity} {is_same}"))

    server = serving_agent(Executor(describe_context), auth=HeaderAuth())
    async with server as url, client_of(url, "ada") as client:
        task = await client.send_message("Hi", metadata={"lang": "en"})
    assert task.value == "adaTrue en True"


async def test_events_after_the_end_of_a_turn_are_dropped_without_waiting() -> None:
    ended, reports = asyncio.Event(), set[asyncio.Task[None]]()

    async def report_later(context: RequestContext, updater: TaskUpdater) -> None:
        async def report() -> None:
            await ended.wait()
            for _ in range(MAX_EVENTS + 1):
                await updater.start_work()

        reports.add(asyncio.create_task(report()))
        await updater.add_artifact([new_text_part("Done")])

    assert (await answer_to(report_later)).value == "Done"
    ended.set()
    await asyncio.wait_for(asyncio.gather(*reports), PATIENCE)


async def test_no_event_waits_after_the_events_are_closed() -> None:
    events = Events()
    message = new_text_message("Hello")
    senders = [asyncio.create_task(events.enqueue_event(message)) for _ in range(4 * MAX_EVENTS)]
    await asyncio.sleep(0)
    events.close()
    await asyncio.wait_for(asyncio.gather(*senders), PATIENCE)


async def test_an_artifact_that_is_sent_again_replaces_the_earlier_one_in_the_task() -> None:
    seen_texts: list[str] = []

    async def revise(context: RequestContext, updater: TaskUpdater) -> None:
        if context.current_task is None:
            for text, is_more in (("Draft", False), ("Fi", False), ("nal", True)):
                await updater.add_artifact([new_text_part(text)], artifact_id="a", append=is_more)
            await updater.requires_input(updater.new_agent_message([new_text_part("Good?")]))
            return
        (artifact,) = context.current_task.artifacts
        seen_texts.extend(part.text for part in artifact.parts)

    async with serving_agent(Executor(revise)) as url, client_of(url) as client:
        await client.reply(await client.send_message("Write"), "Yes")
    assert seen_texts == ["Fi", "nal"]


async def test_a_card_describes_the_executor() -> None:
    skill = AgentSkill(id="book", name="Book", tags=["travel"], examples=["A table for two"])
    card = AgentCard(name="Tables", description="Books tables.", version="2.1", skills=[skill])
    built_card = build_agent_card(Executor(book), card=card)
    assert (built_card.name, built_card.description, built_card.version) == (
        "Tables",
        "Books tables.",
        "2.1",
    )
    assert "travel" in built_card.skills[0].tags
    assert "A table for two" in built_card.skills[0].examples[0]
    assert bridge(ScriptExecutor(Script())).name == "Script"


async def test_the_stream_of_a_resumed_task_has_its_earlier_artifacts() -> None:
    async with serving_agent(Executor(book)) as url, client_of(url) as client:
        task = await client.send_message("A table")
        task = await client.reply(task, "Friday")
        events = [e async for e in client.stream_message({"hour": 7}, task_id=task.id)]
        assert "Looking. " in str(events)
        assert (await client.get_task(task.id)).value == "Looking. Asking. Friday at 7"


async def test_the_example_runs() -> None:
    path = Path(__file__).parents[2] / "examples/bridges/a2a-sdk/agent.py"
    executor = runpy.run_path(str(path))["executor"]
    async with serving_agent(executor) as url, client_of(url) as client:
        assert (await client.send_message("Hello")).value == "You said Hello"
