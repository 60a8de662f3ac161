"""The keys of an issuer: a JSON Web Key Set (RFC 7517 §5), fetched in the background."""

import asyncio
import json
import logging
from collections.abc import Mapping
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpcore
import httpx
from apcore_a2a_core.data import Json
from apcore_a2a_core.values import is_array, is_object

from .errors import KeysUnavailableError
from .keys import VerificationKey, key_of_jwk
from .schemes import discovery_url

logger = logging.getLogger("apcore_a2a.auth")

PRELOADED = (anyio, httpcore)
"""Modules that httpx would import on its first request, blocking the event loop for 0.1 s."""

REFRESH_AGE = 45.0
"""Age in seconds from which the keys are fetched again in the background."""
LIFETIME = 60.0
"""Age in seconds from which requests wait for new keys, so that withdrawn keys are refused."""
COOLDOWN = 30.0
"""Seconds between two fetches for unknown key ids, which any client can make up."""
RETRY_INTERVAL = 5.0
"""Seconds between two attempts while fetches fail."""
MAX_STALE = 3600.0
"""Age in seconds up to which the last keys are used while fetches fail."""
TIMEOUT = 5.0
"""Seconds for one fetch, including discovery."""
MAX_BYTES = 256 * 1024
"""Maximum size of a document from the issuer, in bytes."""
MAX_KEYS = 100
"""Maximum number of keys in a set."""


class Jwks:
    """A cache of an issuer's keys; concurrent callers share one fetch.

    Args:
        url: URL of the key set; None to take it from the discovery document of *issuer*.
        issuer: The issuer, which its discovery document must name too (OIDC Discovery §4).
    """

    def __init__(self, url: str | None, issuer: str | None = None) -> None:
        self._url = url
        self._issuer = issuer or ""
        self._shown_url = without_secrets(url or issuer or "")  # for logs and errors
        self._is_url_given = url is not None
        self._ssl = httpx.create_ssl_context()  # at start-up, because it takes 20 ms
        # pairs of key id and key; None for a key that this package cannot use
        self._keys: list[tuple[Any, VerificationKey | None]] = []
        self._fetched_at = self._tried_at = float("-inf")
        self._is_failing = False
        self._fetch_task: asyncio.Task[None] | None = None

    async def find(self, header: Mapping[str, Any]) -> VerificationKey | None:
        """Return the key for the header of a token, or None if there is none.

        Raises:
            KeysUnavailableError: There are no keys yet, or they are too old.
        """
        await self._refresh()
        key = self._matching_key(header)
        # an unknown key may be new: wait for a running fetch, or start one, at most once in
        # COOLDOWN seconds
        may_fetch = self._fetch_task is not None or monotonic() - self._tried_at >= COOLDOWN
        if key is None and may_fetch:
            await asyncio.shield(self._start_fetch())
            key = self._matching_key(header)
        if monotonic() - self._fetched_at > MAX_STALE:
            raise KeysUnavailableError(f"Cannot fetch keys from {self._shown_url}")
        return key

    async def _refresh(self) -> None:
        """Fetch the keys if they are old, and wait for them if they are too old to be used."""
        now, tried_at = monotonic(), self._tried_at
        age = now - self._fetched_at
        if age < REFRESH_AGE:
            return
        if now - tried_at >= RETRY_INTERVAL:
            self._start_fetch()
        # if a recent fetch has failed, use the last keys without waiting for the next fetch
        uses_last_keys = self._is_failing and age <= MAX_STALE and now - tried_at < LIFETIME
        if age >= LIFETIME and not uses_last_keys and self._fetch_task is not None:
            await asyncio.shield(self._fetch_task)

    def _start_fetch(self) -> "asyncio.Task[None]":
        if self._fetch_task is None:
            self._tried_at = monotonic()
            self._fetch_task = asyncio.create_task(self._fetch())
            self._fetch_task.add_done_callback(self._on_fetched)
        return self._fetch_task

    def _on_fetched(self, task: "asyncio.Task[None]") -> None:
        self._fetch_task = None

    async def _fetch(self) -> None:
        """Replace the keys; if that fails, keep the old ones and log the reason."""
        try:
            client = httpx.AsyncClient(verify=self._ssl, timeout=TIMEOUT, follow_redirects=False)
            async with asyncio.timeout(TIMEOUT), client:
                if self._url is None or (self._is_failing and not self._is_url_given):
                    self._url = await self._discover(client)
                self._replace_keys(await get_document(client, self._url))
        except Exception as error:  # an issuer may send anything; the old keys stay in use
            self._is_failing = True
            reason = str(error) if type(error) is ValueError else type(error).__name__
            event = {"event": "keys_fetch_failed"}
            logger.warning("Cannot fetch keys from %s: %s", self._shown_url, reason, extra=event)

    async def _discover(self, client: httpx.AsyncClient) -> str:
        issuer = self._issuer
        document = await get_document(client, discovery_url(issuer))
        url = document.get("jwks_uri")
        if str(document.get("issuer")).rstrip("/") != issuer.rstrip("/"):
            raise ValueError("the discovery document is for another issuer")
        if not isinstance(url, str):
            raise ValueError("the discovery document has no jwks_uri; set jwks_url")
        scheme, issuer_scheme = urlsplit(url).scheme, urlsplit(issuer).scheme
        if {scheme, issuer_scheme} == {"https", "http"}:
            mismatch = f"a jwks_uri with {scheme}://, but the issuer has {issuer_scheme}://"
            raise ValueError(f"the discovery document has {mismatch}; set jwks_url, with https://")
        return url

    def _replace_keys(self, document: Json) -> None:
        keys = document.get("keys")
        if not is_array(keys) or len(keys) > MAX_KEYS:
            raise ValueError(f"the document is not a set of at most {MAX_KEYS} keys")
        self._keys = [(key.get("kid"), key_of_jwk(key)) for key in keys if is_object(key)]
        self._fetched_at, self._is_failing = monotonic(), False

    def _matching_key(self, header: Mapping[str, Any]) -> VerificationKey | None:
        """Return the only key that fits the algorithm and the id in *header*, or None.

        A header without an id fits keys with any id.
        """
        key_id, algorithm = header.get("kid"), header.get("alg")
        candidates = [key for kid, key in self._keys if key and key_id in (None, kid)]
        matches = [key for key in candidates if algorithm in key.algorithms]
        is_unique = all(key == matches[0] for key in matches)  # a key may be published twice
        return matches[0] if matches and is_unique else None


def without_secrets(url: str) -> str:
    """Return *url* without user, password and query, which may be secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


async def get_document(client: httpx.AsyncClient, url: str) -> Json:
    """Return the JSON object at *url*, of at most MAX_BYTES.

    Raises:
        ValueError: The response is not such an object; the message is safe to log.
    """
    headers = {"accept": "application/json", "accept-encoding": "identity"}
    body = bytearray()
    async with client.stream("GET", url, headers=headers) as response:
        if response.status_code != 200:
            raise ValueError(f"status {response.status_code}")
        async for chunk in response.aiter_raw():
            body += chunk
            await asyncio.sleep(0)  # a flood of small chunks must not block the event loop
            if len(body) > MAX_BYTES:
                raise ValueError(f"more than {MAX_BYTES} bytes")
    try:
        document = json.loads(body)
    except (RecursionError, ValueError):
        document = None
    if not is_object(document):
        raise ValueError("the response is not a JSON object")
    return document
