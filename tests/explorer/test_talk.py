"""Talk with the agent: conversations, its questions, and answers to them."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from apcore import Context
from playwright.sync_api import Locator, Page, expect

from tests.server.inloop import Does
from tests.server.modules import Inputs
from tests.serving import running

from .agent import registry
from .browsing import Visit
from .other import Other


async def book(inputs: Inputs, context: "Context[Any]") -> Inputs:
    """Books a table, once it knows the day and for how many."""
    for name, question in [("day", "For which day?"), ("guests", "For how many?")]:
        if name not in inputs:
            context.services.ask(question, {"places": ["inside", "garden"]})
    return {"booked": f"{inputs['day']} for {inputs['guests']}"}


ANY: dict[str, Any] = {"type": "object"}


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which `files.delete` deletes."""
    return tmp_path_factory.mktemp("sandbox")


@pytest.fixture(scope="module")
def agent(sandbox: Path) -> Iterator[str]:
    """An agent with the modules of examples/, and one that has several questions."""
    modules = registry()
    modules.register("table.book", Does(book, input_schema=ANY))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("APCORE_EXAMPLE_ROOT", str(sandbox))
        with running(modules, name="Test agent", explorer=True) as url:
            yield url


@pytest.fixture
def other(agent: str) -> Iterator[Other]:
    with closing(Other(agent)) as found:
        yield found


@pytest.fixture
def report(sandbox: Path) -> Path:
    """A file to be deleted."""
    found = sandbox / "report.txt"
    found.write_text("old")
    return found


def say(page: Page, text: str, skill: str = "") -> None:
    """Write a message in a conversation, and send it."""
    if skill:
        page.get_by_label("Skill").select_option(skill)
    page.get_by_label("Message").fill(text)
    page.get_by_role("button", name="Send", exact=True).click()


def turns(page: Page) -> Locator:
    """The tasks of a conversation."""
    return page.get_by_role("region", name="Task ").filter(has=page.get_by_role("link"))


def question(page: Page) -> Locator:
    return page.get_by_role("region", name="asks")


def begin(visit: Visit) -> Page:
    """Begin a conversation."""
    page = visit.go("conversations")
    page.get_by_role("link", name="Begin one").click()
    return page


def try_deleting(visit: Visit) -> Page:
    """Ask for the report to be deleted, on the skill's page."""
    page = visit.go("skills/files.delete")
    page.get_by_label("path").fill("report.txt")
    page.get_by_role("button", name="Stream", exact=True).click()
    expect(question(page)).to_contain_text("Approval required for module files.delete")
    expect(question(page)).to_contain_text('path: "report.txt"')
    return page


def state(page: Page) -> Locator:
    return page.get_by_role("region", name="Result").get_by_role("status").first


def task_link(page: Page) -> Locator:
    return page.get_by_role("region", name="Result").get_by_role("link", name="Task")


def test_a_conversation_goes_on_where_it_was(visit: Visit) -> None:
    page = begin(visit)
    say(page, "5 km in mi", "units.convert")
    expect(turns(page).get_by_text("5 km = 3.10686 mi")).to_be_visible()
    expect(turns(page)).to_have_count(1)
    say(page, "7 km")
    expect(turns(page).get_by_text("7 km = 4.3496 mi")).to_be_visible()
    expect(turns(page)).to_have_count(2)
    said = page.get_by_role("article").filter(has=page.get_by_role("heading", name="You"))
    expect(said).to_contain_text(["5 km in mi", "7 km"])
    context = page.url.rpartition("/")[2]
    page.get_by_role("link", name="← Conversations").click()
    page.get_by_role("link", name=context[:8]).click()
    expect(turns(page)).to_have_count(2)
    expect(page.get_by_label("Skill")).to_have_value("units.convert")


def test_one_of_the_offered_answers_goes_in(visit: Visit) -> None:
    page = begin(visit)
    say(page, "2 kg", "units.convert")
    expect(question(page)).to_contain_text("2 kg in which unit?")
    question(page).get_by_role("button", name="lb").click()
    expect(turns(page).get_by_text("2 kg = 4.40925 lb")).to_be_visible()
    expect(question(page)).to_have_count(0)
    expect(turns(page)).to_have_count(1)


def test_each_question_gets_its_answer(visit: Visit) -> None:
    page = begin(visit)
    say(page, "{}", "table.book")
    asks = question(page)
    expect(asks).to_contain_text("For which day?")
    expect(asks).to_contain_text("places: [ 2 ]")
    asks.get_by_role("button", name="Reply").click()
    expect(asks).to_contain_text("Write an answer first.")
    asks.get_by_label("Answer").fill('{"day": "Friday"}')
    asks.get_by_role("button", name="Reply").click()
    expect(asks).to_contain_text("For how many?")
    asks.get_by_label("Answer").fill('{"day": "Friday", "guests": 2}')
    asks.get_by_label("Answer").press("Control+Enter")
    expect(turns(page).get_by_text('booked: "Friday for 2"')).to_be_visible()


def test_what_is_approved_is_done(visit: Visit, report: Path) -> None:
    page = try_deleting(visit)
    assert report.exists()
    question(page).get_by_role("button", name="Approve").click()
    expect(state(page)).to_have_text("completed")
    expect(page.get_by_text('deleted: "report.txt"')).to_be_visible()
    expect(question(page)).to_have_count(0)
    assert not report.exists()


def test_what_is_denied_is_not_done(visit: Visit, report: Path) -> None:
    page = try_deleting(visit)
    question(page).get_by_label("Comment").fill("Not yet")
    question(page).get_by_role("button", name="Deny").click()
    expect(state(page)).to_have_text("rejected")
    expect(page.get_by_role("region", name="The agent says")).to_contain_text("Rejected by client")
    assert report.exists()
    task_link(page).click()
    expect(page.get_by_role("region", name="History")).to_contain_text('comment: "Not yet"')


LATE = "Your answer came too late"


def test_a_late_yes_does_not_pass_for_one_that_counts(
    visit: Visit, other: Other, report: Path
) -> None:
    page = begin(visit)
    say(page, '{"path": "report.txt"}', "files.delete")
    expect(turns(page).get_by_text("input-required")).to_be_visible()
    [task] = other.ask("ListTasks", contextId=page.url.rpartition("/")[2])["tasks"]
    other.send({"text": "no"}, taskId=task["id"])
    question(page).get_by_role("button", name="Approve").click()
    expect(page.get_by_text(LATE)).to_be_visible()
    expect(turns(page)).to_contain_text("rejected")
    expect(question(page)).to_have_count(0)
    assert report.exists()


def test_an_answer_that_nobody_waits_for_is_told_as_such(visit: Visit, other: Other) -> None:
    page = visit.go("skills/table.book")
    page.get_by_role("button", name="Stream", exact=True).click()
    expect(question(page)).to_contain_text("For which day?")
    id = task_link(page).get_attribute("title")
    other.send({"data": {"day": "Monday", "guests": 3}}, taskId=id)
    question(page).get_by_label("Answer").fill('{"day": "Friday"}')
    question(page).get_by_role("button", name="Reply").click()
    expect(page.get_by_text(LATE)).to_be_visible()
    expect(state(page)).to_have_text("completed")
    expect(page.get_by_text('booked: "Monday for 3"')).to_be_visible()


def test_an_answer_that_is_refused_can_be_given_anew(visit: Visit) -> None:
    page = begin(visit)
    say(page, "2 kg", "units.convert")
    answer = question(page).get_by_label("Answer")
    answer.fill('{"pounds": true}')
    question(page).get_by_role("button", name="Reply").click()
    expect(question(page).get_by_role("alert")).to_contain_text("The agent refused the input.")
    answer.fill("lb")
    question(page).get_by_role("button", name="Reply").click()
    expect(turns(page).get_by_text("2 kg = 4.40925 lb")).to_be_visible()
