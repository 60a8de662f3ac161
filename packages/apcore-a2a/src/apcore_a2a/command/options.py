"""The options of `serve` and `store` as flags, environment variables and keys of the config file.

click looks for a value in this order. The config file becomes the defaults of a click context.
"""

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from apcore_a2a_server.app.options import Limits, ServeSettings
from apcore_a2a_server.fields import SWITCH, Option, OptionError, meant, option, options_of
from apcore_a2a_server.push.settings import PushSettings
from click.core import ParameterSource

NAMESPACE = "apcore-a2a"
"""The key of the config file that holds ours."""
PUSH = "push_"
"""Begins the names of the options that are fields of `PushSettings`."""
GIVEN = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT, ParameterSource.DEFAULT_MAP)
SEQUENCE: type[Any] = list
MAPPING: type[Any] = dict


class ConfigurationError(ValueError):
    """The configuration of the command is wrong; the text says what, and where it was said."""


@dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """The options that only the command has."""

    extensions_dir: str | None = option(
        None,
        "Folder of the apcore modules.",
        section="Server",
        otherwise="extensions.root, or ./extensions",
    )
    config: str | None = option(
        None, "apcore config file.", otherwise="found by apcore", metavar="FILE"
    )


@dataclass(frozen=True, kw_only=True)
class AuthOptions:
    """The options that become the authenticator of `auth`."""

    auth_type: str | None = option(
        None, "Credentials that callers need.", section="Access", choices=("bearer", "apikey")
    )
    auth_key: str | None = option(
        None, "Key of tokens, or the API key; or a file of it.", is_secret=True
    )
    auth_jwks_url: str | None = option(None, "Address of the issuer's keys.")
    auth_issuer: str | None = option(None, "Issuer of the tokens; its keys are discovered.")
    auth_audience: str | None = option(None, "Audience that tokens must have.")
    auth_algorithms: Sequence[str] | None = option(
        None, "Signature algorithms to accept.", otherwise="all for the key"
    )
    auth_roles_claim: str | None = option(None, "Claim that holds the roles.", otherwise="roles")


DECLARED = (
    *options_of(CommandOptions),
    *options_of(AuthOptions),
    *options_of(ServeSettings),
    *options_of(Limits),
    *options_of(PushSettings, PUSH),
)
OPTIONS = {each.name: each for each in DECLARED if each.kind is not None}
"""The options that a shell can give, by their names."""


def sections(options: Iterable[Option]) -> list[tuple[str, list[Option]]]:
    """Return options by section, each section where its first option stands."""
    found: dict[str, list[Option]] = {}
    for each in options:
        found.setdefault(each.section, []).append(each)
    return [*found.items()]


class Flag(click.Option):
    """An option as click knows it: a flag, an environment variable, and a key of `default_map`.

    Args:
        declared: The option.
        load: Called with the value before those of other flags are looked for.
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
        """Return the flag and its help, with the default."""
        flag, default = self.declared.flag, self.declared.default_text
        shown = f"--[no-]{flag[2:]}" if self.declared.kind is SWITCH else f"{flag} {self.metavar}"
        return shown, self.declared.help + (f"  [default: {default}]" if default else "")


class _Switch(click.types.BoolParamType):
    """On or off, as text: `Option.read` reads it."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        return value


class OptionsCommand(click.Command):
    """A command that takes options only, and lists them by section."""

    def __init__(self, name: str | None, **settings: Any) -> None:
        settings["context_settings"] = {"allow_extra_args": True}
        super().__init__(name, **settings)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; one too many is not shown, for it may be a secret."""
        rest = super().parse_args(ctx, args)
        if rest:
            ctx.fail("This command takes options only; separate the values of a list by commas.")
        return rest

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; name an option that makes no sense as the user did."""
        try:
            return super().invoke(ctx)
        except OptionError as error:
            names = {each.field: each.name for each in options_of(ServeSettings)}
            flag = spelled(ctx, names.get(error.option, error.option))
            raise ConfigurationError(f"{flag} {error.problem}") from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by section."""
        flags = {p.declared.name: p for p in self.params if isinstance(p, Flag)}
        for title, options in sections(flag.declared for flag in flags.values()):
            with formatter.section(title):
                formatter.write_dl([flags[each.name].get_help_record(ctx) for each in options])
        others = [p for p in self.get_params(ctx) if not isinstance(p, Flag)]
        records = [record for p in others if (record := p.get_help_record(ctx))]
        with formatter.section("Other"):
            formatter.write_dl(records)


def flags(*names: str) -> list[click.Parameter]:
    """Return the flags of options by their names, after that of the config file."""
    config = Flag(OPTIONS["config"], _load)
    return [config, *(Flag(OPTIONS[name]) for name in names if name != "config")]


def given(ctx: click.Context) -> dict[str, Any]:
    """Return the values of the options that were set anywhere."""
    return {name: v for name, v in ctx.params.items() if ctx.get_parameter_source(name) in GIVEN}


def spelled(ctx: click.Context, name: str) -> str:
    """Return an option as the user wrote it: as a flag, a variable or a key."""
    source = ctx.get_parameter_source(name)
    if source is ParameterSource.ENVIRONMENT:
        return OPTIONS[name].variable
    if source is ParameterSource.DEFAULT_MAP:
        return f"{NAMESPACE}.{name} in the config file"
    return OPTIONS[name].flag


def _read(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    name = param.name or ""
    if ctx.get_parameter_source(name) not in GIVEN:
        return None
    try:
        return OPTIONS[name].read(value)
    except OptionError as error:
        raise ConfigurationError(f"{spelled(ctx, name)} {error.problem}") from None


def _load(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Load the config file before the other options are processed, as their defaults."""
    if not ctx.resilient_parsing:
        ctx.obj = load_config(value)
        ctx.default_map = section_of(ctx.obj)


def load_config(path: str | None) -> Any:
    """Load an apcore config file.

    Args:
        path: The file; None for the one that apcore finds.

    Returns:
        apcore's Config; None when there is no file.

    Raises:
        ConfigurationError: The file is missing or can't be read.
    """
    apcore = import_module("apcore")  # comes with the server
    found = path or import_module("apcore.config").discover_config_file()
    if not found:
        return None
    if not Path(found).is_file():
        raise ConfigurationError(f"Config file not found: {found}")
    with suppress(apcore.ModuleError):  # it is registered already
        # without a prefix of its own, for click reads the environment
        apcore.Config.register_namespace(NAMESPACE, env_prefix="")
    logging.getLogger("apcore.config").setLevel("ERROR")  # warns of folders that we do not use
    try:
        return apcore.Config.load(found) if path else apcore.Config.load()
    except (apcore.ModuleError, ValueError, OSError) as error:
        raise ConfigurationError(f"Config file {found}: {error}") from None


def section_of(config: Any) -> dict[str, Any]:
    """Return our part of a config, by the names of options.

    Raises:
        ConfigurationError: It is no mapping, or has a key that is no option.
    """
    found = config.get(NAMESPACE) if config else None
    if found is None:
        return {}
    if not isinstance(found, MAPPING):
        raise ConfigurationError(f"{NAMESPACE} in the config file takes keys, not {found!r}")
    names = [name for name in OPTIONS if name != "config"]
    result: dict[str, Any] = {}
    for key, value in found.items():
        name = str(key).replace("-", "_")
        if name not in names:
            hint = meant(name, names)
            raise ConfigurationError(f"{NAMESPACE}.{name} in the config file is no option{hint}")
        if value is not None:
            result[name] = _as_given(OPTIONS[name], value)
    return result


def _as_given(declared: Option, value: Any) -> Any:
    """Return a value of the config file as click takes it: a list where several are possible."""
    is_list = declared.kind is not None and declared.kind.is_list
    return [value] if is_list and not isinstance(value, SEQUENCE) else value
