"""Access for everybody: by keyboard, on phones, in the dark, behind proxies."""

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
from .fake import Fake, card_of
from .walk import preset, send, walk

Begin = Callable[..., Visit]
ON_A_PHONE: dict[str, Any] = {"viewport": PHONE, "is_mobile": True, "has_touch": True}

WIDE = """() => {
    const {scrollWidth, clientWidth} = document.documentElement;
    return Math.max(0, scrollWidth - clientWidth);
}"""

SMALL = """() => [...document.querySelectorAll("a, button, input, select, textarea, summary")]
    .filter((each) => !each.closest(".markdown, .skip, p") && each.checkVisibility())
    .map((each) => each.matches("[type=checkbox], [type=radio]") ? each.closest("label") : each)
    .map((each) => [each.getBoundingClientRect(), each])
    .filter(([{width, height}]) => width && Math.min(width, height) < 24)
    .map(([{width, height}, each]) => `${width} x ${height}: ${each.outerHTML.slice(0, 150)}`)"""
"""Targets are at least 24 px wide and high (WCAG 2.2, 2.5.8), but for links within sentences."""

SHIFTS = """() => {
    window.shifts = [];
    new PerformanceObserver((list) => {
        const found = list.getEntries().filter((each) => !each.hadRecentInput);
        window.shifts.push(...found.map((each) => each.value));
    }).observe({type: "layout-shift", buffered: true});
}"""


def shifted(page: Page) -> float:
    """How much has moved that nobody moved."""
    return float(page.evaluate("window.shifts.reduce((sum, each) => sum + each, 0)"))


def test_nothing_serious_is_in_anybodys_way_in_any_view(visit: Visit) -> None:
    found = {view: visit.axe() for view in walk(visit)}
    assert found == {view: [] for view in found}


def test_every_view_is_in_nobodys_way_in_the_dark_on_a_phone(open_visit: Begin, agent: str) -> None:
    visit = open_visit(agent, color_scheme="dark", **ON_A_PHONE)
    page = visit.page
    found = {view: (visit.axe(), page.evaluate(WIDE), page.evaluate(SMALL)) for view in walk(visit)}
    assert found == {view: ([], 0, []) for view in found}


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_nothing_serious_is_in_the_way_of_signing_in(open_visit: Begin, colours: str) -> None:
    schemes = {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}}}
    with running(Fake(card_of(securitySchemes=schemes)).app()) as url:
        visit = open_visit(url, color_scheme=colours, **ON_A_PHONE)
        visit.go().get_by_role("button", name="Sign in").click()
        expect(visit.page.get_by_role("dialog")).to_be_visible()
        assert visit.axe() == []
        assert visit.page.evaluate(WIDE) == 0
        assert visit.page.evaluate(SMALL) == []


def test_every_view_fits_at_twice_the_size(open_visit: Begin, agent: str) -> None:
    """Zoom 200 % leaves half of the pixels."""
    small = {"width": 640, "height": 450}
    visit = open_visit(agent, viewport=small, device_scale_factor=2)
    found = {view: visit.page.evaluate(WIDE) for view in walk(visit)}
    assert found == dict.fromkeys(found, 0)


@pytest.mark.parametrize("options", [{}, ON_A_PHONE], ids=["desk", "phone"])
def test_nothing_moves_while_a_view_loads(
    open_visit: Begin, agent: str, options: dict[str, Any]
) -> None:
    visit = open_visit(agent, **options)
    preset(visit, "files.delete")
    send(visit.page, "input-required")
    found = {}
    for view in ("", "skills/files.delete", "tasks", "inbox", "conversations", "requests"):
        visit.page.goto("about:blank")
        page = visit.go(view)
        page.evaluate(SHIFTS)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.get_by_text("Asking for")).to_have_count(0)
        page.evaluate("new Promise((done) => setTimeout(done, 100))")
        found[view] = shifted(page)
    assert {view: sum for view, sum in found.items() if sum >= 0.1} == {}


def test_nothing_moves_while_a_stream_runs(visit: Visit) -> None:
    page = preset(visit, "jobs.countdown")
    page.get_by_role("button", name="Stream", exact=True).scroll_into_view_if_needed()
    page.evaluate(SHIFTS)
    send(page, "completed")
    assert shifted(page) < 0.1


UNSEEN = """() => {
    const {activeElement, body} = document;
    const seen = activeElement === body || getComputedStyle(activeElement).outlineStyle !== "none";
    return seen ? null : activeElement.outerHTML;
}"""


def tab_to(wanted: Locator) -> None:
    """Press Tab until something has the focus, and see that the focus shows on the way."""
    wanted.wait_for()
    page = wanted.page
    for _ in range(60):
        page.keyboard.press("Tab")
        assert page.evaluate(UNSEEN) is None
        if wanted.evaluate("(each) => each === document.activeElement"):
            return
    raise AssertionError(f"Tab does not lead to {wanted}")


@pytest.mark.smoke
def test_a_whole_journey_goes_by_keyboard(visit: Visit) -> None:
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
    expect(page.get_by_role("heading", name="Task", exact=True)).to_be_visible()
    tab_to(page.get_by_role("button", name="Approve"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").first).to_have_text("failed")
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)


def test_the_content_is_a_key_away(visit: Visit) -> None:
    page = visit.go("tasks")
    page.get_by_role("heading", name="Tasks").wait_for()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()


def paper(page: Page) -> str:
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


def test_colours_are_those_of_the_system_or_ones_own(browser: Browser, agent: str) -> None:
    with visiting(browser, agent, color_scheme="dark") as visit:
        page = visit.go()
        dark = paper(page)
        page.get_by_label("Colours").select_option("light")
        light = paper(page)
        assert light != dark
        page.reload()
        expect(page.get_by_label("Colours")).to_have_value("light")
        assert paper(page) == light
        page.get_by_label("Colours").select_option("system")
        assert paper(page) == dark
        page.emulate_media(color_scheme="light")
        assert paper(page) == light


def test_nothing_moves_for_those_who_do_not_want_it(open_visit: Begin, agent: str) -> None:
    moving = """() => [...document.querySelectorAll("*")].map((each) => getComputedStyle(each))
        .filter((style) => style.transitionDuration !== "0s" || style.animationName !== "none"
            || style.scrollBehavior === "smooth").length"""
    still = open_visit(agent, reduced_motion="reduce")
    preset(still, "text.stats")
    assert still.page.evaluate(moving) == 0
    other = open_visit(agent, reduced_motion="no-preference")
    preset(other, "text.stats")
    assert other.page.evaluate(moving) > 0


def test_without_javascript_the_page_says_what_it_needs(open_visit: Begin, agent: str) -> None:
    page = open_visit(agent, java_script_enabled=False).page
    page.goto(f"{agent}/explorer")  # nothing can be asked of a page without JavaScript
    expect(page.locator("noscript")).to_be_visible()
    told = "The explorer needs JavaScript."
    expect(page.locator("noscript")).to_have_js_property("textContent", told)


def complete(visit: Visit, path: str) -> None:
    """Everything works from the page at a path: the card, a stream, a list."""
    page = visit.page
    page.goto(f"{visit.agent}{path}#/skills/text.stats")
    page.get_by_text("Fill in:").locator("..").get_by_role("button").first.click()
    send(page, "completed")
    page.get_by_role("link", name="Tasks").click()
    expect(page.get_by_role("row", name="text.stats").first).to_be_visible()


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """A site that has an agent at /agent, and its page at /agent/tools/ui."""
    app = create_app(registry(), url="http://site.test/agent", explorer=True, shutdown_timeout=0)
    ui = create_app(registry(), url="http://x.test", explorer=True, explorer_path="/tools/ui")
    with running(Starlette(routes=[Mount("/agent", app), Mount("/other", ui)])) as url:
        yield url


@pytest.mark.parametrize(
    "path", ["/agent/explorer", "/agent/explorer/", "/other/tools/ui", "/other/tools/ui/"]
)
def test_the_page_works_under_any_path(open_visit: Begin, site: str, path: str) -> None:
    complete(open_visit(site), path)


class Proxy:
    """A reverse proxy that strips a prefix, and gives the agent another Host."""

    def __init__(self, prefix: str) -> None:
        self.agent = ""
        self._prefix = prefix

    def app(self) -> Starlette:
        route = Route(self._prefix + "{path:path}", self._pass, methods=["GET", "POST"])
        return Starlette(routes=[route], lifespan=self._connected)

    @asynccontextmanager
    async def _connected(self, _: Starlette) -> AsyncIterator[None]:
        async with httpx.AsyncClient(trust_env=False, timeout=None) as self._client:
            yield

    async def _pass(self, request: Request) -> Response:
        own = ("host", "connection")
        headers = {name: value for name, value in request.headers.items() if name not in own}
        asked = self._client.build_request(
            request.method,
            f"{self.agent}{request.path_params['path']}",
            params=request.query_params,
            headers={**headers, "host": "inner.internal:8000"},
            content=await request.body(),
        )
        answer = await self._client.send(asked, stream=True)
        close = BackgroundTask(answer.aclose)
        return StreamingResponse(
            answer.aiter_raw(), answer.status_code, answer.headers, background=close
        )


@pytest.mark.parametrize("path", ["/explorer", "/explorer/"])
def test_the_page_works_behind_a_proxy_that_strips_a_prefix(open_visit: Begin, path: str) -> None:
    proxy = Proxy("/public/agent")
    with running(proxy.app()) as outer:
        public = f"{outer}/public/agent"
        with running(registry(), url=public, explorer=True) as inner:
            proxy.agent = inner
            complete(open_visit(public), path)
