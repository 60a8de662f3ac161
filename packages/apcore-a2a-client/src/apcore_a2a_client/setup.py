"""Making a client from what its user gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

import httpx

from .auth import Credentials, auth_of, checked
from .discovery import VERSIONS, Discovery
from .exchange import Exchange, is_good
from .operations import Operations

Http = TypeVar("Http", httpx.Client, httpx.AsyncClient)
LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=100)
"""As many connections as there are calls and streams at a time."""
LONGEST = 10**9
"""Seconds: sockets take no longer timeouts."""


class Client(Generic[Http]):
    """The base of both clients; `A2AClient` describes the arguments."""

    _kind: type[Http]

    def __init__(
        self,
        url: str,
        *,
        auth: Credentials | None = None,
        timeout: float | None = 30,
        card_ttl: float = 300,
        headers: Mapping[str, str] | None = None,
        retries: int = 3,
        http_client: Http | None = None,
        protocol: str | None = None,
        max_bytes: int = 64 * 2**20,
    ) -> None:
        if protocol not in (None, *VERSIONS):
            raise ValueError(f"protocol takes one of {', '.join(VERSIONS)}, not {protocol!r}")
        if card_ttl < 0 or retries < 0 or max_bytes < 1:
            raise ValueError(
                "card_ttl and retries take no negative number, max_bytes a positive one"
            )
        if timeout is not None and not 0 < timeout <= LONGEST:
            raise ValueError(
                f"timeout takes seconds, more than 0 and at most {LONGEST}: {timeout!r}"
            )
        known = {
            named(name).lower(): checked(value, f"header {name}")
            for name, value in (headers or {}).items()
        }
        self._owns = http_client is None
        self._http: Http = http_client or self._kind(limits=LIMITS)
        build = self._http.build_request
        exchange = Exchange(build, auth_of(auth), known, timeout, retries, max_bytes)
        discovery = Discovery(exchange, address(url), card_ttl, protocol)
        self._operations = Operations(exchange, discovery)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._operations.url}>"


def named(name: str) -> str:
    """*name*, if a header can be called so (RFC 9110 §5.6.2).

    Raises:
        ValueError: It can't.
    """
    if not name or not all(c.isascii() and (c.isalnum() or c in "!#$%&'*+-.^_`|~") for c in name):
        raise ValueError(f"No header can be called {name!r}")
    return name


def address(url: str) -> httpx.URL:
    """*url*, without the place of its card if it names that (FR-CLI-001.2).

    Raises:
        ValueError: It is no http or https URL; the message shows no password.
    """
    try:
        found = httpx.URL(url)
        shown = f"{found.scheme}://{found.host}"
    except (httpx.InvalidURL, TypeError, UnicodeError):
        raise ValueError("An agent has an http or https URL, and this is none") from None
    if found.userinfo:
        raise ValueError("Credentials don't belong into a URL: pass auth= (the command: --auth)")
    if found.query:
        raise ValueError("An agent's URL has no query; headers= or auth= may do what it is for")
    if not is_good(found) or any(character.isspace() for character in url):
        raise ValueError(f"An agent has an http or https URL, not {shown!r}")
    path = found.raw_path.partition(b"?")[0].partition(b"/.well-known/")[0]
    return found.copy_with(raw_path=path or b"/", fragment=None)
