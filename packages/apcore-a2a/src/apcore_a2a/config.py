"""The apcore config file, and what is wrong with what was asked for."""

import logging
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

NAMESPACE = "apcore-a2a"


class ConfigurationError(ValueError):
    """What was asked for can't be done as it was asked."""


def load_config(path: str | None) -> Any:
    """The apcore Config in the file at *path*, or where apcore looks for one; None without one.

    Raises:
        ConfigurationError: The file is missing or can't be read.
    """
    apcore = import_module("apcore")  # it comes with the server part
    found = path or import_module("apcore.config").discover_config_file()
    if not found:
        return None
    if not Path(found).is_file():
        raise ConfigurationError(f"Config file not found: {found}")
    with suppress(apcore.ModuleError):  # it is registered already
        # without a prefix, for the environment is read here
        apcore.Config.register_namespace(NAMESPACE, env_prefix="")
    logging.getLogger("apcore.config").setLevel("ERROR")  # warns of folders that we do not use
    try:
        return apcore.Config.load(found) if path else apcore.Config.load()
    except (apcore.ModuleError, ValueError, OSError) as error:
        raise ConfigurationError(f"Config file {found}: {error}") from None
