"""A receiver of webhooks: a real HTTP server that answers as a test wants, well or badly."""

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
    """One request that came."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    at: float = field(default_factory=time.monotonic)

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def json(self) -> Json:
        found: Json = json.loads(self.body)
        return found

    @property
    def state(self) -> str:
        """The state it tells of, as 0.3 writes it."""
        about = self.json.get("task") or self.json.get("statusUpdate") or self.json
        state: str = about["status"]["state"]
        return state.removeprefix("TASK_STATE_").lower().replace("_", "-")


@dataclass(frozen=True)
class Reply:
    """What is answered: a status, unless the connection is cut or nothing is said."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    cut: bytes | None = None
    """What is written before the connection is cut."""
    silent: bool = False


OK = Reply()
Answer = Callable[[Delivery], Reply]


class Receiver:
    """Notes what comes, and answers it.

    Args:
        answer: What to answer to each delivery.
    """

    def __init__(self, answer: Answer = lambda delivery: OK) -> None:
        self.answer = answer
        self.deliveries: list[Delivery] = []
        self.url = ""
        self.ended = threading.Event()
        self._news = threading.Condition()

    def __len__(self) -> int:
        return len(self.deliveries)

    @property
    def states(self) -> list[str]:
        return [delivery.state for delivery in self.deliveries]

    def take(self, delivery: Delivery) -> Reply:
        """Note a delivery; what to answer."""
        with self._news:
            self.deliveries.append(delivery)
            self._news.notify_all()
        return self.answer(delivery)

    def wait(self, number: int, seconds: float = PATIENCE) -> list[Delivery]:
        """The deliveries, as soon as there are so many."""
        with self._news:
            found = self._news.wait_for(lambda: len(self.deliveries) >= number, seconds)
        assert found, f"{len(self.deliveries)} deliveries instead of {number}: {self.states}"
        return self.deliveries

    def wait_for(self, state: str, seconds: float = PATIENCE) -> list[Delivery]:
        """The deliveries, as soon as one tells of a state."""
        with self._news:
            found = self._news.wait_for(lambda: state in self.states, seconds)
        assert found, f"{state} is not among {self.states}"
        return self.deliveries


def script(*replies: Reply) -> Answer:
    """Answer with these, one behind the other, and 200 from then on."""
    left = iter(replies)
    return lambda delivery: next(left, OK)


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            body = self.rfile.read(length)
            if len(body) < length:  # whoever sent it is gone: nothing has come
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
        pass  # a client that has gone


@contextmanager
def receiving(
    answer: Answer = lambda delivery: OK, *, port: int = 0, tls: ssl.SSLContext | None = None
) -> Iterator[Receiver]:
    """A receiver on a real port of loopback."""
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


def free_port() -> int:
    """A port where nobody listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
