"""The explorer in Firefox: the form, a run and its result; all else is tested in Chromium."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .firefox import Firefox, find_firefox, firefox

pytestmark = pytest.mark.browser


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Firefox]:
    if find_firefox() is None:
        pytest.skip("No Firefox here; Debian: apt install firefox-esr")
    with firefox(tmp_path) as page:
        yield page


def test_a_skill_runs_in_firefox(page: Firefox, agent: str) -> None:
    page.open(f"{agent}/explorer#/skills/text.stats")
    page.click("textarea, input", "Text")
    page.type("To be, or not to be.")
    page.click("button", "Run")
    page.find("main", "completed")
    page.find("main", "words")
    page.open(f"{agent}/explorer#/tasks")
    page.find("main", "text.stats")
    assert page.errors == []
