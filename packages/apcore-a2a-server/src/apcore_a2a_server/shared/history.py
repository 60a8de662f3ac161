"""The former states of a task, in its metadata (FR-TSK-002)."""

from apcore_a2a_core import to_value
from apcore_a2a_store import TaskRecord
from apcore_a2a_store.states import NAMES

MAX_STATES = 100
"""How many former states a task remembers."""


def remember(record: TaskRecord) -> None:
    """Put the status that is about to pass into the state history."""
    status, apcore = record.task.status, record.task.metadata.fields["apcore"]
    passed: dict[str, object] = {
        "state": NAMES[status.state],
        "timestamp": status.timestamp.ToJsonString(),
        "principal": record.owner,
    }
    if status.message.parts:
        passed["message"] = status.message.parts[0].text
    history = apcore.struct_value.fields["stateHistory"].list_value
    history.values.append(to_value(passed))
    del history.values[:-MAX_STATES]
