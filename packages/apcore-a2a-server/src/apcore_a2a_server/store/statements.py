"""SQL files: statements by their names."""

import re
from collections.abc import Callable
from importlib.resources import files
from typing import Generic, TypeVar

Statement = TypeVar("Statement")

HEADING = re.compile(r"^-- (\w+): .+\n", re.MULTILINE)
COMMENT = re.compile(r"^--.*\n", re.MULTILINE)


def read_blocks(package: str, file: str) -> dict[str, str]:
    """Return the blocks of an SQL file by their names.

    A block begins with a line such as `-- get_key: Return the send with an idempotency key.`;
    it has no other comments than whole lines.

    Args:
        package: The package that has the file.
        file: The file's name.
    """
    _, *parts = HEADING.split(files(package).joinpath(file).read_text("utf-8"))
    return {
        name: COMMENT.sub("", block).strip()
        for name, block in zip(parts[::2], parts[1::2], strict=True)
    }


class Statements(Generic[Statement]):
    """The statements of a package's `queries.sql`, each an attribute; the file is read once.

    Args:
        package: The package.
        prepare: Makes a statement from the text of a block.
    """

    def __init__(self, package: str, prepare: Callable[[str], Statement]) -> None:
        blocks = read_blocks(package, "queries.sql")
        self.__dict__.update({name: prepare(block) for name, block in blocks.items()})

    def __getattr__(self, name: str) -> Statement:  # called for names that no block has
        raise AttributeError(f"There is no statement {name}")
