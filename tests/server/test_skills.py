"""Modules that are added and removed at run time, and hidden or broken modules."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from apcore import Executor, ModuleAnnotations, Registry
from apcore_a2a_server.modules.steps import DirectEngine, DirectExecutor

from .inloop import (
    DIALECTS,
    ActionModule,
    Gate,
    Peer,
    StreamModule,
    always,
    app_of,
    echo,
    registry_of,
    serving,
)
from .inloop import anyio_backend as anyio_backend
from .modules import Echo, Inputs, Module, Text

pytestmark = pytest.mark.anyio

CARD = "/.well-known/agent-card.json"


@pytest.fixture
def registry() -> Registry:
    return registry_of({"work": ActionModule(echo)})


@pytest.fixture
def executor(registry: Registry) -> Iterator[Executor]:
    with closing(Executor(registry)) as executor:
        yield executor


async def skills_and_etag(peer: Peer) -> tuple[list[str], str]:
    """Return the ids of the skills on the card, and its ETag."""
    response = await peer.client.get(CARD)
    assert response.status_code == 200
    return [skill["id"] for skill in response.json()["skills"]], response.headers["etag"]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_module_registered_later_becomes_a_skill(dialect: str, executor: Executor) -> None:
    async with serving(executor, dialect) as peer:
        before = await skills_and_etag(peer)
        assert (await peer.send("new")).code == -32601
        executor.registry.register("new", always({"new": True}))
        skills, tag = await skills_and_etag(peer)
        assert (sorted(skills), tag != before[1]) == (["new", "work"], True)
        assert (await peer.send("new")).data == {"new": True}
        assert (await peer.client.get("/health")).json()["module_count"] == 2


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_removed_module_is_no_longer_a_skill(dialect: str, executor: Executor) -> None:
    executor.registry.register("old", always({}))
    async with serving(executor, dialect) as peer:
        before = await skills_and_etag(peer)
        assert (await peer.send("old")).state == "completed"
        executor.registry.unregister("old")
        skills, tag = await skills_and_etag(peer)
        assert (skills, tag != before[1]) == (["work"], True)
        for operation in ("send", "stream"):
            answer = await peer.ask(operation, peer.wire.params("old"))
            assert answer.code == -32601


async def test_a_replaced_module_takes_effect_at_once(executor: Executor) -> None:
    registry = executor.registry
    async with serving(executor) as peer:
        assert (await peer.send()).data == {"text": "hello"}
        before = await skills_and_etag(peer)
        registry.unregister("work")
        registry.register("work", ActionModule(echo, input_schema=Text, description="Another"))
        after = await skills_and_etag(peer)
        assert after[1] != before[1]
        assert (await peer.send("work", peer.part(data={"text": 1}))).code == -32602

        async def count_to_two(inputs: Inputs, context: Any) -> Any:
            yield {"n": 0}
            yield {"n": 1}

        registry.unregister("work")
        registry.register("work", StreamModule(count_to_two))
        async with peer.stream() as stream:
            frames = await stream.rest()
        assert [frame.parts for frame in frames if frame.kind == "artifact"] == [
            [{"n": 0}],
            [{"n": 1}],
        ]


async def test_modules_may_be_added_and_removed_in_another_thread(executor: Executor) -> None:
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            executor.registry.register("new", always({"new": True}))
            executor.registry.unregister("new")
            stop.wait(0.0002)  # let the event loop run
        executor.registry.register("last", always({"last": True}))

    async with serving(executor) as peer:
        churning = asyncio.create_task(asyncio.to_thread(churn))
        for _ in range(60):
            answer = await peer.send("new")
            # the module may disappear between the server's lookup and apcore's
            assert answer.code in (None, -32601)
            assert set((await skills_and_etag(peer))[0]) <= {"work", "new"}
            assert (await peer.send()).state == "completed"
        stop.set()
        await churning
        assert sorted((await skills_and_etag(peer))[0]) == ["last", "work"]
        assert (await peer.send("new")).code == -32601
        assert (await peer.send("last")).data == {"last": True}


async def test_a_running_task_of_a_removed_module_continues(executor: Executor) -> None:
    gate = Gate()

    async def source(inputs: Inputs, context: Any) -> Any:
        yield {"n": 0}
        yield await gate(inputs, context)

    executor.registry.register("old", ActionModule(gate))
    executor.registry.register("stream", StreamModule(source))
    async with serving(executor) as peer, peer.stream("stream") as stream:
        task_id = await peer.start("old")
        await gate.reached.wait()
        executor.registry.unregister("old")
        executor.registry.unregister("stream")
        gate.opened.set()
        async with peer.subscribe(task_id, 2) as subscriber:
            await subscriber.rest()
        assert await peer.state(task_id) == "completed"
        assert (await stream.rest())[-1].state == "completed"


HIDDEN = ModuleAnnotations(discoverable=False)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_undiscoverable_module_can_be_called(dialect: str) -> None:
    modules = {
        "work": ActionModule(echo),
        "secret": ActionModule(echo, annotations=HIDDEN),
    }
    async with serving(modules, dialect) as peer:
        response = await peer.client.get(CARD)
        assert "secret" not in response.text
        assert (await peer.send("secret")).data == {"text": "hello"}


class WithSystemModules(Registry):
    """A registry with system modules, like apcore's after `register_sys_modules`."""

    def __init__(self) -> None:
        super().__init__()
        self.register("work", always({}))
        self.system: Any = always({"system": True})

    def list(self, *args: Any, **options: Any) -> Any:
        return [*super().list(*args, **options), "system.health"]

    def get_definition(self, module_id: str, *args: Any, **options: Any) -> Any:
        name = "work" if module_id == "system.health" else module_id
        return super().get_definition(name, *args, **options)

    def get(self, module_id: str, *args: Any, **options: Any) -> Any:
        if module_id == "system.health":
            return self.system
        return super().get(module_id, *args, **options)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_system_modules_are_neither_shown_nor_callable(dialect: str) -> None:
    with closing(Executor(WithSystemModules())) as executor:
        assert await executor.call_async("system.health", {}) == {"system": True}
        async with serving(executor, dialect) as peer:
            assert (await skills_and_etag(peer))[0] == ["work"]
            assert (await peer.client.get("/health")).json()["module_count"] == 1
            for operation in ("send", "stream"):
                answer = await peer.ask(operation, peer.wire.params("system.health"))
                assert answer.code == -32601


@pytest.mark.parametrize("name", ["system.health", "unknown"])
def test_a_default_skill_must_be_callable(name: str) -> None:
    with closing(Executor(WithSystemModules())) as executor, pytest.raises(ValueError, match=name):
        app_of(executor, default_skill=name)


class BadAnnotations(Module):
    annotations: Any = 5

    def execute(self, inputs: Inputs, context: Any) -> Inputs:
        return inputs


class BadTags(BadAnnotations):
    annotations = None
    tags = 5


class UndescribingRegistry(Registry):
    """A registry that fails to describe one module."""

    def get_definition(self, module_id: str, *args: Any, **options: Any) -> Any:
        if module_id == "bad":
            raise RuntimeError("no description")
        return super().get_definition(module_id, *args, **options)


async def test_a_module_that_cannot_be_described_does_not_affect_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    registry = UndescribingRegistry()
    registry.register("bad", always({}))
    registry.register("work", ActionModule(echo))
    async with serving(registry) as peer:
        assert (await skills_and_etag(peer))[0] == ["work"]
        assert (await peer.send()).state == "completed"
        assert (await peer.send("bad")).code == -32601
        assert (await peer.client.get("/health")).status_code == 200
    assert "bad" in caplog.text


@pytest.mark.parametrize("kind", [BadAnnotations, BadTags])
async def test_a_broken_module_does_not_affect_others(kind: Any) -> None:
    async with serving({"work": ActionModule(echo), "bad": kind()}) as peer:
        assert "work" in (await skills_and_etag(peer))[0]
        assert (await peer.send()).state == "completed"
        assert (await peer.send("bad")).response.status_code == 200


async def test_a_module_without_a_description_is_callable_but_not_on_the_card(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    modules = {"work": ActionModule(echo), "mute": ActionModule(echo, description="")}
    async with serving(modules) as peer:
        assert (await skills_and_etag(peer))[0] == ["work"]
        assert (await peer.send("mute")).state == "completed"
    assert "mute" in caplog.text


def test_a_registry_without_modules_is_refused() -> None:
    with pytest.raises(ValueError, match="no modules"):
        app_of(Registry())


async def test_the_last_module_may_be_removed(executor: Executor) -> None:
    async with serving(executor) as peer:
        executor.registry.unregister("work")
        assert (await skills_and_etag(peer))[0] == []
        assert (await peer.send()).code == -32601
        executor.registry.register("work", ActionModule(echo))
        assert (await peer.send()).state == "completed"


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"type": "string"}, "string"),
        ({"$ref": "#/$defs/T", "$defs": {"T": {"type": "array"}}}, "array"),
        (
            {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]},
            "integer or string",
        ),
        ({"type": ["object", "string"]}, None),
        ({"properties": {"text": {"type": "string"}}}, None),
        (None, None),
    ],
)
async def test_a_warning_at_the_start_names_a_module_that_takes_no_object(
    schema: Any, types: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    module: Any = always({})
    module.input_schema = schema
    async with serving({"work": module}) as peer:
        warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
        answer = await peer.send("work", peer.part(text="Hello"))
        if types is None:
            assert not warnings
            return
        (warning,) = warnings
        assert warning.event == "module_not_callable"  # type: ignore[attr-defined]  # in `extra`
        assert f"work can't be called: its inputs are of type {types}," in warning.getMessage()
        assert answer.code == -32602
        (skill,) = (await peer.client.get(CARD)).json()["skills"]
        assert skill["inputModes"] == ["application/json"]


@pytest.mark.anyio
async def test_apcore_calls_modules_through_our_engine() -> None:
    """The engine is set by a private attribute, which a new apcore may no longer read."""
    runs: list[str] = []

    class Recording(DirectEngine):
        async def run(self, strategy: Any, ctx: Any, **options: Any) -> Any:
            runs.append(ctx.module_id)
            return await super().run(strategy, ctx, **options)

    class Recorded(DirectExecutor):
        def __init__(self, registry: Registry) -> None:
            super().__init__(registry)
            assert type(self._pipeline_engine) is DirectEngine
            self._pipeline_engine = Recording(self)

    registry = registry_of({"work": Echo()})
    executor = Recorded(registry)
    await executor.call_async("work", {"text": "hi"})
    assert [chunk async for chunk in executor.stream("work", {"text": "hi"})]
    assert runs == ["work", "work"]
