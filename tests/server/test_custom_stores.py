"""The server with task stores of users and of the official SDK."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.server.context import ServerCallContext
from a2a.server.tasks import InMemoryTaskStore as SdkStore
from a2a.types import Task as SdkTask
from apcore_a2a_core.data import TaskPushNotificationConfig
from apcore_a2a_core.states import TERMINAL
from apcore_a2a_core.values import dump_json
from apcore_a2a_server.store import TaskListResult, TaskRecord, TaskStore

from .inloop import (
    DIALECTS,
    NEEDS_APPROVAL,
    ActionModule,
    Gate,
    Peer,
    StreamModule,
    app_of,
    contents,
    echo,
    gapless,
    metadata_of,
    registry_of,
    serving,
    wait_until,
)
from .inloop import anyio_backend as anyio_backend
from .modules import SECRET, Inputs

pytestmark = [pytest.mark.anyio, pytest.mark.rotating("agent", "rpc", "dialect")]


class DictStore:
    """A user's store: the seven methods of FR-STR-001 over a dict, and nothing else."""

    def __init__(self) -> None:
        self.records: dict[str, TaskRecord] = {}
        self.configs: dict[str, TaskPushNotificationConfig] = {}
        self.saves: list[tuple[str, int]] = []

    async def save(self, record: TaskRecord) -> None:
        await asyncio.sleep(0)
        self.saves.append((record.task.id, record.version))
        self.records[record.task.id] = record

    async def get(self, task_id: str) -> TaskRecord | None:
        await asyncio.sleep(0)
        return self.records.get(task_id)

    async def list(self, context_id: str | None, cursor: str | None, limit: int) -> TaskListResult:
        records = [
            record
            for record in reversed(self.records.values())
            if context_id in (None, record.task.context_id)
        ]
        start = int(cursor or 0)
        next_cursor = str(start + limit) if len(records) > start + limit else None
        return TaskListResult(records[start : start + limit], next_cursor)

    async def delete(self, task_id: str) -> bool:
        return self.records.pop(task_id, None) is not None

    async def save_push_config(self, task_id: str, config: TaskPushNotificationConfig) -> None:
        self.configs[task_id] = config

    async def get_push_config(self, task_id: str) -> TaskPushNotificationConfig | None:
        return self.configs.get(task_id)

    async def delete_push_config(self, task_id: str) -> bool:
        return self.configs.pop(task_id, None) is not None


class BrokenStore(DictStore):
    """A store that refuses to save the records for which *broken* returns true."""

    def __init__(self, broken: Callable[[TaskRecord], bool]) -> None:
        super().__init__()
        self._broken = broken

    async def save(self, record: TaskRecord) -> None:
        if self._broken(record):
            raise RuntimeError(SECRET)
        await super().save(record)


STORES = [DictStore, SdkStore]
MODULES: dict[str, object] = {
    "work": ActionModule(echo),
    "pay": ActionModule(echo, annotations=NEEDS_APPROVAL),
}


async def three_chunks(inputs: Inputs, context: Any) -> Any:
    for number in range(3):
        yield {"n": number}


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_task_is_sent_read_and_listed(dialect: str, store: Any) -> None:
    async with serving(MODULES, dialect, task_store=store()) as peer:
        task = (await peer.send(contextId="ours")).task
        assert contents(task) == [{"text": "hello"}]
        assert metadata_of(task) == {"skillId": "work"}
        assert await peer.get(task["id"]) == task
        other_task = (await peer.send()).task
        options = (
            {"includeArtifacts": "true" if dialect == "REST" else True} if dialect != "0.3" else {}
        )
        listed = (await peer.ask("list", options)).result["tasks"]
        assert {entry["id"]: entry for entry in listed} == {
            task["id"]: task,
            other_task["id"]: other_task,
        }
        ours = (await peer.ask("list", {"contextId": "ours"})).result["tasks"]
        assert [entry["id"] for entry in ours] == [task["id"]]
        assert (await peer.ask("get", {"id": "unknown"})).code == -32001


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_task_is_canceled(dialect: str, store: Any) -> None:
    gate = Gate()
    async with serving({"work": ActionModule(gate)}, dialect, task_store=store()) as peer:
        task_id = await peer.start()
        answer = await peer.ask("cancel", {"id": task_id})
        assert answer.state == "canceled"
        assert await peer.get(task_id) == answer.task
        assert (await peer.ask("cancel", {"id": task_id})).code == -32002


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_task_is_streamed_and_read_again(dialect: str, store: Any) -> None:
    async with serving({"work": StreamModule(three_chunks)}, dialect, task_store=store()) as peer:
        async with peer.stream() as stream:
            frames = await stream.rest()
        assert gapless(frames)
        task_id = frames[0].body["id"]
        assert contents(await peer.get(task_id)) == [{"n": 0}, {"n": 1}, {"n": 2}]
        async with peer.subscribe(task_id, 2) as resumed:
            assert await resumed.rest() == frames[2:]


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_new_server_finds_and_resumes_a_paused_task(dialect: str, store: Any) -> None:
    same_store = store()
    async with serving(MODULES, dialect, task_store=same_store) as peer:
        task = (await peer.send("pay", contextId="ours")).task
        assert metadata_of(task) == {"skillId": "pay"}
    async with serving(MODULES, dialect, task_store=same_store) as peer:
        assert await peer.get(task["id"]) == task
        target = {"contextId": "ours"} if dialect == "0.3" else {"taskId": task["id"]}
        message = peer.wire.params("", peer.part(text="yes"), **target)["message"]
        answer = await peer.ask("send", {"message": message})
        assert answer.task["id"] == task["id"]
        assert contents(answer.task) == [{"text": "hello"}]
    async with serving(MODULES, dialect, task_store=same_store) as peer:
        assert await peer.get(task["id"]) == answer.task
        assert (await peer.send("pay", taskId=task["id"])).code == -32004


@pytest.mark.parametrize("store", STORES)
async def test_event_ids_continue_in_a_new_server(store: Any) -> None:
    same_store = store()
    async with serving(MODULES, task_store=same_store) as peer, peer.stream("pay") as stream:
        before = await stream.rest()
    task_id = before[0].body["id"]
    async with (
        serving(MODULES, task_store=same_store) as peer,
        peer.stream("pay", peer.part(text="yes"), taskId=task_id) as stream,
    ):
        after = await stream.rest()
    assert [str(frame) for frame in after] == ["status working", "artifact", "status completed"]
    assert gapless([*before, *after])


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_new_server_can_cancel_a_paused_task(dialect: str, store: Any) -> None:
    same_store = store()
    async with serving(MODULES, dialect, task_store=same_store) as peer:
        task = (await peer.send("pay")).task
    async with serving(MODULES, dialect, task_store=same_store) as peer:
        assert (await peer.ask("cancel", {"id": task["id"]})).state == "canceled"


@pytest.mark.parametrize("store", STORES)
async def test_many_tasks_are_listed_page_by_page(store: Any) -> None:
    async with serving(MODULES, task_store=store()) as peer:
        task_ids = [(await peer.send()).task["id"] for _ in range(230)]
        for client, token in ((peer, "nextPageToken"), (peer.in_dialect("0.3"), "nextCursor")):
            listed: list[str] = []
            cursor: Any = None
            while cursor != "":
                size = {"pageSize": 90} if client is peer else {"limit": 90}
                name = "pageToken" if client is peer else "cursor"
                page = (await client.ask("list", {**size, name: cursor})).result
                listed += [task["id"] for task in page["tasks"]]
                cursor = page.get(token, "")
            assert sorted(listed) == sorted(task_ids)
            assert len(page["tasks"]) == 50


async def test_tasks_are_listed_newest_first_in_0_3() -> None:
    gate = Gate()
    modules = {**MODULES, "wait": ActionModule(gate)}
    async with serving(modules, "0.3", task_store=DictStore()) as peer:
        first = await peer.start("wait")
        second = (await peer.send()).task["id"]
        gate.opened.set()
        await wait_until(lambda: not peer.agent.engine.runs)
        listed = (await peer.ask("list")).result["tasks"]
        assert [task["id"] for task in listed] == [second, first]


async def test_a_saved_record_is_not_modified_later() -> None:
    """A store may keep the object itself."""
    gate, store = Gate(), DictStore()

    async def source(inputs: Inputs, context: Any) -> Any:
        yield await gate(inputs, context)
        yield {"n": 1}

    modules = {"work": StreamModule(source)}
    async with serving(modules, task_store=store) as peer, peer.stream() as stream:
        await gate.reached.wait()
        (saved,) = store.records.values()
        before = dump_json(saved.task), saved.version
        gate.opened.set()
        await stream.rest()
        assert (dump_json(saved.task), saved.version) == before
        assert store.records[saved.task.id].version == 5


async def test_a_store_saves_the_start_and_the_end_of_a_task_with_their_versions() -> None:
    store = DictStore()
    modules = {"work": StreamModule(three_chunks)}
    async with serving(modules, task_store=store) as peer, peer.stream() as stream:
        frames = await stream.rest()
    task_id = frames[0].body["id"]
    assert store.saves == [(task_id, 2), (task_id, len(frames))]
    assert (store.records[task_id].skill, store.records[task_id].owner) == ("work", "")


async def test_a_store_may_be_empty_and_falsy() -> None:
    class Sized(DictStore):
        def __len__(self) -> int:
            return len(self.records)

    store = Sized()
    async with serving(MODULES, task_store=store) as peer:
        await peer.send()
    assert len(store) == 1


def test_the_dict_store_is_a_task_store() -> None:
    assert isinstance(DictStore(), TaskStore)


@pytest.mark.parametrize(
    ("store", "missing"),
    [
        (
            {},
            "save, list, delete, save_push_config, get_push_config, delete_push_config",
        ),
        (
            object(),
            "save, get, list, delete, save_push_config, get_push_config, delete_push_config",
        ),
    ],
)
def test_a_store_without_some_methods_is_refused_with_their_names(
    store: object, missing: str
) -> None:
    with pytest.raises(TypeError, match=missing):
        app_of(registry_of(MODULES), task_store=store)


@pytest.mark.parametrize("method", [name for name in vars(DictStore) if name[0] != "_"])
def test_each_of_the_seven_methods_is_required(method: str) -> None:
    store = DictStore()
    setattr(store, method, None)
    with pytest.raises(TypeError, match=f"{method}$"):
        app_of(registry_of(MODULES), task_store=store)


@pytest.mark.parametrize("operation", ["send", "stream"])
@pytest.mark.parametrize("skill", ["work", "pay"])
async def test_a_message_is_refused_if_the_store_fails_at_the_start_of_its_task(
    skill: str, operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    gate, store = Gate(), BrokenStore(lambda record: True)
    modules = {"work": ActionModule(gate), "pay": ActionModule(gate, annotations=NEEDS_APPROVAL)}
    async with serving(modules, task_store=store) as peer:
        before = asyncio.all_tasks()
        for dialect in ("1.0", "0.3"):
            client = peer.in_dialect(dialect)
            answer = await client.ask(operation, client.wire.params(skill))
            assert answer.error is not None
            assert (answer.code, answer.error["message"]) == (-32603, "Internal error")
        assert SECRET in caplog.text
        await wait_until(lambda: asyncio.all_tasks() == before)
        assert not peer.agent.engine.runs
        assert not store.records
        assert (await peer.ask("list")).result["tasks"] == []
    assert not gate.calls


def has_ended(record: TaskRecord) -> bool:
    return record.task.status.state in TERMINAL


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_store_that_fails_at_the_end_of_a_task_does_not_hide_the_result(
    dialect: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = BrokenStore(has_ended)
    async with serving({"work": StreamModule(three_chunks)}, dialect, task_store=store) as peer:
        assert (await peer.send()).state == "completed"
        async with peer.stream() as stream:
            frames = await stream.rest()
        assert str(frames[-1]) == "status completed"
        assert gapless(frames)
        task = await peer.get(frames[0].body["id"])
        assert contents(task) == [{"n": 0}, {"n": 1}, {"n": 2}]
        assert not peer.agent.engine.runs
    assert "end not saved by the store" in caplog.text


async def test_a_cancellation_that_cannot_be_saved_still_cancels() -> None:
    gate = Gate()
    async with serving({"work": ActionModule(gate)}, task_store=BrokenStore(has_ended)) as peer:
        task_id = await peer.start()
        await gate.reached.wait()
        assert (await peer.ask("cancel", {"id": task_id})).state == "canceled"
        await gate.canceled.wait()


async def health(peer: Peer) -> httpx.Response:
    return await peer.client.get("/health")


async def test_health_reports_healthy_while_the_store_answers() -> None:
    async with serving(MODULES, task_store=DictStore()) as peer:
        response = await health(peer)
        assert response.status_code == 200
        body = response.json()
        assert set(body) == {"status", "module_count", "uptime_seconds"}
        assert (body["status"], body["module_count"]) == ("healthy", 2)


async def test_health_reports_a_failing_store_without_the_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class UnreachableStore(DictStore):
        async def get(self, task_id: str) -> TaskRecord | None:
            raise ConnectionError(SECRET)

    async with serving(MODULES, task_store=UnreachableStore()) as peer:
        response = await health(peer)
        assert response.status_code == 503
        body = response.json()
        assert body == {"status": "unhealthy", "reason": "The task store does not answer"}
        assert SECRET in caplog.text
        answer = await peer.ask("get", {"id": "t"})
        assert answer.code == -32603


class HangingReadStore(DictStore):
    """A store whose reads never end."""

    async def get(self, task_id: str) -> TaskRecord | None:
        await asyncio.Event().wait()
        return None


async def test_health_reports_a_store_that_hangs() -> None:
    async with serving(MODULES, task_store=HangingReadStore()) as peer:
        response = await health(peer)
        assert (response.status_code, response.json()["status"]) == (503, "unhealthy")


class HangingCheckStore(DictStore):
    """A store that saves tasks, but whose reads of unknown tasks never end."""

    def __init__(self) -> None:
        super().__init__()
        self.checks = 0

    async def get(self, task_id: str) -> TaskRecord | None:
        if task_id in self.records:
            return await super().get(task_id)
        self.checks += 1
        await asyncio.Event().wait()
        return None


async def test_health_ignores_a_hanging_read_until_the_last_save_is_old(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(MODULES, task_store=HangingCheckStore()) as peer:
        assert (await peer.send()).state == "completed"
        assert (await health(peer)).status_code == 200
        async with asyncio.timeout(20):
            while (await health(peer)).status_code == 200:
                assert "health_check_failed" not in {
                    getattr(r, "event", "") for r in caplog.records
                }
                await asyncio.sleep(0.05)


async def test_concurrent_health_checks_read_the_store_once() -> None:
    store = HangingCheckStore()
    async with serving(MODULES, task_store=store) as peer:
        responses = await asyncio.gather(*(health(peer) for _ in range(50)))
        assert {response.status_code for response in responses} == {503}
        assert store.checks == 1


@pytest.mark.clock
async def test_health_gives_up_on_a_hanging_store_within_a_second() -> None:
    async with serving(MODULES, task_store=HangingReadStore()) as peer:
        start = asyncio.get_running_loop().time()
        await health(peer)
        assert 0.7 < asyncio.get_running_loop().time() - start < 1


async def test_a_store_that_hangs_at_the_start_of_a_task_is_cut_off_by_the_timeout() -> None:
    class HangingSaveStore(DictStore):
        async def save(self, record: TaskRecord) -> None:
            await super().save(record)
            if record.version == 2:
                await asyncio.Event().wait()

    store = HangingSaveStore()
    async with serving(MODULES, task_store=store, execution_timeout=0.05) as peer:
        assert (await peer.send()).code == -32603
        assert not peer.agent.engine.runs
    assert all(has_ended(record) for record in store.records.values()), "a task is still working"


def log_of(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    """Return the levels and messages that were logged about stores."""
    records = [record for record in caplog.records if record.name.startswith("apcore_a2a.store")]
    return [(record.levelno, record.getMessage()) for record in records]


@pytest.mark.parametrize(
    ("store", "begins", "ends"),
    [
        (
            DictStore,
            "Old tasks are never deleted from the task store DictStore. Events,",
            "It keeps one webhook for each task",
        ),
        (
            SdkStore,
            "Old tasks are never deleted from the task store InMemoryTaskStore of a2a-sdk. Events,",
            "change of state",
        ),
    ],
)
async def test_the_limitations_of_a_store_are_logged_once_at_the_start(
    store: Any, begins: str, ends: str, caplog: pytest.LogCaptureFixture
) -> None:
    same_store = store()
    with caplog.at_level(logging.INFO):
        app = app_of(registry_of(MODULES), task_store=same_store)
        assert log_of(caplog) == []
        for _ in range(2):  # an application may be started again
            async with serving(app):
                pass
    ((level, message),) = log_of(caplog)
    assert level == logging.INFO
    assert message.startswith(begins)
    assert message.endswith(ends)
    assert "\n" not in message


async def test_stores_without_limitations_log_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for store in ("memory", f"sqlite:///{tmp_path / 'agent.db'}"):
        with caplog.at_level(logging.INFO):
            async with serving(MODULES, task_store=store):
                pass
    assert log_of(caplog) == []


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_tasks_of_other_programs_in_a_store_of_the_sdk_are_left_alone(dialect: str) -> None:
    store = SdkStore()
    await store.save(SdkTask(id="foreign", context_id="c"), ServerCallContext())
    async with serving({"work": ActionModule(echo)}, dialect, task_store=store) as peer:
        own = (await peer.send()).task["id"]
        listed = (await peer.ask("list")).result["tasks"]
        assert [task["id"] for task in listed] == [own]
        assert (await peer.ask("get", {"id": "foreign"})).code in (-32001, 404)
    assert await store.get("foreign", ServerCallContext()) is not None
