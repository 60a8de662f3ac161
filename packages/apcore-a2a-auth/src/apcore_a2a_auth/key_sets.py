"""Key sets with which Agent Cards are verified, fetched again after a minute."""

import json
from collections.abc import Collection, Sequence
from threading import Lock
from time import monotonic
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx
from apcore_a2a_core.data import Json
from apcore_a2a_core.values import is_array, is_object

from .errors import ConfigurationError, KeysUnavailableError
from .jwks import COOLDOWN, LIFETIME, MAX_BYTES, MAX_KEYS, TIMEOUT, without_secrets
from .keys import VerificationKey, key_of_jwk

MAX_STALE = 3600.0
"""Age in seconds up to which keys are used while fetches fail."""
MAX_SETS = 100
"""Maximum number of cached key sets, because cards can name any number of them."""
NEVER = float("-inf")


class KeySet(NamedTuple):
    """Keys at a URL with their ids, and the times of the last successful fetch and last attempt."""

    keys: Sequence[tuple[object, VerificationKey]] = ()
    fetched_at: float = NEVER
    tried_at: float = NEVER


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
        self._lock = Lock()

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
        with self._lock:  # callers that verify at the same time share one fetch if it succeeds
            key_set = self._sets.get(url, KeySet())
            now = monotonic()
            is_unknown = not any(key_id in (None, known_id) for known_id, _ in key_set.keys)
            is_due = now - key_set.fetched_at > LIFETIME or is_unknown
            # until a first fetch succeeds, each call tries again
            if is_due and now - key_set.tried_at > (0 if key_set.fetched_at == NEVER else COOLDOWN):
                key_set = self._fetch(url, key_set)
        if monotonic() - key_set.fetched_at > MAX_STALE:
            raise KeysUnavailableError(f"Cannot fetch keys from {without_secrets(url)}")
        return [key for known_id, key in key_set.keys if key_id in (None, known_id)]

    def _fetch(self, url: str, cached: KeySet) -> KeySet:
        """Fetch the keys at *url*, and cache them; if that fails, keep those of *cached*."""
        now = monotonic()
        try:
            listed_keys = fetch_document(url).get("keys")
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, RecursionError):
            listed_keys = None
        key_set = cached._replace(tried_at=now)
        if is_array(listed_keys) and len(listed_keys) <= MAX_KEYS:
            jwks = [jwk for jwk in listed_keys if is_object(jwk)]
            keys = [(jwk.get("kid"), key) for jwk in jwks if (key := key_of_jwk(jwk))]
            key_set = KeySet(keys, now, now)
        if len(self._sets) >= MAX_SETS:
            self._sets.clear()
        self._sets[url] = key_set
        return key_set


def origin_of(url: str) -> tuple[str, str, int | None] | None:
    """Return the scheme, host and port of *url*; None if it is not http(s), or has a user."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"https": 443, "http": 80}.get(parts.scheme)
    except ValueError:
        return None
    is_usable = parts.scheme in ("https", "http") and parts.hostname and not parts.username
    return (parts.scheme, parts.hostname or "", port) if is_usable else None


def fetch_document(url: str) -> Json:
    """Return the JSON object at *url*, of at most `MAX_BYTES`, without following redirects.

    Raises:
        ValueError: The response is not such an object, or its body takes too long.
        httpx.HTTPError: The request failed, or there was no response in time.
    """
    headers = {"accept": "application/json", "accept-encoding": "identity"}
    body, deadline = bytearray(), monotonic() + TIMEOUT
    with httpx.stream("GET", url, headers=headers, timeout=TIMEOUT) as response:
        if response.status_code != 200:
            raise ValueError(f"status {response.status_code}")
        for chunk in response.iter_raw():
            body += chunk
            if len(body) > MAX_BYTES or monotonic() > deadline:
                raise ValueError("too large, or too slow")
    document = json.loads(body)
    if not is_object(document):
        raise ValueError("not a JSON object")
    return document
