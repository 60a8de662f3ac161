"""Modules as tools of language models: definitions in three styles, and their calls."""

from math import inf
from typing import Any, ClassVar

import pytest
from apcore import ACL, Context, Executor, Identity, ModuleAnnotations, Registry
from apcore.acl import ACLRule
from apcore.errors import ACLDeniedError
from apcore_a2a_client import A2ATimeoutError, Task, TaskArtifactUpdateEvent, TaskState
from apcore_a2a_remote import RemoteAgent, RemoteInputError, RemoteQuestion, tools
from apcore_a2a_remote.errors import RemoteFailedError, error_of
from pydantic import BaseModel

from tests.server.inloop import ActionModule, Gate, StreamModule, echo, registry_of
from tests.server.inloop import anyio_backend as anyio_backend
from tests.server.modules import Inputs

from .agents import Asker, serving

pytestmark = pytest.mark.anyio

STYLES = ["openai", "anthropic", "mcp"]


class Place(BaseModel):
    city: str
    days: int = 1


class Forecast:
    description = "Tells the weather."
    input_schema = Place
    output_schema = None
    annotations: ClassVar = ModuleAnnotations(readonly=True)

    def execute(self, inputs: Inputs, context: Any) -> Inputs:
        return {"city": inputs["city"], "given": [*inputs]}


@pytest.mark.parametrize("style", STYLES)
async def test_local_and_remote_modules_are_tools_that_can_be_called(style: Any) -> None:
    registry = registry_of({"local.add": ActionModule(echo)})
    async with (
        serving({"forecast": Forecast()}) as agent,
        RemoteAgent(agent.url, name="weather") as remote,
    ):
        await remote.register(registry)
        toolset = tools(registry, style)
        by_name = {
            name: definition.get("function", definition)
            for name, definition in zip((t.name for t in toolset), toolset.definitions, strict=True)
        }
        assert [*by_name] == ["local__add", "remote__weather__forecast"]
        definition = by_name["remote__weather__forecast"]
        assert definition["description"] == "Tells the weather."
        schema = definition[
            {"openai": "parameters", "anthropic": "input_schema", "mcp": "inputSchema"}[style]
        ]
        assert schema["required"] == ["city"]
        assert {*schema["properties"]} == {"city", "days"}
        if style == "mcp":
            assert definition["annotations"]["readOnlyHint"] is True
            assert definition["annotations"]["openWorldHint"] is True
        output = await toolset.call("remote__weather__forecast", {"city": "Bonn"})
        assert output["city"] == "Bonn"
        assert await toolset.call("local__add", {"a": 1}) == {"a": 1}
        with pytest.raises(KeyError):
            await toolset.call("remote__weather__tomorrow", {})


async def test_a_strict_tool_leaves_out_members_that_the_model_sets_to_null() -> None:
    registry = registry_of({"forecast": Forecast()})
    toolset = tools(registry, strict=True)
    function = toolset.definitions[0]["function"]
    assert function["strict"] is True
    assert function["parameters"]["required"] == ["city", "days"]
    assert function["parameters"]["additionalProperties"] is False
    output = await toolset.call("forecast", {"city": "Bonn", "days": None})
    assert output == {"city": "Bonn", "given": ["city"]}


class Node(BaseModel):
    name: str
    note: str = ""
    children: "list[Node]" = []


class Trip(BaseModel):
    places: list[Place]
    stops: list[Place] | None = None
    pair: tuple[Place, int] | None = None
    either: Place | Node | None = None
    home: Place | None
    notes: dict[str, str | None] = {}


class Plan(ActionModule):
    input_schema: ClassVar[Any] = Trip


async def test_a_strict_tool_leaves_out_nested_nulls_that_the_schema_does_not_allow() -> None:
    toolset = tools(registry_of({"plan": Plan(echo)}), strict=True)
    place = {"city": "Bonn", "days": None}
    arguments = {"places": [place], "home": place, "notes": {"a": None}}
    assert await toolset.call("plan", arguments) == {
        "places": [{"city": "Bonn"}],
        "home": {"city": "Bonn"},
        "notes": {"a": None},
    }
    output = await toolset.call("plan", {"places": [], "home": None, "notes": None})
    assert output == {"places": [], "home": None}
    unions = {"stops": [place], "pair": [place, 1], "either": place}
    output = await toolset.call("plan", {"places": [], "home": None, **unions})
    assert output == {
        "places": [],
        "home": None,
        "stops": [{"city": "Bonn"}],
        "pair": [{"city": "Bonn"}, 1],
        "either": {"city": "Bonn"},
    }


class Grow(ActionModule):
    input_schema: ClassVar[Any] = Node


class GrowByRoot(ActionModule):
    input_schema: ClassVar[Any] = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "note": {"type": "string"},
            "children": {"type": "array", "items": {"$ref": "#"}},
        },
        "required": ["name"],
    }


@pytest.mark.parametrize("module", [Grow, GrowByRoot])
async def test_a_strict_tool_leaves_out_nulls_at_any_depth_of_a_recursive_schema(
    module: type[ActionModule],
) -> None:
    toolset = tools(registry_of({"grow": module(echo)}), strict=True)
    leaf = {"name": "leaf", "note": None, "children": None}
    branch = {"name": "branch", "note": None, "children": [leaf]}
    output = await toolset.call("grow", {"name": "root", "note": None, "children": [branch]})
    assert output == {
        "name": "root",
        "children": [{"name": "branch", "children": [{"name": "leaf"}]}],
    }


def test_a_tool_is_strict_only_on_request() -> None:
    class Closed(ActionModule):
        input_schema: ClassVar[Any] = {
            "type": "object",
            "properties": {"a": {"type": "integer"}},
            "additionalProperties": False,
        }

    registry = registry_of({"closed": Closed(echo)})
    assert "strict" not in tools(registry).definitions[0]["function"]
    assert tools(registry, strict=True).definitions[0]["function"]["strict"] is True


def test_an_unknown_id_is_an_error() -> None:
    with pytest.raises(ValueError, match="'math_ad'"):
        tools(registry_of({"math_add": ActionModule(echo)}), only=["math_ad"])


def test_a_timeout_in_a_call_without_a_time_limit_is_a_failure_of_the_agent() -> None:
    error = error_of(A2ATimeoutError("read"), "weather.today", is_new=True, seconds=inf)
    assert isinstance(error, RemoteFailedError)


async def test_tools_can_be_chosen_and_names_never_collide() -> None:
    modules = {"a.b": ActionModule(echo), "a__b": ActionModule(echo)}
    registry = registry_of({**modules, "c": ActionModule(echo)})
    toolset = tools(registry, only=lambda name: name != "c")
    assert {tool.name: tool.module_id for tool in toolset} == {"a__b": "a.b", "a__b_2": "a__b"}
    assert [tool.module_id for tool in tools(registry, only=["c"])] == ["c"]
    with pytest.raises(ValueError, match="style"):
        tools(registry, "gemini")  # type: ignore[arg-type]  # the error is what is tested


async def test_the_rules_for_the_caller_apply_to_the_calls_of_a_model() -> None:
    registry = registry_of({"secret": ActionModule(echo)})
    rule = ACLRule(callers=["*"], targets=["*"], effect="allow", conditions={"roles": ["operator"]})
    executor = Executor(registry, acl=ACL([rule], default_effect="deny"))
    toolset = tools(executor)
    ada: Context[Any] = Context.create(identity=Identity("ada", roles=("operator",)))
    assert await toolset.call("secret", {"a": 1}, ada) == {"a": 1}
    eve: Context[Any] = Context.create(identity=Identity("eve"))
    with pytest.raises(ACLDeniedError):
        await toolset.call("secret", {"a": 1}, eve)


async def test_a_call_raises_the_error_of_a_wrong_input_and_the_question_of_a_skill() -> None:
    async with (
        serving({"forecast": Forecast(), "ask": Asker()}) as agent,
        RemoteAgent(agent.url, name="weather") as remote,
    ):
        registry = Registry()
        await remote.register(registry)
        toolset = tools(registry)
        with pytest.raises(Exception, match="city") as caught:
            await toolset.call("remote__weather__forecast", {})
        assert not isinstance(caught.value, RemoteInputError)  # refused before the agent is called
        with pytest.raises(RemoteQuestion, match="Which day") as question:
            await toolset.call("remote__weather__ask", {})
        task = await remote.reply(question.value, "Friday")
        assert task.status.state == TaskState.COMPLETED


@pytest.mark.parametrize("is_async", [True, False])
async def test_on_event_is_called_with_each_event_in_order(is_async: bool) -> None:
    async def source(inputs: Inputs, context: Any) -> Any:
        for word in ("one", "two", "three"):
            yield {word: True}

    events: list[Any] = []

    async def collect(event: Any) -> None:
        events.append(event)

    async with (
        serving({"work": StreamModule(source)}) as agent,
        RemoteAgent(agent.url, name="c") as remote,
    ):
        await remote.register(Registry())
        on_event: Any = collect if is_async else events.append
        task = await remote.send("work", {"a": 1}, on_event=on_event)
    chunks = [event for event in events if isinstance(event, TaskArtifactUpdateEvent)]
    assert [chunk.artifact.parts[0].data for chunk in chunks] == [
        {"one": True},
        {"two": True},
        {"three": True},
    ]
    assert isinstance(events[0], Task)
    assert task.status.state.is_terminal


async def test_an_exception_in_on_event_cancels_the_task() -> None:
    gate = Gate()

    def refuse(event: Any) -> None:
        raise LookupError("seen enough")

    async with (
        serving({"work": ActionModule(gate)}) as agent,
        RemoteAgent(agent.url, name="c") as remote,
    ):
        await remote.register(Registry())
        with pytest.raises(LookupError):
            await remote.send("work", {}, on_event=refuse)
        await gate.canceled.wait()
