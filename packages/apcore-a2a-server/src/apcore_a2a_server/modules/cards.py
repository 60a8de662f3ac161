"""Agent Cards: one for strangers, and one for each who is known (FR-AGC-001, FR-AGC-004)."""

import asyncio
import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from a2a.types import AgentCapabilities, SecurityScheme
from apcore_a2a_core import EXTENSION_URI, AgentCardBuilder, Identity, SkillMapper, card_to_dict

from .access import Access, Verdict
from .skills import Skills

FRESH = 10
"""Seconds after which the executor's rules are asked again what strangers may call."""
MAX_KEPT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What the cards say of the agent as a whole.

    Attributes:
        name: Its name; "" for a common one.
        description: What it does; "" for the number of its skills.
        version: Its version.
        capabilities: What it can.
        state_history: Whether its tasks remember their former states.
        authenticates: Whether clients are authenticated.
        security_schemes: How.
        security: The members of a card that tell so to clients of both versions.
    """

    name: str = ""
    description: str = ""
    version: str = ""
    capabilities: AgentCapabilities = field(default_factory=AgentCapabilities)
    state_history: bool = False
    authenticates: bool = False
    security_schemes: Mapping[str, SecurityScheme] = field(default_factory=dict[str, Any])
    security: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Card(NamedTuple):
    """A card as a JSON value, as bytes, and the entity tag of these (RFC 9110 §8.8.3)."""

    document: dict[str, Any]
    body: bytes
    etag: str


class Key(NamedTuple):
    """What a card depends on: the registry as it is, the agent's address, and what is shown."""

    generation: int
    url: str
    visible: frozenset[str]


class Cards:
    """Cards of the registry as it is now, each made once for all who may call the same skills.

    Args:
        skills: The modules.
        access: Who may call what.
        profile: What the cards say of the agent as a whole.
        url: The address of the first card, which is made at once.
    """

    def __init__(self, skills: Skills, access: Access, profile: Profile, url: str) -> None:
        self._skills = skills
        self._access = access
        self._profile = profile
        self._builder = AgentCardBuilder(SkillMapper())
        self._making = asyncio.Lock()
        self._kept: dict[Key, Card] = {}
        self._asking = asyncio.Lock()
        self._public: tuple[int, float, frozenset[str]] = (-1, 0, frozenset())
        self._make(Key(skills.generation, url, frozenset(skills.list())))

    async def public(self, url: str) -> Card:
        """The card for strangers: the skills that they may call.

        Where clients are authenticated, those that need approval are not among them.
        """
        return await self._card(url, await self._for_strangers())

    async def extended(self, identity: Identity | None, url: str) -> Card:
        """The card for *identity*: the skills that it may call."""
        verdicts = await self._access.verdicts(self._skills.list(), identity)
        allowed = frozenset(skill_id for skill_id in verdicts if verdicts[skill_id].allowed)
        return await self._card(url, allowed)

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
        if not self._profile.authenticates:
            return verdict.allowed
        guarded = verdict.needs_approval or self._skills.needs_approval(skill_id)
        return verdict.allowed and not guarded

    async def _card(self, url: str, visible: frozenset[str]) -> Card:
        """The card of these skills; made in a thread, by the first who needs it."""
        key = Key(self._skills.generation, url, visible)
        if key not in self._kept:
            async with self._making:
                if key not in self._kept:
                    await asyncio.to_thread(self._make, key)
        return self._kept[key]

    def _make(self, key: Key) -> None:
        profile = self._profile
        card = self._builder.build(
            self._skills,
            name=profile.name,
            description=profile.description,
            version=profile.version,
            url=key.url,
            capabilities=profile.capabilities,
            security_schemes=profile.security_schemes,
            visible=key.visible.__contains__,
        )
        document = card_to_dict(card, state_transition_history=profile.state_history)
        document |= profile.security
        revision = hashlib.sha256(_json(document)).hexdigest()[:32]
        for extension in document["capabilities"]["extensions"]:
            if extension["uri"] == EXTENSION_URI:  # FR-AGC-005.4
                extension["params"]["revision"] = revision
        if len(self._kept) >= MAX_KEPT:
            self._kept.clear()
        self._kept[key] = Card(document, _json(document), f'"{revision}"')


def _json(document: object) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
