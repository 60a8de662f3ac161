"""What has been approved for a task."""

import json
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any


def call_key(skill_id: str, arguments: Mapping[str, Any]) -> str:
    """One call that needs approval, as canonical text.

    Raises:
        TypeError: The arguments are not JSON.
    """
    return json.dumps([skill_id, arguments], sort_keys=True)


class Approvals:
    """What has been approved for a task, and what came of it.

    A task that goes on after a pause runs its module from the beginning. The calls that were
    approved on the way and have been made by then are not made again: they give what they gave.
    Each approval is for one call; the same call once more needs another one.

    Args:
        granted: The calls that have been approved, as `call_key` names them.
        done: What those of them gave that have been made.
    """

    def __init__(
        self, granted: list[str] | None = None, done: dict[str, list[Any]] | None = None
    ) -> None:
        self.granted = granted or []
        self.done = done or {}
        self.asked: str | None = None
        """The call that approval was asked for last."""
        self._seen: Counter[str] = Counter()
        self._calls: dict[int, tuple[Any, str, int]] = {}

    def admit(self, key: str, context: Any) -> bool:
        """Whether a call may be made; if not, it is the one that approval is asked for."""
        self._seen[key] += 1
        if self._seen[key] > self.granted.count(key):
            self.asked = key
            return False
        self._calls[id(context)] = (context, key, self._seen[key])
        return True

    def result(self, context: Any) -> tuple[bool, Any]:
        """Whether the call has been made in an earlier run, and what it gave."""
        _, key, number = self._calls.get(id(context), (None, "", 0))
        made = self.done.get(key, [])
        return (True, made[number - 1]) if 0 < number <= len(made) else (False, None)

    def keep(self, context: Any, output: Any) -> None:
        """Remember what an approved call gave, if that is JSON."""
        _, key, _ = self._calls.pop(id(context), (None, "", 0))
        with suppress(TypeError, ValueError):
            if key:
                self.done.setdefault(key, []).append(json.loads(json.dumps(output)))
