"""Everything that can refuse a message before a task exists or goes on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from a2a.types import Message, SendMessageRequest
from a2a.utils.errors import (
    InvalidParamsError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from apcore_a2a_core import PartConverter, PartError, TaskRecord, from_value

from .decode import invalid
from .ids import new_id
from .journal import Journal, Query
from .skills import Skill, Skills
from .states import INPUT_REQUIRED, PAUSED


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request: the principal its tasks belong to, and what came along."""

    owner: str = ""
    identity: Any = None
    headers: Mapping[str, str] = field(default_factory=lambda: {})


ANONYMOUS = Caller()


@dataclass(frozen=True, slots=True)
class Call:
    """A message that may run: which skill with what input, as which task."""

    skill: Skill
    inputs: dict[str, Any]
    message: Message
    caller: Caller
    task_id: str
    context_id: str
    rest: Sequence[Any] = ()
    """The parts of the message that are not the input."""
    streaming: bool = False
    granted: frozenset[str] = frozenset()
    """The calls that have been approved, as `approval.key` names them."""
    token: str | None = None
    """The approval id to resume with, when the executor has its user's approval handler."""


class Admission:
    """Turns requests into calls, or refuses them."""

    def __init__(
        self,
        skills: Skills,
        journal: Journal,
        converter: PartConverter,
        default_skill: str | None = None,
    ) -> None:
        self._skills = skills
        self._journal = journal
        self._converter = converter
        self._default_skill = default_skill

    async def paused(self, request: SendMessageRequest, caller: Caller) -> TaskRecord | None:
        """The paused task that the message goes on with; None when it starts a new one.

        Raises:
            TaskNotFoundError: There is no such task, or it is somebody else's.
            UnsupportedOperationError: The task is working or has ended.
            InvalidParamsError: The message contradicts the task.
        """
        message = request.message
        skill_id = self._named_skill(request)
        if message.task_id:
            record = await self.own_task(message.task_id, caller)
            return _resumable(record, message, skill_id)
        if not message.context_id:
            return None
        query = Query(caller.owner, message.context_id, state=INPUT_REQUIRED, limit=200)
        found = (await self._journal.page(query)).records
        return next((record for record in found if skill_id in (None, record.skill)), None)

    async def own_task(self, task_id: str, caller: Caller) -> TaskRecord:
        """The record of the caller's own task.

        Raises:
            TaskNotFoundError: There is no such task, or it is somebody else's.
        """
        record = await self._journal.get(task_id)
        if record is None or record.owner != caller.owner:
            raise TaskNotFoundError
        return record

    def call(
        self,
        request: SendMessageRequest,
        caller: Caller,
        parts: Sequence[Any] | None,
        *,
        streaming: bool,
    ) -> Call:
        """The call of a new task.

        Args:
            request: The request in the SDK's types.
            caller: Who sent it.
            parts: The message's parts as they came in JSON, where integers are exact.
            streaming: Whether the module's own stream is wanted.

        Raises:
            InvalidParamsError: No skill is named, or the parts are no input for it.
            MethodNotFoundError: The skill does not exist.
        """
        skill_id = self._named_skill(request) or self._default_skill
        if not skill_id:
            raise InvalidParamsError("Missing required parameter: metadata.skillId")
        skill = self._skills.get(skill_id)
        inputs, rest = self._split(parts or request.message.parts, skill)
        context_id = request.message.context_id or new_id()
        task_id = new_id()
        message = request.message
        message.task_id, message.context_id = task_id, context_id
        return Call(skill, inputs, message, caller, task_id, context_id, rest, streaming)

    def _split(self, parts: Sequence[Any], skill: Skill) -> tuple[dict[str, Any], Sequence[Any]]:
        try:
            given, rest = self._converter.split(parts, skill.descriptor)
        except PartError as error:
            raise InvalidParamsError(str(error)) from None
        return given if isinstance(given, dict) else {"text": given}, rest

    def _named_skill(self, request: SendMessageRequest) -> str | None:
        """The skill the request names: in its metadata, else in its message's."""
        for metadata in (request.metadata, request.message.metadata):
            if "skillId" in metadata.fields:
                skill_id = from_value(metadata.fields["skillId"])
                if not isinstance(skill_id, str):
                    raise invalid("metadata.skillId", "must be a string")
                return skill_id
        return None


def _resumable(record: TaskRecord, message: Message, skill_id: str | None) -> TaskRecord:
    if message.context_id not in ("", record.task.context_id):
        raise InvalidParamsError("The task belongs to another context")
    if record.task.status.state not in PAUSED:
        raise UnsupportedOperationError("The task does not accept messages in its state")
    if skill_id not in (None, record.skill):
        raise InvalidParamsError("The task belongs to another skill")
    return record
