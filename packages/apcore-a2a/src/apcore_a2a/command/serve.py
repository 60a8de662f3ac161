"""`apcore-a2a serve`: serve the modules of the targets as an agent (FR-CMD-001).

Exit codes: 0 after a clean shutdown, 1 for a wrong configuration, 2 if the server could not run.
"""

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import apcore_a2a_server
import click
from apcore_a2a_server.app.options import Limits
from apcore_a2a_server.fields import OptionError, options_of
from apcore_a2a_server.push.settings import PushSettings
from click.core import ParameterSource

from apcore_a2a._parts import import_part

from .options import (
    NAMESPACE,
    OPTIONS,
    PUSH_PREFIX,
    AuthOptions,
    CommandConfigurationError,
    OptionsCommand,
    as_written,
    explicit_options,
    flags,
    warn_about_secrets,
)

EPILOG = f"""
Each option can also be set by an environment variable (APCORE_A2A_PORT=9000) or by a key in the
section {NAMESPACE} of the config file (port: 9000). Flags override variables, and variables
override the file. Separate the values of a list by commas, or repeat the flag.

Exit codes: 0 stopped by a signal, 1 wrong configuration, 2 the server could not run.
"""
SKILL_ID = re.compile(r"[a-z][a-z0-9_.]*")
JWT_SECRET_VARIABLE = "APCORE_JWT_SECRET"
"""The environment variable that `JWTAuthenticator` reads."""
KEY_SOURCES = ("auth_key", "auth_jwks_url", "auth_issuer")
PATH_LIKE = re.compile(
    r"(\.{1,2}/|~/).*|/[\w.-]+/[\w./-]+|\S+\.(ya?ml|json|pem|crt|cer|key|pub|txt)", re.IGNORECASE
)


@click.command(
    cls=OptionsCommand,
    params=[click.Argument(["targets"], nargs=-1, metavar="[TARGET]..."), *flags(*OPTIONS)],
    epilog=EPILOG,
)
@click.pass_context
def serve(ctx: click.Context, /, **_: Any) -> int:
    """Serve apcore modules as an A2A agent, until Ctrl+C.

    TARGET is a folder of modules, a file with modules, a .yaml file that describes agents,
    package.module, or module:attribute. The attribute is an APCore, Registry, Executor, list of
    modules, or agent of another framework. Several targets make one agent.
    """
    options = explicit_options(ctx)
    folder = options.pop("extensions_dir", None)
    agents = options.pop("agent", None) or ()
    named_targets = [_parse_named_target(text, as_written(ctx, "agent")) for text in agents]
    remotes = options.pop("remote", None) or ()
    has_other_modules = bool(named_targets) or bool(remotes) or "openapi" in options
    targets = _choose_targets(
        ctx, options.pop("targets", ()), folder, has_other_modules=has_other_modules
    )
    keywords = _to_keywords(ctx, options)
    if remotes:
        expose = not (targets or named_targets or "openapi" in options)
        keywords["companions"] = _remote_agents(ctx, remotes, expose=expose)
    warn_about_secrets()
    from apcore_a2a_server.modules.loading import NoModulesError  # --help must not import apcore

    try:
        apcore_a2a_server.serve([*targets, *named_targets], config=ctx.obj, **keywords)
    except NoModulesError as error:
        hint = "Create an example with: apcore-a2a new hello"
        raise CommandConfigurationError(f"{error}\n{hint}") from None
    return 0


def _choose_targets(
    ctx: click.Context, targets: Sequence[str], folder: str | None, *, has_other_modules: bool
) -> list[str | Path]:
    """Return the targets, with the folder of modules if a flag sets it or there are no targets.

    The default folder is left out if another option adds modules.
    """
    if Path.cwd().as_posix() not in sys.path:  # as `python -m` does, for package.module
        sys.path.insert(0, str(Path.cwd()))
    is_set_by_flag = ctx.get_parameter_source("extensions_dir") is ParameterSource.COMMANDLINE
    if targets and not (folder and is_set_by_flag):
        return [*targets]
    if has_other_modules and not folder:
        return []
    return [*targets, _extensions_folder(folder, ctx.obj)]


def _remote_agents(ctx: click.Context, entries: Sequence[Any], *, expose: bool) -> Sequence[Any]:
    """Return the remote agents.

    Args:
        ctx: The context of the command.
        entries: The values of the option.
        expose: Whether the skills of the remote agents become skills of this agent, unless an entry
            says otherwise.

    Raises:
        CommandConfigurationError: An entry is invalid.
    """
    package: Any = import_part("remote", "--remote")
    try:
        return cast("Sequence[Any]", package.remote_agents(entries, expose=expose))
    except ValueError as error:
        raise CommandConfigurationError(f"{as_written(ctx, 'remote')} {error}") from None


def _parse_named_target(text: str, option_name: str) -> str | dict[str, str]:
    """Parse `[SKILL=]TARGET`; return `TARGET` or `{SKILL: TARGET}`."""
    skill_id, equals, target = text.partition("=")
    if equals and not target:
        raise CommandConfigurationError(
            f"{option_name} has {text}, which names no target: write {text}app:agent"
        )
    return {skill_id: target} if equals and SKILL_ID.fullmatch(skill_id) else text


def _extensions_folder(path: str | None, config: Any) -> Path:
    root = config.get("extensions.root") if config else None
    folder = Path(path or root or "./extensions")
    if folder.is_dir():
        return folder
    if folder.exists():
        problem = f"{folder} is a file, but a folder of modules is expected"
        hint = f"Serve the file alone: apcore-a2a serve {folder}"
    elif path or root:
        problem = f"Extensions directory not found: {folder}"
        hint = "Create it, or choose another folder with --extensions-dir."
    else:
        problem = "There is nothing to serve: no TARGET is given, and there is no extensions folder"
        hint = (
            "Name a folder or file (apcore-a2a serve tools.py), or start with: apcore-a2a new hello"
        )
    raise CommandConfigurationError(f"{problem}\n{hint}")


def _to_keywords(ctx: click.Context, options: dict[str, Any]) -> dict[str, Any]:
    """Convert the options of the command into arguments of `apcore_a2a_server.serve`."""
    auth = authenticator(_pop_options(options, AuthOptions), partial(as_written, ctx))
    limits = Limits(**_pop_options(options, Limits))
    push = _push_notifications(ctx, options)
    keywords = {OPTIONS[name].field: value for name, value in options.items()}
    return keywords | {"auth": auth, "limits": limits, "push_notifications": push}


def _pop_options(options: dict[str, Any], declared_in: Any) -> dict[str, Any]:
    """Remove from *options* those that a dataclass declares, and return them."""
    names = [option.name for option in options_of(declared_in) if option.name in options]
    return {name: options.pop(name) for name in names}


def _push_notifications(ctx: click.Context, options: dict[str, Any]) -> bool | PushSettings:
    """Remove the options for webhooks from *options*; return the argument `push_notifications`.

    With `dev`, also turn on `error_texts` in *options*, unless it is set.

    Raises:
        CommandConfigurationError: An option is invalid, or needs --push-notifications.
    """
    is_enabled = options.pop("push_notifications", False)
    names = {option.field: option.name for option in options_of(PushSettings, PUSH_PREFIX)}
    values = {field: options.pop(name) for field, name in names.items() if name in options}
    dependent_fields = [field for field in values if field != "dev"]
    if values.get("dev"):
        options.setdefault("error_texts", True)
    if not is_enabled:
        if dependent_fields:
            written_name = as_written(ctx, names[dependent_fields[0]])
            raise CommandConfigurationError(f"{written_name} needs --push-notifications")
        return False
    try:
        return PushSettings(**values)
    except OptionError as error:
        written_name = as_written(ctx, names[error.option])
        raise CommandConfigurationError(f"{written_name} {error.problem}") from None


def authenticator(values: dict[str, Any], option_name: Callable[[str], str]) -> Any:
    """Return the authenticator that the `--auth-…` options describe, or None if none is set.

    Args:
        values: The values of the options, by name.
        option_name: Function that returns the name of an option as the user wrote it.

    Raises:
        ValueError: The options are invalid or incomplete.
    """
    kind = values.pop("auth_type", None)
    if kind is None:
        if values:
            option = option_name(next(iter(values)))
            raise ValueError(f"{option} needs --auth-type bearer or apikey")
        return None
    package: Any = import_part("auth", "--auth-type")
    try:
        if kind == "bearer":
            return _bearer_authenticator(package, values, option_name)
        return _api_key_authenticator(package, values, option_name)
    except package.ConfigurationError as error:
        names = ", ".join(map(option_name, values)) or JWT_SECRET_VARIABLE
        raise ValueError(f"--auth-type {kind} with {names}: {error}") from None


def _bearer_authenticator(
    package: Any, values: Mapping[str, Any], option_name: Callable[[str], str]
) -> Any:
    has_key = any(values.get(name) for name in KEY_SOURCES)
    if not has_key and not os.environ.get(JWT_SECRET_VARIABLE):
        names = ", ".join(OPTIONS[name].flag for name in KEY_SOURCES)
        raise ValueError(
            f"--auth-type bearer needs one of {names}, or the variable {JWT_SECRET_VARIABLE}"
        )
    options = {name.removeprefix("auth_"): value for name, value in values.items()}
    if "key" in options:
        options["key"] = _file_or_text(options["key"], option_name("auth_key"))
    if "roles_claim" in options:
        options["claim_mapping"] = package.ClaimMapping(roles=options.pop("roles_claim"))
    return package.JWTAuthenticator(**options)


def _api_key_authenticator(
    package: Any, values: Mapping[str, Any], option_name: Callable[[str], str]
) -> Any:
    key = values.get("auth_key")
    if bearer_options := [name for name in values if name != "auth_key"]:
        raise ValueError(f"{option_name(bearer_options[0])} applies only to --auth-type bearer")
    if not key:
        raise ValueError("--auth-type apikey needs --auth-key: a key, or a file with several")
    file_or_key = _file_or_text(key, option_name("auth_key"))
    if isinstance(file_or_key, Path):
        return package.APIKeyAuthenticator(file_or_key)
    return package.APIKeyAuthenticator({file_or_key: "client"}, source=option_name("auth_key"))


def _file_or_text(value: str, option_name: str) -> str | Path:
    """Return *value* as a Path if there is such a file, and unchanged if it is a key.

    Raises:
        ValueError: *value* looks like the path of a file, but there is no such file.
    """
    try:
        path = Path(value).expanduser()
        is_file = path.is_file()
    except (OSError, RuntimeError, ValueError):  # too long, unknown user after ~, NUL character
        return value
    if not is_file and PATH_LIKE.fullmatch(value):
        raise ValueError(f"{option_name} looks like the path of a file, but there is no such file")
    return path if is_file else value
