"""The checks of the operator methods, some of which a store may lack."""

import time

from apcore_a2a_core.states import CANCELED, COMPLETED, INPUT_REQUIRED, WORKING
from msgspec.structs import replace

from apcore_a2a_server.store.exceptions import RepeatedError
from apcore_a2a_server.store.operator_port import OperatorPort
from apcore_a2a_server.store.port import Change, Lease, SendKey, Store
from apcore_a2a_server.store.queries import Query
from apcore_a2a_server.store.replicas import this_process
from apcore_a2a_server.trace_context import MAX_SPANS_SIZE

from .samples import begun, check, chunk_change, new_record, raises, state_change, stored_record
from .webhook_checks import claim_due, hook


@check
async def open_tasks_are_counted_by_state(store: Store) -> None:
    if await store.open_tasks() is None:
        return
    before = time.time() - 1
    for number, state in enumerate((None, None, INPUT_REQUIRED, COMPLETED, CANCELED)):
        record, lease = await begun(store, new_record(f"t{number}", owner=f"owner {number}"))
        if state is not None:
            change = state_change(record, state, lease)
            if state == INPUT_REQUIRED:
                change.record.resume, change.record.deadline = b"{}", time.time() + 60
            await store.change(change)
    # a paused task whose deadline has passed, and which a replica has claimed
    record, lease = await begun(store, new_record("t5"))
    change = state_change(record, INPUT_REQUIRED, lease)
    change.record.resume, change.record.deadline = b"{}", time.time() - 1
    await store.change(change)
    assert [claim.record.task.id for claim in await store.claim(10)] == ["t5"]
    open_tasks = await store.open_tasks()
    assert open_tasks is not None
    assert open_tasks.counts == {WORKING: 2, INPUT_REQUIRED: 2}
    assert open_tasks.oldest.keys() == open_tasks.counts.keys()
    assert all(before <= oldest <= time.time() + 1 for oldest in open_tasks.oldest.values())


@check
async def failed_webhooks_are_counted(store: Store) -> None:
    if await store.count_failed_webhooks() is None:
        return
    for number in range(2):
        await begun(store, new_record(f"t{number}"), [hook("w1"), hook("w2")])
    await store.give_up((await claim_due(store))[0], "status 500")
    assert await store.count_failed_webhooks() == 1


@check
async def all_that_belongs_to_the_ended_tasks_of_an_owner_is_deleted(store: Store) -> None:
    if await store.delete_ended("an owner without tasks") is None:
        return
    key = SendKey("k", b"digest")
    for task_id, owner, is_open in (
        ("t1", "ada", False),
        ("t2", "ada", False),
        ("t3", "ada", True),
        ("t4", "bob", False),
    ):
        new = new_record(task_id, owner, f"context of {task_id}")
        send_key = key if task_id in ("t1", "t4") else None
        record, lease = await begun(store, new, [hook()], send_key)
        if not is_open:
            await store.change(state_change(record, COMPLETED, lease))

    assert await store.delete_ended("ada") == 2
    assert await store.delete_ended("ada") == 0
    for task_id in ("t1", "t2"):
        assert await store.get(task_id) is None
        assert not await store.events(task_id, 0)
        assert not await store.webhooks(task_id)
        assert not await store.conversation("ada", f"context of {task_id}", 10)
    for owner, task_id in (("ada", "t3"), ("bob", "t4")):
        page = await store.query(Query(owner))
        assert [record.task.id for record in page.records] == [task_id]
        assert await store.webhooks(task_id)
        assert await store.conversation(owner, f"context of {task_id}", 10)
    assert {notification.task_id for notification in await claim_due(store)} == {"t3", "t4"}
    await begun(store, new_record("t5", "ada"), key=key)
    await raises(RepeatedError, begun(store, new_record("t6", "bob"), key=key))


@check
async def owners_are_found_by_the_beginning_of_their_names(store: Store) -> None:
    if await store.delete_ended("an owner without tasks") is None:  # may lack `owners` too
        return
    for number, owner in enumerate(("%t|a|ada", "%t|a|ada", "%t|b|\x00é", "%u|ada", "ada", "")):
        await begun(store, new_record(f"t{number}", owner, f"c{number}"))
    assert sorted(await store.owners("%t|")) == ["%t|a|ada", "%t|b|\x00é"]
    assert [*await store.owners("%v")] == []


@check
async def replicas_are_listed_from_their_first_report_until_they_are_removed(store: Store) -> None:
    if not store.is_shared:
        assert not await store.replicas()
        return
    first, second = (  # with different ids: each call of `this_process` makes a new id
        replace(this_process(), host="a", leases=3, running=number) for number in (1, 2)
    )
    lease = (await begun(store))[1]
    async with store.renewing() as renew:
        assert not await renew([lease], first)
        lost_lease = Lease("t1", lease.epoch + 1)
        assert await renew([lost_lease], second) == [lost_lease]
        assert not await renew([], replace(first, is_draining=True))
    replicas = {replica.id: replica for replica in await store.replicas()}
    assert replicas == {
        replica.id: replace(replica, seen_at=replicas[replica.id].seen_at)
        for replica in (replace(first, is_draining=True), second)
    }
    assert all(
        abs(time.time() - replica.seen_at) < store.lease_seconds for replica in replicas.values()
    )
    await store.remove_replica(first.id)
    assert [replica.id for replica in await store.replicas()] == [second.id]
    await store.remove_replica(second.id)


@check
async def a_shared_store_names_the_replicas_that_have_a_lease(store: Store) -> None:
    leases: dict[str, Lease] = {}
    changes: dict[str, Change] = {}
    for number, state in enumerate((None, None, INPUT_REQUIRED, COMPLETED)):
        store.replica_id = f"r{number}"
        record, leases[f"t{number}"] = await begun(store, new_record(f"t{number}"))
        if state is not None:
            changes[f"t{number}"] = change = state_change(record, state, leases[f"t{number}"])
            if state == INPUT_REQUIRED:
                change.record.resume, change.record.deadline = b"{}", time.time() + 60
            await store.change(change)
    task_ids = [*leases, "none"]
    holders = await store.lease_holders(task_ids)
    if not store.is_shared:
        assert not holders
        return
    assert holders == {"t0": "r0", "t1": "r1"}
    await store.release([leases["t0"]])
    assert await store.lease_holders(task_ids) == {"t1": "r1"}
    store.replica_id = "r4"
    assert [claim.record.task.id for claim in await store.claim(10)] == ["t0"]
    await store.change(state_change(changes["t2"].record, WORKING, run=True))
    assert await store.lease_holders(task_ids) == {"t0": "r4", "t1": "r1", "t2": "r4"}


@check
async def spans_of_a_change_are_added_to_those_of_its_task(store: Store) -> None:
    if type(store).spans is OperatorPort.spans:  # a store need not keep spans
        return
    record, lease = await begun(store)
    assert await store.spans("t1") == ""
    chunk = chunk_change(record, "a chunk", lease)
    await store.change(chunk)
    paused = replace(state_change(chunk.record, INPUT_REQUIRED, lease), spans="[0,[]]\n")
    await store.change(paused)
    assert await store.spans("t1") == "[0,[]]\n"
    working = replace(state_change(paused.record, WORKING, run=True), spans="[1,[]]\n")
    run_lease = await store.change(working)
    assert await store.spans("t1") == "[0,[]]\n[1,[]]\n"
    ended = replace(state_change(working.record, COMPLETED, run_lease), spans="x" * MAX_SPANS_SIZE)
    await store.change(ended)
    kept_spans = await store.spans("t1")
    assert (kept_spans[:15], len(kept_spans)) == ("[0,[]]\n[1,[]]\nx", MAX_SPANS_SIZE)
    assert await store.spans("none") == ""
    assert await stored_record(store) == ended.record
