"""A browser with a page of the explorer, which records requests and errors."""

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import Any
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

from tests.serving import PATIENCE

TIMEOUT = 20_000
"""Milliseconds to wait for something to appear on the page."""
expect.set_options(timeout=TIMEOUT)

DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 360, "height": 740}

ANIMATIONS_HAVE_ENDED = """Promise.all(
    document.getAnimations()
        .filter((animation) => animation.effect.getComputedTiming().endTime < Infinity)
        .map((animation) => animation.finished.catch(() => null))
)"""
"""A promise for the end of all animations that have one."""
NETWORK_ERROR = re.compile(
    r"Failed to load resource: (net::|the server responded with a status of)"
)
"""Console messages of the browser itself about error responses and lost connections."""

DRAWN = "new Promise((done) => requestAnimationFrame(() => setTimeout(() => setTimeout(done))))"
"""A promise that resolves once the page has drawn its state and run the effects."""

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    # without these Chromium contacts Google at every start
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


def find_chromium() -> str | None:
    """Return the path of the installed Chromium or Chrome, if any."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run the installed Chromium, else the one that Playwright has installed."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        yield browser
        browser.close()


RUN_MODES = {
    "stream": "and stream events",
    "wait": "and wait for the result",
    "later": "in the background",
}
"""The labels of the options of *How to run*, by short names."""


def wait_until(holds: Callable[[], bool]) -> None:
    """Poll *holds* until it returns True.

    Playwright's own `wait_for_function` evaluates a string in the page, which its content security
    policy forbids.
    """
    deadline = monotonic() + PATIENCE
    while not holds():
        assert monotonic() < deadline
        sleep(0.02)


def press_run(page: Page, mode: str = "stream") -> None:
    """Run the shown skill in one of the `RUN_MODES`."""
    page.get_by_label("How to run").select_option(RUN_MODES[mode])
    page.get_by_role("button", name="Run", exact=True).click()


@dataclass
class Visit:
    """A browser page that shows an agent's explorer.

    Attributes:
        page: Playwright's page.
        agent: The agent's base URL.
        requests: The URLs that the page has requested, in order.
        errors: The console's error messages, and uncaught exceptions.
    """

    page: Page
    agent: str
    requests: list[str] = field(default_factory=list[str])
    errors: list[str] = field(default_factory=list[str])

    def go(self, view: str = "") -> Page:
        """Open a view such as `tasks` or `skills/text.stats`; by default, the start page."""
        self.page.goto(f"{self.agent}/explorer#/{view}")
        self.page.evaluate(DRAWN)  # on an open page goto changes the address without waiting
        return self.page

    def foreign_requests(self) -> list[str]:
        """Return the URLs of requests to other hosts than the agent's."""
        agent_host = urlsplit(self.agent).netloc
        return [
            url
            for url in self.requests
            if urlsplit(url).scheme not in ("data", "blob") and urlsplit(url).netloc != agent_host
        ]

    def accessibility_violations(self) -> list[str]:
        """Return the violations that axe-core rates as serious or critical."""
        self.page.evaluate(ANIMATIONS_HAVE_ENDED)  # until then, colours are between two others
        violations = Axe().run(self.page).response["violations"]
        return [
            f"{violation['id']}: {node['html'][:200]} {node['failureSummary']}"
            for violation in violations
            if violation["impact"] in ("serious", "critical")
            for node in violation["nodes"]
        ]

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not NETWORK_ERROR.match(message.text):
            self.errors.append(message.text)

    def _on_request(self, request: Request) -> None:
        self.requests.append(request.url)

    def record(self) -> None:
        """Record requests and errors from now on."""
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", self._on_request)


@contextmanager
def visiting(browser: Browser, agent: str, **options: Any) -> Iterator[Visit]:
    """Open a page in a fresh browser context; fail if it logs errors or contacts other hosts.

    Args:
        browser: The browser to open it in.
        agent: The base URL of the agent.
        options: Arguments of Playwright's `new_context`: `viewport`, `color_scheme`, …
    """
    with browser.new_context(**{"viewport": DESKTOP, **options}) as context:
        context.set_default_timeout(TIMEOUT)
        visit = Visit(context.new_page(), agent)
        visit.record()
        yield visit
        assert visit.errors == []
        assert visit.foreign_requests() == []
