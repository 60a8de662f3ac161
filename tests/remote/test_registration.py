"""Registration of remote skills: names, refreshes, agents that are down, loops, hostile cards."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, ClassVar

import httpx
import pytest
import uvicorn
from apcore import Context, Executor, Registry
from apcore.errors import CallDepthExceededError
from apcore_a2a_client import A2ADiscoveryError, A2AError, TaskFailedError
from apcore_a2a_core import EXTENSION_URI
from apcore_a2a_remote import RemoteAgent
from apcore_a2a_remote.depth import HOPS
from apcore_a2a_remote.skills import MAX_DETAILS, MAX_SKILLS
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.server.inloop import ActionModule, app_of, echo, listening, registry_of, wait_until
from tests.server.inloop import anyio_backend as anyio_backend
from tests.server.modules import Inputs
from tests.serving import listener

from .agents import serving

pytestmark = pytest.mark.anyio


class CardServer:
    """An agent that only has a card, which a test may change."""

    def __init__(self, **card: Any) -> None:
        self.card: Any = {
            "name": "foreign",
            "supportedInterfaces": [
                {"url": "/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
            ],
            "skills": [],
            **card,
        }
        self.app = Starlette(routes=[Route("/.well-known/agent-card.json", self.show)])

    async def show(self, request: Request) -> Response:
        return JSONResponse(self.card)

    def set_skills(self, *skills: dict[str, Any], **details: Any) -> None:
        self.card["skills"] = [*skills]
        extension = {"uri": EXTENSION_URI, "params": {"skills": details}}
        self.card["capabilities"] = {"extensions": [extension] if details else []}


@pytest.mark.parametrize(
    ("skill", "module_id"),
    [
        ("Get-Forecast", "get_forecast"),
        ("9lives", "s9lives"),
        ("system.reboot", "system.reboot"),
        ("a..b", "a.s_.b"),
        ("Überblick", "s_berblick"),
    ],
)
async def test_any_id_of_a_skill_becomes_the_id_of_a_module(skill: str, module_id: str) -> None:
    server = CardServer()
    server.set_skills({"id": skill, "name": "Skill"})
    async with listening(server.app) as url, RemoteAgent(url, name="c") as agent:
        assert await agent.register(Registry()) == [f"remote.c.{module_id}"]


async def test_an_agent_without_skills_on_its_card_is_one_module() -> None:
    cards = CardServer(description="Answers.")
    registry = Registry()
    async with listening(cards.app) as url, RemoteAgent(url, name="far") as agent:
        assert await agent.register(registry) == ["remote.far.agent"]
        assert registry.get("remote.far.agent").description == "Answers."
        # with our extension on the card, no listed skill means no skill at all
        cards.set_skills(**{"no skill": {}})
        assert await agent.refresh() == []


@pytest.mark.parametrize("is_async", [False, True])
async def test_headers_may_be_made_for_each_request(is_async: bool) -> None:
    received: list[tuple[str | None, str | None]] = []
    numbers = count(1)

    async def show(request: Request) -> Response:
        received.append((request.headers.get("x-number"), request.headers.get("user-agent")))
        return JSONResponse(CardServer().card)

    def headers() -> dict[str, str]:
        return {"x-number": str(next(numbers))}

    async def async_headers() -> dict[str, str]:
        return headers()

    app = Starlette(routes=[Route("/.well-known/agent-card.json", show)])
    made: Any = async_headers if is_async else headers
    options: Any = {"name": "c", "headers": made, "user_agent": "gate"}
    async with listening(app) as url, RemoteAgent(url, **options) as agent:
        await agent.register(Registry())
        await agent.refresh()
    assert received == [("1", "gate"), ("2", "gate")]


async def test_skills_with_similar_or_long_ids_get_different_modules() -> None:
    server, long = CardServer(), "x" * 300
    server.set_skills(
        *({"id": skill_id, "name": "Skill"} for skill_id in ("a-b", "a_b", long, long + "y"))
    )
    registry = Registry()
    async with listening(server.app) as url, RemoteAgent(url, name="c") as agent:
        module_ids = await agent.register(registry)
        assert len(module_ids) == len({*module_ids}) == 4
        assert {registry.get(module_id).remote_id for module_id in module_ids} == {
            "a-b",
            "a_b",
            long,
            long + "y",
        }


async def test_a_refresh_adds_new_skills_and_removes_those_that_are_gone() -> None:
    async with serving({"one": ActionModule(echo)}) as remote:
        agent = RemoteAgent(remote.url, name="c", expose=True)
        async with serving({}, agent) as gateway:
            remote.registry.register("two", ActionModule(echo))
            remote.registry.unregister("one")
            assert await agent.refresh() == ["remote.c.two"]
            card = await gateway.client.get_card(refresh=True)
            assert [skill.id for skill in card.skills] == ["remote.c.two"]
            assert await gateway.client.call("remote.c.two", {"a": 1}) == {"a": 1}


async def test_skills_that_are_registered_again_stay_as_they_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        serving({"one": ActionModule(echo)}) as remote,
        RemoteAgent(remote.url, name="c") as agent,
    ):
        registry = Registry()
        module_ids = [await agent.register(registry) for _ in range(2)]
        assert module_ids == [["remote.c.one"]] * 2
        assert registry.get("remote.c.one") is not None
        assert not [record for record in caplog.records if record.levelname == "WARNING"]


async def test_calls_during_refreshes_are_not_lost() -> None:
    server_modules: dict[str, object] = {"work": ActionModule(echo)}
    async with serving(server_modules) as remote:
        agent = RemoteAgent(remote.url, name="c", expose=True)
        async with serving({}, agent) as gateway:
            stopped = False

            async def change() -> int:
                number = 0
                while not stopped:
                    number += 1
                    module = ActionModule(echo, description=f"Version {number}.")
                    remote.registry.unregister("work")
                    remote.registry.register("work", module)
                    await agent.refresh()
                return number

            changing = asyncio.create_task(change())
            calls = [gateway.client.call("remote.c.work", {"n": n}) for n in range(40)]
            assert await asyncio.gather(*calls) == [{"n": n} for n in range(40)]
            stopped = True
            assert await changing > 1


async def test_the_skills_of_an_agent_that_is_down_at_the_start_are_registered_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("apcore_a2a_remote.agent.FIRST_RETRY_DELAY", 0.05)
    with listener() as reserved:
        url = f"http://127.0.0.1:{reserved.getsockname()[1]}"
    agent = RemoteAgent(url, name="c", expose=True, retries=0)
    async with serving({}, agent, metrics=True) as gateway, httpx.AsyncClient() as http:
        health = (await http.get(f"{gateway.url}/health")).json()
        assert health["status"] == "healthy"
        assert health["companions"] == {"c": "not ready"}
        figures = (await http.get(f"{gateway.url}/metrics")).json()
        assert (figures["companions"], figures["companions_not_ready"]) == (1, 1)
        assert (await gateway.client.agent_card).skills == ()
        app = app_of(registry_of({"work": ActionModule(echo)}), url=url)
        port = int(url.rpartition(":")[2])
        async with serving_at(app, port):
            await wait_until(agent.is_ready)
            assert await gateway.client.call("remote.c.work", {"a": 1}) == {"a": 1}
            health = (await http.get(f"{gateway.url}/health")).json()
            assert health["companions"] == {"c": "ready"}
            assert (await http.get(f"{gateway.url}/metrics")).json()["open_remote_calls"] == 0


@asynccontextmanager
async def serving_at(app: Starlette, port: int) -> AsyncIterator[None]:
    """Serve an application at a port that was free a moment ago."""
    config = uvicorn.Config(app, port=port, log_level="warning", lifespan="on")
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    try:
        yield
    finally:
        for open_server in server.servers:
            open_server.close()
        await server.lifespan.shutdown()


async def test_while_an_agent_is_down_its_modules_stay() -> None:
    registry = Registry()
    async with serving({"work": ActionModule(echo)}) as remote:
        agent = RemoteAgent(remote.url, name="c", retries=0)
        await agent.register(registry)
        await agent.aclose()
    with pytest.raises(A2AError):
        await agent.refresh()
    assert registry.list(visibility=["hidden"]) == ["remote.c.work"]
    assert not agent.is_ready()
    await agent.aclose()


async def test_a_remote_skill_with_the_id_of_a_local_module_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    modules = {"work": ActionModule(echo), "more": ActionModule(echo)}
    async with serving(modules) as remote:
        registry, local_module = Registry(), ActionModule(echo)
        registry.register("remote.c.work", local_module)
        async with RemoteAgent(remote.url, name="c") as agent:
            assert await agent.register(registry) == ["remote.c.more"]
            assert registry.get("remote.c.work") is local_module
    assert "remote_skill_skipped" in [getattr(r, "event", "") for r in caplog.records]


async def test_agents_that_expose_each_other_do_not_nest_their_skills_endlessly() -> None:
    with listener() as first, listener() as second:
        urls = [f"http://127.0.0.1:{sock.getsockname()[1]}" for sock in (first, second)]
    ports = [int(url.rpartition(":")[2]) for url in urls]
    to_c = RemoteAgent(urls[1], name="c", expose=True, retries=0)
    to_b = RemoteAgent(urls[0], name="b", expose=True, retries=0)
    apps = [
        app_of(registry_of({"x": ActionModule(echo)}), url=urls[0], companions=[to_c]),
        app_of(registry_of({"y": ActionModule(echo)}), url=urls[1], companions=[to_b]),
    ]
    async with serving_at(apps[0], ports[0]), serving_at(apps[1], ports[1]):
        counts = []
        for _ in range(4):
            counts.append((len(await to_c.refresh()), len(await to_b.refresh())))
        assert counts[-1] == counts[-2] == (2, 2)


class Ping:
    """A module that calls a remote one and returns its output."""

    description = "Calls back."
    input_schema = output_schema = None

    def __init__(self, target: str) -> None:
        self.target = target
        self.count = 0

    async def execute(self, inputs: Inputs, context: Any) -> Any:
        self.count += 1
        return await context.executor.call_async(self.target, inputs, context)


async def test_a_loop_of_calls_ends() -> None:
    ping, pong = Ping("remote.y.pong"), Ping("remote.x.ping")
    with listener() as first, listener() as second:
        urls = [f"http://127.0.0.1:{sock.getsockname()[1]}" for sock in (first, second)]
    ports = [int(url.rpartition(":")[2]) for url in urls]
    to_y, to_x = (RemoteAgent(url, name=name) for url, name in zip(urls[::-1], "yx", strict=True))
    apps = [
        app_of(registry_of({"ping": ping}), url=urls[0], companions=[to_y]),
        app_of(registry_of({"pong": pong}), url=urls[1], companions=[to_x]),
    ]
    async with serving_at(apps[0], ports[0]), serving_at(apps[1], ports[1]):
        await to_y.refresh()
        await to_x.refresh()
        with pytest.raises(TaskFailedError):
            await to_x.client.call("ping", {})
    assert ping.count + pong.count == 9  # the first call, and max_open (8) more


async def test_the_number_of_hops_bounds_a_loop_through_other_processes() -> None:
    async with serving({"work": ActionModule(echo)}) as remote:
        agent = RemoteAgent(remote.url, name="c", expose=True, max_open=3)
        async with serving({}, agent) as gateway:
            call = gateway.client.call
            assert await call("remote.c.work", {}, metadata={HOPS: 2}) == {}
            for hops in (3, 10**9, "many", -1):
                with pytest.raises(TaskFailedError, match="Safety limit"):
                    await call("remote.c.work", {}, metadata={HOPS: hops})


async def test_open_calls_of_one_trace_are_bounded() -> None:
    opened = asyncio.Event()

    async def wait(inputs: Inputs, context: Any) -> Any:
        await opened.wait()
        return {}

    async with serving({"work": ActionModule(wait)}) as remote:
        registry = Registry()
        async with RemoteAgent(remote.url, name="c", max_open=2) as agent:
            await agent.register(registry)

            executor = Executor(registry)
            context: Context[Any] = Context.create()
            calls = [
                asyncio.create_task(executor.call_async("remote.c.work", {}, context))
                for _ in range(2)
            ]
            await wait_until(lambda: agent.open_calls == 2)
            with pytest.raises(CallDepthExceededError):
                await executor.call_async("remote.c.work", {}, context)
            opened.set()
            assert await asyncio.gather(*calls) == [{}, {}]
            assert await executor.call_async("remote.c.work", {}, context) == {}


async def test_a_hostile_card_is_refused_or_cut() -> None:
    server = CardServer()
    many = [{"id": f"s{number}", "name": "Skill"} for number in range(MAX_SKILLS + 50)]
    server.set_skills(*many, {"id": "last", "name": "x"})
    async with listening(server.app) as url, RemoteAgent(url, name="c") as agent:
        assert len(await agent.register(Registry())) == MAX_SKILLS
        huge = {"inputSchema": {"type": "object", "description": "x" * MAX_DETAILS}}
        server.set_skills({"id": "huge", "name": "Huge"}, huge=huge)
        assert await agent.refresh() == []
        server.set_skills({"id": "odd", "name": "Odd"}, odd={"inputSchema": [], "annotations": 5})
        assert await agent.refresh() == ["remote.c.odd"]
        server.card["name"] = "x" * 6_000_000
        with pytest.raises(A2ADiscoveryError):
            await agent.refresh()
        server.card = "no card"
        with pytest.raises(A2ADiscoveryError):
            await agent.refresh()


async def test_schemas_that_change_at_each_refresh_are_followed() -> None:
    server, registry = CardServer(), Registry()
    async with listening(server.app) as url, RemoteAgent(url, name="c") as agent:
        server.set_skills({"id": "s", "name": "S"})
        await agent.register(registry)
        for number in range(5):
            schema = {"type": "object", "properties": {f"p{number}": {"type": "string"}}}
            server.set_skills({"id": "s", "name": "S"}, s={"inputSchema": schema})
            await agent.refresh()
            definition = registry.get_definition("remote.c.s")
            assert definition is not None
            assert definition.input_schema == schema


async def test_the_start_waits_for_a_slow_card_only_until_a_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("apcore_a2a_remote.agent.START_TIMEOUT", 0.1)
    released = asyncio.Event()

    async def slow(request: Request) -> Response:
        await released.wait()
        return Response(status_code=404)

    app = Starlette(routes=[Route("/{path:path}", slow)])
    async with listening(app) as url:
        agent = RemoteAgent(url, name="c")
        async with serving({"own": ActionModule(echo)}, agent) as gateway:
            assert await gateway.client.call("own", {"a": 1}) == {"a": 1}
        released.set()


async def test_a_slow_refresh_does_not_delay_calls() -> None:
    app = app_of(registry_of({"work": ActionModule(echo)}), url=None)
    reached, released = asyncio.Event(), asyncio.Event()
    is_slow = False

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        if is_slow and scope["type"] == "http" and "agent" in scope["path"]:
            reached.set()
            await released.wait()
        await app(scope, receive, send)

    outer: Any = slow
    registry = Registry()
    async with listening(outer) as url, RemoteAgent(url, name="c") as agent:
        await agent.register(registry)
        is_slow = True
        refreshing = asyncio.create_task(agent.refresh())
        await reached.wait()
        assert await Executor(registry).call_async("remote.c.work", {"a": 1}) == {"a": 1}
        released.set()
        assert await refreshing == ["remote.c.work"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"name": "Weather"}, "name must be"),
        ({"approve": "both"}, "approve must be"),
        ({"trust": "maybe"}, "trust must be"),
        ({"wait": "long"}, "wait must be"),
        ({"wait": "webhook"}, "needs a receiver"),
        ({"max_open": 0}, "max_open"),
        ({"timeout": 0}, "timeout"),
    ],
)
def test_an_invalid_argument_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        RemoteAgent("http://127.0.0.1", **{"name": "c", **options})


def test_an_object_without_the_methods_of_a_companion_is_refused() -> None:
    class IncompleteCompanion:
        name: ClassVar = "lame"

        def figures(self) -> dict[str, float]:
            return {}

    with pytest.raises(TypeError, match="IncompleteCompanion lacks"):
        app_of(Registry(), companions=[IncompleteCompanion()])


async def test_an_agent_is_closed_even_if_its_skills_could_not_be_kept_up_to_date() -> None:
    class BrokenRegistry(Registry):
        def register(self, *_: Any, **__: Any) -> None:
            raise RuntimeError

    async with serving({"work": ActionModule(echo)}) as remote:
        agent = RemoteAgent(remote.url, name="c")
        await agent.start(BrokenRegistry())
        client = agent.client
        await agent.aclose()
        assert agent.client is not client
        await agent.aclose()
