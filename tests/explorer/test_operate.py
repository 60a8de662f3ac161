"""Operate an agent: find and inspect tasks, answer the paused ones, add webhooks."""

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest
from apcore_a2a_server.push import PushSettings
from playwright.sync_api import Locator, Page, expect

from tests.push.receiver import receiving
from tests.server.inloop import NEEDS_APPROVAL, ActionModule, echo, registry_of
from tests.server.modules import Inputs
from tests.serving import PATIENCE, running

from .breakable import BreakableProxy
from .browsing import Visit, wait_until
from .fake import FakeAgent, card_of, refusal, task_of
from .other_client import OtherClient
from .scripted import ScriptedModule

TALK_LENGTH = 60
"""Number of tasks in one long conversation, and of conversations with one task."""
FIRST_SHOWN = 10
"""Tasks of a conversation that are shown at first."""
PAGE_SIZE = 100
"""Tasks on the first page of the list."""


@pytest.fixture(scope="module")
def scripted() -> ScriptedModule:
    return ScriptedModule()


@pytest.fixture(scope="module")
def agent(scripted: ScriptedModule) -> Iterator[str]:
    """Serve an agent with many completed tasks, and two that wait for approval."""
    ask_module = ActionModule(echo, annotations=NEEDS_APPROVAL)
    modules = {"mirror": ActionModule(echo), "ask.first": ask_module, "scripted": scripted}
    options = {"explorer": True, "push_notifications": PushSettings(dev=True)}
    with running(registry_of(modules), name="Test agent", **options) as url:
        with closing(OtherClient(url)) as client:
            for number in range(2 * TALK_LENGTH):
                skill = "ask.first" if number % TALK_LENGTH == 5 else "mirror"
                context = "long-talk" if number < TALK_LENGTH else f"talk-{number}"
                client.send({"data": {"n": number}}, skill, contextId=context)
        yield url


@pytest.fixture(scope="module")
def idle() -> Iterator[str]:
    """Serve an agent without tasks."""
    with running(registry_of({"mirror": ActionModule(echo)}), name="Idle", explorer=True) as url:
        yield url


@pytest.fixture
def other(agent: str) -> Iterator[OtherClient]:
    with closing(OtherClient(agent)) as client:
        yield client


@pytest.fixture
def proxy(agent: str) -> Iterator[BreakableProxy]:
    with BreakableProxy(agent).running() as proxy:
        yield proxy


def count_waiting(other: OtherClient) -> int:
    """Return the number of tasks that wait for input."""
    total: int = other.call("ListTasks", status="TASK_STATE_INPUT_REQUIRED")["totalSize"]
    return total


def task_rows(page: Page) -> Locator:
    """Return the rows of tasks in the list."""
    return page.get_by_role("row").filter(has=page.get_by_role("cell"))


def test_tasks_are_listed_page_by_page(visit: Visit, other: OtherClient) -> None:
    page = visit.go("tasks")
    total = other.call("ListTasks", pageSize=1)["totalSize"]
    assert total >= 2 * TALK_LENGTH
    expect(page.get_by_text(f"{total} tasks", exact=True)).to_be_visible()
    older = page.get_by_role("button", name="Show older tasks")
    for shown in range(PAGE_SIZE, total, PAGE_SIZE):
        expect(task_rows(page)).to_have_count(shown)
        older.click()
    expect(task_rows(page)).to_have_count(total)
    expect(older).to_have_count(0)
    hrefs = [link.get_attribute("href") for link in task_rows(page).locator("a[href*=tasks]").all()]
    assert len(set(hrefs)) == total


def test_tasks_are_filtered_by_their_state(visit: Visit, other: OtherClient) -> None:
    page = visit.go("tasks")
    number = count_waiting(other)
    page.get_by_label("State").select_option("input-required")
    expect(task_rows(page)).to_have_count(number)
    expect(task_rows(page)).to_contain_text(["input-required"] * number)
    page.get_by_label("State").select_option("failed")
    expect(page.get_by_text("No tasks match these filters.")).to_be_visible()
    page.go_back()
    expect(page.get_by_label("State")).to_have_value("input-required")
    expect(task_rows(page)).to_have_count(number)
    page.get_by_role("button", name="Clear filters").click()
    expect(page.get_by_label("State")).to_have_value("")
    expect(task_rows(page)).to_have_count(PAGE_SIZE)


def test_tasks_are_filtered_by_their_conversation(visit: Visit) -> None:
    page = visit.go("tasks")
    field = page.get_by_label("Conversation")
    field.press_sequentially("talk-99")
    expect(field).to_have_value("talk-99")
    expect(field).to_be_focused()
    field.press("Enter")
    expect(page.get_by_text("1 task", exact=True)).to_be_visible()
    expect(task_rows(page)).to_have_count(1)
    page.reload()
    expect(field).to_have_value("talk-99")
    expect(task_rows(page)).to_have_count(1)


def test_tasks_are_filtered_by_time_of_change(visit: Visit, other: OtherClient) -> None:
    page = visit.go("tasks")
    expect(task_rows(page)).to_have_count(PAGE_SIZE)
    field = page.get_by_label("Updated since")
    field.fill((datetime.now() + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M"))
    expect(page.get_by_text("No tasks match these filters.")).to_be_visible()
    field.fill((datetime.now() - timedelta(days=1)).strftime("%Y-%m-%dT%H:%M"))
    expect(task_rows(page)).to_have_count(PAGE_SIZE)
    page.get_by_label("State").select_option("input-required")
    expect(task_rows(page)).to_have_count(count_waiting(other))


def test_the_time_field_keeps_the_focus_while_typing(visit: Visit) -> None:
    page = visit.go("tasks")
    field = page.get_by_label("Updated since")
    field.focus()
    page.keyboard.type("12312037")
    page.keyboard.press("Tab")
    page.keyboard.type("1155PM")
    expect(field).to_have_value("2037-12-31T23:55")
    expect(page.get_by_text("No tasks match these filters.")).to_be_visible()


def test_tasks_are_filtered_by_their_skill(visit: Visit) -> None:
    page = visit.go("tasks")
    expect(task_rows(page)).to_have_count(PAGE_SIZE)
    field = page.get_by_role("textbox", name="Skill")
    field.fill("ask")
    field.press("Enter")
    expect(task_rows(page).first).to_contain_text("ask.first")
    expect(task_rows(page).filter(has_text="mirror")).to_have_count(0)


def test_a_filter_is_saved_under_a_name(visit: Visit, other: OtherClient) -> None:
    page = visit.go("tasks")
    filters = page.get_by_role("list", name="Common and saved filters")
    filters.get_by_role("link", name="Waiting for input").click()
    expect(page.get_by_label("State")).to_have_value("input-required")
    expect(task_rows(page)).to_have_count(count_waiting(other))
    expect(page.get_by_label("Name of this filter")).to_have_count(0)
    page.get_by_label("State").select_option("completed")
    name = "<i>Mine</i>"
    page.get_by_label("Name of this filter").fill(name)
    page.get_by_role("button", name="Save filter").click()
    expect(page.get_by_label("State")).to_have_value("completed")
    page.reload()
    filters.get_by_role("link", name="All").click()
    expect(page.get_by_label("State")).to_have_value("")
    filters.get_by_role("link", name=name).click()
    expect(page.get_by_label("State")).to_have_value("completed")
    expect(filters.get_by_role("link", name=name)).to_have_attribute("aria-current", "true")
    filters.get_by_role("button", name=f"Remove filter {name}").click()
    expect(filters.get_by_role("link", name=name)).to_have_count(0)


def test_several_tasks_are_canceled_at_once(visit: Visit, other: OtherClient) -> None:
    tasks = [other.send({"data": {"n": n}}, "ask.first", contextId="bulk") for n in range(3)]
    ended = other.send({"data": {"n": 3}}, "mirror", contextId="bulk")
    page = visit.go("tasks?context=bulk")
    expect(task_rows(page)).to_have_count(4)
    expect(page.get_by_label(f"Select task {ended['id']}")).to_have_count(0)
    page.get_by_label("Select all that have not ended").check()
    expect(page.get_by_text("3 tasks selected")).to_be_visible()
    page.get_by_label(f"Select task {tasks[0]['id']}").uncheck()
    page.get_by_role("button", name="Cancel selected tasks").click()
    page.get_by_role("button", name="Yes, cancel 2 tasks").click()
    expect(page.get_by_text("2 tasks canceled.")).to_be_visible()
    expect(task_rows(page).filter(has_text="canceled")).to_have_count(2)
    row = task_rows(page).filter(has=page.locator(f"[href$='{tasks[0]['id']}']"))
    expect(row).to_contain_text("input-required")
    other.call("CancelTask", id=tasks[0]["id"])


def test_a_refused_cancellation_is_reported(visit: Visit, other: OtherClient) -> None:
    task = other.send({"data": {"n": 1}}, "ask.first", contextId="late")
    page = visit.go("tasks?context=late")
    page.get_by_label(f"Select task {task['id']}").check()
    page.get_by_role("button", name="Cancel selected tasks").click()
    # the task ends before the request arrives
    page.route(
        "**/", lambda route: (other.call("CancelTask", id=task["id"]), route.continue_()), times=1
    )
    page.get_by_role("button", name="Yes, cancel 1 task").click()
    expect(page.get_by_text("0 tasks canceled. 1 not canceled:")).to_be_visible()


def test_the_duration_of_a_task_is_shown_if_the_agent_keeps_former_states(
    open_visit: Callable[..., Visit],
) -> None:
    with (
        running(
            registry_of({"mirror": ActionModule(echo)}), explorer=True, state_history=True
        ) as url,
        closing(OtherClient(url)) as other,
    ):
        task = other.send({"data": {"n": 1}}, "mirror")
        page = open_visit(url).go("tasks")
        expect(task_rows(page)).to_have_count(1)
        expect(task_rows(page).get_by_text(re.compile(r"^\d+ ms$"))).to_be_visible()
        page = open_visit(url).go(f"tasks/{task['id']}")
        expect(page).to_have_title(re.compile("^mirror · Task "))
        expect(page.get_by_role("definition").get_by_text(re.compile(r"^\d+ ms$"))).to_be_visible()


def test_an_id_is_copied(open_visit: Callable[..., Visit], agent: str, other: OtherClient) -> None:
    task = other.send({"data": {"n": 7}}, "mirror")
    permissions = ["clipboard-read", "clipboard-write"]
    page = open_visit(agent, permissions=permissions).go(f"tasks/{task['id']}")
    page.get_by_role("button", name="Copy task ID").click()
    expect(page.get_by_text("Copied", exact=True)).to_be_attached()
    assert page.evaluate("navigator.clipboard.readText()") == task["id"]


def test_an_invalid_time_in_the_url_is_ignored(visit: Visit) -> None:
    expect(task_rows(visit.go("tasks?after=yesterday"))).to_have_count(PAGE_SIZE)


def test_conversations_and_their_tasks_are_listed_page_by_page(visit: Visit) -> None:
    page = visit.go("conversations")
    expect(page.get_by_text("of the latest 100 tasks")).to_be_visible()
    conversation = page.get_by_role("link", name="long-talk")
    expect(conversation).to_contain_text(f"{TALK_LENGTH} tasks")  # some are not loaded yet
    page.get_by_role("button", name="Show older tasks").click()
    expect(conversation).to_contain_text(f"{TALK_LENGTH} tasks")
    expect(page.get_by_text("of the latest")).to_have_count(0)
    conversation.click()
    tasks = page.get_by_role("region", name="Task ").filter(has=page.get_by_role("link"))
    for shown in range(FIRST_SHOWN, TALK_LENGTH, FIRST_SHOWN):
        expect(tasks).to_have_count(shown)
        page.get_by_role("button", name="Show earlier tasks").click()
    expect(tasks).to_have_count(TALK_LENGTH)
    expect(tasks.first).to_contain_text("n: 0")


def test_a_conversation_opens_at_its_end(visit: Visit) -> None:
    page = visit.go("conversations/long-talk")
    expect(page.get_by_role("button", name="Send")).to_be_in_viewport()
    assert page.evaluate("scrollY") > 0


def test_a_list_is_requested_without_histories(visit: Visit) -> None:
    for view in ("tasks", "conversations", "inbox"):
        with visit.page.expect_request(
            lambda request: "ListTasks" in (request.post_data or "")
        ) as sent:
            visit.page.goto("about:blank")
            visit.go(view)
        body: Any = sent.value.post_data_json
        assert body["params"]["historyLength"] == 0


def test_the_task_list_and_the_count_of_waiting_tasks_are_live(
    visit: Visit, other: OtherClient, scripted: ScriptedModule
) -> None:
    page = visit.go("tasks")
    expect(task_rows(page)).to_have_count(PAGE_SIZE)
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": {}}]}
    options = {"configuration": {"returnImmediately": True}, "metadata": {"skillId": "scripted"}}
    task = other.call("SendMessage", message=message, **options)["task"]
    row = task_rows(page).filter(has=page.locator(f"[href$='{task['id']}']"))
    expect(row).to_contain_text("working")
    scripted.next_stream().end()
    expect(row).to_contain_text("completed")
    waiting = count_waiting(other)
    paused = other.send({"data": {"n": 1}}, "ask.first")
    expect(inbox_link(page)).to_have_text(f"Inbox{waiting + 1} waiting")
    expect(page).to_have_title(re.compile(rf"^\({waiting + 1}\) Tasks · Test agent"))
    other.call("CancelTask", id=paused["id"])
    expect(inbox_link(page)).to_have_text(f"Inbox{waiting} waiting")


def test_a_hidden_page_does_not_poll(visit: Visit, other: OtherClient) -> None:
    page = visit.go("tasks")
    expect(task_rows(page)).to_have_count(PAGE_SIZE)
    page.clock.install()
    hide = "Object.defineProperty(document, 'hidden', {get: () => window.away, configurable: true})"
    page.evaluate(hide)
    change = "(away) => {window.away = away; document.dispatchEvent(new Event('visibilitychange'))}"
    page.evaluate(change, True)
    polls: list[str] = []
    page.on("request", lambda request: polls.append(request.url))
    page.clock.run_for(60_000)
    assert polls == []
    task = other.send({"data": {"n": 8}}, "mirror")
    page.evaluate(change, False)
    expect(page.locator(f"[href$='{task['id']}']")).to_be_visible()


def test_a_task_is_shown_with_its_history_and_events(visit: Visit, other: OtherClient) -> None:
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
    page.get_by_text("Task as JSON").click()
    expect(page.get_by_text(f'id: "{task["id"]}"')).to_be_visible()


def test_watching_a_task_stops_at_its_pause_but_not_at_an_earlier_one(
    open_visit: Callable[..., Visit],
) -> None:
    """The agent keeps a subscription open until the task ends, so the page must close it."""
    released = threading.Event()

    async def wait_for_release(inputs: Inputs, context: Any) -> Inputs:
        await asyncio.to_thread(released.wait, PATIENCE)
        return inputs

    modules = {"ask.first": ActionModule(wait_for_release, annotations=NEEDS_APPROVAL)}
    with (
        running(registry_of(modules), explorer=True, metrics=True) as url,
        closing(OtherClient(url)) as other,
    ):
        task = other.send({"data": {"n": 1}}, "ask.first")
        visit = open_visit(url)
        page = visit.go(f"tasks/{task['id']}")
        events = page.get_by_role("listbox", name="Events").get_by_role("option")
        expect(events).to_contain_text(["submitted", "working", "input-required"])
        wait_until(lambda: open_streams(url) == 0)
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "yes"}]}
        options = {"configuration": {"returnImmediately": True}}
        other.call("SendMessage", message={**message, "taskId": task["id"]}, **options)
        page.reload()
        expect(events).to_contain_text(["submitted", "working", "input-required", "working"])
        assert open_streams(url) == 1
        released.set()
        expect(events).to_contain_text(["input-required", "working", '"n":1', "completed"])


def open_streams(url: str) -> int:
    """Return the number of streams that the agent has open."""
    count: int = httpx.get(f"{url}/metrics", trust_env=False).json()["open_streams"]
    return count


def test_a_webhook_is_added_gets_notifications_and_is_removed(
    visit: Visit, other: OtherClient, scripted: ScriptedModule
) -> None:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": {}}]}
    options = {"configuration": {"returnImmediately": True}, "metadata": {"skillId": "scripted"}}
    task = other.call("SendMessage", message=message, **options)["task"]
    stream = scripted.next_stream()
    page = visit.go(f"tasks/{task['id']}")
    webhooks = page.get_by_role("region", name="Webhooks")
    expect(webhooks).to_contain_text("No webhooks for this task.")
    with receiving() as receiver:
        webhooks.get_by_label("URL").fill(receiver.url)
        webhooks.get_by_label("Token").fill("sesame")
        webhooks.get_by_role("button", name="Add webhook").click()
        expect(webhooks.get_by_role("listitem")).to_contain_text([receiver.url])
        expect(webhooks.get_by_label("URL")).to_have_value("")
        stream.end()
        last = receiver.wait_for("completed")[-1]
    assert last.headers["x-a2a-notification-token"] == "sesame"
    expect(page.get_by_role("main").get_by_role("status").first).to_have_text("completed")
    webhooks.get_by_role("button", name="Remove").click()
    expect(webhooks).to_contain_text("No webhooks for this task.")


def test_a_refused_webhook_shows_the_reason(visit: Visit, other: OtherClient) -> None:
    task = other.send({"data": {"n": 1}}, "ask.first")
    webhooks = visit.go(f"tasks/{task['id']}").get_by_role("region", name="Webhooks")
    webhooks.get_by_label("URL").fill("ftp://example.org/")
    webhooks.get_by_role("button", name="Add webhook").click()
    expect(webhooks.get_by_role("alert")).to_contain_text("The agent rejected the input.")
    expect(webhooks.get_by_label("URL")).to_have_value("ftp://example.org/")
    other.call("CancelTask", id=task["id"])


def inbox_link(page: Page) -> Locator:
    """Return the link to the inbox, with its count."""
    return page.get_by_role("navigation", name="Views").get_by_role("link", name="Inbox")


def test_an_answered_task_no_longer_counts_as_waiting(visit: Visit, other: OtherClient) -> None:
    waiting_before = count_waiting(other)
    task = other.send({"data": {"text": "mine"}}, "ask.first")
    page = visit.go()
    expect(inbox_link(page)).to_have_text(f"Inbox{waiting_before + 1} waiting")
    inbox_link(page).click()
    entry = page.get_by_role("article", name=f"Task {task['id']}")
    expect(entry.get_by_role("row", name='text "mine"')).to_be_visible()
    entry.get_by_role("button", name="Approve").click()
    expect(entry.get_by_role("status")).to_have_text("Answer sent. Task state: completed")
    expect(entry.get_by_role("status")).to_be_focused()
    expect(inbox_link(page)).to_have_text(f"Inbox{waiting_before} waiting")
    assert count_waiting(other) == waiting_before


def test_the_inbox_shows_that_another_client_has_answered(visit: Visit, other: OtherClient) -> None:
    task = other.send({"data": {"n": 1}}, "ask.first")
    page = visit.go("inbox")
    entry = page.get_by_role("article", name=f"Task {task['id']}")
    expect(entry).to_be_visible()
    other.send({"text": "no"}, taskId=task["id"])
    entry.get_by_role("button", name="Approve").click()
    expect(entry).to_contain_text("Task state: rejected")
    expect(entry).to_contain_text("Your answer came too late")


def test_views_of_an_idle_agent_are_not_blank_and_show_no_error(
    idle: str, open_visit: Callable[..., Visit]
) -> None:
    visit = open_visit(idle)
    for view, message in [
        ("tasks", "No tasks yet. Try a skill"),
        ("inbox", "No tasks are waiting for your input."),
        ("conversations", "No conversations yet."),
        ("conversations/unheard-of", "No messages in this conversation yet."),
        ("requests", "ListTasks"),
    ]:
        expect(visit.go(view).get_by_role("main")).to_contain_text(message)
        expect(visit.page.get_by_role("alert")).to_have_count(0)


def test_an_unknown_task_is_reported(visit: Visit) -> None:
    page = visit.go("tasks/no-such-task")
    expect(page.get_by_role("alert")).to_contain_text("This task doesn't exist")
    expect(page.get_by_text("Loading the task")).to_have_count(0)


def test_an_unreachable_agent_is_reported_until_it_is_back(
    proxy: BreakableProxy, open_visit: Callable[..., Visit]
) -> None:
    page = open_visit(proxy.url).go("tasks")
    expect(task_rows(page)).to_have_count(PAGE_SIZE)
    proxy.cut()
    for name in ("Inbox", "Conversations", "Tasks"):
        page.get_by_role("navigation", name="Views").get_by_role("link", name=name).click()
        expect(page.get_by_role("alert")).to_contain_text("The agent can't be reached")
        expect(page.get_by_text(re.compile("^No (tasks|messages|conversations)"))).to_have_count(0)
    proxy.restore()
    page.get_by_role("button", name="Refresh").click()
    expect(task_rows(page)).to_have_count(PAGE_SIZE)
    expect(page.get_by_role("alert")).to_have_count(0)


KEY_SCHEME = {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}}}


def test_the_webhooks_of_a_task_are_listed_after_a_sign_in(
    open_visit: Callable[..., Visit],
) -> None:
    fake = FakeAgent(card_of(securitySchemes=KEY_SCHEME), GetTask=lambda params: task_of())
    fake.replies["ListTaskPushNotificationConfigs"] = lambda params: (
        {"configs": []} if "x-key" in fake.received[-1][1].headers else refusal(401)
    )
    with running(fake.app()) as url:
        page = open_visit(url).go("tasks/task-1")
        page.get_by_role("dialog").get_by_label("API key").fill("a key of ada")
        page.get_by_role("dialog").get_by_role("button", name="Sign in").click()
        webhooks = page.get_by_role("region", name="Webhooks")
        expect(webhooks).to_contain_text("No webhooks for this task.")
        expect(webhooks.get_by_role("alert")).to_have_count(0)
