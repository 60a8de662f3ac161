"""HTTP+JSON of A2A 0.3 below /v1, with hand-written requests; tests/e2e uses the SDKs."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from apcore_a2a_server import create_app
from apcore_a2a_server.fields import OptionError
from apcore_a2a_server.push import PushSettings

from .checking_client import Json, check_no_leaks
from .inloop import ActionModule, Gate, Peer, StreamModule, echo, registry_of, serving
from .inloop import anyio_backend as anyio_backend

pytestmark = pytest.mark.anyio

MESSAGE = {"messageId": "m1", "role": "ROLE_USER", "content": [{"data": {"data": {"n": 1}}}]}
WAIT = {"configuration": {"blocking": True}}


async def count_to_three(inputs: Any, context: Any) -> AsyncIterator[Json]:
    for number in range(3):
        yield {"n": number}


@pytest.fixture
async def gate(anyio_backend: Any) -> Gate:
    return Gate()


@pytest.fixture
async def peer(gate: Gate) -> AsyncIterator[Peer]:
    modules = {
        "work": ActionModule(echo),
        "wait": ActionModule(gate),
        "count": StreamModule(count_to_three),
    }
    async with serving(modules, push_notifications=PushSettings(dev=True)) as peer:
        yield peer


def send_body(skill: str = "work", **members: Any) -> Json:
    return {"message": {**MESSAGE, **members}, "metadata": {"skillId": skill}, **WAIT}


async def send(peer: Peer, skill: str = "work", **members: Any) -> Json:
    response = await peer.client.post("/v1/message:send", json=send_body(skill, **members))
    task: Json = response.raise_for_status().json()["task"]
    return task


async def error_of(response: httpx.Response) -> Json:
    await response.aread()
    check_no_leaks(response.text)
    assert response.headers["content-type"] == "application/json"
    error: Json = response.json()
    assert not response.is_success
    return error


def events_of(text: str) -> list[tuple[int, Json]]:
    """Return the id and the data of each server-sent event."""
    events = [dict(line.split(": ", 1) for line in block.split("\n")) for block in _blocks(text)]
    return [(int(event["id"]), json.loads(event["data"])) for event in events]


def _blocks(text: str) -> list[str]:
    return [block for block in text.split("\n\n") if block]


@pytest.mark.parametrize("version", [None, "0.3", "1.0", "9.9"])
async def test_requests_below_v1_are_of_0_3_for_any_version_header(
    peer: Peer, version: str | None
) -> None:
    headers = {} if version is None else {"A2A-Version": version}
    response = await peer.client.post("/v1/message:send", json=send_body(), headers=headers)

    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    task = response.json()["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert task["artifacts"][0]["parts"] == [{"data": {"data": {"n": 1}}}]
    assert task["history"][0]["content"] == MESSAGE["content"]
    read_back = await peer.client.get(f"/v1/tasks/{task['id']}", headers=headers)
    assert read_back.json() == task


async def test_the_json_shown_in_the_specification_is_accepted_too(peer: Peer) -> None:
    part = {"kind": "data", "data": {"n": 2**53}}
    message = {"kind": "message", "messageId": "m", "role": "user", "parts": [part]}
    body = {"message": message, "metadata": {"skillId": "work"}}
    response = await peer.client.post("/v1/message:send", json=body)

    (result_part,) = response.json()["task"]["artifacts"][0]["parts"]
    assert result_part == {"data": {"data": {"n": 2**53}}}


async def test_without_blocking_the_task_is_returned_at_once(peer: Peer, gate: Gate) -> None:
    body = {**send_body("wait"), "configuration": {}}
    task = (await peer.client.post("/v1/message:send", json=body)).json()["task"]
    assert task["status"]["state"] in {"TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"}
    canceled = await peer.client.post(f"/v1/tasks/{task['id']}:cancel", json={"name": "tasks/x"})
    assert canceled.json()["status"]["state"] == "TASK_STATE_CANCELLED"
    error = await error_of(await peer.client.post(f"/v1/tasks/{task['id']}:cancel"))
    assert (error["code"], error["type"]) == (-32002, "TaskNotCancelableError")


async def test_a_stream_has_the_events_with_their_versions(peer: Peer) -> None:
    response = await peer.client.post("/v1/message:stream", json=send_body("count"))
    assert response.headers["content-type"].startswith("text/event-stream")
    events = events_of(response.text)
    assert [version for version, _ in events] == [*range(1, len(events) + 1)]
    kinds = [next(iter(event)) for _, event in events]
    assert kinds == ["task", "statusUpdate", *["artifactUpdate"] * 3, "statusUpdate"]
    assert events[-1][1]["statusUpdate"]["final"] is True
    assert events[1][1]["statusUpdate"]["final"] is False


@pytest.mark.parametrize("verb", ["GET", "POST"])
async def test_a_subscription_may_use_either_verb(peer: Peer, gate: Gate, verb: str) -> None:
    body = {**send_body("wait"), "configuration": {}}
    task = (await peer.client.post("/v1/message:send", json=body)).json()["task"]
    await gate.reached.wait()
    path = f"/v1/tasks/{task['id']}:subscribe"
    async with peer.client.stream(verb, path) as response:
        lines = response.aiter_lines()
        text = "".join([f"{await anext(lines)}\n" for _ in range(3)])
        gate.opened.set()
        text += "".join([f"{line}\n" async for line in lines])
    (_, first), *_, (_, last) = events_of(text)
    assert first["task"]["id"] == task["id"]
    assert last["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    resumed = await peer.client.request(verb, path, headers={"Last-Event-ID": "1"})
    assert events_of(resumed.text)[0][0] == 2


async def test_tasks_are_listed(peer: Peer) -> None:
    task_ids = [(await send(peer, contextId="c1"))["id"] for _ in range(3)]
    first_page = (await peer.client.get("/v1/tasks", params={"contextId": "c1", "limit": 2})).json()
    last_page = await peer.client.get("/v1/tasks", params={"cursor": first_page["nextCursor"]})
    listed = [task["id"] for task in [*first_page["tasks"], *last_page.json()["tasks"]]]
    assert listed == task_ids[::-1]


async def test_push_configs_are_set_shown_listed_and_deleted(peer: Peer) -> None:
    task_id = (await send(peer))["id"]
    path = f"/v1/tasks/{task_id}/pushNotificationConfigs"
    hook = {"url": "http://127.0.0.1:9/", "token": "t", "id": "h"}
    body = {"name": f"tasks/{task_id}/x", "pushNotificationConfig": hook}
    expected = {
        "name": f"tasks/{task_id}/pushNotificationConfigs/h",
        "pushNotificationConfig": hook,
    }

    assert (await peer.client.post(path, json=body)).json() == expected
    assert (await peer.client.get(f"{path}/h")).json() == expected
    assert (await peer.client.get(path)).json() == {"configs": [expected]}
    deleted = await peer.client.delete(f"{path}/h")
    assert (deleted.status_code, deleted.json()) == (200, {})
    missing = await peer.client.get(f"{path}/h")
    assert (missing.status_code, missing.json()["code"]) == (404, -32001)


async def test_the_path_determines_the_task(peer: Peer) -> None:
    task_id, other_id = (await send(peer))["id"], (await send(peer))["id"]
    for prefix in ("", "/v1"):
        other_ids = {"id": other_id, "taskId": other_id, "task_id": other_id}
        read_back = await peer.client.get(f"{prefix}/tasks/{task_id}", params=other_ids)
        assert read_back.json()["id"] == task_id
    path = f"/v1/tasks/{task_id}/pushNotificationConfigs"
    hook = {"taskId": other_id, "pushNotificationConfig": {"url": "http://127.0.0.1:9/"}}
    assert (await peer.client.post(path, json=hook)).json()["name"].startswith(f"tasks/{task_id}/")


@pytest.mark.parametrize(
    ("verb", "path", "body", "status", "code"),
    [
        ("POST", "/v1/message:send", b"{", 400, -32700),
        ("POST", "/v1/message:send", b"[]", 400, -32602),
        ("POST", "/v1/message:send", b"{}", 400, -32602),
        ("POST", "/v1/message:send", send_body("no.such"), 404, -32601),
        ("POST", "/v1/message:stream", send_body("no.such"), 404, -32601),
        ("POST", "/v1/message:send", send_body(messageId=""), 400, -32602),
        ("POST", "/v1/message:send", send_body(taskId="none"), 404, -32001),
        ("POST", "/v1/message:send", b"[" * 100_000, 413, -32600),
        ("GET", "/v1/tasks/none", None, 404, -32001),
        ("GET", "/v1/tasks/none:subscribe", None, 404, -32001),
        ("POST", "/v1/tasks/none:cancel", None, 404, -32001),
        ("GET", "/v1/tasks/none/pushNotificationConfigs", None, 404, -32001),
        ("GET", "/v1/card", None, 404, -32007),
        ("GET", "/v1/nothing", None, 404, -32601),
        ("GET", "/v1/message:send", None, 405, -32601),
        ("GET", "/v1/", None, 404, -32601),
        ("POST", "/v1/v1/message:send", send_body(), 404, -32601),
    ],
)
async def test_errors_have_the_codes_that_the_sdks_read(
    peer: Peer, verb: str, path: str, body: Any, status: int, code: int
) -> None:
    content = body if isinstance(body, bytes | None) else json.dumps(body)
    headers = {"Content-Type": "application/json"}
    response = await peer.client.request(verb, path, content=content, headers=headers)
    error = await error_of(response)
    assert (response.status_code, error["code"]) == (status, code)
    assert error["message"]


async def test_the_error_for_a_missing_extended_card_has_its_name_of_0_3(peer: Peer) -> None:
    response = await peer.client.get("/v1/card")
    assert response.json()["type"] == "AuthenticatedExtendedCardNotConfiguredError"


async def test_other_media_types_and_messages_to_a_finished_task_are_refused(
    peer: Peer,
) -> None:
    task_id = (await send(peer))["id"]
    refused = await peer.client.post("/v1/message:send", json=send_body(taskId=task_id))
    assert (refused.status_code, refused.json()["type"]) == (501, "UnsupportedOperationError")
    headers = {"Content-Type": "text/plain"}
    text = await peer.client.post("/v1/message:send", content=b"{}", headers=headers)
    assert (text.status_code, text.json()["code"]) == (415, -32005)


async def test_v1_is_not_a_tenant(peer: Peer) -> None:
    for path in ("/v1/extendedAgentCard", "/v1/.well-known/agent-card.json", "/v1/"):
        assert (await peer.client.get(path)).status_code == 404


def test_the_explorer_cannot_be_below_v1() -> None:
    with pytest.raises(OptionError, match="explorer_path"):
        create_app(registry_of({"a": ActionModule(echo)}), explorer=True, explorer_path="/v1/page")
