"""The agent that the explorer's tests look at."""

from pathlib import Path

from apcore import Registry

EXTENSIONS = Path(__file__).parents[2] / "examples" / "extensions"


def registry() -> Registry:
    """Return the modules of examples/."""
    modules = Registry(extensions_dir=str(EXTENSIONS))
    modules.discover()
    return modules
