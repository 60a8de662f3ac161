"""Tasks that wait for an answer: what is asked, what answers mean, how long there is.

FR-EXE-002 asks for approvals, FR-CTX-003 for the answers.
"""

import asyncio
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from a2a.types import Message, Part, Role, Task
from apcore_a2a_core import clean, from_value, load_json, to_value
from apcore_a2a_core.dialects import carried
from apcore_a2a_core.schema import is_object
from apcore_a2a_core.states import FAILED, INPUT_REQUIRED, PAUSED, REJECTED, WORKING

from apcore_a2a_server.errors import StaleTaskError
from apcore_a2a_server.modules.approval import Approvals
from apcore_a2a_server.modules.conversation import is_for_input
from apcore_a2a_server.store.live import LiveTasks

from .call import Call
from .change import NewState, change
from .messages import say
from .process import Background

MAX_QUESTION = 10_000
MAX_SHOWN = 20
MAX_VALUE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A call that waits for an answer: all that is needed to go on with it.

    Attributes:
        id: Of this pause; each question has a new one.
        skill_id: The skill that was called.
        inputs: What it was called with.
        parts: The other parts of its message.
        expires: When the answer is too late, in seconds since the epoch.
        granted: The calls that have been approved, as `call_key` names them.
        done: What those of them gave that have been made.
        asked: The call that approval is asked for.
        token: The approval id to go on with, when the executor has its user's handler.
        question: What a module asks for, when it is input and not approval.
        data: What goes with the question.
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

    @classmethod
    def after(cls, error: BaseException, call: Call, seconds: float) -> "Pause":
        """The pause that *error* leads to: for input, or for approval.

        Args:
            error: What was raised.
            call: The call that pauses.
            seconds: How long there is for an answer.
        """
        found = cls(
            id=str(uuid4()),
            skill_id=call.skill.id,
            inputs=call.inputs,
            expires=time.time() + seconds,
            parts=[*call.rest],
            granted=call.approvals.granted,
            done=call.approvals.done,
        )
        if is_for_input(error):
            details: dict[str, Any] = getattr(error, "details", None) or {}
            question = str(getattr(error, "message", ""))
            return replace(found, question=question, data=details.get("data"))
        asked = call.approvals.asked
        token = getattr(error, "approval_id", None) if asked is None else None
        return replace(found, asked=asked, token=token)

    def pack(self) -> bytes:
        """The pause as a store keeps it."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def unpack(cls, data: bytes) -> "Pause":
        """The pause that *data* was made of."""
        return cls(**json.loads(data))

    def is_over(self) -> bool:
        """Whether it is too late for an answer."""
        return self.expires <= time.time()

    def over(self) -> str:
        """Return the status text for an answer that has not come in time."""
        what = "Approval" if self.question is None else "The question"
        return f"{what} expired: nobody has answered in time"

    def approved(self) -> Approvals:
        """Return the approvals that a yes of the client adds up to."""
        return Approvals([*self.granted, *([self.asked] if self.asked else ())], self.done)


def is_over(packed: bytes | None) -> bool:
    """Whether it is too late to answer a packed pause."""
    return packed is not None and Pause.unpack(packed).is_over()


def question(pause: Pause) -> list[Part]:
    """Return the question as parts: for people, and as data."""
    if pause.question is not None:
        more = {} if pause.data is None else {"data": pause.data}
        document = {"id": pause.id, "skill": pause.skill_id, **more}
        return _parts(pause.question[:MAX_QUESTION], "input", document, pause.expires)
    # approval may be asked for a call that the skill makes
    skill_id, arguments = json.loads(pause.asked or "null") or (pause.skill_id, pause.inputs)
    if (skill_id, arguments) == (pause.skill_id, pause.inputs):
        arguments = pause.inputs  # in their own order
    text = "\n".join([f"Approval required for module {skill_id}", *_told(arguments)])
    by = "client" if pause.token is None else "server"
    document = {"id": pause.id, "skill": skill_id, "arguments": arguments, "decidedBy": by}
    return _parts(text, "approval", document, pause.expires)


def asking(pause: Pause, text: Message) -> NewState:
    """The state in which a task waits for the answer to *pause*."""
    return NewState(INPUT_REQUIRED, text, resume=pause.pack(), deadline=pause.expires)


def _parts(text: str, kind: str, document: dict[str, Any], expires: float) -> list[Part]:
    moment = datetime.fromtimestamp(expires, UTC).isoformat(timespec="seconds")
    document["expiresAt"] = moment.replace("+00:00", "Z")
    return [
        Part(text=to_value(text).string_value),
        Part(data=carried({kind: document}), media_type="application/json"),
    ]


def _told(arguments: Mapping[str, Any]) -> list[str]:
    """Arguments as people read them, a line each."""
    lines = [
        f"{clean(name, MAX_VALUE).replace('_', ' ')}: {_value(arguments[name])}"
        for name in [*arguments][:MAX_SHOWN]
    ]
    more = len(arguments) - MAX_SHOWN
    return [*lines, f"… and {more} more"] if more > 0 else lines


def _value(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    shown = clean(text, MAX_VALUE)
    return shown if len(text) <= MAX_VALUE else f"{shown}…"


YES = frozenset({"yes", "y", "approve", "approved", "ok"})
NO = frozenset({"no", "n", "deny", "denied", "reject", "rejected"})
HOW_TO_ANSWER = 'Please answer yes or no, or {"approved": true} or {"approved": false}'


def answered(pause: Pause, message: Message) -> NewState:
    """The state that a message brings the task of *pause* into."""
    agreed = verdict(pause, message)
    if agreed:
        return NewState(WORKING, received=message)
    if agreed is False:
        return NewState(REJECTED, say(message, "Rejected by client"), received=message)
    again = say(message, HOW_TO_ANSWER, *question(pause)[1:])
    return replace(asking(pause, again), received=message)


def verdict(pause: Pause, message: Message) -> bool | None:
    """Whether the call goes on: yes, no (it is rejected), or None when that is not clear.

    A question for input is answered by any message; so is one that the executor's own approval
    handler decides.
    """
    if pause.token is not None or pause.question is not None:
        return True
    approved, pause_id = _said(message)
    return approved if pause_id in (None, pause.id) else None


def is_late_answer(task: Task, message: Message) -> bool:
    """Whether *message* answers a question of *task* that is answered already."""
    asked = False
    for said in task.history:
        if asked and said.role == Role.ROLE_USER:
            return _said(message)[0] is not None
        ours = said.role == Role.ROLE_AGENT
        asked |= ours and any("approval" in part.data.struct_value for part in said.parts)
    return False


def _said(message: Message) -> tuple[bool | None, Any]:
    """Return a message's answer to a request for approval, and to which; None if unclear.

    Its texts, and the data that say whether it is approved, have to say the same.
    """
    found = [_part(part) for part in message.parts if not _is_aside(part)]
    agree = found and all(answer == found[0] for answer in found)
    return found[0] if agree else (None, None)


def _is_aside(part: Part) -> bool:
    """Whether a part is no answer, and no words either."""
    return not part.HasField("text") and "approved" not in part.data.struct_value


def _part(part: Part) -> tuple[bool | None, Any]:
    value: Any = None
    with suppress(ValueError):
        value = from_value(part.data) if part.HasField("data") else load_json(part.text)
    if is_object(value) and isinstance(value.get("approved"), bool):
        return value["approved"], value.get("approvalId")
    word = part.text.strip().rstrip(".!").lower()
    return (word in YES, None) if word in YES | NO else (None, None)


class Expiries:
    """Fails tasks whose question has not been answered when its time is over.

    A task that was paused by an earlier process fails when an answer comes too late.

    Args:
        tasks: Where tasks live.
    """

    def __init__(self, tasks: LiveTasks) -> None:
        self._tasks = tasks
        self._timers: dict[str, tuple[str, asyncio.TimerHandle]] = {}
        self._background = Background()

    def expect(self, about: Message, pause: Pause) -> None:
        """Wait for the answer to *pause* in the task of *about*, as long as it may take."""
        self.forget(about.task_id)
        seconds = max(pause.expires - time.time(), 0)
        loop = asyncio.get_running_loop()
        timer = loop.call_later(seconds, self._on_time, about, pause)
        self._timers[about.task_id] = pause.id, timer

    def forget(self, task_id: str, pause_id: str | None = None) -> None:
        """The task has ended, or the pause with this id has been answered."""
        known, timer = self._timers.get(task_id, (None, None))
        if timer is not None and pause_id in (None, known):
            timer.cancel()
            del self._timers[task_id]

    def forget_all(self) -> None:
        """The server ends; what is paused stays so."""
        for task_id in [*self._timers]:
            self.forget(task_id)

    async def end(self, about: Message, pause: Pause) -> None:
        """Fail the task, if it still waits for the answer to *pause*."""
        self.forget(about.task_id)
        update = NewState(FAILED, say(about, pause.over()))
        with suppress(StaleTaskError):
            packed = pause.pack()
            await change(self._tasks, about.task_id, update, expect=PAUSED, pause=packed)

    def _on_time(self, about: Message, pause: Pause) -> None:
        self._background.start(self.end(about, pause), "Failing a task that was not answered")
