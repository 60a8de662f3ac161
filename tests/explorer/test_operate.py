"""Operate an agent: find tasks, look into them, answer those that wait, set webhooks."""

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime, timedelta

import pytest
from apcore_a2a_server.push import PushSettings
from playwright.sync_api import Locator, Page, expect

from tests.push.receiver import receiving
from tests.server.inloop import NEEDS_APPROVAL, Does, give_back, registry_of
from tests.serving import running

from .browsing import Visit
from .other import Other
from .told import Told
from .wire import Wire

LONG = 60
"""How many tasks there are in one conversation; as many others have a conversation each."""
PAGE = 25
"""How many tasks the list begins with."""


@pytest.fixture(scope="module")
def told() -> Told:
    return Told()


@pytest.fixture(scope="module")
def agent(told: Told) -> Iterator[str]:
    """An agent that has done much, and has something left to be approved."""
    asked = Does(give_back, annotations=NEEDS_APPROVAL)
    modules = {"mirror": Does(give_back), "ask.first": asked, "told": told}
    options = {"explorer": True, "push_notifications": PushSettings(dev=True)}
    with running(registry_of(modules), name="Test agent", **options) as url:
        with closing(Other(url)) as somebody:
            for number in range(2 * LONG):
                skill = "ask.first" if number % LONG == 5 else "mirror"
                context = "long-talk" if number < LONG else f"talk-{number}"
                somebody.send({"data": {"n": number}}, skill, contextId=context)
        yield url


@pytest.fixture(scope="module")
def idle() -> Iterator[str]:
    """An agent that has done nothing yet."""
    with running(registry_of({"mirror": Does(give_back)}), name="Idle", explorer=True) as url:
        yield url


@pytest.fixture
def other(agent: str) -> Iterator[Other]:
    with closing(Other(agent)) as found:
        yield found


@pytest.fixture
def wire(agent: str) -> Iterator[Wire]:
    with Wire(agent).laid() as found:
        yield found


def waiting(other: Other) -> int:
    """How many tasks wait for an answer."""
    found: int = other.ask("ListTasks", status="TASK_STATE_INPUT_REQUIRED")["totalSize"]
    return found


def rows(page: Page) -> Locator:
    """The tasks that are listed."""
    return page.get_by_role("row").filter(has=page.get_by_role("cell"))


def test_tasks_are_listed_page_by_page(visit: Visit, other: Other) -> None:
    page = visit.go("tasks")
    total = other.ask("ListTasks", pageSize=1)["totalSize"]
    assert total >= 2 * LONG
    expect(page.get_by_text(f"{total} in all")).to_be_visible()
    older = page.get_by_role("button", name="Show older ones")
    for shown in range(PAGE, total, PAGE):
        expect(rows(page)).to_have_count(shown)
        older.click()
    expect(rows(page)).to_have_count(total)
    expect(older).to_have_count(0)
    ids = [link.get_attribute("href") for link in rows(page).locator("a[href*=tasks]").all()]
    assert len(set(ids)) == total


def test_tasks_are_filtered_by_their_state(visit: Visit, other: Other) -> None:
    page = visit.go("tasks")
    number = waiting(other)
    page.get_by_label("State").select_option("input-required")
    expect(rows(page)).to_have_count(number)
    expect(rows(page)).to_contain_text(["input-required"] * number)
    page.get_by_label("State").select_option("failed")
    expect(page.get_by_text("No task matches these filters.")).to_be_visible()
    page.go_back()
    expect(page.get_by_label("State")).to_have_value("input-required")
    expect(rows(page)).to_have_count(number)
    page.get_by_role("button", name="Clear").click()
    expect(page.get_by_label("State")).to_have_value("")
    expect(rows(page)).to_have_count(PAGE)


def test_tasks_are_filtered_by_their_conversation(visit: Visit) -> None:
    page = visit.go("tasks")
    field = page.get_by_label("Conversation")
    field.press_sequentially("talk-99")
    expect(field).to_have_value("talk-99")
    expect(field).to_be_focused()
    field.press("Enter")
    expect(page.get_by_text("1 in all")).to_be_visible()
    expect(rows(page)).to_have_count(1)
    page.reload()
    expect(field).to_have_value("talk-99")
    expect(rows(page)).to_have_count(1)


def test_tasks_are_filtered_by_when_they_changed(visit: Visit, other: Other) -> None:
    page = visit.go("tasks")
    expect(rows(page)).to_have_count(PAGE)
    field = page.get_by_label("Changed since")
    field.fill((datetime.now() + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M"))
    expect(page.get_by_text("No task matches these filters.")).to_be_visible()
    field.fill((datetime.now() - timedelta(days=1)).strftime("%Y-%m-%dT%H:%M"))
    expect(rows(page)).to_have_count(PAGE)
    page.get_by_label("State").select_option("input-required")
    expect(rows(page)).to_have_count(waiting(other))


def test_a_time_is_typed_without_losing_the_field(visit: Visit) -> None:
    page = visit.go("tasks")
    field = page.get_by_label("Changed since")
    field.focus()
    page.keyboard.type("12312037")
    page.keyboard.press("Tab")
    page.keyboard.type("1155PM")
    expect(field).to_have_value("2037-12-31T23:55")
    expect(page.get_by_text("No task matches these filters.")).to_be_visible()


def test_an_address_with_a_wrong_time_shows_all_tasks(visit: Visit) -> None:
    expect(rows(visit.go("tasks?after=yesterday"))).to_have_count(PAGE)


def test_all_conversations_and_all_of_a_long_one_can_be_read(visit: Visit) -> None:
    page = visit.go("conversations")
    expect(page.get_by_text("of the latest 100 tasks")).to_be_visible()
    card = page.get_by_role("link", name="long-talk")
    expect(card).not_to_contain_text(f"{LONG} tasks")
    page.get_by_role("button", name="Show older ones").click()
    expect(card).to_contain_text(f"{LONG} tasks")
    expect(page.get_by_text("of the latest")).to_have_count(0)
    card.click()
    turns = page.get_by_role("region", name="Task ").filter(has=page.get_by_role("link"))
    expect(turns).to_have_count(50)
    page.get_by_role("button", name="Show earlier ones").click()
    expect(turns).to_have_count(LONG)
    expect(turns.first).to_contain_text("n: 0")


def test_a_task_tells_all_about_itself(visit: Visit, other: Other) -> None:
    task = other.send({"data": {"n": 7}}, "mirror")
    page = visit.go(f"tasks/{task['id']}")
    expect(page.get_by_role("main").get_by_role("status").first).to_have_text("completed")
    expect(page.get_by_role("link", name="mirror")).to_be_visible()
    expect(page.get_by_role("link", name=task["contextId"])).to_be_visible()
    expect(page.get_by_role("region", name="Artifact result")).to_contain_text("n: 7")
    history = page.get_by_role("region", name="History").get_by_role("article")
    expect(history).to_have_text(re.compile("You.*n: 7"))
    events = page.get_by_role("listbox", name="Events").get_by_role("option")
    expect(events).to_contain_text(["submitted", "working", '"n":7', "completed"])
    page.get_by_text("The task as data").click()
    expect(page.get_by_text(f'id: "{task["id"]}"')).to_be_visible()


def test_a_webhook_is_set_is_told_and_is_removed(visit: Visit, other: Other, told: Told) -> None:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": {}}]}
    later = {"configuration": {"returnImmediately": True}, "metadata": {"skillId": "told"}}
    task = other.ask("SendMessage", message=message, **later)["task"]
    telling = told.telling()
    page = visit.go(f"tasks/{task['id']}")
    webhooks = page.get_by_role("region", name="Webhooks")
    expect(webhooks).to_contain_text("Nobody is told of this task.")
    with receiving() as receiver:
        webhooks.get_by_label("Address").fill(receiver.url)
        webhooks.get_by_label("Token").fill("sesame")
        webhooks.get_by_role("button", name="Add a webhook").click()
        expect(webhooks.get_by_role("listitem")).to_contain_text([receiver.url])
        expect(webhooks.get_by_label("Address")).to_have_value("")
        telling.end()
        last = receiver.wait_for("completed")[-1]
    assert last.headers["x-a2a-notification-token"] == "sesame"
    expect(page.get_by_role("main").get_by_role("status").first).to_have_text("completed")
    webhooks.get_by_role("button", name="Remove").click()
    expect(webhooks).to_contain_text("Nobody is told of this task.")


def test_a_webhook_that_is_refused_is_told_why(visit: Visit, other: Other) -> None:
    task = other.send({"data": {"n": 1}}, "ask.first")
    webhooks = visit.go(f"tasks/{task['id']}").get_by_role("region", name="Webhooks")
    webhooks.get_by_label("Address").fill("ftp://example.org/")
    webhooks.get_by_role("button", name="Add a webhook").click()
    expect(webhooks.get_by_role("alert")).to_contain_text("The agent refused")
    expect(webhooks.get_by_label("Address")).to_have_value("ftp://example.org/")
    other.ask("CancelTask", id=task["id"])


def inbox(page: Page) -> Locator:
    """The way to the inbox, with its count."""
    return page.get_by_role("navigation", name="Views").get_by_role("link", name="Inbox")


def test_the_inbox_gets_emptier_with_each_answer(visit: Visit, other: Other) -> None:
    before = waiting(other)
    task = other.send({"data": {"text": "mine"}}, "ask.first")
    page = visit.go()
    expect(inbox(page)).to_have_text(f"Inbox{before + 1} waiting")
    inbox(page).click()
    card = page.get_by_role("article", name=f"Task {task['id']}")
    expect(card).to_contain_text('text: "mine"')
    card.get_by_role("button", name="Approve").click()
    expect(card.get_by_role("status")).to_have_text("You have answered. The task is completed")
    expect(card.get_by_role("status")).to_be_focused()
    expect(inbox(page)).to_have_text(f"Inbox{before} waiting")
    assert waiting(other) == before


def test_what_somebody_else_has_answered_is_told_in_the_inbox(visit: Visit, other: Other) -> None:
    task = other.send({"data": {"n": 1}}, "ask.first")
    page = visit.go("inbox")
    card = page.get_by_role("article", name=f"Task {task['id']}")
    expect(card).to_be_visible()
    other.send({"text": "no"}, taskId=task["id"])
    card.get_by_role("button", name="Approve").click()
    expect(card).to_contain_text("The task is rejected")
    expect(card).to_contain_text("Your answer came too late")


def test_where_nothing_is_yet_the_page_says_what_to_do(
    idle: str, open_visit: Callable[..., Visit]
) -> None:
    visit = open_visit(idle)
    for view, said in [
        ("tasks", "There are no tasks yet. Try a skill"),
        ("inbox", "No task waits for an answer."),
        ("conversations", "Nothing was said yet."),
        ("conversations/unheard-of", "Nothing was said here yet."),
        ("requests", "ListTasks"),
    ]:
        expect(visit.go(view).get_by_role("main")).to_contain_text(said)
        expect(visit.page.get_by_role("alert")).to_have_count(0)


def test_a_task_that_is_not_there_is_told_as_such(visit: Visit) -> None:
    page = visit.go("tasks/no-such-task")
    expect(page.get_by_role("alert")).to_contain_text("There is no such task.")
    expect(page.get_by_text("Asking for the task")).to_have_count(0)


def test_an_agent_that_is_away_is_told_of_and_may_come_back(
    wire: Wire, open_visit: Callable[..., Visit]
) -> None:
    page = open_visit(wire.url).go("tasks")
    expect(rows(page)).to_have_count(PAGE)
    wire.cut()
    for name in ("Inbox", "Conversations", "Tasks"):
        page.get_by_role("navigation", name="Views").get_by_role("link", name=name).click()
        expect(page.get_by_role("alert")).to_contain_text("The agent can't be reached")
        expect(page.get_by_text(re.compile("^(Nothing|No task|There are no)"))).to_have_count(0)
    wire.mend()
    page.get_by_role("button", name="Refresh").click()
    expect(rows(page)).to_have_count(PAGE)
    expect(page.get_by_role("alert")).to_have_count(0)
