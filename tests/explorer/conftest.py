"""Fixtures: a real Chromium, an agent, and its page in the browser."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.serving import running

from .agent import registry
from .browsing import Visit, chromium, find_chromium, visiting


def pytest_itemcollected(item: pytest.Function) -> None:
    """Mark the tests that use a browser."""
    if "browser" in item.fixturenames:
        item.add_marker("browser")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Run Chromium for one module: other tests can't run event loops beside Playwright's."""
    if find_chromium() is None:
        pytest.skip("No Chromium here; Debian and Ubuntu: apt install chromium")
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def agent() -> Iterator[str]:
    """Serve the modules of examples/; yield the agent's base URL."""
    options: dict[str, Any] = {"name": "Test agent", "push_notifications": True}
    with running(registry(), explorer=True, **options) as url:
        yield url


@pytest.fixture
def visit(browser: Browser, agent: str) -> Iterator[Visit]:
    """Open the page of *agent* on a desktop screen, in light colours."""
    with visiting(browser, agent, color_scheme="light") as opened:
        yield opened


@pytest.fixture
def open_visit(browser: Browser) -> Iterator[Callable[..., Visit]]:
    """Return a function that opens pages: of other agents, on phones, in dark colours."""
    with ExitStack() as visits:

        def open_page(agent: str, **options: Any) -> Visit:
            return visits.enter_context(visiting(browser, agent, **options))

        yield open_page
