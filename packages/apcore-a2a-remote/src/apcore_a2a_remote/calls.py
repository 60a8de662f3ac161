"""A call of a remote skill: the remote task is paused, resumed and canceled together with ours."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import asdict, dataclass
from hashlib import sha256
from math import inf
from typing import Any, NoReturn, Protocol

from apcore.errors import ModuleTimeoutError
from apcore_a2a_client import (
    A2AConnectionError,
    A2AError,
    Event,
    Message,
    Part,
    Restarted,
    Task,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from apcore_a2a_core.authoring import USAGE, add_usage, is_count
from apcore_a2a_core.values import is_array, is_object, size_of

from .connection import Connection
from .content import Json, Output, content_of
from .depth import HOPS, REQUEST_METADATA, count_hops, open_calls
from .errors import (
    RemoteFailedError,
    RemoteQuestion,
    error_of,
    error_of_status,
    log_failure,
    text_of,
)
from .spans import remote_span

MAX_METADATA = 32 * 1024
"""Maximum size of the metadata that is passed on from a remote task, in bytes."""
NOT_COPIED = frozenset({"skillId", "apcore", "states", USAGE})
"""Members of a remote task's metadata that our task does not copy; usage is added up instead."""
NOT_FORWARDED = frozenset({"skillId", "idempotencyKey", HOPS})
"""Members of a request's metadata that concern only the agent that received the request."""
MAX_CHOICES = 50
"""Maximum number of choices that agents of this project show in a question."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A paused task of a remote agent, kept with our task until the answer arrives.

    Attributes:
        remote: The name of the agent.
        skill: The skill, by its id at the agent.
        task: The id of the task.
        context: The id of its conversation.
        inputs: A digest of the inputs of the call.
        hops: The number of agents that the call has passed through.
        question: The id of the message with the question.
        approval: The id of the approval request; None if the agent asks for something else.
        usage: The tokens that the task had used when it paused.
    """

    remote: str
    skill: str
    task: str
    context: str
    inputs: str
    hops: int
    question: str
    approval: str | None
    usage: Any

    @classmethod
    def read(cls, state: object) -> Pending | None:
        """Return the paused task that *state* contains; None if it contains none."""
        pending = state.get("apcore_a2a_remote") if is_object(state) else None
        return cls(**pending) if is_object(pending) else None

    def state(self) -> Json:
        """Return the `state` for a `RemoteQuestion`; `read` restores the paused task from it."""
        return {"apcore_a2a_remote": asdict(self)}


class Skill(Protocol):
    """The part of a skill that a call needs; see `RemoteSkill`."""

    module_id: str
    remote_id: str
    is_typed: bool
    """Whether the agent publishes an input schema for the skill; otherwise it takes text."""
    text_field: str
    published_output_schema: Json | None

    @property
    def is_gated(self) -> bool:
        """Whether this program asks for approval before it calls the agent."""
        ...


class Call:
    """A call of a remote skill.

    Args:
        agent: The agent.
        skill: The skill.
        inputs: The inputs of the module.
        context: The apcore Context of the call.
    """

    def __init__(
        self, agent: Connection, skill: Skill, inputs: Mapping[str, Any], context: Any
    ) -> None:
        self._agent = agent
        self._skill = skill
        self._inputs = inputs
        self._context = context
        self._services = context.services
        self._module_id = context.call_chain[-1] if context.call_chain else skill.module_id
        self._span_headers: dict[str, str] = {}
        self._output = Output(self._module_id, skill.published_output_schema, skill.text_field)
        self._status: TaskStatus | None = None
        self._metadata: dict[str, Any] = {}
        self._has_yielded = False
        self._pending = self._take_pending()
        self._task_id = self._pending.task if self._pending else ""
        self._context_id = self._pending.context if self._pending else ""
        self._hops = self._pending.hops if self._pending else count_hops(context, agent.max_open)
        self._timeout = self._time_limit()

    async def output(self) -> Json:
        """Return the output of the skill.

        Raises:
            ModuleError: The call failed, or waits for an answer.
        """
        async with aclosing(self._chunks()) as chunks:
            async for _ in chunks:
                pass
        return self._output.value

    async def chunks(self) -> AsyncGenerator[Json]:
        """Yield the chunks of the output as they arrive.

        Raises:
            ModuleError: The call failed, or waits for an answer.
        """
        async with aclosing(self._chunks()) as chunks:
            async for chunk in chunks:
                self._has_yielded = True
                yield chunk

    async def _chunks(self) -> AsyncGenerator[Json]:
        chain = [*self._context.call_chain]
        deadline = asyncio.get_running_loop().time() + self._timeout
        with (
            self._agent.count_call(),
            open_calls.count_call(self._context.trace_id, self._agent.max_open, chain),
            remote_span(self._agent.name, self._skill.remote_id) as self._span_headers,
        ):
            try:
                async with aclosing(self._events()) as events:
                    while (event := await self._next(events, deadline)) is not None:
                        for chunk in await self._process(event):
                            yield chunk
            except A2AError as error:
                await self._cancel()
                is_new = self._pending is None and not self._task_id
                seconds = self._timeout
                raise error_of(error, self._module_id, is_new=is_new, seconds=seconds) from error
            except BaseException:  # whatever ends this call, its task must not continue
                await self._cancel()
                raise
            for chunk in self._finish():
                yield chunk

    async def _next(self, events: AsyncIterator[Event], deadline: float) -> Event | None:
        limit = asyncio.timeout_at(None if deadline == inf else deadline)
        try:
            async with limit:
                return await anext(events, None)
        except TimeoutError:
            if not limit.expired():
                raise
            raise ModuleTimeoutError(self._module_id, int(self._timeout * 1000)) from None

    async def _events(self) -> AsyncGenerator[Event]:
        """Yield the events of the task; send the agent an approval that was given here.

        The approval is sent only once: if the agent asks again, this call asks its own caller.
        """
        message, task_id = self._new_message(), self._pending.task if self._pending else None
        for is_approval_sent in (False, True):
            async with aclosing(self._events_of(message, task_id)) as events:
                async for event in events:
                    yield event
            approval = self._approval()
            if is_approval_sent or approval is None or not self._is_approved_here(approval):
                return
            message = Message.of({"approved": True, "approvalId": approval["id"]})
            task_id = self._task_id
            self._output.restart()

    async def _events_of(self, message: Message, task_id: str | None) -> AsyncGenerator[Event]:
        """Send a message, and yield the events of its task.

        If the connection is lost before the first event, the message may have arrived. A message
        that starts a task is sent again to agents of this project, which recognize its idempotency
        key.
        """
        for attempt in range(self._agent.retries + 1):
            try:
                async with aclosing(self._send(message, task_id)) as events:
                    async for event in events:
                        yield event
                return
            except A2AConnectionError:
                is_repeatable = self._agent.is_apcore_a2a and not self._task_id and task_id is None
                if not is_repeatable or attempt == self._agent.retries:
                    raise

    def _send(self, message: Message, task_id: str | None) -> AsyncGenerator[Event]:
        return self._agent.events(
            message,
            skill=self._skill.remote_id or None,
            task_id=task_id,
            context_id=self._conversation(),
            metadata=self._request_metadata(),
            headers=self._headers,
            question_id=self._question_id(),
        )

    def _question_id(self) -> str:
        """Return the id of the agent's message that our next message answers; empty if none."""
        if self._status is not None and self._status.message is not None:
            return self._status.message.message_id
        return self._pending.question if self._pending else ""

    def _new_message(self) -> Message:
        """Return the message that starts the task, or passes on the answer of the caller."""
        pending = self._pending
        if pending is not None and pending.approval is not None:
            approved = self._services.approved is True
            return Message.of({"approved": approved, "approvalId": pending.approval})
        if pending is not None:
            return Message.of([Part.from_dict(part) for part in self._services.answer or ()])
        is_typed = self._skill.is_typed
        parts = content_of(self._inputs, self._other_parts(), is_typed=is_typed)
        idempotency_key = {"idempotencyKey": secrets.token_urlsafe(24)}
        metadata = idempotency_key if self._agent.is_apcore_a2a else {}
        return Message.of(Message(tuple(parts), metadata=metadata))

    def _other_parts(self) -> list[Any]:
        """Return the parts of the caller's message that are not inputs; none for a nested call."""
        parts: Any = getattr(self._services, "parts", ()) if self._is_outermost else ()
        return [*parts]

    @property
    def _is_outermost(self) -> bool:
        """Whether the caller's message is for this skill, and not for a module that calls it."""
        return len(self._context.call_chain) <= 1

    def _request_metadata(self) -> Json:
        metadata: Json = {}
        if self._is_outermost:
            metadata |= self._context.data.get(REQUEST_METADATA) or {}
        forwarded = {name: metadata[name] for name in metadata.keys() - NOT_FORWARDED}
        return {**forwarded, HOPS: self._hops}

    def _conversation(self) -> str | None:
        """Return the id of the conversation at the agent; None for a new one.

        The agent may see all callers as one principal: our server. So the id depends on the
        caller: another caller with the same context id gets another conversation.
        """
        if self._pending is not None:
            return self._pending.context
        return self._agent.conversation_of(self._context)

    async def _process(self, event: Event) -> list[Json]:
        """Process an event; return the chunks of the output in it."""
        if isinstance(event, Restarted):
            if self._has_yielded:
                log_failure(self._module_id, "the task was started again while it streamed")
                raise RemoteFailedError
            self._output.restart()
        if isinstance(event, Message):
            self._status = TaskStatus(TaskState.COMPLETED)
        elif isinstance(event, Task):
            self._task_id = event.id
            self._set_status(event.status, event.metadata)
        else:
            self._task_id = event.task_id
            # `Restarted` has the status from before the restart
            if isinstance(event, TaskStatusUpdateEvent) and not isinstance(event, Restarted):
                await self._report_progress(event.status)
                self._set_status(event.status, event.metadata)
        self._context_id = event.context_id or self._context_id
        return self._output.add(event)

    def _set_status(self, status: TaskStatus, metadata: Mapping[str, Any]) -> None:
        self._status = status
        self._metadata |= metadata

    async def _report_progress(self, status: TaskStatus) -> None:
        """Pass on a progress message of the agent."""
        progress = getattr(self._services, "progress", None)
        text = text_of(status.message)
        if status.state == TaskState.WORKING and text and progress is not None:
            await progress(text, _data_of(status.message))

    def _finish(self) -> list[Json]:
        """Return the last chunks, if the task has completed.

        Raises:
            ModuleError: The task has not completed.
        """
        self._pass_on_metadata()
        status = self._status
        if status is None:
            log_failure(self._module_id, "the agent ended its response without a task")
            raise RemoteFailedError
        if status.state.is_paused:
            self._pause(status)
        if status.state != TaskState.COMPLETED:
            approved = getattr(self._services, "approved", None)
            refused_by_caller = self._pending is not None and approved is False
            raise error_of_status(status, self._module_id, refused_by_caller=refused_by_caller)
        return self._output.add_message(status.message)

    def _pass_on_metadata(self) -> None:
        """Pass on the usage and the metadata of the remote task."""
        metadata = getattr(self._services, "metadata", None)
        if not is_object(metadata):
            return
        passed_on = {k: v for k, v in self._metadata.items() if k not in NOT_COPIED}
        if size_of(passed_on) <= MAX_METADATA:
            metadata |= passed_on
        earlier_usage = self._pending.usage if self._pending else None
        if usage := usage_since(earlier_usage, self._metadata.get(USAGE)):
            metadata[USAGE] = add_usage(metadata.get(USAGE), usage)

    def _pause(self, status: TaskStatus) -> NoReturn:
        """Pass the agent's question on to the caller.

        Raises:
            RemoteQuestion: Always.
        """
        message = status.message
        question = text_of(message) or f"The agent waits: {status.state}"
        document = _data_of(message)
        document = document if is_object(document) else {}
        approval = self._approval()
        pending = Pending(
            self._agent.name,
            self._skill.remote_id,
            self._task_id,
            self._context_id,
            digest_of(self._inputs),
            self._hops,
            message.message_id if message else "",
            None if approval is None else str(approval["id"]),
            self._metadata.get(USAGE),
        )
        state = pending.state()
        if approval is not None:
            data = approval.get("arguments")
            raise RemoteQuestion(question, data=data, state=state, approval=True)
        request = document.get("input")
        if not is_object(request):
            data = document or None
            raise RemoteQuestion(question, data=data, state=state)
        names = request.keys() & {"field", "choices", "schema"}
        members = {name: request[name] for name in names}
        if members.get("choices") == []:  # our server refuses an empty list
            del members["choices"]
        question = bare_question(question, request)
        raise RemoteQuestion(question, data=request.get("data"), state=state, **members)

    def _approval(self) -> Json | None:
        """Return the agent's approval request, if the task waits for approval."""
        status = self._status
        if status is None or status.state != TaskState.INPUT_REQUIRED:
            return None
        document = _data_of(status.message)
        approval = document.get("approval") if is_object(document) else None
        return approval if is_object(approval) and isinstance(approval.get("id"), str) else None

    def _is_approved_here(self, approval: Json) -> bool:
        """Return whether the request is for this very call, and the call was approved here."""
        is_gated = self._skill.is_gated
        is_for_skill = approval.get("skill") == self._skill.remote_id
        return is_gated and is_for_skill and approval.get("arguments") == dict(self._inputs)

    def _take_pending(self) -> Pending | None:
        """Return this call's paused task, if the caller has answered it.

        An answer is taken only once.
        """
        services = self._services
        if getattr(services, "answer", None) is None:
            return None
        pending = Pending.read(services.state)
        if pending is None or (pending.remote, pending.skill) != (
            self._agent.name,
            self._skill.remote_id,
        ):
            return None
        # the inputs of the outermost call are not compared: the answer was added to them
        if not self._is_outermost and pending.inputs != digest_of(self._inputs):
            return None
        answered_ids = self._context.data.setdefault("ext.a2a.remote_answered", [])
        if not is_array(answered_ids) or pending.task in answered_ids:
            return None
        answered_ids.append(pending.task)
        return pending

    def _headers(self) -> dict[str, str]:
        """Return new headers for each request, because a token in them may expire."""
        return {**self._agent.headers_for(self._context), **self._span_headers}

    def _time_limit(self) -> float:
        limits = [self._agent.timeout or inf]
        if self._context.global_deadline is not None:
            limits.append(max(0.0, self._context.global_deadline - time.time()))
        return min(limits)

    async def _cancel(self) -> None:
        """Cancel the task at the agent, unless it has ended."""
        status = self._status
        if self._task_id and not (status and status.state.is_terminal):
            await self._agent.cancel(self._task_id, self._headers())


def _data_of(message: Message | None) -> Any:
    parts = message.parts if message else ()
    return next((part.data for part in parts if part.data is not None), None)


def bare_question(text: str, request: Mapping[str, Any]) -> str:
    r"""Return a question without the lines that agents of this project add for people.

    The first line says what was wrong with the previous answer, if anything was, and the last lines
    list the choices. Our server adds the choices again.

    >>> bare_question("Which day?\n1. Friday", {"choices": ["Friday"]})
    'Which day?'
    """
    lines = text.split("\n")
    if request.get("problem") and len(lines) > 1:
        lines = lines[1:]
    choices: Any = request.get("choices")
    if is_array(choices) and choices:
        line_count = min(len(choices), MAX_CHOICES) + (len(choices) > MAX_CHOICES)
        lines = lines[:-line_count] if len(lines) > line_count else lines
    return "\n".join(lines)


def usage_since(earlier: object, now: object) -> object:
    """Return the usage of a task since a pause.

    >>> usage_since({"inputTokens": 5}, {"inputTokens": 7, "outputTokens": 1})
    {'inputTokens': 2, 'outputTokens': 1}
    """
    if not (is_object(earlier) and is_object(now)):
        return now
    counts = {name: value for name, value in now.items() if is_count(value)}
    return {
        name: max(0, count - (before if is_count(before := earlier.get(name)) else 0))
        for name, count in counts.items()
    }


def digest_of(inputs: Mapping[str, Any]) -> str:
    """Return a digest of the inputs of a call."""
    text = json.dumps(inputs, sort_keys=True, default=str)
    return sha256(text.encode()).hexdigest()[:32]
