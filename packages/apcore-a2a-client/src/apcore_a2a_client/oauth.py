"""OAuth 2 tokens by the client credentials grant (RFC 6749 §4.4)."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Collection, Generator, Mapping
from threading import Lock
from time import monotonic
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import quote_plus
from weakref import WeakKeyDictionary

import httpx

from .agent_urls import Origin, is_agent_url, origin, origin_text, path_of, redacted
from .auth import AsyncFlow, Flow, authorize
from .cards import AgentCard, SecurityScheme
from .codec import load
from .errors import (
    A2AConnectionError,
    A2AProtocolError,
    CredentialsRefusedError,
    Json,
    TokenUnavailableError,
    is_list,
    is_object,
)

AuthMethod: TypeAlias = Literal["basic", "post"]
LEEWAY = 30.0
"""Seconds between the renewal of a token and its expiry; at most half of its lifetime."""
DEFAULT_LIFETIME = 300.0
"""Assumed lifetime of a token, in seconds, if the server states no valid `expires_in`."""
MAX_BYTES = 256 * 1024
"""Size limit of a response of the authorization server."""
TOKEN_ERRORS = (
    "invalid_client",
    "invalid_grant",
    "invalid_request",
    "invalid_scope",
    "invalid_target",
    "unauthorized_client",
    "unsupported_grant_type",
)
"""Error codes that exceptions quote (RFC 6749 §5.2, RFC 8707 §2): other text may hold secrets."""
BUSY_STATUSES = (429, 502, 503, 504)
OAUTH_METADATA, OIDC_METADATA = (
    b"/.well-known/oauth-authorization-server",
    b"/.well-known/openid-configuration",
)


class Answer(NamedTuple):
    """A response of the authorization server."""

    status: int
    body: bytes


TokenSteps: TypeAlias = Generator[httpx.Request, Answer, str]
"""A generator of requests that returns a token."""


class DeclaredSource(NamedTuple):
    """A card's source of tokens (a token URL or an issuer), and the scopes the card requires."""

    location: str
    is_issuer: bool
    scopes: str


class ClientCredentials(httpx.Auth):
    """OAuth 2 client credentials: gets, keeps and renews tokens of an authorization server.

    A token is kept until shortly before it expires. Concurrent calls in one event loop share one
    request for a token, and so do synchronous calls in all threads. If the agent refuses a token
    with 401, a new one is obtained, and the call is sent once more.

    If *token_url* and *issuer* are both omitted, the client uses the token endpoint (or OpenID
    Connect issuer) in the agent's card. That must be at the agent's origin, or at one of the
    origins in the client's `credentials_for`.

    Args:
        token_url: The token endpoint.
        issuer: The URL of the authorization server; the server's metadata names the token endpoint
            (RFC 8414, or OpenID Connect Discovery).
        client_id: The id of this client.
        client_secret: Its secret.
        scope: The scopes to request, separated by spaces; by default those that the card requires,
            if the endpoint comes from the card.
        parameters: Further parameters of the token request, such as `audience` or `resource`.
        auth_method: The way to send the secret: `"basic"` in the `Authorization` header, `"post"`
            in the body; by default as the issuer's metadata specifies, or else `"basic"`.

    Raises:
        ValueError: A URL or *auth_method* is not valid, *client_id* or *client_secret* is empty, or
            both *token_url* and *issuer* are passed.

    Example:
        ```python
        from apcore_a2a_client import A2AClient, ClientCredentials

        auth = ClientCredentials(
            issuer="https://login.example.com", client_id="gateway", client_secret="…"
        )
        client = A2AClient("https://agent.example.com", auth=auth)
        print(auth)
        #> <ClientCredentials gateway at https://login.example.com>
        ```
    """

    def __init__(
        self,
        *,
        token_url: str | None = None,
        issuer: str | None = None,
        client_id: str,
        client_secret: str,
        scope: str | None = None,
        parameters: Mapping[str, str] | None = None,
        auth_method: AuthMethod | None = None,
    ) -> None:
        if token_url and issuer:
            raise ValueError("token_url and issuer cannot be combined")
        if not (client_id and client_secret):
            raise ValueError("client_id and client_secret must not be empty")
        if auth_method not in (None, "basic", "post"):
            raise ValueError(f"auth_method must be basic or post, not {auth_method!r}")
        self.client_id, self._secret = client_id, client_secret
        self._scope = scope
        self._declared: DeclaredSource = DeclaredSource("", False, "")
        self._parameters = dict(parameters or {})
        self._auth_method: AuthMethod | None = auth_method
        self._issuer = issuer or ""
        self._issuer_url = _parse_endpoint(issuer, "issuer") if issuer else None
        self._token_url = _parse_endpoint(token_url, "token_url") if token_url else None
        self._uses_card = not (token_url or issuer)
        self._agent, self._trusted = httpx.URL(), frozenset[Origin]()
        self._token, self._usable_until = "", 0.0
        self._failure: tuple[float, TokenUnavailableError | A2AConnectionError] | None = None
        self._thread_lock = Lock()
        self._loop_locks: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def __repr__(self) -> str:
        url = self._token_url or self._issuer_url
        return f"<ClientCredentials {self.client_id} at {redacted(url) if url else 'the agent'}>"

    def for_agent(self) -> ClientCredentials:
        """Return the credentials for one agent: a copy if the endpoint comes from its card."""
        if not self._uses_card:
            return self
        return ClientCredentials(
            client_id=self.client_id,
            client_secret=self._secret,
            scope=self._scope,
            parameters=self._parameters,
            auth_method=self._auth_method,
        )

    def use_card(self, card: AgentCard, agent: httpx.URL, trusted: Collection[Origin]) -> None:
        """Use the token endpoint in *card*, unless `token_url` or `issuer` was passed.

        Args:
            card: The agent's card.
            agent: The URL of the agent.
            trusted: The origins that may get the secret.

        Raises:
            TokenUnavailableError: The card declares no valid endpoint or issuer.
            CredentialsRefusedError: The client withholds the secret: the endpoint or issuer is at
                an origin that is not trusted.
        """
        if not self._uses_card:
            return
        self._agent, self._trusted = agent, frozenset(trusted)
        source = _find_declared_source(card)
        try:
            url = _parse_endpoint(source.location, "token URL in the agent's card")
        except ValueError as error:
            raise TokenUnavailableError(str(error)) from None
        if origin(url) not in trusted:
            raise CredentialsRefusedError(origin_text(agent), origin_text(url))
        if source != self._declared:
            self._declared, self._token = source, ""
            self._token_url = None if source.is_issuer else url
            self._issuer, self._issuer_url = source.location, url  # used only without a token URL

    def sync_auth_flow(self, request: httpx.Request) -> Flow:
        """Add a token; after a response with 401, send the request again with a new token."""
        for is_last_try in (False, True):
            token = self._valid_token()
            if not token and self._has_endpoint:
                token = yield from self._renew(request)
            response = yield authorize(request, token) if token else request
            if is_last_try or not token or response.status_code != 401:
                return
            self._discard(token)
            stream: Any = response.stream
            stream.close()
            response.stream = httpx.ByteStream(b"")  # else httpx reads the body, however large

    async def async_auth_flow(self, request: httpx.Request) -> AsyncFlow:
        """Do the same as `sync_auth_flow`, in an event loop."""
        for is_last_try in (False, True):
            token = self._valid_token()
            if not token and self._has_endpoint:
                waiting_since = monotonic()
                async with self._loop_lock():
                    steps = self._obtain_token(request, waiting_since)
                    try:
                        token_request = next(steps)
                        while True:
                            response = yield token_request
                            token_request = steps.send(await _read_async(response))
                    except StopIteration as end:
                        token = end.value
            response = yield authorize(request, token) if token else request
            if is_last_try or not token or response.status_code != 401:
                return
            self._discard(token)
            stream: Any = response.stream
            await stream.aclose()
            response.stream = httpx.ByteStream(b"")  # else httpx reads the body, however large

    def _renew(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, str]:
        waiting_since, timeout = monotonic(), request.extensions.get("timeout", {}).get("read")
        if not self._thread_lock.acquire(timeout=-1 if timeout is None else timeout):
            raise httpx.PoolTimeout("no token in time", request=request)
        try:
            steps = self._obtain_token(request, waiting_since)
            try:
                token_request = next(steps)
                while True:
                    response = yield token_request
                    token_request = steps.send(_read(response))
            except StopIteration as end:
                token: str = end.value
                return token
        finally:
            self._thread_lock.release()

    def _loop_lock(self) -> Any:
        from asyncio import Lock, get_running_loop  # the client imports asyncio on first use

        return self._loop_locks.setdefault(get_running_loop(), Lock())

    @property
    def _has_endpoint(self) -> bool:
        return self._token_url is not None or self._issuer_url is not None

    def _valid_token(self) -> str:
        return self._token if monotonic() < self._usable_until else ""

    def _discard(self, token: str) -> None:
        """Stop using *token*, unless another call has already replaced it."""
        if self._token == token:
            self._token = ""

    def _obtain_token(self, request: httpx.Request, waiting_since: float) -> TokenSteps:
        """Return a token for *request*, which has waited for the lock since *waiting_since*."""
        if token := self._valid_token():
            return token  # a concurrent call has just got it
        if self._failure and self._failure[0] >= waiting_since:
            raise self._failure[1]  # a concurrent call has just failed
        try:
            return (yield from self._request_token(request))
        except (TokenUnavailableError, A2AConnectionError) as error:
            self._failure = monotonic(), error
            raise

    def _request_token(self, request: httpx.Request) -> TokenSteps:
        extensions = {"timeout": request.extensions.get("timeout", {})}
        url = self._token_url
        auth_method: AuthMethod | None = self._auth_method
        if url is None:
            url, auth_method = yield from self._discover(extensions)
        requested_at = monotonic()
        answer = yield self._build_token_request(url, auth_method or "basic", extensions)
        lifetime = self._store_token(_parse(answer, url))
        self._usable_until = requested_at + lifetime - min(LEEWAY, lifetime / 2)
        return self._token

    def _build_token_request(
        self, url: httpx.URL, auth_method: AuthMethod, extensions: Json
    ) -> httpx.Request:
        scope = self._declared.scopes if self._scope is None else self._scope
        form = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
        headers = {"accept": "application/json", "accept-encoding": "identity"}
        if auth_method == "post":
            form |= {"client_id": self.client_id, "client_secret": self._secret}
        else:
            pair = f"{quote_plus(self.client_id)}:{quote_plus(self._secret)}"
            headers["authorization"] = "Basic " + b64encode(pair.encode()).decode()
        data = {**self._parameters, **form}
        return httpx.Request("POST", url, headers=headers, data=data, extensions=extensions)

    def _store_token(self, body: Json) -> float:
        """Store the token from *body*, and return its lifetime in seconds."""
        token, lifetime = body.get("access_token"), body.get("expires_in", DEFAULT_LIFETIME)
        if str(body.get("token_type", "bearer")).lower() != "bearer":
            raise TokenUnavailableError("The authorization server returned no bearer token")
        if isinstance(lifetime, str) and lifetime.isascii() and lifetime.isdigit():
            lifetime = int(lifetime[:9])  # some servers send a string
        if not isinstance(lifetime, int | float) or lifetime <= 0:
            lifetime = DEFAULT_LIFETIME
        is_text = isinstance(token, str) and token.isascii() and token.isprintable()
        if not (is_text and token and " " not in token):
            raise TokenUnavailableError("The authorization server returned no token")
        self._token = token
        return float(min(lifetime, 10**9))  # an integer may be too large for a float

    def _discover(
        self, extensions: Json
    ) -> Generator[httpx.Request, Answer, tuple[httpx.URL, AuthMethod | None]]:
        """Return the token endpoint in the metadata of the issuer, and the way to authenticate."""
        assert self._issuer_url
        path = path_of(self._issuer_url)
        answer = Answer(404, b"")
        for target in (OAUTH_METADATA + path, path + OIDC_METADATA):
            url = self._issuer_url.copy_with(raw_path=target)
            answer = yield httpx.Request(
                "GET",
                url,
                headers={"accept": "application/json", "accept-encoding": "identity"},
                extensions=extensions,
            )
            if answer.status == 200:
                break
        metadata = _parse(answer, self._issuer_url)
        if str(metadata.get("issuer")).rstrip("/") != self._issuer.rstrip("/"):
            raise TokenUnavailableError("The metadata belongs to another issuer (RFC 8414 §3.3)")
        try:
            token_url = _parse_endpoint(
                metadata.get("token_endpoint"), "token_endpoint of the issuer"
            )
        except ValueError as error:
            raise TokenUnavailableError(str(error)) from None
        if (self._issuer_url.scheme, token_url.scheme) == ("https", "http"):
            raise TokenUnavailableError("The issuer uses https, but its token endpoint uses http")
        if self._uses_card and origin(token_url) not in self._trusted:
            raise CredentialsRefusedError(origin_text(self._agent), origin_text(token_url))
        methods = metadata.get("token_endpoint_auth_methods_supported")
        supported = methods if is_list(methods) else []
        auth_method = self._auth_method
        if auth_method is None and "client_secret_basic" not in supported:
            auth_method = "post" if "client_secret_post" in supported else "basic"
        return token_url, auth_method


def _find_declared_source(card: AgentCard) -> DeclaredSource:
    """Return the source of tokens that *card* declares, preferably for a required scheme.

    Raises:
        TokenUnavailableError: The card declares no source.
    """
    required: dict[str, list[Any]] = {}
    for requirement in card.security_requirements:
        schemes = requirement.get("schemes")
        for name, scopes in (schemes if is_object(schemes) else {}).items():
            scope_list = scopes.get("list") if is_object(scopes) else None
            required.setdefault(name, scope_list if is_list(scope_list) else [])
    ordered = sorted(card.security_schemes.items(), key=lambda item: item[0] not in required)
    for name, scheme in ordered:
        if location := _find_location(scheme):
            scopes = " ".join(scope for scope in required.get(name, []) if isinstance(scope, str))
            return DeclaredSource(*location, scopes)
    raise TokenUnavailableError(
        "The agent's card declares no OAuth 2 client credentials: pass token_url or issuer"
    )


def _find_location(scheme: SecurityScheme) -> tuple[str, bool] | None:
    """Return the token URL or the issuer that *scheme* declares, and whether it is an issuer."""
    flow = scheme.flows.get("clientCredentials")
    if scheme.type == "oauth2" and is_object(flow):
        return str(flow.get("tokenUrl")), False
    metadata_path = OIDC_METADATA.decode()
    if scheme.type == "openIdConnect" and scheme.open_id_connect_url.endswith(metadata_path):
        return scheme.open_id_connect_url.removesuffix(metadata_path), True
    return None


def _parse_endpoint(text: Any, label: str) -> httpx.URL:
    """Return the URL in *text*.

    Raises:
        ValueError: It is not an http or https URL, or has a user or fragment; the message does not
            quote it, since it may contain a password.
    """
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, TypeError, UnicodeError):
        url = httpx.URL()
    if not is_agent_url(url) or url.fragment:
        raise ValueError(f"The {label} must be an http or https URL without user or fragment")
    return url


def _parse(answer: Answer, url: httpx.URL) -> Json:
    """Return the JSON object in *answer*.

    Raises:
        A2AConnectionError: The authorization server is busy: try again later.
        TokenUnavailableError: The server refused the request, or its response is not OAuth 2.
    """
    if answer.status in BUSY_STATUSES:
        problem = f"The authorization server is busy: HTTP {answer.status} from {redacted(url)}"
        raise A2AConnectionError(problem, sent=False)
    try:
        body = load(answer.body)
    except A2AProtocolError:
        body = None
    if answer.status == 200 and is_object(body):
        return body
    code = body.get("error") if is_object(body) else None
    error = code if code in TOKEN_ERRORS else ""
    problem = f"No token from the authorization server: HTTP {answer.status}"
    reason = f", {error}" if error else ""
    raise TokenUnavailableError(
        f"{problem}{reason} ({redacted(url)})", error=error, status_code=answer.status
    )


def _read(response: httpx.Response) -> Answer:
    """Read a response of the authorization server, and leave its stream empty."""
    stream: Any = response.stream
    body = bytearray()
    try:
        for chunk in stream:
            _extend(body, chunk)
    finally:
        stream.close()
    return _to_answer(response, body)


async def _read_async(response: httpx.Response) -> Answer:
    """Do the same as `_read`, in an event loop."""
    stream: Any = response.stream
    body = bytearray()
    try:
        async for chunk in stream:
            _extend(body, chunk)
    finally:
        await stream.aclose()
    return _to_answer(response, body)


def _extend(body: bytearray, chunk: bytes) -> None:
    body += chunk
    if len(body) > MAX_BYTES:
        raise TokenUnavailableError("The response of the authorization server is too large")


def _to_answer(response: httpx.Response, body: bytearray) -> Answer:
    response.stream = httpx.ByteStream(b"")  # httpx reads this before the next request
    return Answer(response.status_code, bytes(body))
