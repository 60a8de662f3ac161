"""A person's browser: a page of the explorer, and what it did that nobody saw."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

PATIENCE = 20_000
"""Milliseconds after which what has not happened is taken for a fault."""
expect.set_options(timeout=PATIENCE)

DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 360, "height": 740}

UNSENT = re.compile(r"Failed to load resource: (net::|the server responded with a status of)")
"""What the browser itself says of an answer that is an error, or of a lost connection."""

DRAWN = "new Promise((done) => requestAnimationFrame(() => setTimeout(() => setTimeout(done))))"
"""Over when what the page knew of has been drawn, and what it does after that has begun."""

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    # else it looks up addresses of its maker's at every start
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


def find() -> str | None:
    """Find the browser, under one of the names that it has."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run the browser that `find` finds, or that Playwright has installed."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find(), args=FLAGS)
        yield browser
        browser.close()


@dataclass
class Visit:
    """A page that somebody looks at.

    Attributes:
        page: Playwright's page.
        agent: The base URL of the agent whose explorer it is.
        requests: The URLs that it asked for, in their order.
        complaints: What it wrote to the console as an error, and what it threw.
    """

    page: Page
    agent: str
    requests: list[str] = field(default_factory=list[str])
    complaints: list[str] = field(default_factory=list[str])

    def go(self, view: str = "") -> Page:
        """Show a view: `skills/text.stats`, `tasks`; the skills when none is named."""
        self.page.goto(f"{self.agent}/explorer#/{view}")
        self.page.evaluate(DRAWN)  # goto awaits no more than the address, if the page is there
        return self.page

    def foreign(self) -> list[str]:
        """What was asked of others than the agent."""
        own = urlsplit(self.agent).netloc
        return [
            url
            for url in self.requests
            if urlsplit(url).scheme not in ("data", "blob") and urlsplit(url).netloc != own
        ]

    def axe(self) -> list[str]:
        """What axe-core finds that is serious or critical."""
        found = Axe().run(self.page).response["violations"]
        return [
            f"{each['id']}: {node['html'][:200]} {node['failureSummary']}"
            for each in found
            if each["impact"] in ("serious", "critical")
            for node in each["nodes"]
        ]

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not UNSENT.match(message.text):
            self.complaints.append(message.text)

    def _on_request(self, request: Request) -> None:
        self.requests.append(request.url)

    def listen(self) -> None:
        """Remember what happens from now on."""
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self._on_request)


@contextmanager
def visiting(browser: Browser, agent: str, **options: Any) -> Iterator[Visit]:
    """A visit by somebody new; at its end, nothing may have gone wrong unseen.

    Args:
        browser: Where.
        agent: The base URL of the agent.
        options: For Playwright's `new_context`: `viewport`, `color_scheme`, …
    """
    with browser.new_context(**{"viewport": DESKTOP, **options}) as context:
        context.set_default_timeout(PATIENCE)
        visit = Visit(context.new_page(), agent)
        visit.listen()
        yield visit
        assert visit.complaints == []
        assert visit.foreign() == []
