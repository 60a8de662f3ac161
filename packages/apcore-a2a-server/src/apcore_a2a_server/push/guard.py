"""Guard against webhooks that point into internal networks (NFR-SEC-004).

URLs are checked when they are configured and again at every connection, since the addresses of a
name may change in between (DNS rebinding).

```
ValueError
└── RefusedError     the URL is not allowed; the message is safe to show to a client
    └── BusyError    too many names are being resolved
```
"""

import asyncio
import re
import socket
import threading
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from functools import lru_cache
from ipaddress import ip_address
from typing import TypeAlias
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from apcore_a2a_core.addresses import Address, HostList, is_forbidden, is_public, literal_address

from .settings import HOST_NAME, PushSettings

Resolve: TypeAlias = Callable[[str, int, str], Awaitable[list[str]]]
"""Function that takes a host, a port and a principal, and returns the addresses of the host."""

MAX_URL = 2048
"""Maximum length of a URL, in characters."""
CACHE_SIZE = 1000
"""Number of entries of each cache of decisions; resolved addresses are never cached."""
DEFAULT_ALLOWED_PORTS = (443, 8443)
URL_CHARACTERS = re.compile(r"[\x21-\x5b\x5d-\x7e]*")
"""Visible ASCII (RFC 3986 §2) without the backslash, which some parsers take for a slash."""
INTERNAL_DOMAINS = frozenset(
    ["corp", "home", "internal", "intranet", "lan", "local", "localdomain", "localhost", "private"]
)
"""Top-level domains that exist only inside private networks."""
LOOPBACK = ip_address("127.0.0.1")
"""The address used for `localhost` where names are not resolved."""
NUMERIC_LABEL = re.compile(r"(0x[0-9a-f]*|[0-9]+)", re.IGNORECASE)
NOT_PUBLIC = "The webhook's host must have public addresses only"
"""Unknown names get this message too, so that clients can't find out internal names."""
LOOKUP_TIMEOUT = 5.0
"""Seconds to wait for a free slot, and as many again for the addresses."""
MAX_LOOKUPS = 64
"""Maximum number of lookups at a time, including those that have timed out but still run."""
MAX_LOOKUPS_PER_PRINCIPAL = 8
"""Maximum number of lookups for one principal at a time."""


class RefusedError(ValueError):
    """The URL of a webhook is not allowed."""


class BusyError(RefusedError):
    """Too many names are being resolved, for this principal or in total."""

    def __init__(self) -> None:
        super().__init__("The webhook's host can't be resolved now; try again later")


class Guard:
    """Rules for the URLs and addresses that notifications may be sent to.

    Args:
        settings: The settings of webhooks.
        resolve: Resolves names; by default the system's resolver.

    Example:
        ```python
        import asyncio

        from apcore_a2a_server.push import PushSettings
        from apcore_a2a_server.push.guard import Guard

        guard = Guard(PushSettings())
        try:
            asyncio.run(guard.check("https://169.254.169.254/latest/meta-data", "ada"))
        except ValueError as error:
            print(error)
            #> The webhook's host must have public addresses only
        ```
    """

    def __init__(self, settings: PushSettings, resolve: Resolve | None = None) -> None:
        self._is_dev = settings.dev
        self._allows_any_port = settings.dev and not settings.ports
        self._ports = settings.ports or DEFAULT_ALLOWED_PORTS
        self._uses_proxy = settings.proxy is not None
        self._hosts = HostList(settings.allowed_hosts)
        self._resolve = resolve or Resolver()
        self._allows = lru_cache(CACHE_SIZE)(self._is_allowed)
        self.target = lru_cache(CACHE_SIZE)(self._target)

    async def check(self, url: str, principal: str) -> None:
        """Check the URL of a principal's webhook, and the current addresses of its host.

        Behind a proxy, only the URL is checked: the proxy resolves the name.

        Raises:
            RefusedError: The URL or an address is not allowed.
        """
        host, port = self.target(url)
        if not self._uses_proxy:
            await self.addresses(host, port, principal)

    def _target(self, url: str) -> tuple[str, int]:
        """Return the host and the port of a webhook's URL.

        Raises:
            RefusedError: The URL is not allowed; resolved addresses are not checked here.
        """
        if len(url) > MAX_URL or not URL_CHARACTERS.fullmatch(url):
            allowed = f"at most {MAX_URL} visible ASCII characters, and no backslash"
            raise RefusedError(f"The webhook's URL must have {allowed}")
        try:
            url_parts = urlsplit(url)
            host, port = url_parts.hostname or "", url_parts.port
        except ValueError:
            raise RefusedError("The webhook's URL is malformed") from None
        if url_parts.scheme not in ("https", "http"):
            expected = "https:// or http://" if self._is_dev else "https://"
            raise RefusedError(f"The webhook's URL must begin with {expected}")
        if url_parts.scheme == "http" and not self._is_dev:
            raise RefusedError("Webhook URL must use HTTPS in production mode")
        if "@" in url_parts.netloc:
            raise RefusedError("The webhook's URL must not contain a user or a password")
        if not (HOST_NAME.fullmatch(host) or literal_address(host)):
            raise RefusedError("The webhook's URL must have a host")
        port = port if port is not None else 443 if url_parts.scheme == "https" else 80
        if not self._allows_any_port and port not in self._ports:
            allowed_ports = " or ".join(map(str, self._ports))
            raise RefusedError(f"The webhook's port must be {allowed_ports}")
        if self._uses_proxy:
            self._check_proxied(host)
        return host, port

    async def addresses(self, host: str, port: int, principal: str) -> list[str]:
        """Resolve a host once, and return its addresses if all of them are allowed.

        Connections must use the returned addresses: another lookup may have another result.

        Raises:
            RefusedError: An address is not allowed, or none is found in time.
            BusyError: Too many names are being resolved.
        """
        is_literal = literal_address(host) is not None
        try:
            addresses = [host] if is_literal else await self._resolve(host, port, principal)
        except OSError:
            raise RefusedError(NOT_PUBLIC) from None
        if not addresses or not all(self._allows(host, ip) for ip in map(ip_address, addresses)):
            raise RefusedError(NOT_PUBLIC)
        return addresses

    def _is_allowed(self, host: str, address: Address) -> bool:
        if is_forbidden(address):
            return False
        if self._hosts.has_name(host) or self._hosts.has_address(address):
            return True
        return self._hosts.has_star and (
            is_public(address) or (self._is_dev and address.is_loopback)
        )

    def _check_proxied(self, host: str) -> None:
        """Check the host of a URL as it is written, since the proxy resolves it."""
        host = host.lower().rstrip(".")
        literal = LOOPBACK if host == "localhost" else literal_address(host)
        labels = host.split(".")
        top_label = labels[-1]
        if literal is not None:
            is_allowed = self._allows(host, literal)
        elif self._hosts.has_name(host):
            is_allowed = True
        else:
            is_bare = len(labels) == 1  # a name without a domain
            is_internal = is_bare or top_label in INTERNAL_DOMAINS or host.endswith(".home.arpa")
            # Some resolvers read names with a numeric last label, such as 127.1 and 0x7f000001,
            # as IPv4 addresses.
            is_numeric = NUMERIC_LABEL.fullmatch(top_label) is not None
            is_allowed = self._hosts.has_star and not is_internal and not is_numeric
        if not is_allowed:
            raise RefusedError(NOT_PUBLIC)


class Resolver:
    """The system's resolver; each lookup runs in a separate daemon thread.

    `loop.getaddrinfo` uses asyncio's default thread pool, which is small and shared: names that
    resolve slowly, maybe on purpose, would block other work and the exit of the process.
    """

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(MAX_LOOKUPS)
        self._principal_slots: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def __call__(self, host: str, port: int, principal: str) -> list[str]:
        """Return the addresses of *host*, if any, in the order in which to try them.

        Args:
            host: The name of the host.
            port: The port of the service.
            principal: The webhook's principal, whose slow lookups must not delay other principals.

        Raises:
            BusyError: Too many lookups are running, or the system is out of threads.
            TimeoutError: The lookup takes too long.
        """
        semaphore = asyncio.Semaphore(MAX_LOOKUPS_PER_PRINCIPAL)
        principal_slots = self._principal_slots.setdefault(principal, semaphore)
        loop = asyncio.get_running_loop()
        result: asyncio.Future[list[str]] = loop.create_future()

        def finish(addresses: list[str]) -> None:
            held_slots.close()
            result.set_result(addresses)

        def run_lookup() -> None:
            addresses = _look_up(host, port)
            with suppress(RuntimeError):  # the event loop was closed during the lookup
                loop.call_soon_threadsafe(finish, addresses)

        with ExitStack() as acquired:
            try:
                async with asyncio.timeout(LOOKUP_TIMEOUT):
                    for slots in (principal_slots, self._slots):
                        await slots.acquire()
                        acquired.callback(slots.release)
                threading.Thread(target=run_lookup, name="resolver", daemon=True).start()
            except (TimeoutError, RuntimeError):  # RuntimeError: the system is out of threads
                raise BusyError from None
            # From here on the thread owns the slots, since a lookup can't be cancelled: one that
            # times out below still counts against the limits until the system answers.
            held_slots = acquired.pop_all()
        async with asyncio.timeout(LOOKUP_TIMEOUT):
            return await asyncio.shield(result)


def _look_up(host: str, port: int) -> list[str]:
    try:
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # UnicodeError: a label is empty or too long
        return []
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))
