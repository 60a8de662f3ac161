"""Connections, as httpcore wants them made: its signatures, `timeout` (seconds) among them."""

import asyncio
import ssl
from collections.abc import Iterable
from typing import Any

import httpcore

from .errors import RefusedError
from .guard import Guard

PIECE = 1024
"""Bytes that are read at a time: what they hold is parsed without giving way to others."""
MAX_READ = 64 * 1024
"""Bytes that are read of an answer, heads and framing included."""


class _Stream(httpcore.AsyncNetworkStream):
    """A stream of bounded answers, that is closed, too, when its TLS handshake is given up."""

    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner = inner
        self._read = 0

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - it is httpcore's
        if self._read >= MAX_READ:
            raise httpcore.ReadError("The answer is too long")
        data = await self._inner.read(min(max_bytes, PIECE), timeout)
        self._read += len(data)
        await asyncio.sleep(0)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - it is httpcore's
        self._read = 0
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - it is httpcore's
    ) -> httpcore.AsyncNetworkStream:
        try:
            return _Stream(await self._inner.start_tls(ssl_context, server_hostname, timeout))
        except asyncio.CancelledError:  # httpcore closes it at others alone
            await self._inner.aclose()
            raise


class Backend(httpcore.AsyncNetworkBackend):
    """Connects by anyio to the very addresses that were judged, and leaves nothing open.

    Args:
        guard: Judges where connections lead; None for those to a proxy, which is ours.
    """

    def __init__(self, guard: Guard | None) -> None:
        anyio: Any = httpcore.AnyIOBackend()  # httpcore's types know none when anyio is missing
        self._inner: httpcore.AsyncNetworkBackend = anyio
        self._guard = guard

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - it is httpcore's
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to one of the host's addresses, in their order.

        Raises:
            RefusedError: The host has an address that is not allowed.
        """
        addresses = [host] if self._guard is None else await self._guard.addresses(host, port)
        share = None if timeout is None else timeout / len(addresses)
        for address in addresses[:-1]:
            try:
                return _Stream(await self._inner.connect_tcp(address, port, share))
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
        return _Stream(await self._inner.connect_tcp(addresses[-1], port, share))

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109 - it is httpcore's
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """No webhook has such an address.

        Raises:
            RefusedError: Always.
        """
        raise RefusedError("The webhook's URL must have a host")

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await self._inner.sleep(seconds)
