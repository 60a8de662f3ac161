"""Messages that the commands send to agents."""

import json
from collections.abc import Sequence
from typing import Any

from apcore_a2a_client import AgentCard, Message, Part

JSON_MODES = ("application/json", "application/*", "*/*", "*")
"""Input modes that include JSON."""


def takes_text_only(card: AgentCard, skill_id: str | None) -> bool:
    """Return whether a skill, or else the agent, declares that it takes text but no JSON."""
    skill = card.skill(skill_id or "")
    modes = (skill.input_modes if skill else ()) or card.default_input_modes
    types = [mode.partition(";")[0].strip() for mode in modes]
    takes_text = any(media_type.startswith("text/") for media_type in types)
    return takes_text and not any(media_type in JSON_MODES for media_type in types)


def message_of(content: Any, files: Sequence[Part] = (), *, text_only: bool = False) -> Message:
    """Return a message with an input, followed by files.

    Args:
        content: The input. None sends only the files, or an empty object if there are none.
        files: The files.
        text_only: Whether to send *content* as text, for agents that take no JSON.
    """
    default: list[Part] = [] if files else [Part(data={})]
    if text_only and not isinstance(content, str | None):
        content = json.dumps(content, ensure_ascii=False)
    inputs = default if content is None else [Part.of(content)]
    return Message.of([*inputs, *files])
