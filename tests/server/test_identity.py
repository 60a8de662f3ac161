"""Who calls: what modules learn of it, and what rules of all makes decide by it."""

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

from .asking import Json, state_of
from .inloop import (
    NEEDS_APPROVAL,
    WAYS,
    Does,
    DoesInThread,
    Peer,
    Streams,
    contents,
    give_back,
    registry_of,
    serving,
)
from .inloop import anyio_backend as anyio_backend
from .modules import SECRET, Inputs
from .test_extended_card import (
    EXTENDED,
    PEOPLE,
    Known,
    acting,
    agent,
    callable_by,
    rule,
    shown,
    shown_to,
)

pytestmark = [pytest.mark.anyio, pytest.mark.rotating("peer")]

CALLERS = 8


class Claims:
    """Makes an identity of what headers say."""

    async def authenticate(self, headers: Mapping[str, str]) -> Identity | None:
        await asyncio.sleep(0)
        name, roles = headers.get("x-name"), headers.get("x-roles", "").split()
        return Identity(name, "service", tuple(roles), {"team": f"of {name}"}) if name else None


def headers_of(name: str, *roles: str) -> Json:
    return {"x-name": name, "x-roles": " ".join(roles)}


def facts(name: str, *roles: str) -> Json:
    """What modules tell of who has these headers."""
    return {"id": name, "type": "service", "roles": [*roles], "attrs": {"team": f"of {name}"}}


def tell(inputs: Inputs, context: "Context[Any]") -> Inputs:
    """All that a module knows of who calls it."""
    who = context.identity
    if who is None:
        return {"id": None}
    return {"id": who.id, "type": who.type, "roles": [*who.roles], "attrs": dict(who.attrs)}


async def tell_later(inputs: Inputs, context: "Context[Any]") -> Inputs:
    await asyncio.sleep(0)
    return tell(inputs, context)


async def tell_twice(inputs: Inputs, context: "Context[Any]") -> AsyncIterator[Inputs]:
    for _ in range(2):
        yield await tell_later(inputs, context)


async def ask(inputs: Inputs, context: "Context[Any]") -> Inputs:
    """Tell it when more has been said."""
    if "more" not in inputs:
        context.services.ask("And?")
    return tell(inputs, context)


async def hand_on(inputs: Inputs, context: "Context[Any]") -> Any:
    executor: Any = context.executor
    return await executor.call_async(inputs["to"], {"to": "async"}, context)


def hand_on_in_thread(inputs: Inputs, context: "Context[Any]") -> Any:
    executor: Any = context.executor
    return executor.call(inputs["to"], {"to": "async"}, context)


MODULES = {
    "async": Does(tell_later),
    "thread": DoesInThread(tell),
    "nested": Does(hand_on),
    "nested.thread": DoesInThread(hand_on_in_thread),
    "asks": Does(ask),
    "guarded": Does(tell_later, annotations=NEEDS_APPROVAL),
}
PATHS = [
    ("async", ""),
    ("thread", ""),
    ("nested", "async"),
    ("nested", "thread"),
    ("nested", "nested.thread"),
    ("nested.thread", "async"),
    ("nested.thread", "nested"),
]
"""A module, and one that it calls, which may call another one."""


@pytest.fixture(params=WAYS)
async def peer(request: pytest.FixtureRequest) -> AsyncIterator[Peer]:
    modules = {**MODULES, "streaming": Streams(tell_twice)}
    with closing(Executor(registry_of(modules))) as executor:
        async with serving(executor, request.param, auth=Claims()) as peer:
            yield peer


async def sent(peer: Peer, headers: Json, skill: str, inputs: Json, **members: Any) -> Json:
    """The task of a message that is sent by somebody."""
    params = peer.wire.params(skill, peer.part(data=inputs), **members)
    return (await peer.ask("send", params, headers)).task


async def streamed(peer: Peer, headers: Json, skill: str, inputs: Json) -> list[Any]:
    """What the chunks of a message's stream hold."""
    params = peer.wire.params(skill, peer.part(data=inputs))
    async with peer.streaming("stream", params, headers) as stream:
        return [part async for frame in stream if frame.kind == "artifact" for part in frame.parts]


@pytest.mark.parametrize(("skill", "to"), PATHS)
async def test_a_module_knows_who_calls(peer: Peer, skill: str, to: str) -> None:
    headers, expected = headers_of("ada", "admin", "staff"), facts("ada", "admin", "staff")
    assert contents(await sent(peer, headers, skill, {"to": to})) == [expected]
    assert await streamed(peer, headers, skill, {"to": to}) == [expected]


async def test_a_stream_knows_who_calls_in_each_chunk(peer: Peer) -> None:
    assert await streamed(peer, headers_of("ada"), "streaming", {}) == [facts("ada")] * 2


@pytest.mark.parametrize("skill", ["asks", "guarded"])
async def test_a_call_that_goes_on_knows_who_has_answered(peer: Peer, skill: str) -> None:
    paused = await sent(peer, headers_of("ada", "old"), skill, {"first": 1})
    assert state_of(paused) == "input-required"
    answer = {"more": 1, "approved": True}
    done = await sent(peer, headers_of("ada", "new"), skill, answer, taskId=paused["id"])
    assert contents(done) == [facts("ada", "new")]


@pytest.mark.parametrize("way", WAYS)
async def test_without_authentication_nobody_is_known(way: str) -> None:
    async with serving({**MODULES, "streaming": Streams(tell_twice)}, way) as peer:
        for skill, to in PATHS:
            assert contents(await sent(peer, headers_of("ada"), skill, {"to": to})) == [
                {"id": None}
            ]
        assert await streamed(peer, headers_of("ada"), "streaming", {}) == [{"id": None}] * 2


@pytest.mark.parametrize("way", WAYS)
async def test_callers_at_the_same_time_are_never_mixed_up(way: str) -> None:
    """All of them are within the module at once, before it looks who calls, and behind that."""
    meeting, meeting_of_threads = asyncio.Barrier(CALLERS), threading.Barrier(CALLERS)

    async def meet(inputs: Inputs, context: "Context[Any]") -> Inputs:
        await meeting.wait()
        return tell(inputs, context)

    async def meet_twice(inputs: Inputs, context: "Context[Any]") -> AsyncIterator[Inputs]:
        for _ in range(2):
            yield await meet(inputs, context)

    def meet_in_thread(inputs: Inputs, context: "Context[Any]") -> Inputs:
        meeting_of_threads.wait(10)
        return tell(inputs, context)

    modules = {"async": Does(meet), "thread": DoesInThread(meet_in_thread), "nested": Does(hand_on)}
    names = [f"caller-{number}" for number in range(CALLERS)]
    async with serving({**modules, "streaming": Streams(meet_twice)}, way, auth=Claims()) as peer:
        for skill, to in (("async", ""), ("thread", ""), ("nested", "async")):
            calls = [sent(peer, headers_of(name), skill, {"to": to}) for name in names]
            found = [contents(task) for task in await asyncio.gather(*calls)]
            assert found == [[facts(name)] for name in names]
        streams = [streamed(peer, headers_of(name), "streaming", {}) for name in names]
        assert await asyncio.gather(*streams) == [[facts(name)] * 2 for name in names]


# Rules of another make


class Checks:
    """An ACL that has nothing but `check`."""

    def __init__(self, *answers: Any) -> None:
        self._answers = answers

    def check(self, caller: str | None, target: str, context: Context[Any]) -> Any:
        return self._answers[target == "text.stats" and context.identity is PEOPLE["bob"]]


@pytest.mark.parametrize(
    "answers",
    [(False, True), (None, True), (0, 1)],
)
async def test_an_acl_needs_no_more_than_check(answers: Any) -> None:
    async with agent(Checks(*answers), auth=Known()) as peer, acting(peer, "bob") as bob:
        assert await shown(peer) == set()
        assert await shown(bob, EXTENDED) == await callable_by(bob) == {"text.stats"}
        assert await shown_to(peer, "ada") == [set()]


async def test_an_acl_that_raises_hides_everything() -> None:
    class Broken(Checks):
        def check(self, caller: str | None, target: str, context: Context[Any]) -> Any:
            raise RuntimeError(SECRET)

    async with agent(Broken(), auth=Known()) as peer:
        assert await shown(peer) == set()
        assert await shown_to(peer, "ada", "bob") == [set(), set()]


class Other:
    """An executor of another make, which knows two skills and whom they are for."""

    def __init__(self) -> None:
        self.registry = registry_of({"text.stats": Does(give_back), "lab": Does(give_back)})

    def validate(self, module_id: str, inputs: Any = None, context: Any = None) -> Any:
        passed = module_id == "text.stats" or context.identity is PEOPLE["ada"]
        checks = [SimpleNamespace(check="acl", passed=passed)]
        return SimpleNamespace(valid=passed, checks=checks, errors=[])

    async def call_async(self, module_id: str, inputs: Any = None, context: Any = None) -> Any:
        return inputs

    async def stream(self, module_id: str, inputs: Any = None, context: Any = None) -> Any:
        yield inputs


async def test_an_executor_of_another_make_is_asked_by_validate() -> None:
    async with serving(Other(), auth=Known()) as peer:
        assert await shown(peer) == {"text.stats"}
        assert await shown_to(peer, "ada", "bob") == [{"lab", "text.stats"}, {"text.stats"}]
        async with acting(peer, "bob") as bob:
            assert (await bob.send("lab")).code == -32001
            assert (await bob.send("text.stats")).state == "completed"


# Where cards and calls must agree


class Gate(BaseStep):
    """A user's own step in the place of apcore's, which is passed over in dry runs."""

    def __init__(self) -> None:
        super().__init__("acl_check", "", removable=True, replaceable=True, pure=False)

    async def execute(self, ctx: Any) -> StepResult:
        if ctx.module_id == "b":
            raise ACLDeniedError(None, ctx.module_id)
        return StepResult(action="continue")


class StricterCheck(BuiltinACLCheck):
    """apcore's step, and a rule of its own."""

    async def execute(self, ctx: Any) -> StepResult:
        await Gate().execute(ctx)
        return await super().execute(ctx)


def plain(**options: Any) -> Executor:
    return Executor(registry_of({"a": Does(give_back), "b": Does(give_back)}), **options)


def ruled(**conditions: Any) -> Executor:
    return plain(acl=ACL([rule("a"), rule("b", conditions)], default_effect="deny"))


def refusing(**conditions: Any) -> Executor:
    denial = rule("b", conditions, effect="deny")
    return plain(acl=ACL([denial, rule("*")], default_effect="deny"))


def gated(step: BaseStep) -> Executor:
    executor = plain()
    executor.current_strategy.replace("acl_check", step)
    return executor


def disabled() -> Executor:
    toggles = ToggleState()
    toggles.disable("b")
    return plain(toggle_state=toggles)


CASES = {
    "rules, asked without arguments, do not grant": partial(
        ruled, arguments={"has_none_of": ["force"]}
    ),
    "rules, asked without arguments, deny": partial(refusing, arguments={"has_key": ["force"]}),
    "a call is one deep, and the question is not": partial(ruled, max_call_depth=0),
    "the step that decides is taken for apcore's": partial(gated, StricterCheck()),
    "a module that is switched off is on the cards": disabled,
}
DIFFERING = [pytest.param(make, id=why) for why, make in CASES.items()]


@pytest.mark.parametrize("make", [plain, ruled, refusing, *DIFFERING])
async def test_a_card_shows_just_what_calls_are_not_refused_by(make: Any) -> None:
    with closing(make()) as executor:
        async with serving(executor, auth=Known()) as peer, acting(peer, "bob") as bob:
            called = {skill for skill in ("a", "b") if (await bob.send(skill)).code is None}
            assert await shown(bob, EXTENDED) == called


class Unsaid(Known):
    """Says nothing of how it knows people."""

    def security_schemes(self) -> Json:
        return {}


def guarded(annotations: Any, metadata: Any = None, **options: Any) -> Executor:
    """An executor that asks before it calls `b`."""
    registry = registry_of({"a": Does(give_back)})
    module = Does(give_back, annotations=annotations)
    registry.register("b", module, metadata={"annotations": metadata or {}})
    return Executor(registry, **options)


ASKS, LETS = {"requires_approval": True}, {"requires_approval": False}
DESTRUCTIVE, POLICY = ModuleAnnotations(destructive=True), ExecutionPolicy(gate_destructive=True)
EITHER, RULED = "the gate asks when either says so", "the executor's policy is not asked"


@pytest.mark.parametrize(
    ("make", "auth"),
    [
        (partial(guarded, NEEDS_APPROVAL), Known()),
        (partial(guarded, ASKS), Known()),
        (partial(guarded, None, ASKS), Known()),
        pytest.param(partial(guarded, ASKS), Unsaid()),
        pytest.param(partial(guarded, ASKS, LETS), Known()),
        pytest.param(partial(guarded, DESTRUCTIVE, policy=POLICY), Known()),
    ],
)
async def test_what_is_asked_about_before_it_runs_is_not_for_strangers(
    make: Any, auth: Known
) -> None:
    with closing(make()) as executor:
        async with serving(executor, auth=auth) as peer, acting(peer, "bob") as bob:
            assert (await bob.send("b")).state == "input-required"
            assert await shown(bob, EXTENDED) == {"a", "b"}
            assert await shown(peer) == {"a"}


@pytest.mark.parametrize("strategy", ["internal", "minimal", "testing"])
async def test_no_module_runs_for_a_card(strategy: str) -> None:
    class Noting(Does):
        noted = False

        def preflight(self, inputs: Inputs, context: "Context[Any]") -> list[str]:
            Noting.noted = True
            return []

    with closing(Executor(registry_of({"a": Noting(give_back)}), strategy=strategy)) as executor:
        async with serving(executor, auth=Known()) as peer:
            assert await shown(peer) == {"a"}
            assert not Noting.noted
