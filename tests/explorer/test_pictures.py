"""The pictures of docs/explorer.md.

`EXPLORER_PICTURES=docs/explorer uv run pytest tests/explorer/test_pictures.py` makes them anew.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.serving import running

from .agent import EXTENSIONS
from .browsing import Visit

PAGE = Path(__file__).parents[2] / "docs" / "explorer.md"
WIDE = {"width": 1180, "height": 760}
TO_TOP = "(element) => element.scrollIntoView()"


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The agent of the demo, with something to delete."""
    folder = tmp_path_factory.mktemp("sandbox")
    (folder / "reports").mkdir()
    (folder / "reports" / "2019.txt").write_text("profit", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("APCORE_EXAMPLE_ROOT", str(folder))
        with running(EXTENSIONS, explorer=True, name="Demo agent", push_notifications=True) as url:
            yield url


def fill_in(page: Page, preset: str) -> None:
    page.get_by_role("button", name=preset).click()


def the_agent(visit: Visit) -> None:
    page = visit.go()
    expect(page.get_by_role("heading", name="Demo agent")).to_be_visible()


def a_skill(visit: Visit) -> None:
    page = visit.go("skills/orders.price")
    fill_in(page, "A member orders tea")
    expect(page.get_by_role("heading", name="Try it")).to_be_visible()


def a_run(visit: Visit) -> None:
    page = visit.go("skills/jobs.countdown")
    fill_in(page, "Three seconds")
    page.get_by_role("button", name="Stream").click()
    expect(page.get_by_role("status").get_by_text("completed")).to_be_visible()
    page.get_by_role("button", name="Stream").scroll_into_view_if_needed()
    page.get_by_role("heading", name="Result", exact=True).evaluate(TO_TOP)


def a_question(visit: Visit) -> None:
    page = visit.go("skills/files.delete")
    fill_in(page, "Remove an old report")
    page.get_by_role("button", name="Send and wait").click()
    expect(page.get_by_role("button", name="Approve")).to_be_visible()
    page.get_by_role("heading", name="Result", exact=True).evaluate(TO_TOP)


def the_tasks(visit: Visit) -> None:
    page = visit.go("tasks")
    expect(page.get_by_text("jobs.countdown").first).to_be_visible()


VIEWS: dict[str, Callable[[Visit], None]] = {
    "agent": the_agent,
    "skill": a_skill,
    "run": a_run,
    "question": a_question,
    "tasks": the_tasks,
}


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_the_main_views_make_pictures(
    agent: str, open_visit: Callable[..., Visit], colours: str, tmp_path: Path
) -> None:
    folder = Path(os.environ.get("EXPLORER_PICTURES", tmp_path))
    for name, show in VIEWS.items():
        visit = open_visit(agent, viewport=WIDE, color_scheme=colours)
        show(visit)
        visit.page.screenshot(path=folder / f"{name}-{colours}.png")
        assert f"explorer/{name}-{colours}.png" in PAGE.read_text(encoding="utf-8")
        visit.page.close()
