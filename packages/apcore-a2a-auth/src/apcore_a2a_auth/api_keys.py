"""API keys, each for one identity."""

import hashlib
import hmac
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import yaml
from a2a.types import SecurityScheme
from apcore import Identity
from apcore_a2a_core import clean

from .errors import ConfigurationError
from .files import KeyFile
from .schemes import api_key

logger = logging.getLogger("apcore_a2a.auth")

IdentityLike: TypeAlias = Identity | str | Mapping[str, Any]
"""An identity, its id, or a mapping of its members."""

_Entry: TypeAlias = tuple[bytes, Identity]
"""The hash of a key, and the identity that the key stands for."""

HASHED = re.compile(r"sha256:([0-9a-f]{64})", re.IGNORECASE)
FILE_FORMAT = (
    'keys: [{id: ci, sha256: "<64 hexadecimal digits>", type: service, roles: [operator]}]'
)
IDENTITY_MEMBERS = frozenset({"id", "type", "roles", "attrs"})
MAX_KEY = 4096
"""Maximum length of a key, in characters."""
SAFE_LENGTH = 16
"""Length in characters; shorter keys cause a warning."""
MAX_IDS_LENGTH = 200
"""Maximum length of the list of ids in a warning about short keys, in characters."""


class APIKeyAuthenticator:
    """An authenticator for API keys in a header.

    It stores only hashes of the keys. The hash of a caller's key is compared with all stored
    hashes in constant time.

    Args:
        keys: A mapping of keys to identities; `sha256:` followed by the hash of a key can stand for
            the key. Or the `Path` of a YAML or JSON file with hashes only: `keys: [{id: ci,
            sha256: …, type: service, roles: [operator]}]`. A changed file is reloaded. An identity
            is an apcore Identity, its id, or a mapping with `id`, `type` (default `service`),
            `roles` and `attrs`.
        header: The header with the key.
        namespace: Prefix of the principals, to keep them apart from those of other authenticators.
        source: Name of the source of *keys*, such as a variable, for a warning about short keys.

    Raises:
        ConfigurationError: There are no keys, a key or an identity is invalid, a key is given
            twice, or the file cannot be read.

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
        self,
        keys: Mapping[str, IdentityLike] | PathLike[str],
        *,
        header: str = "X-API-Key",
        namespace: str = "apikey",
        source: str = "keys",
    ) -> None:
        if isinstance(keys, str):
            raise ConfigurationError("keys must be a mapping or the Path of a file, not a string")
        self._keys: KeyFile[Sequence[_Entry]] | Sequence[_Entry]
        if isinstance(keys, PathLike):
            self._keys = KeyFile(keys, partial(_read_entries, Path(keys)), "API keys")
        else:
            self._keys = _hash_keys(keys.items())
            _warn_about_short_keys(keys, source)
        self._header = header
        self.namespace = namespace

    async def authenticate(self, headers: Mapping[str, str]) -> Identity | None:
        """Return the identity for the key in *headers* (lower-case names), or None."""
        header_value = headers.get(self._header.lower(), "")
        if not header_value:
            return None
        digests = [hashlib.sha256(key).digest() for key in _possible_keys(header_value)]
        entries = await self._keys.current() if isinstance(self._keys, KeyFile) else self._keys
        pairs = [(digest, entry) for digest in digests for entry in entries]
        # compare with every key, so that the time taken does not depend on which one matches
        matches = [
            identity
            for digest, (key_digest, identity) in pairs
            if hmac.compare_digest(key_digest, digest)
        ]
        return deepcopy(matches[0]) if matches else None

    def security_schemes(self) -> Mapping[str, SecurityScheme]:
        """Return the security schemes for the Agent Card (FR-AUT-003)."""
        return {"apiKey": api_key(self._header)}


def hash_key(key: str) -> str:
    """Return `sha256:` followed by the SHA-256 hash of *key*, to be stored instead of the key.

    Keys are random, so the hash needs no salt.

    Example:
        ```python
        from apcore_a2a_auth import hash_key

        print(hash_key("a long random key")[:15])
        #> sha256:a9f3626e
        ```
    """
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


def _possible_keys(header_value: str) -> Iterator[bytes]:
    """Yield the bytes that the client may have sent as its key, except keys that are too long.

    Keys are sent in UTF-8. A server may decode them as Latin-1; encoding as Latin-1 restores the
    UTF-8.
    """
    if len(header_value) <= MAX_KEY:
        yield header_value.encode("utf-8", "surrogatepass")
    if not header_value.isascii():
        with suppress(UnicodeEncodeError):
            encoded = header_value.encode("latin-1")
            if len(encoded.decode("utf-8", "replace")) <= MAX_KEY:
                yield encoded


def _read_entries(path: Path, content: bytes) -> Sequence[_Entry]:
    """Return the hashes and identities in a file, which never contains the keys themselves."""
    try:
        document: Any = yaml.safe_load(content)
        entries = [dict(entry) for entry in document["keys"]]
        return _hash_keys([(f"sha256:{entry.pop('sha256')}", entry) for entry in entries])
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from None
    except (yaml.YAMLError, AttributeError, KeyError, RecursionError, TypeError, ValueError):
        raise ConfigurationError(f"{path} must have the format {FILE_FORMAT}") from None


def _hash_keys(keys: Iterable[tuple[str, IdentityLike]]) -> Sequence[_Entry]:
    entries = [(_digest_of(key), _to_identity(identity)) for key, identity in keys]
    if not entries:
        raise ConfigurationError("keys is empty; give at least one API key")
    if len(dict(entries)) < len(entries):
        raise ConfigurationError("keys has an API key twice; give each key only once")
    return entries


def _warn_about_short_keys(keys: Mapping[str, IdentityLike], source: str) -> None:
    """Warn if keys are short; the warning has the ids of their identities, never the keys."""
    # a key given as a hash is never reported: the hash is longer than SAFE_LENGTH
    short_keys = [key for key in keys if len(key) < SAFE_LENGTH]
    ids = [_to_identity(keys[key]).id for key in short_keys]
    if ids:
        message = "%s: %d of %d API keys (%s) have fewer than %d characters and can be guessed: %s"
        advice = "use random ones, such as those of `openssl rand -base64 32`"
        event = {"event": "short_api_keys"}
        shown_ids = clean(", ".join(ids), MAX_IDS_LENGTH)
        arguments = (source, len(ids), len(keys), shown_ids, SAFE_LENGTH, advice)
        logger.warning(message, *arguments, extra=event)


def _digest_of(key: str) -> bytes:
    match = HASHED.fullmatch(key)
    if match:
        return bytes.fromhex(match[1])
    if not 0 < len(key) <= MAX_KEY or key.lower().startswith("sha256:"):
        raise ConfigurationError(
            f"An API key is empty, longer than {MAX_KEY} characters, or begins with "
            "`sha256:` without 64 hexadecimal digits after it"
        )
    try:
        return hashlib.sha256(key.encode()).digest()
    except UnicodeEncodeError:
        raise ConfigurationError("An API key is not valid UTF-8") from None


def _to_identity(identity: IdentityLike) -> Identity:
    if isinstance(identity, Identity) and identity.id:
        return identity
    as_mapping: Any = {"id": identity} if isinstance(identity, str) else identity
    members: dict[str, Any] = {"type": "service"}
    members |= as_mapping if isinstance(as_mapping, Mapping) else {}
    roles: Any = members.get("roles") or ()
    has_right_types = isinstance(roles, list | tuple) and isinstance(
        members.get("attrs") or {}, dict
    )
    # if roles or attrs have the wrong type, add None, so that the check of the texts fails
    texts: list[Any] = [members.get("id"), members["type"], *(roles if has_right_types else [None])]
    has_valid_texts = all(isinstance(text, str) and text for text in texts)
    if not has_valid_texts or not members.keys() <= IDENTITY_MEMBERS:
        problem = "An identity needs an id, and may have type, roles and attrs"
        raise ConfigurationError(f"{problem}: {FILE_FORMAT}")
    members["roles"] = tuple(texts[2:])  # apcore before 0.31 would keep a list
    return Identity(**members)
