"""Files with keys, which are reloaded when they change."""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf
from os import PathLike
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from .errors import ConfigurationError

logger = logging.getLogger("apcore_a2a.auth")

T = TypeVar("T")


class FileState(NamedTuple):
    """Metadata that differs after a change of the file, or of the link to it."""

    device: int
    inode: int
    size: int
    modified_at: float


CHECK_INTERVAL = 1.0
"""Seconds between two checks whether a file has changed."""
SETTLING_TIME = 2.0
"""Seconds after a change during which a further change may leave the timestamp as it is."""


class KeyFile(Generic[T]):
    """A file with keys, which are reloaded within about a second of a change.

    If a changed file cannot be used, the reason is logged and the earlier keys stay valid.

    Args:
        path: The path of the file, or of a link, whose target may change.
        parse: Function that parses the content; its error messages must be safe to log.
        description: The content in words, such as "API keys", for messages.

    Raises:
        ConfigurationError: The file cannot be read, or *parse* refuses it.
    """

    def __init__(self, path: PathLike[str], parse: Callable[[bytes], T], description: str) -> None:
        self._path = Path(path)
        self._parse = parse
        self._description = f"the {description} in {self._path}"
        self._state: FileState | None = None
        self._content = self._load()
        self._keys = parse(self._content)
        self._logged_reason = ""
        self._checked_at = time.monotonic()

    async def current(self) -> T:
        """Return the keys, reloaded if the file is due for a check and has changed."""
        if time.monotonic() - self._checked_at >= CHECK_INTERVAL:
            self._checked_at = inf  # meanwhile, concurrent callers use the earlier keys
            try:
                await asyncio.to_thread(self._refresh)  # the disk or the parser may be slow
            finally:
                self._checked_at = time.monotonic()
        return self._keys

    def _refresh(self) -> None:
        """Reload the file if it has changed; if that fails, log the reason once."""
        try:
            if self._is_unchanged():
                return
            content = self._load()
            if content != self._content:
                self._content = content  # a broken file is not parsed again until it changes
                self._keys = self._parse(content)
                logger.info("Reloaded %s", self._description, extra={"event": "keys_changed"})
            self._logged_reason = ""
        except ConfigurationError as error:
            if str(error) != self._logged_reason:
                message, extra = "Cannot reload %s: %s", {"event": "changed_keys_unusable"}
                logger.error(message, self._description, error, extra=extra)
            self._logged_reason = str(error)

    def _is_unchanged(self) -> bool:
        """Return whether the file certainly has not changed since it was last read."""
        with suppress(OSError):
            state = _state_of(self._path)
            return state == self._state and time.time() - state.modified_at > SETTLING_TIME
        return False

    def _load(self) -> bytes:
        try:
            state = _state_of(self._path)
            content = self._path.read_bytes()
        except OSError as error:
            raise ConfigurationError(f"Cannot read {self._description}: {error.strerror}") from None
        # set only after reading: an unreadable file may become readable without a change
        self._state = state
        return content


def _state_of(path: Path) -> FileState:
    stat = path.stat()
    return FileState(stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime)
