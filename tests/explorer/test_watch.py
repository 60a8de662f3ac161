"""Watch a task: what comes is seen when it comes, and nothing of it is lost."""

import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from apcore import Registry
from apcore_a2a_server import Limits
from playwright.sync_api import Locator, Page, Request, expect

from tests.server.inloop import always
from tests.serving import PATIENCE, running

from .browsing import Visit
from .told import Telling, Told
from .wire import Wire

PNG = b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAEElEQVR42mP4z8AARAwQCgAf7gP9i18U1AAAAABJRU5E"
    "rkJggg=="
)
"""A picture of two by two pixels."""
MARKDOWN = """# A report

- **bold** and [a link](https://example.org/)
- [a trap](javascript:alert(1))

<img src=x onerror=alert(2)><script>alert(3)</script>
"""
SAYS = {"display": {"a2a": {"text_field": "text"}}}
"""The metadata of a module whose `text` is text, and no data."""
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
def told() -> Told:
    return Told()


@pytest.fixture(scope="module")
def agent(told: Told) -> Iterator[str]:
    """An agent that says what the test says; what nobody watches goes on for a while."""
    registry = Registry()
    registry.register("told", told, metadata=SAYS)
    for name, output in OUTPUTS.items():
        registry.register(f"show.{name}", always(output), metadata=SAYS)
    with running(
        registry, name="Test agent", explorer=True, limits=Limits(disconnect_grace=30)
    ) as url:
        yield url


@pytest.fixture
def wire(agent: str) -> Iterator[Wire]:
    with Wire(agent).laid() as found:
        yield found


def send(page: Page) -> None:
    page.get_by_role("button", name="Stream", exact=True).click()


def begin(visit: Visit, told: Told) -> Telling:
    """Begin a stream on the skill's page."""
    send(visit.go("skills/told"))
    return told.telling()


def artifact(page: Page) -> Locator:
    return page.get_by_role("region", name="Artifact result")


def shown(visit: Visit, name: str) -> Locator:
    """What `show.*` has put out, on the page."""
    page = visit.go(f"skills/show.{name}")
    send(page)
    return artifact(page)


def state(page: Page) -> Locator:
    return page.get_by_role("region", name="Result").get_by_role("status").first


def numbers(page: Page) -> Locator:
    """The cells of a table that has one column."""
    return artifact(page).get_by_role("cell")


def events(page: Page) -> Locator:
    return page.get_by_role("listbox", name="Events").get_by_role("option")


def test_each_chunk_is_seen_before_there_is_another(visit: Visit, told: Told) -> None:
    telling, page = begin(visit, told), visit.page
    expect(state(page)).to_have_text("working")
    telling.say({"n": 1})
    expect(artifact(page)).to_contain_text("n: 1")
    for number in range(2, 5):
        telling.say({"n": number})
        expect(numbers(page)).to_have_text([str(each + 1) for each in range(number)])
        expect(state(page)).to_have_text("working")
    telling.end()
    expect(state(page)).to_have_text("completed")


def test_text_grows_as_it_comes_and_can_be_read_as_markdown(visit: Visit, told: Told) -> None:
    telling, page = begin(visit, told), visit.page
    telling.say({"text": "# On"}, {"text": "ce\n\nup"})
    expect(artifact(page)).to_contain_text("# Once up")
    artifact(page).get_by_role("button", name="Markdown").click()
    expect(artifact(page).get_by_role("heading", name="Once", exact=True)).to_be_visible()
    telling.say({"text": "on a **time**"})
    expect(artifact(page).get_by_role("paragraph")).to_have_text("upon a time")
    telling.end()
    expect(state(page)).to_have_text("completed")


def test_the_timeline_tells_what_came_when(visit: Visit, told: Told) -> None:
    telling, page = begin(visit, told), visit.page
    telling.say({"n": 1}, {"n": 2})
    expect(events(page)).to_have_count(4)
    telling.end()
    kinds = ["task.*submitted", "status.*working", 'artifact.*"n":1', 'chunk.*"n":2']
    told_of = [*kinds, "status.*completed"]
    expect(events(page)).to_have_text([re.compile(each) for each in told_of])
    for event in events(page).all():
        expect(event).to_contain_text(TIME)
        expect(event).to_contain_text(re.compile(r"\+\d"))


def test_events_are_read_with_the_keyboard(visit: Visit, told: Told) -> None:
    telling, page = begin(visit, told), visit.page
    telling.say(*({"n": number} for number in range(100)))
    telling.end()
    expect(page.get_by_text("Timeline, 103 events")).to_be_visible()
    listbox = page.get_by_role("listbox", name="Events")
    listbox.focus()
    chosen = listbox.get_by_role("option", selected=True)
    for key, said in [
        ("End", "completed"),
        ("ArrowUp", '{"n":99}'),
        ("PageUp", '{"n":89}'),
        ("Home", "submitted"),
        ("ArrowDown", "working"),
    ]:
        listbox.press(key)
        expect(chosen).to_contain_text(said)
        expect(chosen).to_be_in_viewport()
    expect(page.get_by_role("region", name="Details of the event")).to_contain_text(
        '"state": "working"'
    )


def test_text_is_shown_as_it_is(visit: Visit) -> None:
    expect(shown(visit, "text").get_by_text("<b>not bold</b>")).to_be_visible()


def test_markdown_is_shown_without_what_it_could_do(visit: Visit) -> None:
    found = shown(visit, "markdown")
    found.get_by_role("button", name="Markdown").click()
    expect(found.get_by_role("heading", name="A report")).to_be_visible()
    expect(found.get_by_role("link")).to_have_text(["a link"])
    expect(found.get_by_text("a trap")).to_be_visible()
    expect(found.get_by_role("img")).to_have_count(0)


def test_data_is_a_tree_that_opens_and_closes(visit: Visit) -> None:
    found = shown(visit, "tree")
    expect(found).not_to_contain_text("Ulysses")
    found.get_by_role("button", name="books").click()
    expect(found.get_by_text("Ulysses")).to_be_visible()
    found.get_by_role("button", name="shelf").click()
    expect(found).not_to_contain_text("Ulysses")
    found.get_by_role("button", name="JSON").click()
    expect(found).to_contain_text('"lent": null')


def test_like_objects_are_a_table(visit: Visit) -> None:
    found = shown(visit, "table")
    expect(found.get_by_role("columnheader")).to_have_text(["born", "name"])
    expect(found.get_by_role("row").nth(2).get_by_role("cell")).to_have_text(["1912", "Alan"])
    found.get_by_role("button", name="Tree").click()
    expect(found.get_by_role("table")).to_have_count(0)


def test_a_picture_is_shown(visit: Visit) -> None:
    picture = shown(visit, "picture").get_by_role("img", name="dot.png")
    expect(picture).to_be_visible()
    assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") == 2


def saved(found: Locator, name: str) -> tuple[str, bytes]:
    """Press *Download*: the name that the file gets, and what is in it."""
    with found.page.expect_download() as begun:
        found.get_by_role("button", name=f"Download {name}", exact=True).click()
    return begun.value.suggested_filename, Path(begun.value.path()).read_bytes()


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
def test_what_is_downloaded_is_what_came_under_a_harmless_name(
    visit: Visit, output: str, title: str, name: str, content: bytes
) -> None:
    assert saved(shown(visit, output), title) == (name, content)


def test_each_file_and_the_whole_can_be_downloaded(visit: Visit) -> None:
    found = shown(visit, "several")
    assert saved(found, "a.bin") == ("a.bin", b"a")
    assert saved(found, "b.bin") == ("b.bin", b"b")
    name, content = saved(found, "result")
    assert name == "result.json"
    assert [part.get("data") for part in json.loads(content)] == [{"n": 1}, None, None]


def test_progress_is_seen_as_far_as_it_has_come(visit: Visit, told: Told) -> None:
    telling, page = begin(visit, told), visit.page
    bar = page.get_by_role("progressbar", name="Progress")
    expect(state(page)).to_have_text("working")
    expect(bar).to_have_count(0)
    for said, percent in [({"progress": 0.25}, 25), ({"progress": 3, "total": 4}, 75)]:
        telling.say(said)
        expect(page.get_by_text(f"{percent} %")).to_be_visible()
        expect(bar).to_have_js_property("value", percent / 100)
    telling.end()
    expect(state(page)).to_have_text("completed")
    expect(bar).to_have_count(0)


def test_a_stream_goes_on_in_its_version_when_another_is_chosen(visit: Visit, told: Told) -> None:
    telling, page = begin(visit, told), visit.page
    telling.say({"n": 1})
    expect(artifact(page)).to_contain_text("n: 1")
    page.get_by_label("Protocol version").select_option("A2A 0.3")
    telling.say({"n": 2})
    expect(numbers(page)).to_have_text(["1", "2"])
    telling.end()
    expect(state(page)).to_have_text("completed")
    send(page)
    telling = told.telling()
    telling.say({"n": 3})
    expect(artifact(page)).to_contain_text("n: 3")
    telling.end()


def test_a_task_is_canceled(visit: Visit, told: Told) -> None:
    telling, page = begin(visit, told), visit.page
    telling.say({"n": 1})
    expect(artifact(page)).to_contain_text("n: 1")
    page.get_by_role("button", name="Cancel the task").click()
    expect(state(page)).to_have_text("canceled")
    expect(page.get_by_text("Canceled by client").first).to_be_visible()
    expect(page.get_by_role("button", name="Cancel the task")).to_have_count(0)
    assert telling.over.wait(PATIENCE)


LOST = "The connection is lost."


def asked_anew(request: Request) -> bool:
    return "last-event-id" in request.headers


def test_what_came_while_the_connection_was_lost_is_there_once(
    wire: Wire, open_visit: Callable[..., Visit], told: Told
) -> None:
    visit = open_visit(wire.url)
    telling, page = begin(visit, told), visit.page
    telling.say({"n": 1}, {"n": 2})
    expect(numbers(page)).to_have_text(["1", "2"])
    wire.cut()
    expect(page.get_by_role("alert")).to_contain_text(LOST)
    expect(numbers(page)).to_have_text(["1", "2"])
    telling.say({"n": 3}, {"n": 4})
    with page.expect_request(asked_anew) as anew:
        wire.mend()
    assert anew.value.headers["last-event-id"] == "4"
    expect(numbers(page)).to_have_text(["1", "2", "3", "4"])
    expect(page.get_by_role("alert")).to_have_count(0)
    telling.say({"n": 5})
    telling.end()
    expect(state(page)).to_have_text("completed")
    expect(numbers(page)).to_have_text(["1", "2", "3", "4", "5"])
    expect(events(page)).to_have_count(8)


def test_who_does_not_want_to_wait_connects_at_once(
    wire: Wire, open_visit: Callable[..., Visit], told: Told
) -> None:
    visit = open_visit(wire.url)
    visit.page.clock.install()
    telling, page = begin(visit, told), visit.page
    telling.say({"n": 1}, {"n": 2})
    expect(numbers(page)).to_have_text(["1", "2"])
    wire.cut()
    tries_no_more = page.get_by_text("tries no more")
    until = monotonic() + PATIENCE
    while not tries_no_more.is_visible() and monotonic() < until:
        page.clock.run_for(16_000)
    expect(tries_no_more).to_be_visible()
    page.get_by_role("button", name="Connect now").click()
    expect(page.get_by_text("the page tries to connect again")).to_be_visible()
    wire.mend()
    page.get_by_role("button", name="Connect now").click()
    expect(page.get_by_role("alert")).to_have_count(0)
    telling.say({"n": 3})
    telling.end()
    expect(state(page)).to_have_text("completed")
    expect(numbers(page)).to_have_text(["1", "2", "3"])


def test_a_task_that_runs_on_is_watched_again_after_a_reload(visit: Visit, told: Told) -> None:
    telling, page = begin(visit, told), visit.page
    telling.say({"n": 1}, {"n": 2})
    expect(numbers(page)).to_have_text(["1", "2"])
    page.reload()
    expect(page.get_by_role("heading", name="Try it")).to_be_visible()
    expect(page.get_by_role("region", name="Result")).to_have_count(0)
    page.get_by_role("link", name="Tasks", exact=True).click()
    page.get_by_role("row", name="working").get_by_role("link").first.click()
    expect(numbers(page)).to_have_text(["1", "2"])
    telling.say({"n": 3})
    expect(numbers(page)).to_have_text(["1", "2", "3"])
    telling.end()
    expect(page.get_by_role("main").get_by_role("status").first).to_have_text("completed")
    expect(events(page)).to_have_count(6)
