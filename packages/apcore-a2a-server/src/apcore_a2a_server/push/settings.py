"""Settings of webhooks."""

import re
import ssl
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from urllib.parse import urlsplit

from apcore_a2a_server.fields import DAY, OptionError, check, option

MIN_SECRET = 24
"""Bytes (Standard Webhooks, "Symmetric keys")."""
SECRET_RULE = "whsec_ and the base64 of 24 bytes or more, for example of `openssl rand -base64 32`"
HOST_NAME = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63}){0,126}\.?", re.IGNORECASE)
"""A host name, as resolvers accept it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushSettings:
    """Settings of webhooks; pass them as `push_notifications` instead of `True`.

    Each of the `secrets` adds a signature to every notification, so that receivers can rotate
    secrets. Hosts named in `allowed_hosts` may be private. A `proxy` resolves the names of hosts,
    so it has to check their addresses. A webhook fails when a notification is undelivered after
    the last of the `retries`, or when more than `max_pending` notifications wait.

    Raises:
        OptionError: A value is invalid.

    Example:
        ```python
        from apcore_a2a_server.push import PushSettings

        print(PushSettings(dev=True, retries=[0.5, 5]).retries)
        #> [0.5, 5]
        ```
    """

    secrets: Sequence[str] = option(
        (), "Secrets that sign notifications: whsec_….", section="Webhooks", is_secret=True
    )
    dev: bool = option(
        False, "Allow webhooks with http, at any port, and on this machine.", name="dev"
    )
    retries: Sequence[float] = option(
        (1, 2, 4), "Delays before further attempts.", metavar="SECONDS,…", low=0, high=DAY
    )
    timeout: float = option(10, "Timeout of one attempt.", metavar="SECONDS", above=0, high=DAY)
    allowed_hosts: Sequence[str] = option(
        ("*",), "Hosts and networks to call; * for any public one."
    )
    ports: Sequence[int] = option((), "Ports to call.", otherwise="443,8443", low=1, high=65535)
    proxy: str | None = option(None, "HTTP proxy for all notifications.", is_secret=True)
    ssl_context: ssl.SSLContext | None = option(None, "Which certificates to trust.")
    max_pending: int = option(10_000, "Notifications that may wait per principal.", low=1)

    def __post_init__(self) -> None:
        check(self)
        if not all(map(_is_secret, self.secrets)):
            raise OptionError("secrets", f"must each be {SECRET_RULE}")
        for host in self.allowed_hosts:
            _check_host(host)
        if self.proxy is not None and not _is_proxy(self.proxy):
            raise OptionError("proxy", "must be an address such as http://proxy.example.com:3128")


def _is_secret(text: str) -> bool:
    encoded = text.removeprefix("whsec_").rstrip("=")
    try:
        return len(b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)) >= MIN_SECRET
    except ValueError:
        return False


def _check_host(host: str) -> None:
    if "/" in host or ":" in host:
        try:
            ip_network(host)
        except ValueError as error:
            raise OptionError("allowed_hosts", f"must be names or networks: {error}") from None
    elif host != "*" and not HOST_NAME.fullmatch(host.removeprefix("*.")):
        problem = f"may have a * alone, or before one dot; {host!r} is not a host name"
        raise OptionError("allowed_hosts", problem)


def _is_proxy(address: str) -> bool:
    try:
        url_parts = urlsplit(address)
        has_port = url_parts.port != 0
    except ValueError:
        return False
    extras = url_parts.path.strip("/") + url_parts.query + url_parts.fragment
    is_http = url_parts.scheme in ("http", "https")
    return is_http and bool(url_parts.hostname) and has_port and not extras
