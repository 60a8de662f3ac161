"""Conversations with the agent: its questions, approvals, and the answers to them."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from apcore import Context
from playwright.sync_api import Locator, Page, expect

from tests.server.inloop import ActionModule
from tests.server.modules import Inputs
from tests.serving import running

from .agent import registry
from .browsing import Visit
from .fake import FakeAgent, card_of, skill_of
from .other_client import OtherClient


async def book(inputs: Inputs, context: "Context[Any]") -> Inputs:
    """Book a table; ask for the day and the number of guests if they are missing."""
    for name, question in [("day", "For which day?"), ("guests", "For how many?")]:
        if name not in inputs:
            context.services.ask(question, {"places": ["inside", "garden"]})
    return {"booked": f"{inputs['day']} for {inputs['guests']}"}


ANY: dict[str, Any] = {"type": "object"}
ROOM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "nights": {"type": "integer", "minimum": 1, "title": "Nights"},
        "view": {"enum": ["sea", "garden"], "title": "View"},
        "guests": {"type": "array", "items": {"type": "string"}, "title": "Guests"},
    },
    "required": ["nights", "view"],
}
DAY = {"type": "string", "format": "date", "title": "Day of arrival"}


async def reserve(inputs: Inputs, context: "Context[Any]") -> Inputs:
    """Reserve a room; ask for missing inputs, with a schema for each answer."""
    if "nights" not in inputs:
        context.services.ask("Which room?", {"hotel": "Ritz"}, schema=ROOM)
    if "day" not in inputs:
        context.services.ask("From when?", field="day", schema=DAY)
    return {**inputs}


async def clear(inputs: Inputs, context: "Context[Any]") -> Inputs:
    """Ask for approval in the module's own words."""
    if context.services.approved is None:
        context.services.approve("Clear all 3 shelves?", {"shelves": 3})
    return {"cleared": 3 if context.services.approved else 0}


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create the folder that `files.delete` works in."""
    return tmp_path_factory.mktemp("sandbox")


@pytest.fixture(scope="module")
def agent(sandbox: Path) -> Iterator[str]:
    """Serve the modules of examples/, and three that ask for input or approval."""
    modules = registry()
    modules.register("table.book", ActionModule(book, input_schema=ANY))
    modules.register("room.reserve", ActionModule(reserve, input_schema=ANY))
    modules.register("shelves.clear", ActionModule(clear, input_schema=ANY))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("APCORE_EXAMPLE_ROOT", str(sandbox))
        with running(modules, name="Test agent", explorer=True) as url:
            yield url


@pytest.fixture
def other(agent: str) -> Iterator[OtherClient]:
    with closing(OtherClient(agent)) as client:
        yield client


@pytest.fixture
def report(sandbox: Path) -> Path:
    """Create a file to delete."""
    path = sandbox / "report.txt"
    path.write_text("old")
    return path


def send_text(page: Page, text: str, skill: str = "") -> None:
    """Send a message in the open conversation."""
    if skill:
        page.get_by_label("Skill").select_option(skill)
    page.get_by_label("Message").fill(text)
    page.get_by_role("button", name="Send", exact=True).click()


def conversation_tasks(page: Page) -> Locator:
    """Return the tasks of the open conversation."""
    return page.get_by_role("region", name="Task ").filter(has=page.get_by_role("link"))


def question(page: Page) -> Locator:
    return page.get_by_role("region", name="Input requested")


def begin_conversation(visit: Visit) -> Page:
    """Open the page of a new conversation."""
    page = visit.go("conversations")
    page.get_by_role("link", name="New conversation").click()
    return page


def request_deletion(visit: Visit) -> Page:
    """Call `files.delete` on its skill page; return when the page asks for approval."""
    page = visit.go("skills/files.delete")
    page.get_by_label("path").fill("report.txt")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(question(page)).to_contain_text("Run files.delete with these arguments?")
    arguments = question(page).get_by_role("row")
    expect(arguments.get_by_role("rowheader", name="path")).to_be_visible()
    expect(arguments.get_by_role("cell")).to_have_text(['"report.txt"'])
    return page


def approve(page: Page) -> None:
    """Approve the deletion by typing the name of its skill."""
    question(page).get_by_label("Type files.delete to approve it").fill("files.delete")
    question(page).get_by_role("button", name="Approve").click()


def deny(page: Page, reason: str = "") -> None:
    question(page).get_by_role("button", name="Deny…").click()
    question(page).get_by_label("Reason").fill(reason)
    question(page).get_by_role("button", name="Deny", exact=True).click()


def state(page: Page) -> Locator:
    return page.get_by_role("region", name="Result").get_by_role("status").first


def task_link(page: Page) -> Locator:
    return page.get_by_role("region", name="Result").get_by_role("link", name="Task")


def test_a_conversation_can_be_continued_and_reopened(visit: Visit) -> None:
    page = begin_conversation(visit)
    send_text(page, "5 km in mi", "units.convert")
    expect(conversation_tasks(page).get_by_text("5 km = 3.10686 mi")).to_be_visible()
    expect(conversation_tasks(page)).to_have_count(1)
    send_text(page, "7 km")
    expect(conversation_tasks(page).get_by_text("7 km = 4.3496 mi")).to_be_visible()
    expect(conversation_tasks(page)).to_have_count(2)
    sent_messages = page.get_by_role("article").filter(has=page.get_by_role("heading", name="You"))
    expect(sent_messages).to_contain_text(["5 km in mi", "7 km"])
    context = page.url.rpartition("/")[2]
    page.get_by_role("link", name="← Conversations").click()
    page.get_by_role("link", name=context[-8:]).click()
    expect(conversation_tasks(page)).to_have_count(2)
    expect(page.get_by_label("Skill")).to_have_value("units.convert")


def test_no_destructive_skill_is_chosen_beforehand(open_visit: Callable[..., Visit]) -> None:
    only_data = {"inputModes": ["application/json"]}
    card = card_of(
        skill_of("wipe"),
        skill_of("work", **only_data),
        details={"wipe": {"annotations": {"destructive": True}}},
    )
    with running(FakeAgent(card).app()) as url:
        page = open_visit(url).go("conversations/new")
        expect(page.get_by_label("Skill")).to_have_value("work")


def test_an_offered_answer_is_sent_by_its_button(visit: Visit) -> None:
    page = begin_conversation(visit)
    send_text(page, "2 kg", "units.convert")
    expect(question(page)).to_contain_text("2 kg in which unit?")
    question(page).get_by_role("button", name="lb").click()
    expect(conversation_tasks(page).get_by_text("2 kg = 4.40925 lb")).to_be_visible()
    expect(question(page)).to_have_count(0)
    expect(conversation_tasks(page)).to_have_count(1)


def test_several_questions_are_answered_one_after_the_other(visit: Visit) -> None:
    page = begin_conversation(visit)
    send_text(page, "{}", "table.book")
    form = question(page)
    expect(form).to_contain_text("For which day?")
    expect(form).to_contain_text("places: [ 2 ]")
    form.get_by_role("button", name="Reply").click()
    expect(form).to_contain_text("Enter an answer first.")
    form.get_by_label("Answer").fill('{"day": "Friday"}')
    form.get_by_role("button", name="Reply").click()
    expect(form).to_contain_text("For how many?")
    form.get_by_label("Answer").fill('{"day": "Friday", "guests": 2}')
    form.get_by_label("Answer").press("Control+Enter")
    expect(conversation_tasks(page).get_by_text('booked: "Friday for 2"')).to_be_visible()


def test_questions_with_a_schema_are_answered_by_a_form(visit: Visit) -> None:
    page = visit.go("skills/room.reserve")
    page.get_by_role("button", name="Run", exact=True).click()
    form = question(page)
    expect(form).to_contain_text("Which room?")
    expect(form).to_contain_text('hotel: "Ritz"')
    expect(form.get_by_text("minimum")).to_have_count(0)
    form.get_by_label("Nights").fill("0")
    form.get_by_role("button", name="Reply").click()
    expect(form).to_contain_text("0 is less than 1.")
    expect(form.get_by_label("View")).to_have_attribute("aria-invalid", "true")
    assert visit.accessibility_violations() == []
    form.get_by_label("Nights").fill("2")
    form.get_by_label("View").select_option("garden")
    form.get_by_role("button", name="Add to Guests").click()
    form.get_by_role("textbox").last.fill("Ada")
    form.get_by_role("button", name="Reply").click()
    expect(form).to_contain_text("From when?")
    form.get_by_label("Day of arrival").fill("2026-12-24")
    form.get_by_role("button", name="Reply").click()
    expect(state(page)).to_have_text("completed")
    artifact = page.get_by_role("region", name="Artifact result")
    for text in ("nights: 2", 'view: "garden"', '0: "Ada"', 'day: "2026-12-24"'):
        expect(artifact).to_contain_text(text)


def test_a_question_with_a_schema_can_be_answered_by_text(visit: Visit) -> None:
    page = visit.go("skills/room.reserve")
    page.get_by_role("button", name="Run", exact=True).click()
    form = question(page)
    form.get_by_role("group", name="Answer with").get_by_role("button", name="Text").click()
    form.get_by_label("Answer (text or JSON)").fill('{"nights": 1, "view": "sea"}')
    form.get_by_role("button", name="Reply").click()
    expect(form).to_contain_text("From when?")


def test_a_stray_message_does_not_hide_the_request_for_approval(
    visit: Visit, other: OtherClient, report: Path
) -> None:
    page = request_deletion(visit)
    task_id = task_link(page).get_attribute("title")
    other.send({"text": "what?"}, taskId=task_id)
    task_link(page).click()
    expect(question(page)).to_contain_text("Run files.delete with these arguments?")
    expect(question(page)).not_to_contain_text("Please answer yes or no")
    deny(page)
    expect(page.get_by_role("main").get_by_role("status").first).to_have_text("rejected")


def test_an_approval_shows_the_words_of_the_module(visit: Visit) -> None:
    page = visit.go("skills/shelves.clear")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(question(page)).to_contain_text("Clear all 3 shelves?")
    expect(question(page).get_by_role("row")).to_have_text(["shelves3"])
    question(page).get_by_role("button", name="Approve").click()
    expect(page.get_by_text("cleared: 3")).to_be_visible()


def test_an_approved_call_is_made(visit: Visit, report: Path) -> None:
    page = request_deletion(visit)
    assert report.exists()
    question(page).get_by_role("button", name="Approve").click()
    expect(question(page).get_by_text("Type the skill ID first.")).to_be_visible()
    assert report.exists()
    approve(page)
    expect(state(page)).to_have_text("completed")
    expect(page.get_by_text('deleted: "report.txt"')).to_be_visible()
    expect(question(page)).to_have_count(0)
    assert not report.exists()


def test_a_denied_call_is_not_made(visit: Visit, report: Path) -> None:
    page = request_deletion(visit)
    deny(page, "Not yet")
    expect(state(page)).to_have_text("rejected")
    expect(page.get_by_role("region", name="Message from the agent")).to_contain_text(
        "Rejected by client"
    )
    assert report.exists()
    task_link(page).click()
    expect(page.get_by_role("region", name="History")).to_contain_text('comment: "Not yet"')


LATE = "Your answer came too late"


def test_a_late_approval_is_reported_as_late(
    visit: Visit, other: OtherClient, report: Path
) -> None:
    page = begin_conversation(visit)
    send_text(page, '{"path": "report.txt"}', "files.delete")
    expect(conversation_tasks(page).get_by_text("input-required")).to_be_visible()
    [task] = other.call("ListTasks", contextId=page.url.rpartition("/")[2])["tasks"]
    other.send({"text": "no"}, taskId=task["id"])
    approve(page)
    expect(page.get_by_text(LATE)).to_be_visible()
    expect(conversation_tasks(page)).to_contain_text("rejected")
    expect(question(page)).to_have_count(0)
    assert report.exists()


def test_a_late_answer_is_reported_as_late(visit: Visit, other: OtherClient) -> None:
    page = visit.go("skills/table.book")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(question(page)).to_contain_text("For which day?")
    task_id = task_link(page).get_attribute("title")
    other.send({"data": {"day": "Monday", "guests": 3}}, taskId=task_id)
    question(page).get_by_label("Answer").fill('{"day": "Friday"}')
    question(page).get_by_role("button", name="Reply").click()
    expect(page.get_by_text(LATE)).to_be_visible()
    expect(state(page)).to_have_text("completed")
    expect(page.get_by_text('booked: "Monday for 3"')).to_be_visible()


def test_a_refused_answer_can_be_corrected(visit: Visit) -> None:
    page = begin_conversation(visit)
    send_text(page, "2 kg", "units.convert")
    answer = question(page).get_by_label("Answer")
    answer.fill('{"pounds": true}')
    question(page).get_by_role("button", name="Reply").click()
    expect(question(page).get_by_role("alert")).to_contain_text("The agent rejected the input.")
    answer.fill("lb")
    question(page).get_by_role("button", name="Reply").click()
    expect(conversation_tasks(page).get_by_text("2 kg = 4.40925 lb")).to_be_visible()
