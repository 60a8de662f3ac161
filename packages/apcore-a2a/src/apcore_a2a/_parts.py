"""The optional distributions, and how to get them."""

from importlib import import_module
from types import ModuleType


def part(name: str, feature: str) -> ModuleType:
    """The package `apcore_a2a_<name>`.

    Args:
        name: The part, which is also the name of the extra that installs it.
        feature: What it is wanted for, for the error message.

    Raises:
        ImportError: It is not installed; the message says how to install it.
    """
    package = f"apcore_a2a_{name}"
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        message = f"{feature} needs the {name} part: pip install 'apcore-a2a[{name}]'"
        raise ImportError(message, name=package) from None
