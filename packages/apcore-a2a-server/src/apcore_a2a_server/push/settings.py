"""How webhooks are called."""

import re
import ssl
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from urllib.parse import urlsplit

from apcore_a2a_server.fields import DAY, OptionError, check, option

MIN_SECRET = 24
"""Bytes that a secret has at least (Standard Webhooks, "Symmetric keys")."""
SECRET_HELP = "whsec_ and the base64 of 24 bytes or more, such as of `openssl rand -base64 32`"
NAME = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63}){0,126}\.?", re.IGNORECASE)
"""A name of a host, as the resolver takes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushSettings:
    """How webhooks are called: what `push_notifications` takes instead of `True`.

    Several `secrets` sign each notification once each, so that receivers can change from one to
    the next. Hosts that are named in `allowed_hosts` may be private. A `proxy` resolves the names
    of hosts, so that it has to judge the addresses. A webhook with more than `max_pending`
    notifications, or none delivered after the last of the `retries`, has failed.

    Raises:
        OptionError: A value makes no sense.

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
    ssl_context: ssl.SSLContext | None = option(
        None, "Which certificates to trust.", in_shell=False
    )
    max_pending: int = option(10_000, "Notifications that may wait per principal.", low=1)

    def __post_init__(self) -> None:
        check(self)
        if not all(map(_is_secret, self.secrets)):
            raise OptionError("secrets", f"must each be {SECRET_HELP}")
        for host in self.allowed_hosts:
            _check_host(host)
        if self.proxy is not None and not _is_proxy(self.proxy):
            raise OptionError("proxy", "must be an address such as http://proxy.example.com:3128")


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
            raise OptionError("allowed_hosts", f"must be names or networks: {error}") from None
    elif host != "*" and not NAME.fullmatch(host.removeprefix("*.")):
        problem = f"may have a * alone, or before one dot; {host!r} is no name"
        raise OptionError("allowed_hosts", problem)


def _is_proxy(address: str) -> bool:
    try:
        parts = urlsplit(address)
        has_port = parts.port != 0
    except ValueError:
        return False
    rest = parts.path.strip("/") + parts.query + parts.fragment
    return parts.scheme in ("http", "https") and bool(parts.hostname) and has_port and not rest
