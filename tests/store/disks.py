"""A disk small enough for tests to fill, and a read-only folder."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path


@contextmanager
def small_disk(path: Path, size: int, owner: int = 0) -> Iterator[None]:
    """Mount a disk of *size* bytes at *path* that belongs to the user id *owner*.

    Raises:
        PermissionError: The disk can't be mounted; in general, only root may.
    """
    path.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={size},uid={owner}", "none"]
    result = subprocess.run(["mount", *options, path], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise PermissionError(result.stderr)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


def fill(path: Path) -> Path:
    """Fill the disk at *path* and return the file that takes the space."""
    filler = path / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    return filler


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Make *folder* read-only, for root too.

    Raises:
        PermissionError: The process is root, and may not mount the folder read-only.
    """
    mode = folder.stat().st_mode
    folder.chmod(0o555)
    with ExitStack() as stack:
        stack.callback(folder.chmod, mode)
        if os.access(folder, os.W_OK):  # root may write in any mode
            _mount("--bind", folder, folder)
            stack.callback(_unmount, folder)
            _mount("-o", "remount,bind,ro", folder)
        yield


def _unmount(folder: Path) -> None:
    subprocess.run(["umount", "--lazy", folder], check=True)


def _mount(*arguments: str | Path) -> None:
    result = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise PermissionError(result.stderr)
