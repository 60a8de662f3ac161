"""The caller's identity in modules, and access decisions of custom ACLs and executors."""

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import closing
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from apcore import ACL, Context, ExecutionPolicy, Executor, Identity, ModuleAnnotations
from apcore.builtin_steps import BuiltinACLCheck
from apcore.errors import ACLDeniedError
from apcore.pipeline import BaseStep, StepResult
from apcore.sys_modules.control import ToggleState

from .checking_client import Json, state_of
from .inloop import (
    DIALECTS,
    NEEDS_APPROVAL,
    ActionModule,
    Peer,
    StreamModule,
    SyncActionModule,
    contents,
    echo,
    registry_of,
    serving,
)
from .inloop import anyio_backend as anyio_backend
from .modules import SECRET, Inputs
from .test_extended_card import (
    EXTENDED,
    PRINCIPALS,
    NameAuthenticator,
    acting_as,
    agent,
    callable_by,
    rule,
    skills_on,
    skills_shown_to,
)

pytestmark = [pytest.mark.anyio, pytest.mark.rotating("peer")]

CALLERS = 8  # concurrent callers


class HeaderAuthenticator:
    """An authenticator that builds an identity from headers."""

    async def authenticate(self, headers: Mapping[str, str]) -> Identity | None:
        await asyncio.sleep(0)
        name, roles = headers.get("x-name"), headers.get("x-roles", "").split()
        return Identity(name, "service", tuple(roles), {"team": f"of {name}"}) if name else None


def headers_of(name: str, *roles: str) -> Json:
    return {"x-name": name, "x-roles": " ".join(roles)}


def identity_of(name: str, *roles: str) -> Json:
    """Return the identity that modules see for these headers."""
    return {"id": name, "type": "service", "roles": [*roles], "attrs": {"team": f"of {name}"}}


def identify(inputs: Inputs, context: "Context[Any]") -> Inputs:
    """Return the caller's identity."""
    caller = context.identity
    if caller is None:
        return {"id": None}
    attrs = dict(caller.attrs)
    return {"id": caller.id, "type": caller.type, "roles": [*caller.roles], "attrs": attrs}


async def identify_later(inputs: Inputs, context: "Context[Any]") -> Inputs:
    await asyncio.sleep(0)
    return identify(inputs, context)


async def identify_twice(inputs: Inputs, context: "Context[Any]") -> AsyncIterator[Inputs]:
    for _ in range(2):
        yield await identify_later(inputs, context)


async def ask(inputs: Inputs, context: "Context[Any]") -> Inputs:
    """Return the caller's identity after asking for more input."""
    if "more" not in inputs:
        context.services.ask("And?")
    return identify(inputs, context)


async def pass_on(inputs: Inputs, context: "Context[Any]") -> Any:
    executor: Any = context.executor
    return await executor.call_async(inputs["to"], {"to": "async"}, context)


def pass_on_in_thread(inputs: Inputs, context: "Context[Any]") -> Any:
    executor: Any = context.executor
    return executor.call(inputs["to"], {"to": "async"}, context)


MODULES = {
    "async": ActionModule(identify_later),
    "thread": SyncActionModule(identify),
    "nested": ActionModule(pass_on),
    "nested.thread": SyncActionModule(pass_on_in_thread),
    "asks": ActionModule(ask),
    "guarded": ActionModule(identify_later, annotations=NEEDS_APPROVAL),
}
CALL_PATHS = [
    ("async", ""),
    ("thread", ""),
    ("nested", "async"),
    ("nested", "thread"),
    ("nested", "nested.thread"),
    ("nested.thread", "async"),
    ("nested.thread", "nested"),
]
"""Skills, each with the module that it calls, if any. That module, if nested, calls `async`."""


@pytest.fixture(params=DIALECTS)
async def peer(request: pytest.FixtureRequest) -> AsyncIterator[Peer]:
    modules = {**MODULES, "streaming": StreamModule(identify_twice)}
    with closing(Executor(registry_of(modules))) as executor:
        async with serving(executor, request.param, auth=HeaderAuthenticator()) as peer:
            yield peer


async def send_as(peer: Peer, headers: Json, skill: str, inputs: Json, **members: Any) -> Json:
    """Send a message with *headers* and return its task."""
    params = peer.wire.params(skill, peer.part(data=inputs), **members)
    return (await peer.ask("send", params, headers)).task


async def stream_as(peer: Peer, headers: Json, skill: str, inputs: Json) -> list[Any]:
    """Send a message with *headers* and return the contents of its stream's chunks."""
    params = peer.wire.params(skill, peer.part(data=inputs))
    async with peer.streaming("stream", params, headers) as stream:
        return [part async for frame in stream if frame.kind == "artifact" for part in frame.parts]


@pytest.mark.parametrize(("skill", "to"), CALL_PATHS)
async def test_a_module_sees_the_callers_identity(peer: Peer, skill: str, to: str) -> None:
    headers, expected = (
        headers_of("ada", "admin", "staff"),
        identity_of("ada", "admin", "staff"),
    )
    assert contents(await send_as(peer, headers, skill, {"to": to})) == [expected]
    assert await stream_as(peer, headers, skill, {"to": to}) == [expected]


async def test_a_streaming_module_sees_the_callers_identity_in_each_chunk(peer: Peer) -> None:
    assert await stream_as(peer, headers_of("ada"), "streaming", {}) == [identity_of("ada")] * 2


@pytest.mark.parametrize("skill", ["asks", "guarded"])
async def test_a_resumed_call_sees_the_identity_of_the_answering_caller(
    peer: Peer, skill: str
) -> None:
    paused = await send_as(peer, headers_of("ada", "old"), skill, {"first": 1})
    assert state_of(paused) == "input-required"
    answer = {"more": 1, "approved": True}
    answered = await send_as(peer, headers_of("ada", "new"), skill, answer, taskId=paused["id"])
    assert contents(answered) == [identity_of("ada", "new")]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_without_authentication_there_is_no_identity(dialect: str) -> None:
    async with serving({**MODULES, "streaming": StreamModule(identify_twice)}, dialect) as peer:
        for skill, to in CALL_PATHS:
            assert contents(await send_as(peer, headers_of("ada"), skill, {"to": to})) == [
                {"id": None}
            ]
        assert await stream_as(peer, headers_of("ada"), "streaming", {}) == [{"id": None}] * 2


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_concurrent_callers_are_never_mixed_up(dialect: str) -> None:
    """All calls are inside the module at once before any of them reads the identity."""
    meeting, meeting_of_threads = asyncio.Barrier(CALLERS), threading.Barrier(CALLERS)

    async def meet(inputs: Inputs, context: "Context[Any]") -> Inputs:
        await meeting.wait()
        return identify(inputs, context)

    async def meet_twice(inputs: Inputs, context: "Context[Any]") -> AsyncIterator[Inputs]:
        for _ in range(2):
            yield await meet(inputs, context)

    def meet_in_thread(inputs: Inputs, context: "Context[Any]") -> Inputs:
        meeting_of_threads.wait(10)
        return identify(inputs, context)

    modules = {
        "async": ActionModule(meet),
        "thread": SyncActionModule(meet_in_thread),
        "nested": ActionModule(pass_on),
    }
    names = [f"caller-{number}" for number in range(CALLERS)]
    async with serving(
        {**modules, "streaming": StreamModule(meet_twice)}, dialect, auth=HeaderAuthenticator()
    ) as peer:
        for skill, to in (("async", ""), ("thread", ""), ("nested", "async")):
            calls = [send_as(peer, headers_of(name), skill, {"to": to}) for name in names]
            outputs = [contents(task) for task in await asyncio.gather(*calls)]
            assert outputs == [[identity_of(name)] for name in names]
        streams = [stream_as(peer, headers_of(name), "streaming", {}) for name in names]
        assert await asyncio.gather(*streams) == [[identity_of(name)] * 2 for name in names]


# Custom ACLs and executors


class CheckOnlyACL:
    """An ACL with only a `check` method; its second answer is for bob and `text.stats`."""

    def __init__(self, *answers: Any) -> None:
        self._answers = answers

    def check(self, caller: str | None, target: str, context: Context[Any]) -> Any:
        return self._answers[target == "text.stats" and context.identity is PRINCIPALS["bob"]]


@pytest.mark.parametrize(
    "answers",
    [(False, True), (None, True), (0, 1)],
)
async def test_an_acl_needs_only_a_check_method(answers: Any) -> None:
    async with (
        agent(CheckOnlyACL(*answers), auth=NameAuthenticator()) as peer,
        acting_as(peer, "bob") as bob,
    ):
        assert await skills_on(peer) == set()
        assert await skills_on(bob, EXTENDED) == await callable_by(bob) == {"text.stats"}
        assert await skills_shown_to(peer, "ada") == [set()]


async def test_an_acl_that_raises_hides_everything() -> None:
    class Broken(CheckOnlyACL):
        def check(self, caller: str | None, target: str, context: Context[Any]) -> Any:
            raise RuntimeError(SECRET)

    async with agent(Broken(), auth=NameAuthenticator()) as peer:
        assert await skills_on(peer) == set()
        assert await skills_shown_to(peer, "ada", "bob") == [set(), set()]


class CustomExecutor:
    """A custom executor with two skills, one of them for ada only."""

    def __init__(self) -> None:
        self.registry = registry_of({"text.stats": ActionModule(echo), "lab": ActionModule(echo)})

    def validate(self, module_id: str, inputs: Any = None, context: Any = None) -> Any:
        passed = module_id == "text.stats" or context.identity is PRINCIPALS["ada"]
        checks = [SimpleNamespace(check="acl", passed=passed)]
        return SimpleNamespace(valid=passed, checks=checks, errors=[])

    async def call_async(self, module_id: str, inputs: Any = None, context: Any = None) -> Any:
        return inputs

    async def stream(self, module_id: str, inputs: Any = None, context: Any = None) -> Any:
        yield inputs


async def test_a_custom_executor_checks_access_with_validate() -> None:
    async with serving(CustomExecutor(), auth=NameAuthenticator()) as peer:
        assert await skills_on(peer) == {"text.stats"}
        assert await skills_shown_to(peer, "ada", "bob") == [{"lab", "text.stats"}, {"text.stats"}]
        async with acting_as(peer, "bob") as bob:
            assert (await bob.send("lab")).code == -32001
            assert (await bob.send("text.stats")).state == "completed"


# Cards show the callable skills


class CustomACLStep(BaseStep):
    """A user's own step instead of apcore's; dry runs skip it."""

    def __init__(self) -> None:
        super().__init__("acl_check", "", removable=True, replaceable=True, pure=False)

    async def execute(self, ctx: Any) -> StepResult:
        if ctx.module_id == "b":
            raise ACLDeniedError(None, ctx.module_id)
        return StepResult(action="continue")


class StricterCheck(BuiltinACLCheck):
    """apcore's step with an additional rule."""

    async def execute(self, ctx: Any) -> StepResult:
        await CustomACLStep().execute(ctx)
        return await super().execute(ctx)


def two_skills(**options: Any) -> Executor:
    return Executor(registry_of({"a": ActionModule(echo), "b": ActionModule(echo)}), **options)


def allowing_b(**conditions: Any) -> Executor:
    return two_skills(acl=ACL([rule("a"), rule("b", conditions)], default_effect="deny"))


def denying_b(**conditions: Any) -> Executor:
    denial = rule("b", conditions, effect="deny")
    return two_skills(acl=ACL([denial, rule("*")], default_effect="deny"))


def with_step(step: BaseStep) -> Executor:
    executor = two_skills()
    executor.current_strategy.replace("acl_check", step)
    return executor


def disabling_b() -> Executor:
    toggles = ToggleState()
    toggles.disable("b")
    return two_skills(toggle_state=toggles)


MISTAKES = {
    "rules grant nothing without arguments": partial(
        allowing_b, arguments={"has_none_of": ["force"]}
    ),
    "rules deny nothing without arguments": partial(denying_b, arguments={"has_key": ["force"]}),
    "a call is deeper than the check assumes": partial(allowing_b, max_call_depth=0),
    "a derived step is taken for apcore's": partial(with_step, StricterCheck()),
    "a disabled module is on the cards": disabling_b,
}
"""Mistakes in building a card, each with an executor whose card would show it."""
DIFFERING = [pytest.param(make, id=mistake) for mistake, make in MISTAKES.items()]


@pytest.mark.parametrize("make", [two_skills, allowing_b, denying_b, *DIFFERING])
async def test_a_card_shows_exactly_the_callable_skills(make: Any) -> None:
    with closing(make()) as executor:
        async with (
            serving(executor, auth=NameAuthenticator()) as peer,
            acting_as(peer, "bob") as bob,
        ):
            called = {skill for skill in ("a", "b") if (await bob.send(skill)).code is None}
            assert await skills_on(bob, EXTENDED) == called


class SchemelessAuthenticator(NameAuthenticator):
    """An authenticator that declares no security schemes."""

    def security_schemes(self) -> Json:
        return {}


def guarded(annotations: Any, metadata: Any = None, **options: Any) -> Executor:
    """Return an executor whose module `b` needs approval."""
    registry = registry_of({"a": ActionModule(echo)})
    module = ActionModule(echo, annotations=annotations)
    registry.register("b", module, metadata={"annotations": metadata or {}})
    return Executor(registry, **options)


APPROVAL, NO_APPROVAL = {"requires_approval": True}, {"requires_approval": False}
DESTRUCTIVE, POLICY = ModuleAnnotations(destructive=True), ExecutionPolicy(gate_destructive=True)


@pytest.mark.parametrize(
    ("make", "auth"),
    [
        (partial(guarded, NEEDS_APPROVAL), NameAuthenticator()),
        (partial(guarded, APPROVAL), NameAuthenticator()),
        (partial(guarded, None, APPROVAL), NameAuthenticator()),
        pytest.param(partial(guarded, APPROVAL), SchemelessAuthenticator()),
        pytest.param(partial(guarded, APPROVAL, NO_APPROVAL), NameAuthenticator()),
        pytest.param(partial(guarded, DESTRUCTIVE, policy=POLICY), NameAuthenticator()),
    ],
)
async def test_skills_that_need_approval_are_not_on_the_public_card(
    make: Any, auth: NameAuthenticator
) -> None:
    with closing(make()) as executor:
        async with serving(executor, auth=auth) as peer, acting_as(peer, "bob") as bob:
            assert (await bob.send("b")).state == "input-required"
            assert await skills_on(bob, EXTENDED) == {"a", "b"}
            assert await skills_on(peer) == {"a"}


@pytest.mark.parametrize("strategy", ["internal", "minimal", "testing"])
async def test_building_the_public_card_calls_no_preflight(strategy: str) -> None:
    class RecordingPreflight(ActionModule):
        was_called = False

        def preflight(self, inputs: Inputs, context: "Context[Any]") -> list[str]:
            RecordingPreflight.was_called = True
            return []

    with closing(
        Executor(registry_of({"a": RecordingPreflight(echo)}), strategy=strategy)
    ) as executor:
        async with serving(executor, auth=NameAuthenticator()) as peer:
            assert await skills_on(peer) == {"a"}
            assert not RecordingPreflight.was_called
