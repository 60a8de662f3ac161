"""The command palette, the keyboard shortcuts, and the name of the signed-in user."""

import time
from collections.abc import Callable
from contextlib import closing

import jwt
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.serving import running

from .browsing import Visit
from .fake import FakeAgent, card_of
from .other_client import OtherClient

OpenVisit = Callable[..., Visit]


def palette(page: Page) -> Locator:
    """Open the palette; return its field."""
    page.get_by_role("heading", level=1).wait_for()
    page.keyboard.press("Control+k")
    field = page.get_by_role("combobox", name="Command")
    expect(field).to_be_focused()
    return field


def test_a_skill_is_found_with_the_keyboard_alone(visit: Visit) -> None:
    page = visit.go("tasks")
    field = palette(page)
    field.fill("text st")
    options = page.get_by_role("listbox", name="Commands").get_by_role("option")
    expect(options.first).to_contain_text("Text Stats")
    expect(options.first).to_have_attribute("aria-selected", "true")
    assert visit.accessibility_violations() == []
    field.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Text Stats")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_the_arrow_keys_choose_a_command(visit: Visit) -> None:
    page = visit.go()
    field = palette(page)
    field.fill("theme")
    options = page.get_by_role("listbox", name="Commands").get_by_role("option")
    expect(options).to_have_text(["ActionLight theme", "ActionDark theme", "ActionSystem theme"])
    field.press("ArrowDown")
    expect(options.nth(1)).to_have_attribute("aria-selected", "true")
    field.press("ArrowUp")
    field.press("ArrowUp")
    expect(options.last).to_have_attribute("aria-selected", "true")
    field.press("ArrowUp")
    field.press("Enter")
    expect(page.get_by_label("Theme")).to_have_value("dark")


def test_a_task_is_opened_by_its_id(visit: Visit) -> None:
    with closing(OtherClient(visit.agent)) as other:
        task = other.send({"data": {"text": "hello"}}, "text.stats")
        paused = other.send({"data": {"path": "old.txt"}}, "files.delete")
    page = visit.go("requests")
    field = palette(page)
    field.fill(task["id"])
    field.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Text Stats")
    page = visit.go("inbox")
    expect(page.get_by_role("article", name=f"Task {paused['id']}")).to_be_visible()
    palette(page).fill(paused["id"][:6])
    option = page.get_by_role("option", name=f"Open task {paused['id']}")
    expect(option).to_contain_text("files.delete")
    option.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Files Delete")


def test_an_unknown_command_matches_nothing(visit: Visit) -> None:
    page = visit.go()
    palette(page).fill("<b>no such thing</b>")
    expect(page.get_by_text("Nothing matches")).to_be_visible()
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_the_shortcuts_stay_open_although_the_palette_was_closed_just_before(visit: Visit) -> None:
    page = visit.go()
    palette(page)
    # as with Escape, the page hears of the closed dialog only after the next key
    page.evaluate(
        """() => {
            document.querySelector("dialog.palette").close();
            dispatchEvent(new KeyboardEvent("keydown", { key: "?" }));
        }"""
    )
    keys = page.get_by_role("dialog", name="Keys")
    expect(keys.get_by_role("button", name="Close")).to_be_focused()
    page.keyboard.press("Escape")
    expect(keys).to_have_count(0)


def test_a_question_mark_lists_the_shortcuts_except_in_a_field(visit: Visit) -> None:
    page = visit.go()
    page.get_by_role("heading", level=1).wait_for()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_contain_text(
        "Find a skill, a task or an action"
    )
    assert visit.accessibility_violations() == []
    page.get_by_role("button", name="Close").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("searchbox").press_sequentially("what?")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("searchbox")).to_have_value("what?")


@pytest.mark.parametrize(
    ("minutes", "shown"), [(58.5, "58 min left"), (-1, "expired"), (300.5, "5 h left")]
)
def test_the_page_shows_the_user_of_a_token_and_the_time_left(
    open_visit: OpenVisit, minutes: float, shown: str
) -> None:
    schemes = {"jwt": {"httpAuthSecurityScheme": {"scheme": "bearer"}}}
    claims = {"sub": "ada", "roles": ["operator"], "exp": int(time.time() + 60 * minutes)}
    token = jwt.encode(claims, "a secret that is long enough for HS256")
    with running(FakeAgent(card_of(securitySchemes=schemes)).app()) as url:
        page = open_visit(url).go()
        page.get_by_role("button", name="Sign in").click()
        page.get_by_label("Token").fill(token)
        page.get_by_role("dialog").get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("banner").get_by_text(f"ada · operator · {shown}")).to_be_visible()
