"""A server with the interface of n8n's webhooks, since n8n itself takes 1.6 GB.

Its workflows are functions. As in n8n, a workflow continues after its caller has disconnected.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from email import message_from_bytes
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from .acceptance import Script

Workflow = Callable[[dict[str, Any], Request], Awaitable[Response]]


class Hooks:
    """Server of workflows, each named by the last segment of its webhook's path.

    Attributes:
        bodies: The bodies that the workflows got, in order.
        headers: The headers of the requests, in order.
        files: The files that the workflows got: name, content and media type.
    """

    def __init__(self, **workflows: Workflow) -> None:
        self.workflows = workflows
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.files: list[tuple[str | None, bytes, str | None]] = []
        path, resume_path = "/webhook/{name}", "/webhook-waiting/{name}"
        routes = [Route(route, self._answer, methods=["POST"]) for route in (path, resume_path)]
        self.app = Starlette(routes=routes)

    async def _answer(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self.workflows:
            message = f'The requested webhook "POST {name}" is not registered.'
            return JSONResponse({"code": 404, "message": message}, 404)
        if request.headers["content-type"].startswith("multipart/"):
            body = self._form(request.headers["content-type"], await request.body())
        else:
            body = await request.json()
        self.bodies.append(body)
        self.headers.append(dict(request.headers))
        return await self.workflows[name](body, request)

    def _form(self, content_type: str, content: bytes) -> dict[str, Any]:
        """Return the fields of a form, and keep its files."""
        form = message_from_bytes(f"Content-Type: {content_type}\n\n".encode() + content)
        fields: dict[str, Any] = {}
        for part in form.walk():
            name = part.get_param("name", header="content-disposition")
            value: Any = part.get_payload(decode=True)
            if part.get_filename():
                self.files.append((part.get_filename(), value, part.get_content_type()))
            elif name is not None:
                fields[str(name)] = value.decode()
        return fields


def event(kind: str, node: str = "AI Agent", content: Any = None) -> str:
    """Return a line of a streamed answer."""
    metadata = {"nodeId": "1", "nodeName": node, "itemIndex": 0, "runIndex": 0, "timestamp": 1}
    text = {} if content is None else {"content": content}
    line = {"type": kind, **text, "metadata": metadata}
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n"


def streamed(*lines: str) -> StreamingResponse:
    """Return a streamed answer with these lines."""
    return StreamingResponse(iter(lines), media_type="application/json; charset=utf-8")


class Talk:
    """A workflow with an AI Agent node, whose memory is keyed by the session."""

    def __init__(self, script: Script, *, streams: bool) -> None:
        self._script = script
        self._streams = streams
        self._memory: dict[str, list[str]] = defaultdict(list)
        self._running: set[asyncio.Task[None]] = set()

    async def __call__(self, body: dict[str, Any], request: Request) -> Response:
        pieces: asyncio.Queue[str | Exception | None] = asyncio.Queue()
        run = asyncio.create_task(self._run(body, pieces))
        self._running.add(run)
        run.add_done_callback(self._running.discard)
        if self._streams:
            return StreamingResponse(self._lines(pieces), media_type="application/json")
        answer = ""
        while isinstance(piece := await pieces.get(), str):
            answer += piece
        if piece is not None:
            return JSONResponse({"message": f"Error in workflow: {piece}"}, 500)
        return JSONResponse([{"output": answer}])

    async def _run(
        self, body: dict[str, Any], pieces: asyncio.Queue[str | Exception | None]
    ) -> None:
        memory = self._memory[body["sessionId"]]
        memory.append(body["chatInput"])
        answer = ""
        try:
            async for piece in self._script.say(*memory):
                answer += piece
                pieces.put_nowait(piece)
        except RuntimeError as error:
            pieces.put_nowait(error)
        memory.append(answer)
        pieces.put_nowait(None)

    async def _lines(self, pieces: asyncio.Queue[str | Exception | None]) -> AsyncIterator[str]:
        yield event("begin")
        while isinstance(piece := await pieces.get(), str):
            yield event("item", content=piece)
        yield event("end") if piece is None else event("error", content=str(piece))
