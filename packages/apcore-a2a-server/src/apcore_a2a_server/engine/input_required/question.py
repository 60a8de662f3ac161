"""What a paused task asks (FR-EXE-002)."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from a2a.types import Message, Part
from apcore_a2a_core import clean, to_value
from apcore_a2a_core.dialects import carried
from apcore_a2a_core.states import INPUT_REQUIRED

from apcore_a2a_server.engine.updates import NewState
from apcore_a2a_server.modules import Pause

MAX_QUESTION = 10_000
MAX_SHOWN = 20
MAX_VALUE = 200


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
