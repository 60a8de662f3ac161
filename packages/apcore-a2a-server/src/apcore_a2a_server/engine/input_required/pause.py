"""A paused call: what it asks for, and how it goes on (FR-EXE-002, FR-CTX-003)."""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from a2a.types import Message, Part
from apcore_a2a_core import clean, to_value
from apcore_a2a_core.dialects import carried
from apcore_a2a_core.states import INPUT_REQUIRED

from apcore_a2a_server.engine.call import Call
from apcore_a2a_server.engine.change import NewState
from apcore_a2a_server.modules.approval import Approvals
from apcore_a2a_server.modules.conversation import is_for_input

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
        expires: When nobody need answer any more, in seconds since the epoch.
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
        """What the task says when nobody has answered in time."""
        what = "Approval" if self.question is None else "The question"
        return f"{what} expired: nobody has answered in time"

    def approved(self) -> Approvals:
        """What has been approved when the client says yes."""
        return Approvals([*self.granted, *([self.asked] if self.asked else ())], self.done)


def is_over(packed: bytes | None) -> bool:
    """Whether it is too late to answer a packed pause."""
    return packed is not None and Pause.unpack(packed).is_over()


def question(pause: Pause) -> list[Part]:
    """What the task says: for people, and as data."""
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
