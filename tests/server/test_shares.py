"""Shares: one client cannot use up a limit that others share."""

import asyncio
import gc
import threading
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from apcore_a2a_server import Limits
from apcore_a2a_server.fields import OptionError
from apcore_a2a_server.modules.threads import (
    ThreadPool,
    ThreadPoolError,
    check_threads,
    value_thread,
)

from .checking_client import Answer
from .inloop import (
    DIALECTS,
    NEEDS_APPROVAL,
    ActionModule,
    Gate,
    Peer,
    StreamModule,
    SyncActionModule,
    echo,
    serving,
    wait_until,
)
from .inloop import anyio_backend as anyio_backend
from .modules import Inputs
from .principals import HeaderAuth

pytestmark = pytest.mark.anyio

ADA, BOB, CAT = ({"x-name": name} for name in ("ada", "bob", "cat"))
ADDRESSES = [{"x-forwarded-for": f"192.0.2.{number}"} for number in (1, 2)]
CLIENTS = [("principals", HeaderAuth(), (ADA, BOB)), ("addresses", None, ADDRESSES)]
each_kind_of_client = pytest.mark.parametrize(
    ("auth", "clients"), [kind[1:] for kind in CLIENTS], ids=[kind[0] for kind in CLIENTS]
)


async def send_as(peer: Peer, headers: Any, skill: str = "work", *, wait: bool = False) -> Answer:
    """Send a message for the client with these headers; do not wait for its task by default."""
    options = {"returnImmediately": not wait} if peer.wire.modern else {"blocking": wait}
    params = {**peer.wire.params(skill), "configuration": options}
    response = await peer.client.send(peer.request("send", params, headers))
    return Answer(response, peer.wire.restful)


def message_of(refusal: Answer) -> str:
    assert refusal.error
    message: str = refusal.error["message"]
    return message


async def statuses(peer: Peer, headers: Any, count: int, skill: str = "work") -> list[int]:
    return [(await send_as(peer, headers, skill)).response.status_code for _ in range(count)]


@each_kind_of_client
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_client_may_have_half_of_the_runs(dialect: str, auth: Any, clients: Any) -> None:
    gate, (first, second) = Gate(), clients
    async with serving({"work": ActionModule(gate)}, dialect, max_runs=4, auth=auth) as peer:
        assert await statuses(peer, first, 3) == [200, 200, 429]
        refused = await send_as(peer, first)
        assert message_of(refused) == "Too many tasks of this client are running"
        assert refused.response.headers["retry-after"] == "1"
        assert await statuses(peer, second, 2) == [200, 200]
        assert message_of(await send_as(peer, second)) == "Too many tasks are running"
        gate.opened.set()
        await wait_until(lambda: not peer.agent.engine.runs)
        assert await statuses(peer, first, 1) == [200]
        await wait_until(lambda: not peer.agent.engine.runs)
        assert not len(peer.agent.setup.capacity.runs)


@each_kind_of_client
async def test_a_client_may_have_half_of_the_streams(auth: Any, clients: Any) -> None:
    gate, (first, second) = Gate(), clients
    async with serving({"work": ActionModule(gate)}, max_streams=4, auth=auth) as peer:
        async with AsyncExitStack() as stack:
            params = peer.wire.params("work")
            for client in (first, first, second, second):
                await stack.enter_async_context(peer.streaming("stream", params, client))
            for client in (first, second):
                refused = await peer.client.send(peer.request("stream", params, client))
                assert refused.status_code == 429
            gate.opened.set()
        await wait_until(lambda: not len(peer.agent.handler.streams))


@each_kind_of_client
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_client_may_have_half_of_the_paused_tasks(
    dialect: str, auth: Any, clients: Any
) -> None:
    first, second = clients
    modules = {
        "pay": ActionModule(echo, annotations=NEEDS_APPROVAL),
        "work": ActionModule(echo),
    }
    async with serving(modules, dialect, max_tasks=4, auth=auth) as peer:
        paused = [(await send_as(peer, first, "pay", wait=True)).task["id"] for _ in range(2)]
        refused = await send_as(peer, first, "pay", wait=True)
        assert refused.response.status_code == 429
        assert message_of(refused) == "Too many tasks of this client wait for input"
        assert (await send_as(peer, first, "work", wait=True)).state == "completed"
        assert (await send_as(peer, second, "pay", wait=True)).state == "input-required"
        answer = peer.wire.params("pay", peer.part(text="yes"), taskId=paused[0])
        assert (await peer.ask("send", answer, first)).state == "completed"
        assert (await send_as(peer, first, "pay", wait=True)).state == "input-required"
        assert (await peer.ask("cancel", {"id": paused[1]}, first)).state == "canceled"
        assert (await send_as(peer, first, "pay", wait=True)).state == "input-required"
        assert (await send_as(peer, first, "pay", wait=True)).response.status_code == 429


async def test_a_client_may_have_half_of_the_paused_tasks_even_if_they_pause_at_once() -> None:
    modules = {"pay": ActionModule(echo, annotations=NEEDS_APPROVAL)}
    async with serving(modules, max_tasks=20, auth=HeaderAuth()) as peer:
        answers = await asyncio.gather(*(send_as(peer, ADA, "pay", wait=True) for _ in range(15)))
        assert sorted(answer.response.status_code for answer in answers) == [200] * 10 + [429] * 5


async def ask(inputs: Inputs, context: Any) -> Inputs:
    """Ask until the text is "yes"."""
    if inputs.get("text") != "yes":
        context.services.ask("What now?", field="text")
    return inputs


async def test_a_task_beyond_the_share_cannot_pause_but_a_paused_one_may_ask_again() -> None:
    async with serving({"ask": ActionModule(ask)}, max_tasks=2, auth=HeaderAuth()) as peer:
        first = (await send_as(peer, ADA, "ask", wait=True)).task
        failed = await send_as(peer, ADA, "ask", wait=True)
        assert failed.state == "failed"
        assert "Too many tasks of this client wait for input" in str(failed.task)
        for text, state in (("no", "input-required"), ("yes", "completed")):
            params = peer.wire.params("ask", peer.part(text=text), taskId=first["id"])
            assert (await peer.ask("send", params, ADA)).state == state
        assert (await send_as(peer, ADA, "ask", wait=True)).state == "input-required"


@pytest.mark.parametrize("share", [None, 1.0, 0.25])
async def test_the_share_of_a_client_is_configurable(share: float | None) -> None:
    gate, count = Gate(), 1 if share == 0.25 else 4
    async with serving(
        {"work": ActionModule(gate)}, max_runs=4, limits=Limits(client_share=share)
    ) as peer:
        assert await statuses(peer, {}, 5) == [200] * count + [429] * (5 - count)
        gate.opened.set()


@pytest.mark.parametrize("share", [0, -1, 1.01, float("nan"), "half", True])
def test_an_invalid_share_is_refused(share: Any) -> None:
    with pytest.raises(OptionError, match="client_share must be greater than 0 and at most 1"):
        Limits(client_share=share)


async def test_a_gateways_clients_have_shares_of_their_own() -> None:
    gate = Gate()
    options: Any = {
        "auth": HeaderAuth(),
        "client_key": lambda headers, identity: headers.get("x-user"),
    }
    async with serving({"work": ActionModule(gate)}, max_runs=4, **options) as peer:
        for user in ("one", "two"):
            assert await statuses(peer, {**ADA, "x-user": user}, 2) == [200, 200]
        gate.opened.set()


# Threads


class BlockingFunction:
    """A function for threads that records its callers, and waits until it is released."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.started: list[str] = []

    def __call__(self, name: str) -> str:
        self.started.append(name)
        assert self.release.wait(60)
        return name


@asynccontextmanager
async def calling(
    pool: ThreadPool, blocking: BlockingFunction
) -> AsyncIterator[Callable[[str], Any]]:
    """Yield a function that calls *blocking* for a client; release all calls at the end."""
    calls: list[asyncio.Task[Any]] = []

    def call(client: str) -> asyncio.Task[Any]:
        calls.append(asyncio.ensure_future(pool.run(blocking, client, client=client)))
        return calls[-1]

    try:
        yield call
    finally:
        blocking.release.set()
        await asyncio.gather(*calls, return_exceptions=True)


def count_each(names: Iterable[str]) -> dict[str, int]:
    return dict(Counter(names))


async def test_one_client_may_use_all_threads_but_another_still_gets_its_share() -> None:
    pool, blocking = ThreadPool(4, share=0.5), BlockingFunction()
    async with calling(pool, blocking) as call:
        for _ in range(9):
            call("ada")
        await wait_until(lambda: count_each(blocking.started) == {"ada": 4})
        for _ in range(3):
            call("bob")
        await wait_until(lambda: count_each(blocking.started) == {"ada": 4, "bob": 2})
        call("cat")
        await asyncio.sleep(0.1)  # time for more calls to start
        assert count_each(blocking.started) == {"ada": 4, "bob": 2}
    assert count_each(blocking.started) == {"ada": 9, "bob": 3, "cat": 1}


async def test_without_shares_one_client_may_take_all_threads() -> None:
    pool, blocking = ThreadPool(4), BlockingFunction()
    async with calling(pool, blocking) as call:
        for name in ("ada", "ada", "ada", "ada", "bob"):
            call(name)
        await asyncio.sleep(0.1)  # time for more calls to start
        assert count_each(blocking.started) == {"ada": 4}


async def test_clients_take_turns_when_their_calls_wait() -> None:
    pool, order = ThreadPool(1, share=0.5), list[str]()
    blocking = BlockingFunction()
    async with calling(pool, blocking) as call:
        call("ada")
        await wait_until(lambda: blocking.started)
        names = ["ada"] * 4 + ["bob"] * 2 + ["cat"]
        calls = [asyncio.ensure_future(pool.run(order.append, n, client=n)) for n in names]
        await asyncio.sleep(0)  # let all calls start to wait
        blocking.release.set()
        await asyncio.gather(*calls)
    assert order == ["ada", "bob", "cat", "ada", "bob", "ada", "ada"]


async def test_a_call_for_which_the_system_has_no_thread_is_refused_and_leaves_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool = ThreadPool(1)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        for _ in range(2):
            with pytest.raises(ThreadPoolError, match="no more threads"):
                await asyncio.wait_for(pool.run(str, 1), 5)
    assert (pool.running, pool.stuck) == (0, 0)
    assert await pool.run(str, 1) == "1"


async def test_a_call_that_is_canceled_while_it_waits_never_starts() -> None:
    pool, blocking = ThreadPool(1), BlockingFunction()
    async with calling(pool, blocking) as call:
        call("ada")
        await wait_until(lambda: blocking.started)
        waiting = call("bob")
        await asyncio.sleep(0)
        waiting.cancel()
        call("cat")
    assert blocking.started == ["ada", "cat"]


async def test_a_call_that_is_canceled_while_it_waits_releases_its_arguments() -> None:
    pool, blocking = ThreadPool(1), BlockingFunction()
    async with calling(pool, blocking) as call:
        call("ada")
        await wait_until(lambda: blocking.started)
        argument = BlockingFunction()
        argument_ref = weakref.ref(argument)
        waiting = asyncio.ensure_future(pool.run(print, argument, client="ada"))
        await asyncio.sleep(0)  # the call is waiting now
        waiting.cancel()
        await asyncio.wait([waiting])
        del argument, waiting
        gc.collect()
        assert argument_ref() is None


async def test_a_client_whose_threads_are_stuck_does_not_keep_others_out() -> None:
    release, started = threading.Event(), threading.Semaphore(0)

    def hang(inputs: Inputs, context: Any) -> Inputs:
        started.release()
        if inputs.get("hang"):
            release.wait(60)
        return {}

    modules = {"work": SyncActionModule(hang)}
    async with serving(modules, max_threads=2, auth=HeaderAuth()) as peer:
        hanging_params = peer.wire.params("work", peer.part(data={"hang": True}))
        options = {"configuration": {"returnImmediately": True}}
        try:
            for _ in range(2):
                task_id = (await peer.ask("send", {**hanging_params, **options}, ADA)).task["id"]
                await asyncio.to_thread(started.acquire)
                assert (await peer.ask("cancel", {"id": task_id}, ADA)).state == "canceled"
            assert (
                await peer.ask("send", {**hanging_params, **options}, ADA)
            ).response.status_code == 429
            quick_params = peer.wire.params("work", peer.part(data={}))
            assert (await peer.ask("send", quick_params, BOB)).state == "completed"
            assert (await peer.ask("send", quick_params, CAT)).state == "completed"
        finally:
            release.set()
        await wait_until(lambda: peer.agent.setup.threads.stuck == 0)
        assert (await peer.ask("send", quick_params, ADA)).state == "completed"


async def test_busy_modules_of_one_client_do_not_keep_others_from_starting() -> None:
    release, started = threading.Event(), list[str]()

    def compute(name: str) -> None:
        started.append(name)
        while not release.is_set():
            sum(range(1000))

    pool = ThreadPool(50, 2, share=0.5)
    calls = [asyncio.ensure_future(pool.run(compute, "ada", client="ada")) for _ in range(20)]
    try:
        await wait_until(lambda: len(started) >= 2)
        await asyncio.sleep(0.1)  # time for the pool to find out that they compute
        calls.append(asyncio.ensure_future(pool.run(compute, "bob", client="bob")))
        await wait_until(lambda: "bob" in started)
        assert len(started) < 20
    finally:
        release.set()
        await asyncio.gather(*calls)


async def test_clients_take_turns_at_slow_checks() -> None:
    order, releases = list[str](), [threading.Event(), threading.Event()]
    both_started = threading.Barrier(3)
    # a pattern that only Python's `re` supports, which makes its check slow
    only_python = {"type": "string", "pattern": r"(?P<x>^)\w+\Z"}

    async def serve(inputs: Inputs, context: Any) -> Inputs:
        order.append(inputs["text"])
        return inputs

    def hold_thread(release: threading.Event) -> None:
        both_started.wait()
        release.wait()

    schema = {"type": "object", "properties": {"text": only_python}}
    async with serving(
        {"work": ActionModule(serve, input_schema=schema)}, auth=HeaderAuth()
    ) as peer:
        calls: list[asyncio.Future[Any]] = []
        await wait_until(lambda: not check_threads.pending)  # checks of other tests
        for release in releases:
            calls.append(asyncio.ensure_future(check_threads.call(hold_thread, release)))
        await asyncio.to_thread(both_started.wait)
        try:
            for name in ["ada"] * 3 + ["bob", "cat"]:
                params = peer.wire.params("work", peer.part(data={"text": name}))
                calls.append(asyncio.ensure_future(peer.ask("send", params, {"x-name": name})))
                await wait_until(lambda: check_threads.pending == len(calls))
            releases[0].set()  # the other thread stays busy, so that one check is made at a time
            await asyncio.gather(calls[0], *calls[2:])
        finally:
            releases[1].set()
            await asyncio.gather(*calls, return_exceptions=True)
    assert order == ["ada", "bob", "cat", "ada", "ada"]


MANY_VALUES = {f"n{number}": number for number in range(1500)}


@pytest.mark.parametrize(
    "content", [{"text": "a" * 100_000}, {"data": MANY_VALUES}], ids=["size", "count"]
)
async def test_clients_take_turns_at_large_values(content: Any) -> None:
    order, release = list[str](), threading.Event()

    async def serve(inputs: Inputs, context: Any) -> None:
        order.append(context.identity.id)

    async with serving({"work": ActionModule(serve, input_schema={})}, auth=HeaderAuth()) as peer:
        calls: list[asyncio.Future[Any]] = [asyncio.ensure_future(value_thread.call(release.wait))]
        try:
            for name in ["ada"] * 3 + ["bob"]:
                params = peer.wire.params("work", peer.part(**content))
                calls.append(asyncio.ensure_future(peer.ask("send", params, {"x-name": name})))
                await wait_until(lambda: value_thread.pending == len(calls))
        finally:
            release.set()
            await asyncio.gather(*calls)
    assert order.index("bob") <= 1


class BlockingPreflight(ActionModule):
    """A module that needs approval; its preflight records the text and waits for the release."""

    def __init__(self) -> None:
        super().__init__(echo, annotations=NEEDS_APPROVAL)
        self.checked: list[str] = []
        self.released = threading.Event()

    def preflight(self, inputs: Inputs, context: Any) -> list[str]:
        self.checked.append(inputs["text"])
        assert self.released.wait(60)
        return []


async def test_clients_take_turns_at_checks_before_approval() -> None:
    module = BlockingPreflight()
    async with serving({"work": module}, auth=HeaderAuth()) as peer:
        calls = list[asyncio.Task[Answer]]()
        for name in ["ada"] * 4 + ["bob", "cat"]:
            params = peer.wire.params("work", peer.part(data={"text": name}))
            calls.append(asyncio.create_task(peer.ask("send", params, {"x-name": name})))
            await wait_until(lambda: len(peer.agent.engine.runs) == len(calls) and module.checked)
        module.released.set()
        for call in calls:
            assert (await call).state == "input-required"
    assert module.checked == ["ada", "ada", "bob", "cat", "ada", "ada"]


async def test_a_check_that_outlasts_its_call_is_still_the_only_one() -> None:
    module = BlockingPreflight()
    async with serving({"work": module}, execution_timeout=0.2) as peer:
        for _ in range(2):
            answer = await peer.send("work", peer.part(data={"text": "a"}))
            assert answer.error or answer.state == "failed"
            assert module.checked == ["a"]
            assert peer.agent.setup.access.is_validating
        module.released.set()
        await wait_until(lambda: not peer.agent.setup.access.is_validating)
        answer = await peer.send("work", peer.part(data={"text": "b"}))
        assert answer.state == "input-required"
    assert module.checked == ["a", "b"]


async def test_streams_that_pause_release_their_slots() -> None:
    async def source(inputs: Inputs, context: Any) -> AsyncIterator[Any]:
        yield {"n": 1}
        context.services.ask("And?")

    async with serving({"work": StreamModule(source)}, max_tasks=4, auth=HeaderAuth()) as peer:
        for _ in range(2):
            async with peer.streaming("stream", peer.wire.params("work"), ADA) as stream:
                last = (await stream.rest())[-1]
                assert last.state == "input-required"
        await wait_until(lambda: len(peer.agent.setup.capacity.paused) == 2)
        assert not len(peer.agent.handler.streams)
