"""The methods of `A2AClient` and `SyncA2AClient`, written once as generators of steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

from . import bindings
from .bindings import Operation
from .cards import AgentCard
from .errors import A2AProtocolError, Json, is_list, is_object
from .exchange import BufferedResponse, Item, Items, Steps, deadline_after
from .headers import Headers, HeaderSource, check_header_source, check_headers
from .params import (
    Content,
    check_callback,
    check_id,
    message_params,
    parse_state,
    without_none,
)
from .results import chunks, result_of
from .streams import EventStream
from .tasks import Event, Message, PushNotificationConfig, Task, TaskPage, apply_event, read_event
from .webhooks import WebhookOperations


class Operations(WebhookOperations):
    """Operations on the agent found by a `Discovery`.

    A task is settled if it has ended, or is paused until the caller answers.
    """

    def get_card(
        self, *, refresh: bool = False, headers: Headers | None = None
    ) -> Steps[AgentCard]:
        """Return the agent's card, cached for `card_ttl` seconds (FR-CLI-002).

        Args:
            refresh: Fetch the card even if the cached one has not expired.
            headers: Further headers of the request, if the card is fetched.

        Raises:
            A2ADiscoveryError: The agent has no card, or an invalid one.
            CardRefusedError: `verify_card` refused the card.
        """
        request_headers = check_headers(headers)
        return (yield from self._discovery.card(refresh=refresh, headers=request_headers))

    def extended_card(self, *, headers: Headers | None = None) -> Steps[AgentCard]:
        """Return the card for authenticated callers (A2A 1.0 §3.1.11).

        Raises:
            UnsupportedOperationError: In A2A 1.0, the agent declares no extended card.
            ExtendedAgentCardNotConfiguredError: The agent declares an extended card, but has none;
                in 0.3, also if it declares none.
            CardRefusedError: `verify_card` refused the card.
        """
        data = yield from self._request(bindings.EXTENDED_CARD, {}, headers)
        card = AgentCard.from_dict(data)
        return (yield from self._discovery.verify(data, self._discovery.base)) or card

    def send_message(
        self,
        message: Content,
        *,
        skill: str | None = None,
        context_id: str | None = None,
        task_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        blocking: bool = True,
        history_length: int | None = None,
        accepted_output_modes: Sequence[str] = (),
        push_config: PushNotificationConfig | None = None,
        headers: Headers | None = None,
    ) -> Steps[Task]:
        """Send a message, and return the task that it started or answered (FR-CLI-003).

        The request stays open until the task is settled. If that may take longer than the timeout,
        pass `blocking=False` and then use `wait`, or use `call` instead.

        Args:
            message: A str, bytes (a file), a dict (data) or a `Part`; a list of these; or a
                `Message`, which gets an id if it has none.
            skill: The skill to call; sent as `metadata.skillId`.
            context_id: The conversation of the message.
            task_id: The paused task that the message answers.
            metadata: Further metadata of the request.
            blocking: Whether to wait until the task is settled.
            history_length: The maximum number of messages in the task's history.
            accepted_output_modes: The media types that the artifacts may have.
            push_config: A webhook for the task; its `task_id` is ignored.
            headers: Further headers of the request.

        Raises:
            A2AServerError: The agent refused the message.
            A2AConnectionError: The agent cannot be reached, or the connection was lost; in that
                case the task may exist (see `A2AConnectionError.sent`).
        """
        params = message_params(message, skill, context_id, task_id, metadata)
        params["configuration"] = without_none(
            returnImmediately=not blocking,
            historyLength=history_length,
            acceptedOutputModes=list(accepted_output_modes) or None,
            taskPushNotificationConfig=push_config and push_config.to_dict(),
        )
        return apply_event(
            None, read_event((yield from self._request(bindings.SEND, params, headers)))
        )

    def stream_message(
        self,
        message: Content,
        *,
        skill: str | None = None,
        context_id: str | None = None,
        task_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        headers: Headers | HeaderSource | None = None,
    ) -> Items[Event]:
        """Send a message, and yield the events of its task as they arrive (FR-CLI-004).

        The stream ends when the task is settled. A lost connection is reopened; a snapshot of the
        task may then replace the events that were missed.

        Args:
            message: The content; see `send_message`.
            skill: The skill to call.
            context_id: The conversation of the message.
            task_id: The paused task that the message answers.
            metadata: Further metadata of the request.
            headers: Further headers of each request, or a function (async or not) that returns
                them for each request.

        Raises:
            A2AServerError: The agent refused the message.
            A2AConnectionError: The agent cannot be reached, or the connection was lost for good.
        """
        params = message_params(message, skill, context_id, task_id, metadata)
        return self._events(headers, start=(bindings.STREAM, params)).events()

    def subscribe(
        self,
        task_id: str,
        *,
        last_event_id: str | None = None,
        headers: Headers | None = None,
    ) -> Items[Event]:
        """Yield the events of a task from now on (A2A 1.0 §3.1.6).

        Args:
            task_id: The task.
            last_event_id: Start after this event, if the agent numbers its events.
            headers: Further headers of each request.

        Raises:
            UnsupportedOperationError: The task has ended, and the agent cannot replay the events
                after *last_event_id*.
            TaskNotFoundError: The task does not exist.
        """
        start = bindings.SUBSCRIBE, {"id": check_id(task_id)}
        return self._events(headers, start=start, last_event_id=last_event_id).events()

    def get_task(
        self,
        task_id: str,
        *,
        history_length: int | None = None,
        headers: Headers | None = None,
    ) -> Steps[Task]:
        """Return a task as it is now (FR-CLI-005).

        Raises:
            TaskNotFoundError: The task does not exist.
        """
        params = without_none(id=check_id(task_id), historyLength=history_length)
        return Task.from_dict((yield from self._request(bindings.GET, params, headers)))

    def cancel_task(self, task_id: str, *, headers: Headers | None = None) -> Steps[Task]:
        """Cancel a task, and return it (FR-CLI-005).

        Raises:
            TaskNotCancelableError: The task has ended.
        """
        params = {"id": check_id(task_id)}
        return Task.from_dict((yield from self._request(bindings.CANCEL, params, headers)))

    def list_tasks(
        self,
        context_id: str | None = None,
        *,
        state: str | None = None,
        cursor: str | None = None,
        page_size: int | None = None,
        history_length: int | None = None,
        headers: Headers | None = None,
    ) -> Steps[TaskPage]:
        """Return a page of tasks, and the cursor of the next page (FR-CLI-005).

        Args:
            context_id: Return only tasks of this conversation.
            state: Return only tasks in this state, such as `"working"`.
            cursor: The `next_cursor` of the previous page.
            page_size: The maximum number of tasks; agents may have a lower limit.
            history_length: The maximum number of messages in each task's history.
            headers: Further headers of the request.

        Raises:
            UnsupportedOperationError: The agent cannot list tasks; most agents of 0.3 cannot.
            ValueError: The state is unknown.
        """
        params = without_none(
            contextId=context_id,
            status=None if state is None else parse_state(state).wire,
            pageToken=cursor,
            pageSize=page_size,
            historyLength=history_length,
        )
        return TaskPage.from_dict((yield from self._request(bindings.LIST, params, headers)))

    def iter_tasks(
        self,
        context_id: str | None = None,
        *,
        state: str | None = None,
        page_size: int | None = None,
        headers: Headers | None = None,
    ) -> Items[Task]:
        """Yield all tasks, fetched page by page; see `list_tasks`."""
        cursor, seen_cursors = None, {""}
        while cursor != "":
            page = yield from self.list_tasks(
                context_id, state=state, cursor=cursor, page_size=page_size, headers=headers
            )
            cursor = page.next_cursor
            if cursor and cursor in seen_cursors:
                raise A2AProtocolError("The agent returned the same page cursor twice")
            seen_cursors.add(cursor)
            yield from map(Item, page.tasks)

    def set_push_config(
        self, config: PushNotificationConfig, *, headers: Headers | None = None
    ) -> Steps[PushNotificationConfig]:
        """Configure a webhook for a task, and return the push config (A2A 1.0 §3.1.7).

        Raises:
            PushNotificationNotSupportedError: The agent does not send push notifications.
        """
        params = {**config.to_dict(), "taskId": check_id(config.task_id)}
        return PushNotificationConfig.from_dict(
            (yield from self._request(bindings.SET_PUSH, params, headers))
        )

    def get_push_config(
        self, task_id: str, id: str, *, headers: Headers | None = None
    ) -> Steps[PushNotificationConfig]:
        """Return a push config of a task (A2A 1.0 §3.1.8)."""
        params = {"taskId": check_id(task_id), "id": check_id(id)}
        return PushNotificationConfig.from_dict(
            (yield from self._request(bindings.GET_PUSH, params, headers))
        )

    def list_push_configs(
        self, task_id: str, *, headers: Headers | None = None
    ) -> Steps[tuple[PushNotificationConfig, ...]]:
        """Return all push configs of a task (A2A 1.0 §3.1.9)."""
        params: Json = {"taskId": check_id(task_id)}
        push_configs: list[PushNotificationConfig] = []
        seen_cursors: set[str] = set()
        while True:
            result = yield from self._request(bindings.LIST_PUSH, params, headers)
            # 1.0 returns an object with a cursor, 0.3 a bare list.
            page: Json = result if is_object(result) else {"configs": result}
            configs: Any = page.get("configs") or []
            if not is_list(configs):
                raise A2AProtocolError("The response is not a list of push configs")
            push_configs += map(PushNotificationConfig.from_dict, configs)
            cursor = page.get("nextPageToken")
            if not isinstance(cursor, str) or not cursor:
                return tuple(push_configs)
            if cursor in seen_cursors:
                raise A2AProtocolError("The agent returned the same page cursor twice")
            seen_cursors.add(cursor)
            params = {**params, "pageToken": cursor}

    def delete_push_config(
        self, task_id: str, id: str, *, headers: Headers | None = None
    ) -> Steps[None]:
        """Delete a push config of a task (A2A 1.0 §3.1.10)."""
        params = {"taskId": check_id(task_id), "id": check_id(id)}
        yield from self._request(bindings.DELETE_PUSH, params, headers)

    def call(
        self,
        skill: str | None,
        input: Content,
        *,
        context_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        headers: Headers | None = None,
    ) -> Steps[Any]:
        """Call a skill like a function, and return its result, however long the task takes.

        The task is started without waiting, then followed until it is settled. It continues if the
        caller stops waiting.

        Args:
            skill: The skill; None lets the agent choose it.
            input: The input of the skill; see *message* of `send_message`.
            context_id: The conversation of the call.
            metadata: Further metadata of the request.
            timeout: Seconds for the whole call; None for no limit.
            headers: Further headers of each request.

        Returns:
            The value of the task's artifact; see `Task.value`.

        Raises:
            TaskFailedError: The task failed, or was rejected or canceled.
            InputRequired: The task waits for input: answer it with `reply`.
            SkillNotFoundError: The skill does not exist.
            InvalidParamsError: The skill refused the input.
            A2ATimeoutError: The task was not settled in time.
        """
        deadline = deadline_after(timeout)
        params = message_params(input, skill, context_id, None, metadata)
        task = yield from self._submit(params, deadline, headers)
        # If asked for the events after event 0, an agent that numbers its events replays the whole
        # task, even if it has ended. An older task must not be replayed: the replay could begin
        # with a pause that has been answered since, and the stream would end there. The task may be
        # an older one if the call names a conversation (a `Message` can name one too) or repeats an
        # idempotency key.
        has_key = "idempotency-key" in check_headers(headers)
        is_new_task = not (context_id or has_key or isinstance(input, Message))
        last_event_id = "0" if is_new_task else None
        events = self._events(headers, task=task, last_event_id=last_event_id, deadline=deadline)
        return result_of((yield from events.last()))

    def stream(
        self,
        skill: str | None,
        input: Content,
        *,
        context_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        on_restart: Callable[[], object] | None = None,
        headers: Headers | None = None,
    ) -> Items[Any]:
        """Call a skill, and yield the values of its chunks as they arrive.

        If the replica that runs the task is lost, the agent may run the task again from the start.
        The values then repeat, which is an error unless *on_restart* is given.

        Args:
            skill: The skill; None lets the agent choose it.
            input: The input of the skill; see *message* of `send_message`.
            context_id: The conversation of the call.
            metadata: Further metadata of the request.
            timeout: Seconds for the whole call; None for no limit.
            on_restart: Called before the values repeat; for example the `clear` method of the list
                that collects them.
            headers: Further headers of each request.

        Raises:
            TaskFailedError: The task failed, or was rejected or canceled; raised after the values
                of its chunks.
            InputRequired: The task waits for input: answer it with `reply`.
            StreamRestartedError: The values would repeat, and *on_restart* is not given.
            A2ATimeoutError: The task was not settled in time.
        """
        start = bindings.STREAM, message_params(input, skill, context_id, None, metadata)
        events = self._events(headers, start=start, deadline=deadline_after(timeout))
        return chunks(events, check_callback(on_restart))

    def reply(
        self,
        task: Task,
        message: Content,
        *,
        timeout: float | None = None,
        headers: Headers | None = None,
    ) -> Steps[Task]:
        """Answer a paused task, and return it when it has ended or is paused again.

        Args:
            task: The paused task.
            message: The answer; see *message* of `send_message`.
            timeout: Seconds for sending the answer and waiting; None for no limit.
            headers: Further headers of each request.

        Raises:
            UnsupportedOperationError: The task no longer waits for input. For a late answer to a
                request for approval, agents may return the task instead.
            A2ATimeoutError: The task was not settled in time.
        """
        deadline = deadline_after(timeout)
        params = message_params(message, None, task.context_id, check_id(task.id), None)
        answered_task = yield from self._submit(params, deadline, headers)
        # Agents may return, or replay, the task as it was before the answer: paused. This status
        # must not end the stream.
        events = self._events(
            headers, task=answered_task, answered_pause=task.status, deadline=deadline
        )
        return (yield from events.last())

    def follow(
        self, task: Task, *, timeout: float | None = None, headers: Headers | None = None
    ) -> Items[Event]:
        """Yield the events of a task since the snapshot *task*, until the task is settled.

        Over A2A 0.3, or if the agent has no streams, the task is polled. A snapshot of the task
        replaces events that cannot be delivered one by one.

        Raises:
            A2AConnectionError: The agent can no longer be reached.
            A2ATimeoutError: The task was not settled within *timeout* seconds.
        """
        return self._events(headers, task=task, deadline=deadline_after(timeout)).events()

    def wait(
        self, task: Task, *, timeout: float | None = None, headers: Headers | None = None
    ) -> Steps[Task]:
        """Wait until a task is settled, and return it.

        Raises:
            A2AConnectionError: The agent can no longer be reached.
            A2ATimeoutError: The task was not settled within *timeout* seconds.
        """
        return (
            yield from self._events(headers, task=task, deadline=deadline_after(timeout)).last()
        )

    def _submit(self, params: Json, deadline: float, headers: Headers | None) -> Steps[Task]:
        """Send a message without waiting until its task is settled."""
        params["configuration"] = {"returnImmediately": True}
        return apply_event(
            None, read_event((yield from self._request(bindings.SEND, params, headers, deadline)))
        )

    def _request(
        self,
        operation: Operation,
        params: Json,
        headers: Headers | None,
        deadline: float = inf,
    ) -> Steps[Any]:
        request_headers = check_headers(headers)
        binding = yield from self._discovery.binding(deadline, request_headers)
        request = binding.request(operation, params).with_headers(request_headers)
        response = yield from self._discovery.exchange.send(request, deadline)
        assert isinstance(response, BufferedResponse)
        return binding.result(response)

    def _events(self, headers: Headers | HeaderSource | None, **options: Any) -> EventStream:
        return EventStream(self._discovery, headers=check_header_source(headers), **options)
