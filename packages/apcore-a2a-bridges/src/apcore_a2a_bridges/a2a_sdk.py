"""Agents written as an `AgentExecutor` of a2a-sdk, as apcore modules.

ModuleError
├── AgentFailedError      the executor has ended its task as failed, or raised an A2AError
└── AgentRejectedError    the executor has rejected its task
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, TypeAlias

from a2a.auth.user import UnauthenticatedUser, User
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.types import (
    AgentCard,
    Artifact,
    Message,
    Part,
    Role,
    SendMessageRequest,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
)
from a2a.utils.errors import A2AError
from apcore import ExecutionCancelledError, ModuleError
from apcore_a2a_core import Progress, to_json
from apcore_a2a_core.sdk import fill_message, json_of
from pydantic import BaseModel, ConfigDict, Field

from .agent import Agent, first_paragraph
from .parts import TEXT, Json, is_mapping
from .turn import Turn, file_from, joined_text

logger = logging.getLogger(__name__)

SdkEvent: TypeAlias = Message | Task | TaskStatusUpdateEvent | TaskArtifactUpdateEvent

MAX_EVENTS = 1024
"""Maximum number of unsent events, after which `enqueue_event` waits, as in the SDK."""
CANCEL_TIMEOUT = 5.0
"""Maximum seconds to wait for an executor's `cancel`, and again for the end of its `execute`."""
RESERVED = frozenset({"skillId", "apcore"})
"""Members of a task's metadata that belong to the server."""
INTERRUPTED = {
    TaskState.TASK_STATE_INPUT_REQUIRED: "More input is required",
    TaskState.TASK_STATE_AUTH_REQUIRED: "Authentication is required",
}
"""States in which an executor waits for the user, with questions for executors that send none."""


class AgentFailedError(ModuleError):
    """The executor has ended its task as failed, or raised an `A2AError`."""

    def __init__(self, message: str) -> None:
        super().__init__(code="AGENT_FAILED", message=message)


class AgentRejectedError(ModuleError):
    """The executor has rejected its task."""

    def __init__(self, message: str) -> None:
        super().__init__(code="AGENT_REJECTED", message=message)


class AnyMessage(BaseModel):
    """Any message: text, data, files, or all of them."""

    model_config = ConfigDict(extra="allow")

    text: str = Field(default="", description="What to say to the agent.")


class Events(EventQueue):
    """The queue of the events of one turn."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[SdkEvent | None] = asyncio.Queue(MAX_EVENTS)
        self._is_closed = False

    async def enqueue_event(self, event: SdkEvent) -> None:
        """Add an event; wait if many of them have not been sent yet."""
        if not self._is_closed:
            await self._events.put(event)
            if self._is_closed:  # closed while this waited: make room for the next waiting call
                self.close()

    async def end(self) -> None:
        """Mark the end of the events: after them, `next` returns None."""
        if not self._is_closed:
            await self._events.put(None)

    def close(self) -> None:
        """Drop all events, including future ones; no `enqueue_event` waits any longer."""
        self._is_closed = True
        while not self._events.empty():
            self._events.get_nowait()

    async def next(self) -> SdkEvent | None:
        """Return the next event; after the last one, return None and drop later events."""
        event = await self._events.get()
        if event is None:
            self.close()
        return event


class Caller(User):
    """The authenticated caller of a turn, as executors get it in `context.call_context.user`."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def is_authenticated(self) -> bool:
        """Always True: an anonymous caller is an `UnauthenticatedUser`."""
        return True

    @property
    def user_name(self) -> str:
        """The id of the caller's identity."""
        return self._name


def part_in(part: Mapping[str, Any], turn: Turn) -> Part:
    """Convert a part of a message to the SDK's type.

    >>> part_in({"text": "Hello"}, turn=None).text
    'Hello'
    """
    return fill_message(part, Part())


def part_out(event: Any, turn: Turn) -> Any:
    """Convert an event of an executor to chunks, and the message of a status to progress.

    >>> part_out(Message(parts=[Part(text="Hello")]), turn=None)
    ['Hello']
    """
    if isinstance(event, Message):
        return [_chunk_of(part) for part in event.parts]
    if isinstance(event, TaskArtifactUpdateEvent):
        return [_chunk_of(part) for part in event.artifact.parts]
    if isinstance(event, TaskStatusUpdateEvent):
        text, data = _text_and_data(event.status.message)
        is_progress = event.status.state in _PROGRESS_STATES
        return Progress(text, data) if is_progress and (text or data) else None
    return event


_PROGRESS_STATES = {
    TaskState.TASK_STATE_SUBMITTED,
    TaskState.TASK_STATE_WORKING,
    TaskState.TASK_STATE_COMPLETED,
    TaskState.TASK_STATE_AUTH_REQUIRED,  # executors may wait for authentication without returning
}
"""States whose message is progress; other states' messages say why the task has paused or ended."""


class ExecutorAgent(Agent):
    """An `AgentExecutor` of a2a-sdk.

    Its events become chunks, progress, questions and outcomes. When a task continues, the
    `RequestContext` has the earlier messages and artifacts in `current_task`, even in another
    replica. The `context_id` is `turn.session_id`, which two authenticated callers never share;
    `context.call_context.state["turn"]` holds the turn.

    Args:
        executor: The executor.
        card: The executor's card. Its name, description and version, and the tags and examples of
            its skills, are defaults for the options with these names.
        options: Options of `Agent`.
    """

    input_schema: Any = AnyMessage
    default_part_in = staticmethod(part_in)
    default_part_out = staticmethod(part_out)

    def __init__(
        self, executor: AgentExecutor, *, card: AgentCard | None = None, **options: Any
    ) -> None:
        kind = type(executor)
        name = kind.__name__.removesuffix("Executor").removesuffix("Agent") or kind.__name__
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
        defaults: Json = {"name": words, "description": first_paragraph(kind.__doc__)}
        super().__init__(**{**defaults, **_options_of(card), **options})
        self._executor = executor

    async def run(self, turn: Turn) -> AsyncIterator[Any]:
        """Run the executor, and yield its events as they come."""
        task = _task_of(turn)
        # the server starts a new artifact for a resumed task, so send the earlier chunks again
        for artifact in task.artifacts:
            yield TaskArtifactUpdateEvent(artifact=artifact)
        events = Events()
        context = await self._request_context(turn, task)
        execution = asyncio.create_task(self._execute(context, events))
        try:
            while (event := await events.next()) is not None:
                for new_event in _record(event, task):
                    yield new_event
            await execution
        finally:
            if not execution.done():
                await self._cancel(context, events, execution)
        self._add_metadata(turn, task)
        _settle(turn, task)

    async def abandoned(self, turn: Turn) -> None:
        """Call the executor's `cancel`, as the SDK does when a paused task is canceled."""
        events = Events()
        events.close()
        await self._executor.cancel(await self._request_context(turn, _task_of(turn)), events)

    async def _execute(self, context: RequestContext, events: Events) -> None:
        try:
            await self._executor.execute(context, events)
        except A2AError as error:  # errors of the protocol are meant for clients
            raise AgentFailedError(error.message) from error
        finally:
            await events.end()

    async def _cancel(
        self, context: RequestContext, events: Events, execution: asyncio.Task[None]
    ) -> None:
        """Call the executor's `cancel`, then cancel the running `execute`."""
        events.close()
        try:
            async with asyncio.timeout(CANCEL_TIMEOUT):
                await self._executor.cancel(context, events)
        except Exception as error:  # executors may raise anything, such as "not supported"
            logger.debug("The executor's cancel failed", exc_info=error)
        finally:
            execution.cancel()
            await asyncio.wait({execution}, timeout=CANCEL_TIMEOUT)
            if execution.done() and not execution.cancelled():
                execution.exception()  # otherwise asyncio logs that it was never retrieved

    async def _request_context(self, turn: Turn, task: Task) -> RequestContext:
        """Return the context that the SDK would make for the message of a turn."""
        message = Message(message_id=turn.message_id, role=Role.ROLE_USER)
        message.parts.extend(await self.contents(turn))
        request = SendMessageRequest(message=message)
        fill_message(turn.request_metadata, request.metadata)
        caller_id = _caller_id_of(turn)
        user = UnauthenticatedUser() if caller_id is None else Caller(caller_id)
        return RequestContext(
            ServerCallContext(user=user, state={"turn": turn}),
            request,
            task_id=turn.task_id,
            context_id=turn.session_id,
            task=task if turn.state is not None else None,
        )

    async def contents(self, turn: Turn) -> list[Any]:
        """Return the parts of the message that starts the task, or of the answer to a question."""
        if turn.answer_parts is None and self.input_mapper is None:
            data = {n: v for n, v in turn.inputs.items() if n != self.input_key}
            text = [{TEXT: turn.text}] if turn.text else []
            parts = [*text, *([{"data": data}] if data else ()), *turn.parts]
        elif turn.answer_parts is None:
            value = await self.mapped_input(turn)
            parts = [
                {TEXT: value} if isinstance(value, str) else {"data": value},
                *turn.parts,
            ]
        else:
            parts = [*turn.answer_parts]
        return await self.convert_parts(parts, turn)

    @staticmethod
    def _add_metadata(turn: Turn, task: Task) -> None:
        metadata: Json = to_json(json_of(task.metadata))
        turn.metadata.update({n: v for n, v in metadata.items() if n not in RESERVED})


def _caller_id_of(turn: Turn) -> str | None:
    """Return the id of the caller's identity; None if anonymous.

    An abandoned task has no identity: return the id of the caller whose turn has paused the task.
    """
    identity = turn.context.identity
    state: Json = turn.state or {}
    return state.get("caller") if identity is None else identity.id


def _options_of(card: AgentCard | None) -> Json:
    """Return the options that a card gives."""
    if card is None:
        return {}
    texts = {"name": card.name, "description": card.description, "version": card.version}
    tags = dict.fromkeys(tag for skill in card.skills for tag in skill.tags)
    examples = dict.fromkeys(text for skill in card.skills for text in skill.examples)
    options: Json = {**texts, "tags": [*tags], "examples": [*examples]}
    return {name: value for name, value in options.items() if value}


def _task_of(turn: Turn) -> Task:
    """Return the task of a turn, as it was when it paused; an empty task in the first turn."""
    stored: Json = {"task": {}} if turn.state is None else turn.state
    task = fill_message(stored["task"], Task())
    task.id, task.context_id = turn.task_id, turn.session_id
    for message in turn.history:
        if message.get("taskId") == turn.task_id:
            earlier_message = fill_message(message, Message())
            earlier_message.context_id = turn.session_id
            task.history.append(earlier_message)
    return task


def _record(event: SdkEvent, task: Task) -> Iterator[SdkEvent]:
    """Apply an event to the task, and yield the new messages, artifacts and statuses.

    A whole `Task` is split into artifacts and a status. The message of a completed task without
    artifacts is its output.
    """
    if isinstance(event, Message):
        task.artifacts.append(Artifact(parts=event.parts))
        yield event
    elif isinstance(event, Task):
        known_ids = {artifact.artifact_id for artifact in task.artifacts}
        task.metadata.update(json_of(event.metadata))
        for artifact in event.artifacts:
            if artifact.artifact_id not in known_ids:
                yield from _record(TaskArtifactUpdateEvent(artifact=artifact), task)
        yield from _record(TaskStatusUpdateEvent(status=event.status), task)
    elif isinstance(event, TaskArtifactUpdateEvent):
        task.metadata.update(json_of(event.metadata))
        _add_artifact(event, task)
        yield event
    else:
        task.metadata.update(json_of(event.metadata))
        task.status.CopyFrom(event.status)
        is_output = event.status.state == TaskState.TASK_STATE_COMPLETED and not task.artifacts
        yield event.status.message if is_output else event


def _add_artifact(event: TaskArtifactUpdateEvent, task: Task) -> None:
    for artifact in task.artifacts:
        if artifact.artifact_id == event.artifact.artifact_id:
            if event.append:
                artifact.parts.extend(event.artifact.parts)
            else:
                artifact.CopyFrom(event.artifact)
            return
    task.artifacts.append(event.artifact)


def _settle(turn: Turn, task: Task) -> None:
    """Pause, fail, reject or cancel the turn if the executor has done so with its task."""
    status = task.status
    text, data = _text_and_data(status.message)
    if status.state in INTERRUPTED:
        del task.history[:]  # the store has the messages
        state = {"task": json_of(task), "caller": _caller_id_of(turn)}
        turn.ask(text or INTERRUPTED[status.state], data, state=state)
    if status.state == TaskState.TASK_STATE_FAILED:
        raise AgentFailedError(text or "The agent has failed")
    if status.state == TaskState.TASK_STATE_REJECTED:
        raise AgentRejectedError(text or "The agent has rejected the task")
    if status.state == TaskState.TASK_STATE_CANCELED:
        raise ExecutionCancelledError


def _chunk_of(part: Part) -> Any:
    """Return a part as a chunk: text, a file, or data; in data, protobuf's 1.0 becomes 1."""
    content: Json = to_json(json_of(part))
    if "data" in content:
        return content["data"] if is_mapping(content["data"]) else {"result": content["data"]}
    return content[TEXT] if TEXT in content else file_from(content)


def _text_and_data(message: Message) -> tuple[str, Any]:
    """Return the texts of a message, one per line, and its data: one value, a list, or None."""
    parts: list[Json] = [to_json(json_of(part)) for part in message.parts]
    data = [part["data"] for part in parts if "data" in part]
    return joined_text(parts), data[0] if len(data) == 1 else data or None
