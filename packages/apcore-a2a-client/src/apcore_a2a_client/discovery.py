"""Finding out what an agent is, and how to talk to it."""

from __future__ import annotations

from math import inf
from time import monotonic
from typing import TYPE_CHECKING

import httpx

from .bindings import HTTPJSON, JSONRPC, Binding
from .codec import load
from .errors import (
    LONGEST,
    A2AConnectionError,
    A2ADiscoveryError,
    A2AError,
    A2AProtocolError,
)
from .exchange import Answer, Call, Exchange, Sleep, Steps, is_good, origin, path_of, shown

if TYPE_CHECKING:
    from .cards import AgentCard, AgentInterface  # imported when there is a card

PLACES = (b"/.well-known/agent-card.json", b"/.well-known/agent.json")
LARGEST_CARD = 5 * 2**20
"""Bytes."""
LOOK = 0.01
"""Seconds between two looks whether somebody else has got the card."""
LATER = 10.0
"""Seconds until a card that could not be refreshed is asked for again."""
VERSIONS = ("1.0", "0.3")
BINDINGS: dict[str, type[Binding]] = {"JSONRPC": JSONRPC, "HTTP+JSON": HTTPJSON}


class Discovery:
    """Keeps the card of the agent at an address.

    Attributes:
        base: The agent's address.
        ttl: Seconds for which a card counts.
        protocol: The version to speak whatever the card says.
        known: The card that was seen last.
    """

    def __init__(
        self, exchange: Exchange, base: httpx.URL, ttl: float, protocol: str | None
    ) -> None:
        self.base, self.ttl, self.protocol = base, ttl, protocol
        self.known: AgentCard | None = None
        self._exchange = exchange
        self._places = [base.copy_with(raw_path=path_of(base) + place) for place in PLACES]
        self._etag = ""
        self._asking = self._elsewhere = False
        self._error: A2AError | None = None
        self._until = 0.0
        self._bound: tuple[AgentCard, Binding] | None = None

    def card(self, *, refresh: bool = False, end: float = inf) -> Steps[AgentCard]:
        """The card, fetched if the known one is too old (FR-CLI-002).

        Raises:
            A2ADiscoveryError: There is none, or none that makes sense.
        """
        waited = False
        while self._asking:  # somebody else does
            waited = True
            yield Sleep(LOOK)
        if waited and self._error:
            raise self._error
        if self.known and monotonic() < self._until and (waited or not refresh):
            return self.known
        self._asking, self._error = True, None
        try:
            return (yield from self._ask(end))
        except A2AError as error:
            self._error = error
            raise
        finally:
            self._asking = False

    def _ask(self, end: float) -> Steps[AgentCard]:
        first, second = self._places
        url, answer = first, (yield from self._fetch(first, end))
        if answer.status in (404, 405, 410):
            url, answer = second, (yield from self._fetch(second, end))
        card = self._read(url, answer)
        kept = self._etag if answer.status == 304 else ""
        self.known, self._etag = card, answer.headers.get("etag", kept)
        self._elsewhere = origin(answer.url) != origin(url)
        self._until = monotonic() + self.ttl
        self._places.sort(key=lambda place: place != url)
        return card

    def _fetch(self, url: httpx.URL, end: float) -> Steps[Answer]:
        headers = {"accept": "application/json"}
        if self.known and self._etag:
            headers["if-none-match"] = self._etag
        try:
            call = Call("GET", url, safe=True, headers=headers, limit=LARGEST_CARD)
            answer = yield from self._exchange.send(call, end)
        except A2AProtocolError as error:
            raise A2ADiscoveryError(str(error), url=shown(url)) from None
        assert isinstance(answer, Answer)
        return answer

    def _read(self, url: httpx.URL, answer: Answer) -> AgentCard:
        place, status = shown(url), answer.status
        if status == 304 and self.known:
            return self.known
        if status != 200:
            raise A2ADiscoveryError(f"No agent card: HTTP {status}", url=place, status_code=status)
        from .cards import AgentCard

        try:
            return AgentCard.from_dict(load(answer.body))
        except A2AProtocolError as error:
            message = f"No agent card: {error}"
            raise A2ADiscoveryError(message, url=place, status_code=status) from None

    def binding(self, end: float = inf) -> Steps[Binding]:
        """How to talk to the agent: as the first of its interfaces that we know, in its order.

        Raises:
            A2ADiscoveryError: It has none, or only plain ones though its card came encrypted.
        """
        try:
            card = yield from self.card(end=end)
        except (A2ADiscoveryError, A2AConnectionError) as error:
            if self.known is None:
                if self.protocol is None or isinstance(error, A2AConnectionError):
                    raise
                return JSONRPC(self.base, self.protocol)
            card, self._until = self.known, monotonic() + LATER  # an old card is better than none
        if self._bound is None or self._bound[0] is not card:
            self._bound = card, self._choose(card)
        return self._bound[1]

    def _choose(self, card: AgentCard) -> Binding:
        offered: list[str] = []
        for known in card.supported_interfaces:
            url = self._url(known.url)
            place = shown(url) if url else "no address"
            offered.append(f"{known.protocol_binding} {known.protocol_version} at {place}")
            binding = self._binding(known, url) if url else None
            if binding and self.protocol in (None, binding.version):
                return binding
        if self.protocol:
            return JSONRPC(self.base, self.protocol)
        found = ", ".join(offered)[:LONGEST] or "no address"
        message = f"The agent offers nothing that this client speaks, but {found}"
        raise A2ADiscoveryError(message, url=shown(self.base))

    def _url(self, text: str) -> httpx.URL | None:
        try:
            url = self.base.join(text)
        except (httpx.InvalidURL, UnicodeError):
            return None
        return url if is_good(url) else None

    def _binding(self, known: AgentInterface, url: httpx.URL) -> Binding | None:
        """What speaks to that interface, if this client can, and without giving up TLS."""
        plain = url.scheme == "http" and self.base.scheme == "https"
        # who was redirected to a card must not give its author the credentials
        stranger = self._elsewhere and url.host != self.base.host and self._exchange.has_secrets
        kind = BINDINGS.get(known.protocol_binding.upper() or "JSONRPC")
        old = known.protocol_version.startswith("0.")
        new = known.protocol_version in ("", "1") or known.protocol_version.startswith("1.")
        if plain or stranger or kind is None or not (new or (old and kind is JSONRPC)):
            return None
        return kind(url, "0.3" if old else "1.0", known.tenant)
