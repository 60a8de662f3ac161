"""Tasks that are restarted while a client reads their stream."""

import json
import pickle
from collections.abc import Iterable
from typing import Any

import pytest
from apcore_a2a_client import (
    Restarted,
    StreamRestartedError,
    Task,
    TaskArtifactUpdateEvent,
    TaskStatusUpdateEvent,
)
from apcore_a2a_client.tasks import apply_event

from .raw import CLOSE, CUT, KINDS, Client, Request, Step, agent, head, raw, rpc, task

pytestmark = pytest.mark.rotating("kind")

kinds = pytest.mark.parametrize("kind", KINDS)
Json = dict[str, Any]
RESTART_METADATA = {"apcore": {"restarted": True}}


def chunk(text: str, *, append: bool, artifact: str = "a") -> Json:
    body = {"artifactId": artifact, "parts": [{"text": text}]}
    return {"artifactUpdate": {"taskId": "t-1", "artifact": body, "append": append}}


def status(state: str = "WORKING", **members: Any) -> Json:
    return {
        "statusUpdate": {"taskId": "t-1", "status": {"state": f"TASK_STATE_{state}"}, **members}
    }


def snapshot(state: str = "WORKING", **artifacts: str) -> Json:
    """Return a snapshot whose artifacts have one part for each letter of their text."""
    artifact_list = [
        {"artifactId": name, "parts": [{"text": letter} for letter in letters]}
        for name, letters in artifacts.items()
    ]
    return {"task": task(state=f"TASK_STATE_{state}", artifacts=artifact_list)}


def stream_body(events: Iterable[Json], *, numbered: bool) -> bytes:
    return b"".join(
        (b"id: %d\n" % number if numbered else b"") + b"data: %s\n\n" % rpc_event(event)
        for number, event in enumerate(events, 1)
    )


def rpc_event(event: Json) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "result": event}).encode()


def script_streaming(*events: Json, numbered: bool = False) -> Any:
    """Return a script that answers every request with a stream of *events*."""
    text = stream_body(events, numbered=numbered)
    return agent(lambda _: [head(content_type="text/event-stream"), text, CLOSE])


EMPTY_CHUNK = {"artifactUpdate": {"taskId": "t-1", "artifact": {"artifactId": "a", "parts": []}}}
FIRST_RUN = [snapshot(), chunk("1", append=False), chunk("2", append=True)]
SECOND_RUN = [chunk("1", append=False), chunk("2", append=True), chunk("3", append=True)]
ANNOUNCED_RESTART = [
    *FIRST_RUN,
    status(metadata=RESTART_METADATA),
    *SECOND_RUN,
    status("COMPLETED"),
]
UNANNOUNCED_RESTARTS = {
    "an artifact is replaced": [*FIRST_RUN, *SECOND_RUN, status("COMPLETED")],
    "an artifact is gone": [*FIRST_RUN, snapshot(), *SECOND_RUN, status("COMPLETED")],
    "an artifact has shrunk": [
        *FIRST_RUN,
        snapshot(a="1"),
        *SECOND_RUN[1:],
        status("COMPLETED"),
    ],
}
ALL_STREAMS = {"a restart is announced": ANNOUNCED_RESTART, **UNANNOUNCED_RESTARTS}


@kinds
@pytest.mark.parametrize("name", ALL_STREAMS)
def test_a_restart_is_an_event_before_the_repeated_events(kind: str, name: str) -> None:
    with raw(script_streaming(*ALL_STREAMS[name])) as server, Client(kind, server.url) as client:
        events = client.do("stream_message", "hi")
    restarts = [index for index, event in enumerate(events) if isinstance(event, Restarted)]
    assert restarts == [len(FIRST_RUN)]
    assert (events[3].task_id, events[3].context_id) == ("t-1", "c-1")
    assert events[3].status.state == "working"
    assert len(events) == len(ALL_STREAMS[name]) + 1
    final: Task | None = None
    for event in events:
        final = apply_event(final, event)
    assert final
    assert final.value == "123"


@kinds
@pytest.mark.parametrize("name", ALL_STREAMS)
def test_a_restart_that_would_repeat_values_raises_an_error(kind: str, name: str) -> None:
    values: list[Any] = []
    with raw(script_streaming(*ALL_STREAMS[name])) as server, Client(kind, server.url) as client:
        with pytest.raises(StreamRestartedError, match="on_restart") as caught:
            client.do("stream", "skill", "hi", into=values)
        assert values == ["1", "2"]
        assert caught.value.task.id == "t-1"
        assert pickle.loads(pickle.dumps(caught.value)).task.id == "t-1"


@kinds
@pytest.mark.parametrize("name", ALL_STREAMS)
def test_with_a_callback_the_values_are_repeated(kind: str, name: str) -> None:
    values: list[Any] = []
    with raw(script_streaming(*ALL_STREAMS[name])) as server, Client(kind, server.url) as client:
        client.do("stream", "skill", "hi", into=values, on_restart=values.clear)
    assert values == ["1", "2", "3"]


@kinds
def test_each_restart_calls_the_callback(kind: str) -> None:
    restart = [status(metadata=RESTART_METADATA), *SECOND_RUN]
    sent_events = [*FIRST_RUN, *restart, *restart, status("COMPLETED")]
    calls: list[None] = []
    with raw(script_streaming(*sent_events)) as server, Client(kind, server.url) as client:
        client.do("stream", "skill", "hi", on_restart=lambda: calls.append(None))
    assert len(calls) == 2


@kinds
@pytest.mark.parametrize("earlier_events", [[], [EMPTY_CHUNK]], ids=["none", "no parts"])
def test_a_restart_before_the_first_value_raises_no_error(
    kind: str, earlier_events: list[Json]
) -> None:
    sent_events = [
        snapshot(),
        *earlier_events,
        status(metadata=RESTART_METADATA),
        *SECOND_RUN,
        status("COMPLETED"),
    ]
    with raw(script_streaming(*sent_events)) as server, Client(kind, server.url) as client:
        assert client.do("stream", "skill", "hi") == ["1", "2", "3"]
        events = client.do("stream_message", "hi")
    del events[1 : len(earlier_events) + 1]
    assert [type(event) for event in events[:3]] == [Task, Restarted, TaskStatusUpdateEvent]


@kinds
@pytest.mark.parametrize(
    "progress",
    [
        [],
        [status(metadata={"apcore": {"restarted": False}, "restarted": True})],
        [status(metadata={"apcore": True})],
        [status(message={"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "50 %"}]})],
        [snapshot(a="12")],
        [snapshot(a="123")],
        [chunk("12", append=False)],
        [chunk("x", append=False, artifact="b"), chunk("y", append=False, artifact="b")],
    ],
)
def test_progress_is_not_taken_for_a_restart(kind: str, progress: list[Json]) -> None:
    """Agents send progress between chunks, repeat artifacts, and replace those of one chunk."""
    sent_events = [*FIRST_RUN, *progress, status("COMPLETED")]
    with raw(script_streaming(*sent_events)) as server, Client(kind, server.url) as client:
        events = client.do("stream_message", "hi")
        assert client.do("stream", "skill", "hi")[:2] == ["1", "2"]
    assert not [event for event in events if isinstance(event, Restarted)]


@kinds
@pytest.mark.parametrize("state", ["COMPLETED", "FAILED", "CANCELED"])
def test_a_final_task_without_its_artifacts_is_not_taken_for_a_restart(
    kind: str, state: str
) -> None:
    sent_events = [*FIRST_RUN, snapshot(state)]
    with raw(script_streaming(*sent_events)) as server, Client(kind, server.url) as client:
        events = client.do("stream_message", "hi")
    assert [type(event) for event in events] == [
        Task,
        TaskArtifactUpdateEvent,
        TaskArtifactUpdateEvent,
        Task,
    ]


@kinds
def test_texts_that_a_snapshot_has_joined_are_not_repeated(kind: str) -> None:
    joined = {"artifactId": "a", "parts": [{"text": "123"}]}
    final = {"task": task(artifacts=[joined])}
    with raw(script_streaming(*FIRST_RUN, final)) as server, Client(kind, server.url) as client:
        assert client.do("stream", "skill", "hi") == ["1", "2", "3"]


@kinds
@pytest.mark.parametrize(("repeated", "last_values"), [("12", []), ("123", ["3"])])
def test_an_artifact_that_is_repeated_as_a_whole_yields_only_what_it_adds(
    kind: str, repeated: str, last_values: list[str]
) -> None:
    sent_events = [*FIRST_RUN, chunk(repeated, append=False), status("COMPLETED")]
    with raw(script_streaming(*sent_events)) as server, Client(kind, server.url) as client:
        assert client.do("stream", "skill", "hi") == ["1", "2", *last_values]


@kinds
def test_a_chunk_that_replaces_the_only_one_is_yielded_even_if_it_is_the_same(kind: str) -> None:
    sent_events = [snapshot(), *[chunk("x", append=False)] * 2, status("COMPLETED")]
    with raw(script_streaming(*sent_events)) as server, Client(kind, server.url) as client:
        assert client.do("stream", "skill", "hi") == ["x", "x"]


@kinds
def test_a_restart_event_has_the_id_of_the_event_before_it(kind: str) -> None:
    """A stream resumed after that id begins with the announcement of the restart."""
    script = script_streaming(*ANNOUNCED_RESTART, numbered=True)
    with raw(script) as server, Client(kind, server.url) as client:
        events = client.do("stream_message", "hi")
    assert [event.event_id for event in events] == ["1", "2", "3", "3", "4", "5", "6", "7", "8"]
    assert isinstance(events[3], Restarted)


@kinds
def test_a_restart_during_a_lost_connection_is_reported_afterwards(kind: str) -> None:
    """The stream resumes with the events that the client missed."""

    def script(request: Request) -> Iterable[Step]:
        last = int(request.headers.get("last-event-id", 0))
        all_events = stream_body(ANNOUNCED_RESTART, numbered=True).split(b"\n\n")
        sent = all_events[last : last + 3] if last == 0 else all_events[last:]
        return [head(content_type="text/event-stream"), b"\n\n".join(sent) + b"\n\n", CUT]

    values: list[Any] = []
    with raw(agent(script)) as server, Client(kind, server.url, retries=3) as client:
        client.do("stream", "skill", "hi", into=values, on_restart=values.clear)
    assert values == ["1", "2", "3"]


@kinds
def test_a_chunk_that_the_first_snapshot_contains_too_is_not_taken_for_a_restart(kind: str) -> None:
    """Without numbered events, a chunk may be in the snapshot and come after it once more."""
    connections = [
        [snapshot(a="123"), chunk("3", append=True)],
        [snapshot(a="123"), chunk("4", append=True), status("COMPLETED")],
    ]

    def script(request: Request) -> Iterable[Step]:
        text = stream_body(connections.pop(0), numbered=False)
        return [head(content_type="text/event-stream"), text, CUT if connections else CLOSE]

    with raw(agent(script)) as server, Client(kind, server.url, retries=3) as client:
        events = client.do("subscribe", "t-1")
    assert [type(event) for event in events] == [
        Task,
        TaskArtifactUpdateEvent,
        Task,
        TaskArtifactUpdateEvent,
        TaskStatusUpdateEvent,
    ]


@kinds
def test_a_restart_of_a_polled_task_is_reported_too(kind: str) -> None:
    polls = [snapshot(a="12"), snapshot(), snapshot(a="1"), snapshot("COMPLETED", a="123")]

    def script(request: Request) -> Iterable[Step]:
        is_send = request.json["method"] == "SendMessage"
        return rpc(request, result=snapshot() if is_send else polls.pop(0)["task"])

    values: list[Any] = []
    with (
        raw(agent(script, capabilities={})) as server,
        Client(kind, server.url) as client,
    ):
        client.do("stream", "skill", "hi", into=values, on_restart=values.clear)
    assert "".join(values) == "123"


@kinds
def test_a_call_returns_the_result_of_the_last_run(kind: str) -> None:
    sent_events = [
        *FIRST_RUN,
        status(metadata=RESTART_METADATA),
        chunk("9", append=False),
        status("COMPLETED"),
    ]

    def script(request: Request) -> Iterable[Step]:
        if request.json["method"] == "SendMessage":
            return rpc(request, result=snapshot())
        body = stream_body(sent_events, numbered=True)
        return [head(content_type="text/event-stream"), body, CLOSE]

    with raw(agent(script)) as server, Client(kind, server.url) as client:
        assert client.do("call", "skill", "hi") == "9"


async def ignore() -> None:
    """Do nothing."""


@kinds
@pytest.mark.parametrize("callback", [5, "clear", ignore])
def test_a_callback_that_is_no_synchronous_function_is_refused_before_the_request(
    kind: str, callback: Any
) -> None:
    with raw(script_streaming(*ANNOUNCED_RESTART)) as server, Client(kind, server.url) as client:
        with pytest.raises(TypeError, match="on_restart"):
            client.do("stream", "skill", "hi", on_restart=callback)
        assert not server.requests
