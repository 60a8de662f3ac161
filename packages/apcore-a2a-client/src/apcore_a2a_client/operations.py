"""What a client can do, written once for both: each method is a generator of steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from .auth import APIKey
from .bindings import (
    CANCEL,
    DELETE_PUSH,
    EXTENDED_CARD,
    GET,
    GET_PUSH,
    LIST,
    LIST_PUSH,
    SEND,
    SET_PUSH,
    STREAM,
    SUBSCRIBE,
    Binding,
    Operation,
)
from .discovery import Discovery
from .errors import A2AProtocolError, Json, is_list, is_object
from .exchange import Answer, Exchange, Item, Items, Steps
from .params import Content, checked_id, deadline, given, message_params, state_of
from .results import Chunks, result_of
from .streams import EventStream
from .tasks import (
    Event,
    Message,
    PushNotificationConfig,
    Task,
    TaskPage,
    after,
    read_event,
)

if TYPE_CHECKING:
    from .cards import AgentCard  # imported when there is a card


class Operations:
    """The operations of a client on the agent that `discovery` finds."""

    def __init__(self, exchange: Exchange, discovery: Discovery) -> None:
        self._exchange = exchange
        self._discovery = discovery

    @property
    def url(self) -> str:
        """The agent's address."""
        return str(self._discovery.base)

    def get_card(self, *, refresh: bool = False) -> Steps[AgentCard]:
        """The agent's card, from memory for `card_ttl` seconds (FR-CLI-002).

        Args:
            refresh: Ask the agent even if the known card is young.

        Raises:
            A2ADiscoveryError: The agent has no card.
        """
        return (yield from self._discovery.card(refresh=refresh))

    def extended_card(self) -> Steps[AgentCard]:
        """The card that the agent has for those it knows (A2A 1.0 §3.1.11).

        Raises:
            ExtendedAgentCardNotConfiguredError: It has none.
        """
        from .cards import AgentCard

        return AgentCard.from_dict((yield from self._ask(EXTENDED_CARD, {})))

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
    ) -> Steps[Task]:
        """Send a message, and get the task that it began or answered (FR-CLI-003).

        The request is held open until the task is settled; where that may take longer than the
        timeout, send with `blocking=False` and `wait`, or use `call`.

        Args:
            message: A str, a dict (data), a list of parts (a `Part`, a str, a dict, bytes), or a
                `Message`. It gets an id unless it has one.
            skill: The skill to call, as `metadata.skillId`.
            context_id: The conversation that it belongs to.
            task_id: The paused task that it answers.
            metadata: More metadata of the request.
            blocking: Whether to wait for the task to be settled.
            history_length: How many messages of its history the task shall have.
            accepted_output_modes: Media types that the artifacts may have.
            push_config: A webhook for the task; its `task_id` does not matter.

        Raises:
            A2AServerError: The agent refused the message.
            A2AConnectionError: It can't be reached, or was lost; nothing is known of the task then.
        """
        configuration = {
            "returnImmediately": not blocking,
            "historyLength": history_length,
            "acceptedOutputModes": list(accepted_output_modes),
            "taskPushNotificationConfig": push_config and push_config.to_dict(),
        }
        params = message_params(message, skill, context_id, task_id, metadata)
        params["configuration"] = {k: v for k, v in configuration.items() if v not in (None, [])}
        return after(None, read_event((yield from self._ask(SEND, params))))

    def stream_message(
        self,
        message: Content,
        *,
        skill: str | None = None,
        context_id: str | None = None,
        task_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Items[Event]:
        """Send a message, and get what happens as it happens (FR-CLI-004).

        The stream ends when the task is settled. A connection that breaks is made anew, and every
        event comes once.

        Args:
            message: As for `send_message`, and so are the others.
            skill: The skill to call.
            context_id: The conversation that it belongs to.
            task_id: The paused task that it answers.
            metadata: More metadata of the request.

        Raises:
            A2AServerError: The agent refused the message.
            A2AConnectionError: It can't be reached, or could not be reached again.
        """
        params = message_params(message, skill, context_id, task_id, metadata)
        return self._events(start=(STREAM, params)).events()

    def subscribe(self, task_id: str, *, last_event_id: str | None = None) -> Items[Event]:
        """What happens to a task from now on (A2A 1.0 §3.1.6).

        Args:
            task_id: The task.
            last_event_id: Begin behind this event, where the agent numbers events.

        Raises:
            UnsupportedOperationError: The task has ended.
            TaskNotFoundError: There is no such task.
        """
        start = SUBSCRIBE, {"id": checked_id(task_id)}
        return self._events(start=start, cursor=last_event_id).events()

    def get_task(self, task_id: str, *, history_length: int | None = None) -> Steps[Task]:
        """A task as it is now (FR-CLI-005).

        Raises:
            TaskNotFoundError: There is no such task.
        """
        params = given(id=checked_id(task_id), historyLength=history_length)
        return Task.from_dict((yield from self._ask(GET, params)))

    def cancel_task(self, task_id: str) -> Steps[Task]:
        """Have a task canceled, and get it as it is then (FR-CLI-005).

        Raises:
            TaskNotCancelableError: It has ended.
        """
        return Task.from_dict((yield from self._ask(CANCEL, {"id": checked_id(task_id)})))

    def list_tasks(
        self,
        context_id: str | None = None,
        *,
        state: str | None = None,
        cursor: str | None = None,
        page_size: int | None = None,
        history_length: int | None = None,
    ) -> Steps[TaskPage]:
        """One page of tasks, and the cursor of the next (FR-CLI-005).

        Args:
            context_id: Only those of this conversation.
            state: Only those in this state, such as `"working"`.
            cursor: The `next_cursor` of the page before.
            page_size: How many at most; the agent has a limit of its own.
            history_length: How many messages of its history each shall have.

        Raises:
            UnsupportedOperationError: The agent lists no tasks; most of 0.3 do not.
            ValueError: There is no such state.
        """
        params = given(
            contextId=context_id,
            status=None if state is None else state_of(state).wire,
            pageToken=cursor,
            pageSize=page_size,
            historyLength=history_length,
        )
        return TaskPage.from_dict((yield from self._ask(LIST, params)))

    def iter_tasks(
        self,
        context_id: str | None = None,
        *,
        state: str | None = None,
        page_size: int | None = None,
    ) -> Items[Task]:
        """All tasks, page by page; see `list_tasks`."""
        cursor, seen = None, {""}
        while cursor != "":
            page = yield from self.list_tasks(
                context_id, state=state, cursor=cursor, page_size=page_size
            )
            cursor = page.next_cursor
            if cursor and cursor in seen:
                raise A2AProtocolError("The pages of tasks go in circles")
            seen.add(cursor)
            yield from map(Item, page.tasks)

    def set_push_config(self, config: PushNotificationConfig) -> Steps[PushNotificationConfig]:
        """Have a webhook told about a task (A2A 1.0 §3.1.7).

        Raises:
            PushNotificationNotSupportedError: The agent calls no webhooks.
        """
        params = {**config.to_dict(), "taskId": checked_id(config.task_id)}
        return PushNotificationConfig.from_dict((yield from self._ask(SET_PUSH, params)))

    def get_push_config(self, task_id: str, id: str) -> Steps[PushNotificationConfig]:
        """A webhook of a task (A2A 1.0 §3.1.8)."""
        params = {"taskId": checked_id(task_id), "id": checked_id(id)}
        return PushNotificationConfig.from_dict((yield from self._ask(GET_PUSH, params)))

    def list_push_configs(self, task_id: str) -> Steps[tuple[PushNotificationConfig, ...]]:
        """All webhooks of a task (A2A 1.0 §3.1.9)."""
        params, found, seen = (
            {"taskId": checked_id(task_id)},
            list[PushNotificationConfig](),
            set[Any](),
        )
        while True:
            result = yield from self._ask(LIST_PUSH, params)
            page: Json = result if is_object(result) else {"configs": result}
            configs: Any = page.get("configs") or []
            if not is_list(configs):
                raise A2AProtocolError("The answer is no list of webhooks")
            found += map(PushNotificationConfig.from_dict, configs)
            cursor = page.get("nextPageToken")
            if not isinstance(cursor, str) or not cursor or cursor in seen:
                return tuple(found)
            seen.add(cursor)
            params = {**params, "pageToken": cursor}

    def delete_push_config(self, task_id: str, id: str) -> Steps[None]:
        """Have a webhook no longer told about a task (A2A 1.0 §3.1.10)."""
        yield from self._ask(DELETE_PUSH, {"taskId": checked_id(task_id), "id": checked_id(id)})

    def call(
        self,
        skill: str,
        input: Content,
        *,
        context_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> Steps[Any]:
        """Call a skill like a function, however long it takes.

        The task is begun, then followed until it ends. When the caller stops waiting, it goes on.

        Args:
            skill: The skill.
            input: What it gets, as the message of `send_message`.
            context_id: The conversation that it belongs to.
            metadata: More metadata of the request.
            timeout: Seconds for all of it; None for as long as it takes.

        Returns:
            The value of the task's artifact, see `Task.value`.

        Raises:
            TaskFailedError: The task failed, was rejected or canceled.
            InputRequired: It waits for input: go on with `reply`.
            SkillNotFoundError: There is no such skill.
            InvalidParamsError: The input is not what the skill takes.
            A2ATimeoutError: The task was not settled in time.
        """
        end = deadline(timeout)
        task = yield from self._begin(message_params(input, skill, context_id, None, metadata), end)
        # an agent that numbers events tells all of them, even those of a task that has ended;
        # but what belongs to a conversation may have been paused, which is no end any more
        fresh = not context_id and not isinstance(input, Message)
        cursor = "0" if fresh else None
        events = self._events(task=task, cursor=cursor, end=end)
        return result_of((yield from events.last()))

    def stream(
        self,
        skill: str,
        input: Content,
        *,
        context_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> Items[Any]:
        """Call a skill, and get the values of its chunks as they come.

        Args:
            skill: As for `call`, and so are the others.
            input: What it gets.
            context_id: The conversation that it belongs to.
            metadata: More metadata of the request.
            timeout: Seconds for all of it; None for as long as it takes.

        Raises:
            TaskFailedError: As `call`, behind the chunks that came before.
            InputRequired: As `call`.
        """
        params = message_params(input, skill, context_id, None, metadata)
        events = self._events(start=(STREAM, params), end=deadline(timeout))
        return Chunks(events).values()

    def reply(self, task: Task, message: Content, *, timeout: float | None = None) -> Steps[Task]:
        """Answer a paused task, and wait until it ends or asks again.

        Args:
            task: The paused task.
            message: The answer, as the message of `send_message`.
            timeout: Seconds for all of it; None for as long as it takes.

        Raises:
            UnsupportedOperationError: It waits for nothing any more, and this is no late yes or no.
            A2ATimeoutError: The task was not settled in time.
        """
        end = deadline(timeout)
        params = message_params(message, None, task.context_id, checked_id(task.id), None)
        answered = yield from self._begin(params, end)
        events = self._events(task=answered, past=task.status, end=end)
        return (yield from events.last())

    def follow(self, task: Task, *, timeout: float | None = None) -> Items[Event]:
        """What happens to a task from *task* on, until it is settled.

        Where the agent has no streams, it is asked again and again. A snapshot of the task
        stands for what can't be told one by one.

        Raises:
            A2AConnectionError: The agent could not be reached any more.
            A2ATimeoutError: The task was not settled within *timeout* seconds.
        """
        return self._events(task=task, end=deadline(timeout)).events()

    def wait(self, task: Task, *, timeout: float | None = None) -> Steps[Task]:
        """Follow a task until it is settled, and get it as it is then.

        Raises:
            A2AConnectionError: The agent could not be reached any more.
            A2ATimeoutError: The task was not settled within *timeout* seconds.
        """
        return (yield from self._events(task=task, end=deadline(timeout)).last())

    def _begin(self, params: Json, end: float) -> Steps[Task]:
        """Send a message without waiting for what comes of it."""
        params["configuration"] = {"returnImmediately": True}
        return after(None, read_event((yield from self._ask(SEND, params, end))))

    def _ask(self, operation: Operation, params: Json, end: float = inf) -> Steps[Any]:
        binding, _ = yield from self._way(end)
        answer = yield from self._exchange.send(binding.call(operation, params), end)
        assert isinstance(answer, Answer)
        return binding.result(answer)

    def _way(self, end: float) -> Steps[tuple[Binding, bool]]:
        """How to reach the agent, and whether it has streams."""
        binding = yield from self._discovery.binding(end)
        auth, card = self._exchange.auth, self._discovery.known
        if isinstance(auth, APIKey) and card:
            auth.place(card)
        return binding, card is None or card.capabilities.streaming

    def _events(self, **given: Any) -> EventStream:
        return EventStream(self._exchange, self._way, **given)
