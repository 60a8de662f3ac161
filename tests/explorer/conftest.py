"""A real Chromium, and an agent for it to look at."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.serving import running

from .agent import registry
from .browsing import Visit, chromium, find, visiting


def pytest_itemcollected(item: pytest.Function) -> None:
    """Mark who looks at the page."""
    if "browser" in item.fixturenames:
        item.add_marker("browser")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium; for one module of tests, for others can't run event loops beside Playwright's."""
    if find() is None:
        pytest.skip("No Chromium here; Debian and Ubuntu: apt install chromium")
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def agent() -> Iterator[str]:
    """The base URL of an agent with the modules of examples/ and of `tests.explorer.agent`."""
    options: dict[str, Any] = {"name": "Test agent", "push_notifications": True}
    with running(registry(), explorer=True, **options) as url:
        yield url


@pytest.fixture
def visit(browser: Browser, agent: str) -> Iterator[Visit]:
    """Somebody at a desk, who looks at *agent* in light colours."""
    with visiting(browser, agent, color_scheme="light") as found:
        yield found


@pytest.fixture
def open_visit(browser: Browser) -> Iterator[Callable[..., Visit]]:
    """What begins further visits: of other agents, on phones, in the dark."""
    with ExitStack() as visits:

        def begin(agent: str, **options: Any) -> Visit:
            return visits.enter_context(visiting(browser, agent, **options))

        yield begin
