"""A local proxy that serves the explorer's page for an agent elsewhere: `apcore-a2a explore`.

The page's policy allows requests only to the page's own origin, so the proxy forwards them to the
agent. The proxy is bound to loopback, and every path begins with a random token: other machines
and other pages in the browser can't use the proxy. It forwards requests to one agent only, and
hides its own URL from that agent.
"""

import json
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from hmac import compare_digest
from secrets import token_urlsafe
from urllib.parse import unquote

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from .page import routes

LOOPBACK = "127.0.0.1"
LOOPBACK_HOSTS = ("localhost", LOOPBACK, "::1", "0.0.0.0", "::")
"""Names of this machine. The card of an agent on this machine may have any of these names."""
CARD_PATHS = (".well-known/agent-card.json", ".well-known/agent.json")
"""The path of the card since A2A 0.3, and its path before."""
MISSING_STATUSES = (404, 405, 410)
CONNECT_TIMEOUT = 10.0  # seconds
CARD_TIMEOUT = 30.0  # seconds; other responses have no timeout
MAX_CARD = 10 * 1024 * 1024
"""Maximum size of an Agent Card after decompression, in bytes."""
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
INTERFACE_HEADER = "x-agent-interface"
"""Header field of the page's requests: the URL of the interface to forward the request to."""
NOT_FORWARDED = {
    *("host", "origin", "referer", "cookie", "content-length", "accept-encoding", "user-agent"),
    INTERFACE_HEADER,
}
"""Request header fields that are not forwarded to the agent: most would reveal this proxy."""
NOT_RETURNED = {
    *("set-cookie", "content-length", "server", "date", "content-security-policy"),
    # most of these make a browser send requests elsewhere, which could reveal the token in the URL
    *("refresh", "link", "content-security-policy-report-only", "referrer-policy"),
    *("report-to", "reporting-endpoints", "nel", "clear-site-data", "service-worker-allowed"),
}
"""Response header fields that are not returned to the browser."""
HOP_BY_HOP = {"connection", "keep-alive", "trailer", "transfer-encoding", "upgrade"}
SAFE_HEADERS = {
    "content-security-policy": "default-src 'none'; sandbox",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
}
"""Header fields added to relayed responses, so the browser runs nothing that the agent has sent."""


class UnusableAgentError(Exception):
    """The agent can't be used; the message says why, for the user."""


class AgentProxy:
    """A proxy that serves the page, and forwards its requests to one agent.

    Args:
        agent: The agent's base URL.
        token: The first segment of every path.
    """

    def __init__(self, agent: str, token: str) -> None:
        self.agent = httpx.URL(agent if agent.endswith("/") else f"{agent}/")
        self.token = token
        self._client = new_client()

    def app(self, port: int) -> ASGIApp:
        """Return the application to serve at *port* of loopback."""
        pages = routes(agent_url=str(self.agent))
        relay = Route("/{path:path}", self._relay, methods=METHODS)
        app = Starlette(
            routes=[Mount(f"/{self.token}", routes=[*pages, relay])], lifespan=self._lifespan
        )
        return Gate(app, self.token, port)

    async def check(self) -> None:
        """Check that there is an agent, and close this proxy.

        Raises:
            UnusableAgentError: There is no agent, it can't be reached, or its card is too large.
        """
        async with self._client:
            try:
                await self.fetch_card({})
            except httpx.HTTPError as error:
                raise UnusableAgentError(explain(self.agent, error)) from None

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncGenerator[None]:
        async with self._client:
            yield

    async def _relay(self, request: Request) -> Response:
        """Forward a request, and return the response as it arrives."""
        path: str = request.path_params["path"]
        try:
            if path in CARD_PATHS:
                return await self._show_card(request)
            return await self._send(request, self._target(request))
        except (UnusableAgentError, httpx.HTTPError) as error:
            return JSONResponse(
                {"error": {"message": explain(self.agent, error)}}, 502, SAFE_HEADERS
            )

    async def _send(self, request: Request, url: httpx.URL) -> Response:
        query = request.url.query.encode()
        outgoing = self._client.build_request(
            request.method,
            url.copy_with(query=query) if query else url,
            headers=dict(forwarded_headers(request.headers)),
            content=await request.body(),
        )
        response = await self._client.send(outgoing, stream=True)
        if response.is_redirect:
            await response.aclose()
            target = response.headers.get("location", "nowhere")
            raise UnusableAgentError(f"{self.agent} redirects to {target}: explore that URL")
        headers = {**dict(returned_headers(response.headers)), **SAFE_HEADERS}
        return StreamingResponse(stream_body(response), response.status_code, headers)

    async def _show_card(self, request: Request) -> Response:
        response = await self.fetch_card(
            dict(forwarded_headers(request.headers)), request.url.query
        )
        headers = {**dict(returned_headers(response.headers)), **SAFE_HEADERS}
        return Response(response.content, response.status_code, headers)

    async def fetch_card(self, headers: Mapping[str, str], query: str = "") -> httpx.Response:
        """Return the response with the agent's card, or with a refusal (401, 403, 429 or 503).

        Raises:
            UnusableAgentError: There is no agent at the URL, or its card is too large.
            httpx.HTTPError: The agent can't be reached.
        """
        suffix = f"?{query}" if query else ""
        response, card_url = None, self.agent
        for path in CARD_PATHS:
            card_url = self.agent.join(path)
            response = await self._read(self.agent.join(path + suffix), headers)
            if response.status_code not in MISSING_STATUSES:
                break
        assert response is not None  # CARD_PATHS is not empty
        if response.status_code in (401, 403, 429, 503):
            return response
        if not (response.is_success and is_object(response.content)):
            status = f"HTTP {response.status_code}"
            problem = "the body is not a JSON object" if response.is_success else status
            raise UnusableAgentError(
                f"{self.agent} is not an A2A agent: {card_url} has no Agent Card: {problem}"
            )
        return response

    async def _read(self, url: httpx.URL, headers: Mapping[str, str]) -> httpx.Response:
        """Fetch the card at *url*; return the response with its complete body.

        Raises:
            UnusableAgentError: The body is too large.
        """
        async with self._client.stream(
            "GET", url, headers=headers, timeout=CARD_TIMEOUT
        ) as response:
            body = bytearray()
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > MAX_CARD:
                    raise UnusableAgentError(f"{url} has more than {MAX_CARD} bytes")
            fields = [(n, v) for n, v in response.headers.items() if n != "content-encoding"]
            return httpx.Response(response.status_code, headers=fields, content=bytes(body))

    def _target(self, request: Request) -> httpx.URL:
        """Return the URL for a request: below the URL of its interface, or of the agent.

        Raises:
            UnusableAgentError: The URL is invalid, has `.` or `..` in its path, or does not have
                the agent's origin. Other origins must not get the credentials.
        """
        interface = request.headers.get(INTERFACE_HEADER)
        try:
            url = self.agent if interface is None else self.agent.join(interface)
        except httpx.InvalidURL as error:
            message = f"The Agent Card has an interface without a valid URL: {error}"
            raise UnusableAgentError(message) from None
        if origin_of(url) != origin_of(self.agent):
            raise UnusableAgentError(
                f"The Agent Card points to {url}, which is not at {self.agent.netloc.decode()}. "
                f"Requests to {url} are not forwarded: explore that URL instead"
            )
        # the path as the page wrote it: ids may have encoded slashes
        path: bytes = request.scope["raw_path"].partition(self.token.encode() + b"/")[2]
        segments = unquote(path.decode("latin-1")).replace("\\", "/").split("/")
        if not {".", ".."}.isdisjoint(segments):
            raise UnusableAgentError(
                f"A request's path leads out of {self.agent}: the request is not forwarded"
            )
        if path:
            url = url.copy_with(raw_path=url.raw_path.partition(b"?")[0].rstrip(b"/") + b"/" + path)
        # use the host that the user gave, since a card may call this machine 0.0.0.0
        return url.copy_with(host=self.agent.host)


class Gate:
    """Middleware that refuses requests for other hosts, from other origins or without the token."""

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app = app
        self._token = token.encode()
        suffix = "" if port == 80 else f":{port}"  # browsers omit the default port
        self._hosts = {f"{host}{suffix}".encode() for host in (LOOPBACK, "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on if its host, token and origin (if any) are those of this proxy."""
        if scope["type"] == "http" and not self._allows(scope):
            return await PlainTextResponse("Not found", 404)(scope, receive, send)
        return await self._app(scope, receive, send)

    def _allows(self, scope: Scope) -> bool:
        headers = dict(scope["headers"])
        token = scope["path"].lstrip("/").partition("/")[0]
        origin = headers.get(b"origin")
        return (
            headers.get(b"host") in self._hosts
            and (origin is None or origin.removeprefix(b"http://") in self._hosts)
            and compare_digest(token.encode(), self._token)
        )


def new_client() -> httpx.AsyncClient:
    """Return a client that waits for responses without a timeout."""
    return httpx.AsyncClient(timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT))


def explore(agent: str, port: int = 0, announce: Callable[[str], None] = print) -> None:
    """Serve the page for an agent until interrupted.

    Args:
        agent: The agent's base URL.
        port: The port of loopback to listen on; 0 for any.
        announce: Called with the URL of the page when the port is open.

    Raises:
        OSError: The port is in use.
    """
    with socket.create_server((LOOPBACK, port)) as listener:
        port = listener.getsockname()[1]
        proxy = AgentProxy(agent, token_urlsafe(24))
        announce(f"http://{LOOPBACK}:{port}/{proxy.token}/explorer")
        config = uvicorn.Config(
            proxy.app(port),
            log_level="warning",
            access_log=False,  # paths contain the token
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        uvicorn.Server(config).run(sockets=[listener])


def origin_of(url: httpx.URL) -> tuple[str, str, int | None]:
    """Return the origin of a URL; all names of this machine are one host."""
    host = "localhost" if url.host in LOOPBACK_HOSTS else url.host
    return url.scheme, host, url.port or {"http": 80, "https": 443}.get(url.scheme)


def is_object(body: bytes) -> bool:
    """Return whether a body is a JSON object."""
    try:
        return isinstance(json.loads(body), dict)
    except (ValueError, RecursionError):
        return False


def forwarded_headers(headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the header fields of a request that are forwarded to the agent."""
    for name, value in headers.items():
        if name not in NOT_FORWARDED | HOP_BY_HOP and not name.startswith("sec-"):
            yield name, value
    yield "accept-encoding", "identity"


def returned_headers(headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the header fields of a response that are returned to the browser."""
    for name, value in headers.items():
        if name.lower() not in NOT_RETURNED | HOP_BY_HOP:
            yield name, value


async def stream_body(response: httpx.Response) -> AsyncIterator[bytes]:
    """Yield a body as it arrives; close the response at the end or when the browser disconnects."""
    try:
        async for piece in response.aiter_raw():
            yield piece
    finally:
        await response.aclose()


def explain(agent: httpx.URL, error: Exception) -> str:
    """Return a text for the user that says why a request failed."""
    if isinstance(error, UnusableAgentError):
        return str(error)
    tls_error = tls_error_in(error)
    if isinstance(tls_error, ssl.SSLCertVerificationError):
        return (
            f"The TLS certificate of {agent} is not trusted: {error}. If you trust its authority, "
            "set SSL_CERT_FILE to the certificate of the authority"
        )
    if tls_error is not None:
        return (
            f"{agent} can't be reached over TLS: {error}. Check the scheme and the port of its URL"
        )
    return (
        f"{agent} can't be reached: {str(error) or type(error).__name__}. Check that it is running"
    )


def tls_error_in(error: BaseException | None) -> ssl.SSLError | None:
    """Return the TLS error among *error* and its causes, if there is one."""
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error
