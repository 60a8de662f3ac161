"""The keys of an issuer: a JSON Web Key Set (RFC 7517 §5), fetched without holding up the loop."""

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
from apcore_a2a_core.schema import Object, is_array, is_object

from .errors import KeysUnavailableError
from .keys import VerificationKey, key_of_jwk
from .schemes import discovery_url

logger = logging.getLogger("apcore_a2a.auth")

LOADED = (anyio, httpcore)
"""What httpx imports with its first request, which would hold up everybody for 0.1 s."""

REFRESH = 45.0
LIFETIME = 60.0
"""Seconds after which the keys are fetched again: in the background, and before they are used.

So a key that the issuer withdraws is refused within a minute.
"""
COOLDOWN = 30.0
"""Seconds between two fetches for the sake of unknown keys, which anybody can make up."""
RETRY = 5.0
"""Seconds between two attempts while the issuer does not answer."""
MAX_STALE = 3600.0
"""Seconds that the last good keys are used for while the issuer does not answer."""
TIMEOUT = 5.0
MAX_BYTES = 256 * 1024
MAX_KEYS = 100


class Jwks:
    """An issuer's keys, kept for a while; a single fetch at a time serves all who wait.

    Args:
        url: Where the set is; None to ask the issuer.
        issuer: Whose discovery document tells where it is (OIDC Discovery §4), and must name
            the same issuer.
    """

    def __init__(self, url: str | None, issuer: str | None = None) -> None:
        self._url = url
        self._issuer = issuer or ""
        self._place = place_of(url or issuer or "")  # not what a document says, nor a password
        self._is_given = url is not None
        self._ssl = httpx.create_ssl_context()  # here, for it takes 20 ms
        self._keys: list[tuple[Any, VerificationKey | None]] = []
        self._fetched = self._tried = float("-inf")
        self._failing = False
        self._fetching: asyncio.Task[None] | None = None

    async def find(self, header: Mapping[str, Any]) -> VerificationKey | None:
        """The key that the header of a token names, or the only one there is for it.

        Raises:
            KeysUnavailableError: There are no keys yet, or they are too old.
        """
        await self._freshen()
        found = self._matching(header)
        waiting = self._fetching is not None or monotonic() - self._tried >= COOLDOWN
        if found is None and waiting:
            await asyncio.shield(self._start())
            found = self._matching(header)
        if monotonic() - self._fetched > MAX_STALE:
            raise KeysUnavailableError(f"No keys from {self._place}")
        return found

    async def _freshen(self) -> None:
        """Fetch the keys when they are old; wait for that unless old ones have to do."""
        now, tried = monotonic(), self._tried
        age = now - self._fetched
        if age < REFRESH:
            return
        if now - tried >= RETRY:
            self._start()
        bearable = self._failing and age <= MAX_STALE and now - tried < LIFETIME
        if age >= LIFETIME and not bearable and self._fetching is not None:
            await asyncio.shield(self._fetching)

    def _start(self) -> "asyncio.Task[None]":
        if self._fetching is None:
            self._tried = monotonic()
            self._fetching = asyncio.create_task(self._fetch())
            self._fetching.add_done_callback(self._on_fetched)
        return self._fetching

    def _on_fetched(self, task: "asyncio.Task[None]") -> None:
        self._fetching = None

    async def _fetch(self) -> None:
        """Replace the keys; when that fails, keep them, and say why."""
        try:
            async with asyncio.timeout(TIMEOUT), self._client() as client:
                if self._url is None or (self._failing and not self._is_given):
                    self._url = await self._discover(client)
                self._replace(await _get(client, self._url))
        except Exception as error:  # whatever the other end leads to, the old keys stay
            self._failing = True
            reason = str(error) if type(error) is ValueError else type(error).__name__
            logger.warning("No keys from %s: %s", self._place, reason)

    def _client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(verify=self._ssl, timeout=TIMEOUT, follow_redirects=False)

    async def _discover(self, client: httpx.AsyncClient) -> str:
        issuer = self._issuer
        document = await _get(client, discovery_url(issuer))
        url = document.get("jwks_uri")
        if str(document.get("issuer")).rstrip("/") != issuer.rstrip("/"):
            raise ValueError("the discovery document is another issuer's")
        schemes = {urlsplit(place).scheme for place in (issuer, str(url))}
        if not isinstance(url, str) or schemes == {"https", "http"}:
            raise ValueError("the discovery document has no jwks_uri that is safe")
        return url

    def _replace(self, document: Object) -> None:
        keys = document.get("keys")
        if not is_array(keys) or len(keys) > MAX_KEYS:
            raise ValueError(f"it is no set of at most {MAX_KEYS} keys")
        self._keys = [(key.get("kid"), key_of_jwk(key)) for key in keys if is_object(key)]
        self._fetched, self._failing = monotonic(), False

    def _matching(self, header: Mapping[str, Any]) -> VerificationKey | None:
        """By the key's name; a token that names none gets the only key for its algorithm."""
        name, algorithm = header.get("kid"), header.get("alg")
        named = [key for kid, key in self._keys if key and name in (None, kid)]
        fitting = [key for key in named if algorithm in key.algorithms]
        same = all(key == fitting[0] for key in fitting)  # a key may be there twice
        return fitting[0] if fitting and same else None


def place_of(url: str) -> str:
    """An address without what may be secret in it: user, password, query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


async def _get(client: httpx.AsyncClient, url: str) -> Object:
    """The JSON object at *url*, when it is small.

    Raises:
        ValueError: It is not, or the answer is another one; the text is safe to log.
    """
    headers = {"accept": "application/json", "accept-encoding": "identity"}
    body = bytearray()
    async with client.stream("GET", url, headers=headers) as response:
        if response.status_code != 200:
            raise ValueError(f"status {response.status_code}")
        async for chunk in response.aiter_raw():
            body += chunk
            await asyncio.sleep(0)  # what comes byte by byte holds up nobody
            if len(body) > MAX_BYTES:
                raise ValueError(f"more than {MAX_BYTES} bytes")
    try:
        document = json.loads(body)
    except (RecursionError, ValueError):
        document = None
    if not is_object(document):
        raise ValueError("it is no JSON object")
    return document
