"""How webhooks are called."""

import re
import ssl
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import Any
from urllib.parse import urlsplit

MIN_SECRET = 24
"""Bytes that a secret has at least (Standard Webhooks, "Symmetric keys")."""
SECRET_HELP = "whsec_ and the base64 of 24 bytes or more, such as of `openssl rand -base64 32`"
NAME = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63}){0,126}\.?", re.IGNORECASE)
"""A name of a host, as the resolver takes it."""
DAY = 24 * 3600
"""In seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushSettings:
    """How webhooks are called: what `push_notifications` takes instead of `True`.

    Attributes:
        secrets: What notifications are signed with, by Standard Webhooks: `whsec_…`. With several
            each has a signature of each, so that receivers can change from one to the next.
        dev: Whether webhooks may be http, at any port, and on this machine.
        retries: Seconds after which a notification is tried again, one for each further attempt;
            behind the last the webhook has failed.
        timeout: Seconds that one attempt may take.
        allowed_hosts: The hosts that webhooks may have: names, `*.example.com`, networks such as
            `10.1.0.0/16`, and `*` for any that is public. What is named may be private.
        ports: The ports that webhooks may have; else 443 and 8443, and any in development.
        proxy: The address of an HTTP proxy that all notifications go through. Names are resolved
            there, so that it has to judge the addresses.
        ssl_context: Whose certificates are believed; else those that the system believes.
        max_pending: How many notifications of one principal may wait; the webhooks that are to
            have more have failed.

    Raises:
        ValueError: An option makes no sense; the text tells which, and what would.

    Example:
        ```python
        from apcore_a2a_server.push import PushSettings

        print(PushSettings(dev=True, retries=[0.5, 5]).retries)
        #> [0.5, 5]
        ```
    """

    secrets: Sequence[str] = field(default=(), repr=False)
    dev: bool = False
    retries: Sequence[float] = (1, 2, 4)
    timeout: float = 10
    allowed_hosts: Sequence[str] = ("*",)
    ports: Sequence[int] = ()
    proxy: str | None = field(default=None, repr=False)
    ssl_context: ssl.SSLContext | None = None
    max_pending: int = 10_000

    def __post_init__(self) -> None:
        for option, (kind, items) in LISTS.items():
            if not _is_list(getattr(self, option), kind):
                raise ValueError(f"{option} must be a list of {items}")
        if not all(map(_is_secret, self.secrets)):
            raise ValueError(f"secrets: each must be {SECRET_HELP}")
        if not all(0 <= seconds <= DAY for seconds in self.retries):
            raise ValueError("retries must be seconds: 0 or more, and a day at most")
        if not _is(self.timeout, int | float) or not 0 < self.timeout <= DAY:
            raise ValueError("timeout must be seconds: more than 0, and a day at most")
        if not all(0 < port < 65536 for port in self.ports):
            raise ValueError("ports must be from 1 to 65535")
        if not _is(self.max_pending, int) or self.max_pending < 1:
            raise ValueError("max_pending must be a whole number, 1 or more")
        for host in self.allowed_hosts:
            _check_host(host)
        if self.proxy is not None and not _is_proxy(self.proxy):
            raise ValueError("proxy must be an address such as http://proxy.example.com:3128")


LISTS: dict[str, tuple[Any, str]] = {
    "secrets": (str, "strings"),
    "retries": (int | float, "seconds"),
    "allowed_hosts": (str, "strings"),
    "ports": (int, "whole numbers"),
}


def _is_list(given: Any, kind: Any) -> bool:
    """Whether it is a list of this kind; a string is none, though it is a sequence of them."""
    return type(given) in (list, tuple) and all(_is(item, kind) for item in given)


def _is(value: object, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _is_secret(text: str) -> bool:
    plain = text.removeprefix("whsec_").rstrip("=")
    try:
        return len(b64decode(plain + "=" * (-len(plain) % 4), validate=True)) >= MIN_SECRET
    except ValueError:
        return False


def _check_host(host: str) -> None:
    if "/" in host or ":" in host:
        try:
            ip_network(host)
        except ValueError as error:
            raise ValueError(f"allowed_hosts: {error}") from None
    elif host != "*" and not NAME.fullmatch(host.removeprefix("*.")):
        raise ValueError(f"allowed_hosts: {host!r} is no name; a * stands alone, or before one dot")


def _is_proxy(address: object) -> bool:
    try:
        parts = urlsplit(address) if isinstance(address, str) else urlsplit("")
        has_port = parts.port != 0
    except ValueError:
        return False
    rest = parts.path.strip("/") + parts.query + parts.fragment
    return parts.scheme in ("http", "https") and bool(parts.hostname) and has_port and not rest
