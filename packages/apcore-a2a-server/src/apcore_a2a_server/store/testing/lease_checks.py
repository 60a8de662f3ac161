"""The checks of leases and claims."""

import asyncio
import time

from apcore_a2a_core.states import COMPLETED, FAILED, INPUT_REQUIRED, WORKING

from apcore_a2a_server.store.exceptions import (
    LeaseLostError,
    StaleError,
)
from apcore_a2a_server.store.port import Store

from .samples import (
    LEASE,
    begun,
    check,
    chunk_change,
    new_record,
    raises,
    state_change,
    stored_record,
)


@check
async def a_task_with_a_held_lease_cannot_be_claimed(store: Store) -> None:
    await begun(store)
    assert not await store.claim(10)


@check
async def a_task_with_an_expired_lease_is_claimed_once(store: Store) -> None:
    store.lease_seconds = LEASE
    record, lease = await begun(store)
    await asyncio.sleep(2 * LEASE)
    claims = [*await store.claim(10), *await store.claim(10)]
    assert [claim.record for claim in claims] == [record]
    assert claims[0].lease.epoch > lease.epoch
    assert claims[0].attempts == 1


@check
async def a_claim_does_not_count_as_a_start(store: Store) -> None:
    _, lease = await begun(store)
    for _ in range(5):
        await store.release([lease])
        (claim,) = await store.claim(10)
        assert claim.attempts == 1
        lease = claim.lease


@check
async def a_module_is_started_again_after_pauses_that_grow(store: Store) -> None:
    store.restart_pauses = (LEASE, 2 * LEASE)
    record = new_record()
    record.resume = b"the packed call"
    record, lease = await begun(store, record)
    for starts, pause in enumerate((*store.restart_pauses, 0), 1):
        started = time.monotonic()
        await store.release([lease])
        while not (claims := await store.claim(10)):  # noqa: ASYNC110  # there is nothing to await
            await asyncio.sleep(LEASE / 20)
        assert time.monotonic() - started > pause / 2  # half: not all stores use a monotonic clock
        assert [claim.attempts for claim in claims] == [starts]
        lease = claims[0].lease
        change = state_change(record, WORKING, lease, restart=True)
        change.record.resume = record.resume
        await store.change(change)
        record = change.record


@check
async def a_task_that_cannot_be_started_again_is_claimed_without_a_pause(store: Store) -> None:
    store.restart_pauses = (60,)
    _, lease = await begun(store)
    await store.release([lease])
    assert await store.claim(10)


@check
async def an_answer_resets_the_number_of_starts(store: Store) -> None:
    store.restart_pauses = (0, 60)
    record, lease = await begun(store)
    restarted = state_change(record, WORKING, lease, restart=True)
    await store.change(restarted)
    paused = state_change(restarted.record, INPUT_REQUIRED, lease)
    await store.change(paused)
    resumed = state_change(paused.record, WORKING, run=True)
    resumed.record.resume = b"the packed call"
    new_lease = await store.change(resumed)
    assert new_lease is not None
    await store.release([new_lease])
    (claim,) = await store.claim(10)
    assert claim.attempts == 1


@check
async def a_renewed_lease_does_not_expire(store: Store) -> None:
    store.lease_seconds = LEASE
    _, lease = await begun(store)
    store.lease_seconds = 60
    assert not await store.renew([lease])
    await asyncio.sleep(2 * LEASE)
    assert not await store.claim(10)


@check
async def a_write_under_a_lost_lease_is_refused(store: Store) -> None:
    record, lease = await begun(store)
    await store.release([lease])
    (claim,) = await store.claim(10)
    await raises(LeaseLostError, store.change(chunk_change(record, "late", lease)))
    assert [*await store.renew([lease, claim.lease])] == [lease]
    await store.release([lease])
    assert not await store.claim(10)
    await store.change(state_change(claim.record, COMPLETED, claim.lease))


@check
async def a_running_task_can_be_ended_without_its_lease(store: Store) -> None:
    record, lease = await begun(store)
    await store.change(state_change(record, COMPLETED))
    await raises(StaleError, store.change(chunk_change(record, "late", lease)))
    assert [*await store.renew([lease])] == [lease]


@check
async def a_paused_task_has_no_lease_until_it_runs_again(store: Store) -> None:
    store.lease_seconds = LEASE
    record, lease = await begun(store)
    paused = state_change(record, INPUT_REQUIRED, lease)
    assert await store.change(paused) is None
    await asyncio.sleep(2 * LEASE)
    assert not await store.claim(10)
    new_lease = await store.change(state_change(paused.record, WORKING, run=True))
    assert new_lease is not None
    assert new_lease.epoch > lease.epoch
    assert not await store.renew([new_lease])


@check
async def a_paused_task_is_claimed_after_its_deadline(store: Store) -> None:
    for task_id, seconds in (("t1", LEASE), ("t2", 60)):
        record, lease = await begun(store, new_record(task_id))
        paused = state_change(record, INPUT_REQUIRED, lease)
        paused.record.deadline = await store.now() + seconds
        await store.change(paused)
        assert await store.get(task_id) == paused.record
    await asyncio.sleep(2 * LEASE)
    (claim,) = await store.claim(10)
    assert claim.record == await stored_record(store)
    assert not await store.claim(10)
    await store.change(state_change(claim.record, FAILED))
    assert not await store.claim(10)


@check
async def renewing_a_lost_lease_does_not_move_a_deadline(store: Store) -> None:
    record, lease = await begun(store)
    paused = state_change(record, INPUT_REQUIRED, lease)
    paused.record.deadline = await store.now() + 60
    await store.change(paused)
    assert [*await store.renew([lease])] == [lease]
    await store.release([lease])
    assert not await store.claim(10)


@check
async def no_more_than_the_limit_is_claimed(store: Store) -> None:
    leases = [(await begun(store, new_record(f"t{number}")))[1] for number in range(5)]
    await store.release(leases)
    claims = [*await store.claim(2)]
    assert len(claims) == 2
    claims += await store.claim(9)
    assert sorted(claim.record.task.id for claim in claims) == ["t0", "t1", "t2", "t3", "t4"]
