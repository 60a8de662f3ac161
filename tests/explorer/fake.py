"""An agent that says what a test has it say, to the explorer's own page."""

import json
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from apcore_a2a_explorer import routes
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.server.asking import Json

SKILLS = "https://github.com/aipartnerup/apcore-a2a/extensions/skills/v1"

Reply = Callable[[Json], Any]
"""What answers a method's params: the result, or a whole HTTP response."""


NO_EVENTS = JSONResponse(
    {"jsonrpc": "2.0", "id": 1, "error": {"code": -32004, "message": "No events are kept"}}
)


class Fake:
    """An agent of nothing but answers.

    Attributes:
        card: Its card, or a whole HTTP response in the place of one.
        replies: What it answers, by method; an empty result to everything else.
        refuses: What it answers instead, if that is something.
        asked: The methods that it was asked for, and the requests.
    """

    def __init__(self, card: Any = None, **replies: Reply) -> None:
        self.card = card_of() if card is None else card
        self.replies = {"SubscribeToTask": lambda params: NO_EVENTS, **replies}
        self.refuses: Callable[[Request], Response | None] = lambda request: None
        self.asked: list[tuple[str, Request]] = []

    def app(self) -> Starlette:
        """The agent, with the page."""
        own = [
            Route("/.well-known/agent-card.json", self._show),
            Route("/", self._answer, methods=["POST"]),
        ]
        return Starlette(routes=[*own, *routes()])

    async def _show(self, request: Request) -> Response:
        return self.card if isinstance(self.card, Response) else exact(self.card)

    async def _answer(self, request: Request) -> Response:
        call = await request.json()
        self.asked.append((call["method"], request))
        refused = self.refuses(request)
        if refused is not None:
            return refused
        reply = self.replies.get(call["method"])
        result = reply(call["params"]) if reply else {}
        if isinstance(result, Response):
            return result
        return exact({"jsonrpc": "2.0", "id": call["id"], "result": result})


DEEP: dict[str, tuple[str, str]] = {
    "@deep": ('{"a": [' * 250, "]}" * 250),
    "@deep schema": ('{"properties": {"a": ' * 250, "}}" * 250),
}
"""What stands for 500 levels, which Python's json does not write."""


def encoded(value: Any) -> str:
    """*value* as JSON, whatever is in it: lone surrogates are escaped."""
    text = json.dumps(value)
    for name, (begin, end) in DEEP.items():
        text = text.replace(f'"{name}"', f"{begin}0{end}")
    return text


def exact(value: Any) -> Response:
    """*value* as the answer, whatever is in it."""
    return Response(encoded(value), media_type="application/json")


def stream_of(results: Iterable[Any]) -> Response:
    """The results as events of a stream."""

    async def events() -> AsyncIterator[str]:
        for count, result in enumerate(results, 1):
            yield event_of(count, result)

    return StreamingResponse(events(), media_type="text/event-stream")


def event_of(count: int, result: Any) -> str:
    """An event of a stream, with its id."""
    answer = {"jsonrpc": "2.0", "id": 1, "result": result}
    return f"id: {count}\ndata: {encoded(answer)}\n\n"


def refusal(status: int, **headers: str) -> Response:
    """An HTTP error."""
    error = {"error": {"code": status, "message": f"Refused with {status}"}}
    return JSONResponse(error, status, headers)


def skill_of(name: str = "work", /, **members: Any) -> Json:
    """A skill on a card."""
    skill = {"id": name, "name": name.title(), "description": "Does it", "tags": ["test"]}
    return {**skill, **members}


def card_of(
    *skills: Json, details: Json | None = None, capabilities: Json | None = None, **members: Any
) -> Json:
    """A card with skills, and what the extension says of them."""
    extension = {"uri": SKILLS, "params": {"skills": details or {}}}
    able = {"streaming": True, "pushNotifications": True, "extensions": [extension]}
    return {
        "name": "Fake",
        "description": "No agent",
        "version": "1",
        "defaultInputModes": ["application/json", "text/plain"],
        "defaultOutputModes": ["application/json"],
        "skills": list(skills) or [skill_of()],
        "capabilities": {**able, **(capabilities or {})},
        **members,
    }


def task_of(state: str = "COMPLETED", **members: Any) -> Json:
    """A task, as 1.0 has it."""
    status = {"state": f"TASK_STATE_{state}", "timestamp": "2026-01-01T00:00:00Z"}
    task = {"id": "task-1", "contextId": "context-1", "metadata": {"skillId": "work"}}
    return {**task, "status": status, "artifacts": [], "history": [], **members}
