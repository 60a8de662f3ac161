"""Generated floods of hosts and credentials, and checks that only valid ones are accepted."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch
from urllib.parse import urlsplit

from apcore_a2a_server.middleware import Authentication, FrontMiddleware, RateLimiter
from hypothesis import strategies as st
from starlette.responses import Response

from .byhand import KEY, OTHER_KEY, Answer, ask, authenticator

ALLOWED = ["localhost", "127.0.0.1", "::1", "agent.example", "*.sub.example"]
NAMES = [
    *("localhost", "LOCALHOST", "127.0.0.1", "[::1]", "::1", "agent.example", "a.sub.example"),
    *("evil.example", "sub.example", "127.0.0.2", "127.1", "0", "[::ffff:127.0.0.1]", "[::2]"),
    *("evilsub.example", "xn--localhost-abc", "l\xf6calhost", "localhos\xaa", ""),
]
GLUE = [".", "..", ":", "@", ",", " ", "\t", "/", "\\", "#", "?", "%", "%2e", "[", "]", "\0", "-"]
PORTS = ["", ":", ":80", ":8000", ":0", ":99999", ":x", ":-1", ":80:80"]
ports = st.integers(0, 65535).map(":{}".format)
"""Valid ports: so many that long runs rarely try a host twice."""
latin = st.characters(max_codepoint=255)
pieces = st.sampled_from([*NAMES, *GLUE, *PORTS]) | st.text(latin, max_size=3)
host = st.one_of(
    # usually an allowed name, with a valid port
    st.tuples(st.sampled_from(NAMES[:7]), st.sampled_from(PORTS[:4]) | ports).map("".join),
    st.tuples(st.sampled_from(NAMES), st.sampled_from(PORTS)).map("".join),
    st.lists(pieces, max_size=5).map("".join),
)
hosts: st.SearchStrategy[list[str]] = st.one_of(
    host.map(lambda header: [header]),
    host.map(lambda header: [header]),
    st.lists(host, max_size=2),
)
"""The `Host` headers of a request: usually one."""


class Hosts:
    """An application that serves some hosts, and an independent check of its decisions.

    Attributes:
        outcomes: The number of requests that were served and refused.
    """

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.defect = None  # Hypothesis shows the failed example
        self._runner = asyncio.Runner()
        self._app = FrontMiddleware(Response(), allowed_hosts=ALLOWED)

    def __enter__(self) -> "Hosts":
        return self

    def __exit__(self, *raised: object) -> None:
        self._runner.close()

    def check(self, headers: list[str]) -> None:
        """Check that only allowed hosts are served, as `urlsplit` reads them."""
        answer = self._runner.run(
            ask(self._app, "POST", headers=[("host", value) for value in headers])
        )
        assert answer.status in (200, 421)
        self.outcomes["served" if answer.status == 200 else "refused"] += 1
        if answer.status == 200:
            assert len(headers) == 1
            assert _is_allowed(urlsplit(f"//{headers[0]}").hostname or "")
        else:
            _check_refusal(answer)

    def check_leftovers(self) -> None:
        """Check nothing: no state is left over."""


def _is_allowed(host: str) -> bool:
    name = host.removesuffix(".")
    return name in ALLOWED or name.endswith(".sub.example")


def _check_refusal(answer: Answer) -> None:
    message = answer.json["error"]["message"]
    assert "--allowed-hosts" in message
    assert message.isprintable()


class Attempt(NamedTuple):
    """A request with or without a key."""

    key: str | None
    address: str
    pause: float  # seconds since the previous attempt

    @property
    def is_valid(self) -> bool:
        return self.key in (KEY, OTHER_KEY)


ADDRESSES = [
    *(f"192.0.2.{number}" for number in range(4)),
    *(f"2001:db8::{number}" for number in range(4)),
    *("::ffff:192.0.2.1", "testclient", "", "2001:db8:1::%eth0", "x" * 1000),
]
keys = st.sampled_from([KEY, OTHER_KEY, None, "", KEY[:-1], f"{KEY}, {KEY}"]) | st.text(
    latin, max_size=5
)


@st.composite
def storms(draw: st.DrawFn) -> list[Attempt]:
    """Draw many attempts from a few addresses, most without a pause."""
    addresses = st.sampled_from(draw(st.lists(st.sampled_from(ADDRESSES), min_size=1, max_size=4)))
    pauses = st.sampled_from([0.0] * 9 + [0.1, 7.0, 61.0])
    return draw(st.lists(st.builds(Attempt, keys, addresses, pauses), min_size=20, max_size=60))


RATE = 5
"""Refusals per minute of one address."""


class Credentials:
    """An application with API keys, and a clock that the attempts advance.

    Attributes:
        outcomes: The number of responses of each status.
    """

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.defect = None  # Hypothesis shows the failed example
        self._runner = asyncio.Runner()
        self._now = 1_800_000_000.0

    def __enter__(self) -> "Credentials":
        return self

    def __exit__(self, *raised: object) -> None:
        self._runner.close()

    def check(self, storm: list[Attempt]) -> None:
        """Check that only valid keys are served, and that no address gets too many 401s."""
        limiter = RateLimiter(f"{RATE}/minute")
        app = Authentication(Response(), authenticator(), auth_limiter=limiter)
        refused: dict[str, list[float]] = {}
        with self._clock():
            self._runner.run(self._send(app, storm, refused))
        for times in refused.values():
            most_in_a_minute = max(
                sum(begin <= time < begin + 60 for time in times) for begin in times
            )
            assert most_in_a_minute <= 2 * RATE  # a sliding window is an estimate
        storage: Any = limiter._strategy.storage
        counters = [expires for expires in storage.expirations.values() if expires > self._now]
        assert len(counters) <= 3 * len(ADDRESSES)  # per address, the last three minutes

    async def _send(self, app: Any, storm: list[Attempt], refused: dict[str, list[float]]) -> None:
        for attempt in storm:
            self._now += attempt.pause
            headers = [] if attempt.key is None else [("X-API-Key", attempt.key)]
            answer = await ask(app, headers=headers, client=(attempt.address, 1))
            self.outcomes[str(answer.status)] += 1
            assert (answer.status == 200) is attempt.is_valid
            assert answer.status in (200, 401, 429)
            if answer.status == 401:
                refused.setdefault(attempt.address, []).append(self._now)
            if answer.status == 429:
                assert 0 < int(answer.headers["retry-after"]) <= 60

    @contextmanager
    def _clock(self) -> Iterator[None]:
        with patch("time.time", lambda: self._now):
            yield

    def check_leftovers(self) -> None:
        """Check nothing: no state is left over."""
