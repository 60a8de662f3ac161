"""A disk of the tests' own, so small that it can be filled."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def small_disk(path: Path, size: int, owner: int = 0) -> Iterator[None]:
    """A disk of *size* bytes at *path*, that is the user's with the number *owner*.

    Raises:
        PermissionError: Only root may do so.
    """
    path.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={size},uid={owner}", "none"]
    done = subprocess.run(["mount", *options, path], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PermissionError(done.stderr)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


def fill(path: Path) -> Path:
    """Leave no room on the disk at *path*; what there was is in the file that is returned."""
    filler = path / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    return filler
