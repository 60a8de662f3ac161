"""The checks of figures for operators, for stores that have them."""

import time

from apcore_a2a_core.states import CANCELED, COMPLETED, INPUT_REQUIRED, WORKING

from apcore_a2a_server.store.port import Store

from .samples import begun, check, new_record, state_change
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
    found = await store.open_tasks()
    assert found is not None
    assert found.counts == {WORKING: 2, INPUT_REQUIRED: 1}
    assert found.oldest.keys() == found.counts.keys()
    assert all(before <= oldest <= time.time() + 1 for oldest in found.oldest.values())


@check
async def failed_webhooks_are_counted(store: Store) -> None:
    if await store.count_failed_webhooks() is None:
        return
    for number in range(2):
        await begun(store, new_record(f"t{number}"), [hook("w1"), hook("w2")])
    await store.give_up((await claim_due(store))[0], "status 500")
    assert await store.count_failed_webhooks() == 1
