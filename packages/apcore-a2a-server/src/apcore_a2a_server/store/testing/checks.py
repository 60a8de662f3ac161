"""The checks."""

import asyncio
import time

from a2a import types as a2a
from apcore_a2a_core.states import COMPLETED, FAILED, INPUT_REQUIRED, WORKING

from apcore_a2a_server.store.errors import KeyReusedError, LeaseLostError, RepeatedError, StaleError
from apcore_a2a_server.store.port import Change, Order, Query, Retention, SendKey, Store

from .samples import LEASE, begun, check, kept, new_record, raises, said_more, versions, went_on

# Records


@check
async def a_new_task_is_kept_as_it_is(store: Store) -> None:
    record, lease = await begun(store)
    assert await kept(store) == record
    assert lease.task_id == "t1"
    assert await store.get("t2") is None


@check
async def a_task_is_its_owners(store: Store) -> None:
    record, _ = await begun(store)
    assert await store.get_own("t1", "ada") == record
    assert await store.get_own("t1", "bob") is None
    assert await store.get_own("t2", "ada") is None


@check
async def what_is_handed_out_is_a_copy(store: Store) -> None:
    await begun(store)
    (await kept(store)).task.metadata["touched"] = True
    assert "touched" not in (await kept(store)).task.metadata


@check
async def a_change_of_state_is_kept_whole(store: Store) -> None:
    record, lease = await begun(store)
    change = went_on(record, INPUT_REQUIRED, lease)
    change.record.resume, change.record.messages = b"\x00 the paused call", 7
    await store.change(change)
    assert await kept(store) == change.record


@check
async def chunks_add_up_to_the_artifact(store: Store) -> None:
    record, lease = await begun(store)
    for text in ("one", "two", "three"):
        change = said_more(record, text, lease)
        await store.change(change)
        record = change.record
    await store.change(went_on(record, COMPLETED, lease))
    (artifact,) = (await kept(store)).task.artifacts
    assert [part.text for part in artifact.parts] == ["one", "two", "three"]
    assert await versions(store, "t1") == [1, 2, 3, 4, 5, 6]


# Changes


@check
async def a_change_made_from_an_old_version_is_refused(store: Store) -> None:
    record, lease = await begun(store)
    await store.change(went_on(record, INPUT_REQUIRED, lease))
    await raises(StaleError, store.change(went_on(record, COMPLETED)))
    assert (await kept(store)).task.status.state == INPUT_REQUIRED
    assert await versions(store, "t1") == [1, 2, 3]


@check
async def a_task_that_is_unknown_can_not_change(store: Store) -> None:
    record = new_record("t9")
    record.version = 2
    await raises(StaleError, store.change(went_on(record, COMPLETED)))
    assert await store.get("t9") is None


@check
async def a_task_that_has_ended_stays_as_it_is(store: Store) -> None:
    record, lease = await begun(store)
    end = went_on(record, COMPLETED, lease)
    await store.change(end)
    await raises(StaleError, store.change(went_on(record, INPUT_REQUIRED, lease)))
    assert await kept(store) == end.record


@check
async def of_many_changes_from_one_version_one_is_taken(store: Store) -> None:
    record, _ = await begun(store)
    changes = [went_on(record, COMPLETED) for _ in range(10)]
    outcomes = await asyncio.gather(*map(store.change, changes), return_exceptions=True)
    refused = [outcome for outcome in outcomes if isinstance(outcome, StaleError)]
    assert len(refused) == 9, outcomes
    assert await versions(store, "t1") == [1, 2, 3]


# Events


@check
async def events_are_numbered_without_gaps_and_kept_as_they_were(store: Store) -> None:
    record, lease = await begun(store)
    change = said_more(record, "\x00 nothing is lost", lease)
    await store.change(change)
    events = await store.events("t1", 0)
    assert events is not None
    assert [event.version for event in events] == [1, 2, 3]
    assert isinstance(events[0].payload, a2a.Task)
    assert events[2] == change.events[0]


@check
async def events_are_read_from_any_version_on(store: Store) -> None:
    record, lease = await begun(store)
    await store.change(went_on(record, COMPLETED, lease))
    assert await versions(store, "t1", 1) == [2, 3]
    assert await versions(store, "t1", 3) == []
    assert await versions(store, "t1", 0, 2) == [1, 2]


@check
async def a_log_that_was_cut_says_so(store: Store) -> None:
    store.retention = Retention(max_events=5)
    record, lease = await begun(store)
    for number in range(30):
        change = said_more(record, str(number), lease)
        await store.change(change)
        record = change.record
    assert await store.events("t1", 0) is None
    assert await versions(store, "t1", record.version - 5) == [28, 29, 30, 31, 32]
    for after in range(record.version):  # a reader gets every event that it lacks, or none
        events = await store.events("t1", after)
        missed = [*range(after + 1, record.version + 1)]
        assert events is None or [event.version for event in events] == missed


@check
async def a_task_that_is_unknown_has_no_events(store: Store) -> None:
    assert not await store.events("t9", 0)


# Leases


@check
async def a_lease_that_is_held_can_not_be_claimed(store: Store) -> None:
    await begun(store)
    assert not await store.claim(10)


@check
async def an_expired_lease_is_claimed_once(store: Store) -> None:
    store.lease_seconds = LEASE
    record, lease = await begun(store)
    await asyncio.sleep(2 * LEASE)
    claims = [*await store.claim(10), *await store.claim(10)]
    assert [claim.record for claim in claims] == [record]
    assert claims[0].lease.epoch > lease.epoch
    assert claims[0].attempts == 1


@check
async def a_lease_that_is_renewed_lasts(store: Store) -> None:
    store.lease_seconds = LEASE
    _, lease = await begun(store)
    for _ in range(4):
        await asyncio.sleep(LEASE / 2)
        assert not await store.renew([lease])
    assert not await store.claim(10)


@check
async def who_has_lost_the_lease_can_not_write_any_more(store: Store) -> None:
    record, lease = await begun(store)
    await store.release([lease])
    (claim,) = await store.claim(10)
    await raises(LeaseLostError, store.change(said_more(record, "late", lease)))
    assert [*await store.renew([lease, claim.lease])] == [lease]
    await store.release([lease])
    assert not await store.claim(10)
    await store.change(went_on(claim.record, COMPLETED, claim.lease))


@check
async def who_has_no_lease_can_end_a_task_that_runs(store: Store) -> None:
    record, lease = await begun(store)
    await store.change(went_on(record, COMPLETED))
    await raises(StaleError, store.change(said_more(record, "late", lease)))
    assert [*await store.renew([lease])] == [lease]


@check
async def a_paused_task_has_no_lease_until_somebody_runs_it(store: Store) -> None:
    store.lease_seconds = LEASE
    record, lease = await begun(store)
    paused = went_on(record, INPUT_REQUIRED, lease)
    assert await store.change(paused) is None
    await asyncio.sleep(2 * LEASE)
    assert not await store.claim(10)
    again = await store.change(went_on(paused.record, WORKING, run=True))
    assert again is not None
    assert again.epoch > lease.epoch
    assert not await store.renew([again])


@check
async def a_paused_task_is_claimed_when_its_time_is_over(store: Store) -> None:
    record, lease = await begun(store)
    paused = went_on(record, INPUT_REQUIRED, lease)
    paused.record.deadline = time.time() + LEASE
    await store.change(paused)
    assert await kept(store) == paused.record
    assert not await store.claim(10)
    await asyncio.sleep(2 * LEASE)
    (claim,) = await store.claim(10)
    assert claim.record == paused.record
    assert not await store.claim(10)
    await store.change(went_on(claim.record, FAILED))
    assert not await store.claim(10)


@check
async def who_renews_or_releases_late_does_not_move_the_end_of_a_question(store: Store) -> None:
    record, lease = await begun(store)
    paused = went_on(record, INPUT_REQUIRED, lease)
    paused.record.deadline = time.time() + 60
    await store.change(paused)
    assert [*await store.renew([lease])] == [lease]
    await store.release([lease])
    assert not await store.claim(10)


@check
async def no_more_is_claimed_than_is_asked_for(store: Store) -> None:
    leases = [(await begun(store, new_record(f"t{number}")))[1] for number in range(5)]
    await store.release(leases)
    claims = [*await store.claim(2), *await store.claim(9)]
    assert sorted(claim.record.task.id for claim in claims) == ["t0", "t1", "t2", "t3", "t4"]


# Lists and conversations


@check
async def pages_are_newest_first_and_the_owners(store: Store) -> None:
    for number in range(7):
        await begun(store, new_record(f"t{number}", context_id=f"c{number % 2}"))
    await begun(store, new_record("other", owner="bob"))
    seen: list[str] = []
    query = Query("ada", limit=3)
    while True:
        page = await store.query(query)
        seen += [record.task.id for record in page.records]
        if page.next_cursor is None:
            break
        query = Query("ada", limit=3, cursor=page.next_cursor)
    assert seen == ["t6", "t5", "t4", "t3", "t2", "t1", "t0"]
    page = await store.query(Query("ada", "c1"))
    assert [record.task.id for record in page.records] == ["t5", "t3", "t1"]


@check
async def a_page_by_update_has_the_latest_change_first_and_counts(store: Store) -> None:
    begins = [await begun(store, new_record(f"t{number}")) for number in range(3)]
    record, lease = begins[0]
    await store.change(went_on(record, COMPLETED, lease))
    page = await store.query(Query("ada", order="updated", limit=2))
    assert [record.task.id for record in page.records] == ["t0", "t2"]
    assert page.total == 3
    rest = await store.query(Query("ada", order="updated", limit=2, cursor=page.next_cursor))
    assert [record.task.id for record in rest.records] == ["t1"]
    done = await store.query(Query("ada", state=COMPLETED, order="updated"))
    assert ([record.task.id for record in done.records], done.total) == (["t0"], 1)


@check
async def a_page_can_begin_at_a_time(store: Store) -> None:
    record, _ = await begun(store)
    assert len((await store.query(Query("ada", after=record.status_at))).records) == 1
    assert not (await store.query(Query("ada", after=record.status_at + 1))).records


@check
async def an_anonymous_owner_lists_its_own_tasks_only(store: Store) -> None:
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
        await store.change(went_on(record, COMPLETED, lease))
    await begun(store, new_record("other", owner="bob"))
    said = await store.conversation("ada", "c1", 10)
    assert [message.message_id for message in said] == ["m-t0", "m-t1", "m-t2"]
    assert [m.message_id for m in await store.conversation("ada", "c1", 2)] == ["m-t1", "m-t2"]
    assert not await store.conversation("ada", "c9", 10)


# Retention


@check
async def conversations_that_are_over_leave_and_others_stay(store: Store) -> None:
    if not store.is_durable:
        return
    ended: dict[str, Change] = {}
    for name in ("over", "half"):
        record, lease = await begun(store, new_record(name, context_id=name))
        ended[name] = went_on(record, COMPLETED, lease)
        await store.change(ended[name])
    await begun(store, new_record("works", context_id="half"))
    assert await store.prune() == 0
    store.retention = Retention(log_ttl=0)
    await asyncio.sleep(0.01)
    assert await store.prune() == 1
    assert await store.get("over") is None
    assert not await store.events("over", 0)
    assert not await store.conversation("ada", "over", 10)
    assert await store.get("half") == ended["half"].record
    assert await store.get("works") is not None


@check
async def of_too_many_ended_tasks_the_oldest_leave(store: Store) -> None:
    if not store.is_durable:
        return
    for number in range(5):
        record, lease = await begun(store, new_record(f"t{number}"))
        await store.change(went_on(record, COMPLETED, lease))
    store.retention = Retention(max_logs=2)
    assert await store.prune() == 3
    page = await store.query(Query("ada"))
    assert [record.task.id for record in page.records] == ["t4", "t3"]


@check
async def an_end_can_be_read_however_short_it_is_kept(store: Store) -> None:
    store.retention = Retention(max_logs=0, log_ttl=0)
    record, lease = await begun(store)
    await store.change(went_on(record, COMPLETED, lease))
    assert await versions(store, record.task.id, after=2) == [3]


# Sends that are repeated


@check
async def a_send_that_is_repeated_finds_its_task(store: Store) -> None:
    key = SendKey("key", b"\x00 the body")
    await begun(store, key=key)
    (found,) = await asyncio.gather(begun(store, new_record("t2"), key=key), return_exceptions=True)
    assert isinstance(found, RepeatedError), found
    assert found.task_id == "t1"
    assert await store.get("t2") is None
    other = SendKey("key", b"another body")
    await raises(KeyReusedError, begun(store, new_record("t3"), key=other))
    assert await store.get("t3") is None
    await begun(store, new_record("t4", owner="bob"), key=other)
    await begun(store, new_record("t5"), key=SendKey("another key", b""))


@check
async def of_sends_that_come_together_one_is_taken(store: Store) -> None:
    key = SendKey("key", b"body")
    sends = [begun(store, new_record(f"t{number}"), key=key) for number in range(10)]
    outcomes = await asyncio.gather(*sends, return_exceptions=True)
    repeated = {each.task_id for each in outcomes if isinstance(each, RepeatedError)}
    assert len([each for each in outcomes if isinstance(each, RepeatedError)]) == 9, outcomes
    page = await store.query(Query("ada"))
    assert {record.task.id for record in page.records} == repeated
