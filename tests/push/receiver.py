"""Webhook receiver: a real HTTP server whose answers a test chooses, valid or not."""

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.serving import PATIENCE

Json = dict[str, Any]


@dataclass(frozen=True)
class Delivery:
    """Request to the receiver."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    at: float = field(default_factory=time.monotonic)

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def json(self) -> Json:
        document: Json = json.loads(self.body)
        return document

    @property
    def state(self) -> str:
        """State in the notification, as written in 0.3."""
        notification = self.json.get("task") or self.json.get("statusUpdate") or self.json
        state: str = notification["status"]["state"]
        return state.removeprefix("TASK_STATE_").lower().replace("_", "-")


@dataclass(frozen=True)
class Reply:
    """Reply of the receiver: a status, a broken connection, or silence."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    cut: bytes | None = None
    """Bytes to send before the connection breaks."""
    silent: bool = False


OK = Reply()
ReplyFunction = Callable[[Delivery], Reply]


class Receiver:
    """Receiver that records and answers deliveries.

    Args:
        answer: Returns the reply to a delivery.
    """

    def __init__(self, answer: ReplyFunction = lambda delivery: OK) -> None:
        self.answer = answer
        self.deliveries: list[Delivery] = []
        self.errors: list[Exception] = []
        """Errors of the answer function; the first is raised at the end of `receiving`."""
        self.url = ""
        self.ended = threading.Event()
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return len(self.deliveries)

    @property
    def states(self) -> list[str]:
        return [delivery.state for delivery in self.deliveries]

    def take(self, delivery: Delivery) -> Reply:
        """Record a delivery and return the reply to it."""
        with self._changed:
            self.deliveries.append(delivery)
            self._changed.notify_all()
        try:
            return self.answer(delivery)
        except Exception as error:  # a test's function may raise anything
            self.errors.append(error)
            raise

    def wait(self, number: int, seconds: float = PATIENCE) -> list[Delivery]:
        """Wait until there are at least *number* deliveries, and return all."""
        with self._changed:
            arrived = self._changed.wait_for(lambda: len(self.deliveries) >= number, seconds)
        assert arrived, f"{len(self.deliveries)} deliveries instead of {number}: {self.states}"
        return self.deliveries

    def wait_for(self, state: str, seconds: float = PATIENCE) -> list[Delivery]:
        """Wait until there is a delivery with *state*, and return all."""
        with self._changed:
            arrived = self._changed.wait_for(lambda: state in self.states, seconds)
        assert arrived, f"{state} is not among {self.states}"
        return self.deliveries


def script(*replies: Reply) -> ReplyFunction:
    """Return a function that replies with these in turn, and with 200 afterwards."""
    remaining = iter(replies)
    return lambda delivery: next(remaining, OK)


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            body = self.rfile.read(length)
            if len(body) < length:  # the sender has disconnected
                return
            headers = {name.lower(): value for name, value in self.headers.items()}
            reply = receiver.take(Delivery(self.path, headers, body))
            if reply.silent:
                receiver.ended.wait(3 * PATIENCE)
            if reply.silent or reply.cut is not None:
                self.wfile.write(reply.cut or b"")
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.send_response(reply.status)
            for name, value in {"content-length": "0", **reply.headers}.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # usually the client has disconnected


@contextmanager
def receiving(
    answer: ReplyFunction = lambda delivery: OK, *, port: int = 0, tls: ssl.SSLContext | None = None
) -> Iterator[Receiver]:
    """Run a receiver on a port of loopback."""
    receiver = Receiver(answer)
    server = _Server(("127.0.0.1", port), _handler(receiver))
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    scheme = "http" if tls is None else "https"
    receiver.url = f"{scheme}://127.0.0.1:{server.server_port}/hook"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.ended.set()
        server.shutdown()
        server.server_close()
        thread.join(PATIENCE)
    if receiver.errors:
        raise receiver.errors[0]


def free_port() -> int:
    """Return a port at which nothing listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
