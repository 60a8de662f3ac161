"""A real server on a real port, in a thread."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from typing import Any

import uvicorn
from apcore import Executor, Registry
from apcore_a2a_server import create_app

PATIENCE = 60
"""Seconds after which a test fails if an event has not happened."""


def listener() -> socket.socket:
    """Return a socket that is bound to a free port of loopback, but does not listen yet.

    The protocol is explicit because event loops disable Nagle's algorithm only then.
    """
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.bind(("127.0.0.1", 0))
    return sock


class Server(uvicorn.Server):
    """uvicorn's server, with an event for its start or failure."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.settled = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.settled.set()

    def serve_in_thread(self, sockets: list[socket.socket]) -> None:
        try:
            self.run(sockets)
        finally:
            self.settled.set()


@contextmanager
def running(source: Any, **options: Any) -> Iterator[str]:
    """Serve *source* and yield its base URL, such as `http://127.0.0.1:40123`.

    Args:
        source: First argument of `create_app` (a str, path, Registry, Executor or list), or
            an ASGI app.
        options: Options of `create_app`, ignored for an ASGI app; by default `url` is the
            server's, `shutdown_timeout` is 0, and all hosts are allowed.
    """
    with listener() as sock:
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        if isinstance(source, str | PathLike | Registry | Executor | list):
            defaults = {"url": url, "shutdown_timeout": 0, "allowed_hosts": ["*"]}
            source = create_app(source, **{**defaults, **options})
        config = uvicorn.Config(source, log_level="warning", timeout_graceful_shutdown=1)
        server = Server(config)
        thread = threading.Thread(target=server.serve_in_thread, args=([sock],))
        thread.start()
        try:
            assert server.settled.wait(PATIENCE)
            assert server.started
            yield url
        finally:
            server.should_exit = True
            thread.join(PATIENCE)
            assert not thread.is_alive()
