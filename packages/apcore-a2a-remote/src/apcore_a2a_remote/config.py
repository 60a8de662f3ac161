"""Remote agents from the command line or the config file."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from apcore_a2a_client import APIKey, ClientCredentials

from .agent import RemoteAgent
from .connection import import_auth
from .receiver import WebhookReceiver

KEYS: dict[str, Any] = {
    "name": str,
    "server_url": str,
    "timeout": (int, float, str),
    "user_agent": str,
    "private_hosts": (str, list),
    "token": str,
    "api_key": str,
    "client_id": str,
    "client_secret": str,
    "issuer": str,
    "token_url": str,
    "scope": str,
    "mint": Mapping,
    "approve": str,
    "expose": bool,
    "max_open": int,
    "card_ttl": (int, float),
    "trust": str,
    "card_keys": (str, list),
    "wait": str,
    "webhook_url": str,
    "protocol": str,
}
"""Keys of a remote agent in the config file, and the types of their values."""
MINT_KEYS: dict[str, Any] = {
    "key": (str, list),
    "audience": str,
    "issuer": str,
    "lifetime": (int, float, str),
}
"""Keys of the object `mint` in the config file, and the types of their values."""
TOKEN_VARIABLE = "APCORE_A2A_REMOTE_TOKEN_"
"""Prefix of the environment variable with a bearer token; the agent's upper-case name follows."""
KEY_VARIABLE = "APCORE_A2A_REMOTE_KEY_"
"""Prefix of the environment variable with an API key; the agent's upper-case name follows."""
SECRET_VARIABLE = "APCORE_A2A_REMOTE_SECRET_"
"""Prefix of the environment variable with a client secret; the agent's upper-case name follows."""
DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?")
SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}


def remote_agents(entries: Sequence[str | Mapping[str, Any]], *, expose: bool) -> list[RemoteAgent]:
    """Return the remote agents that the command line or the config file describes.

    Args:
        entries: `NAME=URL`, or an object with the keys of the config file.
        expose: The value of `expose` for entries without it.

    Raises:
        ValueError: An entry is invalid. The message is meant to follow the name of the option, and
            does not contain the secrets of the entry.
        ImportError: An entry needs `apcore-a2a-auth`, which is not installed.

    >>> remote_agents(["weather=https://weather.example.com"], expose=False)
    [<RemoteAgent weather>]
    """
    agents = [_new_agent(_parse_entry(entry), expose=expose) for entry in entries]
    names = [agent.name for agent in agents]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"gives two agents the name {min(repeated)}")
    return agents


def _parse_entry(entry: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of an entry.

    Raises:
        ValueError: A member is missing or unknown, or a value has the wrong type.
    """
    if isinstance(entry, str):
        name, separator, url = entry.partition("=")
        if not separator:
            raise ValueError("takes NAME=URL")
        return {"name": name.strip(), "server_url": url.strip()}
    members = _check_members(entry, KEYS, "")
    for key in ("name", "server_url"):
        if key not in members:
            raise ValueError(f"has an entry without {key}")
    return members


def _check_members(
    entry: Mapping[str, Any], keys: Mapping[str, Any], prefix: str
) -> dict[str, Any]:
    """Return the members of *entry* that have a value.

    Raises:
        ValueError: A key is unknown, or a value has the wrong type.
    """
    members = {str(key): value for key, value in entry.items() if value is not None}
    for key, value in members.items():
        if key not in keys:
            raise ValueError(f"has the unknown key {prefix}{key}; known keys: {', '.join(keys)}")
        is_wrong_bool = isinstance(value, bool) and keys[key] is not bool
        if is_wrong_bool or not isinstance(value, keys[key]):
            raise ValueError(f"has a value of the wrong type for {prefix}{key}")
    return members


def _new_agent(members: dict[str, Any], *, expose: bool) -> RemoteAgent:
    name, url = members.pop("name"), members.pop("server_url")
    auth = _pop_credentials(members, name)
    if "mint" in members:
        members["forward"] = _forward_function(members.pop("mint"), url)
    if "card_keys" in members:
        members["verify_card"] = _card_verifier(members.pop("card_keys"), members.get("trust"))
    if "timeout" in members:
        members["timeout"] = seconds_of(members["timeout"])
    if "private_hosts" in members:
        members["private_hosts"] = _text_list(members["private_hosts"])
    webhook_url = members.pop("webhook_url", None)
    if webhook_url is not None:
        members["receiver"] = WebhookReceiver(webhook_url)
    members.setdefault("expose", expose)
    return RemoteAgent(url, name=name, auth=auth, **members)


def _pop_credentials(members: dict[str, Any], name: str) -> Any:
    """Remove an agent's credentials from *members*; return them, or those in the environment.

    Raises:
        ValueError: Several kinds of credentials are given, or a part of them is missing.
    """
    upper = name.upper()
    token = members.pop("token", None) or os.environ.get(TOKEN_VARIABLE + upper)
    api_key = members.pop("api_key", None) or os.environ.get(KEY_VARIABLE + upper)
    oauth_keys = ("client_secret", "issuer", "token_url", "scope")
    given_keys = [key for key in oauth_keys if key in members]
    secret = members.pop("client_secret", None) or os.environ.get(SECRET_VARIABLE + upper)
    client_id = members.pop("client_id", None)
    oauth = {key: members.pop(key) for key in ("issuer", "token_url", "scope") if key in members}
    if sum(map(bool, (token, api_key, client_id))) > 1:
        raise ValueError("takes only one of token, api_key and client_id")
    if client_id:
        if not secret:
            raise ValueError(f"needs the secret for client_id in {SECRET_VARIABLE}{upper}")
        return ClientCredentials(client_id=client_id, client_secret=secret, **oauth)
    if given_keys:
        raise ValueError(f"needs client_id for {min(given_keys)}")
    return f"Bearer {token}" if token else APIKey(api_key) if api_key else None


def _forward_function(mint: Mapping[str, Any], url: str) -> Any:
    """Return the function that mints a token for each caller.

    Raises:
        ValueError: *mint* is invalid, or the key is not usable.
    """
    members = _check_members(mint, MINT_KEYS, "mint.")
    if "key" not in members:
        raise ValueError("needs mint.key, the path of a file with a secret or a private key (PEM)")
    if "lifetime" in members:
        members["lifetime"] = seconds_of(members["lifetime"])
    key = [Path(name).expanduser() for name in _text_list(members.pop("key"))]
    audience = members.pop("audience", url)
    return import_auth("mint").forward_identity(audience, key=key, **members)


def _card_verifier(files: str | list[Any], trust: str | None) -> Any:
    """Return a verifier that checks cards with the public keys in *files*.

    Raises:
        ValueError: *trust* turns off the verification of cards, or a key is not usable.
    """
    if trust not in ("warn", "require"):
        raise ValueError("needs trust: require, or trust: warn, for card_keys")
    paths = [Path(name).expanduser() for name in _text_list(files)]
    return import_auth("card_keys").CardVerifier(paths)


def _text_list(value: str | list[Any]) -> list[str]:
    """Return a text, or a list of texts, as a list."""
    return [value] if isinstance(value, str) else [str(item) for item in value]


def seconds_of(duration: float | str) -> float:
    """Return a duration in seconds.

    Raises:
        ValueError: *duration* is not valid.

    >>> seconds_of("1.5m")
    90.0
    """
    if not isinstance(duration, str):
        return float(duration)
    match = DURATION.fullmatch(duration.strip())
    if match is None:
        raise ValueError("has a value that is not a duration such as 30s")
    return float(match[1]) * SECONDS[match[2]]
