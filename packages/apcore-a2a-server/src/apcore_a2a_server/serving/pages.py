"""The documents a server shows of itself: its Agent Card and its health."""

import asyncio
import hashlib
import logging
import time
from typing import Any

from a2a.types import AgentCapabilities
from apcore_a2a_core import AgentCardBuilder, SkillMapper, card_to_dict
from starlette.types import Receive, Scope, Send

from apcore_a2a_server.http import dump, headers_of, respond
from apcore_a2a_server.modules.skills import Skills
from apcore_a2a_server.stores.journal import Journal

from .options import Settings

logger = logging.getLogger("apcore_a2a.health")

DEFAULT_URL = "http://localhost:8000"
PROBE_TIMEOUT = 1
"""Seconds that the task store has to answer in (FR-OPS-001)."""


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
        self._generation = -1
        self._body = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._refresh()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer GET and HEAD; 304 when the client has it already (RFC 9110 §13.1.2)."""
        if scope["method"] not in ("GET", "HEAD"):
            await respond(
                send, {"error": "Use GET"}, status=405, headers=[(b"allow", b"GET, HEAD")]
            )
            return
        if self._generation != self._skills.generation:
            self._refresh()
        known = headers_of(scope).get("if-none-match", "")
        if known == "*" or self._etag in [
            tag.strip().removeprefix("W/") for tag in known.split(",")
        ]:
            await send({"type": "http.response.start", "status": 304, "headers": self._headers})
            await send({"type": "http.response.body", "body": b""})
            return
        body = self._body if scope["method"] == "GET" else b""
        length = str(len(self._body)).encode()
        headers = [
            *self._headers,
            (b"content-type", b"application/json"),
            (b"content-length", length),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _refresh(self) -> None:
        self._generation = self._skills.generation
        settings = self._settings
        card = self._builder.build(
            self._skills.catalog,
            name=settings.name or settings.project("name"),
            description=settings.description or settings.project("description"),
            version=settings.version or settings.project("version"),
            url=(settings.url or DEFAULT_URL).rstrip("/") + "/",
            capabilities=self._capabilities,
        )
        document = card_to_dict(card, state_transition_history=settings.state_history)
        self._body = dump(document)
        self._etag = f'"{hashlib.sha256(self._body).hexdigest()[:32]}"'
        self._headers = [(b"cache-control", b"max-age=300"), (b"etag", self._etag.encode())]


class HealthPage:
    """Whether the server works: `{"status", "module_count", "uptime_seconds"}` (FR-OPS-001).

    Args:
        skills: The modules.
        journal: Where tasks live.
    """

    def __init__(self, skills: Skills, journal: Journal) -> None:
        self._skills = skills
        self._journal = journal
        self._started = time.monotonic()
        self.draining = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer GET and HEAD with 200, or 503 and a fixed reason."""
        reason = "draining" if self.draining else await self._trouble()
        if reason is None:
            document: dict[str, Any] = {
                "status": "healthy",
                "module_count": len(self._skills),
                "uptime_seconds": round(time.monotonic() - self._started, 3),
            }
            await respond(send, document, headers=[(b"cache-control", b"no-store")])
        else:
            status = "draining" if self.draining else "unhealthy"
            await respond(send, {"status": status, "reason": reason}, status=503)

    async def _trouble(self) -> str | None:
        try:
            async with asyncio.timeout(PROBE_TIMEOUT):
                await self._journal.get("00000000-0000-0000-0000-000000000000")
        except Exception:  # a user's store may raise anything; what it says is for the log alone
            logger.exception("The task store does not answer")
            return "The task store does not answer"
        return None


async def no_extended_card(scope: Scope, receive: Receive, send: Send) -> None:
    """There is no extended card without authentication (FR-AGC-004.6)."""
    await respond(send, {"error": "Authentication is not configured"}, status=404)
