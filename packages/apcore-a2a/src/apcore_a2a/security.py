"""The authenticator that `apcore-a2a serve` makes of its `--auth-…` options."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ._parts import part

SECRET = "APCORE_JWT_SECRET"
"""The environment variable that `JWTAuthenticator` reads."""
BEARER_ONLY = ("auth_jwks_url", "auth_issuer", "auth_audience", "auth_algorithms")
SOURCES = ("auth_key", "auth_jwks_url", "auth_issuer")
NAMES = ("auth_type", "auth_key", *BEARER_ONLY, "auth_roles_claim")
PATH_LIKE = re.compile(
    r"(\.{1,2}/|~/).*|/[\w.-]+/[\w./-]+|\S+\.(ya?ml|json|pem|crt|cer|key|pub|txt)", re.IGNORECASE
)


def authenticator(options: dict[str, Any]) -> Any:
    """What knows callers by *options*, from which it takes its own; None when there are none.

    Raises:
        ValueError: They make no sense; the text tells which, and what would.
    """
    chosen = {name: options.pop(name) for name in NAMES if name in options}
    kind = chosen.pop("auth_type", None)
    if kind is None:
        if chosen:
            raise ValueError(f"{_flag(next(iter(chosen)))} needs --auth-type bearer or apikey")
        return None
    package: Any = part("auth", "--auth-type")
    try:
        return _bearer(package, chosen) if kind == "bearer" else _api_key(package, chosen)
    except package.ConfigurationError as error:
        given = ", ".join(map(_flag, chosen))
        raise ValueError(f"--auth-type {kind} with {given or SECRET}: {error}") from None


def _bearer(package: Any, chosen: Mapping[str, Any]) -> Any:
    if not any(chosen.get(name) for name in SOURCES) and not os.environ.get(SECRET):
        ways = ", ".join(map(_flag, SOURCES))
        raise ValueError(f"--auth-type bearer needs one of {ways}, or the variable {SECRET}")
    key, roles = chosen.get("auth_key"), chosen.get("auth_roles_claim")
    return package.JWTAuthenticator(
        key=None if key is None else _file_or_text(key),
        jwks_url=chosen.get("auth_jwks_url"),
        issuer=chosen.get("auth_issuer"),
        audience=chosen.get("auth_audience"),
        algorithms=chosen.get("auth_algorithms"),
        claim_mapping=None if roles is None else package.ClaimMapping(roles=roles),
    )


def _api_key(package: Any, chosen: Mapping[str, Any]) -> Any:
    key = chosen.get("auth_key")
    if other := [name for name in chosen if name != "auth_key"]:
        raise ValueError(f"{_flag(other[0])} is for --auth-type bearer")
    if not key:
        raise ValueError("--auth-type apikey needs --auth-key: a key, or a file with several")
    found = _file_or_text(key)
    return package.APIKeyAuthenticator(found if isinstance(found, Path) else {found: "client"})


def _file_or_text(value: str) -> str | Path:
    """The path of a file, or *value* itself; what looks like a path must be one."""
    try:
        path = Path(value).expanduser()
        is_file = path.is_file()
    except (OSError, RuntimeError, ValueError):  # too long for a name, with a NUL, of nobody
        return value
    if not is_file and PATH_LIKE.fullmatch(value):
        raise ValueError("--auth-key looks like a file, and there is none of that name")
    return path if is_file else value


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
