"""HTTP exchanges without I/O: requests, retries and redirects as generators of steps.

A client runs such a generator: it performs each step that the generator yields, and sends back the
outcome. This way the protocol is written once, for synchronous and asynchronous clients.

A request is retried at most `retries` times, and only after these failures:

| failure                                | read-only request         | request with side effects  |
|----------------------------------------|---------------------------|----------------------------|
| cannot connect: nothing was sent       | retried                   | retried                    |
| connection lost                        | retried                   | no: it may have arrived    |
| HTTP 429 or 503                        | retried                   | retried: it was refused    |
| HTTP 502 or 504                        | retried                   | no: it may have arrived    |

The timeout includes all attempts: a retry that could not start in time is not made.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from inspect import isawaitable
from math import inf, ldexp
from random import uniform
from time import monotonic, time
from typing import Any, Generic, NamedTuple, Self, TypeAlias, TypeVar

import httpx

from .agent_urls import is_agent_url, origin, redacted
from .destinations import DestinationGuard
from .errors import A2AConnectionError, A2AError, A2AProtocolError, A2ATimeoutError
from .headers import (
    NO_HEADERS,
    Headers,
    HeaderSource,
    check_headers,
    current_trace,
    has_secrets,
)

T = TypeVar("T")
FIRST_WAIT, LONGEST_WAIT = 0.25, 5.0
"""Seconds before the first retry, and the maximum; each further retry waits twice as long."""
MAX_REDIRECTS = 5
HTTP_ERRORS = httpx.HTTPError, httpx.StreamError, httpx.InvalidURL
HEADERS = {"accept": "application/json", "accept-encoding": "identity"}
"""Compression is not accepted: a small compressed body can expand to any size."""


class Send(NamedTuple):
    """Step: send a request, and return the response with its body unread.

    Attributes:
        request: The request.
        auth: An `httpx.Auth`, None for no auth, or `httpx.USE_CLIENT_DEFAULT`.
        timeout: Seconds; None for no limit.
    """

    request: httpx.Request
    auth: Any
    timeout: float | None


class Read(NamedTuple):
    """Step: return the next bytes of a response, or `b""` at its end."""

    response: httpx.Response
    timeout: float | None


class Close(NamedTuple):
    """Step: close a response.

    Attributes:
        response: The response.
        wait: Seconds to wait for the end of the response, so that its connection can be used again.
            The synchronous client does not wait, because it can't set a timeout for one read.
    """

    response: httpx.Response
    wait: float = 0


class Sleep(NamedTuple):
    """Step: wait."""

    seconds: float


class Invoke(NamedTuple):
    """Step: call a function of the user, and return its result, awaited if needed."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()


Step: TypeAlias = Send | Read | Close | Sleep | Invoke
Steps: TypeAlias = Generator[Step, Any, T]
"""A generator of steps that returns one result."""


class Item(NamedTuple, Generic[T]):
    """One of many results, yielded between steps."""

    value: T


Items: TypeAlias = Generator[Step | Item[T], Any, None]
"""A generator of steps that yields any number of results between them."""
AnySteps: TypeAlias = Generator[Step | Item[Any], Any, Any]
"""Either kind of generator, as the clients run it."""


class BufferedResponse(NamedTuple):
    """A response whose body has been read.

    Attributes:
        source: The IP address that it came from; empty if unknown, or without a guard.
    """

    status: int
    headers: httpx.Headers
    body: bytes
    url: httpx.URL
    source: str = ""


AnyResponse: TypeAlias = httpx.Response | BufferedResponse
"""An open stream of events, or a response whose body has been read."""


class RequestSpec(NamedTuple):
    """Description of a request; each attempt builds an httpx request from it.

    Attributes:
        safe: Whether the request is read-only, and may therefore be sent twice.
        stream: Whether the response may be a stream of events.
        headers: Headers of this request; they take precedence over the client's.
        max_bytes: Size limit of the response; None for the client's limit.
    """

    method: str
    url: httpx.URL
    safe: bool
    stream: bool = False
    headers: Headers = NO_HEADERS
    params: Mapping[str, Any] | None = None
    content: bytes | None = None
    max_bytes: int | None = None

    def with_headers(self, headers: Headers) -> Self:
        """Return a copy with *headers* added; headers that it already has keep their values."""
        return self._replace(headers={**headers, **self.headers})


@dataclass(repr=False, eq=False)
class Exchange:
    """Sender of requests, with retries where they are safe.

    Attributes:
        build_request: The httpx client's method of this name.
        auth: Credentials for requests to the agent; None for those of the httpx client.
        headers: Headers of every request, or a function that returns them for each attempt.
        timeout: Seconds for a whole response with all attempts; for a stream, seconds until it
            starts and between its chunks. None for no limit.
        retries: Maximum number of retries of a failed request, where they are safe.
        max_bytes: Size limit of a response.
        client_has_credentials: Returns whether the httpx client may add secrets to requests.
        guard: Checks connections to hosts that the agent has chosen; None to connect to any.
    """

    build_request: Callable[..., httpx.Request]
    auth: httpx.Auth | None
    headers: Headers | HeaderSource
    timeout: float | None
    retries: int
    max_bytes: int
    client_has_credentials: Callable[[], bool] = bool  # `bool()` is False
    guard: DestinationGuard | None = None

    @property
    def has_credentials(self) -> bool:
        """Whether requests may contain something that only the agent may see."""
        has_secret_headers = callable(self.headers) or has_secrets(self.headers)
        return self.auth is not None or has_secret_headers or self.client_has_credentials()

    def cap_deadline(self, deadline: float) -> float:
        """Return *deadline*, or the time `timeout` seconds from now if that is earlier."""
        return min(deadline, deadline_after(self.timeout))

    def send(self, spec: RequestSpec, deadline: float = inf) -> Steps[AnyResponse]:
        """Send a request, and read the response unless it is a stream.

        Args:
            spec: The request.
            deadline: Time to give up, on the monotonic clock.

        Raises:
            A2AConnectionError: The last attempt got no complete response.
            A2AProtocolError: The response is too large or compressed, or a redirect is refused.
            DestinationRefusedError: The guard does not allow a host.
        """
        deadline = self.cap_deadline(deadline)
        retried_statuses = (429, 502, 503, 504) if spec.safe else (429, 503)
        failures = 0
        while True:
            delay = backoff(failures)
            try:
                response = yield from self._attempt(spec, deadline)
            except A2AConnectionError as error:
                retryable = spec.safe or not error.sent
                if not retryable or failures == self.retries or monotonic() + delay > deadline:
                    raise
            else:
                if isinstance(response, httpx.Response) or response.status not in retried_statuses:
                    return response
                delay = retry_after(response.headers, delay)
                if failures == self.retries or monotonic() + delay > deadline:
                    return response
            failures += 1
            yield Sleep(delay)

    def _attempt(self, spec: RequestSpec, deadline: float) -> Steps[AnyResponse]:
        client_headers = self.headers
        if callable(client_headers):
            client_headers = check_headers((yield Invoke(client_headers)))
        timeout, given_headers = time_left(deadline), {**client_headers, **spec.headers}
        trace = NO_HEADERS if "traceparent" in given_headers else current_trace()
        request = self.build_request(
            spec.method,
            spec.url,
            headers={**HEADERS, **trace, **given_headers},
            params=spec.params,
            content=spec.content,
            # Connecting may take at most half of the time: the rest is for a second attempt.
            timeout=httpx.Timeout(timeout, connect=timeout and timeout / 2),
        )
        source = self.guard.card_source if self.guard else ""
        auth: Any = httpx.USE_CLIENT_DEFAULT if self.auth is None else self.auth
        if "authorization" in spec.headers:
            auth = None  # this request has its own credentials: send no others
        for _ in range(MAX_REDIRECTS + 1):
            if self.guard:
                request.extensions.pop("trace", None)  # the check of the previous URL
                request.extensions |= self.guard.extensions(request.url, source)
            response: httpx.Response = yield Send(request, auth, time_left(deadline))
            if response.headers.get("content-encoding", "identity") != "identity":
                raise A2AProtocolError("The response is compressed, which the client did not allow")
            is_stream = media_type(response.headers) == "text/event-stream"
            # A stream is returned open. Anything else is read here, even if a stream was requested:
            # agents may respond with JSON, especially when they refuse the request.
            if spec.stream and response.status_code == 200 and is_stream:
                return response
            body = yield from self._read(response, spec.max_bytes or self.max_bytes, deadline)
            source = self.guard.source_of(response) if self.guard else ""
            target = response.next_request
            if target is None:
                status, headers = response.status_code, response.headers
                return BufferedResponse(status, headers, body, response.url, source)
            if not is_agent_url(target.url):
                raise A2AProtocolError("Redirected to a URL that is not valid for an agent")
            if (request.url.scheme, target.url.scheme) == ("https", "http"):
                raise A2AProtocolError(f"Redirected from https to {redacted(target.url)}")
            if origin(target.url) != origin(request.url):
                if spec.method != "GET":
                    raise A2AProtocolError(f"Redirected to another origin: {redacted(target.url)}")
                # httpx removes only `Authorization` when the origin changes. Other headers can hold
                # credentials too: build a request without them, and send it without `auth`.
                extensions = request.extensions
                target = httpx.Request("GET", target.url, headers=HEADERS, extensions=extensions)
                auth = None
            elif target.method != spec.method:
                raise A2AProtocolError(f"Redirected from {spec.method} to {target.method}")
            request = target
        raise A2AProtocolError(f"More than {MAX_REDIRECTS} redirects: {redacted(request.url)}")

    def _read(self, response: httpx.Response, max_bytes: int, deadline: float) -> Steps[bytes]:
        body = bytearray()
        while chunk := (yield Read(response, time_left(deadline))):
            body += chunk
            if len(body) > max_bytes:
                raise A2AProtocolError(f"The response is larger than {max_bytes} bytes")
            # A slow sender can keep within the timeout of each read, and still exceed the deadline.
            if monotonic() > deadline:
                raise A2ATimeoutError("The response was not complete in time")
        yield Close(response)
        return bytes(body)


def invoke_without_await(step: Invoke) -> Any:
    """Return the result of the function in *step*.

    Raises:
        A2AError: The result is awaitable.
    """
    result = step.function(*step.arguments)
    if isawaitable(result):
        getattr(result, "close", str)()  # avoids the warning about an unawaited coroutine
        name = getattr(step.function, "__name__", type(step.function).__name__)
        raise A2AError(f"SyncA2AClient can't await {name}: pass a function that is not async")
    return result


def deadline_after(timeout: float | None) -> float:
    """Return the time *timeout* seconds from now, on the monotonic clock."""
    return inf if timeout is None else monotonic() + timeout


def time_left(deadline: float) -> float | None:
    """Return the seconds until *deadline*, at least a millisecond; None for no limit."""
    # A timeout of 0 would make sockets non-blocking.
    return None if deadline == inf else max(0.001, deadline - monotonic())


def backoff(earlier_retries: int) -> float:
    """Return the seconds to wait before a retry, exponential in *earlier_retries*, with jitter.

    Example:
        ```python
        from apcore_a2a_client.exchange import backoff

        print(0.125 <= backoff(0) <= 0.25, 2.5 <= backoff(10) <= 5)
        #> True True
        ```
    """
    return uniform(0.5, 1) * min(LONGEST_WAIT, ldexp(FIRST_WAIT, min(earlier_retries, 9)))


def retry_after(headers: httpx.Headers, default: float) -> float:
    """Return the seconds in `Retry-After` (RFC 9110 §10.2.3: number or date), else *default*."""
    header: str = headers.get("retry-after", "")
    if header.isascii() and header.isdigit():
        return float(header[:9])
    try:
        return min(1e9, max(0.0, float(parsedate_to_datetime(header).timestamp() - time())))
    except (ValueError, OverflowError):
        return default


def media_type(headers: httpx.Headers) -> str:
    """Return the media type in `Content-Type`, without parameters."""
    header: str = headers.get("content-type", "")
    return header.partition(";")[0].strip().lower()


@contextmanager
def translated_errors(url: httpx.URL) -> Generator[None]:
    """Translate exceptions of httpx.

    Only the text of a `ConnectError` is kept: texts of other exceptions may quote headers.

    Raises:
        A2AConnectionError: Cannot connect, or the connection was lost.
        A2ATimeoutError: The response took too long.
        A2AProtocolError: The agent redirects to an invalid URL, or the request is not valid HTTP.
    """
    try:
        yield
    except (*HTTP_ERRORS, TimeoutError, UnicodeError) as error:
        request: httpx.Request | None = getattr(error, "_request", None)
        if request is None or redacted(request.url) == redacted(url):
            raise _translate(error, url) from None
        # A request of `httpx.Auth` failed, such as one for a token: the agent has not acted yet.
        translated = _translate(error, request.url)
        if isinstance(translated, A2AConnectionError):
            translated.sent = False
        raise translated from None


def _translate(error: Exception, url: httpx.URL) -> A2AError:
    """Return the exception for *error*, which httpx raised for a request to *url*."""
    if isinstance(error, httpx.ConnectTimeout):
        return A2ATimeoutError(f"Connecting to {redacted(url)} timed out", sent=False)
    if isinstance(error, httpx.TimeoutException | TimeoutError):
        sent = not isinstance(error, httpx.PoolTimeout)
        return A2ATimeoutError(f"No response in time from {redacted(url)}", sent=sent)
    if isinstance(error, httpx.ConnectError):
        return A2AConnectionError(f"Can't connect to {redacted(url)}: {error}", sent=False)
    if isinstance(error, httpx.InvalidURL | UnicodeError):
        return A2AProtocolError(f"{redacted(url)} redirects to an invalid URL")
    if isinstance(error, httpx.LocalProtocolError):
        return A2AProtocolError(f"The request to {redacted(url)} is not valid HTTP")
    return A2AConnectionError(f"Connection to {redacted(url)} lost ({type(error).__name__})")
