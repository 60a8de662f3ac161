"""Discovery of an agent: its card, and the interface to use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from math import inf
from time import monotonic
from typing import Any, TypeAlias

import httpx

from .agent_urls import Origin, is_agent_url, origin, origin_text, path_of, redacted
from .auth import APIKey
from .bindings import HTTPJSON, JSONRPC, Binding
from .cards import AgentCard, AgentInterface
from .codec import load
from .errors import (
    MAX_QUOTED,
    A2AConnectionError,
    A2ADiscoveryError,
    A2AError,
    A2AProtocolError,
    A2ATimeoutError,
    CardRefusedError,
    CredentialsRefusedError,
    DestinationRefusedError,
    Json,
    is_object,
)
from .exchange import BufferedResponse, Exchange, Invoke, RequestSpec, Sleep, Steps
from .headers import NO_HEADERS, Headers, has_secrets
from .oauth import ClientCredentials

CARD_PATHS = (b"/.well-known/agent-card.json", b"/.well-known/agent.json")
MISSING_STATUSES = (404, 405, 410)
"""Statuses after which the card is requested from the other path."""
MAX_CARD_BYTES = 5 * 2**20
FETCH_POLL_INTERVAL = 0.01
"""Seconds between checks whether a concurrent call has fetched the card."""
REFRESH_RETRY_DELAY = 10.0
"""Seconds for which an expired card is used after it could not be refreshed."""
VERSIONS = ("1.0", "0.3")
CardCheck: TypeAlias = Callable[[Json], object | Awaitable[object]]
"""A function, or a coroutine function, that raises an exception to refuse the JSON of a card.

If it returns the JSON of a card, that card is used instead.
"""
BINDINGS: dict[str, type[Binding]] = {"JSONRPC": JSONRPC, "HTTP+JSON": HTTPJSON}


class Discovery:
    """A cache of the agent's card, and of the binding chosen from it.

    Attributes:
        exchange: Sends requests to the agent.
        base: The agent's base URL.
        ttl: Seconds for which a card is cached.
        protocol: The required protocol version; None for any in the card.
        trusted_origins: The origin of `base`, and others to which credentials may be sent.
        verify_card: Called with the JSON of the card after each fetch or revalidation.
        last_card: The last card that was accepted, even if it has expired; None if there is none.
    """

    def __init__(
        self,
        exchange: Exchange,
        base: httpx.URL,
        ttl: float,
        protocol: str | None,
        trusted_origins: Collection[Origin] = (),
        verify_card: CardCheck | None = None,
    ) -> None:
        self.exchange, self.base, self.ttl, self.protocol = exchange, base, ttl, protocol
        self.trusted_origins = {origin(base), *trusted_origins}
        self.verify_card = verify_card
        self.last_card: AgentCard | None = None
        self._last_data: Any = None
        self._card_urls = [base.copy_with(raw_path=path_of(base) + path) for path in CARD_PATHS]
        self._etag = ""
        self._is_fetching = False
        self._fetch_error: A2AError | None = None
        self._fresh_until = 0.0
        self._card_and_binding: tuple[AgentCard, Binding] | None = None

    def card(
        self, *, refresh: bool = False, deadline: float = inf, headers: Headers = NO_HEADERS
    ) -> Steps[AgentCard]:
        """Return the card, fetched if the cached one has expired (FR-CLI-002).

        Args:
            refresh: Fetch the card even if the cached one has not expired.
            deadline: Time to give up, on the monotonic clock.
            headers: Further headers of the request, if the card is fetched.

        Raises:
            A2ADiscoveryError: The agent has no card, or an invalid one.
            CardRefusedError: `verify_card` refused the card.
            DestinationRefusedError: A redirect leads to a host that is not allowed.
            TokenUnavailableError: There is no OAuth 2 token to request the card with.
            A2AConnectionError: The agent cannot be reached, or its card did not arrive before
                *deadline* (`A2ATimeoutError`).
        """
        if self.last_card and monotonic() < self._fresh_until and not refresh:
            return self.last_card  # even while another call refreshes it
        # Concurrent calls share one fetch and its outcome, but not an error that the deadline or
        # the headers of the fetching call may have caused. The other calls poll, since there is no
        # step that waits for a lock; the `finally` below runs even if the fetching call is
        # cancelled.
        wait_until, has_waited = self.exchange.cap_deadline(deadline), False
        while self._is_fetching:
            has_waited = True
            if monotonic() > wait_until:
                raise A2ATimeoutError("The agent's card did not arrive in time", sent=False)
            yield Sleep(FETCH_POLL_INTERVAL)
        if has_waited and self._fetch_error and not headers:
            raise self._fetch_error
        if self.last_card and monotonic() < self._fresh_until and has_waited:
            return self.last_card
        self._is_fetching, self._fetch_error = True, None
        try:
            return (yield from self._fetch(deadline, headers))
        except A2AError as error:
            if not headers and not isinstance(error, A2ATimeoutError):
                self._fetch_error = error
            if isinstance(error, CardRefusedError):
                self._fresh_until = 0.0  # the agent no longer has the card that was accepted
            raise
        finally:
            self._is_fetching = False

    def _fetch(self, deadline: float, headers: Headers) -> Steps[AgentCard]:
        url, fallback_url = self._card_urls
        response = yield from self._request(url, deadline, headers)
        outcomes = [f"HTTP {response.status} from {redacted(url)}"]
        if response.status in MISSING_STATUSES:
            url, response = (
                fallback_url,
                (yield from self._request(fallback_url, deadline, headers)),
            )
            outcomes.append(f"HTTP {response.status} from {redacted(url)}")
        card, data = self._parse(url, response, ", ".join(outcomes))
        card = (yield from self.verify(data, url)) or card
        kept_etag = self._etag if response.status == 304 else ""
        if self.exchange.guard and response.status == 200:
            self.exchange.guard.card_source = response.source
        self.last_card, self._etag = card, response.headers.get("etag", kept_etag)
        self._last_data = data if self.verify_card else None
        self._fresh_until = monotonic() + self.ttl
        # From now on, first try the URL that has the card.
        self._card_urls.sort(key=lambda card_url: card_url != url)
        return card

    def _request(
        self, url: httpx.URL, deadline: float, headers: Headers
    ) -> Steps[BufferedResponse]:
        headers = {**headers, "accept": "application/json"}
        if self.last_card and self._etag:
            headers["if-none-match"] = self._etag
        try:
            spec = RequestSpec("GET", url, safe=True, headers=headers, max_bytes=MAX_CARD_BYTES)
            response = yield from self.exchange.send(spec, deadline)
        except A2AProtocolError as error:
            raise A2ADiscoveryError(str(error), url=redacted(url)) from None
        assert isinstance(response, BufferedResponse)
        return response

    def verify(self, data: Any, url: httpx.URL) -> Steps[AgentCard | None]:
        """Pass *data*, the JSON of a card that came from *url*, to `verify_card`.

        Returns:
            The card to use instead; None if the function returned no JSON object.

        Raises:
            CardRefusedError: The function raised an exception, or returned an invalid card.
        """
        if self.verify_card is None:
            return None
        try:
            verified: Any = yield Invoke(self.verify_card, (data,))
            return AgentCard.from_dict(verified) if is_object(verified) else None
        except Exception as error:  # the user's function refuses a card by raising anything
            raise CardRefusedError(str(error), url=redacted(url)) from error

    def _parse(
        self, url: httpx.URL, response: BufferedResponse, outcomes: str
    ) -> tuple[AgentCard, Any]:
        """Return the card in *response*, and its JSON."""
        status = response.status
        if status == 304 and self.last_card:
            # `last_card` may be a card that `verify_card` returned instead of the agent's.
            card = AgentCard.from_dict(self._last_data) if self._last_data else self.last_card
            return card, self._last_data
        message = f"No agent card: {outcomes}"
        if status in MISSING_STATUSES:
            message += f". Is {redacted(self.base)} the agent's base URL? Check its port and path"
        if status == 200:
            try:
                data = load(response.body)
                return AgentCard.from_dict(data), data
            except A2AProtocolError as error:
                message = f"No agent card: {error}"
        raise A2ADiscoveryError(message, url=redacted(url), status_code=status)

    def binding(self, deadline: float = inf, headers: Headers = NO_HEADERS) -> Steps[Binding]:
        """Return the binding of the card's first interface that is supported and allowed.

        If `protocol` is given, JSON-RPC at the base URL is assumed in two cases: no supported
        interface has that version, or there is no usable card and no `verify_card`.

        The credentials are prepared as the card declares: an API key gets its location, and
        `ClientCredentials` without an endpoint or issuer use the one in the card.

        Args:
            deadline: Time to give up, on the monotonic clock.
            headers: Headers of the request that follows. The card is fetched without them, because
                all callers share it.

        Raises:
            CardRefusedError: `verify_card` refused the card.
            A2AConnectionError: The agent cannot be reached, and there is no earlier card.
            A2ADiscoveryError: There is no usable card or supported interface, and JSON-RPC is not
                assumed. Interfaces over http are not supported if the base URL is https.
            CredentialsRefusedError: The client withholds its credentials: all supported interfaces,
                or the token endpoint in the card, are at origins that are not trusted.
            DestinationRefusedError: All supported interfaces are at IP addresses that are not
                allowed, or the card's URL redirects to such an address.
            TokenUnavailableError: Neither the card nor the client has a token endpoint, or there
                is no token to request the card with.
            A2AProtocolError: The card declares an API key in a reserved header.
        """
        try:
            card = yield from self.card(deadline=deadline)
        except CardRefusedError:
            raise
        except (A2ADiscoveryError, A2AConnectionError) as error:
            if self.last_card is None:
                # An agent whose card must be verified is not called without a card.
                is_card_optional = self.protocol is not None and self.verify_card is None
                if isinstance(error, A2AConnectionError) or not is_card_optional:
                    raise
                return JSONRPC(self.base, str(self.protocol))
            # An expired card is better than none: cards rarely change, and if this one did, the
            # request itself fails.
            card, self._fresh_until = self.last_card, monotonic() + REFRESH_RETRY_DELAY
        bound_card, binding = self._card_and_binding or (None, None)
        # Check a cached binding too: callers can add credentials to their httpx client at any time.
        if binding is None or bound_card is not card or not self._may_call(binding.url, headers):
            binding = self._choose(card, headers)
            binding.supports_streams = card.capabilities.streaming
            if isinstance(self.exchange.auth, APIKey):
                self.exchange.auth.use_card(card)
            elif isinstance(self.exchange.auth, ClientCredentials):
                self.exchange.auth.use_card(card, self.base, self.trusted_origins)
            self._card_and_binding = card, binding
        return binding

    def _choose(self, card: AgentCard, headers: Headers) -> Binding:
        offered: list[str] = []
        foreign_urls: list[httpx.URL] = []
        refused_urls: list[httpx.URL] = []
        guard = self.exchange.guard
        for interface in card.supported_interfaces:
            url = self._absolute_url(interface.url)
            location = redacted(url) if url else "an invalid URL"
            name = f"{interface.protocol_binding} {interface.protocol_version}"
            offered.append(f"{name} at {location}")
            binding = self._binding_for(interface, url) if url else None
            if binding and self.protocol in (None, binding.version):
                if guard and not guard.allows(binding.url, guard.card_source):
                    refused_urls.append(binding.url)
                elif self._may_call(binding.url, headers):
                    return binding
                else:
                    foreign_urls.append(binding.url)
        if foreign_urls:
            raise CredentialsRefusedError(origin_text(self.base), origin_text(foreign_urls[0]))
        if refused_urls:
            raise DestinationRefusedError(origin_text(refused_urls[0]), refused_urls[0].host)
        if self.protocol:
            return JSONRPC(self.base, self.protocol)
        interfaces = ", ".join(offered)[:MAX_QUOTED] or "none"
        message = f"The agent has no interface that this client supports; it has: {interfaces}"
        raise A2ADiscoveryError(message, url=redacted(self.base))

    def _absolute_url(self, reference: str) -> httpx.URL | None:
        try:
            url = self.base.join(reference)
        except (httpx.InvalidURL, UnicodeError):
            return None
        return url if is_agent_url(url) else None

    def _may_call(self, url: httpx.URL, headers: Headers) -> bool:
        """Return whether *url* is at a trusted origin, or the client has no credentials.

        Without this check, anyone who can change the card, or redirect requests for it, could have
        the credentials sent to their own URL.
        """
        has_credentials = self.exchange.has_credentials or has_secrets(headers)
        return origin(url) in self.trusted_origins or not has_credentials

    def _binding_for(self, interface: AgentInterface, url: httpx.URL) -> Binding | None:
        """Return the binding for *interface*; None if it is not supported, or not secure."""
        loses_tls = url.scheme == "http" and self.base.scheme == "https"
        binding_type = BINDINGS.get(interface.protocol_binding.upper() or "JSONRPC")
        version = interface.protocol_version
        is_v03, is_v1 = version.startswith("0."), version in ("", "1") or version.startswith("1.")
        if loses_tls or binding_type is None:
            return None
        if not (is_v1 or (is_v03 and binding_type is JSONRPC)):
            return None
        return binding_type(url, "0.3" if is_v03 else "1.0", interface.tenant)
