"""`serve`: an agent in a process of its own, with uvicorn."""

import asyncio
import gc
import logging
import socket
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette

from apcore_a2a_server.fields import configured_by
from apcore_a2a_server.middleware import set_up_logging
from apcore_a2a_server.middleware.timeouts import request_timeout_protocol

from .agent import Agent
from .app import build_app
from .options import ServeSettings

logger = logging.getLogger("apcore_a2a_server")

ECHO = 0.1
"""Seconds in which a second signal is taken for the first one's echo."""
LAST_REQUESTS = 0.1
"""Seconds in which clients that have just connected can still send a request."""
LAST_ANSWERS = 1.0
"""Seconds in which what has been answered can still be sent; who reads a task then, is cut off."""

WILDCARDS = frozenset({"", "0.0.0.0", "::"})
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class Server(uvicorn.Server):
    """uvicorn's server, which lets tasks end before it cuts connections.

    The first SIGTERM or SIGINT drains, the second ends at once; either way the process
    goes on to its own end, instead of dying of the signal (FR-CMD-002: exit code 0).
    """

    def __init__(self, config: uvicorn.Config, agent: Agent) -> None:
        super().__init__(config)
        self._agent = agent
        self._signalled = 0.0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Note a signal; who signals a process and its group, as timeout(1) does, means one."""
        now = time.monotonic()
        self.force_exit |= self.should_exit and now - self._signalled > ECHO
        self.should_exit = True
        self._signalled = now

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen; what has been made by then is no work for the garbage collector."""
        await self._agent.open()  # here, a store that can't be used can still be reported
        await super().startup(sockets)
        gc.collect()
        gc.freeze()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, drain, then close."""
        self._agent.setup.state.is_draining = True
        await stop_listening(self, sockets or [])
        running, grace = len(self._agent.engine.runs), self._agent.settings.shutdown_timeout
        if running:
            told = "Ending; running tasks: %d, for %g s at most (a second Ctrl+C ends them)"
            logger.info(told, running, grace)
        else:
            logger.info("Ending")
        drained = asyncio.ensure_future(self._agent.drain())
        while not drained.done() and not self.force_exit:
            await asyncio.wait({drained}, timeout=0.1)
        if not drained.done():
            drained.cancel()
            await _hurry(self._agent.drain(0))
        asyncio.get_running_loop().call_later(LAST_ANSWERS, hang_up, self)
        await super().shutdown(sockets)
        if self.force_exit:
            await _hurry(self.lifespan.shutdown())


async def stop_listening(server: uvicorn.Server, sockets: Sequence[socket.socket]) -> None:
    """Close the port, and still serve clients that have connected by now.

    The kernel would reset their connections, and a proxy could not repeat their requests.
    """
    spares = [listener.dup() for listener in sockets]
    for listening in server.servers:
        listening.close()
    loop, state = asyncio.get_running_loop(), server.lifespan.state
    protocol: Any = server.config.http_protocol_class
    make = partial(protocol, server.config, server.server_state, state, loop)
    for connection in [connection for spare in spares for connection in _accepted(spare)]:
        await loop.connect_accepted_socket(make, connection)
    await asyncio.sleep(LAST_REQUESTS)


def hang_up(server: uvicorn.Server) -> None:
    """Close all connections that are still open."""
    for connection in [*server.server_state.connections]:
        protocol: Any = connection
        protocol.transport.close()


def _accepted(listener: socket.socket) -> Iterator[socket.socket]:
    """Accept what waits in the kernel's queue, and close *listener*."""
    with listener, suppress(OSError):
        while True:
            connection, _ = listener.accept()
            connection.setblocking(False)
            yield connection


async def _hurry(end: Coroutine[Any, Any, None]) -> None:
    """Let *end* do what it can in half a second: failing tasks, telling their watchers."""
    await asyncio.wait({asyncio.ensure_future(end)}, timeout=0.5)


@configured_by(ServeSettings)
def serve(source: Any, settings: ServeSettings) -> None:
    """Serve apcore modules as an A2A agent, until SIGINT or SIGTERM (FR-SRV-001).

    Logs to stderr, unless the program has set up its own logging.

    Args:
        source: An apcore Registry or Executor, or the path of a folder of modules.
        settings: Its fields are keywords; `docs/options.md` lists them.

    Raises:
        ValueError: There are no modules, or an option makes no sense.
        TypeError: *source* or an option lacks the methods it must have.
        ImportError: `explorer` is wanted, and `apcore-a2a-explorer` is not installed.
        OSError: The address can't be listened at.

    Example:
        ```python test="lint"
        from apcore_a2a_server import serve

        serve("./extensions", host="127.0.0.1", name="my-agent")
        ```
    """
    set_up_logging(settings.log_level, settings.log_format)
    protocol = request_timeout_protocol(settings.request_timeout)
    root_path = settings.root_path.strip("/") and "/" + settings.root_path.strip("/")
    host, log_level = settings.host, settings.log_level
    with _bound(host, settings.port) as listener:
        url = settings.url or public_url(host, listener.getsockname()[1]) + root_path
        app = build_app(source, replace(settings, url=url))
        _announce(app, host, url, known=settings.auth is not None)
        Server(_config(app, log_level, root_path, protocol), app.state.agent).run([listener])


def public_url(host: str, port: int) -> str:
    """The address to tell others when listening at *host* and *port*.

    Example:
        ```python
        from apcore_a2a_server.app.serve import public_url

        print(public_url("0.0.0.0", 8000), public_url("::1", 80))
        #> http://localhost:8000 http://[::1]:80
        ```
    """
    name = "localhost" if host in WILDCARDS else host
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    dual = host == "::" and socket.has_dualstack_ipv6()
    try:
        listener = socket.create_server((host, port), family=family, dualstack_ipv6=dual)
    except OSError as error:
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        reason = str(error.strerror).partition(" (while")[0]
        raise OSError(error.errno, f"Can't listen at {place}: {reason}") from None
    # Named as TCP: asyncio's own loop takes Nagle's delay off such connections only (40 ms).
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, listener.detach())


def _config(
    app: Starlette, log_level: str, root_path: str, protocol: type[asyncio.Protocol]
) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        log_level="warning" if log_level == "info" else log_level,
        access_log=False,
        root_path=root_path,
        http=protocol,
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=2,
    )


def _announce(app: Starlette, host: str, url: str, *, known: bool) -> None:
    count = len(app.state.agent.setup.skills)
    logger.info("%d skill%s at %s", count, "" if count == 1 else "s", url)
    logger.info("Agent Card: %s/.well-known/agent-card.json", url.rstrip("/"))
    if app.state.explorer:
        logger.info("Explorer: %s%s", url.rstrip("/"), app.state.explorer)
    if host in WILDCARDS and "//localhost:" in url:
        logger.info("That is for this machine; give url= or --url for clients elsewhere")
    if host not in LOOPBACK and not known:
        logger.warning(
            "Anybody who can reach this address can call every skill, for there is no "
            "authentication; host 127.0.0.1 keeps it to this machine"
        )
    logger.info("Ctrl+C ends it")
