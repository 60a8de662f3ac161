"""Take the screenshots of the explorer for docs/explorer.md."""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from playwright.sync_api import Page, expect

from tests.explorer.agent import EXTENSIONS
from tests.explorer.browsing import Visit, chromium, press_run, visiting
from tests.serving import running

FOLDER = Path(__file__).parents[1] / "docs" / "explorer"
WIDE = {"width": 1440, "height": 860}
SCROLL_TO_TOP = "(element) => element.scrollIntoView()"


@contextmanager
def demo() -> Iterator[str]:
    """Serve the example skills, with a file for `files.delete`; yield the URL."""
    with TemporaryDirectory() as folder:
        Path(folder, "reports").mkdir()
        Path(folder, "reports", "2019.txt").write_text("profit", encoding="utf-8")
        with (
            patch.dict(os.environ, {"APCORE_EXAMPLE_ROOT": folder}),
            running(EXTENSIONS, explorer=True, name="Demo agent", push_notifications=True) as url,
        ):
            yield url


def fill_in(page: Page, example: str) -> None:
    """Fill in the form from the skill's example with the title *example*."""
    page.get_by_role("button", name=example).click()


def show_agent(visit: Visit) -> None:
    """Show the start page."""
    page = visit.go()
    expect(page.get_by_role("heading", name="Demo agent")).to_be_visible()


def show_skill(visit: Visit) -> None:
    """Show a skill with its form filled in."""
    page = visit.go("skills/orders.price")
    fill_in(page, "A member orders tea")
    expect(page.get_by_role("heading", name="Try it")).to_be_visible()


def show_run(visit: Visit) -> None:
    """Show a completed stream."""
    page = visit.go("skills/jobs.countdown")
    fill_in(page, "Three seconds")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_role("status").get_by_text("completed")).to_be_visible()
    page.get_by_role("button", name="Run", exact=True).scroll_into_view_if_needed()
    page.get_by_role("heading", name="Result", exact=True).evaluate(SCROLL_TO_TOP)


def show_question(visit: Visit) -> None:
    """Show a task that waits for approval."""
    page = visit.go("skills/files.delete")
    fill_in(page, "Remove an old report")
    press_run(page, "wait")
    expect(page.get_by_role("button", name="Approve")).to_be_visible()
    page.get_by_role("heading", name="Result", exact=True).evaluate(SCROLL_TO_TOP)


def show_tasks(visit: Visit) -> None:
    """Show the list of tasks."""
    page = visit.go("tasks")
    expect(page.get_by_text("jobs.countdown").first).to_be_visible()


def show_performance(visit: Visit) -> None:
    """Show the metrics of the skills, with the details of one skill."""
    page = visit.go("performance")
    page.get_by_role("button", name="Details of jobs.countdown").click()
    expect(page.get_by_role("heading", name="Slowest")).to_be_visible()


VIEWS: dict[str, Callable[[Visit], None]] = {
    "agent": show_agent,
    "skill": show_skill,
    "run": show_run,
    "question": show_question,
    "tasks": show_tasks,
    "performance": show_performance,
}


def main(arguments: Sequence[str]) -> None:
    """Take a screenshot of each view, in light and in dark mode."""
    parser = argparse.ArgumentParser(prog="tools/pictures", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    folder: Path = parser.parse_args(arguments).folder
    folder.mkdir(parents=True, exist_ok=True)
    with chromium() as browser, demo() as agent:
        for scheme in ("light", "dark"):
            for name, show in VIEWS.items():
                with visiting(browser, agent, viewport=WIDE, color_scheme=scheme) as visit:
                    show(visit)
                    visit.page.screenshot(path=folder / f"{name}-{scheme}.png")


if __name__ == "__main__":
    main(sys.argv[1:])
