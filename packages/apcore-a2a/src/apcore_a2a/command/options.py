"""Options of the command as flags, environment variables and keys of the config file.

click looks for values in this order; those of the config file are the `default_map` of the context.
"""

import logging
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from apcore_a2a_server.app.options import Limits, ServeSettings
from apcore_a2a_server.fields import (
    OBJECTS,
    OPENAPI_TOKEN,
    PAIRS,
    PREFIX,
    SWITCH,
    Option,
    OptionError,
    option,
    options_of,
    suggestion,
)
from apcore_a2a_server.push.settings import PushSettings
from click.core import ParameterSource

from .remote import CLIENT_SECRET_VARIABLE, COMMON_OPTIONS, is_on_command_line

logger = logging.getLogger("apcore_a2a")

NAMESPACE = "apcore-a2a"
"""The key of the config file that holds the options."""
PUSH_PREFIX = "push_"
"""Prefix of the names of options that are fields of `PushSettings`, except `dev`."""
SOURCES = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT, ParameterSource.DEFAULT_MAP)
"""The sources of values that the user has set."""
SERVICE_VARIABLE = re.compile(r"\w+_(SERVICE_(HOST|PORT)|PORT_\d+_(TCP|UDP|SCTP))\w*")
"""Variables that Kubernetes sets for services, for example for one named apcore-a2a."""
PASSWORD = re.compile(r"://[^/@]*:[^/]+@|\bpassword=")
"""A password in a URL: before the host, or in the query."""
REMOTE_CREDENTIALS = (
    f"{PREFIX}REMOTE_TOKEN_",
    f"{PREFIX}REMOTE_KEY_",
    f"{PREFIX}REMOTE_SECRET_",
)
"""Prefixes of the variables with credentials for remote agents; the name of the agent follows."""
URL_OPTIONS = ("openapi", "store", "rate_limit_storage", "push_proxy")
"""Secret options whose values are URLs: only a URL with a password causes a warning."""
FILE_OPTIONS = ("auth_key", "card_key")
"""Secret options whose values may be paths of files, which cause no warning."""
SEQUENCE: type[Any] = list
MAPPING: type[Any] = dict
"""Types that YAML parses sequences and mappings to."""


class CommandConfigurationError(ValueError):
    """An error in the configuration of the command."""


@dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """Options of the command that the function `serve` lacks, or takes as objects."""

    extensions_dir: str | None = option(
        None,
        "Folder with the apcore modules.",
        section="Server",
        otherwise="extensions.root, or ./extensions",
    )
    agent: Sequence[str] | None = option(
        None,
        "Target with one module or agent; SKILL is the id of its skill.",
        otherwise="for SKILL, the id of the module",
        metavar="[SKILL=]TARGET",
    )
    remote: Sequence[Any] | None = option(
        None,
        "Remote A2A agent whose skills become modules.",
        kind=OBJECTS,
        otherwise="none",
    )
    config: str | None = option(
        None, "apcore config file.", otherwise="found by apcore", metavar="FILE"
    )


@dataclass(frozen=True, kw_only=True)
class AuthOptions:
    """Options of the command that stand for the parameter `auth` of the function `serve`."""

    auth_type: str | None = option(
        None, "How callers authenticate.", section="Access", choices=("bearer", "apikey")
    )
    auth_key: str | None = option(
        None, "Key that verifies tokens, or API key; or a file with either.", is_secret=True
    )
    auth_jwks_url: str | None = option(None, "URL of the issuer's key set.")
    auth_issuer: str | None = option(
        None, "Issuer of tokens; its keys are discovered if no other option gives them."
    )
    auth_audience: str | None = option(None, "Audience that tokens must have.")
    auth_algorithms: Sequence[str] | None = option(
        None, "Signature algorithms to accept.", otherwise="all that suit the key"
    )
    auth_roles_claim: str | None = option(None, "Token claim with the roles.", otherwise="roles")


DECLARED = (
    *options_of(CommandOptions),
    *options_of(AuthOptions),
    *options_of(ServeSettings),
    *options_of(Limits),
    *options_of(PushSettings, PUSH_PREFIX),
)
OPTIONS = {declared.name: declared for declared in DECLARED if declared.kind is not None}
"""The options that the command line can set, by name."""


def group_by_section(options: Iterable[Option]) -> list[tuple[str, list[Option]]]:
    """Group options by section, in the order of the first option of each section."""
    by_section: dict[str, list[Option]] = {}
    for declared in options:
        by_section.setdefault(declared.section, []).append(declared)
    return [*by_section.items()]


class Flag(click.Option):
    """An option for click: a flag, an environment variable and a key of `default_map`.

    Args:
        declared: The option.
        load: Function to call with the value before other flags are processed.
    """

    def __init__(self, declared: Option, load: Any = None) -> None:
        self.declared = declared
        is_switch = declared.kind is SWITCH
        no_flag = f"/--no-{declared.flag[2:]}" if is_switch else ""
        super().__init__(
            [declared.name, declared.flag + no_flag],
            type=_Switch() if is_switch else click.UNPROCESSED,
            default=None,
            envvar=declared.variable,
            multiple=declared.kind is not None and declared.kind.is_list,
            metavar=declared.metavar,
            help=declared.help,
            callback=load or _read,
            is_eager=load is not None,
            expose_value=load is None,
        )

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Return the flag and its help text with the default."""
        flag, default = self.declared.flag, self.declared.default_text
        label = f"--[no-]{flag[2:]}" if self.declared.kind is SWITCH else f"{flag} {self.metavar}"
        return label, self.declared.help + (f"  [default: {default}]" if default else "")


class _Switch(click.types.BoolParamType):
    """The type of a switch; its value is left for `Option.read` to parse."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        return value


class OptionsCommand(click.Command):
    """A command with help that lists the options by section."""

    allow_extra_args = True  # parse_args rejects them without showing them

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; do not show an unexpected one in the error: it may be a secret."""
        unexpected = super().parse_args(ctx, args)
        if unexpected:
            ctx.fail("Unexpected argument. Use options; separate the values of a list by commas.")
        return unexpected

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; report an invalid option under the name that the user wrote."""
        _set_up_logging(ctx)
        warn_about_unknown_variables()
        try:
            return super().invoke(ctx)
        except OptionError as error:
            names = {declared.field: declared.name for declared in options_of(ServeSettings)}
            written_name = as_written(ctx, names.get(error.option, error.option))
            raise CommandConfigurationError(f"{written_name} {error.problem}") from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by section."""
        flags_by_name = {p.declared.name: p for p in self.params if isinstance(p, Flag)}
        for title, options in group_by_section(flag.declared for flag in flags_by_name.values()):
            with formatter.section(title):
                formatter.write_dl(
                    [flags_by_name[declared.name].get_help_record(ctx) for declared in options]
                )
        other_params = [p for p in self.get_params(ctx) if not isinstance(p, Flag)]
        records = [record for p in other_params if (record := p.get_help_record(ctx))]
        with formatter.section("Other"):
            formatter.write_dl(records)


def flags(*names: str) -> list[click.Parameter]:
    """Return the flags of the options with these names, `--config` first."""
    config = Flag(OPTIONS["config"], _load)
    return [config, *(Flag(OPTIONS[name]) for name in names if name != "config")]


def _set_up_logging(ctx: click.Context) -> None:
    if "log_level" in ctx.params:
        from apcore_a2a_server.middleware import set_up_logging  # slow to import

        level, log_format = ctx.params["log_level"], ctx.params["log_format"]
        set_up_logging(level or "info", log_format or "text")


def warn_about_unknown_variables() -> None:
    """Warn about each environment variable that looks like an option but is not one."""
    known = {declared.variable for declared in OPTIONS.values()}
    known |= {variable for flag in COMMON_OPTIONS if (variable := getattr(flag, "envvar", None))}
    known.add(CLIENT_SECRET_VARIABLE)
    for variable in sorted({name for name in os.environ if name.startswith(PREFIX)} - known):
        is_credential = f"{variable}_".startswith(f"{OPENAPI_TOKEN}_")
        is_credential |= variable.startswith(REMOTE_CREDENTIALS)
        if not is_credential and not SERVICE_VARIABLE.fullmatch(variable):
            name = variable.removeprefix(PREFIX)
            hint = suggestion(name, [option_name.upper() for option_name in OPTIONS], PREFIX)
            extra = {"event": "unknown_environment_variable"}
            logger.warning("%s is not an option and is ignored%s", variable, hint, extra=extra)


def warn_about_secrets() -> None:
    """Warn about each secret on the command line, which other users of the machine can read.

    Commands call this after they have checked their options.
    """
    ctx = click.get_current_context()
    for flag in ctx.command.params:
        if isinstance(flag, Flag) and flag.declared.is_secret and is_on_command_line(ctx, flag):
            name = flag.declared.name
            if _has_secret(name, ctx.params[name]):
                names = flag.declared.flag, flag.declared.variable
                text = "Other users of this machine can read %s in the process list: set %s"
                extra = {"event": "secret_on_command_line"}
                logger.warning(f"{text} instead", *names, extra=extra)


def _has_secret(name: str, value: Any) -> bool:
    """Return whether *value* contains a secret, and not just paths of files or a bare URL."""
    if name in URL_OPTIONS:
        return PASSWORD.search(value) is not None
    if name in FILE_OPTIONS:
        texts: list[str] = [value] if isinstance(value, str) else [*value]
        # a text may be too long for a path, or contain a NUL or the ~ of an unknown user
        with suppress(OSError, ValueError, RuntimeError):
            return not all(Path(text).expanduser().is_file() for text in texts)
    return True


def explicit_options(ctx: click.Context) -> dict[str, Any]:
    """Return the parameters that the command line, a variable or the config file sets."""
    return {
        name: value
        for name, value in ctx.params.items()
        if ctx.get_parameter_source(name) in SOURCES
    }


def as_written(ctx: click.Context, name: str) -> str:
    """Return the name of an option as the user wrote it: a flag, a variable or a key."""
    source = ctx.get_parameter_source(name)
    if source is ParameterSource.ENVIRONMENT:
        return OPTIONS[name].variable
    if source is ParameterSource.DEFAULT_MAP:
        return f"{NAMESPACE}.{name} in the config file"
    return OPTIONS[name].flag


def _read(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    name = param.name or ""
    source = ctx.get_parameter_source(name)
    if source not in SOURCES:
        return None
    # click turns lists of the config file and repeated flags into tuples; `Option.read` needs a
    # list from the file as a list, because it splits the items of tuples at spaces and commas
    is_from_file = source is ParameterSource.DEFAULT_MAP
    config_value = (ctx.default_map or {}).get(name) if is_from_file else None
    try:
        return OPTIONS[name].read(config_value if isinstance(config_value, list) else value)
    except OptionError as error:
        raise CommandConfigurationError(f"{as_written(ctx, name)} {error.problem}") from None


def _load(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Load the config file, whose values are the defaults of the other options."""
    if not ctx.resilient_parsing:
        ctx.obj = load_config(value)
        ctx.default_map = config_section(ctx.obj)


def load_config(path: str | None) -> Any:
    """Load an apcore config file.

    Args:
        path: The path of the file; None for the file that apcore finds.

    Returns:
        apcore's Config, or None if there is no file.

    Raises:
        CommandConfigurationError: The file is missing or invalid.
    """
    apcore = import_module("apcore")  # installed with the server
    file = path or import_module("apcore.config").discover_config_file()
    if not file:
        return None
    if not Path(file).is_file():
        raise CommandConfigurationError(f"Config file not found: {file}")
    with suppress(apcore.ModuleError):  # raised if the namespace is already registered
        # no prefix for environment variables, because click reads them
        apcore.Config.register_namespace(NAMESPACE, env_prefix="")
    logging.getLogger("apcore.config").setLevel("ERROR")  # apcore warns about folders we do not use
    try:
        return apcore.Config.load(file) if path else apcore.Config.load()
    except (apcore.ModuleError, ValueError, OSError) as error:
        raise CommandConfigurationError(f"Config file {file}: {error}") from None


def config_section(config: Any) -> dict[str, Any]:
    """Return the options in a config, by name.

    Raises:
        CommandConfigurationError: The section is not a mapping, or has an unknown key.
    """
    section = config.get(NAMESPACE) if config else None
    if section is None:
        return {}
    place = "in the config file"
    if not isinstance(section, MAPPING):
        raise CommandConfigurationError(f"{NAMESPACE} {place} must be a mapping, not {section!r}")
    names = [name for name in OPTIONS if name != "config"]
    values: dict[str, Any] = {}
    for key, value in section.items():
        name = str(key).replace("-", "_")
        if name not in names:
            problem = f"is not an option{suggestion(name, names)}"
            raise CommandConfigurationError(f"{NAMESPACE}.{name} {place} {problem}")
        if value is not None:
            values[name] = _as_default(OPTIONS[name], value)
    return values


def _as_default(declared: Option, value: Any) -> Any:
    """Return a value of the config file as click expects it: a sequence for a repeatable flag."""
    if declared.kind is PAIRS and isinstance(value, MAPPING):
        return [f"{name}={item}" for name, item in value.items()]
    if declared.kind is OBJECTS and isinstance(value, MAPPING):
        return [
            {"name": name, **item} if isinstance(item, MAPPING) else f"{name}={item}"
            for name, item in value.items()
        ]
    is_list = declared.kind is not None and declared.kind.is_list
    return (value,) if is_list and not isinstance(value, SEQUENCE) else value
