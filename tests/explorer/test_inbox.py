"""The inbox: approvals by deadline, decided with the mouse or with keys."""

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from apcore import Identity, ModuleAnnotations
from apcore_a2a_auth import APIKeyAuthenticator
from playwright.sync_api import Locator, Page, expect

from tests.server.checking_client import Json
from tests.server.inloop import NEEDS_APPROVAL, ActionModule, echo, registry_of
from tests.serving import running

from .browsing import Visit, wait_until
from .fake import FakeAgent, card_of, refusal, stream_of, task_of
from .other_client import OtherClient

OpenVisit = Callable[..., Visit]


@pytest.fixture(scope="module")
def agent() -> Iterator[str]:
    """Serve an agent with two skills that need approval; one is destructive."""
    destructive = ActionModule(
        echo, annotations=ModuleAnnotations(requires_approval=True, destructive=True)
    )
    modules = {
        "ask.first": ActionModule(echo, annotations=NEEDS_APPROVAL),
        "wipe": destructive,
    }
    with running(registry_of(modules), name="Test agent", explorer=True) as url:
        yield url


@pytest.fixture
def other(agent: str) -> Iterator[OtherClient]:
    """Yield a client; cancel its paused tasks after the test."""
    with closing(OtherClient(agent)) as client:
        yield client
        paused = client.call("ListTasks", status="TASK_STATE_INPUT_REQUIRED")["tasks"]
        for task in paused:
            client.call("CancelTask", id=task["id"])


def item(page: Page, task: Any) -> Locator:
    """Return the entry of a task."""
    return page.get_by_role("article", name=f"Task {task['id']}")


def test_a_destructive_call_is_approved_by_typing_its_name(
    visit: Visit, other: OtherClient
) -> None:
    task = other.send({"data": {"path": "<b>old</b>", "deep": {"n": [1]}}}, "wipe")
    entry = item(visit.go("inbox"), task)
    expect(entry.get_by_role("row", name='path "<b>old</b>"')).to_be_visible()
    expect(entry.get_by_role("row", name="deep")).to_contain_text("n: [ 1 ]")
    entry.get_by_role("button", name="Approve").click()
    expect(entry.get_by_text("Type the skill ID first.")).to_be_visible()
    field = entry.get_by_label("Type wipe to approve it")
    expect(field).to_be_focused()
    assert other.call("GetTask", id=task["id"])["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert visit.accessibility_violations() == []
    field.fill("wipe")
    field.press("Enter")
    expect(entry.get_by_role("status")).to_have_text("Answer sent. Task state: completed")


def test_a_call_is_denied_with_a_reason(visit: Visit, other: OtherClient) -> None:
    task = other.send({"data": {"n": 1}}, "ask.first")
    entry = item(visit.go("inbox"), task)
    entry.get_by_role("button", name="Deny…").click()
    entry.get_by_label("Reason").press("Escape")
    entry.get_by_role("button", name="Deny…").click()
    expect(entry.get_by_label("Reason")).to_be_focused()
    entry.get_by_label("Reason").fill("not today")
    entry.get_by_role("button", name="Deny", exact=True).click()
    expect(entry.get_by_role("status")).to_have_text("Answer sent. Task state: rejected")
    denied = other.call("GetTask", id=task["id"])
    assert "not today" in str(denied)


def test_several_calls_are_approved_together_except_for_destructive_ones(
    visit: Visit, other: OtherClient
) -> None:
    tasks = [other.send({"data": {"n": n}}, "ask.first") for n in range(3)]
    wipe = other.send({"data": {"path": "old"}}, "wipe")
    page = visit.go("inbox")
    expect(item(page, wipe)).to_be_visible()
    expect(item(page, wipe).get_by_role("checkbox")).to_have_count(0)
    page.get_by_label("Select all approvals").check()
    item(page, tasks[1]).get_by_role("checkbox").uncheck()
    expect(page.get_by_text("2 calls selected")).to_be_visible()
    page.get_by_role("button", name="Approve selected calls").click()
    assert visit.accessibility_violations() == []
    page.get_by_role("button", name="Yes, approve 2 calls").click()
    expect(page.get_by_text("2 answers sent.")).to_be_visible()
    for task in (tasks[0], tasks[2]):
        expect(item(page, task)).to_contain_text("Task state: completed")
    for task in (tasks[1], wipe):
        expect(item(page, task)).to_contain_text("Waiting for your approval")


def test_several_calls_are_denied_with_one_reason(visit: Visit, other: OtherClient) -> None:
    tasks = [other.send({"data": {"n": n}}, "ask.first") for n in range(2)]
    page = visit.go("inbox")
    for task in tasks:
        item(page, task).focus()
        page.keyboard.press("x")
    page.get_by_role("button", name="Deny selected calls…").click()
    expect(page.get_by_label("Reason")).to_be_focused()
    page.keyboard.type("closed today")
    page.get_by_role("button", name="Deny 2 calls").click()
    expect(page.get_by_text("2 answers sent.")).to_be_visible()
    for task in tasks:
        expect(item(page, task)).to_contain_text("Task state: rejected")
        assert "closed today" in str(other.call("GetTask", id=task["id"]))


def test_one_refused_answer_of_several_is_reported(open_visit: OpenVisit) -> None:
    tasks = [approval(f"task {number}", "2036-01-01T00:00:00Z") for number in range(2)]
    fake = FakeAgent(
        card_of(capabilities={"streaming": False}),
        ListTasks=lambda params: {"tasks": tasks if "INPUT" in params.get("status", "") else []},
    )
    fake.replies["SendMessage"] = lambda params: (
        {"task": task_of(id="task 0")} if params["message"]["taskId"] == "task 0" else refusal(503)
    )
    with running(fake.app()) as url:
        page = open_visit(url).go("inbox")
        page.get_by_label("Select all approvals").check()
        page.get_by_role("button", name="Approve selected calls").click()
        page.get_by_role("button", name="Yes, approve 2 calls").click()
        expect(page.get_by_text("1 answer sent. 1 failed:")).to_contain_text("Refused with 503")
        expect(page.get_by_role("article", name="task 1")).to_contain_text("Waiting for your")


def test_each_reason_of_refused_answers_is_reported_once(open_visit: OpenVisit) -> None:
    statuses = [500, 503, 500, 403]
    tasks = [approval(str(number), "2036-01-01T00:00:00Z") for number in range(len(statuses))]
    fake = FakeAgent(
        card_of(capabilities={"streaming": False}),
        ListTasks=lambda params: {"tasks": tasks if "INPUT" in params.get("status", "") else []},
        SendMessage=lambda params: refusal(statuses[int(params["message"]["taskId"])]),
    )
    with running(fake.app()) as url:
        page = open_visit(url).go("inbox")
        page.get_by_label("Select all approvals").check()
        page.get_by_role("button", name="Approve selected calls").click()
        page.get_by_role("button", name="Yes, approve 4 calls").click()
        outcome = page.get_by_text("0 answers sent. 4 failed:")
        expect(outcome).to_be_visible()
        reasons = re.findall(r"Refused with (\d+)", outcome.inner_text())
        assert sorted(reasons) == ["403", "500", "503"]


def test_an_answer_that_comes_too_late_is_not_counted_as_sent(open_visit: OpenVisit) -> None:
    tasks = [approval(f"task {number}", "2036-01-01T00:00:00Z") for number in range(2)]
    other_answer = {"messageId": "other", "role": "ROLE_USER", "parts": [{"text": "no"}]}
    fake = FakeAgent(
        card_of(capabilities={"streaming": False}),
        ListTasks=lambda params: {"tasks": tasks if "INPUT" in params.get("status", "") else []},
        SendMessage=lambda params: {"task": task_of(id=params["message"]["taskId"])},
        GetTask=lambda params: task_of(
            id=params["id"], history=[other_answer] if params["id"] == "task 0" else []
        ),
    )
    with running(fake.app()) as url:
        page = open_visit(url).go("inbox")
        page.get_by_label("Select all approvals").check()
        page.get_by_role("button", name="Approve selected calls").click()
        page.get_by_role("button", name="Yes, approve 2 calls").click()
        outcome = "1 answer sent. 1 failed: The answer came too late."
        expect(page.get_by_text(outcome)).to_be_visible()


def test_an_answer_that_did_not_reach_the_agent_can_be_sent_again(open_visit: OpenVisit) -> None:
    task = approval("task 0", "2036-01-01T00:00:00Z")
    tasks = [task]
    fake = FakeAgent(
        ListTasks=lambda params: {"tasks": tasks if "INPUT" in params.get("status", "") else []},
        GetTask=lambda params: task,
        SubscribeToTask=lambda params: stream_of([{"task": task}]),
        SendStreamingMessage=lambda params: refusal(503),
    )

    def accept(params: Json) -> Any:
        tasks.clear()
        return stream_of([{"task": task_of(id="task 0")}])

    with running(fake.app()) as url:
        page = open_visit(url).go("inbox")
        entry = item(page, task)
        entry.get_by_role("button", name="Approve").click()
        expect(entry.get_by_role("alert")).to_contain_text("Refused with 503")
        page.route(f"{url}/", lambda route: route.abort())
        entry.get_by_role("button", name="Approve").click()
        expect(entry.get_by_role("alert")).to_contain_text("The agent can't be reached")
        page.unroute_all()
        fake.replies["SendStreamingMessage"] = accept
        entry.get_by_role("button", name="Approve").click()
        expect(entry.get_by_role("status")).to_have_text("Answer sent. Task state: completed")


def test_the_inbox_is_worked_through_with_keys(visit: Visit, other: OtherClient) -> None:
    tasks = [other.send({"data": {"n": n}}, "ask.first") for n in range(3)]
    page = visit.go("inbox")
    entries = page.get_by_role("article")
    expect(entries).to_have_count(3)
    page.keyboard.press("j")
    expect(entries.first).to_be_focused()
    page.keyboard.press("j")
    expect(item(page, tasks[1])).to_be_focused()
    page.keyboard.press("a")
    expect(item(page, tasks[1])).to_contain_text("Task state: completed")
    page.keyboard.press("k")
    expect(item(page, tasks[0])).to_be_focused()
    page.keyboard.press("d")
    page.keyboard.type("jack says no")
    page.keyboard.press("Enter")
    expect(item(page, tasks[0])).to_contain_text("Task state: rejected")
    expect(item(page, tasks[2])).to_contain_text("Waiting for your approval")


def approval(task_id: str, expires_at: str, decided_by: str = "client") -> Any:
    """Return a task of A2A 1.0 that waits for an approval until a time."""
    details = {"id": task_id, "skill": "work", "arguments": {}, "expiresAt": expires_at}
    details["decidedBy"] = decided_by
    message = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"data": {"approval": details}}]}
    task = task_of("INPUT_REQUIRED", id=task_id)
    task["status"]["message"] = message
    return task


def test_an_approval_that_the_user_cannot_give_is_not_called_theirs(open_visit: OpenVisit) -> None:
    task = approval("task 0", "2036-01-01T00:00:00Z", decided_by="server")
    fake = FakeAgent(
        ListTasks=lambda params: {"tasks": [task] if "INPUT" in params.get("status", "") else []}
    )
    with running(fake.app()) as url:
        page = open_visit(url).go("inbox")
        expect(item(page, task)).to_contain_text("Waiting for approval outside this page")
        expect(item(page, task).get_by_role("button", name="Approve")).to_have_count(0)


def test_approvals_are_sorted_by_deadline_which_counts_down(open_visit: OpenVisit) -> None:
    deadlines = ["2026-01-01T00:20:00Z", "2026-01-01T00:00:50Z", "2026-01-01T00:05:00Z"]
    tasks = [approval(f"task {number}", time) for number, time in enumerate(deadlines)]
    fake = FakeAgent(
        ListTasks=lambda params: {"tasks": tasks if "INPUT" in params.get("status", "") else []}
    )
    with running(fake.app()) as url:
        visit = open_visit(url)
        visit.page.clock.install(time="2026-01-01T00:00:00Z")
        page = visit.go("inbox")
        entries = page.get_by_role("article")
        expect(entries).to_contain_text(
            [re.compile(r"Expires in \d\d? s"), "Expires in 4 min", "Expires in 19 min"]
        )
        page.clock.run_for(70_000)
        expect(entries.first).to_contain_text("Expired")
        expect(entries.nth(1)).to_contain_text("Expires in 3 min")


def test_the_inbox_shows_a_pause_among_more_changes_than_a_poll_lists(
    open_visit: OpenVisit,
) -> None:
    paused_tasks: list[Json] = []

    def list_tasks(params: Json) -> Json:
        if "status" in params:
            return {"tasks": paused_tasks if "INPUT" in params["status"] else []}
        changed = [task_of(id=f"task {number}") for number in range(50)] if paused_tasks else []
        return {"tasks": changed, "nextPageToken": "more" if changed else ""}

    with running(FakeAgent(ListTasks=list_tasks).app()) as url:
        visit = open_visit(url)
        visit.page.clock.install()
        page = visit.go("inbox")
        expect(page.get_by_text("No tasks are waiting for your input.")).to_be_visible()
        paused_tasks.append(approval("paused", "2036-01-01T00:00:00Z"))
        page.clock.run_for(31_000)
        expect(page.get_by_role("article", name="Task paused")).to_be_visible()


def test_an_approver_sees_the_requester_and_is_recorded(open_visit: OpenVisit) -> None:
    keys = APIKeyAuthenticator(
        {
            "a key of ada": Identity("ada"),
            "a key of edith": Identity("edith", roles=("boss", "operator")),
        },
    )
    modules = {"ask.first": ActionModule(echo, annotations=NEEDS_APPROVAL)}
    options: dict[str, Any] = {"auth": keys, "operators": "operator", "approvers": "boss"}
    with (
        running(registry_of(modules), explorer=True, **options) as url,
        closing(OtherClient(url, "a key of ada")) as ada,
    ):
        task = ada.send({"data": {"n": 1}}, "ask.first")
        page = open_visit(url).go()
        page.get_by_role("button", name="Sign in").click()
        page.get_by_label("API key").fill("a key of edith")
        page.get_by_role("dialog").get_by_role("button", name="Sign in").click()
        page.get_by_role("navigation", name="Views").get_by_role("link", name="Inbox").click()
        entry = item(page, task)
        expect(entry).to_contain_text("Requested by apikey|ada")
        entry.get_by_role("button", name="Approve").click()
        expect(entry).to_contain_text("Answer sent.")
        page.goto(f"{url}/explorer#/tasks/{task['id']}")
        expect(page.get_by_role("definition").get_by_text("apikey|edith (approved")).to_be_visible()


FAKE_NOTIFICATIONS = """
window.shown = [];
window.Notification = class {
    static permission = "default";
    static async requestPermission() { return (this.permission = "granted"); }
    constructor(title, options) { window.shown.push([title, options.body]); }
};
Object.defineProperty(document, "hidden", {get: () => window.away ?? false, configurable: true});
"""


def test_a_hidden_page_notifies_after_the_user_has_allowed_it(
    visit: Visit, other: OtherClient
) -> None:
    visit.page.add_init_script(FAKE_NOTIFICATIONS)
    visit.page.clock.install()
    page = visit.go("inbox")
    page.get_by_role("button", name="Notify me on this desktop").click()
    expect(page.get_by_role("button", name="Desktop notifications are on")).to_be_visible()
    expect(page.get_by_text("No tasks are waiting for your input.")).to_be_visible()
    page.evaluate("window.away = true; document.dispatchEvent(new Event('visibilitychange'))")
    other.send({"data": {"n": 1}}, "ask.first")
    page.clock.run_for(31_000)
    wait_until(lambda: page.evaluate("window.shown.length") == 1)
    assert page.evaluate("window.shown") == [["A task waits for your input", "ask.first"]]


def test_a_browser_without_notifications_for_pages_shows_the_inbox(
    visit: Visit, other: OtherClient
) -> None:
    visit.page.add_init_script(
        FAKE_NOTIFICATIONS + "window.Notification = class extends window.Notification {"
        " constructor() { throw new TypeError('Illegal constructor'); } };"
    )
    visit.page.clock.install()
    page = visit.go("inbox")
    page.get_by_role("button", name="Notify me on this desktop").click()
    expect(page.get_by_text("No tasks are waiting for your input.")).to_be_visible()
    page.evaluate("window.away = true; document.dispatchEvent(new Event('visibilitychange'))")
    task = other.send({"data": {"n": 1}}, "ask.first")
    page.clock.run_for(31_000)
    expect(item(page, task)).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)
