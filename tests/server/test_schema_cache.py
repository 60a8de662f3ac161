"""Remembered JSON Schemas: they save time and change nothing else."""

from typing import Any

import pytest
from apcore import Registry
from apcore_a2a_server import Limits
from apcore_a2a_server.modules.schema_cache import CachedSchema, cache_schemas
from pydantic import BaseModel, Field, ValidationError

from .asking import Json
from .inloop import NEEDS_APPROVAL, WAYS, Does, Peer, Streams, contents, give_back, serving
from .inloop import anyio_backend as anyio_backend
from .modules import Inputs, Item, Order

pytestmark = pytest.mark.anyio


class Total(BaseModel):
    """What it comes to."""

    total: int = Field(ge=0)


async def sums(inputs: Inputs, context: Any) -> Inputs:
    return {"total": sum(item["count"] for item in inputs["items"])}


async def nonsense(inputs: Inputs, context: Any) -> Inputs:
    return {"total": "a lot"}


async def piecewise(inputs: Inputs, context: Any) -> Any:
    for item in inputs["items"]:
        yield {"total": item["count"]}


def modules() -> dict[str, object]:
    schemas = {"input_schema": Order, "output_schema": Total}
    return {
        "work": Does(sums, **schemas),
        "nonsense": Does(nonsense, **schemas),
        "stream": Streams(piecewise, **schemas),
        "pay": Does(sums, annotations=NEEDS_APPROVAL, **schemas),
        "plain": Does(give_back, input_schema={"type": "object", "required": ["a"]}),
    }


ORDER: Json = {"customer": {"text": "me"}, "items": [{"name": "x", "count": 2}]}
WRONG: list[Json] = [
    {},
    {"customer": {"text": "me"}, "items": "none"},
    {"customer": {"text": 5}, "items": [{"name": "x", "count": 0}, {"count": 1.5}]},
    {"customer": None, "items": [None], "more": 1},
]


def told(answer: Any) -> Any:
    """What an answer says, without ids and times."""
    if answer.error is not None:
        return answer.error
    status = answer.task["status"]
    said = [part.get("text") or part["data"] for part in status.get("message", {}).get("parts", [])]
    for part in said:
        if "approval" in part and not isinstance(part, str):
            del part["approval"]["id"], part["approval"]["expiresAt"]
    return answer.state, said, answer.task.get("artifacts")


async def answers(peer: Peer) -> list[Any]:
    found = []
    for skill in modules():
        for data in (ORDER, *WRONG, {"a": 1}):
            for _ in range(2):  # the second time with what is remembered from the first
                found.append(told(await peer.send(skill, peer.part(data=data))))
    async with peer.stream("stream", peer.part(data=ORDER)) as stream:
        found += [str(frame) for frame in await stream.rest()]
    found.append((await peer.client.get("/.well-known/agent-card.json")).json()["skills"])
    return found


@pytest.mark.parametrize("way", WAYS)
async def test_all_answers_are_the_same_with_and_without(way: str) -> None:
    async with serving(modules(), way, limits=Limits(schema_cache=True)) as peer:
        remembered = await answers(peer)
    async with serving(modules(), way, limits=Limits(schema_cache=False)) as peer:
        assert await answers(peer) == remembered


async def test_the_module_is_described_in_the_same_way_afterwards() -> None:
    registry = Registry()
    for name, module in modules().items():
        registry.register(name, module)
    before: dict[str, Any] = {name: registry.get_definition(name) for name in registry.list()}
    async with serving(registry) as peer:
        await answers(peer)
    for name, definition in before.items():
        found: Any = registry.get_definition(name)
        assert found.input_schema == definition.input_schema
        assert found.output_schema == definition.output_schema


async def test_the_schema_is_made_once() -> None:
    made = 0

    class Counted(Order):
        @classmethod
        def model_json_schema(cls, *args: Any, **options: Any) -> Any:
            nonlocal made
            made += 1
            return super().model_json_schema(*args, **options)

    async with serving({"work": Does(sums, input_schema=Counted)}) as peer:
        await peer.send("work", peer.part(data=ORDER))
        first = made
        for _ in range(5):
            assert contents((await peer.send("work", peer.part(data=ORDER))).task) == [{"total": 2}]
        assert made == first


async def test_the_users_class_is_left_alone() -> None:
    before = dict(vars(Order))

    class Module(Does):
        input_schema = Order

    async with serving({"work": Module(sums)}) as peer:
        await peer.send("work", peer.part(data=ORDER))
    assert Module.input_schema is Order
    assert dict(vars(Order)) == before


def test_what_stands_in_for_a_model_is_the_model_in_every_other_way() -> None:
    memo: Any = CachedSchema(Item)
    item = memo(name="x", count=1)
    assert type(item) is Item
    assert memo.model_validate({"name": "x", "count": 1}) == item
    assert isinstance(item, memo)
    assert not isinstance(5, memo)
    assert memo.__name__ == "Item"
    assert memo.model_fields is Item.model_fields
    assert repr(memo) == repr(Item)
    assert hasattr(memo, "model_construct")
    assert not hasattr(memo, "no_such_thing")
    with pytest.raises(ValidationError, match="Item"):
        memo(name=5)


def test_a_schema_with_options_is_made_anew() -> None:
    memo = CachedSchema(Item)
    assert memo.model_json_schema() is memo.model_json_schema()
    assert memo.model_json_schema() == Item.model_json_schema()
    options: dict[str, Any] = {"mode": "serialization", "by_alias": False}
    assert memo.model_json_schema(**options) == Item.model_json_schema(**options)
    assert memo.model_json_schema(True) == Item.model_json_schema(True)


class Slotted:
    __slots__ = ()
    input_schema = Item


class Fixed:
    @property
    def output_schema(self) -> Any:
        return Item


@pytest.mark.parametrize("module", [Slotted(), Fixed(), object(), None])
def test_a_module_that_can_not_be_given_a_memo_does_without(module: Any) -> None:
    cache_schemas(module)
    assert not isinstance(getattr(module, "input_schema", None), CachedSchema)
    assert not isinstance(getattr(module, "output_schema", None), CachedSchema)


def test_what_is_no_model_is_left_as_it_is() -> None:
    module = Does(give_back, input_schema={"type": "object"}, output_schema=None)
    cache_schemas(module)
    assert (module.input_schema, module.output_schema) == ({"type": "object"}, None)


def test_a_memo_is_not_put_before_a_memo() -> None:
    module = Does(give_back, input_schema=Item)
    cache_schemas(module)
    memo = module.input_schema
    cache_schemas(module)
    assert module.input_schema is memo
