"""The one judge of a webhook's address: when it is set, and at every connection (NFR-SEC-004).

```
ValueError
└── RefusedError     nothing is sent to this address; its text is safe to show to a client
    └── BusyError    its name can't be looked up now
```
"""

import asyncio
import re
import socket
import threading
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import TypeAlias
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from .addresses import Address, is_forbidden, is_public
from .settings import NAME, PushSettings

Resolve: TypeAlias = Callable[[str, int, str], Awaitable[list[str]]]
"""From a host, a port and the principal that asks to the host's addresses."""

MAX_URL = 2048
KEPT = 1000
"""How many judgements are remembered; what names lead to is none of them."""
SAFE_PORTS = (443, 8443)
VISIBLE = re.compile(r"[\x21-\x5b\x5d-\x7e]*")
"""What a URL is made of (RFC 3986 §2), and no backslash, which some take for a slash."""
INNER = frozenset(
    ["corp", "home", "internal", "intranet", "lan", "local", "localdomain", "localhost", "private"]
)
"""Top-level names that are used inside networks alone."""
NUMBER = re.compile(r"(0x[0-9a-f]*|[0-9]+)", re.IGNORECASE)
NOT_PUBLIC = "The webhook's host must have public addresses, and no others"
"""Said of unknown names, too: what names lead to in here is nobody's business."""
LOOKUP_TIMEOUT = 5.0
"""Seconds that a name may take."""
LOOKUPS = 64
"""How many names are looked up at a time; those that take longer keep their place."""
PER_PRINCIPAL = 8
"""How many for one principal."""


class RefusedError(ValueError):
    """The address of a webhook is none that this agent sends to."""


class BusyError(RefusedError):
    """Too many names are being looked up, for this principal or in all."""

    def __init__(self) -> None:
        super().__init__("The webhook's host can't be looked up now; try again later")


class Guard:
    """Decides which addresses notifications may go to.

    Args:
        settings: What is allowed.
        resolve: Looks up names; else the system's resolver does.

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
            #> The webhook's host must have public addresses, and no others
        ```
    """

    def __init__(self, settings: PushSettings, resolve: Resolve | None = None) -> None:
        self._dev = settings.dev
        self._any_port = settings.dev and not settings.ports
        self._ports = settings.ports or SAFE_PORTS
        self._proxied = settings.proxy is not None
        hosts = [host.lower().rstrip(".") for host in settings.allowed_hosts]
        self._any_host = "*" in hosts
        networks = [host for host in hosts if "/" in host or _literal(host)]
        self._names = frozenset({*hosts} - {*networks, "*"})
        self._networks = [ip_network(host) for host in networks]
        self._resolve = resolve or Resolver()
        self._judged = lru_cache(KEPT)(self._judge)
        self.target = lru_cache(KEPT)(self._target)

    async def check(self, url: str, principal: str) -> None:
        """Judge a webhook's address, and what its host leads to now, for a principal.

        Raises:
            RefusedError: Nothing may be sent there.
        """
        host, port = self.target(url)
        if not self._proxied:
            await self.addresses(host, port, principal)

    def _target(self, url: str) -> tuple[str, int]:
        """Return the host and the port of a webhook's address, judged by what it says.

        Raises:
            RefusedError: It may not be an address of a webhook.
        """
        if len(url) > MAX_URL or not VISIBLE.fullmatch(url):
            raise RefusedError(f"The webhook's URL must have at most {MAX_URL} ASCII characters")
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            raise RefusedError("The webhook's URL is malformed") from None
        if parts.scheme not in ("https", "http"):
            raise RefusedError("The webhook's URL must begin with https://")
        if parts.scheme == "http" and not self._dev:
            raise RefusedError("Webhook URL must use HTTPS in production mode")
        if "@" in parts.netloc:
            raise RefusedError("The webhook's URL must hold no user and no password")
        if not (NAME.fullmatch(host) or _literal(host)):
            raise RefusedError("The webhook's URL must have a host")
        port = port if port is not None else 443 if parts.scheme == "https" else 80
        if not self._any_port and port not in self._ports:
            either = " or ".join(map(str, self._ports))
            raise RefusedError(f"The webhook's port must be {either}")
        if self._proxied:
            self._check_name(host)
        return host, port

    async def addresses(self, host: str, port: int, principal: str) -> list[str]:
        """The addresses of a host: resolved once, each of them judged, and none that is not.

        Raises:
            RefusedError: One of them may not be connected to, or there is none.
        """
        try:
            found = [host] if _literal(host) else await self._resolve(host, port, principal)
        except OSError:
            raise RefusedError(NOT_PUBLIC) from None
        if not found or not all(self._judged(host, text) for text in found):
            raise RefusedError(NOT_PUBLIC)
        return found

    def _judge(self, host: str, text: str) -> bool:
        return self._allows(host, ip_address(text))

    def _allows(self, host: str, address: Address) -> bool:
        if is_forbidden(address):
            return False
        if self._is_named(host) or any(address in network for network in self._networks):
            return True
        return self._any_host and (is_public(address) or (self._dev and address.is_loopback))

    def _is_named(self, host: str) -> bool:
        labels = host.rstrip(".").split(".")
        parents = {"*." + ".".join(labels[n:]) for n in range(1, len(labels))}
        return not self._names.isdisjoint({host.rstrip("."), *parents})

    def _check_name(self, host: str) -> None:
        """Judge a host that the proxy is going to resolve, as far as its name tells."""
        host = host.lower().rstrip(".")
        literal = _literal(host)
        labels = host.split(".")
        if literal is not None:
            known = self._allows(host, literal)
        elif self._is_named(host) or (self._dev and host == "localhost"):
            known = True
        else:  # 127.1 and 0x7f000001 are addresses to some
            inner = len(labels) < 2 or labels[-1] in INNER or host.endswith(".home.arpa")
            known = self._any_host and not inner and not NUMBER.fullmatch(labels[-1])
        if not known:
            raise RefusedError(NOT_PUBLIC)


@lru_cache(KEPT)
def _literal(host: str) -> Address | None:
    """The address that *host* is; one with a scope is none of a webhook."""
    try:
        return None if "%" in host else ip_address(host)
    except ValueError:
        return None


class Resolver:
    """The system's own resolver, each look-up in a daemon thread.

    The threads that `asyncio` has for it are few, and shared with everything else: names that are
    slow on purpose would hold up others' work, and a process that ends would wait for them.
    """

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(LOOKUPS)
        self._shares: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def __call__(self, host: str, port: int, principal: str) -> list[str]:
        """Return the addresses of *host*, in the order in which they should be tried.

        Args:
            host: The name.
            port: The port.
            principal: The principal; slow names of one do not hold up those of others.

        Raises:
            BusyError: Too many names are looked up already.
            OSError: There are none, or not in time.
        """
        share = self._shares.setdefault(principal, asyncio.Semaphore(PER_PRINCIPAL))
        try:
            async with asyncio.timeout(LOOKUP_TIMEOUT):
                await _acquired(share, self._places)
        except TimeoutError:
            raise BusyError from None
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[str]] = loop.create_future()

        def settle(addresses: list[str], error: OSError | None) -> None:
            _release((share, self._places))
            if error is None:
                found.set_result(addresses)
            else:
                found.set_exception(error)
                found.exception()  # retrieve it: the caller may have gone

        def work() -> None:
            outcome = _look_up(host, port)
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(settle, *outcome)

        try:
            threading.Thread(target=work, name="resolver", daemon=True).start()
        except RuntimeError:  # the system has no more threads
            _release((share, self._places))
            raise BusyError from None
        async with asyncio.timeout(LOOKUP_TIMEOUT):  # TimeoutError is an OSError
            return await asyncio.shield(found)


async def _acquired(*places: asyncio.Semaphore) -> None:
    """Take a place in each, or in none."""
    taken: list[asyncio.Semaphore] = []
    try:
        for place in places:
            await place.acquire()
            taken.append(place)
    except BaseException:  # canceled, most of all
        _release(taken)
        raise


def _release(places: Iterable[asyncio.Semaphore]) -> None:
    for place in places:
        place.release()


def _look_up(host: str, port: int) -> tuple[list[str], OSError | None]:
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # a label that no name can have
        return [], OSError(str(error))
    except OSError as error:
        return [], error
    return list(dict.fromkeys(str(info[4][0]) for info in infos)), None
