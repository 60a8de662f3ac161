"""Settings of webhooks."""

import re
import ssl
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from apcore_a2a_server.fields import DAY, KINDS, LIST_TYPES, OptionError, check, option

Secrets: TypeAlias = Sequence[str] | Mapping[str, str | Sequence[str]]
"""A list of secrets, or a mapping from the origins of receivers to secrets."""
MIN_SECRET = 24
"""Minimum size of a secret, in bytes (Standard Webhooks, "Symmetric keys")."""
SECRET_RULE = "whsec_ followed by base64 of at least 24 bytes, as from `openssl rand -base64 32`"
ANY_RECEIVER = "*"
"""Key of the master secrets, from which secrets for all other receivers are derived."""
DEFAULT_PORTS = {"http": 80, "https": 443}
HOST_NAME = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63}){0,126}\.?", re.IGNORECASE)
"""A host name, as resolvers accept it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushSettings:
    """Settings of webhooks; pass them as `push_notifications` instead of `True`.

    Each secret of a receiver adds a signature, so that secrets can be rotated. A list has master
    secrets (`whsec_…`) and secrets of single receivers (`ORIGIN=whsec_…`). The other receivers
    get secrets that are derived from the master secrets and differ between receivers, so that no
    receiver can forge notifications for another. In a mapping, the keys are origins, or `*` for
    master secrets; a value is a secret or a list of secrets.

    Hosts and networks named in `allowed_hosts` may be private. A `proxy` resolves host names, so
    the proxy must check the addresses. A webhook fails when its receiver answers 410, when a
    notification is undelivered after the last of the `retries`, or when it would exceed its
    principal's limit of pending notifications, `max_pending`.

    Raises:
        OptionError: A value is invalid.

    Example:
        ```python
        from apcore_a2a_server.push import PushSettings

        print(PushSettings(dev=True, retries=[0.5, 5]).retries)
        #> [0.5, 5]
        ```
    """

    secrets: Secrets = option(
        (),
        "Secrets that sign notifications: whsec_…, or ORIGIN=whsec_… for one receiver.",
        section="Webhooks",
        kind=KINDS[Sequence[str]],
        is_secret=True,
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
    ssl_context: ssl.SSLContext | None = option(None, "TLS settings, such as trusted certificates.")
    max_pending: int = option(10_000, "Notifications that may wait per principal.", low=1)

    def __post_init__(self) -> None:
        check(self)
        secrets_by_origin(self.secrets)
        for host in self.allowed_hosts:
            _check_host(host)
        if self.proxy is not None and not _is_proxy(self.proxy):
            raise OptionError("proxy", "must be an address such as http://proxy.example.com:3128")


def secrets_by_origin(secrets: Secrets) -> dict[str, list[str]]:
    """Return the secrets of receivers by origin, and the master secrets under `*`.

    Raises:
        OptionError: A secret or an origin is invalid; the message repeats neither.

    Example:
        ```python
        from apcore_a2a_server.push.settings import secrets_by_origin

        secret = "whsec_" + "QUJDREVG" * 4
        print(*secrets_by_origin([secret, f"https://Hooks.example.com:443={secret}"]))
        #> * https://hooks.example.com
        ```
    """
    by_origin: dict[str, list[str]] = {}
    for receiver, secret in _pairs(secrets):
        if not isinstance(secret, str) or not _is_secret(secret):
            raise OptionError("secrets", f"must each be {SECRET_RULE}")
        by_origin.setdefault(_receiver(receiver), []).append(secret)
    return by_origin


def _receiver(text: str) -> str:
    """Return *text* if it is `*`, else its origin; anything after the origin is an error."""
    if text == ANY_RECEIVER:
        return text
    with suppress(ValueError):
        origin, url_parts = origin_of(text), urlsplit(text)
        if not (url_parts.path.strip("/") or url_parts.query or url_parts.fragment):
            return origin
    problem = "must name receivers by their origins, such as https://hooks.example.com"
    raise OptionError("secrets", problem) from None


def _pairs(secrets: Secrets) -> Iterator[tuple[str, Any]]:
    """Yield pairs of a receiver and a secret, as written."""
    if isinstance(secrets, Mapping):
        for receiver, values in secrets.items():
            for value in values if isinstance(values, LIST_TYPES) else [values]:
                yield str(receiver), value
        return
    if not isinstance(secrets, LIST_TYPES):
        raise OptionError(
            "secrets", "must be a list of secrets, or a mapping from origins to secrets"
        )
    for item in secrets:
        receiver, _, secret = str(item).partition("=") if "://" in str(item) else ("*", "", item)
        yield receiver, secret


def origin_of(url: str) -> str:
    """Return the origin of a URL: scheme, host and port, in lower case, without a default port.

    Raises:
        ValueError: *url* is not an http or https URL with a host, has a user, or has characters
            other than visible ASCII.

    Example:
        ```python
        from apcore_a2a_server.push.settings import origin_of

        print(origin_of("https://Hooks.example.com:443/a2a?x"))
        #> https://hooks.example.com
        ```
    """
    url_parts = urlsplit(url)
    scheme, host, port = url_parts.scheme, url_parts.hostname, url_parts.port
    is_plain = url.isascii() and url.isprintable() and " " not in url
    if scheme not in DEFAULT_PORTS or not host or not is_plain or "@" in url_parts.netloc:
        raise ValueError("Not the URL of a webhook: write https://host or https://host/path")
    name = f"[{host}]" if ":" in host else host.rstrip(".")
    return f"{scheme}://{name}" + (f":{port}" if port not in (None, DEFAULT_PORTS[scheme]) else "")


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
        problem = f"may have * only by itself, or before the first dot; {host!r} is not a host name"
        raise OptionError("allowed_hosts", problem)


def _is_proxy(address: str) -> bool:
    try:
        url_parts = urlsplit(address)
        is_valid_port = url_parts.port != 0
    except ValueError:
        return False
    extras = url_parts.path.strip("/") + url_parts.query + url_parts.fragment
    is_http = url_parts.scheme in ("http", "https")
    return is_http and bool(url_parts.hostname) and is_valid_port and not extras
