"""The agent that people look at in these tests."""

from pathlib import Path

from apcore import Registry

EXTENSIONS = Path(__file__).parents[2] / "examples" / "extensions"


def registry() -> Registry:
    """The modules of examples/."""
    found = Registry(extensions_dir=str(EXTENSIONS))
    found.discover()
    return found
