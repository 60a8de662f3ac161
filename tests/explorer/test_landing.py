"""The start page: the state of the agent, the next steps, and the list of skills."""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.server.inloop import ActionModule, echo, registry_of
from tests.serving import running

from .browsing import Visit
from .fake import FakeAgent, card_of, skill_of
from .other_client import OtherClient

OpenVisit = Callable[..., Visit]

AREAS, PER_AREA = 12, 25
"""Number of areas of the large agent, and number of skills in each area."""


@pytest.fixture(scope="module")
def large_agent() -> Iterator[str]:
    """Serve an agent with 300 skills in 12 groups."""
    names = [f"area{area}.job{job}" for area in range(AREAS) for job in range(PER_AREA)]
    with running(registry_of(dict.fromkeys(names, ActionModule(echo))), explorer=True) as url:
        yield url


def search_field(page: Page) -> Locator:
    return page.get_by_role("searchbox", name="Search skills")


def test_the_next_steps_lead_to_code_and_to_an_example(visit: Visit) -> None:
    page = visit.go()
    steps = page.get_by_role("region", name="Next steps")
    steps.get_by_role("button", name="Connect from Python").click()
    code = steps.get_by_role("region", name="Connect from Python")
    expect(code).to_contain_text(f'SyncA2AClient("{visit.agent}/"')
    expect(code).to_contain_text("pip install apcore-a2a-client")
    compile(code.locator("pre").inner_text(), "shown code", "exec")
    steps.get_by_role("link", name="Run an example").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Csv Summary")
    page.get_by_role("button", name="Run", exact=True).click()
    status = page.get_by_label("Result").get_by_role("status").first
    expect(status).to_have_text("completed")


def test_the_tasks_that_wait_for_input_are_counted(visit: Visit) -> None:
    with closing(OtherClient(visit.agent)) as other:
        other.send({"data": {"path": "old.txt"}}, "files.delete")
        total = other.call("ListTasks", status="TASK_STATE_INPUT_REQUIRED")["totalSize"]
        visit.go().get_by_role("link", name=f"Waiting for your input: {total}").click()
    expect(visit.page.get_by_role("heading", level=1)).to_have_text("Inbox")


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ({"status": "healthy"}, "Healthy"),
        ({"status": "draining", "reason": "The server is shutting down"}, "Shutting down"),
        ({"status": "unhealthy", "reason": "<b>No store</b>"}, "<b>No store</b>"),
    ],
)
def test_the_state_of_the_agent_is_shown(visit: Visit, answer: Any, shown: str) -> None:
    visit.page.route("**/health", lambda route: route.fulfill(json=answer))
    state = visit.go().get_by_role("article").get_by_role("status").first
    expect(state).to_have_text(shown)


def test_many_skills_are_grouped(open_visit: OpenVisit, large_agent: str) -> None:
    page = open_visit(large_agent).go()
    skills = page.get_by_role("navigation", name="Skills")
    groups = skills.get_by_role("group")
    expect(groups).to_have_count(AREAS)
    expect(skills.get_by_role("link")).to_have_count(0)
    group = skills.get_by_role("group").filter(has_text="area7")
    expect(group).to_contain_text(str(PER_AREA))
    group.get_by_text("area7", exact=True).click()
    expect(group.get_by_role("link")).to_have_count(PER_AREA)
    group.get_by_role("link", name="area7.job13").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Area7 Job13")
    expect(skills.get_by_role("link", name="area7.job13")).to_be_visible()
    expect(skills.get_by_role("link", name="area8.job13")).to_have_count(0)


def test_arrow_keys_move_through_search_results(open_visit: OpenVisit, large_agent: str) -> None:
    page = open_visit(large_agent).go()
    search_field(page).fill("area7 job1")
    links = page.get_by_role("navigation", name="Skills").get_by_role("link")
    expect(links).to_have_count(11)
    search_field(page).press("ArrowDown")
    expect(links.first).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(links.nth(1)).to_be_focused()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    expect(search_field(page)).to_be_focused()
    search_field(page).press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Area7 Job1")


def test_the_start_page_offers_no_example_if_the_card_has_none(open_visit: OpenVisit) -> None:
    fake = FakeAgent(card_of(skill_of("work", description="**Works** hard\n\nand long")))
    with running(fake.app()) as url:
        page = open_visit(url).go()
        expect(page.get_by_role("listitem").filter(has_text="Works hard")).to_be_visible()
        expect(page.get_by_text("Run an example")).to_have_count(0)
        expect(page.get_by_role("link", name="Waiting for your input")).to_be_visible()
