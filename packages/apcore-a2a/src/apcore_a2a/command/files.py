"""What tasks have made, as files."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from mimetypes import guess_extension
from pathlib import Path
from typing import Any

from apcore_a2a_client import Part, Task

from .printers import clean


def save(task: Task, folder: Path) -> Iterator[Path]:
    """Save the artifacts of *task* in *folder*: a file for each part; no file is overwritten.

    Yields:
        Where each part is now. Files elsewhere, of which there is but a URL, are not fetched.
    """
    taken: Counter[str] = Counter()
    for artifact in task.artifacts:
        for part in artifact.parts:
            name, content = _file(part, artifact.name or artifact.artifact_id)
            yield write(folder, safe(name), content, taken)


def _file(part: Part, name: str) -> tuple[str, bytes]:
    if part.raw is not None:
        kind = guess_extension(part.media_type) or ".bin"
        return part.filename or name + kind, part.raw
    if part.text is not None:
        kind = guess_extension(part.media_type or "text/plain") or ".txt"
        return part.filename or name + kind, part.text.encode("utf-8", "replace")
    data: Any = part.data if part.url is None else {"url": part.url}
    text = json.dumps(data, indent=2, ensure_ascii=False)
    return part.filename or name + ".json", text.encode("utf-8", "backslashreplace")


def safe(name: str) -> str:
    """*name* without what could lead elsewhere, or be hidden.

    Example:
        ```python
        from apcore_a2a.command.files import safe

        print(safe("../../etc/passwd"), safe(".bashrc"))
        #> passwd bashrc
        ```
    """
    last = clean(re.split(r"[/\\\\]", name)[-1])
    bare = Path(re.sub(r'[\n\t:*?"<>|]', "_", last).lstrip(". ") or "result")
    suffix = bare.suffix[:20]
    return _cut(bare.stem, 150) + _cut(suffix, 40)


def _cut(text: str, limit: int) -> str:
    """*text* in at most *limit* bytes, as file systems count."""
    return text.encode()[:limit].decode("utf-8", "ignore")


def write(folder: Path, name: str, content: bytes, taken: Counter[str]) -> Path:
    """Write a new file, named *name* or, if there is one, *name* with a number.

    *taken* has the last number of each name, so that many of one name are quickly numbered.
    """
    stem, suffix = Path(name).stem, Path(name).suffix
    while True:
        taken[name] += 1
        number = taken[name]
        path = folder / (name if number == 1 else f"{stem}-{number}{suffix}")
        try:
            with path.open("xb") as file:
                file.write(content)
        except FileExistsError:
            continue
        return path
