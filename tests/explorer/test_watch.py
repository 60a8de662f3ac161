"""Watching a task: events are shown as they arrive, and none is lost."""

import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from apcore import Registry
from apcore_a2a_core import Progress
from apcore_a2a_server import Limits
from playwright.sync_api import Locator, Page, Request, expect

from tests.server.inloop import always
from tests.serving import PATIENCE, running

from .breakable import BreakableProxy
from .browsing import Visit
from .fake import FakeAgent, stream_of, task_of
from .scripted import ScriptedModule, ScriptedStream

PNG = b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAEElEQVR42mP4z8AARAwQCgAf7gP9i18U1AAAAABJRU5E"
    "rkJggg=="
)
"""An image of two by two pixels."""
MARKDOWN = """# A report

- **bold** and [a link](https://example.org/)
- [a trap](javascript:alert(1))

<img src=x onerror=alert(2)><script>alert(3)</script>
"""
TEXT_FIELD = {"display": {"a2a": {"text_field": "text"}}}
"""Metadata of a module whose member `text` becomes a text part."""
OUTPUTS: dict[str, Any] = {
    "text": {"text": "As it is:\n  <b>not bold</b>"},
    "markdown": {"text": MARKDOWN},
    "tree": {"shelf": {"books": ["Emma", "Ulysses"], "lent": None}},
    "table": {"people": [{"name": "Ada", "born": 1815}, {"name": "Alan", "born": 1912}]},
    "picture": {"dot.png": PNG},
    "path": {"../../x.html": b"<script>alert(1)</script>"},
    "quote": {'a"b\n.txt': b"a\x00b"},
    "several": {"n": 1, "a.bin": b"a", "b.bin": b"b"},
}
TIME = re.compile(r"\b\d\d:\d\d:\d\d\.\d{3}\b")


@pytest.fixture(scope="module")
def scripted() -> ScriptedModule:
    return ScriptedModule()


@pytest.fixture(scope="module")
def agent(scripted: ScriptedModule) -> Iterator[str]:
    """Serve a scripted module, and others with fixed outputs; tasks outlive lost connections."""
    registry = Registry()
    registry.register("scripted", scripted, metadata=TEXT_FIELD)
    for name, output in OUTPUTS.items():
        registry.register(f"show.{name}", always(output), metadata=TEXT_FIELD)
    with running(
        registry, name="Test agent", explorer=True, limits=Limits(disconnect_grace=30)
    ) as url:
        yield url


@pytest.fixture
def proxy(agent: str) -> Iterator[BreakableProxy]:
    with BreakableProxy(agent).running() as proxy:
        yield proxy


def press_run(page: Page) -> None:
    page.get_by_role("button", name="Run", exact=True).click()


def start_stream(visit: Visit, scripted: ScriptedModule) -> ScriptedStream:
    """Run the scripted skill on its page; return the stream of its run."""
    press_run(visit.go("skills/scripted"))
    return scripted.next_stream()


def artifact(page: Page) -> Locator:
    return page.get_by_role("region", name="Artifact result")


def shown_output(visit: Visit, name: str) -> Locator:
    """Call `show.*`; return the artifact on the page."""
    page = visit.go(f"skills/show.{name}")
    press_run(page)
    return artifact(page)


def state(page: Page) -> Locator:
    return page.get_by_role("region", name="Result").get_by_role("status").first


def numbers(page: Page) -> Locator:
    """Return the cells of the artifact's table, which has one column."""
    return artifact(page).get_by_role("cell")


def events(page: Page) -> Locator:
    return page.get_by_role("listbox", name="Events").get_by_role("option")


def test_each_chunk_is_shown_before_the_next_arrives(
    visit: Visit, scripted: ScriptedModule
) -> None:
    stream, page = start_stream(visit, scripted), visit.page
    expect(state(page)).to_have_text("working")
    stream.send({"n": 1})
    expect(artifact(page)).to_contain_text("n: 1")
    for number in range(2, 5):
        stream.send({"n": number})
        expect(numbers(page)).to_have_text([str(shown + 1) for shown in range(number)])
        expect(state(page)).to_have_text("working")
    stream.end()
    expect(state(page)).to_have_text("completed")


def test_streamed_text_grows_as_text_and_as_markdown(
    visit: Visit, scripted: ScriptedModule
) -> None:
    stream, page = start_stream(visit, scripted), visit.page
    stream.send({"text": "# On"}, {"text": "ce\n\nup"})
    shown_as = artifact(page).get_by_role("group", name="Show as")
    shown_as.get_by_role("button", name="Text").click()
    expect(artifact(page)).to_contain_text("# Once up")
    shown_as.get_by_role("button", name="Markdown").click()
    expect(artifact(page).get_by_role("heading", name="Once", exact=True)).to_be_visible()
    stream.send({"text": "on a **time**"})
    expect(artifact(page).get_by_role("paragraph")).to_have_text("upon a time")
    stream.end()
    expect(state(page)).to_have_text("completed")


def test_the_timeline_shows_each_event_with_its_time(
    visit: Visit, scripted: ScriptedModule
) -> None:
    stream, page = start_stream(visit, scripted), visit.page
    stream.send({"n": 1}, {"n": 2})
    expect(events(page)).to_have_count(4)
    stream.end()
    kinds = ["task.*submitted", "status.*working", 'artifact.*"n":1', 'chunk.*"n":2']
    expected = [*kinds, "status.*completed"]
    expect(events(page)).to_have_text([re.compile(pattern) for pattern in expected])
    for event in events(page).all():
        expect(event).to_contain_text(TIME)
        expect(event).to_contain_text(re.compile(r"\+\d"))


def test_the_timeline_counts_the_items_of_large_values(open_visit: Callable[..., Visit]) -> None:
    values = [[*range(21)], {f"n{number}": number for number in range(22)}]
    artifacts = [
        {"artifactId": str(size), "parts": [{"data": value}]} for size, value in enumerate(values)
    ]
    task = task_of(artifacts=artifacts)
    updates = [{"taskId": task["id"], "contextId": "context-1", "artifact": a} for a in artifacts]
    fake = FakeAgent()
    fake.replies["SendStreamingMessage"] = lambda params: stream_of(
        [*({"artifactUpdate": update} for update in updates), {"task": task}]
    )
    with running(fake.app()) as url:
        page = open_visit(url).go("skills/work")
        press_run(page)
        expect(events(page)).to_contain_text(["21 items", "22 properties"])


def test_events_are_selected_with_the_keyboard(visit: Visit, scripted: ScriptedModule) -> None:
    stream, page = start_stream(visit, scripted), visit.page
    stream.send(*({"n": number} for number in range(100)))
    stream.end()
    expect(page.get_by_text("Timeline, 103 events")).to_be_visible()
    listbox = page.get_by_role("listbox", name="Events")
    listbox.focus()
    chosen = listbox.get_by_role("option", selected=True)
    for key, expected in [
        ("End", "completed"),
        ("ArrowUp", '{"n":99}'),
        ("PageUp", '{"n":89}'),
        ("Home", "submitted"),
        ("ArrowDown", "working"),
    ]:
        listbox.press(key)
        expect(chosen).to_contain_text(expected)
        expect(chosen).to_be_in_viewport()
    expect(page.get_by_role("region", name="Event details")).to_contain_text(
        '"state": "TASK_STATE_WORKING"'
    )


def test_markup_in_text_is_shown_as_text(visit: Visit) -> None:
    expect(shown_output(visit, "text").get_by_text("<b>not bold</b>")).to_be_visible()


def test_markdown_is_shown_without_active_content(visit: Visit) -> None:
    output = shown_output(visit, "markdown")
    expect(output.get_by_role("heading", name="A report")).to_be_visible()
    expect(output.get_by_role("link")).to_have_text(["a link"])
    expect(output.get_by_text("a trap")).to_be_visible()
    expect(output.get_by_role("img")).to_have_count(0)


def test_data_is_shown_as_a_tree_that_opens_and_closes(visit: Visit) -> None:
    output = shown_output(visit, "tree")
    expect(output).not_to_contain_text("Ulysses")
    output.get_by_role("button", name="books:").click()
    expect(output.get_by_text("Ulysses")).to_be_visible()
    output.get_by_role("button", name="shelf:").click()
    expect(output).not_to_contain_text("Ulysses")
    output.get_by_role("button", name="JSON").click()
    expect(output).to_contain_text('"lent": null')


def test_objects_with_the_same_members_are_shown_as_a_table(visit: Visit) -> None:
    output = shown_output(visit, "table")
    expect(output.get_by_role("columnheader")).to_have_text(["name", "born"])
    expect(output.get_by_role("row").nth(2).get_by_role("cell")).to_have_text(["Alan", "1912"])
    output.get_by_role("button", name="Tree").click()
    expect(output.get_by_role("table")).to_have_count(0)


def test_an_image_is_shown(visit: Visit) -> None:
    picture = shown_output(visit, "picture").get_by_role("img", name="dot.png")
    expect(picture).to_be_visible()
    assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") == 2


def download(artifact: Locator, name: str) -> tuple[str, bytes]:
    """Press *Download*; return the name and the content of the file."""
    with artifact.page.expect_download() as started:
        artifact.get_by_role("button", name=f"Download {name}", exact=True).click()
    return started.value.suggested_filename, Path(started.value.path()).read_bytes()


@pytest.mark.parametrize(
    ("output", "title", "name", "content"),
    [
        ("picture", "dot.png", "dot.png", PNG),
        ("path", "x.html", "x.html", b"<script>alert(1)</script>"),
        ("quote", 'a"b.txt', "a_b.txt", b"a\x00b"),
        ("text", "result", "result.txt", b"As it is:\n  <b>not bold</b>"),
    ],
    ids=["picture", "path", "quote", "text"],
)
def test_downloads_have_the_original_content_and_a_safe_name(
    visit: Visit, output: str, title: str, name: str, content: bytes
) -> None:
    assert download(shown_output(visit, output), title) == (name, content)


def test_each_file_and_the_whole_artifact_can_be_downloaded(visit: Visit) -> None:
    output = shown_output(visit, "several")
    assert download(output, "a.bin") == ("a.bin", b"a")
    assert download(output, "b.bin") == ("b.bin", b"b")
    name, content = download(output, "result")
    assert name == "result.json"
    assert [part.get("data") for part in json.loads(content)] == [{"n": 1}, None, None]


def test_progress_is_shown_as_a_bar_while_the_task_runs(
    visit: Visit, scripted: ScriptedModule
) -> None:
    stream, page = start_stream(visit, scripted), visit.page
    bar = page.get_by_role("progressbar", name="Progress")
    expect(state(page)).to_have_text("working")
    expect(bar).to_have_count(0)
    for chunk, percent in [({"progress": 0.25}, 25), ({"progress": 3, "total": 4}, 75)]:
        stream.send(chunk)
        expect(page.get_by_text(f"{percent}%")).to_be_visible()
        expect(bar).to_have_js_property("value", percent / 100)
    stream.end()
    expect(state(page)).to_have_text("completed")
    expect(bar).to_have_count(0)


def test_progress_messages_are_shown_in_a_line_while_the_task_runs(
    visit: Visit, scripted: ScriptedModule
) -> None:
    stream, page = start_stream(visit, scripted), visit.page
    line = page.locator(".progress")
    for number in (1, 2):
        stream.send(Progress(f"Reading source {number}", {"progress": number, "total": 4}))
        expect(line).to_have_text(f"{number * 25}% Reading source {number}")
    stream.send({"text": "The sources agree."}, Progress("Writing"))
    expect(line).to_have_text("Writing")
    # progress is not a message from the agent
    expect(page.get_by_role("region", name="Message from the agent")).to_have_count(0)
    stream.end()
    expect(state(page)).to_have_text("completed")
    expect(line).to_have_count(0)
    page.get_by_role("link", name=re.compile("^Task ")).click()
    expect(page.get_by_role("option", name=re.compile("working: Reading source"))).to_have_count(2)
    expect(page.locator(".messages")).not_to_contain_text("Reading")  # nor a part of the history


def test_choosing_another_protocol_version_does_not_change_a_running_stream(
    visit: Visit, scripted: ScriptedModule
) -> None:
    stream, page = start_stream(visit, scripted), visit.page
    stream.send({"n": 1})
    expect(artifact(page)).to_contain_text("n: 1")
    page.get_by_label("Protocol version").select_option("A2A 0.3")
    stream.send({"n": 2})
    expect(numbers(page)).to_have_text(["1", "2"])
    stream.end()
    expect(state(page)).to_have_text("completed")
    press_run(page)
    stream = scripted.next_stream()
    stream.send({"n": 3})
    expect(artifact(page)).to_contain_text("n: 3")
    stream.end()


def test_a_task_is_canceled(visit: Visit, scripted: ScriptedModule) -> None:
    stream, page = start_stream(visit, scripted), visit.page
    stream.send({"n": 1})
    expect(artifact(page)).to_contain_text("n: 1")
    page.get_by_role("button", name="Cancel task").click()
    expect(state(page)).to_have_text("canceled")
    expect(page.get_by_text("Canceled by client").first).to_be_visible()
    expect(page.get_by_role("button", name="Cancel task")).to_have_count(0)
    assert stream.ended.wait(PATIENCE)


LOST = "Connection lost."


def is_resumed_stream(request: Request) -> bool:
    return "last-event-id" in request.headers


def test_events_missed_while_disconnected_are_shown_once(
    proxy: BreakableProxy, open_visit: Callable[..., Visit], scripted: ScriptedModule
) -> None:
    visit = open_visit(proxy.url)
    stream, page = start_stream(visit, scripted), visit.page
    stream.send({"n": 1}, {"n": 2})
    expect(numbers(page)).to_have_text(["1", "2"])
    proxy.cut()
    expect(page.get_by_role("alert")).to_contain_text(LOST)
    expect(numbers(page)).to_have_text(["1", "2"])
    stream.send({"n": 3}, {"n": 4})
    with page.expect_request(is_resumed_stream) as resumed:
        proxy.restore()
    assert resumed.value.headers["last-event-id"] == "4"
    expect(numbers(page)).to_have_text(["1", "2", "3", "4"])
    expect(page.get_by_role("alert")).to_have_count(0)
    stream.send({"n": 5})
    stream.end()
    expect(state(page)).to_have_text("completed")
    expect(numbers(page)).to_have_text(["1", "2", "3", "4", "5"])
    expect(events(page)).to_have_count(8)


def test_the_user_can_reconnect_without_waiting(
    proxy: BreakableProxy, open_visit: Callable[..., Visit], scripted: ScriptedModule
) -> None:
    visit = open_visit(proxy.url)
    visit.page.clock.install()
    stream, page = start_stream(visit, scripted), visit.page
    stream.send({"n": 1}, {"n": 2})
    expect(numbers(page)).to_have_text(["1", "2"])
    proxy.cut()
    gave_up = page.get_by_text("stopped trying to reconnect")
    deadline = monotonic() + PATIENCE
    while not gave_up.is_visible() and monotonic() < deadline:
        page.clock.run_for(16_000)
    expect(gave_up).to_be_visible()
    page.get_by_role("button", name="Reconnect now").click()
    expect(page.get_by_text("The page is trying to reconnect")).to_be_visible()
    proxy.restore()
    page.get_by_role("button", name="Reconnect now").click()
    expect(page.get_by_role("alert")).to_have_count(0)
    stream.send({"n": 3})
    stream.end()
    expect(state(page)).to_have_text("completed")
    expect(numbers(page)).to_have_text(["1", "2", "3"])


def test_a_reload_of_the_page_neither_cancels_nor_loses_the_run(
    visit: Visit, scripted: ScriptedModule
) -> None:
    stream, page = start_stream(visit, scripted), visit.page
    stream.send({"n": 1}, {"n": 2})
    expect(numbers(page)).to_have_text(["1", "2"])
    page.reload()
    expect(numbers(page)).to_have_text(["1", "2"])
    expect(state(page)).to_have_text("working")
    page.get_by_role("link", name="Tasks", exact=True).click()
    page.get_by_role("row", name="working").get_by_role("link").first.click()
    expect(numbers(page)).to_have_text(["1", "2"])
    stream.send({"n": 3})
    expect(numbers(page)).to_have_text(["1", "2", "3"])
    stream.end()
    expect(page.get_by_role("main").get_by_role("status").first).to_have_text("completed")
    expect(events(page)).to_have_count(6)
