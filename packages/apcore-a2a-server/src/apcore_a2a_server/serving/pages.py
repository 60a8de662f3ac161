"""The documents a server shows of itself: its Agent Card and its health."""

import asyncio
import hashlib
import json
import logging
import time
from typing import NamedTuple

from a2a.types import AgentCapabilities
from apcore_a2a_core import EXTENSION_URI, AgentCardBuilder, SkillMapper, card_to_dict
from apcore_a2a_modules import Skills
from apcore_a2a_store import Journal
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from .options import Settings

logger = logging.getLogger(__name__)

DEFAULT_URL = "http://localhost:8000"
PROBE_TIMEOUT = 0.8
"""Seconds that the task store has to answer in; the page itself has one (FR-OPS-001)."""


class Shown(NamedTuple):
    """A card as it is shown: of which generation of the registry, and under which path."""

    state: tuple[int, str]
    body: bytes
    headers: dict[str, str]


class CardPage:
    """The Agent Card, as bytes that are made once for each state of the registry.

    Args:
        skills: The modules.
        settings: What the card says of the agent.
        streaming: Whether the executor can stream.
    """

    def __init__(self, skills: Skills, settings: Settings, *, streaming: bool) -> None:
        self._skills = skills
        self._settings = settings
        self._capabilities = AgentCapabilities(streaming=streaming, push_notifications=False)
        self._builder = AgentCardBuilder(SkillMapper())
        self._making = asyncio.Lock()
        self._shown = self._make(skills.generation)

    async def show(self, request: Request) -> Response:
        """The card; 304 when the client has it already (RFC 9110 §13.1.2)."""
        path = "" if self._settings.url else str(request.scope.get("root_path", ""))
        shown = await self._current(path)
        known = request.headers.get("if-none-match", "")
        tags = [tag.strip().removeprefix("W/") for tag in known.split(",")]
        if known == "*" or shown.headers["etag"] in tags:
            return Response(status_code=304, headers=shown.headers)
        return Response(shown.body, media_type="application/json", headers=shown.headers)

    async def _current(self, root_path: str) -> "Shown":
        """The card of the registry as it is now; made in a thread, by the first who needs it."""
        if self._shown.state != (self._skills.generation, root_path):
            async with self._making:
                state = (self._skills.generation, root_path)
                if self._shown.state != state:
                    self._shown = await asyncio.to_thread(self._make, *state)
        return self._shown

    def _make(self, generation: int, root_path: str = "") -> "Shown":
        settings = self._settings
        card = self._builder.build(
            self._skills,
            name=settings.name or settings.project("name"),
            description=settings.description or settings.project("description"),
            version=settings.version or settings.project("version"),
            url=(settings.url or DEFAULT_URL + root_path).rstrip("/") + "/",
            capabilities=self._capabilities,
        )
        document = card_to_dict(card, state_transition_history=settings.state_history)
        revision = hashlib.sha256(_json(document)).hexdigest()[:32]
        for extension in document["capabilities"]["extensions"]:
            if extension["uri"] == EXTENSION_URI:  # FR-AGC-005.4
                extension["params"]["revision"] = revision
        headers = {"cache-control": "max-age=300", "etag": f'"{revision}"'}
        return Shown((generation, root_path), _json(document), headers)


def _json(document: object) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


class HealthPage:
    """Whether the server works (FR-OPS-001).

    Args:
        skills: The modules.
        journal: Where tasks live.
    """

    def __init__(self, skills: Skills, journal: Journal) -> None:
        self._skills = skills
        self._journal = journal
        self._started = time.monotonic()
        self.draining = False

    async def show(self, request: Request) -> Response:
        """`{"status", "module_count", "uptime_seconds"}`, or 503 and a fixed reason."""
        if self.draining:
            document = {"status": "draining", "reason": "The server is shutting down"}
            return JSONResponse(document, 503, {"connection": "close"})
        try:
            async with asyncio.timeout(PROBE_TIMEOUT):
                await self._journal.get("00000000-0000-0000-0000-000000000000")
        except Exception:  # a user's store may raise anything; what it says is for the log alone
            logger.exception("The task store does not answer")
            reason = "The task store does not answer"
            return JSONResponse({"status": "unhealthy", "reason": reason}, 503)
        uptime = round(time.monotonic() - self._started, 3)
        healthy = {"status": "healthy", "module_count": len(self._skills)}
        return JSONResponse({**healthy, "uptime_seconds": uptime})


async def no_extended_card(request: Request) -> Response:
    """There is no extended card without authentication (FR-AGC-004.6)."""
    return JSONResponse({"error": "Authentication is not configured"}, 404)
