"""What `apcore-a2a serve` makes of its `--push-…` options."""

from importlib import import_module
from typing import Any

PREFIX = "push_"
SWITCH = "push_notifications"


def notifications(options: dict[str, Any]) -> Any:
    """How webhooks are called by *options*, from which it takes its own; False when they are not.

    Raises:
        ValueError: They make no sense; the text tells which, and what would.
    """
    wanted = options.pop(SWITCH, False)
    dev = options.pop("dev", False)
    names = [name for name in options if name.startswith(PREFIX)]
    chosen = {name.removeprefix(PREFIX): options.pop(name) for name in names}
    if not wanted:
        if names:
            raise ValueError(f"{_flag(names[0])} needs --push-notifications")
        return False
    package: Any = import_module("apcore_a2a_server.push")
    try:
        return package.PushSettings(dev=dev, **chosen)
    except ValueError as error:
        option, _, problem = str(error).partition(" ")
        raise ValueError(f"{_flag(PREFIX + option)} {problem}") from None


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
