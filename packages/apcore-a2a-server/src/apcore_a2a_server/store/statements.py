"""The statements of SQL files, by their names."""

import re
from collections.abc import Callable
from importlib.resources import files
from typing import Generic, TypeVar

AnyStatement = TypeVar("AnyStatement")

HEADING = re.compile(r"^-- (\w+): .+\n", re.MULTILINE)
COMMENT = re.compile(r"^--.*\n", re.MULTILINE)


def read_blocks(package: str, file_name: str) -> dict[str, str]:
    """Return the blocks of an SQL file by their names.

    A block begins with a line such as `-- get_spans: Return the spans of a task.`
    Any other line that begins with `--` is a comment, and is removed.

    Args:
        package: The package that contains the file.
        file_name: The file's name.
    """
    _, *sections = HEADING.split(files(package).joinpath(file_name).read_text("utf-8"))
    return {
        name: COMMENT.sub("", block).strip()
        for name, block in zip(sections[::2], sections[1::2], strict=True)
    }


class Statements(Generic[AnyStatement]):
    """The statements of a package's `queries.sql`, each an attribute; the file is read once.

    Args:
        package: The package.
        prepare: Makes a statement from the text of a block.
    """

    def __init__(self, package: str, prepare: Callable[[str], AnyStatement]) -> None:
        blocks = read_blocks(package, "queries.sql")
        self.__dict__.update({name: prepare(block) for name, block in blocks.items()})

    def __getattr__(self, name: str) -> AnyStatement:  # called for names that no block has
        raise AttributeError(f"queries.sql has no statement {name}")
