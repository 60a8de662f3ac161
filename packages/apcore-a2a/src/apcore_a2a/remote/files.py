"""What tasks have made, as files."""

import json
import re
from collections.abc import Iterator
from mimetypes import guess_extension
from pathlib import Path
from typing import Any

from apcore_a2a_client import Part, Task


def save(task: Task, folder: Path) -> Iterator[Path]:
    """Save the artifacts of *task* in *folder*: a file for each part; no file is overwritten.

    Yields:
        Where each part is now. Files elsewhere, of which there is but a URL, are not fetched.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for artifact in task.artifacts:
        for part in artifact.parts:
            name, content = _file(part, artifact.name or artifact.artifact_id)
            yield write(folder, safe(name), content)


def _file(part: Part, name: str) -> tuple[str, bytes]:
    if part.raw is not None:
        kind = guess_extension(part.media_type) or ".bin"
        return part.filename or name + kind, part.raw
    if part.text is not None:
        kind = guess_extension(part.media_type or "text/plain") or ".txt"
        return part.filename or name + kind, part.text.encode("utf-8", "replace")
    data: Any = part.data if part.url is None else {"url": part.url}
    return part.filename or name + ".json", json.dumps(data, indent=2, ensure_ascii=False).encode()


def safe(name: str) -> str:
    """*name* without what could lead elsewhere, or be hidden.

    Example:
        ```python
        from apcore_a2a.remote.files import safe

        print(safe("../../etc/passwd"), safe(".bashrc"))
        #> passwd bashrc
        ```
    """
    last = re.split(r"[/\\\\]", name)[-1]
    return re.sub(r'[\x00-\x1f\x7f-\x9f:*?"<>|]', "_", last).lstrip(". ")[:100] or "result"


def write(folder: Path, name: str, content: bytes) -> Path:
    """Write a new file, named *name* or, if there is one, *name* with a number."""
    stem, suffix = Path(name).stem, Path(name).suffix
    number = 1
    while True:
        path = folder / (name if number == 1 else f"{stem}-{number}{suffix}")
        try:
            with path.open("xb") as file:
                file.write(content)
        except FileExistsError:
            number += 1
        else:
            return path
