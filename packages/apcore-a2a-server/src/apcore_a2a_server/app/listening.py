"""The sockets that `serve` listens on, their TLS, and the addresses they have."""

import errno
import socket
import ssl
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from apcore_a2a_server.fields import OptionError

from .options import ServeSettings

WILDCARDS = frozenset({"", "0.0.0.0", "::"})
"""Addresses for which a server listens on all addresses of this machine."""
SOCKET_MODE = 0o666
"""Mode of Unix sockets: the permissions of the folder decide who may connect, as with uvicorn."""


@contextmanager
def listen(settings: ServeSettings) -> Generator[socket.socket]:
    """Listen on the address or the Unix socket in the settings.

    Raises:
        OSError: The server cannot listen there.
    """
    if settings.uds is None:
        with bind(settings.host, settings.port) as listener:
            yield listener
        return
    path = Path(socket_path(settings))
    with _bind_unix(path) as listener:
        own_file = _file_identity(path)
        try:
            yield listener
        finally:
            # another process may listen at the path by now, with a file of its own
            with suppress(FileNotFoundError):
                if _file_identity(path) == own_file:
                    path.unlink()


def _file_identity(path: Path) -> tuple[int, int]:
    """Return values that tell a file from a later one at the same path."""
    status = path.lstat()
    return status.st_ino, status.st_ctime_ns  # inode numbers of deleted files are used again


def socket_path(settings: ServeSettings) -> str:
    """Return the absolute path of the Unix socket in the settings; "" if there is none."""
    return "" if settings.uds is None else str(Path(settings.uds).expanduser().absolute())


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address.

    Raises:
        OSError: The process can't listen on the address.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    is_dual_stack = host == "::" and socket.has_dualstack_ipv6()
    try:
        listener = socket.create_server((host, port), family=family, dualstack_ipv6=is_dual_stack)
    except OSError as error:
        reason = str(error.strerror).partition(" (while")[0]
        raise OSError(error.errno, f"Cannot listen on {address(host, port)}: {reason}") from None
    # asyncio turns off Nagle's algorithm (a delay of 40 ms) only if the protocol is given as TCP.
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, listener.detach())


def _bind_unix(path: Path) -> socket.socket:
    """Return a socket that listens on *path*; replace the socket of a process that has ended.

    Raises:
        OSError: The process can't listen there, for example because another process does.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if _is_abandoned(path):
            path.unlink()
        listener.bind(str(path))
        path.chmod(SOCKET_MODE)
        listener.listen()
    except OSError as error:
        listener.close()
        reason = error.strerror or error
        raise OSError(error.errno, f"Cannot listen on {path}: {reason}") from None
    return listener


def _is_abandoned(path: Path) -> bool:
    """Return whether *path* is a socket on which no process listens."""
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.lstat().st_mode):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                return probe.connect_ex(str(path)) == errno.ECONNREFUSED
    return False


def address(host: str, port: int) -> str:
    """Return `host:port`, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def url_of(host: str, port: int, scheme: str = "http") -> str:
    """Return the URL of a server that listens on *host* and *port*.

    For a server that listens on all addresses, it is a URL for clients on this machine.

    Example:
        ```python
        from apcore_a2a_server.app.listening import url_of

        print(url_of("0.0.0.0", 8000), url_of("::1", 80))
        #> http://localhost:8000 http://[::1]:80
        ```
    """
    name = "localhost" if host in WILDCARDS else host
    return f"{scheme}://{address(name, port)}"


def local_url(settings: ServeSettings, listener: socket.socket) -> str:
    """Return the URL at which clients on this machine reach the server.

    For a Unix socket, this is the URL of a proxy on this machine.
    """
    if settings.uds is not None:
        return "http://localhost"
    scheme = "http" if settings.ssl_certfile is None else "https"
    return url_of(settings.host, listener.getsockname()[1], scheme)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a server that listens on *host*.

    Example:
        ```python
        from apcore_a2a_server.app.listening import is_loopback

        print(is_loopback("localhost"), is_loopback("127.0.0.53"), is_loopback("0.0.0.0"))
        #> True True False
        ```
    """
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host.lower() == "localhost"


def check_certificate(settings: ServeSettings) -> None:
    """Check that the certificate and its key can be used.

    Raises:
        OptionError: The files can't be read, or do not belong together.
    """
    if settings.ssl_certfile is None:
        return
    for name in ("ssl_certfile", "ssl_keyfile"):
        path = getattr(settings, name)
        if path is not None and not Path(path).is_file():
            raise OptionError(name, f"must be a file: there is no file {path}")
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # Without `password`, OpenSSL would ask for a password on the terminal if the key has one.
        context.load_cert_chain(settings.ssl_certfile, settings.ssl_keyfile, password=lambda: "")
    except OSError as error:  # or SSLError, a subclass
        reason = getattr(error, "reason", None) or error.strerror or error
        raise OptionError("ssl_certfile", f"and its key can't be used: {reason}") from None


def key_and_certificate(settings: ServeSettings) -> tuple[bytes, bytes] | None:
    """Return the private key and the certificate for gRPC, or None without TLS."""
    if settings.ssl_certfile is None:
        return None
    key = settings.ssl_keyfile or settings.ssl_certfile
    return Path(key).read_bytes(), Path(settings.ssl_certfile).read_bytes()


def connection_options(settings: ServeSettings) -> dict[str, Any]:
    """Return the options of uvicorn for TLS and proxies."""
    trusted = settings.forwarded_allow_ips
    if trusted is None and settings.uds is not None:
        trusted = ["*"]  # only local processes can connect, such as the proxy
    return {
        "ssl_certfile": settings.ssl_certfile,
        "ssl_keyfile": settings.ssl_keyfile,
        "forwarded_allow_ips": None if trusted is None else [*trusted],
    }
