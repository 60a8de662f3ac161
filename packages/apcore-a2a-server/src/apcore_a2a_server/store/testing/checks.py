"""The checks of tasks, events, queries, retention and repeated sends."""

import asyncio
from dataclasses import replace

from a2a.utils.errors import InvalidParamsError
from apcore_a2a_core.data import Task
from apcore_a2a_core.states import COMPLETED, INPUT_REQUIRED

from apcore_a2a_server.store.exceptions import (
    KeyReusedError,
    RepeatedError,
    StaleError,
)
from apcore_a2a_server.store.port import Change, Retention, SendKey, Store
from apcore_a2a_server.store.queries import Order, Query

from .samples import (
    begun,
    check,
    chunk_change,
    new_record,
    raises,
    state_change,
    stored_record,
    versions,
)

# Records


@check
async def a_new_task_is_stored_unchanged(store: Store) -> None:
    record, lease = await begun(store)
    assert await stored_record(store) == record
    assert lease.task_id == "t1"
    assert await store.get("t2") is None


@check
async def only_the_owner_gets_a_task(store: Store) -> None:
    record, _ = await begun(store)
    assert await store.get("t1", "ada") == record
    assert await store.get("t1", "bob") is None
    assert await store.get("t2", "ada") is None


@check
async def a_returned_record_is_a_copy(store: Store) -> None:
    await begun(store)
    (await stored_record(store)).task.metadata["touched"] = True
    assert "touched" not in (await stored_record(store)).task.metadata


@check
async def a_change_of_state_is_stored_completely(store: Store) -> None:
    record, lease = await begun(store)
    change = state_change(record, INPUT_REQUIRED, lease)
    change.record.resume, change.record.messages = b"\x00 the paused call", 7
    await store.change(change)
    assert await stored_record(store) == change.record


@check
async def chunks_add_up_to_the_artifact(store: Store) -> None:
    record, lease = await begun(store)
    for text in ("one", "two", "three"):
        change = chunk_change(record, text, lease)
        await store.change(change)
        record = change.record
    await store.change(state_change(record, COMPLETED, lease))
    (artifact,) = (await stored_record(store)).task.artifacts
    assert [part.text for part in artifact.parts] == ["one", "two", "three"]
    assert await versions(store, "t1") == [1, 2, 3, 4, 5, 6]


# Changes


@check
async def a_change_made_from_an_old_version_is_refused(store: Store) -> None:
    record, lease = await begun(store)
    await store.change(state_change(record, INPUT_REQUIRED, lease))
    await raises(StaleError, store.change(state_change(record, COMPLETED)))
    assert (await stored_record(store)).task.status.state == INPUT_REQUIRED
    assert await versions(store, "t1") == [1, 2, 3]


@check
async def an_unknown_task_cannot_be_changed(store: Store) -> None:
    record = new_record("t9")
    record.version = 2
    await raises(StaleError, store.change(state_change(record, COMPLETED)))
    assert await store.get("t9") is None


@check
async def a_change_made_before_the_end_is_refused_after_it(store: Store) -> None:
    record, lease = await begun(store)
    last_change = state_change(record, COMPLETED, lease)
    await store.change(last_change)
    await raises(StaleError, store.change(state_change(record, INPUT_REQUIRED, lease)))
    assert await stored_record(store) == last_change.record


@check
async def only_one_of_concurrent_changes_is_accepted(store: Store) -> None:
    record, _ = await begun(store)
    changes = [state_change(record, COMPLETED) for _ in range(10)]
    outcomes = await asyncio.gather(*map(store.change, changes), return_exceptions=True)
    refused = [outcome for outcome in outcomes if isinstance(outcome, StaleError)]
    assert len(refused) == 9, outcomes
    assert await versions(store, "t1") == [1, 2, 3]


# Events


@check
async def events_are_numbered_without_gaps_and_stored_unchanged(store: Store) -> None:
    record, lease = await begun(store)
    change = chunk_change(record, "\x00 nothing is lost", lease)
    await store.change(change)
    events = await store.events("t1", 0)
    assert events is not None
    assert [event.version for event in events] == [1, 2, 3]
    assert isinstance(events[0].payload, Task)
    assert events[2] == change.events[0]


@check
async def events_after_any_version_can_be_read(store: Store) -> None:
    record, lease = await begun(store)
    await store.change(state_change(record, COMPLETED, lease))
    assert await versions(store, "t1", 1) == [2, 3]
    assert await versions(store, "t1", 3) == []
    assert await versions(store, "t1", 0, 2) == [1, 2]


@check
async def a_trimmed_log_never_skips_events(store: Store) -> None:
    store.retention = Retention(max_events=5)
    record, lease = await begun(store)
    for number in range(30):
        change = chunk_change(record, str(number), lease)
        await store.change(change)
        record = change.record
    assert await store.events("t1", 0) is None
    assert await versions(store, "t1", record.version - 5) == [28, 29, 30, 31, 32]
    for after in range(record.version):  # a reader gets all events after its version, or None
        events = await store.events("t1", after)
        later_versions = [*range(after + 1, record.version + 1)]
        assert events is None or [event.version for event in events] == later_versions


@check
async def an_unknown_task_has_no_events(store: Store) -> None:
    assert not await store.events("t9", 0)


# Lists and conversations


@check
async def pages_have_the_owners_tasks_newest_first(store: Store) -> None:
    for number in range(7):
        await begun(store, new_record(f"t{number}", context_id=f"c{number % 2}"))
    await begun(store, new_record("other", owner="bob"))
    task_ids: list[str] = []
    query = Query("ada", limit=3)
    while True:
        page = await store.query(query)
        task_ids += [record.task.id for record in page.records]
        if page.next_cursor is None:
            break
        query = Query("ada", limit=3, cursor=page.next_cursor)
    assert task_ids == ["t6", "t5", "t4", "t3", "t2", "t1", "t0"]
    page = await store.query(Query("ada", "c1"))
    assert [record.task.id for record in page.records] == ["t5", "t3", "t1"]


@check
async def pages_of_all_owners_have_the_tasks_of_each(store: Store) -> None:
    owners = ("ada", "bob", "%tenant|tea|ada", "%tenant|tea.x|ada", "None", "")
    for number, owner in enumerate(owners):
        await begun(store, new_record(f"t{number}", owner=owner, context_id=f"c{number % 2}"))

    async def list_ids(query: Query) -> list[str]:
        task_ids: list[str] = []
        while True:
            page = await store.query(query)
            assert query.order == "created" or page.total >= len(page.records)
            task_ids += [record.task.id for record in page.records]
            if page.next_cursor is None:
                return task_ids
            query = replace(query, cursor=page.next_cursor)

    orders: tuple[Order, ...] = ("created", "updated")
    for order in orders:
        base_query = Query(None, order=order, limit=2)
        assert await list_ids(base_query) == ["t5", "t4", "t3", "t2", "t1", "t0"]
        assert await list_ids(replace(base_query, context_id="c1")) == ["t5", "t3", "t1"]
        assert await list_ids(replace(base_query, state=COMPLETED)) == []
        assert await list_ids(base_query.for_all("%tenant|tea|")) == ["t2"]
        assert await list_ids(replace(base_query.for_all("%tenant|tea|"), context_id="c1")) == []
        cursor = (await store.query(base_query)).next_cursor
        await raises(InvalidParamsError, store.query(Query("None", order=order, cursor=cursor)))
    assert (await store.query(Query(None, order="updated", limit=1))).total == len(owners)


@check
async def pages_by_update_have_the_latest_change_first_and_a_total(store: Store) -> None:
    begun_tasks = [await begun(store, new_record(f"t{number}")) for number in range(3)]
    record, lease = begun_tasks[0]
    await store.change(state_change(record, COMPLETED, lease))
    page = await store.query(Query("ada", order="updated", limit=2))
    assert [record.task.id for record in page.records] == ["t0", "t2"]
    assert page.total == 3
    last_page = await store.query(Query("ada", order="updated", limit=2, cursor=page.next_cursor))
    assert [record.task.id for record in last_page.records] == ["t1"]
    completed = await store.query(Query("ada", state=COMPLETED, order="updated"))
    assert ([record.task.id for record in completed.records], completed.total) == (["t0"], 1)


@check
async def a_cursor_is_valid_for_its_owner_only(store: Store) -> None:
    for number in range(4):
        await begun(store, new_record(f"t{number}", owner=("ada", "bob")[number % 2]))
    orders: tuple[Order, ...] = ("created", "updated")
    for order in orders:
        cursor = (await store.query(Query("ada", order=order, limit=1))).next_cursor
        assert cursor is not None
        page = await store.query(Query("ada", order=order, limit=1, cursor=cursor))
        assert [record.task.id for record in page.records] == ["t0"]
        await raises(InvalidParamsError, store.query(Query("bob", order=order, cursor=cursor)))
        invalid_cursors = "", "3", "x", "no\x00cursor", "\u0663", cursor[1:], f"{cursor}{cursor}"
        for invalid_cursor in invalid_cursors:
            query = Query("ada", order=order, cursor=invalid_cursor)
            await raises(InvalidParamsError, store.query(query))


@check
async def an_empty_id_or_one_with_nul_belongs_to_no_task(store: Store) -> None:
    await begun(store)
    for unknown_id in ("a\x00b", "\x00", ""):
        assert await store.get(unknown_id) is None
        assert not await store.webhooks(unknown_id)
        assert (await store.query(Query("ada", context_id=unknown_id or "\x00"))).records == []


@check
async def a_query_can_have_a_start_time(store: Store) -> None:
    record, _ = await begun(store)
    assert len((await store.query(Query("ada", after=record.status_at))).records) == 1
    assert not (await store.query(Query("ada", after=record.status_at + 1))).records


@check
async def anonymous_callers_list_anonymous_tasks_only(store: Store) -> None:
    await begun(store, new_record("t1", owner=""))
    await begun(store, new_record("t2"))
    orders: tuple[Order, ...] = ("created", "updated")
    for order in orders:
        page = await store.query(Query("", order=order))
        assert [record.task.id for record in page.records] == ["t1"]


@check
async def a_conversation_has_its_messages_in_order(store: Store) -> None:
    for number in range(3):
        record, lease = await begun(store, new_record(f"t{number}"))
        await store.change(state_change(record, COMPLETED, lease))
    await begun(store, new_record("other", owner="bob"))
    messages = await store.conversation("ada", "c1", 10)
    assert [message.message_id for message in messages] == ["m-t0", "m-t1", "m-t2"]
    latest = await store.conversation("ada", "c1", 2)
    assert [message.message_id for message in latest] == ["m-t1", "m-t2"]
    assert not await store.conversation("ada", "c9", 10)


# Retention


@check
async def expired_conversations_are_deleted_and_others_kept(store: Store) -> None:
    if not store.is_durable:
        return
    last_changes: dict[str, Change] = {}
    for context_id in ("ended", "mixed"):
        record, lease = await begun(store, new_record(context_id, context_id=context_id))
        last_changes[context_id] = state_change(record, COMPLETED, lease)
        await store.change(last_changes[context_id])
    await begun(store, new_record("open", context_id="mixed"))
    assert await store.prune() == 0
    store.retention = Retention(log_ttl=0)
    await asyncio.sleep(0.01)
    assert await store.prune() == 1
    assert await store.get("ended") is None
    assert not await store.events("ended", 0)
    assert not await store.conversation("ada", "ended", 10)
    assert await store.get("mixed") == last_changes["mixed"].record
    assert await store.get("open") is not None


@check
async def the_oldest_of_too_many_ended_tasks_are_deleted(store: Store) -> None:
    if not store.is_durable:
        return
    for number in range(5):
        record, lease = await begun(store, new_record(f"t{number}"))
        await store.change(state_change(record, COMPLETED, lease))
    store.retention = Retention(max_logs=2)
    assert await store.prune() == 3
    page = await store.query(Query("ada"))
    assert [record.task.id for record in page.records] == ["t4", "t3"]


@check
async def the_last_event_can_be_read_however_short_the_retention(store: Store) -> None:
    store.retention = Retention(max_logs=0, log_ttl=0)
    record, lease = await begun(store)
    await store.change(state_change(record, COMPLETED, lease))
    assert await versions(store, record.task.id, after=2) == [3]


# Repeated sends


@check
async def a_repeated_send_is_refused_with_the_id_of_its_task(store: Store) -> None:
    key = SendKey("key", b"\x00 the body")
    await begun(store, key=key)
    repeated_send = begun(store, new_record("t2"), key=key)
    (error,) = await asyncio.gather(repeated_send, return_exceptions=True)
    assert type(error) is RepeatedError, error  # not its subclass KeyReusedError
    assert error.task_id == "t1"
    assert await store.get("t2") is None
    reused_key = SendKey("key", b"another body")
    await raises(KeyReusedError, begun(store, new_record("t3"), key=reused_key))
    assert await store.get("t3") is None
    await begun(store, new_record("t4", owner="bob"), key=reused_key)
    await begun(store, new_record("t5"), key=SendKey("another key", b""))


@check
async def only_one_of_concurrent_sends_with_one_key_is_accepted(store: Store) -> None:
    key = SendKey("key", b"body")
    sends = [begun(store, new_record(f"t{number}"), key=key) for number in range(10)]
    outcomes = await asyncio.gather(*sends, return_exceptions=True)
    errors = [outcome for outcome in outcomes if type(outcome) is RepeatedError]
    assert len(errors) == 9, outcomes
    page = await store.query(Query("ada"))
    assert {record.task.id for record in page.records} == {error.task_id for error in errors}
