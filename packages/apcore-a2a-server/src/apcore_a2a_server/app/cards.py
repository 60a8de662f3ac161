"""The Agent Cards as pages."""

from typing import Any

from a2a.types import AgentCapabilities
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from apcore_a2a_server.engine.clients import Caller
from apcore_a2a_server.middleware import caller_of
from apcore_a2a_server.middleware.auth import declared, for_both
from apcore_a2a_server.modules import Access, Cards, Profile, Skills

from .options import Settings

DEFAULT_URL = "http://localhost:8000"


class CardPages:
    """The Agent Card for strangers, and the one for who calls.

    Args:
        skills: The modules.
        access: Who may call what.
        settings: What the cards say of the agent.
    """

    def __init__(self, skills: Skills, access: Access, settings: Settings) -> None:
        self._url = settings.url
        self._extended = settings.auth is not None
        self._cards = Cards(skills, access, _profile(settings), self._address(""))

    async def show(self, request: Request) -> Response:
        """The card for strangers; 304 when the client has it already (RFC 9110 §13.1.2)."""
        card = await self._cards.public(self._address(request.scope.get("root_path", "")))
        headers = {"cache-control": "max-age=300", "etag": card.etag}
        known = request.headers.get("if-none-match", "")
        tags = [tag.strip().removeprefix("W/") for tag in known.split(",")]
        if known == "*" or card.etag in tags:
            return Response(status_code=304, headers=headers)
        return Response(card.body, media_type="application/json", headers=headers)

    async def show_extended(self, request: Request) -> Response:
        """The card for who calls (FR-AGC-004)."""
        if not self._extended:
            return JSONResponse({"error": "Authentication is not configured"}, 404)
        url = self._address(request.scope.get("root_path", ""))
        card = await self._cards.extended(caller_of(request.scope)[1], url)
        headers = {"cache-control": "private, no-store"}
        return Response(card.body, media_type="application/json", headers=headers)

    async def extended(self, caller: Caller) -> dict[str, Any]:
        """The same as a JSON value."""
        url = self._address(caller.root_path)
        return (await self._cards.extended(caller.identity, url)).document

    def _address(self, root_path: str) -> str:
        return (self._url or DEFAULT_URL + root_path).rstrip("/") + "/"


def _profile(settings: Settings) -> Profile:
    schemes = {} if settings.auth is None else declared(settings.auth)
    return Profile(
        name=settings.name or settings.project("name"),
        description=settings.description or settings.project("description"),
        version=settings.version or settings.project("version"),
        capabilities=AgentCapabilities(
            streaming=True,
            push_notifications=bool(settings.push_notifications),
            extended_agent_card=settings.auth is not None,
        ),
        state_history=settings.state_history,
        authenticates=settings.auth is not None,
        security_schemes=schemes,
        security=for_both(schemes) if schemes else {},
    )
