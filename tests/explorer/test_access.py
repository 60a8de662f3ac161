"""Accessibility by keyboard, on phones and in dark colours; the page's paths, and a proxy."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from apcore_a2a_server import create_app
from playwright.sync_api import Browser, Locator, Page, expect
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Mount, Route

from tests.serving import running

from .agent import registry
from .browsing import PHONE, Visit, visiting
from .fake import FakeAgent, card_of
from .tour import open_with_example, send, tour

OpenVisit = Callable[..., Visit]
ON_A_PHONE: dict[str, Any] = {"viewport": PHONE, "is_mobile": True, "has_touch": True}

OVERFLOW = """() => {
    const {scrollWidth, clientWidth} = document.documentElement;
    return Math.max(0, scrollWidth - clientWidth);
}"""

TOO_SMALL = """() => [...document.querySelectorAll("a, button, input, select, textarea, summary")]
    .filter((target) => !target.closest(".markdown, .skip, p") && target.checkVisibility())
    .map((target) => (target.matches("[type=checkbox], [type=radio]") && target.closest("label"))
        || target)
    .map((target) => [target.getBoundingClientRect(), target.outerHTML.slice(0, 150)])
    .filter(([{width, height}]) => width && Math.min(width, height) < 24)
    .map(([{width, height}, html]) => `${width} x ${height}: ${html}`)"""
"""Finds targets below 24 px (WCAG 2.2, 2.5.8) outside of paragraphs, Markdown and the skip link."""

RECORD_SHIFTS = """() => {
    window.shifts = [];
    new PerformanceObserver((list) => {
        const shifts = list.getEntries().filter((entry) => !entry.hadRecentInput);
        window.shifts.push(...shifts.map((shift) => shift.value));
    }).observe({type: "layout-shift", buffered: true});
}"""


def layout_shift(page: Page) -> float:
    """Return the sum of the page's layout shifts that followed no input."""
    return float(page.evaluate("window.shifts.reduce((sum, shift) => sum + shift, 0)"))


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_no_view_has_serious_accessibility_violations(
    open_visit: OpenVisit, agent: str, colours: str
) -> None:
    visit = open_visit(agent, color_scheme=colours)
    violations = {view: visit.accessibility_violations() for view in tour(visit)}
    assert violations == {view: [] for view in violations}


def test_every_view_is_accessible_in_dark_colours_on_a_phone(
    open_visit: OpenVisit, agent: str
) -> None:
    visit = open_visit(agent, color_scheme="dark", **ON_A_PHONE)
    page = visit.page
    faults = {
        view: (
            visit.accessibility_violations(),
            page.evaluate(OVERFLOW),
            page.evaluate(TOO_SMALL),
        )
        for view in tour(visit)
    }
    assert faults == {view: ([], 0, []) for view in faults}


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_signing_in_is_accessible_on_a_phone(open_visit: OpenVisit, colours: str) -> None:
    schemes = {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}}}
    with running(FakeAgent(card_of(securitySchemes=schemes)).app()) as url:
        visit = open_visit(url, color_scheme=colours, **ON_A_PHONE)
        visit.go().get_by_role("button", name="Sign in").click()
        expect(visit.page.get_by_role("dialog")).to_be_visible()
        assert visit.accessibility_violations() == []
        assert visit.page.evaluate(OVERFLOW) == 0
        assert visit.page.evaluate(TOO_SMALL) == []


def test_every_view_fits_at_200_percent_zoom(open_visit: OpenVisit, agent: str) -> None:
    """A zoom of 200 % halves the viewport."""
    small = {"width": 640, "height": 450}
    visit = open_visit(agent, viewport=small, device_scale_factor=2)
    widths = {view: visit.page.evaluate(OVERFLOW) for view in tour(visit)}
    assert widths == dict.fromkeys(widths, 0)


@pytest.mark.parametrize("options", [{}, ON_A_PHONE], ids=["desk", "phone"])
def test_hardly_anything_moves_while_a_view_loads(
    open_visit: OpenVisit, agent: str, options: dict[str, Any]
) -> None:
    visit = open_visit(agent, **options)
    open_with_example(visit, "files.delete")
    send(visit.page, "input-required")
    shifts = {}
    for view in ("", "skills/files.delete", "tasks", "inbox", "conversations", "requests"):
        visit.page.goto("about:blank")
        page = visit.go(view)
        page.evaluate(RECORD_SHIFTS)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.get_by_text("Loading")).to_have_count(0)
        page.evaluate("new Promise((done) => setTimeout(done, 100))")
        shifts[view] = layout_shift(page)
    assert {view: shift for view, shift in shifts.items() if shift >= 0.1} == {}


def test_hardly_anything_moves_while_a_stream_runs(visit: Visit) -> None:
    page = open_with_example(visit, "jobs.countdown")
    page.get_by_role("button", name="Run", exact=True).scroll_into_view_if_needed()
    page.evaluate(RECORD_SHIFTS)
    send(page, "completed")
    assert layout_shift(page) < 0.1


FOCUS_NOT_SHOWN = """() => {
    const {activeElement, body} = document;
    const {outlineStyle} = getComputedStyle(activeElement);
    return activeElement === body || outlineStyle !== "none" ? null : activeElement.outerHTML;
}"""


def tab_to(target: Locator) -> None:
    """Press Tab until *target* has the focus; check that the focus is visible on the way."""
    target.wait_for()
    page = target.page
    for _ in range(60):
        page.keyboard.press("Tab")
        assert page.evaluate(FOCUS_NOT_SHOWN) is None
        if target.evaluate("(element) => element === document.activeElement"):
            return
    raise AssertionError(f"Tab does not lead to {target}")


@pytest.mark.smoke
def test_a_task_is_started_and_approved_by_keyboard_alone(visit: Visit) -> None:
    page = visit.go()
    page.get_by_role("heading", level=1).wait_for()
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("delete")
    expect(page.get_by_role("navigation", name="Skills").get_by_role("link")).to_have_count(1)
    tab_to(page.get_by_role("link", name="files.delete"))
    page.keyboard.press("Enter")
    tab_to(page.get_by_role("textbox", name="path"))
    page.keyboard.type("old.txt")
    page.keyboard.press("Control+Enter")
    tab_to(page.get_by_label("Result").get_by_role("link", name="Task"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="History")).to_be_visible()
    tab_to(page.get_by_label("Type files.delete to approve it"))
    page.keyboard.type("files.delete")
    tab_to(page.get_by_role("button", name="Approve"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").first).to_have_text("failed")  # there is no such file
    expect(page.get_by_role("button", name="Approve", exact=True)).to_have_count(0)


def test_a_skip_link_leads_to_the_content(visit: Visit) -> None:
    page = visit.go("tasks")
    page.get_by_role("heading", name="Tasks").wait_for()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to main content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()


def background(page: Page) -> str:
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


def test_colours_follow_the_system_or_the_users_choice(browser: Browser, agent: str) -> None:
    with visiting(browser, agent, color_scheme="dark") as visit:
        page = visit.go()
        dark = background(page)
        page.get_by_label("Theme").select_option("light")
        light = background(page)
        assert light != dark
        page.reload()
        expect(page.get_by_label("Theme")).to_have_value("light")
        assert background(page) == light
        page.get_by_label("Theme").select_option("system")
        assert background(page) == dark
        page.emulate_media(color_scheme="light")
        assert background(page) == light


def test_nothing_is_animated_for_users_who_prefer_reduced_motion(
    open_visit: OpenVisit, agent: str
) -> None:
    moving = """() => [...document.querySelectorAll("*")]
        .map((element) => getComputedStyle(element))
        .filter((style) => style.transitionDuration !== "0s" || style.animationName !== "none"
            || style.scrollBehavior === "smooth").length"""
    reduced = open_visit(agent, reduced_motion="reduce")
    open_with_example(reduced, "text.stats")
    assert reduced.page.evaluate(moving) == 0
    default = open_visit(agent, reduced_motion="no-preference")
    open_with_example(default, "text.stats")
    assert default.page.evaluate(moving) > 0


def test_the_page_says_that_it_requires_javascript(open_visit: OpenVisit, agent: str) -> None:
    page = open_visit(agent, java_script_enabled=False).page
    page.goto(f"{agent}/explorer")  # without JavaScript, `visit.go` cannot evaluate anything
    expect(page.locator("noscript")).to_be_visible()
    message = "The explorer requires JavaScript. Enable it, then reload the page."
    expect(page.locator("noscript")).to_have_js_property("textContent", message)


def check_page_works(visit: Visit, path: str) -> None:
    """Use the page at a path: fill in an example, run the skill, and list the tasks."""
    page = visit.page
    page.goto(f"{visit.agent}{path}#/skills/text.stats")
    page.get_by_text("Fill in an example:").locator("..").get_by_role("button").first.click()
    send(page, "completed")
    page.get_by_role("link", name="Tasks").click()
    expect(page.get_by_role("row", name="text.stats").first).to_be_visible()


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """Serve an agent under /agent, and another whose page is /other/tools/ui."""
    app = create_app(registry(), url="http://site.test/agent", explorer=True, shutdown_timeout=0)
    other = create_app(registry(), url="http://x.test", explorer=True, explorer_path="/tools/ui")

    @asynccontextmanager
    async def lifespan(site: Starlette) -> AsyncIterator[None]:
        async with app.router.lifespan_context(app), other.router.lifespan_context(other):
            yield

    routes = [Mount("/agent", app), Mount("/other", other)]
    with running(Starlette(routes=routes, lifespan=lifespan)) as url:
        yield url


@pytest.mark.parametrize(
    "path", ["/agent/explorer", "/agent/explorer/", "/other/tools/ui", "/other/tools/ui/"]
)
def test_the_page_works_under_any_path(open_visit: OpenVisit, site: str, path: str) -> None:
    check_page_works(open_visit(site), path)


class Proxy:
    """A reverse proxy that strips a prefix and replaces the Host header."""

    def __init__(self, prefix: str) -> None:
        self.agent = ""
        self._prefix = prefix

    def app(self) -> Starlette:
        route = Route(self._prefix + "{path:path}", self._forward, methods=["GET", "POST"])
        return Starlette(routes=[route], lifespan=self._connected)

    @asynccontextmanager
    async def _connected(self, _: Starlette) -> AsyncIterator[None]:
        async with httpx.AsyncClient(trust_env=False, timeout=None) as self._client:
            yield

    async def _forward(self, request: Request) -> Response:
        dropped = ("host", "connection")
        headers = {name: value for name, value in request.headers.items() if name not in dropped}
        forwarded = self._client.build_request(
            request.method,
            f"{self.agent}{request.path_params['path']}",
            params=request.query_params,
            headers={**headers, "host": "inner.internal:8000"},
            content=await request.body(),
        )
        answer = await self._client.send(forwarded, stream=True)
        close = BackgroundTask(answer.aclose)
        return StreamingResponse(
            answer.aiter_raw(), answer.status_code, answer.headers, background=close
        )


@pytest.mark.parametrize("path", ["/explorer", "/explorer/"])
def test_the_page_works_behind_a_proxy_that_strips_a_prefix(
    open_visit: OpenVisit, path: str
) -> None:
    proxy = Proxy("/public/agent")
    with running(proxy.app()) as outer:
        public = f"{outer}/public/agent"
        with running(registry(), url=public, explorer=True) as inner:
            proxy.agent = inner
            check_page_works(open_visit(public), path)
