"""The requests to the servers, and the expected answers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import repeat

from tools.benchmarks import messages
from tools.benchmarks.apps import CARD_PATH
from tools.benchmarks.figures import Key
from tools.benchmarks.http1 import get_request
from tools.benchmarks.load import EVENT
from tools.benchmarks.messages import Requests

SEND = "message/send (0.3)"
SEND_V1 = "SendMessage (1.0)"
STREAM = "message/stream"
CHUNKS = 100  # of a long stream
MANY_CHUNKS = f"message/stream, {CHUNKS} chunks"
GET = "tasks/get"
GET_FULL = "tasks/get, store full"
CARD = "agent card"
CARD_100 = "agent card, 100 connections"
PARALLEL = "100 parallel sends"
SLEEPING = "100 parallel sends, 0.1 s of work each"
SLEEPING_ALONE = "1 send, 0.1 s of work"
STREAMS = "50 streams, an event every 50 ms"
DIRECT = "Executor.call_async"

BUSY = 32
"""Connections under load."""

_COMPLETED = b'"completed"'
_CARD = b'"skills"'


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """Options of the requests to a server."""

    task_id: str
    """Id of a stored task."""
    in_message: bool
    """Whether the skill is named in the message's metadata instead of the request's."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One kind of request, and bytes that a correct answer contains."""

    name: str
    requests: Callable[[RequestOptions], Requests]
    expect: bytes
    connections: tuple[int, ...] = (1, BUSY)
    echo: bytes = b'"jsonrpc"'
    """Bytes that the bare server's answer contains."""
    expect_by_server: Mapping[str, bytes] = field(default_factory=dict)
    """For some servers, the bytes that their answers contain instead of `expect`."""
    timed_bytes: bytes = EVENT
    """Bytes whose first arrival in a stream is timed."""

    def expected_of(self, server: str) -> bytes:
        """Return the bytes that a correct answer of *server* contains."""
        return self.echo if server == "bare" else self.expect_by_server.get(server, self.expect)


def long_stream_requests(*, in_message: bool = False) -> Requests:
    """Yield requests forever, each for a stream of many chunks."""
    return messages.stream_requests(
        "bench.chunks", in_message=in_message, count=float(CHUNKS), pause=0.0
    )


STEADY = [
    Scenario(GET, lambda options: messages.get_task_requests([options.task_id]), _COMPLETED),
    Scenario(CARD, lambda _: repeat(get_request(CARD_PATH)), _CARD, echo=_CARD),
    Scenario(CARD_100, lambda _: repeat(get_request(CARD_PATH)), _CARD, (100,), echo=_CARD),
    Scenario(
        SEND, lambda options: messages.send_requests(in_message=options.in_message), _COMPLETED
    ),
    Scenario(
        SEND_V1,
        lambda options: messages.send_v1_requests(in_message=options.in_message),
        b'"TASK_STATE_COMPLETED"',
    ),
    Scenario(
        STREAM, lambda options: messages.stream_requests(in_message=options.in_message), _COMPLETED
    ),
    Scenario(
        MANY_CHUNKS,
        lambda options: long_stream_requests(in_message=options.in_message),
        _COMPLETED,
        (8,),
    ),
]
"""Scenarios that run on each server for a duration, with each number of connections in turn."""


def _sleep_requests(options: RequestOptions) -> Requests:
    return messages.send_requests("bench.sleep", in_message=options.in_message, seconds=0.1)


def _paced_stream_requests(options: RequestOptions) -> Requests:
    return messages.stream_requests(
        "bench.chunks", in_message=options.in_message, count=10.0, pause=0.05
    )


BURSTS = [
    Scenario(
        PARALLEL,
        lambda options: messages.send_requests(in_message=options.in_message),
        _COMPLETED,
        (100,),
    ),
    Scenario(SLEEPING_ALONE, _sleep_requests, _COMPLETED, (1,)),
    Scenario(SLEEPING, _sleep_requests, _COMPLETED, (100,)),
    Scenario(STREAMS, _paced_stream_requests, _COMPLETED, (50,)),
]
"""Scenarios of one request on each connection, all at once."""


def echoes(stack: str) -> list[Key]:
    """Return the keys of the bare server's echoes under load, the baselines of ratios."""
    return [Key(stack, "bare", scenario, BUSY) for scenario in (SEND, SEND_V1, STREAM)]
