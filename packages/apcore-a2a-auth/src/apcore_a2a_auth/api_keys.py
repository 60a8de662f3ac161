"""Keys that callers hold, each for one identity."""

import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import yaml
from a2a.types import SecurityScheme
from apcore import Identity

from .errors import ConfigurationError
from .schemes import api_key

Owner: TypeAlias = Identity | str | Mapping[str, Any]

HASHED = re.compile(r"sha256:([0-9a-f]{64})", re.IGNORECASE)
FORM = 'keys: [{id: ci, sha256: "<64 hexadecimal digits>", type: service, roles: [operator]}]'
MEMBERS = frozenset({"id", "type", "roles", "attrs"})
MAX_KEY = 4096
"""Characters; whoever sends more sends no key."""


class APIKeyAuthenticator:
    """Knows callers by a key in a header.

    Of the keys only hashes are kept. A key is compared with each of them, in a time that tells
    nothing of how much of it was right.

    Args:
        keys: Identities by their keys, or by `sha256:` and the hash of the key; or the path of a
            YAML or JSON file, which has hashes alone: `keys: [{id: ci, sha256: …, type: service,
            roles: [operator]}]`. An identity is an apcore Identity, its id, or a mapping with
            `id`, `type` (`service` unless it says otherwise), `roles` and `attrs`.
        header: The header that holds the key.

    Raises:
        ConfigurationError: There are no keys, or one of them is malformed.

    Example:
        ```python
        import asyncio

        from apcore_a2a_auth import APIKeyAuthenticator, hash_key

        keys = APIKeyAuthenticator({hash_key("a long random key"): {"id": "ci"}})
        print(asyncio.run(keys.authenticate({"x-api-key": "a long random key"})).type)
        #> service
        ```
    """

    def __init__(
        self, keys: Mapping[str, Owner] | PathLike[str], *, header: str = "X-API-Key"
    ) -> None:
        if isinstance(keys, str):
            raise ConfigurationError("keys: a mapping, or the Path of a file")
        self._keys = _read(Path(keys)) if isinstance(keys, PathLike) else _known(keys.items())
        self._header = header

    async def authenticate(self, headers: Mapping[str, str]) -> Identity | None:
        """Whose key is in *headers* (their names in lower case); None for nobody."""
        given = headers.get(self._header.lower(), "")
        if not given or len(given) > MAX_KEY:
            return None
        digests = [hashlib.sha256(form).digest() for form in _forms(given)]
        pairs = [(each, who) for each in digests for who in self._keys]
        found = [who for each, (known, who) in pairs if hmac.compare_digest(known, each)]
        return deepcopy(found[0]) if found else None

    def security_schemes(self) -> Mapping[str, SecurityScheme]:
        """What the Agent Card says of it (FR-AUT-003)."""
        return {"apiKey": api_key(self._header)}


def hash_key(key: str) -> str:
    """What may be kept of *key*: its SHA-256; keys are random, so that it needs no salt.

    Example:
        ```python
        from apcore_a2a_auth import hash_key

        print(hash_key("a long random key")[:15])
        #> sha256:a9f3626e
        ```
    """
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


def _forms(given: str) -> Iterator[bytes]:
    """The bytes that a header may stand for: servers read what is UTF-8 as Latin-1."""
    yield given.encode("utf-8", "surrogatepass")
    if not given.isascii():
        with suppress(UnicodeEncodeError):
            yield given.encode("latin-1")


def _read(path: Path) -> list[tuple[bytes, Identity]]:
    """Hashes and identities in a file, which never holds a key itself."""
    try:
        document: Any = yaml.safe_load(path.read_bytes())
        entries = [dict(entry) for entry in document["keys"]]
        return _known([(f"sha256:{entry.pop('sha256')}", entry) for entry in entries])
    except OSError as error:
        raise ConfigurationError(f"Can't read the keys in {path}: {error.strerror}") from None
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from None
    except (yaml.YAMLError, AttributeError, KeyError, RecursionError, TypeError, ValueError):
        raise ConfigurationError(f"{path} must have the form {FORM}") from None


def _known(entries: Iterable[tuple[str, Owner]]) -> list[tuple[bytes, Identity]]:
    found = [(_digest(key), _identity(owner)) for key, owner in entries]
    if not found or len(dict(found)) < len(found):
        raise ConfigurationError("There must be keys, and each must be there once")
    return found


def _digest(key: str) -> bytes:
    hashed = HASHED.fullmatch(key)
    if hashed:
        return bytes.fromhex(hashed[1])
    if not 0 < len(key) <= MAX_KEY or key.lower().startswith("sha256:"):
        what = "is empty, too long, or sha256: without 64 hexadecimal digits"
        raise ConfigurationError(f"A key {what}")
    try:
        return hashlib.sha256(key.encode()).digest()
    except UnicodeEncodeError:
        raise ConfigurationError("A key is no text: it can't be written in UTF-8") from None


def _identity(owner: Owner) -> Identity:
    if isinstance(owner, Identity) and owner.id:
        return owner
    given: Any = {"id": owner} if isinstance(owner, str) else owner
    members: dict[str, Any] = {"type": "service"}
    members |= given if isinstance(given, Mapping) else {}
    roles: Any = members.get("roles") or ()
    listed = isinstance(roles, list | tuple) and isinstance(members.get("attrs") or {}, dict)
    texts: list[Any] = [members.get("id"), members["type"], *(roles if listed else [None])]
    plain = all(isinstance(text, str) and text for text in texts) and members.keys() <= MEMBERS
    if not plain:
        raise ConfigurationError(f"Each key has an id, and may have type, roles and attrs: {FORM}")
    members["roles"] = tuple(texts[2:])  # apcore before 0.31 keeps a list
    return Identity(**members)
