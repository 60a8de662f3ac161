"""`apcore-a2a serve`: an agent of the modules in a folder (FR-CMD-001).

Exit codes: 0 after a clean shutdown, 1 when the configuration is wrong, 2 when the server could
not run.
"""

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import apcore_a2a_server
import click
from apcore_a2a_server.app.options import Limits
from apcore_a2a_server.fields import OptionError, options_of
from apcore_a2a_server.push.settings import PushSettings

from apcore_a2a._parts import part

from .options import (
    NAMESPACE,
    OPTIONS,
    PUSH,
    AuthOptions,
    ConfigurationError,
    OptionsCommand,
    flags,
    given,
    spelled,
)

EPILOG = f"""
Each option is also an environment variable (APCORE_A2A_PORT=9000) and a key under {NAMESPACE}: in
the config file (port: 9000). Flags win over variables, variables over the file. Values of a list
are separated by commas, or given by several flags.

Exit codes: 0 ended cleanly, 1 wrong configuration, 2 could not run.
"""
SECRET = "APCORE_JWT_SECRET"
"""The environment variable that `JWTAuthenticator` reads."""
BEARER_ONLY = ("auth_jwks_url", "auth_issuer", "auth_audience", "auth_algorithms")
SOURCES = ("auth_key", "auth_jwks_url", "auth_issuer")
PATH_LIKE = re.compile(
    r"(\.{1,2}/|~/).*|/[\w.-]+/[\w./-]+|\S+\.(ya?ml|json|pem|crt|cer|key|pub|txt)", re.IGNORECASE
)


@click.command(cls=OptionsCommand, params=flags(*OPTIONS), epilog=EPILOG)
@click.pass_context
def serve(ctx: click.Context, /, **_: Any) -> int:
    """Serve the apcore modules in a folder as an A2A agent, until Ctrl+C."""
    options = given(ctx)
    source = _folder(options.pop("extensions_dir", None), ctx.obj)
    apcore_a2a_server.serve(source, config=ctx.obj, **_keywords(ctx, options))
    return 0


def outcome(error: BaseException) -> tuple[int, str]:
    """Return the exit code for an error, and what to say of it."""
    if isinstance(error, KeyboardInterrupt):
        return 0, ""
    if isinstance(error, TypeError | ValueError):
        return 1, str(error)
    if isinstance(error, OSError):
        return 2, error.strerror or str(error)
    return 2, f"The server ended: {error!r}"


def _folder(named: str | None, config: Any) -> Path:
    root = config.get("extensions.root") if config else None
    folder = Path(named or root or "./extensions")
    if not folder.is_dir():
        hint = "Make it, or name another with --extensions-dir."
        raise ConfigurationError(f"Extensions directory not found: {folder}\n{hint}")
    return folder


def _keywords(ctx: click.Context, options: dict[str, Any]) -> dict[str, Any]:
    """Return the keywords of `serve` that the options of the command come to."""
    auth = authenticator(_taken(options, AuthOptions), partial(spelled, ctx))
    limits = Limits(**_taken(options, Limits))
    push = _notifications(ctx, options)
    keywords = {OPTIONS[name].field: value for name, value in options.items()}
    return keywords | {"auth": auth, "limits": limits, "push_notifications": push}


def _taken(options: dict[str, Any], declared_in: Any) -> dict[str, Any]:
    """Take the options that a dataclass declares out of *options*."""
    names = [each.name for each in options_of(declared_in) if each.name in options]
    return {name: options.pop(name) for name in names}


def _notifications(ctx: click.Context, options: dict[str, Any]) -> bool | PushSettings:
    """Take the options for webhooks out of *options*; return how webhooks are called.

    Raises:
        ConfigurationError: They make no sense, or need --push-notifications.
    """
    wanted = options.pop("push_notifications", False)
    names = {each.field: each.name for each in options_of(PushSettings, PUSH)}
    chosen = {field: options.pop(name) for field, name in names.items() if name in options}
    needing = [field for field in chosen if field != "dev"]
    if not wanted:
        if needing:
            flag = spelled(ctx, names[needing[0]])
            raise ConfigurationError(f"{flag} needs --push-notifications")
        return False
    try:
        return PushSettings(**chosen)
    except OptionError as error:
        flag = spelled(ctx, names[error.option])
        raise ConfigurationError(f"{flag} {error.problem}") from None


def authenticator(chosen: dict[str, Any], spell: Callable[[str], str]) -> Any:
    """Return the authenticator that the `--auth-…` options describe; None without any.

    Raises:
        ValueError: They make no sense; the text says which, and what would.
    """
    kind = chosen.pop("auth_type", None)
    if kind is None:
        if chosen:
            raise ValueError(f"{spell(next(iter(chosen)))} needs --auth-type bearer or apikey")
        return None
    package: Any = part("auth", "--auth-type")
    try:
        return _bearer(package, chosen) if kind == "bearer" else _api_key(package, chosen, spell)
    except package.ConfigurationError as error:
        flags_given = ", ".join(map(spell, chosen))
        raise ValueError(f"--auth-type {kind} with {flags_given or SECRET}: {error}") from None


def _bearer(package: Any, chosen: Mapping[str, Any]) -> Any:
    if not any(chosen.get(name) for name in SOURCES) and not os.environ.get(SECRET):
        ways = ", ".join(OPTIONS[name].flag for name in SOURCES)
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


def _api_key(package: Any, chosen: Mapping[str, Any], spell: Callable[[str], str]) -> Any:
    key = chosen.get("auth_key")
    if other := [name for name in chosen if name != "auth_key"]:
        raise ValueError(f"{spell(other[0])} is for --auth-type bearer")
    if not key:
        raise ValueError("--auth-type apikey needs --auth-key: a key, or a file with several")
    found = _file_or_text(key)
    return package.APIKeyAuthenticator(found if isinstance(found, Path) else {found: "client"})


def _file_or_text(value: str) -> str | Path:
    """Return the path of a file, or *value* itself; what looks like a path must be one."""
    try:
        path = Path(value).expanduser()
        is_file = path.is_file()
    except (
        OSError,
        RuntimeError,
        ValueError,
    ):  # too long for a name, with a NUL, of an unknown user
        return value
    if not is_file and PATH_LIKE.fullmatch(value):
        raise ValueError("--auth-key looks like a file, and there is none of that name")
    return path if is_file else value
