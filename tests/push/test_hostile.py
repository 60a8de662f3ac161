"""Malicious receivers, stores and URLs must not affect other principals, tasks or hosts."""

import asyncio
import logging
import random
import re
import socket
import statistics
import threading
import time
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any
from uuid import uuid4

import pytest
from apcore_a2a_core.data import Task
from apcore_a2a_core.states import COMPLETED
from apcore_a2a_server import InMemoryTaskStore
from apcore_a2a_server.push import PushSettings
from apcore_a2a_server.push.push import Push
from apcore_a2a_server.push.queue import PER_HOST, PER_OWNER
from apcore_a2a_server.push.signing import notification_body, notification_id
from apcore_a2a_server.push.transport import WebhookResponse
from apcore_a2a_server.store import Notification
from apcore_a2a_server.store import outbox as outbox_module

from tests.client.raw import flood, head, raw, reply
from tests.server.conftest import eventually
from tests.server.inloop import ActionModule, app_of, echo, registry_of, serving, wait_until
from tests.server.inloop import anyio_backend as anyio_backend
from tests.server.principals import ADA, HeaderAuth
from tests.server.test_custom_stores import DictStore
from tests.server.test_push_stores import HOOK, MODULES, QUICK, approve, ask
from tests.serving import PATIENCE, running

from .agents import Caller, HeldModule, agent
from .bench import bench, hook
from .posting import HERE, NAME, FakeResolver, port_of, posting
from .receiver import Delivery, Json, Reply, receiving

pytestmark = pytest.mark.anyio

TOKEN = "open-sesame"
SILENT = Reply(silent=True)
TOO_MANY = "too many pending notifications"


@contextmanager
def serving_principals(work: Any = echo, **settings: Any) -> Iterator[tuple[str, Push]]:
    """Run an agent that authenticates its callers; yield its URL and its `Push`."""
    push = PushSettings(**{"dev": True, **settings})
    modules = registry_of({"work": ActionModule(work)})
    app = app_of(modules, auth=HeaderAuth(), metrics=True, push_notifications=push)
    with running(app) as url:
        yield url, app.state.agent.push


def leftovers_in(push: Push) -> list[Any]:
    """Return the remains of notifications in the outbox and the queue."""
    outbox, queue = outbox_of(push), push.queue
    in_outbox = (
        outbox._queues,
        outbox._due,
        outbox._pending,
        outbox._bytes_of,
        outbox._tasks_with_failures,
    )
    return [
        remains
        for remains in (*in_outbox, queue._deliveries, queue._owner_counts, queue._host_counts)
        if remains
    ]


def outbox_of(push: Push) -> outbox_module.Outbox:
    """Return the outbox of an agent with tasks in memory."""
    store = push.queue._store
    assert isinstance(store, InMemoryTaskStore)
    return store._outbox


def caller_named(url: str, name: str) -> "closing[Caller]":
    """Return a client that calls as the principal *name*."""
    caller = Caller(url, HeldModule())
    caller._http.headers.update({**ADA, "x-name": name})
    return closing(caller)


# Receivers

MAX_SLOWDOWN = 100
"""Maximum factor by which a flood may slow down the median answer."""
FLOODS: dict[str, tuple[bytes, bytes]] = {
    "interim responses": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 8000),
    "chunks": (head(transfer_encoding="chunked"), b"1\r\nx\r\n" * 20000),
}


@pytest.mark.clock
# the receivers are threads of the agent's process, and their Python code is slow under coverage
@pytest.mark.usefixtures("short_turns", "without_coverage")
@pytest.mark.parametrize("name", FLOODS)
def test_attempts_with_endless_answers_end_and_do_not_block_the_agent(name: str) -> None:
    times: list[float] = []

    def measure_health() -> float:
        started_at = time.monotonic()
        assert caller._http.get("/health").status_code == 200
        return time.monotonic() - started_at

    with (
        raw(lambda _: flood(*FLOODS[name])) as server,
        agent(retries=[0]) as caller,
    ):
        before = statistics.median(measure_health() for _ in range(20))
        for _ in range(2 * PER_HOST):  # enough to measure
            caller.send(wait=False, url=server.url)
        assert caller.metrics()["webhooks_pending"]
        deadline = time.monotonic() + 2 * PATIENCE
        while caller.metrics()["webhooks_pending"]:
            times.append(measure_health())
            assert time.monotonic() < deadline
        assert server.connections >= PER_HOST
    assert times
    assert statistics.median(times) < MAX_SLOWDOWN * before


def test_silent_receivers_of_many_principals_do_not_delay_other_principals() -> None:
    count, hosts = 5, PER_OWNER // PER_HOST
    with ExitStack() as stack:
        silent = [  # connections are accepted, but never read
            stack.enter_context(socket.create_server((f"127.0.0.{n + 1}", 0), backlog=1024))
            for n in range(hosts)
        ]
        urls = ["http://{}:{}/".format(*sock.getsockname()) for sock in silent]
        receiver = stack.enter_context(receiving())
        url, push = stack.enter_context(serving_principals(timeout=PATIENCE * 2))
        for n in range(count):
            eve = stack.enter_context(caller_named(url, f"eve{n}"))
            for number in range(PER_OWNER):
                eve.send("work", wait=False, url=urls[number % hosts])
        eventually(lambda: len(push.queue._deliveries) == count * PER_OWNER)
        ada = stack.enter_context(caller_named(url, "ada"))
        ada.send("work", wait=False, url=receiver.url)
        receiver.wait(3, 2)


def test_a_long_retry_after_does_not_delay_shutdown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    busy = Reply(503, {"retry-after": "3600"})
    with receiving(lambda delivery: busy) as receiver:
        with agent({"shutdown_timeout": 2 * PATIENCE}, retries=[600, 600]) as caller:
            task = caller.send(id="c", url=receiver.url)
            eventually(lambda: caller.metrics()["webhooks_retried"] == 1)
        assert len(receiver) == 2  # at shutdown the retry is due at once
    name = f"webhook c of task {task['id']} at 127.0.0.1"
    assert f"3 notifications for {name} are lost: the server is shutting down" in caplog.messages


def test_the_pending_notifications_of_a_principal_are_limited_in_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outbox_module, "MAX_BYTES_PER_OWNER", 10_000)
    with ExitStack() as stack:
        dead = stack.enter_context(receiving(lambda delivery: SILENT))
        good = stack.enter_context(receiving())
        url, push = stack.enter_context(serving_principals(timeout=0.5, retries=[60]))
        eve, ada = (stack.enter_context(caller_named(url, name)) for name in ("eve", "ada"))
        tasks = [eve.send("work", url=dead.url)]
        store = push.queue._store
        while store.backlog.pending == 3 * len(tasks):  # no notification was given up
            assert len(tasks) < 50  # far fewer than `max_pending` allows
            tasks.append(eve.send("work", url=dead.url))
        eventually(lambda: eve.config(tasks[-1])["status"] == "failed")
        assert eve.config(tasks[-1])["reason"] == TOO_MANY
        assert eve.config(tasks[0])["status"] == "active"
        assert max(outbox_of(push)._bytes_of.values()) <= 10_000
        ada.send("work", url=good.url)
        good.wait(3)


# Stores


async def test_a_store_that_hangs_for_one_task_does_not_delay_other_tasks() -> None:
    class Hanging(DictStore):
        def __init__(self) -> None:
            super().__init__()
            self.task, self.reached, self.gate = "", asyncio.Event(), asyncio.Event()

        async def save_push_config(self, task_id: str, config: Any) -> None:
            if task_id == self.task:
                self.reached.set()
                await self.gate.wait()
            await super().save_push_config(task_id, config)

    store = Hanging()
    async with serving(MODULES, task_store=store, push_notifications=QUICK) as peer:
        hanging_task, other_task, third_task = [
            (await peer.send("pay")).task["id"] for _ in range(3)
        ]
    store.task = hanging_task
    async with serving(MODULES, task_store=store, push_notifications=QUICK) as peer:
        hanging_call = asyncio.create_task(ask(peer, "push set", hanging_task, **HOOK))
        await store.reached.wait()
        async with asyncio.timeout(PATIENCE):
            assert (await ask(peer, "push set", other_task, **HOOK))[0] is None
            assert (await peer.ask("cancel", {"id": other_task})).state == "canceled"
            assert (await approve(peer, third_task))["status"]["state"] == "TASK_STATE_COMPLETED"
        assert not hanging_call.done()
        store.gate.set()
        assert (await hanging_call)[0] is None


async def test_an_invalid_url_in_the_store_fails_its_webhook_but_no_task(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    store, broken = DictStore(), hook("https://[oops", token=TOKEN)
    async with serving(MODULES, task_store=store, push_notifications=QUICK) as peer:
        tasks = [(await peer.send("pay")).task["id"] for _ in range(2)]
        for task in tasks:
            assert (await ask(peer, "push set", task, **{**HOOK, "token": TOKEN}))[0] is None
            store.configs[task].url = broken.config.url
    async with serving(MODULES, task_store=store, push_notifications=QUICK) as peer:
        assert (await approve(peer, tasks[0]))["status"]["state"] == "TASK_STATE_COMPLETED"
        assert (await peer.ask("cancel", {"id": tasks[1]})).state == "canceled"
        # a custom store keeps the failure in the config's `tenant`
        await wait_until(lambda: all("not allowed" in store.configs[task].tenant for task in tasks))
    async with posting(dev=True) as post:
        refused = await post(broken.config.url)
        assert refused == WebhookResponse(0, "its address is not allowed", kind="not_allowed")
    async with bench(broken, retries=()) as queue_bench:
        (await queue_bench.transport.next()).answer.set_result(refused)
        await wait_until(lambda: not queue_bench.leftovers())
        assert await queue_bench.failures() == {"c1": "its address is not allowed"}
    assert TOKEN not in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    pending = Notification("t", "ada", 1, Task(), broken, 1)
    assert TOKEN not in f"{broken!r} {pending!r} {queue_bench.queue!r}"


async def test_a_notification_that_cannot_be_built_fails_its_webhook_but_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench(hook(name="c1"), hook(name="c2"), retries=()) as queue_bench:
        await queue_bench.transport.answer(200, 200)

        def broken(notification: Notification, task: Task) -> bytes:
            if notification.webhook.config.id == "c1":
                raise ValueError
            return notification_body(notification, task)

        monkeypatch.setattr("apcore_a2a_server.push.sender.notification_body", broken)
        await queue_bench.change_state(COMPLETED)
        await queue_bench.transport.answer(200)
        await wait_until(lambda: not queue_bench.leftovers())
        assert await queue_bench.failures() == {"c1": "internal error", "c2": ""}
    assert "can't be encoded" in caplog.text


# Proxies, addresses and paths


async def test_the_credentials_of_a_proxy_are_sent_to_it_and_not_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    basic = b64encode(b"user:pass!").decode()
    with raw(lambda request: reply(b"", 403 if request.method == "CONNECT" else 200)) as proxy:
        address = proxy.url.replace("//", "//user:pass%21@")
        async with posting(dev=True, proxy=address) as post:
            assert (await post(f"http://{NAME}/hook;p=1?q=2")).status == 200
            assert (await post(f"https://{NAME}/hook")).status == 0
    requests = [(request.method, request.path) for request in proxy.requests]
    assert requests == [("POST", f"http://{NAME}/hook;p=1?q=2"), ("CONNECT", f"{NAME}:443")]
    credentials = [request.headers["proxy-authorization"] for request in proxy.requests]
    assert credentials == [f"Basic {basic}"] * 2
    output = f"{caplog.text} {PushSettings(proxy=address)!r}"
    assert not [text for text in ("pass%21", "pass!", basic) if text in output]


async def test_an_address_that_does_not_accept_connections_leaves_time_for_the_next() -> None:
    with ExitStack() as stack:
        server = stack.enter_context(raw(lambda _: reply()))
        hole = stack.enter_context(closing(socket.socket()))
        hole.bind(("127.0.0.2", port_of(server)))
        hole.listen(0)
        for _ in range(4):  # until the backlog of `hole` is full
            caller = stack.enter_context(closing(socket.socket()))
            caller.setblocking(False)
            with suppress(BlockingIOError):
                caller.connect(hole.getsockname())
        resolver = FakeResolver(["127.0.0.2", HERE])
        async with posting(resolver, dev=True, timeout=2) as post:
            assert (await post(f"http://{NAME}:{port_of(server)}/")).status == 200
    assert len(server.requests) == 1


PATHS = {
    "/hook;key=1": "/hook;key=1",
    "/a;b/c;d=e?x=1;y=2&z": "/a;b/c;d=e?x=1;y=2&z",
    "?q": "/?q",
    "": "/",
    "/?": "/",
    "/%2e%2e/x//y/../z%20": "/%2e%2e/x//y/../z%20",
    "/a?b?c;d#e": "/a?b?c;d",
}


async def test_path_parameters_and_query_arrive_unchanged() -> None:
    with raw(lambda _: reply()) as server:
        async with posting(dev=True) as post:
            assert [(await post(server.url + path)).status for path in PATHS] == [200] * 7
    assert [request.path for request in server.requests] == [*PATHS.values()]
    host = server.url.removeprefix("http://")
    assert {request.headers["host"] for request in server.requests} == {host}


# Random operations


class RandomReceiver:
    """Receiver that randomly answers well or badly, and records accepted notifications."""

    def __init__(self, seed: int) -> None:
        self.accepted: dict[str, list[str]] = defaultdict(list)
        self._random, self._lock = random.Random(seed), threading.Lock()

    def __call__(self, delivery: Delivery) -> Reply:
        with self._lock:
            choice, delay = self._random.random(), self._random.random() * 0.1
        if choice < 0.15:
            time.sleep(delay)
        bad_replies = (
            (0.08, Reply(500)),
            (0.1, Reply(503, {"retry-after": "0"})),
            (0.105, Reply(410)),
        )
        for bound, chosen_reply in (*bad_replies, (0.13, Reply(cut=b""))):
            if choice < bound:
                return chosen_reply
        with self._lock:
            self.accepted[delivery.headers["x-a2a-notification-token"]].append(delivery.id)
        return Reply()


class RandomClient:
    """Client that performs random operations on its tasks."""

    def __init__(self, caller: Caller, urls: list[str], seed: int) -> None:
        self.hooks: list[tuple[str, str]] = []
        """Task id and config id of each webhook."""
        self.touched: set[str] = set()
        """Config ids of webhooks that were added late, or deleted."""
        self._caller, self._urls, self._random = caller, urls, random.Random(seed)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self._step()
            time.sleep(self._random.random() * 0.03)

    def _step(self) -> None:
        choice = self._random.random()
        if choice < 0.4 or not self.hooks:
            config = self._config(f"c{uuid4().hex[:8]}")
            task = self._caller.send("work", wait=False, **config)
            self.hooks.append((task["id"], config["id"]))
            return
        task_id, config_id = self._random.choice(self.hooks[-6:])
        late_id, name = f"l{uuid4().hex[:8]}", "TaskPushNotificationConfig"
        if choice < 0.7:
            self._caller.ask(f"Create{name}", taskId=task_id, **self._config(config_id))
        elif choice < 0.75:
            self.touched.add(late_id)
            self.hooks.append((task_id, late_id))
            self._caller.answer(f"Create{name}", taskId=task_id, **self._config(late_id))
        elif choice < 0.85:
            self.touched.add(config_id)
            self._caller.ask(f"Delete{name}", taskId=task_id, id=config_id)
        elif choice < 0.95:
            self._caller.answer("CancelTask", id=task_id)
        else:
            self._caller.ask(f"List{name}s", taskId=task_id)

    def _config(self, config_id: str) -> Json:
        return {"id": config_id, "url": self._random.choice(self._urls), "token": config_id}

    def failed_configs(self) -> set[str]:
        """Return the config ids of webhooks that are shown as failed."""
        shown: list[Json] = []
        for task_id in {task_id for task_id, _ in self.hooks}:
            shown += self._caller.ask("ListTaskPushNotificationConfigs", taskId=task_id)["configs"]
        return {config["id"] for config in shown if config.get("status") == "failed"}


def missing_or_reordered(
    client: RandomClient, accepted: dict[str, list[str]], failed: set[str]
) -> Iterable[Any]:
    """Yield webhooks that were notified out of order, or incompletely without a reason."""
    for task_id, config_id in client.hooks:
        versions = {
            notification_id(task_id, config_id, version): version for version in range(1, 9)
        }
        order = [
            versions.get(delivered_id, 0) for delivered_id in dict.fromkeys(accepted[config_id])
        ]
        is_complete = order[:2] == [1, 2] and len(order) == 3
        if order != sorted(order) or 0 in order:
            yield "order", config_id, order
        elif not is_complete and config_id not in client.touched | failed:
            yield "missing", config_id, order


@pytest.mark.soak
@pytest.mark.parametrize("seed", [1, 2])
def test_random_operations_keep_all_notifications_in_order(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def random_sleep(inputs: Json, context: Any) -> Json:
        await asyncio.sleep(random.random() * 0.2)
        return inputs

    receiver = RandomReceiver(seed)
    with ExitStack() as stack:
        receiver_urls = [stack.enter_context(receiving(receiver)).url for _ in range(2)]
        urls = [url.replace(HERE, host) for url in receiver_urls for host in (HERE, "localhost")]
        url, push = stack.enter_context(
            serving_principals(random_sleep, retries=[0.02, 0.05, 0.1, 0.2])
        )
        callers = [stack.enter_context(caller_named(url, f"p{n % 3}")) for n in range(5)]
        clients = [RandomClient(caller, urls, seed * 100 + n) for n, caller in enumerate(callers)]
        with ThreadPoolExecutor(len(clients)) as pool:
            assert [*pool.map(lambda client: client.run(60), clients)] == [None] * len(clients)
        eventually(lambda: not callers[0].metrics()["webhooks_pending"])
        eventually(lambda: not leftovers_in(push))
        shown = set[str]().union(*(client.failed_configs() for client in clients))
    failed = set(re.findall(r"The webhook (\S+) of task \S+ at \S+ has failed", caplog.text))
    assert shown <= failed
    assert not [
        fault
        for client in clients
        for fault in missing_or_reordered(client, receiver.accepted, failed)
    ]
    assert not [
        record for record in caplog.records if record.name == "asyncio" or record.levelno > 30
    ]
