"""Paused tasks: the question to the client, the meaning of answers, and the time limit.

FR-EXE-002 specifies the requests for approval, FR-CTX-003 the answers.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, cast

from a2a.utils.errors import InvalidParamsError
from apcore_a2a_core import clean, load_json, to_json
from apcore_a2a_core.data import Message, Part, Role, Task
from apcore_a2a_core.states import FAILED, INPUT_REQUIRED, PAUSED, REJECTED, WORKING
from apcore_a2a_core.text_values import can_be_numbered, word_of
from apcore_a2a_core.values import is_array, is_object, object_of
from msgspec import UNSET, ValidationError, convert, structs, to_builtins

from apcore_a2a_server.errors import StaleTaskError
from apcore_a2a_server.modules.approval import Approvals
from apcore_a2a_server.modules.conversation import input_request
from apcore_a2a_server.modules.tenants import principal_and_tenant
from apcore_a2a_server.store.live import LiveTasks
from apcore_a2a_server.trace_context import Trace, new_trace

from .call import Call, members_of
from .change import NewState, change
from .clients import Slots
from .messages import agent_message, new_id
from .process import BackgroundTasks

MAX_QUESTION = 10_000
"""Maximum length of a module's question, in characters; the rest is not shown."""
MAX_ARGUMENTS = 20
"""Maximum number of arguments that are shown as text, and of problems with an answer."""
MAX_VALUE = 200
"""Maximum length of an argument or a choice, in characters; the rest is not shown."""
MAX_CHOICES = 50
"""Maximum number of choices that a question shows as text, and of skills that it lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A call that waits for input or approval, with all that is needed to resume it.

    Attributes:
        id: The id of this pause.
        skill_id: The skill that was called; empty if the client must choose a skill.
        inputs: The inputs of the call.
        parts: The parts of the call's message that are not inputs.
        expires: Time at which the pause expires, in seconds since the epoch, by the store's clock.
        granted: The approved calls, each as a `call_key`.
        done: The results of approved calls that have run, see `Approvals`.
        asked: The call that needs approval, as a `call_key`.
        token: The approval id to resume with, if the executor has its own approval handler.
        question: The module's question, or the server's question about the skill to call; None if
            the executor or the server asks for approval.
        data: JSON that belongs to the question.
        field: The name of the input that takes an answer in text.
        choices: The values that the answer may have.
        schema: JSON Schema of the answer.
        state: JSON for the next run of the module; clients never see it.
        wants_verdict: Whether the module asks for a yes or a no.
        trace: The span of the call as text, see `Trace`; empty if unknown.
        identity: The identity of the caller as JSON, if another principal may answer.
        attached: The parts that the module has added to its question, as JSON.
    """

    id: str
    skill_id: str
    inputs: dict[str, Any]
    expires: float
    parts: list[Any] = field(default_factory=list[Any])
    granted: list[str] = field(default_factory=list[str])
    done: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    asked: str | None = None
    token: str | None = None
    question: str | None = None
    data: Any = None
    field: str | None = None
    choices: list[Any] | None = None
    schema: dict[str, Any] | None = None
    state: Any = None
    wants_verdict: bool = False
    trace: str = ""
    identity: dict[str, Any] | None = None
    attached: list[Any] | None = None

    @classmethod
    def after(
        cls, error: BaseException, call: Call, expires: float, *, keeps_identity: bool = False
    ) -> "Pause":
        """Return the pause for input or approval that *error* requests.

        Args:
            error: The exception that requests the pause.
            call: The call to pause.
            expires: Time at which the pause expires, by the store's clock.
            keeps_identity: Whether to keep the identity of the caller.

        Raises:
            ValueError: The question is malformed.
        """
        new_pause = cls(
            id=new_id(),
            skill_id=call.skill.id,
            inputs=call.inputs,
            expires=expires,
            parts=[*call.other_parts],
            granted=call.approvals.granted,
            done=call.approvals.done,
            state=None if call.resumption is None else call.resumption.state,
            trace=str(call.trace),
            identity=call.caller.packed_identity() if keeps_identity else None,
        )
        request = input_request(error)
        if request is not None:
            question = str(getattr(request, "message", ""))
            return replace(new_pause, question=question, **_members_of_question(request))
        requested_key = call.approvals.requested
        approval_id = getattr(error, "approval_id", None) if requested_key is None else None
        return replace(new_pause, asked=requested_key, token=approval_id)

    def pack(self) -> bytes:
        """Serialize the pause for the store."""
        members = members_of(self)
        for name in ("identity", "attached"):  # left out if None: earlier releases do not know them
            if members[name] is None:
                del members[name]
        return json.dumps(members).encode()

    @classmethod
    def unpack(cls, packed_pause: bytes) -> "Pause":
        """Return the pause that `pack` has serialized."""
        return cls(**json.loads(packed_pause))

    @property
    def span(self) -> Trace:
        """The span of the paused call; the beginning of a new trace if the span is unknown."""
        return Trace.read(self.trace) or new_trace()

    def approvals_with_pending(self) -> Approvals:
        """Return the approvals of the task, as if the pending call were approved."""
        return Approvals([*self.granted, *([self.asked] if self.asked else ())], self.done)


def _members_of_question(request: BaseException) -> dict[str, Any]:
    """Return the members of a pause that come from a module's question, as JSON.

    Raises:
        ValueError: The question is malformed.
    """
    given: object = getattr(request, "details", None) or {}
    if not isinstance(given, Mapping):
        raise ValueError("The details of a question must be an object")
    details = cast("Mapping[str, Any]", given)
    field, choices, schema = (details.get(name) for name in ("field", "choices", "schema"))
    if not (field is None or (isinstance(field, str) and field)):
        raise ValueError("The field of a question must be the name of an input")
    if not (choices is None or (is_array(choices) and choices)):
        raise ValueError("The choices of a question must be a list of at least one value")
    if not (schema is None or is_object(schema)):
        raise ValueError("The schema of a question must be a JSON Schema object")
    members = {
        "field": field,
        "choices": choices,
        "schema": schema,
        "attached": _attached_parts(details.get("parts")),
    }
    members = to_json(members) | {name: details.get(name) for name in ("data", "state")}
    return {**members, "wants_verdict": bool(details.get("approval"))}


def _attached_parts(parts: object) -> list[dict[str, Any]] | None:
    """Return the parts that a module adds to its question, as JSON; None if there are none.

    Raises:
        ValueError: The values are not parts.
    """
    if not parts:
        return None
    try:
        converted = convert(to_json(parts), list[Part])
    except ValidationError as error:
        raise ValueError("The parts of a question must be parts in the JSON of A2A 1.0") from error
    for part in converted:
        if [part.text, part.data, part.raw, part.url].count(UNSET) != 3:
            raise ValueError("A part of a question must have exactly one of text, data, raw, url")
    return [to_builtins(part) for part in converted]


def is_expired(packed_pause: bytes | None, now: float) -> bool:
    """Return whether a packed pause has expired at the time *now*; False if there is none."""
    return packed_pause is not None and Pause.unpack(packed_pause).expires <= now


def question_parts(pause: Pause) -> list[Part]:
    """Return the question of *pause*: text, data for programs, and the module's attached parts."""
    if pause.question is not None:
        if not pause.wants_verdict:
            return _input_question_parts(pause, pause.question[:MAX_QUESTION])
        arguments = pause.data if is_object(pause.data) else {}
        data = {} if pause.data is None else {"data": pause.data}
        document = {"id": pause.id, "skill": pause.skill_id, **data, "arguments": arguments}
        document["decidedBy"] = "client"
        parts = _text_and_data(pause.question[:MAX_QUESTION], "approval", document, pause.expires)
        return [*parts, *_module_parts(pause)]
    # the call to approve may be a nested one, not the paused call itself
    skill_id, arguments = json.loads(pause.asked or "null") or (pause.skill_id, pause.inputs)
    if (skill_id, arguments) == (pause.skill_id, pause.inputs):
        arguments = pause.inputs  # the call key has sorted them; show them in the original order
    text = "\n".join([f"Approval required for module {skill_id}", *_argument_lines(arguments)])
    decided_by = "client" if pause.token is None else "server"
    document = {"id": pause.id, "skill": skill_id, "arguments": arguments, "decidedBy": decided_by}
    return _text_and_data(text, "approval", document, pause.expires)


def input_required(pause: Pause, question: Message) -> NewState:
    """Return the transition to input-required, the state in which a task waits for an answer."""
    return NewState(INPUT_REQUIRED, question, resume=pause.pack(), deadline=pause.expires)


def _input_question_parts(pause: Pause, question: str, problem: str = "") -> list[Part]:
    """Return a question for input; the *problem* of an earlier answer, if any, comes first."""
    members = {
        "skill": pause.skill_id or None,
        "data": pause.data,
        "field": pause.field,
        "choices": pause.choices,
        "schema": pause.schema,
        "problem": problem or None,
    }
    document = {"id": pause.id, **{k: v for k, v in members.items() if v is not None}}
    lines = [*([problem] if problem else ()), question, *_choice_lines(pause)]
    parts = _text_and_data("\n".join(lines), "input", document, pause.expires)
    return [*parts, *_module_parts(pause)]


def _module_parts(pause: Pause) -> list[Part]:
    return convert(pause.attached or [], list[Part])


def _choice_lines(pause: Pause) -> list[str]:
    """Return the lines that show the choices, with numbers if no choice is itself a number."""
    labels = [clean(word_of(choice), MAX_VALUE) for choice in pause.choices or ()]
    if not pause.skill_id:
        names = [clean(skill["name"], MAX_VALUE) for skill in pause.data["skills"]]
        labels = [f"{label} ({name})" for label, name in zip(labels, names, strict=True)]
    is_numbered = can_be_numbered(pause.choices or ())
    lines = [
        f"{number}. {label}" if is_numbered else f"- {label}"
        for number, label in enumerate(labels[:MAX_CHOICES], 1)
    ]
    hidden_count = len(labels) - len(lines)
    if not pause.skill_id:
        hidden_count += pause.data.get("more", 0)
    return [*lines, f"… and {hidden_count} more"] if hidden_count > 0 else lines


def _text_and_data(text: str, kind: str, document: dict[str, Any], expires: float) -> list[Part]:
    timestamp = datetime.fromtimestamp(expires, UTC).isoformat(timespec="seconds")
    document["expiresAt"] = timestamp.replace("+00:00", "Z")
    return [
        Part(text=to_json(text)),
        Part(data=to_json({kind: document}), media_type="application/json"),
    ]


def _argument_lines(arguments: Mapping[str, Any]) -> list[str]:
    lines = [
        f"{clean(name, MAX_VALUE).replace('_', ' ')}: {_argument_text(arguments[name])}"
        for name in [*arguments][:MAX_ARGUMENTS]
    ]
    hidden_count = len(arguments) - MAX_ARGUMENTS
    return [*lines, f"… and {hidden_count} more"] if hidden_count > 0 else lines


def _argument_text(argument: Any) -> str:
    if isinstance(argument, bool) or argument is None:
        return {True: "yes", False: "no", None: "none"}[argument]
    text = argument if isinstance(argument, str) else json.dumps(argument, ensure_ascii=False)
    cleaned = clean(text, MAX_VALUE)
    return cleaned if len(text) <= MAX_VALUE else f"{cleaned}…"


YES = frozenset({"yes", "y", "approve", "approved", "ok"})
NO = frozenset({"no", "n", "deny", "denied", "reject", "rejected"})
HOW_TO_ANSWER = 'Please answer yes or no, or {"approved": true} or {"approved": false}'


def transition_for_answer(pause: Pause, message: Message, problem: str = "") -> NewState:
    """Return the transition that the client's *message* causes in the task of *pause*.

    Args:
        pause: The pause.
        message: The message.
        problem: Why the message does not answer the question for input; empty if it does.
    """
    if problem:
        return repeat_question(pause, message, problem)
    is_approved = approval_in(message, pause)
    # a module that has asked for a yes or a no gets either answer
    if is_approved or (is_approved is False and pause.wants_verdict):
        return NewState(WORKING, received=message)
    if is_approved is False:
        rejection = agent_message(message, "Rejected by client")
        return NewState(REJECTED, rejection, received=message)
    # neither yes nor no: ask again, with the id and the deadline of the first question
    explanation = agent_message(message, HOW_TO_ANSWER, *question_parts(pause)[1:])
    return structs.replace(input_required(pause, explanation), received=message)


def repeat_question(pause: Pause, message: Message, problem: str) -> NewState:
    """Return the transition that repeats a question, with its id and its deadline."""
    question = (pause.question or "")[:MAX_QUESTION]
    explanation = agent_message(message, *_input_question_parts(pause, question, problem))
    return structs.replace(input_required(pause, explanation), received=message)


def problem_of(refusal: InvalidParamsError) -> str:
    """Return the problem with an answer, from the error that refused the resumed call."""
    errors: list[dict[str, str]] = object_of(refusal, "data").get("errors", [])
    problems = [": ".join(filter(None, [e["field"], e["message"]])) for e in errors]
    return f"The answer does not fit: {'; '.join(problems[:MAX_ARGUMENTS]) or refusal.message}"


def approval_in(message: Message, pause: Pause) -> bool | None:
    """Return whether *message* approves the call of *pause*; None if the message is unclear.

    The result is True for a question for input, which every message answers, and for a call whose
    approval the executor's own handler decides: every message resumes that call.
    """
    asks_for_input = pause.question is not None and not pause.wants_verdict
    if pause.token is not None or asks_for_input:
        return True
    is_approved, pause_id = _answer_in(message)
    return is_approved if pause_id in (None, pause.id) else None


def asks_yes_or_no(pause: Pause) -> bool:
    """Return whether a person must answer *pause* with a yes or a no."""
    return pause.wants_verdict or (pause.question is None and pause.token is None)


def is_late_decision(task: Task, message: Message) -> bool:
    """Return whether *message* is a yes or no to an approval request that is already answered."""
    # in the history, each request of the agent is followed by the messages sent to answer it
    request: Mapping[str, Any] | None = None
    for earlier in task.history:
        if earlier.role == Role.ROLE_AGENT:
            request = _request_in(earlier) or request
        elif request is not None and _is_answer(earlier, request):
            return _answer_in(message)[0] is not None
    return False


def _request_in(message: Message) -> Mapping[str, Any] | None:
    """Return the request for approval in a message of the agent; None if there is none."""
    for part in message.parts:
        request = part.data.get("approval") if is_object(part.data) else None
        if is_object(request):
            return request
    return None


def _is_answer(message: Message, request: Mapping[str, Any]) -> bool:
    """Return whether *message* answers *request*; if the server decides, every message does."""
    is_approved, pause_id = _answer_in(message)
    is_clear = is_approved is not None and pause_id in (None, request.get("id"))
    return is_clear or request.get("decidedBy") == "server"


def _answer_in(message: Message) -> tuple[bool | None, Any]:
    """Return whether *message* approves (None if unclear), and the pause id that it names, if any.

    The message's texts and its data with `approved` must all give the same answer, and its pause
    ids must all be the same; otherwise both values are None.
    """
    verdicts: list[bool | None] = []
    pause_ids: list[Any] = []
    for part in message.parts:
        is_approved, pause_id = _part_answer(part)
        if _may_answer(part):
            verdicts.append(is_approved)
        if pause_id is not None:
            pause_ids.append(pause_id)
    agree = all(each == values[0] for values in (verdicts, pause_ids) for each in values)
    return (verdicts[0], next(iter(pause_ids), None)) if verdicts and agree else (None, None)


def _may_answer(part: Part) -> bool:
    return part.text is not UNSET or (is_object(part.data) and "approved" in part.data)


def _part_answer(part: Part) -> tuple[bool | None, Any]:
    text, document = part.text or "", part.data
    with suppress(ValueError):
        document = load_json(text) if document is UNSET else document
    if is_object(document):
        approved = document.get("approved")
        is_approved = approved if isinstance(approved, bool) else None
        return is_approved, document.get("approvalId")
    answer = text.strip().rstrip(".!").lower()
    return (answer in YES, None) if answer in YES | NO else (None, None)


class Expiries:
    """Timers that fail paused tasks when the time for an answer is over.

    A task that was paused by an earlier process fails when an answer arrives too late, or when a
    replica claims the task.

    Args:
        tasks: The live tasks of this process.
        slots: The counter of paused tasks.
        on_expired: Called when a task has failed, with the message to reply to, the pause and the
            principal.
    """

    def __init__(
        self, tasks: LiveTasks, slots: Slots, on_expired: Callable[[Message, Pause, str], None]
    ) -> None:
        self._tasks = tasks
        self._slots = slots
        self._on_expired = on_expired
        self._timers: dict[str, tuple[str, asyncio.TimerHandle, str]] = {}
        self._background = BackgroundTasks()

    def schedule(self, task_id: str, pause: Pause, seconds: float, client: str) -> None:
        """Start the timer of a pause. The timer holds only ids: the store has the inputs.

        Args:
            task_id: The task's id.
            pause: The pause.
            seconds: The time for an answer.
            client: The client that made the call.
        """
        self.cancel(task_id)
        self._slots.enter(client)
        running_loop = asyncio.get_running_loop()
        timer = running_loop.call_later(seconds, self._on_timeout, task_id, pause.id)
        self._timers[task_id] = pause.id, timer, client

    def cancel(self, task_id: str, pause_id: str | None = None) -> None:
        """Cancel the timer of a task; with *pause_id*, only if it belongs to that pause."""
        scheduled_id, timer, client = self._timers.get(task_id, (None, None, ""))
        if timer is not None and pause_id in (None, scheduled_id):
            timer.cancel()
            del self._timers[task_id]
            self._slots.leave(client)

    def cancel_all(self) -> None:
        """Cancel all timers; the tasks stay paused."""
        for task_id in [*self._timers]:
            self.cancel(task_id)

    async def expire(self, reply_to: Message, pause: Pause, principal: str) -> None:
        """Fail the task of *principal* if it still waits for the answer to *pause*."""
        self.cancel(reply_to.task_id, pause.id)
        asks_for_input = pause.question is not None and not pause.wants_verdict
        subject = "The question" if asks_for_input else "Approval"
        explanation = agent_message(reply_to, f"{subject} expired: no answer arrived in time")
        # an answer that arrives now may win the race: then the pause is stale, and nothing happens
        with suppress(StaleTaskError):
            failure, task_id = NewState(FAILED, explanation), reply_to.task_id
            await change(self._tasks, task_id, failure, expect=PAUSED, pause=pause.pack())
            self._on_expired(reply_to, pause, principal)

    def _on_timeout(self, task_id: str, pause_id: str) -> None:
        # free the slot now: `expire` is not called if another replica has received the answer
        self.cancel(task_id, pause_id)
        coroutine = self._expire_stored(task_id, pause_id)
        self._background.start(coroutine, f"Failing expired task {task_id}")

    async def _expire_stored(self, task_id: str, pause_id: str) -> None:
        """Fail the task if it is still in this pause."""
        record = await self._tasks.get(task_id)
        if record is None or record.task.status.state not in PAUSED:
            return
        pause = Pause.unpack(record.resume or b"")
        if pause.id == pause_id:
            reply_to = Message(task_id=task_id, context_id=record.task.context_id)
            principal, _ = principal_and_tenant(record.owner, record.skill)
            await self.expire(reply_to, pause, principal)
