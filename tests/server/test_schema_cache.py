"""Cached JSON Schemas change nothing but the speed."""

from typing import Any

import pytest
from apcore import Registry
from apcore_a2a_server import Limits
from apcore_a2a_server.modules.schema_cache import CachedSchema, cache_schemas
from pydantic import BaseModel, Field, ValidationError

from .checking_client import Json
from .inloop import (
    DIALECTS,
    NEEDS_APPROVAL,
    ActionModule,
    Peer,
    StreamModule,
    contents,
    echo,
    serving,
)
from .inloop import anyio_backend as anyio_backend
from .modules import Inputs, Item, Order

pytestmark = pytest.mark.anyio


class Total(BaseModel):
    """The sum of an order."""

    total: int = Field(ge=0)


async def sum_counts(inputs: Inputs, context: Any) -> Inputs:
    return {"total": sum(item["count"] for item in inputs["items"])}


async def return_invalid_total(inputs: Inputs, context: Any) -> Inputs:
    return {"total": "a lot"}


async def stream_counts(inputs: Inputs, context: Any) -> Any:
    for item in inputs["items"]:
        yield {"total": item["count"]}


def modules() -> dict[str, object]:
    schemas = {"input_schema": Order, "output_schema": Total}
    return {
        "work": ActionModule(sum_counts, **schemas),
        "nonsense": ActionModule(return_invalid_total, **schemas),
        "stream": StreamModule(stream_counts, **schemas),
        "pay": ActionModule(sum_counts, annotations=NEEDS_APPROVAL, **schemas),
        "plain": ActionModule(echo, input_schema={"type": "object", "required": ["a"]}),
    }


ORDER: Json = {"customer": {"text": "me"}, "items": [{"name": "x", "count": 2}]}
WRONG: list[Json] = [
    {},
    {"customer": {"text": "me"}, "items": "none"},
    {"customer": {"text": 5}, "items": [{"name": "x", "count": 0}, {"count": 1.5}]},
    {"customer": None, "items": [None], "more": 1},
]


def normalized(answer: Any) -> Any:
    """Return a response without ids and times."""
    if answer.error is not None:
        return answer.error
    status = answer.task["status"]
    parts = [
        part.get("text") or part["data"] for part in status.get("message", {}).get("parts", [])
    ]
    for part in parts:
        if "approval" in part and not isinstance(part, str):
            del part["approval"]["id"], part["approval"]["expiresAt"]
    return answer.state, parts, answer.task.get("artifacts")


async def answers(peer: Peer) -> list[Any]:
    responses = []
    for skill in modules():
        for data in (ORDER, *WRONG, {"a": 1}):
            for _ in range(2):  # the second call uses the schemas cached by the first
                responses.append(normalized(await peer.send(skill, peer.part(data=data))))
    async with peer.stream("stream", peer.part(data=ORDER)) as stream:
        responses += [str(frame) for frame in await stream.rest()]
    responses.append((await peer.client.get("/.well-known/agent-card.json")).json()["skills"])
    return responses


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_responses_are_the_same_with_and_without_the_cache(dialect: str) -> None:
    async with serving(modules(), dialect, limits=Limits(schema_cache=True)) as peer:
        cached = await answers(peer)
    async with serving(modules(), dialect, limits=Limits(schema_cache=False)) as peer:
        assert await answers(peer) == cached


async def test_the_schemas_in_the_registry_do_not_change() -> None:
    registry = Registry()
    for name, module in modules().items():
        registry.register(name, module)
    before: dict[str, Any] = {name: registry.get_definition(name) for name in registry.list()}
    async with serving(registry) as peer:
        await answers(peer)
    for name, definition in before.items():
        described: Any = registry.get_definition(name)
        assert described.input_schema == definition.input_schema
        assert described.output_schema == definition.output_schema


async def test_the_schema_is_not_generated_again_for_later_calls() -> None:
    generated = 0

    class Counted(Order):
        @classmethod
        def model_json_schema(cls, *args: Any, **options: Any) -> Any:
            nonlocal generated
            generated += 1
            return super().model_json_schema(*args, **options)

    async with serving({"work": ActionModule(sum_counts, input_schema=Counted)}) as peer:
        await peer.send("work", peer.part(data=ORDER))
        first = generated
        for _ in range(5):
            assert contents((await peer.send("work", peer.part(data=ORDER))).task) == [{"total": 2}]
        assert generated == first


async def test_the_users_class_is_not_modified() -> None:
    before = dict(vars(Order))

    class Module(ActionModule):
        input_schema = Order

    async with serving({"work": Module(sum_counts)}) as peer:
        await peer.send("work", peer.part(data=ORDER))
    assert Module.input_schema is Order
    assert dict(vars(Order)) == before


def test_a_cached_schema_behaves_like_its_model() -> None:
    cached_schema: Any = CachedSchema(Item)
    item = cached_schema(name="x", count=1)
    assert type(item) is Item
    assert cached_schema.model_validate({"name": "x", "count": 1}) == item
    assert isinstance(item, cached_schema)
    assert not isinstance(5, cached_schema)
    assert cached_schema.__name__ == "Item"
    assert cached_schema.model_fields is Item.model_fields
    assert repr(cached_schema) == repr(Item)
    assert hasattr(cached_schema, "model_construct")
    assert not hasattr(cached_schema, "no_such_thing")
    with pytest.raises(ValidationError, match="Item"):
        cached_schema(name=5)


def test_the_cache_does_not_affect_schemas_with_options() -> None:
    cached_schema = CachedSchema(Item)
    assert cached_schema.model_json_schema() is cached_schema.model_json_schema()
    assert cached_schema.model_json_schema() == Item.model_json_schema()
    options: dict[str, Any] = {"mode": "serialization", "by_alias": False}
    assert cached_schema.model_json_schema(**options) == Item.model_json_schema(**options)
    assert cached_schema.model_json_schema(True) == Item.model_json_schema(True)


class Slotted:
    __slots__ = ()
    input_schema = Item


class ReadOnly:
    @property
    def output_schema(self) -> Any:
        return Item


@pytest.mark.parametrize("module", [Slotted(), ReadOnly(), object(), None])
def test_a_module_that_cannot_be_modified_keeps_its_schemas(module: Any) -> None:
    cache_schemas(module)
    assert not isinstance(getattr(module, "input_schema", None), CachedSchema)
    assert not isinstance(getattr(module, "output_schema", None), CachedSchema)


def test_a_schema_that_is_not_a_model_is_not_replaced() -> None:
    module = ActionModule(echo, input_schema={"type": "object"}, output_schema=None)
    cache_schemas(module)
    assert (module.input_schema, module.output_schema) == ({"type": "object"}, None)


def test_a_cached_schema_is_not_wrapped_again() -> None:
    module = ActionModule(echo, input_schema=Item)
    cache_schemas(module)
    cached_schema = module.input_schema
    cache_schemas(module)
    assert module.input_schema is cached_schema
