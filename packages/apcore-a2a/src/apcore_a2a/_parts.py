"""Imports of parts (optional distributions), with errors that say how to install them."""

from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType


def import_part(name: str, feature: str) -> ModuleType:
    """Import the package `apcore_a2a_<name>`.

    Args:
        name: The name of the part and of the extra that installs it.
        feature: The feature that needs the package, for the error message.

    Raises:
        ImportError: The package is not installed; the message says how to install it.
    """
    with importing(name, feature):
        return import_module(f"apcore_a2a_{name}")


@contextmanager
def importing(name: str, feature: str) -> Generator[None]:
    """Raise the error of `import_part` if the block can't import the part *name*."""
    package = f"apcore_a2a_{name}"
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        message = f"{feature} needs the {name} part: pip install 'apcore-a2a[{name}]'"
        raise ImportError(message, name=package) from None
