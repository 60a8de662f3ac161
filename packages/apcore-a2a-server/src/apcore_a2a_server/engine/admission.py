"""Admission: all checks of a message before its task is created or resumed."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from a2a.utils.errors import InvalidParamsError, TaskNotFoundError, UnsupportedOperationError
from apcore_a2a_core.data import Message, Part, SendMessageRequest
from apcore_a2a_core.dialects import invalid
from apcore_a2a_core.states import INPUT_REQUIRED, NAMES, PAUSED
from apcore_a2a_core.values import is_large
from msgspec import to_builtins

from apcore_a2a_server.middleware import log_context
from apcore_a2a_server.modules.skills import Skill
from apcore_a2a_server.modules.threads import large_values
from apcore_a2a_server.store import Query, TaskRecord, Version

from .call import Call, Resumption
from .clients import Caller
from .messages import idempotency_key, is_detached, named_skill, new_id, split_parts, wants_text
from .pauses import Pause, approval_in, is_expired, is_late_answer
from .setup import Setup

MAX_ID = 256
"""Maximum number of characters in the ids of a message."""
MAX_PAUSED = 200
"""Number of paused tasks of a context among which an answer without a task id is matched."""
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class Admission:
    """Converts requests into calls, or refuses them.

    Attributes:
        setup: The dependencies of runs.
        default_skill: The skill for messages that name none; None if they must name one.
        max_parts: Maximum number of parts in a message.
    """

    setup: Setup
    default_skill: str | None = None
    max_parts: int = 1000

    async def check_access(self, request: SendMessageRequest, caller: Caller) -> None:
        """Refuse a caller who may not call the skill, as if the task did not exist.

        apcore checks access for every call that reaches it. This check is for requests that are
        refused before: their errors must not reveal that the skill exists.

        Raises:
            TaskNotFoundError: The caller may not call the skill.
        """
        skill_id = _skill_of(request, caller) or self.default_skill or ""
        verdicts = await self.setup.access.verdicts([skill_id], caller.identity)
        if skill_id and not verdicts[skill_id].allowed:
            raise TaskNotFoundError

    async def own_task(self, task_id: str, caller: Caller) -> TaskRecord:
        """Return the record of a task that belongs to *caller*.

        Raises:
            TaskNotFoundError: The task does not exist, or belongs to another principal.
        """
        record = await self.setup.tasks.get_own(task_id, caller.owner)
        if record is None:
            raise TaskNotFoundError
        log_context(task=record.task.id, skill=record.skill)
        return record

    async def find_task(
        self, request: SendMessageRequest, caller: Caller, version: Version
    ) -> TaskRecord | None:
        """Return the task that the message belongs to; None if it starts a new task.

        The task is paused, or it was and the message answers its question a second time. In 1.0
        a message that names only a context starts a new task in it (§3.4.3), so that a stray "ok"
        approves nothing; in 0.3 it answers the newest paused task (FR-CTX-003).

        Raises:
            TaskNotFoundError: The task does not exist, or belongs to another principal.
            UnsupportedOperationError: The task is working or has ended.
            InvalidParamsError: The message is malformed, or does not fit the task.
        """
        message, skill_id = request.message, _skill_of(request, caller)
        self._check_message(message)
        if message.task_id:
            record = await self.own_task(message.task_id, caller)
            _check_resumable(record, message, skill_id)
            return record
        if version == "1.0" or not message.context_id:
            return None
        query = Query(caller.owner, message.context_id, state=INPUT_REQUIRED, limit=MAX_PAUSED)
        paused = (await self.setup.tasks.store.query(query)).records
        candidates = (record for record in paused if skill_id in (None, record.skill))
        now = await self.setup.tasks.store.now() if paused else 0
        return next((each for each in candidates if not is_expired(each.resume, now)), None)

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
            InvalidParamsError: No skill is named, or the parts are no input for it.
            ContentTypeNotSupportedError: The skill does not take the parts' media types.
            MethodNotFoundError: The skill does not exist.
        """
        skill_id = _skill_of(request, caller) or self.default_skill
        if not skill_id:
            raise InvalidParamsError("Missing required parameter: metadata.skillId")
        skill, message = self.setup.skills.get(skill_id), request.message
        inputs, other_parts = await self._split(message.parts, skill)
        has_history, key = bool(message.context_id), idempotency_key(request, caller.headers)
        message.task_id = new_id()
        message.context_id = message.context_id or new_id()
        detached = is_detached(request, streaming)
        log_context(task=message.task_id, skill=skill_id)
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
            metadata=request.metadata | message.metadata,
            wants_text=wants_text(request, skill),
        )

    async def resumed(
        self,
        record: TaskRecord,
        request: SendMessageRequest,
        caller: Caller,
        *,
        streaming: bool,
    ) -> tuple[Call, Pause]:
        """Return the call that resumes a paused task, and the pause.

        The arguments are those of `new_call`; whether the message approves the call is decided
        later.

        Raises:
            InvalidParamsError: The pause is for input, and the parts are no input.
            ContentTypeNotSupportedError: The skill does not take the parts' media types.
            MethodNotFoundError: The skill does not exist any more.
        """
        skill, message = self.setup.skills.get(record.skill), request.message
        pause = Pause.unpack(record.resume or b"")
        message.task_id, message.context_id = record.task.id, record.task.context_id
        inputs, other_parts, approved = pause.inputs, pause.parts, None
        if pause.wants_verdict:
            approved = approval_in(message, pause)
        elif pause.question is not None:
            # the module runs again from its beginning, so it needs its earlier inputs too
            added_inputs, other_parts = await self._split(message.parts, skill)
            inputs = {**inputs, **added_inputs}
        detached = is_detached(request, streaming)
        answer = [to_builtins(part) for part in message.parts]
        call = Call(
            skill,
            inputs,
            message,
            caller,
            streaming,
            other_parts,
            has_history=True,
            detached=detached,
            # the approvals and the token take effect only if the answer is a yes
            approvals=pause.approved(),
            token=pause.token,
            metadata={**request.metadata, **message.metadata},
            resumption=Resumption(answer, approved, pause.state),
            wants_text=wants_text(request, skill),
        )
        return call, pause

    async def _split(self, parts: Sequence[Part], skill: Skill) -> tuple[dict[str, Any], list[Any]]:
        """Split parts into the inputs of *skill* and other parts, these as JSON."""
        converter = self.setup.converter
        if is_large([part.data for part in parts]):
            return await large_values.call(split_parts, converter, parts, skill)
        return split_parts(converter, parts, skill)

    def _check_message(self, message: Message) -> None:
        if not message.parts:
            raise InvalidParamsError("Message must contain at least one Part")
        if len(message.parts) > self.max_parts:
            raise invalid("message.parts", f"must have at most {self.max_parts} parts")
        for field in ("message_id", "context_id", "task_id"):
            identifier = getattr(message, field)
            if len(identifier) > MAX_ID or CONTROL.search(identifier):
                reason = f"must have at most {MAX_ID} characters, and no control characters"
                raise invalid(f"message.{field}", reason)
        message.message_id = message.message_id or new_id()


def _skill_of(request: SendMessageRequest, caller: Caller) -> str | None:
    """Return the skill that a message names, or that of its tenant.

    Raises:
        InvalidParamsError: The tenant has another skill.
    """
    skill_id = named_skill(request)
    if caller.tenant is None:
        return skill_id
    if skill_id not in (None, caller.tenant.skill_id):
        raise invalid("metadata.skillId", f"must be {caller.tenant.skill_id}, or be omitted")
    return caller.tenant.skill_id


def _check_resumable(record: TaskRecord, message: Message, skill_id: str | None) -> None:
    """Raise the error for a message that its task cannot accept now."""
    if message.context_id not in ("", record.task.context_id):
        raise InvalidParamsError("The task belongs to another context; omit contextId")
    state = record.task.status.state
    if state not in PAUSED and not is_late_answer(record.task, message):
        raise UnsupportedOperationError(f"A task in state {NAMES[state]} accepts no messages")
    if skill_id not in (None, record.skill):
        raise InvalidParamsError("The task belongs to another skill; omit metadata.skillId")
