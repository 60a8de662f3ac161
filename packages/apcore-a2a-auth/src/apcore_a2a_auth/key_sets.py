"""Key sets with which Agent Cards are verified, fetched again after a minute."""

import asyncio
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from time import monotonic
from urllib.parse import urlsplit

import httpx
from apcore_a2a_core.data import Json
from apcore_a2a_core.values import is_array, is_object

from .errors import ConfigurationError, KeysUnavailableError
from .jwks import (
    COOLDOWN,
    LIFETIME,
    MAX_KEYS,
    MAX_STALE,
    TIMEOUT,
    get_document,
    without_secrets,
)
from .keys import VerificationKey, key_of_jwk

MAX_SETS = 100
"""Maximum number of cached key sets, because cards can name any number of them."""
NEVER = float("-inf")


@dataclass
class KeySet:
    """Keys at a URL with their ids, and the times of the last successful fetch and last attempt."""

    keys: Sequence[tuple[object, VerificationKey]] = ()
    fetched_at: float = NEVER
    tried_at: float = NEVER
    lock: Lock = field(default_factory=Lock)


class KeySets:
    """Key sets by URL: a configured one, and those that cards name at allowed origins.

    The methods block; they may be called in any thread.

    Args:
        url: The URL of the configured key set, if any.
        origins: Origins at which cards may name key sets.

    Raises:
        ConfigurationError: A URL or an origin is not valid.
    """

    def __init__(self, url: str | None, origins: Collection[str]) -> None:
        if url is not None and origin_of(url) is None:
            raise ConfigurationError("jwks_url must be an http or https URL without a password")
        self._url = url
        self._origins = {origin_of(origin) for origin in origins}
        if None in self._origins:
            raise ConfigurationError(
                "jku_origins takes scheme, host and port, such as https://agents.example.com"
            )
        self._sets: dict[str, KeySet] = {}

    def find(self, key_id: str | None, jku: str | None) -> list[VerificationKey]:
        """Return the keys with *key_id* in the configured set, and in the set at *jku* if allowed.

        If *key_id* is None, the keys may have any id.

        Raises:
            KeysUnavailableError: A key set cannot be fetched, and no recent copy of it is cached.
        """
        urls = [self._url] if self._url is not None else []
        if jku is not None and jku != self._url and origin_of(jku) in self._origins:
            urls.append(jku)
        return [key for url in urls for key in self._find_at(url, key_id)]

    def _find_at(self, url: str, key_id: str | None) -> list[VerificationKey]:
        asked_at = monotonic()
        if len(self._sets) >= MAX_SETS and url not in self._sets:
            self._sets.clear()
        key_set = self._sets.setdefault(url, KeySet())
        with key_set.lock:  # callers that verify at the same time share one request, or its failure
            is_unknown_id = not any(key_id in (None, known_id) for known_id, _ in key_set.keys)
            is_due = asked_at - key_set.fetched_at > LIFETIME or is_unknown_id
            # until a first fetch succeeds, each call tries again
            cooldown = 0 if key_set.fetched_at == NEVER else COOLDOWN
            if is_due and asked_at - key_set.tried_at > cooldown:
                _fetch_keys(url, key_set)
            if monotonic() - key_set.fetched_at > MAX_STALE:
                raise KeysUnavailableError(f"Cannot fetch keys from {without_secrets(url)}")
            return [key for known_id, key in key_set.keys if key_id in (None, known_id)]


def origin_of(url: str) -> tuple[str, str, int | None] | None:
    """Return the scheme, host and port of *url*; None if it is not http(s), or has a user."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"https": 443, "http": 80}.get(parts.scheme)
    except ValueError:
        return None
    is_usable = parts.scheme in ("https", "http") and parts.hostname and "@" not in parts.netloc
    return (parts.scheme, parts.hostname or "", port) if is_usable else None


def _fetch_keys(url: str, key_set: KeySet) -> None:
    """Replace the keys of *key_set* by those at *url*; if the fetch fails, keep the old keys."""
    started_at = monotonic()
    try:
        with ThreadPoolExecutor(1) as pool:  # an event loop may run in the thread of the caller
            document = pool.submit(asyncio.run, _fetch_document(url)).result()
        listed_keys = document.get("keys")
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError):
        listed_keys = None
    if is_array(listed_keys) and len(listed_keys) <= MAX_KEYS:
        jwks = [jwk for jwk in listed_keys if is_object(jwk)]
        key_set.keys = [(jwk.get("kid"), key) for jwk in jwks if (key := key_of_jwk(jwk))]
        key_set.fetched_at = started_at
    key_set.tried_at = monotonic()


async def _fetch_document(url: str) -> Json:
    async with asyncio.timeout(TIMEOUT), httpx.AsyncClient(timeout=TIMEOUT) as client:
        return await get_document(client, url)
