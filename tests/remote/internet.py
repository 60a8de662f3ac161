"""A fake internet for a client: a test chooses the addresses of hosts, and their servers."""

from collections.abc import Iterable, Mapping
from typing import Any

import httpcore
import httpx


class AddressedStream(httpcore.AsyncNetworkStream):
    """A network stream that reports a chosen address of its peer."""

    def __init__(self, inner: httpcore.AsyncNetworkStream, address: str, port: int) -> None:
        self._inner, self._peer = inner, (address, port)

    async def read(self, *args: Any, **options: Any) -> bytes:
        return await self._inner.read(*args, **options)

    async def write(self, *args: Any, **options: Any) -> None:
        await self._inner.write(*args, **options)

    async def aclose(self) -> None:
        await self._inner.aclose()

    def get_extra_info(self, info: str) -> Any:
        return self._peer if info == "server_addr" else self._inner.get_extra_info(info)


class Internet(httpcore.AsyncNetworkBackend):
    """A network whose hosts have addresses of a test's choice.

    Args:
        names: Addresses by host name; each connection takes the next address.
        servers: URLs of servers by address.
    """

    def __init__(self, names: Mapping[str, Iterable[str]], servers: Mapping[str, str]) -> None:
        self._names = {name: iter(addresses) for name, addresses in names.items()}
        self._servers = {address: httpx.URL(url).port for address, url in servers.items()}
        self._inner = httpcore.AnyIOBackend()
        self.connected: list[str] = []

    async def connect_tcp(
        self, host: str, port: int, *args: Any, **options: Any
    ) -> AddressedStream:
        address = next(self._names[host]) if host in self._names else host
        if address not in self._servers:
            raise httpcore.ConnectError(address)
        self.connected.append(address)
        stream = await self._inner.connect_tcp("127.0.0.1", self._servers[address] or 0)
        return AddressedStream(stream, address, port)

    def client(self) -> httpx.AsyncClient:
        """Return a client in this internet."""
        transport = httpx.AsyncHTTPTransport(verify=False)
        transport._pool = httpcore.AsyncConnectionPool(network_backend=self)
        return httpx.AsyncClient(transport=transport)
