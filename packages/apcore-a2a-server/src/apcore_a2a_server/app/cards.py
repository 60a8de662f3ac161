"""Agent Cards: the public one, and extended ones for callers (FR-AGC-001, FR-AGC-004)."""

import asyncio
import hashlib
import re
import time
from collections import OrderedDict
from typing import Any, NamedTuple, TypeAlias

from a2a.types import AgentCapabilities
from apcore_a2a_core import EXTENSION_URI, AgentCardBuilder, Identity, SkillMapper, card_to_dict
from apcore_a2a_core.values import dump_json
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from apcore_a2a_server.bindings.http import FOUND_TENANT, NO_STORE
from apcore_a2a_server.bindings.rest import not_found
from apcore_a2a_server.engine.clients import Caller
from apcore_a2a_server.middleware import caller_of
from apcore_a2a_server.middleware.auth import declared_schemes, security_members
from apcore_a2a_server.middleware.tenant_paths import agent_root_path
from apcore_a2a_server.modules.access import Access, AccessVerdict
from apcore_a2a_server.modules.skills import Skills
from apcore_a2a_server.modules.tenants import Tenant

from .card_keys import card_signer
from .options import Settings

DEFAULT_URL = "http://localhost:8000"
PUBLIC_SKILLS_TTL = 10
"""Seconds for which the access rules' verdicts about anonymous callers are cached."""
HOST = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|\w[\w.-]{0,252})(:\d{1,5})?", re.ASCII)
"""A `Host` header with a name or an address, and perhaps a port."""
PUBLIC_CACHING = (b"cache-control", b"max-age=300")
JSON = (b"content-type", b"application/json")
PRIVATE_CACHING = (b"cache-control", b"private, max-age=300")
MAX_CARDS = 64
"""Maximum number of cached cards: if no URL is set, each host has cards of its own, and clients can
invent hosts."""


Header: TypeAlias = tuple[bytes, bytes]


class Card(NamedTuple):
    """A card as a JSON value and as bytes, with two headers of its responses.

    Attributes:
        document: The card.
        body: The card in JSON.
        length: The header with the size of the body.
        etag: The header with the card's entity tag (RFC 9110 §8.8.3).
    """

    document: dict[str, Any]
    body: bytes
    length: Header
    etag: Header


class Target(NamedTuple):
    """The agent's address in a request; always ANY_TARGET if the settings have a URL."""

    scheme: str = ""
    host: bytes = b""
    root_path: str = ""


ANY_TARGET = Target()


class CacheKey(NamedTuple):
    """Key of a cached card: generation of the registry, URL, ids of visible skills, tenant."""

    generation: int
    url: str
    visible: frozenset[str]
    tenant: str = ""


class CardPages:
    """Agent Cards and their responses; callers with the same skills share a cached card.

    Args:
        skills: The skills.
        access: The access rules.
        settings: The options.

    Attributes:
        signer: The signer of the cards; None if they are not signed.
    """

    def __init__(self, skills: Skills, access: Access, settings: Settings) -> None:
        self._skills = skills
        self._access = access
        self._settings = settings
        self._authenticates = settings.auth is not None
        # without a URL in the settings, the card has the request's host, so no cache may share it
        self._caching = PRIVATE_CACHING if settings.url is None else PUBLIC_CACHING
        self._schemes = {} if settings.auth is None else declared_schemes(settings.auth)
        self._security = security_members(self._schemes) if self._schemes else {}
        self._builder = AgentCardBuilder(SkillMapper())
        self.signer = card_signer(settings)
        self._build_lock = asyncio.Lock()
        self._cards: OrderedDict[CacheKey, Card] = OrderedDict()
        """The cached cards; the most recently used comes last."""
        self._public_lock = asyncio.Lock()
        self._public: tuple[int, float, frozenset[str]] = (-1, 0, frozenset())
        """Generation of the registry, expiry by `time.monotonic`, and ids of the public skills."""
        self._recent_keys: dict[Target, CacheKey] = {}
        """Cache keys of public cards that were sent since the access rules were last checked."""
        key = CacheKey(skills.generation, self._agent_url(), frozenset(skills.list()))
        self._keep(key, self._build(key))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond with the public card: the skills that anonymous callers may call.

        If the agent has authentication, skills that need approval are left out. The response is
        304 if the client already has the card (RFC 9110 §13.1.2).

        The card of a tenant has only the tenant's skill. If the public card leaves out that skill,
        anonymous callers get 404.
        """
        card, caching = self._recent_card(scope), self._caching
        if card is None:
            url, tenant = self._url_and_tenant(scope)
            visible = await self._public_skills()
            if tenant is not None and tenant.skill_id not in visible:
                _, identity = caller_of(scope)
                if identity is None:
                    await not_found()(scope, receive, send)
                    return
                caching = NO_STORE
            card = await self._card(url, visible, tenant)
            # don't keep the key if the rules were checked again meanwhile: the card may be outdated
            if tenant is None and visible is self._public[2]:
                if len(self._recent_keys) >= MAX_CARDS:
                    self._recent_keys.clear()
                key = CacheKey(self._skills.generation, url, visible)
                self._recent_keys[self._target(scope)] = key
        status, body, headers = 200, card.body, [JSON, card.length, caching, card.etag]
        if _has_tag(scope, card.etag[1]):
            status, body, headers = 304, b"", headers[2:]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _recent_card(self, scope: Scope) -> Card | None:
        """Return the public card, if it was sent since the access rules were last checked."""
        generation, expires, _ = self._public
        is_recent = generation == self._skills.generation and time.monotonic() < expires
        if not is_recent or FOUND_TENANT in scope:
            return None
        key = self._recent_keys.get(self._target(scope))
        card = self._cards.get(key) if key is not None else None
        if key is not None and card is not None:
            self._keep(key, card)
        return card

    async def show_extended(self, request: Request) -> Response:
        """Respond with the extended card of the caller (FR-AGC-004)."""
        if not self._authenticates:
            return JSONResponse({"error": "Authentication is not configured"}, 404)
        _, identity = caller_of(request.scope)
        card = await self._extended_card(identity, *self._url_and_tenant(request.scope))
        headers = {"cache-control": "private, no-store"}
        return Response(card.body, media_type="application/json", headers=headers)

    async def extended(self, caller: Caller) -> dict[str, Any]:
        """Return the extended card of *caller* as a JSON value."""
        host = caller.headers.get("host", "")
        url = self._agent_url(caller.scheme, host, caller.root_path)
        return (await self._extended_card(caller.identity, url, caller.tenant)).document

    async def _extended_card(
        self, identity: Identity | None, url: str, tenant: Tenant | None
    ) -> Card:
        """Return the card with the skills that *identity* may call, or the card of the tenant."""
        verdicts = await self._access.verdicts(self._skills.list(), identity)
        allowed = frozenset(skill_id for skill_id in verdicts if verdicts[skill_id].allowed)
        return await self._card(url, allowed, tenant)

    async def _public_skills(self) -> frozenset[str]:
        generation, expires, skill_ids = self._public
        if generation == self._skills.generation and time.monotonic() < expires:
            return skill_ids
        async with self._public_lock:  # one request checks the rules, and the others wait
            generation, expires, skill_ids = self._public
            if generation != self._skills.generation or time.monotonic() >= expires:
                # read the generation first: if it changes meanwhile, the next request checks again
                generation = self._skills.generation
                verdicts = await self._access.verdicts(self._skills.list(), None)
                skill_ids = frozenset(
                    skill_id
                    for skill_id, verdict in verdicts.items()
                    if self._is_public(skill_id, verdict)
                )
                self._public = generation, time.monotonic() + PUBLIC_SKILLS_TTL, skill_ids
                self._recent_keys.clear()
            return skill_ids

    def _is_public(self, skill_id: str, verdict: AccessVerdict) -> bool:
        if not self._authenticates:
            return verdict.allowed
        needs_approval = verdict.needs_approval or self._skills.needs_approval(skill_id)
        return verdict.allowed and not needs_approval

    async def _card(self, url: str, visible: frozenset[str], tenant: Tenant | None = None) -> Card:
        """Return the card of these skills; build it in a thread if it is not cached.

        A tenant's card has only the tenant's skill, to which the caller's access has been checked.
        """
        key = CacheKey(self._skills.generation, url, visible)
        if tenant is not None:
            key = key._replace(visible=frozenset({tenant.skill_id}), tenant=tenant.name)
        card = self._cards.get(key)
        if card is None:
            async with self._build_lock:
                card = self._cards.get(key)
                if card is None:
                    card = await asyncio.to_thread(self._build, key)
        self._keep(key, card)
        return card

    def _keep(self, key: CacheKey, card: Card) -> None:
        """Cache a card that is used now; if the cache is full, drop the least recently used one."""
        self._cards[key] = card
        self._cards.move_to_end(key)
        if len(self._cards) > MAX_CARDS:
            self._cards.popitem(last=False)

    def _target(self, scope: Scope) -> Target:
        if self._settings.url is not None:
            return ANY_TARGET
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        scheme = scope.get("scheme", "http")
        return Target(scheme, hosts[0] if hosts else b"", agent_root_path(scope))

    def _url_and_tenant(self, scope: Scope) -> tuple[str, Tenant | None]:
        """Return the agent's URL for the request, and the tenant that the request is for."""
        scheme, host, root_path = self._target(scope)
        return self._agent_url(scheme, host.decode("latin-1"), root_path), scope.get(FOUND_TENANT)

    def _agent_url(self, scheme: str = "", host: str = "", root_path: str = "") -> str:
        """Return the agent's URL: from the settings, else from a request, else the default."""
        url = self._settings.url
        if url is None:
            is_usable = scheme in ("http", "https") and HOST.fullmatch(host)
            url = (f"{scheme}://{host.lower()}" if is_usable else DEFAULT_URL) + root_path
        return url.rstrip("/") + "/"

    def _build(self, key: CacheKey) -> Card:
        """Build a card."""
        settings = self._settings
        capabilities = AgentCapabilities(
            streaming=True,
            push_notifications=bool(settings.push_notifications),
            extended_agent_card=self._authenticates,
        )
        card = self._builder.build(
            self._skills,
            name=settings.name or settings.project("name"),
            description=(settings.description or "").strip() or settings.project("description"),
            version=settings.version or settings.project("version"),
            url=key.url,
            grpc_url=settings.grpc_url,
            capabilities=capabilities,
            security_schemes=self._schemes,
            visible=key.visible.__contains__,
            tenant=key.tenant,
        )
        document = card_to_dict(card, state_transition_history=settings.state_history)
        document |= self._security
        # The revision covers the signing keys too: when they change, clients fetch the card again.
        content = [document, self.signer.jwks()] if self.signer is not None else document
        revision = hashlib.sha256(dump_json(content)).hexdigest()[:32]
        for extension in document["capabilities"]["extensions"]:
            if extension["uri"] == EXTENSION_URI:  # FR-AGC-005.4
                extension["params"]["revision"] = revision
        if self.signer is not None:
            document["signatures"] = [*self.signer.sign(document)]
        body = dump_json(document)
        length = (b"content-length", b"%d" % len(body))
        return Card(document, body, length, (b"etag", f'"{revision}"'.encode()))


def _has_tag(scope: Scope, etag: bytes) -> bool:
    """Return whether `If-None-Match` has this entity tag, or "*"."""
    for name, value in scope["headers"]:
        if name == b"if-none-match":
            tags = [tag.strip().removeprefix(b"W/") for tag in value.split(b",")]
            return value == b"*" or etag in tags
    return False
