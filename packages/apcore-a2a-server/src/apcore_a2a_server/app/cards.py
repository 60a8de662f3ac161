"""Agent Cards: one for strangers, and one for each who is known (FR-AGC-001, FR-AGC-004)."""

import asyncio
import hashlib
import time
from typing import Any, NamedTuple

from a2a.types import AgentCapabilities
from apcore_a2a_core import EXTENSION_URI, AgentCardBuilder, Identity, SkillMapper, card_to_dict
from apcore_a2a_core.values import dump_json
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from apcore_a2a_server.engine.clients import Caller
from apcore_a2a_server.middleware import caller_of
from apcore_a2a_server.middleware.auth import declared, for_both
from apcore_a2a_server.modules.access import Access, Verdict
from apcore_a2a_server.modules.skills import Skills

from .options import Settings

DEFAULT_URL = "http://localhost:8000"
FRESH = 10
"""Seconds after which the executor's rules are asked again what strangers may call."""
MAX_KEPT = 64


class Card(NamedTuple):
    """A card as a JSON value, as bytes, and the entity tag of these (RFC 9110 §8.8.3)."""

    document: dict[str, Any]
    body: bytes
    etag: str


class Key(NamedTuple):
    """Key of a cached card: the state of the registry, the agent's address, and its skills."""

    generation: int
    url: str
    visible: frozenset[str]


class CardPages:
    """Cards of the registry as it is now, each made once for all who may call the same skills.

    Args:
        skills: The modules.
        access: Who may call what.
        settings: What the cards say of the agent.
    """

    def __init__(self, skills: Skills, access: Access, settings: Settings) -> None:
        self._skills = skills
        self._access = access
        self._settings = settings
        self._authenticates = settings.auth is not None
        self._schemes = {} if settings.auth is None else declared(settings.auth)
        self._security = for_both(self._schemes) if self._schemes else {}
        self._builder = AgentCardBuilder(SkillMapper())
        self._making = asyncio.Lock()
        self._kept: dict[Key, Card] = {}
        self._asking = asyncio.Lock()
        self._public: tuple[int, float, frozenset[str]] = (-1, 0, frozenset())
        self._make(Key(skills.generation, self._address(""), frozenset(skills.list())))

    async def show(self, request: Request) -> Response:
        """Answer with the card for strangers: the skills that they may call.

        Where clients are authenticated, those that need approval are not among them. The answer
        is 304 when the client has the card already (RFC 9110 §13.1.2).
        """
        card = await self._card(request.scope.get("root_path", ""), await self._for_strangers())
        headers = {"cache-control": "max-age=300", "etag": card.etag}
        known = request.headers.get("if-none-match", "")
        tags = [tag.strip().removeprefix("W/") for tag in known.split(",")]
        if known == "*" or card.etag in tags:
            return Response(status_code=304, headers=headers)
        return Response(card.body, media_type="application/json", headers=headers)

    async def show_extended(self, request: Request) -> Response:
        """Answer with the card for who calls (FR-AGC-004)."""
        if not self._authenticates:
            return JSONResponse({"error": "Authentication is not configured"}, 404)
        _, identity = caller_of(request.scope)
        card = await self._extended(identity, request.scope.get("root_path", ""))
        headers = {"cache-control": "private, no-store"}
        return Response(card.body, media_type="application/json", headers=headers)

    async def extended(self, caller: Caller) -> dict[str, Any]:
        """Return the card for who calls, as a JSON value."""
        return (await self._extended(caller.identity, caller.root_path)).document

    async def _extended(self, identity: Identity | None, root_path: str) -> Card:
        """Return the card for *identity*: the skills that it may call."""
        verdicts = await self._access.verdicts(self._skills.list(), identity)
        allowed = frozenset(skill_id for skill_id in verdicts if verdicts[skill_id].allowed)
        return await self._card(root_path, allowed)

    async def _for_strangers(self) -> frozenset[str]:
        if not self._is_fresh():
            async with self._asking:
                if not self._is_fresh():
                    await self._ask_for_strangers()
        return self._public[2]

    def _is_fresh(self) -> bool:
        generation, fresh_until, _ = self._public
        return generation == self._skills.generation and time.monotonic() < fresh_until

    async def _ask_for_strangers(self) -> None:
        generation = self._skills.generation
        verdicts = await self._access.verdicts(self._skills.list(), None)
        found = frozenset(s for s, verdict in verdicts.items() if self._is_public(s, verdict))
        self._public = generation, time.monotonic() + FRESH, found

    def _is_public(self, skill_id: str, verdict: Verdict) -> bool:
        if not self._authenticates:
            return verdict.allowed
        guarded = verdict.needs_approval or self._skills.needs_approval(skill_id)
        return verdict.allowed and not guarded

    async def _card(self, root_path: str, visible: frozenset[str]) -> Card:
        """Return the card of these skills; made in a thread, by the first who needs it."""
        key = Key(self._skills.generation, self._address(root_path), visible)
        if key not in self._kept:
            async with self._making:
                if key not in self._kept:
                    await asyncio.to_thread(self._make, key)
        return self._kept[key]

    def _address(self, root_path: str) -> str:
        return (self._settings.url or DEFAULT_URL + root_path).rstrip("/") + "/"

    def _make(self, key: Key) -> None:
        settings = self._settings
        capabilities = AgentCapabilities(
            streaming=True,
            push_notifications=bool(settings.push_notifications),
            extended_agent_card=self._authenticates,
        )
        card = self._builder.build(
            self._skills,
            name=settings.name or settings.project("name"),
            description=settings.description or settings.project("description"),
            version=settings.version or settings.project("version"),
            url=key.url,
            capabilities=capabilities,
            security_schemes=self._schemes,
            visible=key.visible.__contains__,
        )
        document = card_to_dict(card, state_transition_history=settings.state_history)
        document |= self._security
        revision = hashlib.sha256(dump_json(document)).hexdigest()[:32]
        for extension in document["capabilities"]["extensions"]:
            if extension["uri"] == EXTENSION_URI:  # FR-AGC-005.4
                extension["params"]["revision"] = revision
        if len(self._kept) >= MAX_KEPT:
            self._kept.clear()
        self._kept[key] = Card(document, dump_json(document), f'"{revision}"')
