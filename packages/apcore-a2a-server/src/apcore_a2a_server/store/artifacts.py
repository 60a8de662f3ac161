"""Functions that append parts to an artifact, and join its texts."""

from collections.abc import Iterable
from math import inf

from apcore_a2a_core.data import Part, Task
from msgspec import UNSET
from msgspec.structs import replace

MAX_JOINED = 16 * 1024
"""Length in characters at which a text part is full, so that further text becomes a new part.

Without a limit, adding a token to a long text would copy the whole text.
"""


def append_parts(
    parts: list[Part], new_parts: Iterable[Part], max_joined: float = MAX_JOINED
) -> None:
    """Append parts to a list.

    A text joins the last part of the list if both can become one part (see `_are_joinable`) and the
    last part has under *max_joined* characters.
    """
    for part in new_parts:
        is_joinable = bool(parts) and _are_joinable(parts[-1], part)
        if is_joinable and len(parts[-1].text or "") < max_joined:
            # a new part, since readers may hold the old one
            parts[-1] = replace(part, text=f"{parts[-1].text}{part.text}")
        else:
            parts.append(part)


def _are_joinable(part: Part, next_part: Part) -> bool:
    """Return whether both parts are texts that can become one part."""
    return (
        part.text is not UNSET
        and next_part.text is not UNSET
        and part.media_type == next_part.media_type
        and not (part.filename or part.metadata or next_part.filename or next_part.metadata)
    )


def join_texts(task: Task) -> None:
    """Join the neighboring texts in the artifact of a task that has ended or paused."""
    artifact, parts = task.artifacts[0], list[Part]()
    append_parts(parts, artifact.parts, inf)
    task.artifacts = [replace(artifact, parts=parts)]
