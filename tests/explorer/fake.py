"""An agent whose responses the test chooses, served with the explorer's page."""

import json
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from apcore_a2a_explorer import routes
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.server.checking_client import Json

SKILLS = "https://github.com/aipartnerup/apcore-a2a/extensions/skills/v1"

Reply = Callable[[Json], Any]
"""Function of a method's params that returns its result, or a whole HTTP response."""


NO_EVENTS = JSONResponse(
    {"jsonrpc": "2.0", "id": 1, "error": {"code": -32004, "message": "No events are kept"}}
)


class FakeAgent:
    """An agent with prepared responses.

    Attributes:
        card: Its card, or a whole HTTP response instead.
        replies: The reply to each method; any other method gets an empty result.
        refuses: Function of a request that returns a refusal, or None to accept it.
        received: The methods that were called, each with its request.
    """

    def __init__(self, card: Any = None, **replies: Reply) -> None:
        self.card = card_of() if card is None else card
        self.replies = {"SubscribeToTask": lambda params: NO_EVENTS, **replies}
        self.refuses: Callable[[Request], Response | None] = lambda request: None
        self.received: list[tuple[str, Request]] = []

    def app(self) -> Starlette:
        """Return the agent's application, with the explorer's page."""
        agent_routes = [
            Route("/.well-known/agent-card.json", self._serve_card),
            Route("/", self._answer, methods=["POST"]),
        ]
        return Starlette(routes=[*agent_routes, *routes()])

    async def _serve_card(self, request: Request) -> Response:
        return self.card if isinstance(self.card, Response) else json_response(self.card)

    async def _answer(self, request: Request) -> Response:
        call = await request.json()
        self.received.append((call["method"], request))
        refused = self.refuses(request)
        if refused is not None:
            return refused
        reply = self.replies.get(call["method"])
        result = reply(call["params"]) if reply else {}
        if isinstance(result, Response):
            return result
        return json_response({"jsonrpc": "2.0", "id": call["id"], "result": result})


DEEP: dict[str, tuple[str, str]] = {
    "@deep": ('{"a": [' * 250, "]}" * 250),
    "@deep schema": ('{"properties": {"a": ' * 250, "}}" * 250),
}
"""Placeholders for values nested 500 levels deep, and how their JSON begins and ends."""


def encoded(value: Any) -> str:
    """Return *value* as JSON; lone surrogates are escaped, placeholders filled in."""
    text = json.dumps(value)
    for name, (begin, end) in DEEP.items():
        text = text.replace(f'"{name}"', f"{begin}0{end}")
    return text


def json_response(value: Any) -> Response:
    """Return a response with *value* as JSON."""
    return Response(encoded(value), media_type="application/json")


def stream_of(results: Iterable[Any]) -> Response:
    """Return a stream with an event for each result."""

    async def events() -> AsyncIterator[str]:
        for number, result in enumerate(results, 1):
            yield event_of(number, result)

    return StreamingResponse(events(), media_type="text/event-stream")


def event_of(number: int, result: Any) -> str:
    """Return an event of a stream, with its id."""
    answer = {"jsonrpc": "2.0", "id": 1, "result": result}
    return f"id: {number}\ndata: {encoded(answer)}\n\n"


def refusal(status: int, **headers: str) -> Response:
    """Return an HTTP error."""
    error = {"error": {"code": status, "message": f"Refused with {status}"}}
    return JSONResponse(error, status, headers)


def skill_of(name: str = "work", /, **members: Any) -> Json:
    """Return a skill as a card lists it."""
    skill = {"id": name, "name": name.title(), "description": "Does it", "tags": ["test"]}
    return {**skill, **members}


def card_of(
    *skills: Json, details: Json | None = None, capabilities: Json | None = None, **members: Any
) -> Json:
    """Return a card with skills, and their details in the skills extension."""
    extension = {"uri": SKILLS, "params": {"skills": details or {}}}
    defaults = {"streaming": True, "pushNotifications": True, "extensions": [extension]}
    return {
        "name": "Fake",
        "description": "No agent",
        "version": "1",
        "defaultInputModes": ["application/json", "text/plain"],
        "defaultOutputModes": ["application/json"],
        "skills": list(skills) or [skill_of()],
        "capabilities": {**defaults, **(capabilities or {})},
        **members,
    }


def task_of(state: str = "COMPLETED", **members: Any) -> Json:
    """Return a task of A2A 1.0."""
    status = {"state": f"TASK_STATE_{state}", "timestamp": "2026-01-01T00:00:00Z"}
    task = {"id": "task-1", "contextId": "context-1", "metadata": {"skillId": "work"}}
    return {**task, "status": status, "artifacts": [], "history": [], **members}
