"""The page stays responsive while thousands of events and megabytes arrive."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from statistics import median
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.server.inloop import StreamModule, always, registry_of
from tests.server.modules import Inputs
from tests.serving import running

from .browsing import Visit
from .fake import FakeAgent, stream_of, task_of

pytestmark = pytest.mark.clock

OpenVisit = Callable[..., Visit]

EVENTS = 5_000
LARGE_SIZE = 5_000_000
"""Approximate size of a large result, in characters."""
MAX_ELEMENTS = 4_000
"""Elements of a page that shows only the beginning of long lists; a full list has 25,000."""
MAX_DELAY = 2
"""Maximum time between two frames, and from a search to its result, in multiples of the time to lay
out a full list."""

LAY_OUT_ALL = """() => {
    const start = performance.now();
    const all = document.createElement("table");
    for (let row = 0; row < 5000; row++) {
        for (let cell = 0, line = all.insertRow(); cell < 4; cell++) line.insertCell().append(row);
    }
    document.body.append(all);
    all.getBoundingClientRect();
    all.remove();
    return performance.now() - start;
}"""

RECORD_FRAMES = """() => {
    window.gap = 0;
    let last = performance.now();
    const tick = () => {
        const now = performance.now();
        window.gap = Math.max(window.gap, now - last);
        last = now;
        requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
}"""

SEARCH = """async (text) => {
    const field = document.querySelector("input[type=search]");
    const list = document.querySelector("nav.list ul");
    const before = list.children.length;
    const start = performance.now();
    field.value = text;
    field.dispatchEvent(new Event("input", {bubbles: true}));
    while (list.children.length === before) await new Promise(requestAnimationFrame);
    return performance.now() - start;
}"""


async def flood(inputs: Inputs, context: Any) -> AsyncIterator[Inputs]:
    for number in range(EVENTS):
        yield {"number": number, "text": f"line {number}", "half": number / 2}
        if not number % 50:
            await asyncio.sleep(0.02)


def rows(count: int) -> list[Inputs]:
    return [{"number": number, "name": f"row {number}", "even": True} for number in range(count)]


# each entry has about 105 characters of JSON
TREE: Inputs = {f"key {n}": ["x" * 80, {"n": n}] for n in range(LARGE_SIZE // 105)}
MODULES = {
    "flood": StreamModule(flood),
    "tree": always({"a": TREE, "b": 1}),
    "table": always({"rows": rows(10_000)}),
}


@pytest.fixture(scope="module")
def agent() -> Iterator[str]:
    options: dict[str, Any] = {"max_body": 50_000_000}
    with running(registry_of(MODULES), explorer=True, **options) as url:
        yield url


def count_elements(page: Page) -> int:
    return int(page.evaluate("document.querySelectorAll('*').length"))


def start_stream(visit: Visit, skill: str) -> Page:
    """Start a stream of a skill, and record the time between frames."""
    page = visit.go(f"skills/{skill}")
    page.get_by_role("heading", name="Try it").wait_for()
    page.evaluate(f"window.layoutTime = ({LAY_OUT_ALL})()")
    page.evaluate(RECORD_FRAMES)
    page.get_by_role("button", name="Run", exact=True).click()
    return page


def expect_settled(page: Page) -> None:
    """Wait until the run is completed and drawn, and check that the page stayed responsive."""
    expect(page.get_by_label("Result").get_by_role("status").first).to_have_text("completed")
    page.evaluate("new Promise((done) => setTimeout(() => requestAnimationFrame(done), 200))")
    check_responsive(page)


def check_responsive(page: Page, search_time: float = 0) -> None:
    """Check the longest time between frames, and the number of elements on the page.

    Args:
        page: The page.
        search_time: The time of a search in milliseconds, which must not be too long either.
    """
    longest = max(page.evaluate("window.gap"), search_time)
    assert longest < MAX_DELAY * page.evaluate("window.layoutTime")
    assert count_elements(page) < MAX_ELEMENTS


def test_the_page_stays_responsive_during_thousands_of_events(visit: Visit) -> None:
    page = start_stream(visit, "flood")
    expect(page.get_by_text("Timeline")).to_be_visible()
    search_times = [page.evaluate(SEARCH, text) for text in ("lett", "", "tab", "", "flo", "")]
    expect_settled(page)
    check_responsive(page, median(search_times))
    expect(page.get_by_text("Timeline, 5,0")).to_be_visible()
    expect(page.get_by_role("option").first).to_be_attached()
    expect(page.get_by_role("columnheader")).to_have_text(["number", "text", "half"])
    page.get_by_role("listbox", name="Events").press("End")
    expect(page.get_by_label("Events").get_by_role("option", selected=True)).to_contain_text(
        "completed"
    )


@pytest.mark.parametrize(("skill", "shown"), [("tree", "key 10"), ("table", "row 7")])
def test_large_data_is_shown_from_its_beginning(visit: Visit, skill: str, shown: str) -> None:
    page = start_stream(visit, skill)
    artifact = page.get_by_role("region", name="Artifact")
    expect(artifact).to_contain_text(shown)
    expect_settled(page)
    check_responsive(page, page.evaluate(SEARCH, "nothing of the kind"))
    page.evaluate(SEARCH, "")
    for kind in ("Tree", "JSON"):
        artifact.get_by_role("button", name=kind).click()
        expect(artifact.get_by_role("button", name=kind)).to_have_attribute("aria-pressed", "true")
        expect_settled(page)
    page.get_by_label("Result").get_by_role("link", name="Task").click()
    expect(page.get_by_role("region", name="Artifact")).to_contain_text(shown[:3])
    expect(page.get_by_text("Timeline")).to_be_visible()
    check_responsive(page)


@pytest.mark.parametrize("pieces", [1, 500])
def test_a_long_text_is_shown_from_its_beginning(open_visit: OpenVisit, pieces: int) -> None:
    lines = "".join(f"{number:09}\n" for number in range(LARGE_SIZE // 10 // pieces))
    artifact = {"artifactId": "letter", "parts": [{"text": lines}]}
    update = {"taskId": "task-1", "contextId": "context-1", "artifact": artifact}
    updates = [{"artifactUpdate": {**update, "append": count > 0}} for count in range(pieces)]
    fake = FakeAgent()
    fake.replies["SendStreamingMessage"] = lambda params: stream_of(
        [{"task": task_of("WORKING")}, *updates, {"statusUpdate": {**update, **task_of()}}]
    )
    with running(fake.app()) as url:
        page = start_stream(open_visit(url), "work")
        expect_settled(page)
        shown = page.get_by_role("region", name="Artifact")
        expect(shown).to_contain_text("000000007")
        shown.get_by_role("button", name="Show more").click()
        expect(shown.get_by_role("button", name="Show more")).to_contain_text("4,920,000")
        check_responsive(page)
