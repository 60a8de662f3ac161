"""The memory store: retention, capacity, and listing."""

import asyncio
import time
from contextlib import suppress
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from a2a.utils.errors import InvalidParamsError
from apcore_a2a_core.data import (
    Message,
    Part,
    Task,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
    Timestamp,
)
from apcore_a2a_core.states import COMPLETED, FAILED, INPUT_REQUIRED, WORKING
from apcore_a2a_server import InMemoryTaskStore
from apcore_a2a_server.store import Query, StoreFullError, TaskRecord, TaskStore
from apcore_a2a_server.store.queries import Order
from msgspec import DecodeError

from .inloop import (
    DIALECTS,
    NEEDS_APPROVAL,
    ActionModule,
    Gate,
    StreamModule,
    always,
    echo,
    serving,
    wait_until,
)
from .inloop import anyio_backend as anyio_backend
from .modules import Inputs

pytestmark = pytest.mark.anyio


def record(
    task_id: str,
    state: TaskState = COMPLETED,
    *,
    context: str = "c",
    owner: str = "",
    seconds: int = 0,
    **fields: Any,
) -> TaskRecord:
    timestamp = datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
    status = TaskStatus(state=state, timestamp=Timestamp(timestamp))
    task = Task(id=task_id, context_id=context, status=status)
    return TaskRecord(task, owner, "skill", **fields)


async def listed_ids(store: InMemoryTaskStore, **query: Any) -> list[str]:
    """Return the ids of the listed tasks."""
    page = await store.query(Query(**{"owner": "", "limit": 1000, **query}))
    return [entry.task.id for entry in page.records]


def with_messages(task_id: str, *messages: str, state: TaskState = COMPLETED, **fields: Any) -> Any:
    """Return the record of a task with these messages."""
    saved = record(task_id, state, **{"messages": len(messages), **fields})
    saved.task.history.extend(Message(parts=[Part(text=text)]) for text in messages)
    return saved


async def texts(
    store: InMemoryTaskStore, owner: str = "", context: str = "c", limit: int = 100
) -> list[str]:
    """Return the texts of a conversation."""
    return [
        str(message.parts[0].text) for message in await store.conversation(owner, context, limit)
    ]


def test_the_memory_store_is_a_task_store() -> None:
    assert isinstance(InMemoryTaskStore(), TaskStore)


async def test_a_saved_record_can_be_read_back() -> None:
    store = InMemoryTaskStore()
    saved = record("t", INPUT_REQUIRED, owner="me", version=7, resume=b"call")
    await store.save(saved)
    assert await store.get("t") == saved
    assert len(store) == 1


async def test_the_store_returns_copies() -> None:
    store, saved = InMemoryTaskStore(), record("t")
    await store.save(saved)
    saved.task.context_id = "changed"
    stored = await store.get("t")
    assert stored is not None
    stored.task.context_id = "changed"
    unchanged = await store.get("t")
    assert unchanged is not None
    assert unchanged.task.context_id == "c"


async def test_a_task_is_deleted_once() -> None:
    store = InMemoryTaskStore()
    await store.save(record("t"))
    assert [await store.delete("t"), await store.delete("t")] == [True, False]
    assert await store.get("t") is None
    assert await listed_ids(store) == await listed_ids(store, context_id="c") == []


async def test_push_configs_are_deleted_with_their_task() -> None:
    store, config = InMemoryTaskStore(), TaskPushNotificationConfig(url="http://x")
    await store.save(record("t"))
    assert await store.get_push_config("t") is None
    await store.save_push_config("t", config)
    assert await store.get_push_config("t") == config
    await store.delete("t")
    assert await store.get_push_config("t") is None
    await store.save_push_config("t", config)
    assert [await store.delete_push_config("t") for _ in range(2)] == [True, False]


async def test_the_retention_of_a_task_starts_at_its_end() -> None:
    store = InMemoryTaskStore(ttl=0.5)
    await store.save(record("ends", WORKING, context="1"))
    await store.save(record("works", WORKING, context="2"))
    await store.save(record("paused", INPUT_REQUIRED, context="3"))
    await asyncio.sleep(0.6)
    assert len(store) == 3
    await store.save(record("ends", context="1"))
    assert await store.get("ends") is not None
    await wait_until(lambda: len(store) == 2)
    assert await store.get("ends") is None
    assert await listed_ids(store) == ["paused", "works"]


async def test_the_tasks_of_a_conversation_expire_together() -> None:
    """Their retention starts when the last of them ends (FR-CTX-004)."""
    store = InMemoryTaskStore(ttl=0.8)
    await store.save(record("first", context="talk"))
    await store.save(record("last", WORKING, context="talk"))
    await store.save(record("foreign", context="talk", owner="eve"))
    await wait_until(lambda: len(store) == 2)
    assert await listed_ids(store, context_id="talk") == ["last", "first"]
    await store.save(record("last", context="talk"))
    await asyncio.sleep(0.4)
    await store.save(record("again", context="talk"))
    await asyncio.sleep(0.5)
    assert await listed_ids(store, context_id="talk") == ["again", "last", "first"]
    await wait_until(lambda: len(store) == 0)
    assert await listed_ids(store, context_id="talk") == []


async def test_an_expired_conversation_starts_over() -> None:
    """The event loop may be too busy to remove it in time."""
    store = InMemoryTaskStore(ttl=0.01)
    await store.save(with_messages("first", "hello"))
    time.sleep(0.02)  # noqa: ASYNC251  # nothing may run meanwhile
    assert await texts(store) == []
    await store.save(with_messages("second", "hello again"))
    assert await texts(store) == ["hello again"]
    assert len(store) == 1


async def test_a_conversation_has_its_messages_in_order_of_arrival() -> None:
    store = InMemoryTaskStore()
    await store.save(with_messages("first", "Delete it", state=INPUT_REQUIRED))
    await store.save(with_messages("second", "How many?"))
    await store.save(with_messages("first", "Delete it", "Really?", "yes"))
    await store.save(with_messages("else", "Hello", owner="eve"))
    await store.save(with_messages("else", "Hello", context="another"))
    assert await texts(store) == ["Delete it", "How many?", "Really?", "yes"]
    assert await texts(store, limit=2) == ["Really?", "yes"]
    assert await texts(store, "unknown") == await texts(store, context="unknown") == []


async def test_a_conversation_keeps_its_latest_messages() -> None:
    store = InMemoryTaskStore(max_history=3)
    for number in range(5):
        await store.save(with_messages(f"t{number}", str(number)))
    assert await texts(store) == ["2", "3", "4"]
    cut = with_messages("cut", "8", "9", state=INPUT_REQUIRED)
    cut.messages = 9  # the first seven have left its history
    await store.save(cut)
    assert await texts(store) == ["4", "8", "9"]
    await store.save(cut)
    assert await texts(store) == ["4", "8", "9"]


async def test_a_large_conversation_expires() -> None:
    store = InMemoryTaskStore(ttl=0.2, max_capacity=10_000)
    for number in range(10_000):
        await store.save(record(str(number)))
    await wait_until(lambda: len(store) == 0)


async def test_expired_tasks_are_removed_without_traffic() -> None:
    store = InMemoryTaskStore(ttl=0.05)
    for number in range(10):
        await store.save(record(str(number), context=str(number)))
    assert len(store) == 10
    await wait_until(lambda: len(store) == 0)
    for number in range(10):
        await store.save(record(str(number)))
    await wait_until(lambda: len(store) == 0)


async def test_an_expired_task_is_not_found_even_before_its_removal() -> None:
    """The event loop may be too busy to remove it in time."""
    store = InMemoryTaskStore(ttl=0.01)
    await store.save(record("t"))
    time.sleep(0.02)  # noqa: ASYNC251  # nothing may run meanwhile
    assert len(store) == 1
    assert await store.get("t") is None
    assert await listed_ids(store) == await listed_ids(store, order="updated") == []
    assert (await store.list()).records == []


async def test_the_oldest_ended_tasks_are_evicted_for_new_ones() -> None:
    store = InMemoryTaskStore(max_capacity=3)
    await store.save(record("works", WORKING))
    await store.save(record("second", WORKING))
    await store.save(record("first"))
    await store.save(record("second"))
    await store.save(record("new 1"))
    assert await listed_ids(store) == ["new 1", "second", "works"]
    await store.save(record("new 2"))
    assert await listed_ids(store) == ["new 2", "new 1", "works"]
    assert len(store) == 3


async def test_tasks_that_have_not_ended_are_never_evicted() -> None:
    store = InMemoryTaskStore(max_capacity=2)
    await store.save(record("works", WORKING))
    await store.save(record("waits", INPUT_REQUIRED))
    with pytest.raises(StoreFullError):
        await store.save(record("new"))
    await store.save(record("works", FAILED))
    await store.save(record("new"))
    assert await listed_ids(store) == ["new", "waits"]


async def test_the_default_capacity_is_ten_thousand_tasks() -> None:
    store = InMemoryTaskStore()
    for number in range(10_001):
        await store.save(record(str(number)))
    assert len(store) == 10_000
    assert await store.get("0") is None


@pytest.mark.parametrize("order", ["created", "updated"])
async def test_pages_are_consistent_while_tasks_are_added(order: Order) -> None:
    store = InMemoryTaskStore()
    for number in range(10):
        await store.save(record(str(number)))
    listed: list[str] = []
    cursor: str | None = None
    for turn in range(4):
        page = await store.query(Query("", order=order, cursor=cursor, limit=3))
        listed += [entry.task.id for entry in page.records]
        cursor = page.next_cursor
        assert (cursor is None) == (turn == 3)
        await store.save(record(f"added {turn}"))
    assert listed == [str(number) for number in reversed(range(10))]


async def test_a_change_moves_a_task_to_the_front_only_in_update_order() -> None:
    store = InMemoryTaskStore()
    for number in range(3):
        await store.save(record(str(number), WORKING))
    await store.save(record("0"))
    assert await listed_ids(store, order="updated") == ["0", "2", "1"]
    assert await listed_ids(store, order="created") == ["2", "1", "0"]


async def test_the_last_page_has_no_cursor_even_when_it_is_full() -> None:
    store = InMemoryTaskStore()
    for number in range(4):
        await store.save(record(str(number)))
    first = await store.list(None, None, 2)
    assert first.next_cursor
    second = await store.list(None, first.next_cursor, 2)
    assert [entry.task.id for entry in second.records] == ["1", "0"]
    assert second.next_cursor is None


@pytest.mark.parametrize("cursor", ["x", "-1", "", "1.5", "9" * 30])
async def test_an_unknown_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidParamsError):
        await InMemoryTaskStore().list(None, cursor, 10)


async def test_a_page_in_update_order_has_the_total() -> None:
    store = InMemoryTaskStore()
    for number in range(5):
        await store.save(record(str(number), owner="me" if number else "you"))
    page = await store.query(Query("me", order="updated", limit=2))
    assert (len(page.records), page.total) == (2, 4)


async def test_owners_see_only_their_own_tasks() -> None:
    store = InMemoryTaskStore()
    for owner in ("me", "you", ""):
        await store.save(record(f"of {owner}", owner=owner))
    for owner in ("me", "you", ""):
        for order in ("created", "updated"):
            assert await listed_ids(store, owner=owner, order=order) == [f"of {owner}"]
            assert await listed_ids(store, owner=owner, order=order, context_id="c") == [
                f"of {owner}"
            ]
    assert await listed_ids(store, owner="unknown") == []


@pytest.mark.parametrize("order", ["created", "updated"])
async def test_tasks_are_found_by_context_state_and_time(order: str) -> None:
    store = InMemoryTaskStore()
    await store.save(record("a", WORKING, context="one", seconds=10))
    await store.save(record("b", COMPLETED, context="one", seconds=20))
    await store.save(record("c", WORKING, context="two", seconds=30))
    assert await listed_ids(store, order=order, context_id="one") == ["b", "a"]
    assert await listed_ids(store, order=order, state=WORKING) == ["c", "a"]
    assert await listed_ids(store, order=order, state=WORKING, context_id="one") == ["a"]
    assert await listed_ids(store, order=order, after=20.0) == ["c", "b"]
    assert await listed_ids(store, order=order, context_id="three") == []


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_store_full_of_open_tasks_refuses_a_message(dialect: str) -> None:
    gate = Gate()
    modules = {
        "work": ActionModule(gate),
        "pay": ActionModule(echo, annotations=NEEDS_APPROVAL),
    }
    async with serving(modules, dialect, max_tasks=2) as peer:
        working = await peer.start()
        await gate.reached.wait()
        await peer.send("pay")
        for operation in ("send", "stream"):
            request = peer.request(operation, peer.wire.params("work"))
            response = await peer.client.send(request)
            assert response.status_code == 429
            assert int(response.headers["retry-after"]) >= 1
            error = response.json()["error"]
            assert error["code"] == (429 if dialect == "REST" else -32029)
        assert len((await peer.ask("list")).result["tasks"]) == 2
        assert len(gate.calls) == 1
        assert set(peer.agent.engine.runs) == {working}
        gate.opened.set()
        await wait_until(lambda: not peer.agent.engine.runs)
        assert (await peer.send()).state == "completed"
        assert (await peer.ask("get", {"id": working})).code == -32001


async def test_ended_tasks_are_evicted_for_new_messages() -> None:
    async with serving({"work": always({})}, max_tasks=3) as peer:
        task_ids = [(await peer.send()).task["id"] for _ in range(5)]
        listed = (await peer.in_dialect("0.3").ask("list")).result["tasks"]
        assert [task["id"] for task in listed] == [*reversed(task_ids[2:])]
        assert (await peer.ask("get", {"id": task_ids[0]})).code == -32001


async def test_an_ended_task_expires_after_the_configured_time() -> None:
    async with serving({"work": always({})}, task_ttl=0.05) as peer:
        task_id = (await peer.send()).task["id"]
        await asyncio.sleep(0.1)
        assert (await peer.ask("get", {"id": task_id})).code == -32001
        assert (await peer.ask("cancel", {"id": task_id})).code == -32001
        assert (await peer.ask("list")).result["tasks"] == []


@pytest.mark.clock
async def test_a_task_may_run_longer_than_the_retention_of_ended_tasks() -> None:
    gate = Gate()
    async with serving({"work": ActionModule(gate)}, task_ttl=1) as peer:
        task_id = await peer.start()
        await asyncio.sleep(1.1)
        gate.opened.set()
        await wait_until(lambda: not peer.agent.engine.runs)
        assert await peer.state(task_id) == "completed"


async def test_a_limit_above_200_means_200_in_0_3() -> None:
    async def quick(inputs: Inputs, context: Any) -> Inputs:
        return {}

    store = InMemoryTaskStore()
    for number in range(230):
        await store.save(record(str(number)))
    async with serving({"work": ActionModule(quick)}, "0.3", task_store=store) as peer:
        first_page = (await peer.ask("list", {"limit": 1000})).result
        assert [task["id"] for task in first_page["tasks"]] == [str(229 - n) for n in range(200)]
        await peer.send()
        second_page = (
            await peer.ask("list", {"limit": 1000, "cursor": first_page["nextCursor"]})
        ).result
        assert [task["id"] for task in second_page["tasks"]] == [str(29 - n) for n in range(30)]
        assert "nextCursor" not in second_page
        default = (await peer.ask("list")).result
        assert len(default["tasks"]) == 50
        (task,) = (await peer.ask("list", {"limit": 1.0})).result["tasks"]
        assert task == default["tasks"][0]


async def test_a_stream_of_a_task_that_expires_at_once_still_gets_its_final_event() -> None:
    async def one_chunk(inputs: Inputs, context: Any) -> Any:
        yield {"n": 1}

    async with serving({"work": StreamModule(one_chunk)}, task_ttl=0.0001) as peer:
        async with peer.stream() as stream:
            frames = await stream.rest()
        assert [str(frame) for frame in frames][-1] == "status completed"


async def test_a_full_store_evicts_tasks_of_the_same_owner_first() -> None:
    store = InMemoryTaskStore(max_capacity=3)
    for number, owner in enumerate(("ada", "eve", "eve")):
        await store.save(record(f"t{number}", state=COMPLETED, owner=owner))
    await store.save(record("t3", state=COMPLETED, owner="eve"))
    assert [await store.get(f"t{n}") is not None for n in range(4)] == [True, False, True, True]
    await store.save(record("t4", state=COMPLETED, owner="bob"))
    assert await store.get("t0") is None


async def test_all_owners_above_their_share_lose_tasks_before_the_caller_does() -> None:
    store = InMemoryTaskStore()
    await store.save(with_messages("mine", "m", owner="ada", context="1"))
    for task_id in ("eve-1", "eve-2"):
        await store.save(with_messages(task_id, "m" * 1000, owner="eve", context="2"))
    await store.save(with_messages("bob", "m" * 5000, owner="bob", context="3"))
    kept = ["bob"]  # of the owner that is furthest above its share
    store.evict(1, "ada", kept, share=1500)
    assert await store.get("eve-1") is None
    store.evict(1, "ada", kept, share=1500)  # eve is within her share now
    assert await store.get("mine") is None
    assert {task_id for task_id in ("eve-2", "bob") if await store.get(task_id)} == {"eve-2", "bob"}


async def test_a_full_store_deletes_expired_tasks_before_others() -> None:
    store = InMemoryTaskStore(ttl=0, max_capacity=3)
    await store.save(record("working", WORKING, owner="ada", context="open"))
    await store.save(record("ended", owner="ada", context="open"))
    await store.save(record("expired", owner="bob"))
    await store.save(record("new", WORKING, owner="ada"))
    assert await listed_ids(store, owner="ada") == ["new", "ended", "working"]
    assert await listed_ids(store, owner="bob") == []


async def test_a_foreign_task_is_not_decoded() -> None:
    store = InMemoryTaskStore()
    await store.save(record("t", owner="ada"))
    assert await store.get("t", "ada") is not None
    assert await store.get("t", "eve") is None
    store._tasks["t"].data = b"no task at all"
    assert await store.get("t", "eve") is None
    with pytest.raises(DecodeError):
        await store.get("t", "ada")


@pytest.mark.parametrize("seed", range(4))
async def test_a_store_counts_no_bytes_once_all_its_tasks_are_deleted(seed: int) -> None:
    random = Random(seed)
    store = InMemoryTaskStore(max_capacity=random.choice([5, 150]), max_history=3)
    for number in range(600):
        task_id = f"t{random.randrange(200)}"
        record = await store.get(task_id) or TaskRecord(
            Task(
                id=task_id, context_id=f"c{random.randrange(40)}", status=TaskStatus(state=WORKING)
            )
        )
        if record.task.status.state == WORKING:
            text = "x" * random.choice([3, 5000, 600_000])
            record.task.history.append(Message(message_id=f"m{number}", parts=[Part(text=text)]))
            record.messages += 1
            record.task.status = TaskStatus(state=random.choice([WORKING, COMPLETED]))
        with suppress(StoreFullError):
            await store.save(record)
    assert store.kept_bytes > 0
    for record in (await store.list(limit=1000)).records:
        await store.delete(record.task.id)
    assert (store.kept_bytes, len(store)) == (0, 0)
