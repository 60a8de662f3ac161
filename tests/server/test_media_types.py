"""Parts of media types that a skill does not accept: -32005, and HTTP 400 in HTTP+JSON."""

from contextlib import closing
from typing import Any

import pytest
from apcore import ACL, Executor

from .inloop import DIALECTS, ActionModule, Peer, always, echo, registry_of, serving
from .inloop import anyio_backend as anyio_backend

pytestmark = [pytest.mark.anyio, pytest.mark.rotating("agent", "rpc", "dialect")]
every_dialect = pytest.mark.parametrize("dialect", DIALECTS)

CITY = {"type": "object", "properties": {"city": {"type": "string"}, "days": {}}}
MODULES = {"work": ActionModule(echo, input_schema=CITY), "other": always({})}


def file_part(peer: Peer) -> dict[str, Any]:
    if peer.wire.modern:
        return {"raw": "aGk=", "mediaType": "image/png"}
    return {"kind": "file", "file": {"bytes": "aGk=", "mimeType": "image/png"}}


def data_part(peer: Peer, media_type: str) -> dict[str, Any]:
    name = "mediaType" if peer.wire.modern else "mimeType"
    return {**peer.part(data={"city": "Oslo"}), name: media_type}


@every_dialect
async def test_a_file_for_a_skill_that_accepts_none_is_an_unsupported_content_type(
    dialect: str,
) -> None:
    async with serving(MODULES, dialect) as peer:
        for operation in ("send", "stream"):
            answer = await peer.ask(operation, peer.wire.params("work", file_part(peer)))
            assert answer.code == -32005
            assert "application/json" in answer.message
            assert answer.status == (400 if dialect == "REST" else 200)
        assert (await peer.ask("list")).result["tasks"] == []


@every_dialect
async def test_data_of_a_media_type_other_than_json_is_an_unsupported_content_type(
    dialect: str,
) -> None:
    async with serving(MODULES, dialect) as peer:
        assert (await peer.send("work", data_part(peer, "text/csv"))).code == -32005
        assert (await peer.send("work", data_part(peer, "application/geo+json"))).code is None


@every_dialect
async def test_the_first_part_that_the_skill_accepts_is_still_found(dialect: str) -> None:
    async with serving(MODULES, dialect) as peer:
        answer = await peer.send("work", file_part(peer), peer.part(data={"city": "Oslo"}))
        assert answer.data == {"city": "Oslo"}


@every_dialect
async def test_malformed_parts_are_still_invalid_params(dialect: str) -> None:
    async with serving(MODULES, dialect) as peer:
        assert (await peer.send("work", peer.part(text="no json"))).code == -32602
        assert (await peer.send("work", peer.part(data=[1]))).code == -32602


async def test_the_error_reveals_no_skill_that_the_caller_may_not_call() -> None:
    executor = Executor(registry_of(MODULES), acl=ACL([], default_effect="deny"))
    with closing(executor):
        async with serving(executor) as peer:
            assert (await peer.send("work", file_part(peer))).code == -32001
