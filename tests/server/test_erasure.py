"""Operators delete all tasks of a principal, with everything that belongs to these tasks."""

import asyncio
import logging
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from a2a.server.tasks import InMemoryTaskStore as SdkStore
from apcore_a2a_core.values import is_object
from apcore_a2a_server.push import PushSettings
from apcore_a2a_server.store import InMemoryTaskStore

from .checking_client import Json
from .inloop import NEEDS_APPROVAL, ActionModule, Gate, Peer, echo, serving
from .inloop import anyio_backend as anyio_backend
from .principals import HeaderAuth
from .test_custom_stores import DictStore
from .test_operators import ADA, BOB, OP, audited_operations, by, keys, send_as

pytestmark = pytest.mark.anyio

RULES: Json = {"operators": "operator"}
HOOK = {"url": "http://127.0.0.1:9/ada"}


def modules(gate: Gate) -> dict[str, object]:
    async def recall(inputs: Any, context: Any) -> Any:
        return {"earlier": len(context.services.history)}

    return {
        "work": ActionModule(echo),
        "recall": ActionModule(recall),
        "wait": ActionModule(gate),
        "pay": ActionModule(echo, annotations=NEEDS_APPROVAL),
    }


async def delete(peer: Peer, principal: str, headers: Json) -> Any:
    path = f"/apcore/principals/{quote(principal, safe='')}/tasks"
    return await peer.client.delete(path, headers=headers)


async def listed(peer: Peer, headers: Json) -> list[Json]:
    tasks: list[Json] = (await peer.ask("list", {}, headers)).result["tasks"]
    return tasks


@pytest.mark.parametrize("kind", ["memory", "sqlite", "a user's", "the SDK's"])
async def test_deleting_the_tasks_of_a_principal_leaves_nothing_of_them(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stores = {
        "memory": "memory",
        "sqlite": f"sqlite:///{tmp_path}/agent.db",
        "a user's": DictStore(),
        "the SDK's": SdkStore(),
    }
    gate = Gate()
    push = PushSettings(dev=True, retries=(600,))
    options: Json = {"task_store": stores[kind], "push_notifications": push}
    async with serving(modules(gate), auth=keys(), tenants="skills", **RULES, **options) as peer:
        key = {"Idempotency-Key": "k"}
        first = (await send_as(peer, "work", {**ADA, **key}, contextId="c")).task
        paused = (await send_as(peer, "pay", ADA)).task
        params = {**peer.wire.params("wait"), "configuration": {"returnImmediately": True}}
        running = (await peer.ask("send", params, by(ADA))).task
        await gate.reached.wait()
        in_tenant = await peer.client.post(
            "/work/message:send",
            json={"message": peer.wire.params("work", peer.part(text="hi"))["message"]},
            headers={**ADA, "a2a-version": "1.0"},
        )
        assert in_tenant.status_code == 200
        await peer.ask("push set", {"taskId": paused["id"], **HOOK}, by(ADA))
        bobs_task = (await send_as(peer, "work", BOB)).task
        with caplog.at_level(logging.INFO, "apcore_a2a.audit"):
            response = await delete(peer, "apikey|ada", OP)

        assert (response.status_code, response.json()) == (200, {"deleted": 4})
        assert audited_operations(caplog)[0] == ("DeleteTasks", "apikey|op", "apikey|ada")
        await asyncio.wait_for(gate.canceled.wait(), 60)
        for task in (first, paused, running):
            assert (await peer.ask("get", {"id": task["id"]}, by(ADA))).code == -32001
            assert not await peer.agent.setup.tasks.store.webhooks(task["id"])
        assert await listed(peer, by(ADA)) == []
        assert [task["id"] for task in await listed(peer, by(BOB))] == [bobs_task["id"]]
        repeated = (await send_as(peer, "work", {**ADA, **key}, contextId="c")).task
        assert repeated["id"] != first["id"]
        recalled = await send_as(peer, "recall", ADA, contextId="c")
        (part,) = recalled.task["artifacts"][0]["parts"]
        assert is_object(part["data"])
        assert part["data"]["earlier"] == 1  # the message after the deletion
        assert (await delete(peer, "apikey|ada", OP)).json() == {"deleted": 2}
        assert (await delete(peer, "apikey|ada", OP)).json() == {"deleted": 0}


async def test_a_principal_may_contain_slashes_and_colons() -> None:
    issuer = "https://one.example.com"
    headers = {"x-name": "ada", "x-issuer": issuer}
    options: Json = {"auth": HeaderAuth(), "operators": lambda identity: identity.id == "op"}
    async with serving(modules(Gate()), **options) as peer:
        await send_as(peer, "work", headers)
        operator = {"x-name": "op"}
        assert (await delete(peer, "ada", operator)).json() == {"deleted": 0}
        assert (await delete(peer, f"|{issuer}|ada", operator)).json() == {"deleted": 1}


async def test_only_operators_delete_tasks() -> None:
    async with serving(modules(Gate()), auth=keys(), **RULES) as peer:
        await send_as(peer, "work", ADA)
        for headers, status in ((ADA, 403), (BOB, 403), ({}, 401)):
            assert (await delete(peer, "apikey|ada", headers)).status_code == status
        wrong = await peer.client.post("/apcore/principals/apikey%7Cada/tasks", headers=OP)
        assert (wrong.status_code, wrong.headers["allow"]) == (405, "DELETE")
        assert len(await listed(peer, by(ADA))) == 1


async def test_a_page_of_another_origin_cannot_delete_tasks() -> None:
    async with serving(modules(Gate()), auth=keys(), **RULES) as peer:
        response = await delete(peer, "apikey|ada", {**OP, "origin": "https://evil.example"})
    assert response.status_code == 403


async def test_deletion_is_not_implemented_if_the_store_cannot_delete() -> None:
    class UndeletingStore(InMemoryTaskStore):
        async def delete_ended(self, owner: str) -> Any:
            return None

    async with serving(modules(Gate()), auth=keys(), task_store=UndeletingStore(), **RULES) as peer:
        response = await delete(peer, "apikey|ada", OP)
    assert (response.status_code, response.json()["error"]["code"]) == (501, "NOT_IMPLEMENTED")


async def test_the_stream_of_a_deleted_task_ends_with_its_cancellation() -> None:
    gate = Gate()
    async with serving(modules(gate), auth=keys(), **RULES) as peer:
        params = peer.wire.params("wait", peer.part(data={}))
        async with peer.streaming("stream", params, by(ADA)) as stream:
            await stream.next()
            await gate.reached.wait()
            response = await delete(peer, "apikey|ada", OP)
            frames = await stream.rest()
    assert response.json() == {"deleted": 1}
    assert frames[-1].state == "canceled"


async def test_tasks_of_the_anonymous_principal_cannot_be_deleted_over_http() -> None:
    async with serving(modules(Gate())) as peer:
        await peer.send("work", peer.part(text="hi"))
        assert (await peer.client.delete("/apcore/principals//tasks")).status_code == 404
