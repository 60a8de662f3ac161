"""Streams without event ids that repeat a chunk of their snapshot."""

import json
from collections.abc import AsyncIterator
from typing import Any

from apcore_a2a_client import SyncA2AClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.serving import running

Json = dict[str, Any]


def task(state: str, chunks: str) -> Json:
    parts = [{"text": chunk} for chunk in chunks]
    artifacts = [{"artifactId": "a", "parts": parts}] if parts else []
    status = {"state": f"TASK_STATE_{state}"}
    return {"id": "t", "contextId": "c", "status": status, "artifacts": artifacts}


async def events() -> AsyncIterator[str]:
    artifact = {"artifactId": "a", "parts": [{"text": "3"}]}
    ids = {"taskId": "t", "contextId": "c"}
    for event in (
        {"task": task("WORKING", "123")},
        {"artifactUpdate": {**ids, "artifact": artifact, "append": True}},
        {"statusUpdate": {**ids, "status": {"state": "TASK_STATE_COMPLETED"}}},
    ):
        yield f"data: {json.dumps({'jsonrpc': '2.0', 'id': 1, 'result': event})}\n\n"


def agent(*, forgets: bool) -> Starlette:
    async def answer(request: Request) -> Response:
        call = await request.json()
        reply: Json = {"jsonrpc": "2.0", "id": call["id"]}
        if call["method"] == "SubscribeToTask":
            return StreamingResponse(events(), media_type="text/event-stream")
        if call["method"] == "SendMessage":
            return JSONResponse({**reply, "result": {"task": task("WORKING", "")}})
        error = {"code": -32001, "message": "Task not found"}
        outcome = {"error": error} if forgets else {"result": task("COMPLETED", "123")}
        return JSONResponse({**reply, **outcome})

    return Starlette(routes=[Route("/", answer, methods=["POST"])])


def test_a_chunk_in_both_snapshot_and_stream_counts_once() -> None:
    with running(agent(forgets=False)) as url, SyncA2AClient(url, protocol="1.0") as client:
        assert client.call("count", "3") == "123"


def test_a_repeated_chunk_is_kept_if_the_agent_has_forgotten_the_task() -> None:
    with running(agent(forgets=True)) as url, SyncA2AClient(url, protocol="1.0") as client:
        assert client.call("count", "3") == "1233"
