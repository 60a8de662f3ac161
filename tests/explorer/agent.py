"""The agent that most tests of the explorer show: the modules of examples/."""

from pathlib import Path

from apcore import Registry

EXTENSIONS = Path(__file__).parents[2] / "examples" / "extensions"


def registry() -> Registry:
    """Return the modules of examples/."""
    modules = Registry(extensions_dir=str(EXTENSIONS))
    modules.discover()
    return modules
