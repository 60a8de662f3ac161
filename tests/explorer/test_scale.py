"""Thousands of tasks, hundreds of skills and large results of a real agent stay usable."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.server.checking_client import Json
from tests.server.inloop import ActionModule, echo, registry_of
from tests.serving import PATIENCE, running

from .browsing import Visit
from .other_client import OtherClient
from .test_busy import OPERATOR_OPTIONS, key_of, keys, sign_in
from .test_load import LAY_OUT_ALL, MODULES, RECORD_FRAMES, check_responsive, count_elements

pytestmark = pytest.mark.clock

OpenVisit = Callable[..., Visit]
TASKS = 2_000
SKILLS = 300
SENDERS = 8
"""Clients that send messages at the same time."""
PAGE_SIZE = 100
"""Tasks that the page loads at once."""
MAX_ELEMENTS_OF_SKILLS = 9_000
"""Maximum number of elements of a page that shows every skill."""


def send_many(url: str, count: int) -> None:
    """Let Ada send messages, several at a time."""

    def send(numbers: range) -> None:
        with closing(OtherClient(url, key_of("ada"))) as ada:
            for number in numbers:
                ada.send({"data": {"n": number}}, f"area{number % 20}.skill0")

    with ThreadPoolExecutor(SENDERS) as pool:
        list(pool.map(send, [range(first, count, SENDERS) for first in range(SENDERS)]))


def stream(url: str, skill: str) -> None:
    """Let Ada run a skill, and read its events until it has ended."""
    message: Json = {"messageId": skill, "role": "ROLE_USER", "parts": [{"data": {}}]}
    params: Json = {"message": message, "metadata": {"skillId": skill}}
    request = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": params}
    headers = {"A2A-Version": "1.0", "X-API-Key": key_of("ada")}
    httpx.post(url, json=request, headers=headers, trust_env=False, timeout=PATIENCE)


@pytest.fixture(scope="module")
def agent() -> Iterator[str]:
    """Serve an agent with many skills, on which Ada has run many tasks."""
    skills = {
        f"area{number % 20}.skill{number // 20}": ActionModule(echo) for number in range(SKILLS)
    }
    modules = registry_of({**skills, **MODULES})
    options: dict[str, Any] = {
        "auth": keys(ada="clerk", bob="clerk", grace="operator"),
        "explorer": True,
        "max_body": 50_000_000,
        **OPERATOR_OPTIONS,
    }
    with running(modules, name="Large agent", **options) as url:
        send_many(url, TASKS)
        yield url


@pytest.fixture(scope="module")
def large_tasks(agent: str) -> dict[str, str]:
    """Return the ids of tasks with thousands of events or a large result, by skill."""
    with closing(OtherClient(agent, key_of("ada"))) as ada:
        tasks = {name: ada.send({"data": {}}, name)["id"] for name in MODULES if name != "flood"}
        stream(agent, "flood")
        [flood_task] = ada.call("ListTasks", pageSize=1)["tasks"]
        return {**tasks, "flood": flood_task["id"]}


def record_frames(page: Page) -> None:
    """Measure the layout of a full list; record the longest time between frames from now on."""
    page.evaluate(f"window.layoutTime = ({LAY_OUT_ALL})()")
    page.evaluate(RECORD_FRAMES)


def go(page: Page, view: str) -> None:
    """Go to another view of the open page."""
    page.evaluate("(view) => location.hash = `#/${view}`", view)


@pytest.mark.parametrize("caller", ["ada", "grace"])
def test_thousands_of_tasks_are_shown_page_by_page(
    open_visit: OpenVisit, agent: str, large_tasks: dict[str, str], caller: str
) -> None:
    page = sign_in(open_visit(agent), caller)
    record_frames(page)
    go(page, "tasks")
    rows = page.get_by_role("row")
    expect(rows).to_have_count(PAGE_SIZE + 1)
    expect(page.get_by_text(f"{TASKS + len(large_tasks):,} tasks")).to_be_visible()
    check_responsive(page)
    page.get_by_role("button", name="Show older tasks").click()
    expect(rows).to_have_count(2 * PAGE_SIZE + 1)
    page.get_by_label("State").select_option("failed")
    expect(page.get_by_text("No tasks match these filters.")).to_be_visible()
    go(page, "conversations")
    expect(page.get_by_role("main").get_by_role("link").nth(1)).to_be_visible()
    check_responsive(page)


@pytest.mark.parametrize("caller", ["ada", "grace"])
def test_hundreds_of_skills_are_searched(open_visit: OpenVisit, agent: str, caller: str) -> None:
    page = sign_in(open_visit(agent), caller)
    record_frames(page)
    go(page, "skills")
    search = page.get_by_role("searchbox")
    search.fill("area7.skill1")
    links = page.get_by_role("main").get_by_role("link", name="area7.skill1")
    expect(links.first).to_be_visible()
    assert count_elements(page) < MAX_ELEMENTS_OF_SKILLS
    page.keyboard.press("Control+k")
    expect(page.get_by_role("combobox", name="Command")).to_be_focused()
    page.keyboard.type("area3.skill14")
    options = page.get_by_role("listbox", name="Commands").get_by_role("option")
    expect(options.first).to_contain_text("area3.skill14")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Try it")).to_be_visible()
    check_responsive(page)


def test_views_of_figures_stay_small_with_many_skills(open_visit: OpenVisit, agent: str) -> None:
    page = sign_in(open_visit(agent), "grace")
    record_frames(page)
    go(page, "performance")
    expect(page.get_by_role("row").nth(20)).to_be_visible()
    assert count_elements(page) < MAX_ELEMENTS_OF_SKILLS
    go(page, "now")
    expect(page.get_by_role("img", name="Runs started")).to_be_visible()
    check_responsive(page)


@pytest.mark.parametrize("caller", ["ada", "grace"])
@pytest.mark.parametrize(
    ("name", "shown"), [("flood", "line 7"), ("tree", "key 10"), ("table", "row 7")]
)
def test_a_large_task_is_opened(
    open_visit: OpenVisit,
    agent: str,
    large_tasks: dict[str, str],
    caller: str,
    name: str,
    shown: str,
) -> None:
    page = sign_in(open_visit(agent), caller)
    record_frames(page)
    go(page, f"tasks/{large_tasks[name]}")
    expect(page.get_by_role("region", name="Artifact")).to_contain_text(shown)
    expect(page.get_by_role("region", name="Trace")).to_be_visible()
    check_responsive(page)


def test_other_callers_see_none_of_the_tasks(
    open_visit: OpenVisit, agent: str, large_tasks: dict[str, str]
) -> None:
    page = sign_in(open_visit(agent), "bob")
    record_frames(page)
    for task_id in large_tasks.values():
        go(page, "tasks")
        expect(page.get_by_text("No tasks yet.")).to_be_visible()
        expect(page.get_by_role("alert")).to_have_count(0)
        go(page, f"tasks/{task_id}")
        expect(page.get_by_role("alert")).to_contain_text("This task doesn't exist, or you can't")
    check_responsive(page)
