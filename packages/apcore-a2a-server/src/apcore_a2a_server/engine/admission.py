"""Admission: the checks of a message before its task may be created or resumed."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, TypeVar

from a2a.utils.errors import (
    ContentTypeNotSupportedError,
    InvalidParamsError,
    MethodNotFoundError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from apcore_a2a_core import InputRequiredError, PartError
from apcore_a2a_core.data import Message, Part, SendMessageRequest
from apcore_a2a_core.dialects import invalid
from apcore_a2a_core.states import INPUT_REQUIRED, NAMES, PAUSED
from apcore_a2a_core.values import is_large
from msgspec import to_builtins
from msgspec.structs import replace

from apcore_a2a_server.middleware import log_context
from apcore_a2a_server.modules.skills import UNCHOSEN, Skill
from apcore_a2a_server.modules.tenants import principal_and_tenant
from apcore_a2a_server.modules.threads import value_thread
from apcore_a2a_server.store import Query, TaskRecord, Version
from apcore_a2a_server.trace_context import Trace, new_trace

from .answers import Answer, choose_skill, original_parts, read_answer
from .call import Call, Resumption, unpack_identity
from .clients import Caller
from .messages import idempotency_key, is_detached, named_skill, new_id, split_parts, wants_text
from .operators import OperatorRules, audit, is_foreign
from .pauses import MAX_CHOICES, Pause, approval_in, is_expired, is_late_decision
from .setup import Setup

T = TypeVar("T")

MAX_ID = 256
"""Maximum number of characters in each id of a message."""
MAX_PAUSED = 200
"""Maximum number of paused tasks of a context that are searched for the one to resume."""
MAX_MISSPELLED = 100
"""Maximum length of an unknown skill id for which similar ids are suggested, in characters."""
MAX_COMPARED = 300
"""Number of skills above which no similar ids are suggested; comparing 300 takes about 3 ms."""
LONG_JSON = 4096
"""Length of a JSON text, in characters, above which it is converted in a thread."""
MAX_LISTED = 100
"""Maximum number of skills that an error lists."""
CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class Admission:
    """The checks that turn a request into a call, or refuse it.

    Attributes:
        setup: The dependencies of runs.
        default_skill: The skill for messages that name no skill; by default, the agent's skill if
            it has only one.
        max_parts: Maximum number of parts in a message.
        asks_for_skill: Whether a client is asked which skill to call if its message leaves that
            open.
        operator_rules: The rules for access to tasks of other principals.
    """

    setup: Setup
    default_skill: str | None = None
    max_parts: int = 1000
    asks_for_skill: bool = False
    operator_rules: OperatorRules = field(default_factory=OperatorRules)

    async def check_access(self, request: SendMessageRequest, caller: Caller) -> None:
        """Refuse a caller who may not call the skill, with the same error as apcore's own check.

        apcore checks access for every call that reaches it. This check is for requests that are
        refused earlier: their errors could reveal something about the skill.

        Raises:
            TaskNotFoundError: The caller may not call the skill.
        """
        skill_id = self._target_skill_id(request, caller)
        if skill_id and not await self._filter_callable([skill_id], caller):
            raise TaskNotFoundError

    async def get_own_task(self, task_id: str, caller: Caller) -> TaskRecord:
        """Return the record of a task that belongs to *caller*.

        Raises:
            TaskNotFoundError: The task does not exist, or does not belong to *caller*.
        """
        return _require(await self.setup.tasks.get_own(task_id, caller.owner))

    async def get_visible_task(self, operation: str, task_id: str, caller: Caller) -> TaskRecord:
        """Return the record of a task that *caller* owns, or may see as an operator or approver.

        The audit log records access to a task of another principal as *operation*.

        Raises:
            TaskNotFoundError: The task does not exist, or the caller may not see it.
        """
        tasks, rules = self.setup.tasks, self.operator_rules
        record = await tasks.get_own(task_id, caller.owner)
        # read the store again only if a rule applies, so response times tell other callers nothing
        if record is None and (rules.is_operator(caller) or rules.is_approver(caller)):
            record = await tasks.store.get(task_id)
            if record is not None and not rules.may_see(record, caller):
                record = None
            if record is not None and is_foreign(record, caller):
                audit(operation, caller, record)
        return _require(record)

    async def get_operable_task(
        self, operation: str, task_id: str, caller: Caller, *, is_operator: bool
    ) -> TaskRecord:
        """Return the record of a task that *caller* owns, or of any task if *is_operator*.

        The audit log records access to a task of another principal as *operation*.

        Raises:
            TaskNotFoundError: The task does not exist, or the caller may not operate it.
        """
        record = await self.setup.tasks.get_own(task_id, caller.owner)
        if record is None and is_operator:
            record = await self.setup.tasks.store.get(task_id)
            if record is not None and is_foreign(record, caller):
                audit(operation, caller, record)
        return _require(record)

    async def find_task(
        self, request: SendMessageRequest, caller: Caller, version: Version
    ) -> TaskRecord | None:
        """Return the task that the message belongs to; None if the message starts a new task.

        The task is paused, or the message is a late answer to the task's request for approval. In
        1.0, a message that names only a context starts a new task in that context (§3.4.3), so a
        stray "ok" approves nothing. In 0.3, such a message answers the newest paused task of the
        context, if any (FR-CTX-003).

        Raises:
            TaskNotFoundError: The task does not exist, or the caller may not see it.
            UnsupportedOperationError: The task is working or has ended.
            InvalidParamsError: The message is malformed, or does not fit the task.
        """
        message, skill_id = request.message, _named_skill_id(request, caller)
        self._check_message(message)
        if message.task_id:
            record = await self.get_visible_task("SendMessage", message.task_id, caller)
            _check_resumable(record, message, skill_id)
            return record
        if version == "1.0" or not message.context_id:
            return None
        query = Query(caller.owner, message.context_id, state=INPUT_REQUIRED, limit=MAX_PAUSED)
        paused_tasks = (await self.setup.tasks.store.query(query)).records
        candidates = (record for record in paused_tasks if skill_id in (None, record.skill))
        now = await self.setup.tasks.store.now() if paused_tasks else 0
        return next((task for task in candidates if not is_expired(task.resume, now)), None)

    async def new_call(
        self,
        request: SendMessageRequest,
        caller: Caller,
        *,
        streaming: bool,
    ) -> Call:
        """Return the call of a new task, and set the message's task and context ids.

        Args:
            request: The request.
            caller: The sender of the request.
            streaming: Whether to call the module's `stream` method.

        Raises:
            InvalidParamsError: The message must name a skill but does not, no part can be read as
                inputs, or the idempotency key is malformed.
            ContentTypeNotSupportedError: The skill does not take the parts' media types, or the
                client does not take those of the skill's results.
            MethodNotFoundError: The skill does not exist.
            TaskNotFoundError: The client would be asked which skill to call, but may call none.
        """
        message, skill_id = request.message, self._target_skill_id(request, caller)
        question: InputRequiredError | None = None
        other_parts: Sequence[Any] = ()
        if not skill_id:
            question = await self._skill_question(caller)
            skill, inputs = UNCHOSEN, {"parts": [to_builtins(part) for part in message.parts]}
        else:
            skill = await self._skill(skill_id, caller)
            inputs, other_parts = await self._split_parts(message.parts, skill, caller)
        has_history, key = bool(message.context_id), idempotency_key(request, caller.headers)
        message.task_id = new_id()
        message.context_id = message.context_id or new_id()
        detached = is_detached(request, streaming)
        trace = self._span(caller.trace or new_trace())
        log_context(task=message.task_id, skill=skill.id, trace_id=trace.trace_id)
        return Call(
            skill,
            inputs,
            message,
            caller,
            streaming,
            other_parts,
            has_history=has_history,
            detached=detached,
            key=key,
            question=question,
            metadata=request.metadata | message.metadata,
            wants_text=wants_text(request, skill),
            trace=trace,
        )

    async def resumed_call(
        self,
        record: TaskRecord,
        request: SendMessageRequest,
        caller: Caller,
        *,
        streaming: bool,
    ) -> tuple[Call, Pause]:
        """Return the call that resumes a paused task, and the pause.

        The arguments besides *record* are those of `new_call`. `transition_for_answer` decides
        later whether the call runs.

        Raises:
            InvalidParamsError: The answer to a question for input can't be read as inputs, or does
                not fit the question.
            ContentTypeNotSupportedError: The skill does not take the parts' media types, or the
                client does not take those of the skill's results.
            MethodNotFoundError: The skill does not exist any more.
            UnsupportedOperationError: Another caller must answer.
        """
        self.operator_rules.check_answer(record, caller)
        message, pause = request.message, Pause.unpack(record.resume or b"")
        answered_by = caller.principal if is_foreign(record, caller) else ""
        if record.owner != caller.owner:
            caller = _requester(record, pause, caller)
        message.task_id, message.context_id = record.task.id, record.task.context_id
        if pause.skill_id:
            skill = self.setup.skills.get(pause.skill_id)
            answer, approved = Answer(skill, pause.inputs, pause.parts), None
            if pause.wants_verdict:
                approved = approval_in(message, pause)
            elif pause.question is not None:
                # `read_answer` keeps the earlier inputs: the module runs again from its beginning
                arguments = pause, message.parts, skill, self.setup.converter
                answer = await _convert(message.parts, caller, read_answer, *arguments)
            parts = answer.answer_parts or [to_builtins(part) for part in message.parts]
            resumption = Resumption(parts, approved, pause.state)
        else:
            answer, resumption = await self._read_skill_choice(pause, request, caller), None
        # if another principal answers, the requester of the task may not be connected
        detached = bool(answered_by) or is_detached(request, streaming)
        call = Call(
            answer.skill,
            answer.inputs,
            message,
            caller,
            streaming,
            answer.other_parts,
            has_history=True,
            detached=detached,
            # these approvals count only if `transition_for_answer` lets the call run
            approvals=pause.approvals_with_pending(),
            token=pause.token,
            metadata={**request.metadata, **message.metadata},
            resumption=resumption,
            wants_text=wants_text(request, answer.skill),
            asks_again=answer.asks_again,
            problem=answer.problem,
            trace=self._span_of_answer(caller, pause),
            answered_by=answered_by,
        )
        log_context(trace_id=call.trace.trace_id)
        return call, pause

    def _span(self, parent: Trace) -> Trace:
        """Return the span of a call: that of OpenTelemetry, or else a child of *parent*."""
        spans = self.setup.spans
        return parent.child() if spans is None else spans.current(parent)

    def _span_of_answer(self, caller: Caller, pause: Pause) -> Trace:
        """Return the span of a resumed call.

        It belongs to the trace that the client has named, or else to that of the paused call.
        """
        if caller.trace is not None:
            return self._span(caller.trace)
        return pause.span.child() if self.setup.spans is None else pause.span

    async def _read_skill_choice(
        self, pause: Pause, request: SendMessageRequest, caller: Caller
    ) -> Answer:
        """Return the chosen skill with the original message's inputs, or the answer's problem."""
        parts, named_id = request.message.parts, _named_skill_id(request, caller)
        names = self._skill_names(await self._callable_skills(caller))
        try:
            skill = self.setup.skills.get(choose_skill(pause, parts, names, named_id))
        except PartError as error:
            problem = f"The answer {error}"
            return Answer(UNCHOSEN, pause.inputs, (), asks_again=True, problem=problem)
        try:
            inputs, other_parts = await self._split_parts(original_parts(pause), skill, caller)
        except (InvalidParamsError, ContentTypeNotSupportedError) as error:
            problem = f"The message does not fit {skill.id}: {error.message}"
            return Answer(UNCHOSEN, pause.inputs, (), asks_again=True, problem=problem)
        return Answer(skill, inputs, other_parts, asks_again=True)

    async def _skill(self, skill_id: str, caller: Caller) -> Skill:
        """Return a skill by its id.

        Raises:
            MethodNotFoundError: There is no such skill; the error lists similar ids, if any.
        """
        try:
            return self.setup.skills.get(skill_id)
        except MethodNotFoundError as error:
            closest_ids = await self._closest_skills(skill_id, caller)
            if not closest_ids:
                raise
            message = f"{error.message} (did you mean {' or '.join(closest_ids)}?)"
            data = {"type": "ModuleNotFoundError", "closest": closest_ids}
            raise MethodNotFoundError(message, data) from None

    async def _closest_skills(self, skill_id: str, caller: Caller) -> list[str]:
        """Return the ids similar to *skill_id*, of skills that the caller may call."""
        all_ids = self.setup.skills.list()
        if len(skill_id) > MAX_MISSPELLED or len(all_ids) > MAX_COMPARED:
            return []
        return await self._filter_callable(get_close_matches(skill_id, all_ids), caller)

    def _target_skill_id(self, request: SendMessageRequest, caller: Caller) -> str | None:
        """Return the id of the skill that a message is for; None if the message leaves it open."""
        return _named_skill_id(request, caller) or self.default_skill or self.setup.skills.only_id()

    async def _skill_question(self, caller: Caller) -> InputRequiredError:
        """Return the question which skill to call.

        Raises:
            InvalidParamsError: Clients are not asked: the message must name a skill. The error
                lists the skills.
            TaskNotFoundError: The caller may call no skill.
        """
        if not self.asks_for_skill:
            hint = "name one of the agent's skills, or start the agent with --default-skill"
            skill_ids = await self._callable_skills(caller, MAX_LISTED)
            raise InvalidParamsError(
                f"Missing required parameter: metadata.skillId; {hint}", {"skills": skill_ids}
            )
        skill_ids = await self._callable_skills(caller)
        if not skill_ids:
            raise TaskNotFoundError
        names = self._skill_names(skill_ids[:MAX_CHOICES])  # each waiting task stores them
        skills = [{"id": skill_id, "name": name} for skill_id, name in names.items()]
        unlisted = len(skill_ids) - len(skills)
        data = {"skills": skills, "more": unlisted} if unlisted else {"skills": skills}
        return InputRequiredError("Which skill?", data, choices=names)

    async def _callable_skills(self, caller: Caller, limit: int | None = None) -> list[str]:
        """Return those of the agent's first *limit* skill ids whose skills the caller may call."""
        return await self._filter_callable(self.setup.skills.list()[:limit], caller)

    async def _filter_callable(self, skill_ids: Sequence[str], caller: Caller) -> list[str]:
        """Return those of *skill_ids* whose skills the caller may call."""
        verdicts = await self.setup.access.verdicts(skill_ids, caller.identity)
        return [skill_id for skill_id in skill_ids if verdicts[skill_id].allowed]

    def _skill_names(self, skill_ids: Sequence[str]) -> dict[str, str]:
        return {skill_id: self.setup.skills.name(skill_id) for skill_id in skill_ids}

    async def _split_parts(
        self, parts: Sequence[Part], skill: Skill, caller: Caller
    ) -> tuple[dict[str, Any], list[Any]]:
        """Return the inputs of *skill* that the parts contain, and the other parts as JSON."""
        return await _convert(parts, caller, split_parts, self.setup.converter, parts, skill)

    def _check_message(self, message: Message) -> None:
        """Check the parts and the ids of a message; give it an id if it has none.

        Raises:
            InvalidParamsError: There are no parts or too many, or an id is not valid.
        """
        if not message.parts:
            raise invalid("message.parts", "must contain at least one part")
        if len(message.parts) > self.max_parts:
            raise invalid("message.parts", f"must have at most {self.max_parts} parts")
        identifiers = message.message_id, message.context_id, message.task_id
        all_together = "".join(identifiers)
        if len(all_together) > MAX_ID or CONTROL_CHARACTERS.search(all_together):
            names = ("messageId", "contextId", "taskId")
            for name, identifier in zip(names, identifiers, strict=True):
                if len(identifier) > MAX_ID or CONTROL_CHARACTERS.search(identifier):
                    reason = f"must have at most {MAX_ID} characters, and no control characters"
                    raise invalid(f"message.{name}", reason)
        message.message_id = message.message_id or new_id()


def _require(record: TaskRecord | None) -> TaskRecord:
    """Return *record* if there is one, and add its task to the log context.

    Raises:
        TaskNotFoundError: There is no record.
    """
    if record is None:
        raise TaskNotFoundError
    log_context(task=record.task.id, skill=record.skill)
    return record


def _requester(record: TaskRecord, pause: Pause, caller: Caller) -> Caller:
    """Return the requester of a task as a caller, with the connection of *caller*.

    Raises:
        UnsupportedOperationError: The identity of the requester is not known.
    """
    if pause.identity is None:
        problem = "Only the task's requester can answer: the requester's identity was not stored"
        raise UnsupportedOperationError(problem)
    principal, tenant = principal_and_tenant(record.owner, record.skill)
    # without the headers: they are those of another caller
    return replace(
        caller,
        principal=principal,
        identity=unpack_identity(pause.identity),
        headers={},
        tenant=tenant,
        client=principal,
    )


async def _convert(
    parts: Sequence[Part], caller: Caller, convert: Callable[..., T], *arguments: Any
) -> T:
    """Call *convert*, in a thread if the parts take long to convert."""
    texts = [part.text for part in parts if part.text]
    text = "".join(texts) if texts else ""
    is_long_json = len(text) > LONG_JSON and text.lstrip().startswith("{")
    data = parts[0].data if len(parts) == 1 else [part.data for part in parts]
    if is_long_json or (len(texts) < len(parts) and is_large(data)):
        return await value_thread.call(convert, *arguments, client=caller.client)
    return convert(*arguments)


def _named_skill_id(request: SendMessageRequest, caller: Caller) -> str | None:
    """Return the id of the skill that a message names, or else of the tenant's skill.

    Raises:
        InvalidParamsError: The message names another skill than the tenant's.
    """
    skill_id = named_skill(request)
    if caller.tenant is None:
        return skill_id
    if skill_id not in (None, caller.tenant.skill_id):
        raise invalid("metadata.skillId", f"must be {caller.tenant.skill_id}, or be omitted")
    return caller.tenant.skill_id


def _check_resumable(record: TaskRecord, message: Message, skill_id: str | None) -> None:
    """Refuse a message that its task cannot accept now."""
    if message.context_id not in ("", record.task.context_id):
        raise InvalidParamsError("The task belongs to another context; omit contextId")
    state = record.task.status.state
    if state not in PAUSED and not is_late_decision(record.task, message):
        raise UnsupportedOperationError(f"A task in state {NAMES[state]} accepts no messages")
    if skill_id not in (None, record.skill) and record.skill:
        raise InvalidParamsError("The task belongs to another skill; omit metadata.skillId")
