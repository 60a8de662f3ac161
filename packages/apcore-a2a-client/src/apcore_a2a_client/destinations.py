"""Guard of connections to hosts that the agent has chosen, in its card or by a redirect.

An agent must not be able to make a client send requests to hosts in the client's internal network.
The address of the connection itself is checked, before anything is sent on it: a lookup before
connecting could return a different address (DNS rebinding).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from ipaddress import ip_address
from typing import Any, NamedTuple, TypeAlias

import httpx

from .agent_urls import Origin, origin, origin_text
from .errors import DestinationRefusedError


class Destination(NamedTuple):
    """A host that the agent has chosen.

    Attributes:
        host: The host in the URL.
        address: Its IP address; empty if it is not known.
        source: The IP address that the agent's card, or the redirect, came from; empty if it is
            not known, as behind a proxy.
    """

    host: str
    address: str
    source: str


MAX_ORIGINS = 100
"""Maximum number of origins for which a client remembers whether a proxy is used."""
DestinationCheck: TypeAlias = Callable[[Destination], bool]
"""A function that returns whether the client may connect to a host that the agent has chosen."""


class DestinationGuard:
    """A guard of the connections of one client.

    Behind a proxy, which connects in place of the client, only IP addresses in URLs are checked.

    Args:
        check: The caller's function, which returns whether to connect.
        trusted: The origins that the caller has named, which are not checked.
        is_async: Whether the client is asynchronous.

    Attributes:
        card_source: The IP address that the last card came from; empty if it is not known.
    """

    def __init__(
        self, check: DestinationCheck, trusted: Collection[Origin], *, is_async: bool
    ) -> None:
        self._check, self._trusted, self._is_async = check, trusted, is_async
        self._is_direct_by_origin: dict[Origin, bool] = {}
        self.card_source = ""

    def source_of(self, response: httpx.Response) -> str:
        """Return the IP address that a response came from; empty if it is not known."""
        stream = response.extensions.get("network_stream")
        is_direct = self._is_direct_by_origin.get(origin(response.url), False)
        return _peer(stream) if is_direct and stream is not None else ""

    def allows(self, url: httpx.URL, source: str) -> bool:
        """Return whether requests to *url* may be sent, judging by the URL alone."""
        if origin(url) in self._trusted:
            return True
        try:
            address = str(ip_address(url.host))
        except ValueError:
            return True  # a name: the address is checked when the client connects
        return self._check(Destination(url.host, address, source))

    def extensions(self, url: httpx.URL, source: str) -> dict[str, Any]:
        """Return the httpx extensions that check the connection of a request to *url*.

        Raises:
            DestinationRefusedError: The host in *url* is an IP address that is not allowed.
        """
        target = origin(url)
        # The first connection to a trusted origin is watched too, to learn whether a proxy is used.
        if target in self._trusted and target in self._is_direct_by_origin:
            return {}
        if not self.allows(url, source):
            raise DestinationRefusedError(origin_text(url), url.host)
        watch = _ConnectionWatch(self, url, source)
        return {"trace": watch.watch_async if self._is_async else watch.watch}

    def remember_route(self, url: httpx.URL, *, is_direct: bool) -> None:
        """Remember whether connections for *url* go to its host itself, or to a proxy."""
        if len(self._is_direct_by_origin) >= MAX_ORIGINS:
            self._is_direct_by_origin.clear()
        self._is_direct_by_origin[origin(url)] = is_direct

    def check_address(self, url: httpx.URL, address: str, source: str) -> None:
        """Check the address of a connection.

        Raises:
            DestinationRefusedError: The address is not allowed.
        """
        if origin(url) not in self._trusted and not self._check(
            Destination(url.host, address, source)
        ):
            raise DestinationRefusedError(origin_text(url), address)


class _ConnectionWatch:
    """Trace callbacks that check a connection; httpx calls one of them for each event.

    Args:
        guard: The guard.
        url: The URL of the request.
        source: The IP address that sent the card or redirect with the URL; empty if not known.
    """

    def __init__(self, guard: DestinationGuard, url: httpx.URL, source: str) -> None:
        self._guard, self._url, self._source = guard, url, source
        self._is_direct = False

    def watch(self, event: str, info: dict[str, Any]) -> None:
        """Check a new connection, and close it if its address is not allowed."""
        try:
            self._handle(event, info)
        except BaseException:  # the caller's function may raise anything
            if "return_value" in info:
                info["return_value"].close()
            raise

    async def watch_async(self, event: str, info: dict[str, Any]) -> None:
        """Do the same as `watch`, in an event loop."""
        try:
            self._handle(event, info)
        except BaseException:  # as in `watch`
            if "return_value" in info:
                await info["return_value"].aclose()
            raise

    def _handle(self, event: str, info: dict[str, Any]) -> None:
        if event == "connection.connect_tcp.started":
            self._is_direct = info["host"] == self._url.raw_host.decode("ascii")
            self._guard.remember_route(self._url, is_direct=self._is_direct)
        elif event == "connection.connect_tcp.complete" and self._is_direct:
            self._guard.check_address(self._url, _peer(info["return_value"]), self._source)


def _peer(stream: Any) -> str:
    """Return the IP address at the other end of a network stream; empty if it has none."""
    address: tuple[str, int] | None = stream.get_extra_info("server_addr")
    return address[0].partition("%")[0] if address else ""
