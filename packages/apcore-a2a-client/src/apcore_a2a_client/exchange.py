"""Requests and their answers, without input and output: generators of steps.

A client does the steps, async or not: it sends what a generator asks for, and gives back what
came. So the protocol is written once, and each client is a loop.

Which requests are tried again, at most `retries` times:

| what happened                          | a request that only reads | one that changes something |
|----------------------------------------|---------------------------|----------------------------|
| no connection: nothing was sent        | again                     | again                      |
| the connection broke                   | again                     | not: it may have arrived   |
| HTTP 429 or 503                        | again                     | again: it was refused      |
| HTTP 502 or 504                        | again                     | not: it may have arrived   |
| anything else                          | not                       | not                        |

The timeout is for all of it together: what would take longer is not tried again.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from math import inf, ldexp
from random import uniform
from time import monotonic, time
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import httpx

from .errors import A2AConnectionError, A2AProtocolError, A2ATimeoutError

T = TypeVar("T")
FIRST_WAIT, LONGEST_WAIT = 0.25, 5.0
"""Seconds before the first repetition, doubled for each further one, and at most."""
MOST_REDIRECTS = 5
PLAIN = {"accept": "application/json", "accept-encoding": "identity"}
"""What is small when it arrives could be anything when it is unpacked."""


class Send(NamedTuple):
    """Send a request, and get the response with its body still to be read.

    Attributes:
        auth: None for what the httpx client has of its own, False for none whatsoever.
    """

    request: httpx.Request
    auth: httpx.Auth | Literal[False] | None
    timeout: float | None


class Read(NamedTuple):
    """Get the next bytes of a response; none at its end."""

    response: httpx.Response
    timeout: float | None


class Close(NamedTuple):
    """Be done with a response."""

    response: httpx.Response


class Sleep(NamedTuple):
    """Wait for some seconds."""

    seconds: float


Step: TypeAlias = Send | Read | Close | Sleep
Steps: TypeAlias = Generator[Step, Any, T]
"""A generator of steps, in the end with a result."""


@dataclass(frozen=True, slots=True)
class Item(Generic[T]):
    """One of many results, between the steps to the next."""

    value: T


Items: TypeAlias = Generator[Step | Item[T], Any, None]
"""A generator of steps with many results."""
Todo: TypeAlias = Generator[Step | Item[Any], Any, Any]
"""Either of them, as clients do it."""


class Answer(NamedTuple):
    """A whole answer."""

    status: int
    headers: httpx.Headers
    body: bytes
    url: httpx.URL


class Call(NamedTuple):
    """A request to be.

    Attributes:
        safe: Whether it changes nothing, so that it may be sent twice.
        stream: Whether the answer may be a stream.
        limit: Bytes that the answer may have; None for the usual limit.
    """

    method: str
    url: httpx.URL
    safe: bool
    stream: bool = False
    headers: Mapping[str, str] = {}
    params: Mapping[str, Any] | None = None
    content: bytes | None = None
    limit: int | None = None


class Exchange:
    """Sends requests, and again where that is safe.

    Attributes:
        build: httpx's `build_request`, of either client.
        timeout: Seconds for a whole answer, with all that is tried again; for a stream, for its
            beginning, and for each sign of life then.
        retries: How often a request is sent again.
        limit: Bytes that an answer may have.
    """

    def __init__(
        self,
        build: Callable[..., httpx.Request],
        auth: httpx.Auth | None,
        headers: Mapping[str, str],
        timeout: float | None,
        retries: int,
        limit: int,
    ) -> None:
        self.build, self.auth, self.headers = build, auth, headers
        self.timeout, self.retries, self.limit = timeout, retries, limit

    @property
    def has_secrets(self) -> bool:
        """Whether there is something that not everybody may get."""
        return self.auth is not None or bool(self.headers)

    def send(self, call: Call, end: float = inf) -> Steps[httpx.Response | Answer]:
        """Send a request, and read the answer, unless that is a stream.

        Args:
            call: The request.
            end: When to give up at the latest, by the monotonic clock.

        Raises:
            A2AConnectionError: The last try has failed.
            A2AProtocolError: The answer is too large, or redirects in circles.
        """
        end = min(end, monotonic() + (inf if self.timeout is None else self.timeout))
        refusals = (429, 502, 503, 504) if call.safe else (429, 503)
        failures = 0
        while True:
            wait = backoff(failures)
            try:
                answer = yield from self._once(call, end)
            except A2AConnectionError as error:
                again = call.safe or not error.sent
                if not again or failures == self.retries or monotonic() + wait > end:
                    raise
            else:
                if isinstance(answer, httpx.Response) or answer.status not in refusals:
                    return answer
                wait = retry_after(answer.headers, wait)
                if failures == self.retries or monotonic() + wait > end:
                    return answer
            failures += 1
            yield Sleep(wait)

    def _once(self, call: Call, end: float) -> Steps[httpx.Response | Answer]:
        patience = left(end)
        request = self.build(
            call.method,
            call.url,
            headers={**PLAIN, **self.headers, **call.headers},
            params=call.params,
            content=call.content,
            # half of it for a connection: it may be tried again then
            timeout=httpx.Timeout(patience, connect=patience and patience / 2),
        )
        auth: httpx.Auth | Literal[False] | None = self.auth
        for _ in range(MOST_REDIRECTS + 1):
            response: httpx.Response = yield Send(request, auth, left(end))
            if response.headers.get("content-encoding", "identity") != "identity":
                raise A2AProtocolError("The answer is compressed, though we accept no compression")
            if call.stream and response.status_code == 200 and is_stream(response.headers):
                return response
            body = yield from self._body(response, call.limit or self.limit, end)
            target = response.next_request
            if target is None:
                return Answer(response.status_code, response.headers, body, response.url)
            if not is_good(target.url):
                raise A2AProtocolError("Redirected to no address of an agent")
            if (request.url.scheme, target.url.scheme) == ("https", "http"):
                raise A2AProtocolError(f"Redirected to what is not encrypted: {shown(target.url)}")
            if origin(target.url) != origin(request.url):
                if call.method != "GET":
                    raise A2AProtocolError(f"Redirected to another origin: {shown(target.url)}")
                # httpx would take along what is no `Authorization`, and our auth for another
                extensions = request.extensions
                target = httpx.Request("GET", target.url, headers=PLAIN, extensions=extensions)
                auth = False
            elif target.method != call.method:
                raise A2AProtocolError(f"Redirected from {call.method} to {target.method}")
            request = target
        raise A2AProtocolError(f"More than {MOST_REDIRECTS} redirects: {shown(request.url)}")

    def _body(self, response: httpx.Response, limit: int, end: float) -> Steps[bytes]:
        body = bytearray()
        while chunk := (yield Read(response, left(end))):
            body += chunk
            if len(body) > limit:
                raise A2AProtocolError(f"The answer is larger than {limit} bytes")
            if monotonic() > end:
                raise A2ATimeoutError("The answer was not complete in time")
        yield Close(response)
        return bytes(body)


def left(end: float) -> float | None:
    """Seconds until *end*, and a moment when it is over; None if that is never."""
    return None if end == inf else max(0.001, end - monotonic())  # 0 makes sockets not wait


def credentials(step: Send) -> Any:
    """What httpx takes as `auth` to do *step*."""
    if step.auth is False:
        return None
    return httpx.USE_CLIENT_DEFAULT if step.auth is None else step.auth


def backoff(failures: int) -> float:
    """Seconds to wait after that many failures: exponential, with jitter.

    Example:
        ```python
        from apcore_a2a_client.exchange import backoff

        print(0.125 <= backoff(0) <= 0.25, 2.5 <= backoff(10) <= 5)
        #> True True
        ```
    """
    return uniform(0.5, 1) * min(LONGEST_WAIT, ldexp(FIRST_WAIT, min(failures, 9)))


def retry_after(headers: httpx.Headers, default: float) -> float:
    """Seconds that an answer asks to wait, in either form (RFC 9110 §10.2.3), else *default*."""
    text: str = headers.get("retry-after", "")
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        return max(0.0, float(parsedate_to_datetime(text).timestamp() - time()))
    except (ValueError, OverflowError):
        return default


def is_stream(headers: httpx.Headers) -> bool:
    """Whether an answer is a stream of events."""
    return media_type(headers) == "text/event-stream"


def media_type(headers: httpx.Headers) -> str:
    """The media type of an answer, without parameters."""
    kind: str = headers.get("content-type", "")
    return kind.partition(";")[0].strip().lower()


def is_good(url: httpx.URL) -> bool:
    """Whether an agent can be at *url*."""
    try:
        url.raw_host.decode("ascii").encode("idna")  # as sockets do; labels may be too long
        named = bool(url.host)
    except UnicodeError:
        return False
    port = url.port is None or 0 < url.port < 65536
    return url.scheme in ("http", "https") and named and port and not url.userinfo


def origin(url: httpx.URL) -> tuple[str, str, int | None]:
    """What credentials belong to (RFC 6454)."""
    return url.scheme, url.host, url.port or {"http": 80, "https": 443}.get(url.scheme)


def path_of(url: httpx.URL) -> bytes:
    """The path of *url*, without a slash at its end."""
    return url.raw_path.partition(b"?")[0].rstrip(b"/")


def shown(url: httpx.URL) -> str:
    """*url* without what may be secret in it."""
    return str(url.copy_with(userinfo=b"", query=None, fragment=None))


@contextmanager
def translated(url: httpx.URL) -> Generator[None]:
    """Make what httpx raises into errors of ours, without what it says of headers.

    Raises:
        A2AConnectionError: The agent can't be reached, or was lost.
        A2ATimeoutError: It took too long.
        A2AProtocolError: It does not speak HTTP.
    """
    try:
        yield
    except httpx.ConnectTimeout:
        raise A2ATimeoutError(f"No connection in time: {shown(url)}", sent=False) from None
    except (httpx.TimeoutException, TimeoutError) as error:
        sent = not isinstance(error, httpx.PoolTimeout)
        raise A2ATimeoutError(f"No answer in time: {shown(url)}", sent=sent) from None
    except httpx.ConnectError as error:
        raise A2AConnectionError(f"Can't connect to {shown(url)}: {error}", sent=False) from None
    except (httpx.InvalidURL, UnicodeError):
        raise A2AProtocolError(f"Redirected to no address from {shown(url)}") from None
    except httpx.LocalProtocolError:
        raise A2AProtocolError(f"This can't be sent over HTTP: {shown(url)}") from None
    except (httpx.HTTPError, httpx.StreamError) as error:
        kind = type(error).__name__
        raise A2AConnectionError(f"The connection broke ({kind}): {shown(url)}") from None
