"""`serve`: an agent in its own process, with uvicorn."""

import asyncio
import gc
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from types import FrameType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import uvicorn

from apcore_a2a_server.fields import configured_by
from apcore_a2a_server.middleware import set_up_logging
from apcore_a2a_server.middleware.front import LOCAL_HOSTS, origin_of
from apcore_a2a_server.middleware.logs import show_error_texts
from apcore_a2a_server.middleware.timeouts import request_timeout_protocol
from apcore_a2a_server.push.settings import PushSettings
from apcore_a2a_server.store.custom_stores import store_of

from .agent import Agent
from .app import build_app
from .companions import figure_names
from .figures import ALIVE_AT, Figures
from .listening import (
    WILDCARDS,
    address,
    bind,
    check_certificate,
    connection_options,
    is_loopback,
    key_and_certificate,
    listen,
    local_url,
    socket_path,
)
from .options import ServeSettings
from .sharing import check_workers
from .supervisor import REPEATED_SIGNAL_WINDOW, StartReport, Supervisor, Worker

if TYPE_CHECKING:  # gRPC is optional
    from apcore_a2a_server.bindings.grpc import GrpcServer

logger = logging.getLogger("apcore_a2a_server")

LAST_REQUESTS_TIMEOUT = 0.1
"""Seconds that the shutdown waits for TLS handshakes of new clients, and again for requests."""
LAST_RESPONSES_TIMEOUT = 1.0
"""Seconds for responses to be sent after the drain; streams that are still open are closed."""
LAST_STEP_TIMEOUT = 0.5
"""Seconds for each last step of an aborted shutdown, such as marking tasks as failed."""
YOUNG_OBJECTS = 10_000
"""Number of new objects after which the garbage collector looks for cycles.

Requests in progress have thousands of objects. With a threshold of 700, Python 3.11's default,
scanning them took 5 to 8 percent of the time of a `SendMessage`. Cycles with large values do not
wait for the collector: `forget_frames` breaks them.
"""
PUBLISH_INTERVAL = 1.0
"""Seconds between two updates of a worker's counters and gauges for the other workers."""


class Server(uvicorn.Server):
    """uvicorn's server, extended to let tasks finish before it closes connections.

    The first SIGTERM or SIGINT starts a graceful shutdown, the second aborts it. In both cases
    the process exits by itself instead of being killed by the signal (FR-CMD-002: exit code 0).
    """

    def __init__(
        self,
        config: uvicorn.Config,
        agent: Agent,
        settings: ServeSettings,
        announce: Callable[[StartReport], None],
    ) -> None:
        super().__init__(config)
        self._agent = agent
        self._settings = settings
        self._announce = announce
        self._grpc: GrpcServer | None = None
        self._signalled_at = 0.0

    @classmethod
    def of(
        cls,
        source: Any,
        settings: ServeSettings,
        announce: Callable[[StartReport], None],
        figures: Figures | None = None,
    ) -> Self:
        """Return the server of an agent with the modules of *source*."""
        config = _config(source, settings, figures)
        app: Any = config.app
        return cls(config, app.state.agent, settings, announce)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Start the shutdown, or abort it if it has been started already.

        The command `timeout` signals the process and then its process group: both signals count
        as one.
        """
        now = time.monotonic()
        self.force_exit |= self.should_exit and now - self._signalled_at > REPEATED_SIGNAL_WINDOW
        self.should_exit = True
        self._signalled_at = now

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the store, start listening, and announce the start.

        Raises:
            OSError: The server cannot listen on the port for gRPC, or the store can't be used.
            RuntimeError: A companion could not start.
        """
        if self._settings.grpc_port is not None:
            self._grpc = grpc_server(self._agent, self._settings)
            grpc_address = address(self._settings.host, self._settings.grpc_port)
            self._grpc.bind(grpc_address, key_and_certificate(self._settings))
        # If the lifespan opened the store, uvicorn would replace the store's error with its own.
        await self._agent.open()
        with suppress(SystemExit):  # uvicorn exits if the lifespan fails; older versions return
            await super().startup(sockets)
        if not self.started:
            raise RuntimeError("The application could not start; the log has the reason")
        if self._grpc is not None:
            await self._grpc.start()
        app: Any = self.config.app
        self._announce(StartReport(len(self._agent.setup.skills), app.state.explorer))
        # Objects created so far live as long as the process: the collector need not scan them.
        gc.collect()
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, let tasks finish, then close connections."""
        self._agent.setup.state.is_draining = True
        self._stop_grpc(self._agent.settings.shutdown_timeout + LAST_RESPONSES_TIMEOUT)
        await stop_listening(self, sockets or [])
        running, grace = len(self._agent.engine.runs), self._agent.settings.shutdown_timeout
        if running:
            text = "Shutting down; waiting at most %g s for running tasks: %d (Ctrl+C again aborts)"
            logger.info(text, grace, running, extra={"event": "shutdown_started"})
        else:
            logger.info("Shutting down", extra={"event": "shutdown_started"})
        drain_task = asyncio.ensure_future(self._agent.drain())
        while not drain_task.done() and not self.force_exit:
            await asyncio.wait({drain_task}, timeout=0.1)
        if not drain_task.done():
            drain_task.cancel()
            await _run_last_step(self._agent.drain(0))
        asyncio.get_running_loop().call_later(LAST_RESPONSES_TIMEOUT, close_connections, self)
        grpc_stop = self._stop_grpc(LAST_RESPONSES_TIMEOUT)
        await super().shutdown(sockets)
        await grpc_stop
        if self.force_exit:
            await _run_last_step(self.lifespan.shutdown())

    def _stop_grpc(self, grace: float) -> Awaitable[None]:
        """Refuse new gRPC calls; return a future that is done once all running calls have ended.

        Args:
            grace: Seconds after which running calls are aborted.
        """
        coroutine = asyncio.sleep(0) if self._grpc is None else self._grpc.stop(grace)
        return asyncio.ensure_future(coroutine)


class WorkerServer(Server):
    """The server of a worker process; only the parent process can abort its shutdown.

    Terminals and service managers signal all processes, and the parent signals its workers too.
    So a worker may get two signals for one shutdown; the second signal does not abort it.
    """

    worker: Worker

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Start the shutdown."""
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to serve, to listen to the parent, and to share counters and gauges."""
        await super().startup(sockets)
        self.worker.link.setblocking(False)
        asyncio.get_running_loop().add_reader(self.worker.link, self._on_parent)
        self._publish_task = asyncio.create_task(self._publish())

    def _on_parent(self) -> None:
        """Abort the shutdown if the parent sends a message; shut down if the parent has ended."""
        if self.worker.link.recv(16):
            self.force_exit = True
        else:
            asyncio.get_running_loop().remove_reader(self.worker.link)
        self.should_exit = True

    async def _publish(self) -> None:
        """Update this worker's shared counters and gauges every `PUBLISH_INTERVAL`."""
        while True:
            if self._agent.setup.state.is_draining:
                self._agent.figures.set(ALIVE_AT, 0)
            else:
                await self._agent.health.publish()
            try:
                self._agent.publish()
            except Exception as error:  # a companion may raise anything; the next round tries again
                logger.debug("Figures could not be published: %s", type(error).__name__)
            await asyncio.sleep(PUBLISH_INTERVAL)


def grpc_server(agent: Agent, settings: ServeSettings) -> "GrpcServer":
    """Return the gRPC server of an agent; it does not listen yet."""
    from apcore_a2a_server.bindings.grpc import CallInterceptor, GrpcServer
    from apcore_a2a_server.bindings.grpc_limits import GrpcLimits

    limits = GrpcLimits(
        max_body=settings.max_body,
        max_values=settings.limits.max_values,
        max_calls=settings.max_runs + settings.max_streams,
        client_share=settings.limits.client_share,
        request_timeout=settings.request_timeout,
        keep_alive=settings.keep_alive,
    )
    interceptor = CallInterceptor(
        agent.setup.mapper,
        agent.setup.memory,
        limits,
        auth=settings.auth,
        limiter=agent.limiter,
        auth_limiter=agent.auth_limiter,
        client_key=settings.client_key,
        logs_access=settings.access_log,
        on_response=None if agent.metrics is None else agent.metrics.on_response,
    )
    if agent.metrics is not None:
        agent.metrics.add_gauges(interceptor.gauges())
    return GrpcServer(agent.handler, interceptor, limits)


async def stop_listening(server: uvicorn.Server, sockets: Sequence[socket.socket]) -> None:
    """Close the port, but serve the clients that have connected already.

    When a listening socket is closed, the kernel resets the connections in its accept queue, and a
    proxy cannot retry requests that it has sent on them. Therefore, a duplicate of the socket keeps
    the queue open until all connections in the queue are accepted.
    """
    duplicates = [listener.dup() for listener in sockets]
    for asyncio_server in server.servers:
        asyncio_server.close()
    loop, state = asyncio.get_running_loop(), server.lifespan.state
    protocol: Any = server.config.http_protocol_class
    new_protocol = partial(protocol, server.config, server.server_state, state, loop)
    accept = partial(loop.connect_accepted_socket, new_protocol, ssl=server.config.ssl)
    connections = [connection for copy in duplicates for connection in _accept_queued(copy)]
    # silent clients must not delay the shutdown, and failed handshakes must not interrupt it
    handshakes = asyncio.gather(*map(accept, connections), return_exceptions=True)
    await asyncio.wait({handshakes}, timeout=LAST_REQUESTS_TIMEOUT)
    await asyncio.sleep(LAST_REQUESTS_TIMEOUT)


def close_connections(server: uvicorn.Server) -> None:
    """Close all connections that are still open."""
    for connection in [*server.server_state.connections]:
        protocol: Any = connection
        protocol.transport.close()


def _accept_queued(listener: socket.socket) -> Iterator[socket.socket]:
    """Yield the connections in the kernel's accept queue, then close *listener*."""
    with listener, suppress(OSError):
        while True:
            connection, _ = listener.accept()
            connection.setblocking(False)
            yield connection


async def _run_last_step(step: Coroutine[Any, Any, None]) -> None:
    """Run a step of an aborted shutdown for at most `LAST_STEP_TIMEOUT`."""
    await asyncio.wait({asyncio.ensure_future(step)}, timeout=LAST_STEP_TIMEOUT)


@configured_by(ServeSettings, other_source="openapi")
def serve(source: Any, settings: ServeSettings) -> None:
    """Serve apcore modules as an A2A agent, until SIGINT or SIGTERM (FR-SRV-001).

    Logs to stderr, unless the program has set up its own logging.

    Args:
        source: An apcore Registry, Executor or APCore, a module, a target such as
            `package.module` or the path of a folder, or a list of these.
        settings: The options, as keywords; `docs/options.md` lists them.

    Raises:
        ValueError: There are no modules, or an option has an invalid value.
        TypeError: *source* or an option lacks required methods, or a keyword is not an option.
        ImportError: An option, such as `explorer`, needs a part that is not installed.
        OSError: The server cannot listen on the address, or the task store can't be used.
        RuntimeError: A companion could not start, or a worker process ended before it served.

    Example:
        ```python test="lint"
        from apcore_a2a_server import serve

        serve("./extensions", host="127.0.0.1", name="my-agent")
        ```
    """
    set_up_logging(settings.log_level, settings.log_format)
    if shows_errors(settings):
        show_error_texts()
    if settings.workers > 1:
        check_workers(store_of("memory" if settings.task_store is None else settings.task_store))
    prefix = _root_path(settings)
    check_certificate(settings)
    with _handling_hangups(), listen(settings) as listener:
        url = settings.url or local_url(settings, listener) + prefix
        settings = _with_addresses(settings, url)
        announce = partial(_announce, settings)
        if settings.workers > 1:
            _supervise(source, settings, listener, announce)
        else:
            Server.of(source, settings, announce).run([listener])


@contextmanager
def _handling_hangups() -> Generator[None]:
    """Let SIGHUP shut down a server in a terminal, but not a service.

    A terminal sends SIGHUP when the terminal is closed. Operators send it to make a service read
    changed keys, but authenticators read changed key files without a signal. If the program has a
    handler of its own, or was started by nohup(1), the handler stays as it is.
    """
    hangup = getattr(signal, "SIGHUP", None)  # not on Windows
    is_main_thread = threading.current_thread() is threading.main_thread()
    if hangup is None or not is_main_thread or signal.getsignal(hangup) is not signal.SIG_DFL:
        yield
        return
    in_terminal = os.isatty(0)

    def on_hangup(*_: object) -> None:
        if in_terminal:
            signal.raise_signal(signal.SIGTERM)

    signal.signal(hangup, on_hangup)
    try:
        yield
    finally:
        signal.signal(hangup, signal.SIG_DFL)


def _supervise(
    source: Any,
    settings: ServeSettings,
    listener: socket.socket,
    announce: Callable[[StartReport], None],
) -> None:
    """Serve in worker processes, until SIGINT or SIGTERM."""
    figures = Figures(settings.workers, figure_names(settings.companions))

    def serve_as(worker: Worker) -> None:
        figures.worker = worker.number
        server = WorkerServer.of(source, settings, worker.report, figures)
        server.worker = worker
        server.run([listener])

    def stop() -> None:
        # The port stays open until all copies of the listener are closed. If this copy were closed
        # after the workers' copies, clients could still connect, but would get no answer.
        listener.close()
        figures.set_draining()

    Supervisor(
        settings.workers,
        serve_as,
        on_start=announce,
        on_end=figures.clear,
        on_stop=stop,
        shutdown_timeout=settings.shutdown_timeout,
    ).run()


def _config(source: Any, settings: ServeSettings, figures: Figures | None) -> uvicorn.Config:
    """Return uvicorn's configuration, with the application of the agent."""
    hosts = _hosts(settings, settings.url or "")
    level = settings.log_level
    return uvicorn.Config(
        build_app(source, replace(settings, allowed_hosts=hosts), figures),
        log_config=None,
        log_level="warning" if level == "info" else level,
        access_log=False,
        root_path=_root_path(settings),
        http=request_timeout_protocol(settings.request_timeout),
        ws="none",
        server_header=False,
        **connection_options(settings),
        timeout_graceful_shutdown=2,
    )


def _root_path(settings: ServeSettings) -> str:
    prefix = settings.root_path.strip("/")
    return prefix and f"/{prefix}"


def shows_errors(settings: ServeSettings) -> bool:
    """Return whether the log shows exception messages, by default only in development."""
    if settings.error_texts is not None:
        return settings.error_texts
    push = settings.push_notifications
    is_local = settings.uds is None and is_loopback(settings.host)
    return (is_local and settings.auth is None) or (isinstance(push, PushSettings) and push.dev)


def _hosts(settings: ServeSettings, url: str) -> Sequence[str]:
    """Return the hosts to serve; an empty sequence for all.

    An agent that only this machine can reach needs no authentication. But web pages that are open
    on this machine can reach it, if their host name resolves to the loopback address (DNS
    rebinding). So without authentication or `allowed_hosts`, such an agent serves only requests
    for the names of this machine or the host name in the agent's URL.
    """
    # a Unix socket is for a proxy, which other machines may reach
    may_be_remote = settings.uds is not None or not is_loopback(settings.host)
    if settings.allowed_hosts or settings.auth is not None or may_be_remote:
        return settings.allowed_hosts or ()
    return [*LOCAL_HOSTS, settings.host, urlsplit(origin_of(url)).hostname or settings.host]


def _with_addresses(settings: ServeSettings, url: str) -> ServeSettings:
    """Return the settings with the agent's URL, and with the port and the address of gRPC.

    gRPC opens its port itself, but the Agent Card needs the port number earlier. So this function
    binds the port for a moment.

    Raises:
        ImportError: `grpc_port` is set, but gRPC is not installed.
        OSError: The server cannot listen on the port.
    """
    if settings.grpc_port is None:
        return replace(settings, url=url)
    if find_spec("grpc") is None:
        raise ImportError("grpc_port needs the grpc part: pip install 'apcore-a2a[grpc]'")
    with bind(settings.host, settings.grpc_port) as listener:
        grpc_port = listener.getsockname()[1]
    host = urlsplit(url).hostname or ""
    grpc_url = settings.grpc_url or address(host, grpc_port)
    return replace(settings, url=url, grpc_port=grpc_port, grpc_url=grpc_url)


def _announce(settings: ServeSettings, report: StartReport) -> None:
    """Log the addresses of the agent, and hints for its operator."""
    count, url, extra = report.skills, settings.url or "", {"event": "server_started"}
    logger.info("%d skill%s at %s", count, "" if count == 1 else "s", url, extra=extra)
    if count > 1 and settings.default_skill is None:
        message = "Messages must name a skill: set default_skill= or --default-skill to change that"
        logger.info(message, extra={"event": "no_default_skill"})
    logger.info("Agent Card: %s/.well-known/agent-card.json", url.rstrip("/"), extra=extra)
    if settings.grpc_url:
        logger.info("gRPC: %s", settings.grpc_url, extra=extra)
    if report.explorer:
        logger.info("Explorer: %s%s", url.rstrip("/"), report.explorer, extra=extra)
    if settings.workers > 1:
        logger.info("Workers: %d", settings.workers, extra=extra)
    host_or_path = socket_path(settings) or settings.host
    if "/" in host_or_path:
        message = "Listening on the Unix socket %s; url= or --url must be the proxy's address"
        logger.info(message, host_or_path, extra=extra)
    if host_or_path in WILDCARDS and "//localhost:" in url:
        message = "%s works only on this machine: set url= or --url for remote clients"
        logger.info(message, url, extra=extra)
    if not is_loopback(host_or_path) and settings.auth is None:
        logger.warning(
            "Anyone who can reach this address can call every skill: there is no authentication. "
            "Use host 127.0.0.1, without uds, to serve this machine only",
            extra={"event": "authentication_disabled"},
        )
    logger.info("Press Ctrl+C to stop", extra=extra)
