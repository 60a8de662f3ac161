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
    try:
        return import_module(f"apcore_a2a_{name}")
    except ModuleNotFoundError as error:
        raise missing(error, name, feature) from None


def missing(error: ModuleNotFoundError, name: str, feature: str) -> ImportError:
    """What to raise when *error* came from the import of a part, as `part` does."""
    package = f"apcore_a2a_{name}"
    if error.name != package:
        return error
    message = f"{feature} needs the {name} part: pip install 'apcore-a2a[{name}]'"
    return ImportError(message, name=package)
