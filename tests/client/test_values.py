"""Conversion of Python values to messages, and of tasks to Python values and exceptions."""

from collections import deque
from typing import Any

import pytest
from a2a import types as sdk
from a2a.server.tasks.task_manager import append_artifact_to_task
from apcore_a2a_client import (
    Artifact,
    InputRequired,
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskFailedError,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from apcore_a2a_client.results import result_of
from apcore_a2a_client.tasks import apply_event
from hypothesis import given
from hypothesis import strategies as st

from .shapes import few_examples, json_of, shapes, values

DONE = TaskStatus(TaskState.COMPLETED)
TEXT, DATA, RAW, URL = Part(text="hi"), Part(data={"n": 5}), Part(raw=b"x"), Part(url="https://x")
FILE = Part(raw=b"png", filename="chart")


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("hi", TEXT),
        ("", Part(text="")),
        ({"n": 5}, DATA),
        ({}, Part(data={})),
        (b"x", RAW),
        (b"", Part(raw=b"")),
        ([1, "a"], Part(data=[1, "a"])),
        (None, Part(data=None)),
        (0, Part(data=0)),
        (2.5, Part(data=2.5)),
        (True, Part(data=True)),
        (URL, URL),
    ],
)
def test_any_value_can_be_a_part(content: Any, part: Part) -> None:
    assert Part.of(content) == part
    assert Part.of(content).value == (URL.url if content is URL else content)


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("hi", [TEXT]),
        ({"n": 5}, [DATA]),
        (b"x", [RAW]),
        (None, [Part(data=None)]),
        (7, [Part(data=7)]),
        (FILE, [FILE]),
        ([], []),
        (["hi", {"n": 5}, b"x", URL], [TEXT, DATA, RAW, URL]),
        (("hi",), [TEXT]),
        ([[1, 2]], [Part(data=[1, 2])]),
        (deque(["hi"]), [TEXT]),
    ],
)
def test_any_value_can_be_a_message_of_the_user(content: Any, parts: list[Part]) -> None:
    message = Message.of(content)
    assert list(message.parts) == parts
    assert message.role == Role.USER
    assert message.message_id


def test_every_message_has_its_own_id() -> None:
    assert Message.of("hi").message_id != Message.of("hi").message_id


def test_a_message_keeps_its_members_except_for_given_ids() -> None:
    message = Message((TEXT,), Role.AGENT, "m", "c", "t", {"n": 1}, ("https://x",), ("t0",))
    assert Message.of(message) == message
    copy = Message.of(message, context_id="c2", task_id="t2")
    assert (copy.message_id, copy.context_id, copy.task_id) == ("m", "c2", "t2")
    assert message.context_id == "c"


def test_missing_members_of_a_message_are_added() -> None:
    message = Message.of(Message((TEXT,)), context_id="c", task_id="t")
    assert (message.role, message.context_id, message.task_id) == (Role.USER, "c", "t")
    assert message.message_id


@given(values)
def test_data_is_not_changed_by_a_message(value: Any) -> None:
    part = Part(data=value)
    assert Message.from_dict(Message.of(part).to_dict()).value == value


VALUES = [
    ([], None),
    ([TEXT], "hi"),
    ([DATA], {"n": 5}),
    ([Part(data=None)], None),
    ([Part(data=[1, 2])], [1, 2]),
    ([RAW], b"x"),
    ([FILE], b"png"),
    ([URL], "https://x"),
    ([TEXT, Part(text=" "), Part(text="you")], "hi you"),
    ([DATA, FILE], {"n": 5, "chart": b"png"}),
    ([DATA, FILE, Part(raw=b"a", filename="b")], {"n": 5, "chart": b"png", "b": b"a"}),
    ([DATA, RAW], [{"n": 5}, b"x"]),
    ([DATA, FILE, FILE], [{"n": 5}, b"png", b"png"]),
    ([DATA, Part(raw=b"x", filename="n")], [{"n": 5}, b"x"]),
    ([DATA, DATA], [{"n": 5}, {"n": 5}]),
    ([FILE, DATA], [b"png", {"n": 5}]),
    ([Part(data=[1]), FILE], [[1], b"png"]),
    ([DATA, Part(url="https://x", filename="chart")], [{"n": 5}, "https://x"]),
    ([TEXT, DATA], ["hi", {"n": 5}]),
    ([TEXT, URL], ["hi", "https://x"]),
    ([RAW, RAW], [b"x", b"x"]),
]


@pytest.mark.parametrize(("parts", "value"), VALUES)
def test_parts_are_combined_into_one_value(parts: list[Part], value: Any) -> None:
    artifact, message = Artifact("a", tuple(parts)), Message(tuple(parts))
    assert artifact.value == message.value == value
    assert Task("t", DONE, artifacts=(artifact,)).value == value
    assert Task("t", TaskStatus(TaskState.COMPLETED, message)).value == value


def test_changes_to_the_combined_value_do_not_change_its_parts() -> None:
    artifact = Artifact("a", (DATA, FILE))
    artifact.value["more"] = 1
    assert artifact.value == {"n": 5, "chart": b"png"}


def test_the_value_of_several_artifacts_is_a_list() -> None:
    artifacts = (Artifact("a", (TEXT,)), Artifact("b"), Artifact("c", (TEXT, TEXT)))
    assert Task("t", DONE, artifacts=artifacts).value == ["hi", None, "hihi"]


def test_artifacts_take_precedence_over_the_message() -> None:
    status = TaskStatus(TaskState.COMPLETED, Message((Part(text="done"),)))
    assert Task("t", status, artifacts=(Artifact("a", (DATA,)),)).value == {"n": 5}


def test_a_task_without_output_has_no_value() -> None:
    assert Task("t", DONE).value is None
    assert Task("t", DONE, artifacts=(Artifact("a"),)).value is None


def chunk(id: str, *parts: Part, append: bool = False, **members: Any) -> TaskArtifactUpdateEvent:
    return TaskArtifactUpdateEvent("t", Artifact(id, parts, **members), "c", append=append)


def test_an_appended_chunk_adds_its_parts() -> None:
    task = Task("t", DONE, artifacts=(Artifact("a", (TEXT,)), Artifact("b", (DATA,))))
    longer = apply_event(task, chunk("a", URL, append=True))
    assert longer.artifacts == (Artifact("a", (TEXT, URL)), Artifact("b", (DATA,)))
    assert task.artifacts[0] == Artifact("a", (TEXT,))


def test_an_appended_chunk_keeps_the_name_of_the_artifact() -> None:
    task = apply_event(None, chunk("a", TEXT, name="report", metadata={"n": 1}))
    [artifact] = apply_event(task, chunk("a", URL, append=True)).artifacts
    assert (artifact.name, artifact.metadata) == ("report", {"n": 1})


def test_a_chunk_that_is_not_appended_replaces_its_artifact() -> None:
    task = Task("t", DONE, artifacts=(Artifact("a", (TEXT,), "old"), Artifact("b", (DATA,))))
    updated = apply_event(task, chunk("a", URL))
    assert updated.artifacts == (Artifact("a", (URL,)), Artifact("b", (DATA,)))


def test_a_chunk_appended_to_nothing_starts_an_artifact() -> None:
    task = apply_event(Task("t", DONE, artifacts=(Artifact("a"),)), chunk("b", TEXT, append=True))
    assert task.artifacts == (Artifact("a"), Artifact("b", (TEXT,)))


@few_examples
@given(st.data())
def test_artifacts_grow_as_in_the_sdk(data: st.DataObject) -> None:
    sdk_task = sdk.Task(id="t")
    client_task = Task("t", DONE)
    for _ in range(4):
        event = data.draw(shapes(sdk.TaskArtifactUpdateEvent))
        event.artifact.artifact_id = data.draw(st.sampled_from("ab"))
        # the SDK accepts no chunk appended to an unknown artifact
        event.append &= event.artifact.artifact_id in {a.artifact_id for a in client_task.artifacts}
        append_artifact_to_task(sdk_task, event)
        client_task = apply_event(client_task, TaskArtifactUpdateEvent.from_dict(json_of(event)))
    expected = [Artifact.from_dict(json_of(artifact)) for artifact in sdk_task.artifacts]
    assert [(a.to_dict(), list(a.parts)) for a in client_task.artifacts] == [
        (a.to_dict(), list(a.parts)) for a in expected
    ]


def test_an_event_may_arrive_before_its_task() -> None:
    status = TaskStatus(TaskState.WORKING, Message((TEXT,)))
    assert apply_event(None, TaskStatusUpdateEvent("t", status, "c")) == Task("t", status, "c")
    task = apply_event(None, chunk("a", TEXT))
    assert (task.id, task.context_id, task.value) == ("t", "c", "hi")
    assert task.status.state == TaskState.UNSPECIFIED


def test_a_status_event_changes_only_the_status() -> None:
    task = Task("t", TaskStatus(TaskState.WORKING), "c", (Artifact("a"),), (Message(),), {"n": 1})
    updated = apply_event(task, TaskStatusUpdateEvent("t", DONE))
    assert updated.status == DONE
    assert updated.to_dict() == {**task.to_dict(), "status": {"state": "TASK_STATE_COMPLETED"}}


def test_a_snapshot_replaces_all_earlier_events() -> None:
    task = Task("t", DONE)
    assert apply_event(Task("t", DONE, artifacts=(Artifact("a"),)), task) is task


def test_a_message_is_a_completed_task_without_an_id() -> None:
    task = apply_event(None, Message((TEXT,), Role.AGENT, "m", "c"))
    assert (task.id, task.context_id, task.value) == ("", "c", "hi")
    assert result_of(task) == "hi"


def task_in_state(state: str, *parts: Part) -> Task:
    return Task("t", TaskStatus(TaskState(state), Message(parts)))


def test_a_completed_task_has_a_result() -> None:
    assert result_of(Task("t", DONE, artifacts=(Artifact("a", (DATA,)),))) == {"n": 5}


@pytest.mark.parametrize("state", ["failed", "canceled", "rejected", "working", "unknown"])
def test_a_task_that_did_not_complete_raises(state: str) -> None:
    with pytest.raises(TaskFailedError) as caught:
        result_of(Task("t", TaskStatus(TaskState(state))))
    assert str(caught.value) == f"The task is {state}"
    assert (caught.value.task.id, caught.value.code, caught.value.data) == ("t", None, None)


def test_a_failure_has_the_message_of_the_agent() -> None:
    details = Part(data={"code": -32602, "data": {"errors": []}, "message": "no"})
    with pytest.raises(TaskFailedError) as caught:
        result_of(task_in_state("failed", Part(text="It is"), Part(text="broken"), details))
    assert str(caught.value) == "It is broken"
    assert (caught.value.code, caught.value.data) == (-32602, {"errors": []})


@pytest.mark.parametrize("part", [RAW, URL, Part(data=None), Part(data=[{"code": 1}])])
def test_a_failure_without_a_text_has_a_default_message(part: Part) -> None:
    with pytest.raises(TaskFailedError) as caught:
        result_of(task_in_state("failed", part))
    assert str(caught.value) == "The task is failed"
    assert caught.value.code is None


def test_a_long_message_of_a_failure_is_shortened() -> None:
    with pytest.raises(TaskFailedError) as caught:
        result_of(task_in_state("failed", Part(text="x" * 10**6)))
    assert len(str(caught.value)) == 500


@pytest.mark.parametrize("state", ["input-required", "auth-required"])
def test_a_paused_task_raises_input_required(state: str) -> None:
    with pytest.raises(InputRequired, match=r"Which city\?") as caught:
        result_of(task_in_state(state, Part(text="Which city?"), DATA))
    assert caught.value.task.status.state == state
    with pytest.raises(InputRequired, match=f"The task is {state}"):
        result_of(task_in_state(state))


@pytest.mark.parametrize(
    ("state", "metadata"),
    [(TaskState.COMPLETED, {"a": 1, "b": 2}), (TaskState.WORKING, {"a": 1})],
)
def test_only_the_metadata_of_a_final_event_is_added_to_the_task(
    state: TaskState, metadata: Any
) -> None:
    task = Task("t", TaskStatus(TaskState.WORKING), "c", metadata={"a": 1})
    event = TaskStatusUpdateEvent(
        task_id="t", context_id="c", status=TaskStatus(state), metadata={"b": 2}
    )
    assert apply_event(task, event).metadata == metadata
