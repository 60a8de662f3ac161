"""Everything that can refuse a message before a task exists or goes on."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from a2a import types as a2a
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError, UnsupportedOperationError
from apcore_a2a_core import PartError
from apcore_a2a_core.dialects import invalid
from apcore_a2a_core.states import INPUT_REQUIRED, PAUSED

from apcore_a2a_server.middleware import log_context
from apcore_a2a_server.modules.skills import Skill
from apcore_a2a_server.store import Query, TaskRecord

from .call import Call
from .clients import Caller
from .messages import as_json, is_detached, named_skill, new_id, send_key
from .pauses import Pause, is_late_answer, is_over
from .setup import Setup

MAX_ID = 256
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class Admission:
    """Turns requests into calls, or refuses them.

    Attributes:
        setup: What runs share.
        default_skill: The skill of messages that name none.
        max_parts: How many parts a message may have.
    """

    setup: Setup
    default_skill: str | None = None
    max_parts: int = 1000

    async def check_access(self, request: a2a.SendMessageRequest, caller: Caller) -> None:
        """Refuse a caller who may not call the skill, as if there were no such task.

        apcore's own step does so for every call that gets there; this is for what is refused
        before, so that the refusal tells nothing of the skill.

        Raises:
            TaskNotFoundError: The caller may not.
        """
        skill_id = named_skill(request) or self.default_skill or ""
        verdicts = await self.setup.access.verdicts([skill_id], caller.identity)
        if skill_id and not verdicts[skill_id].allowed:
            raise TaskNotFoundError

    async def own_task(self, task_id: str, caller: Caller) -> TaskRecord:
        """The record of the caller's own task.

        Raises:
            TaskNotFoundError: There is no such task, or it is somebody else's.
        """
        record = await self.setup.tasks.get_own(task_id, caller.owner)
        if record is None:
            raise TaskNotFoundError
        log_context(task=record.task.id, skill=record.skill)
        return record

    async def addressed(self, request: a2a.SendMessageRequest, caller: Caller) -> TaskRecord | None:
        """The task that the message goes on with; None when it starts a new one.

        It is paused, or has been: one more answer to a question that is answered gets it as it is.

        Raises:
            TaskNotFoundError: There is no such task, or it is somebody else's.
            UnsupportedOperationError: The task is working or has ended.
            InvalidParamsError: The message is malformed, or contradicts the task.
        """
        message, skill = request.message, named_skill(request)
        self._check(message)
        if message.task_id:
            record = await self.own_task(message.task_id, caller)
            return _resumable(record, message, skill)
        if not message.context_id:
            return None
        query = Query(caller.owner, message.context_id, state=INPUT_REQUIRED, limit=200)
        found = (await self.setup.tasks.store.query(query)).records
        return next((r for r in found if skill in (None, r.skill) and not is_over(r.resume)), None)

    def call(
        self,
        request: a2a.SendMessageRequest,
        caller: Caller,
        parts: Sequence[Any] | None,
        *,
        streaming: bool,
    ) -> Call:
        """The call of a new task, whose ids the message gets.

        Args:
            request: The request in the SDK's types.
            caller: Who sent it.
            parts: The message's parts as they came in JSON, where integers are exact.
            streaming: Whether the module's own stream is wanted.

        Raises:
            InvalidParamsError: No skill is named, or the parts are no input for it.
            MethodNotFoundError: The skill does not exist.
        """
        skill_id = named_skill(request) or self.default_skill
        if not skill_id:
            raise InvalidParamsError("Missing required parameter: metadata.skillId")
        skill, message = self.setup.skills.get(skill_id), request.message
        inputs, rest = self._input(parts or message.parts, skill)
        continues, key = bool(message.context_id), send_key(request, caller.headers)
        message.task_id = new_id()
        message.context_id = message.context_id or new_id()
        detached = is_detached(request, streaming)
        log_context(task=message.task_id, skill=skill_id)
        call = Call(skill, inputs, message, caller, streaming, rest, continues, detached)
        return replace(call, key=key) if key else call

    def reply(
        self,
        record: TaskRecord,
        request: a2a.SendMessageRequest,
        caller: Caller,
        parts: Sequence[Any] | None,
        *,
        streaming: bool,
    ) -> tuple[Call, Pause]:
        """The call with which a paused task goes on if the message says so.

        Raises:
            InvalidParamsError: More input is asked for, and the parts are none.
            MethodNotFoundError: The skill does not exist any more.
        """
        skill, message = self.setup.skills.get(record.skill), request.message
        pause = Pause.unpack(record.resume or b"")
        message.task_id, message.context_id = record.task.id, record.task.context_id
        inputs, rest = pause.inputs, pause.parts
        if pause.question is not None:
            more, rest = self._input(parts or message.parts, skill)
            inputs = {**inputs, **more}
        detached = is_detached(request, streaming)
        call = Call(skill, inputs, message, caller, streaming, rest, True, detached)
        return replace(call, approvals=pause.approved(), token=pause.token), pause

    def _input(self, parts: Sequence[Any], skill: Skill) -> tuple[dict[str, Any], list[Any]]:
        """The inputs that a message has for a skill, and its other parts as JSON."""
        try:
            given, rest = self.setup.converter.split(parts, skill.descriptor)
        except PartError as error:
            raise InvalidParamsError(str(error)) from None
        inputs = given if isinstance(given, dict) else {"text": given}
        return inputs, [as_json(part) for part in rest]

    def _check(self, message: a2a.Message) -> None:
        if not message.parts:
            raise InvalidParamsError("Message must contain at least one Part")
        if len(message.parts) > self.max_parts:
            raise invalid("message.parts", f"must be at most {self.max_parts}")
        for name in ("message_id", "context_id", "task_id"):
            value = getattr(message, name)
            if len(value) > MAX_ID or CONTROL.search(value):
                raise invalid(f"message.{name}", f"must have at most {MAX_ID} plain characters")
        message.message_id = message.message_id or new_id()
        message.role = a2a.Role.ROLE_USER  # whatever it says of itself


def _resumable(record: TaskRecord, message: a2a.Message, skill_id: str | None) -> TaskRecord:
    if message.context_id not in ("", record.task.context_id):
        raise InvalidParamsError("The task belongs to another context")
    if record.task.status.state not in PAUSED and not is_late_answer(record.task, message):
        raise UnsupportedOperationError("The task takes no messages now")
    if skill_id not in (None, record.skill):
        raise InvalidParamsError("The task belongs to another skill")
    return record
