"""The checks of large messages, which a store may keep once for a task and its conversation."""

from apcore_a2a_core.data import Message, Part, Task
from apcore_a2a_core.records import LARGE_MESSAGE, TaskRecord
from apcore_a2a_core.states import COMPLETED, INPUT_REQUIRED, WORKING
from msgspec.structs import replace

from apcore_a2a_server.store.port import Store
from apcore_a2a_server.store.queries import Query

from .samples import begun, check, new_record, state_change, stored_record

LARGE_TEXT = "\x00large" * LARGE_MESSAGE
"""A text that makes a message large."""


def _message(message_id: str, text: str) -> Message:
    return Message(message_id=message_id, context_id="c1", parts=[Part(text=text)])


def _with_text(record: TaskRecord, text: str) -> TaskRecord:
    """Set the text of the only message of *record*; return the record."""
    record.task.history[0].parts[0].text = text
    return record


@check
async def large_messages_are_returned_wherever_they_belong(store: Store) -> None:
    record, lease = await begun(store, _with_text(new_record(), LARGE_TEXT))
    first_message = record.task.history[0]
    assert await stored_record(store) == record
    events = await store.events("t1", 0)
    assert events is not None
    assert isinstance(events[0].payload, Task)
    assert events[0].payload.history == [first_message]

    paused = state_change(record, INPUT_REQUIRED, lease)
    paused.record.task.history.append(Message(message_id="small", parts=[Part(text="?")]))
    paused.record.task.history.append(_message("large", LARGE_TEXT[::-1]))
    paused.record.messages = 3
    await store.change(replace(paused, known_messages=1))
    assert await stored_record(store) == paused.record
    page = await store.query(Query("ada", "c1"))
    assert page.records == [paused.record]

    resumed = state_change(paused.record, WORKING, run=True)
    del resumed.record.task.history[0]  # the history is trimmed
    resumed_lease = await store.change(replace(resumed, known_messages=3))
    assert resumed_lease is not None
    assert await stored_record(store) == resumed.record
    await store.release([resumed_lease])
    (claim,) = await store.claim(10)
    assert claim.record == resumed.record
    await store.change(state_change(resumed.record, COMPLETED, claim.lease))
    assert (await stored_record(store)).task.history == resumed.record.task.history
    events = await store.events("t1", 0)
    assert events is not None
    assert isinstance(events[0].payload, Task)
    # the oldest message may be missing here too, but nothing else may be in its place
    assert [*events[0].payload.history] in ([], [first_message])


@check
async def large_messages_of_different_tasks_are_not_mixed_up(store: Store) -> None:
    records = [
        _with_text(new_record(task_id), f"{task_id}{LARGE_TEXT}") for task_id in ("t1", "t2", "t3")
    ]
    for record in records:
        await begun(store, record)
    for record in records:
        assert await stored_record(store, record.task.id) == record
    page = await store.query(Query("ada", "c1"))
    assert page.records == records[::-1]
