"""Remote agents from the configuration of the command."""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from apcore_a2a_client import APIKey

from .agent import RemoteAgent
from .receiver import WebhookReceiver

KEYS: dict[str, Any] = {
    "name": str,
    "server_url": str,
    "timeout": (int, float),
    "user_agent": str,
    "token": str,
    "api_key": str,
    "approve": str,
    "expose": bool,
    "max_open": int,
    "card_ttl": (int, float),
    "trust": str,
    "wait": str,
    "webhook_url": str,
    "protocol": str,
}
"""Keys of a remote agent in the config file, and the types of their values."""
TOKEN_VARIABLE = "APCORE_A2A_REMOTE_TOKEN_"
"""The environment variable with a bearer token for an agent, whose name follows."""
KEY_VARIABLE = "APCORE_A2A_REMOTE_KEY_"
"""The environment variable with an API key for an agent, whose name follows."""
DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?")
SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}


def remote_agents(entries: Sequence[str | Mapping[str, Any]], *, expose: bool) -> list[RemoteAgent]:
    """Return remote agents as the command and its config file describe them.

    Args:
        entries: `NAME=URL`, or an object with the keys of the config file.
        expose: Whether the skills of an agent that does not say so are exposed.

    Raises:
        ValueError: An entry is invalid; the message does not contain its values.

    >>> remote_agents(["weather=https://weather.example.com"], expose=False)
    [<RemoteAgent weather>]
    """
    agents = [_agent(_members(entry), expose=expose) for entry in entries]
    names = [agent.name for agent in agents]
    if doubled := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"two remote agents are named {min(doubled)}")
    return agents


def _members(entry: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of an entry.

    Raises:
        ValueError: It has unknown keys, or values of other types.
    """
    if isinstance(entry, str):
        name, separator, url = entry.partition("=")
        if not separator:
            raise ValueError("takes NAME=URL")
        return {"name": name.strip(), "server_url": url.strip()}
    members = {str(key): value for key, value in entry.items() if value is not None}
    for key, value in members.items():
        if key not in KEYS:
            raise ValueError(f"has the unknown key {key}; known are {', '.join(KEYS)}")
        is_duration = key == "timeout" and isinstance(value, str)
        is_wrong_bool = isinstance(value, bool) and KEYS[key] is not bool
        if is_wrong_bool or not (isinstance(value, KEYS[key]) or is_duration):
            raise ValueError(f"has a value of the wrong type for {key}")
    for key in ("name", "server_url"):
        if key not in members:
            raise ValueError(f"has an entry without {key}")
    return members


def _agent(members: dict[str, Any], *, expose: bool) -> RemoteAgent:
    name, url = members.pop("name"), members.pop("server_url")
    token = members.pop("token", None) or os.environ.get(TOKEN_VARIABLE + name.upper())
    api_key = members.pop("api_key", None) or os.environ.get(KEY_VARIABLE + name.upper())
    auth = f"Bearer {token}" if token else APIKey(api_key) if api_key else None
    if "timeout" in members:
        members["timeout"] = seconds_of(members["timeout"])
    webhook_url = members.pop("webhook_url", None)
    if webhook_url is not None:
        members["receiver"] = WebhookReceiver(webhook_url)
    members.setdefault("expose", expose)
    return RemoteAgent(url, name=name, auth=auth, **members)


def seconds_of(duration: float | str) -> float:
    """Return a duration in seconds.

    Raises:
        ValueError: It is no duration.

    >>> seconds_of("1.5m")
    90.0
    """
    if not isinstance(duration, str):
        return float(duration)
    match = DURATION.fullmatch(duration.strip())
    if match is None:
        raise ValueError("has a timeout that is no duration such as 30s")
    return float(match[1]) * SECONDS[match[2]]
