"""Artifacts of tasks, saved as files."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from mimetypes import guess_extension
from pathlib import Path
from typing import Any

from apcore_a2a_client import Part, Task

from .printers import clean

RESERVED_NAME = re.compile(
    r"con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9\u00b9\u00b2\u00b3]", re.IGNORECASE
)
"""Names of devices on Windows, which are reserved with any extension."""


def save(task: Task, folder: Path) -> Iterator[Path]:
    """Save the artifacts of *task* in *folder*, one file per part, without overwriting files.

    The URL of a part is saved, not the file that it refers to.

    Yields:
        The path of each file.
    """
    numbers: Counter[str] = Counter()
    for artifact in task.artifacts:
        for part in artifact.parts:
            name, content = _file(part, artifact.name or artifact.artifact_id)
            yield write(folder, safe_name(name), content, numbers)


def _file(part: Part, name: str) -> tuple[str, bytes]:
    if part.raw is not None:
        extension = guess_extension(part.media_type) or ".bin"
        return part.filename or name + extension, part.raw
    if part.text is not None:
        extension = guess_extension(part.media_type or "text/plain") or ".txt"
        return part.filename or name + extension, part.text.encode("utf-8", "replace")
    data: Any = part.data if part.url is None else {"url": part.url}
    text = json.dumps(data, indent=2, ensure_ascii=False)
    return part.filename or name + ".json", text.encode("utf-8", "backslashreplace")


def safe_name(name: str) -> str:
    """Turn *name* into a file name without folders, and without a leading `.`, `-` or `~`.

    The agent chooses the name, and people use it in commands: `rm *` would read a leading `-` as
    an option, and a shell would read a leading `~` as a home folder. Windows reserves names of
    devices.

    Example:
        ```python
        from apcore_a2a.command.files import safe_name

        print(safe_name("../../etc/passwd"), safe_name(".bashrc"), safe_name("-rf"))
        #> passwd bashrc rf
        print(safe_name("~root"), safe_name("nul.txt"))
        #> root _nul.txt
        ```
    """
    last_segment = clean(re.split(r"[/\\\\]", name)[-1])
    plain = re.sub(r'[\n\t:*?"<>|]', "_", last_segment)
    path = Path(plain.lstrip(". -~").rstrip(". ") or "result")
    stem, suffix = _cut(path.stem, 150).rstrip(". "), _cut(path.suffix[:20], 40).rstrip(". ")
    is_reserved = RESERVED_NAME.fullmatch(stem.partition(".")[0].rstrip())
    return ("_" if is_reserved else "") + stem + suffix


def _cut(text: str, limit: int) -> str:
    """Cut *text* to *limit* bytes of UTF-8, since file systems limit the bytes of names."""
    return text.encode()[:limit].decode("utf-8", "ignore")


def write(folder: Path, name: str, content: bytes, numbers: Counter[str]) -> Path:
    """Write a new file called *name*; add a number if the name is taken.

    Args:
        folder: The folder for the file.
        name: The preferred name of the file.
        content: The content of the file.
        numbers: The last number tried for each name, so that the next search starts after it.

    Returns:
        The path of the file.
    """
    stem, suffix = Path(name).stem, Path(name).suffix
    while True:
        numbers[name] += 1
        number = numbers[name]
        path = folder / (name if number == 1 else f"{stem}-{number}{suffix}")
        try:
            with path.open("xb") as file:
                file.write(content)
        except FileExistsError:
            continue
        return path
