"""Media types: detection for files, and matching with accepted types."""

from collections.abc import Sequence
from mimetypes import types_map
from posixpath import splitext

JSON, TEXT = "application/json", "text/plain"
BINARY = "application/octet-stream"

FIRST_BYTES = {
    b"\x89PNG": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"%PDF-": "application/pdf",
    b"ID3": "audio/mpeg",
    b"OggS": "audio/ogg",
    b"fLaC": "audio/flac",
}
"""Media types by the first bytes of a file."""

OFFICE = "application/vnd.openxmlformats-officedocument"
SUFFIXES = types_map | {
    ".docx": f"{OFFICE}.wordprocessingml.document",
    ".flac": "audio/flac",
    ".md": "text/markdown",
    ".ogg": "audio/ogg",
    ".pptx": f"{OFFICE}.presentationml.presentation",
    ".webp": "image/webp",
    ".xlsx": f"{OFFICE}.spreadsheetml.sheet",
    ".yaml": "application/yaml",
}
"""Media types by suffix: Python's built-in table, and types that it may lack."""

SHORT_NAMES = {"text": TEXT, "data": JSON, "json": JSON, "file": "*/*"}
"""Short names of media types in clients of early versions of A2A, and the types they stand for."""


def type_of_file(name: str, first_bytes: bytes | bytearray = b"") -> str:
    """Return the media type of a file by its first bytes, or else by its name.

    >>> type_of_file("table.CSV"), type_of_file("a.txt", b"%PDF-1.7"), type_of_file("a")
    ('text/csv', 'application/pdf', 'application/octet-stream')
    """
    for prefix, media_type in FIRST_BYTES.items():
        if first_bytes.startswith(prefix):
            return media_type
    return SUFFIXES.get(splitext(name)[1].lower(), BINARY)


def is_accepted(media_type: str, accepted: Sequence[str]) -> bool:
    """Return whether one of the *accepted* types, which may have wildcards, matches *media_type*.

    Parameters and case do not count (RFC 9110 §8.3.1).

    >>> is_accepted("Text/Plain; charset=utf-8", ["text/*;q=0.5"])
    True
    >>> is_accepted("text/plain", ["image/png"])
    False
    """
    given = _essence(media_type)
    matching = ("*", "*/*", given, f"{given.split('/')[0]}/*")
    essences = map(_essence, accepted)
    return any(SHORT_NAMES.get(essence, essence) in matching for essence in essences)


def _essence(media_type: str) -> str:
    return media_type.split(";")[0].strip().lower()
