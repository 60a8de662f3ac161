"""`serve`: an agent in a process of its own, with uvicorn."""

import asyncio
import gc
import logging
from types import FrameType
from typing import Any, Unpack

import uvicorn
from starlette.applications import Starlette

from .app import Agent, create_app
from .options import Options

logger = logging.getLogger("apcore_a2a")

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

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Note a signal."""
        self.force_exit = self.should_exit
        self.should_exit = True

    async def startup(self, sockets: Any = None) -> None:
        """Start to listen; what has been made by then is no work for the garbage collector."""
        await super().startup(sockets)
        gc.collect()
        gc.freeze()

    async def shutdown(self, sockets: Any = None) -> None:
        """Take no more connections, drain, then close."""
        for server in self.servers:
            server.close()
        drained = asyncio.ensure_future(self._agent.drain())
        while not drained.done() and not self.force_exit:
            await asyncio.wait({drained}, timeout=0.05)
        drained.cancel()
        await super().shutdown(sockets)


def serve(
    source: Any,
    *,
    host: str = "0.0.0.0",
    port: int = 8000,
    log_level: str = "info",
    root_path: str = "",
    **options: Unpack[Options],
) -> None:
    """Serve apcore modules as an A2A agent, until SIGINT or SIGTERM (FR-SRV-001).

    Args:
        source: An apcore Registry or Executor, or the path of a folder of modules.
        host: The address to listen at.
        port: The port to listen at.
        log_level: What uvicorn logs: debug, info, warning or error.
        root_path: The path that a proxy puts before the agent's own.
        options: See `Settings`.

    Raises:
        ValueError: There are no modules, or an option makes no sense.
        TypeError: *source* or an option lacks the methods it must have.
        OSError: The address can't be listened at.

    Example:
        ```python test="skip"
        from apcore_a2a_server import serve

        serve("./extensions", host="127.0.0.1", name="my-agent")
        ```
    """
    options.setdefault("url", public_url(host, port) + root_path)
    app = create_app(source, **options)
    _announce(app.state.agent, host, options["url"] or "")
    server = Server(_config(app, host, port, log_level, root_path), app.state.agent)
    server.run()
    if not server.started:
        raise OSError(f"Can't listen at {host}:{port}")


def public_url(host: str, port: int) -> str:
    """The address to tell others when listening at *host* and *port*.

    Example:
        ```python
        from apcore_a2a_server.serving.serve import public_url

        print(public_url("0.0.0.0", 8000), public_url("::1", 80))
        #> http://localhost:8000 http://[::1]:80
        ```
    """
    name = "localhost" if host in WILDCARDS else host
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def _config(app: Starlette, host: str, port: int, log_level: str, root_path: str) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level=log_level,
        access_log=log_level == "debug",
        root_path=root_path,
        http="httptools",
        server_header=False,
        timeout_graceful_shutdown=2,
    )


def _announce(agent: Agent, host: str, url: str) -> None:
    count = len(agent.skills)
    logger.info("%d skill%s at %s", count, "" if count == 1 else "s", url)
    logger.info("Agent Card: %s/.well-known/agent-card.json", url.rstrip("/"))
    if host in WILDCARDS:
        logger.info("Listening at all addresses; use --url or url= to tell clients another one")
    if host not in LOOPBACK:
        logger.warning("Anyone who can reach this address can call every skill: no authentication")
