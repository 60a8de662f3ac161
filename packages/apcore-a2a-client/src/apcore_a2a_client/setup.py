"""What both clients are made of, from what their users give."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import httpx

from .auth import Credentials, auth_of, checked
from .discovery import VERSIONS, Discovery
from .exchange import Exchange, is_good
from .operations import Operations

LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=100)
"""As many connections as there are calls and streams at a time."""
LONGEST = 10**9
"""Seconds: sockets take no longer timeouts."""


def operations_of(
    build: Callable[..., httpx.Request],
    url: str,
    *,
    auth: Credentials | None,
    timeout: float | None,
    card_ttl: float,
    headers: Mapping[str, str] | None,
    retries: int,
    protocol: str | None,
    max_bytes: int,
) -> Operations:
    """The operations on the agent at *url*; see `A2AClient`.

    Raises:
        ValueError: Something is not what it should be.
    """
    if protocol not in (None, *VERSIONS):
        raise ValueError(f"protocol takes one of {', '.join(VERSIONS)}, not {protocol!r}")
    if card_ttl < 0 or retries < 0 or max_bytes < 1:
        raise ValueError("card_ttl and retries take no negative number, max_bytes a positive one")
    if timeout is not None and not 0 < timeout <= LONGEST:
        raise ValueError(f"timeout takes seconds, more than 0 and at most {LONGEST}: {timeout!r}")
    known = {
        named(name).lower(): checked(value, f"header {name}")
        for name, value in (headers or {}).items()
    }
    exchange = Exchange(build, auth_of(auth), known, timeout, retries, max_bytes)
    return Operations(exchange, Discovery(exchange, address(url), card_ttl, protocol))


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
