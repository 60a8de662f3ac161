"""Views of figures, traces and webhooks, made from the routes under /apcore, and without them."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from apcore import Identity
from apcore_a2a_auth import APIKeyAuthenticator
from playwright.sync_api import Locator, Page, Route, expect

from tests.server.checking_client import Json
from tests.server.inloop import NEEDS_APPROVAL, ActionModule, echo, registry_of
from tests.server.modules import Inputs
from tests.serving import running

from .browsing import DRAWN, Visit, wait_until
from .fake import FakeAgent, json_response, task_of
from .hostile import CORPUS, HostileVisit
from .other_client import OtherClient

OpenVisit = Callable[..., Visit]
MINUTES = 60


async def broken(inputs: Inputs, context: Any) -> Inputs:
    raise ValueError("broken")


@pytest.fixture(scope="module")
def agent() -> Iterator[str]:
    """Serve an agent whose skills have completed, failed and paused tasks."""
    ask_module = ActionModule(echo, annotations=NEEDS_APPROVAL)
    modules = {"mirror": ActionModule(echo), "broken": ActionModule(broken), "ask": ask_module}
    with running(registry_of(modules), name="Test agent", explorer=True) as url:
        with closing(OtherClient(url)) as other:
            for number in range(5):
                other.send({"data": {"n": number}}, "mirror")
            for skill in ("broken", "broken", "ask"):
                other.send({"data": {"n": 1}}, skill)
        yield url


def view_link(page: Page, name: str) -> Locator:
    """Return the link to a view."""
    return page.get_by_role("navigation", name="Views").get_by_role("link", name=name)


def figure(page: Page, name: str) -> Locator:
    """Return the figure with a name."""
    return page.locator(".figure").filter(has=page.get_by_text(name, exact=True))


def fulfill_route(page: Page, path: str, document: Json, status: int = 200) -> None:
    """Answer a page's requests to a route under /apcore with *document*."""

    def fulfill(route: Route) -> None:
        # in ASCII, since a lone surrogate can't be encoded
        route.fulfill(body=json.dumps(document), content_type="application/json", status=status)

    page.route(re.compile(rf"/apcore/{path}(\?|$)"), fulfill)


def test_now_shows_the_figures_of_this_moment_and_of_the_last_hour(visit: Visit) -> None:
    page = visit.go()
    view_link(page, "Now").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Now")
    expect(page.get_by_role("main").get_by_role("status")).to_have_text("Healthy")
    expect(figure(page, "Completed in the last hour")).to_contain_text("5")
    expect(figure(page, "Failed in the last hour")).to_contain_text("2")
    expect(figure(page, "Waiting for input")).to_contain_text("1")
    expect(figure(page, "Running")).to_contain_text("0")
    expect(
        page.get_by_role("img", name=re.compile("^Runs started: 8 in 60 minutes"))
    ).to_be_visible()
    figure(page, "Failed in the last hour").get_by_role("link").click()
    expect(page.get_by_label("State")).to_have_value("failed")


def test_figures_are_updated(visit: Visit) -> None:
    page = visit.go("now")
    expect(figure(page, "Running")).to_contain_text("0")
    fulfill_route(page, "now", {"tasks": {"working": 7}, "status": "draining", "scope": "workers"})
    expect(figure(page, "Running")).to_contain_text("7")
    expect(page.get_by_role("main").get_by_role("status")).to_have_text("Shutting down")
    expect(page.get_by_text("The figures cover all workers of one server.")).to_be_visible()
    expect(figure(page, "Queued")).to_contain_text("unknown")


def replica(number: int, **members: Any) -> Json:
    """Return a replica as the route `now` lists it."""
    return {
        "id": f"host-{number}-4711-abcdef",
        "host": f"host-{number}",
        "pid": 4711,
        "version": "0.9.0",
        "startedAt": "2026-01-01T00:00:00Z",
        "lastSeenAt": "2026-01-01T00:00:05Z",
        "draining": False,
        "leases": number,
        "running": number + 1,
        "self": False,
        **members,
    }


def test_replicas_and_the_tasks_that_they_run_are_shown(open_visit: OpenVisit) -> None:
    tasks = [task_of("WORKING", id="task-1"), task_of("COMPLETED", id="task-2")]
    with running(FakeAgent(ListTasks=lambda params: {"tasks": tasks}).app()) as url:
        visit = open_visit(url)
        page = visit.page
        fulfill_route(page, "whoami", {"operator": True})
        replicas = [replica(1, self=True), replica(2, draining=True)]
        fulfill_route(page, "now", {"status": "healthy", "scope": "store", "replicas": replicas})
        leases = [{"taskId": "task-1", "replica": replicas[1]["id"]}]
        fulfill_route(page, "leases", {"shared": True, "leases": leases})
        visit.go("now")
        rows = page.get_by_role("row").filter(has=page.get_by_role("cell"))
        expect(rows).to_have_count(2)
        expect(rows.first).to_contain_text("host-1-4711-abcdef this one")
        expect(rows.last).to_contain_text("Shutting down")
        expect(rows.last.get_by_role("cell")).to_contain_text(["host-2", "2", "3", "0.9.0"])
        assert visit.accessibility_violations() == []
        with page.expect_request(re.compile(r"/apcore/leases\?tasks=task-1$")):
            visit.go("tasks")
        expect(page.get_by_role("columnheader", name="Replica")).to_be_visible()
        expect(page.get_by_role("row", name="working")).to_contain_text(replicas[1]["id"])
        assert visit.accessibility_violations() == []


def test_a_single_replica_is_listed_but_tasks_have_no_replica_column(visit: Visit) -> None:
    page = visit.go("now")
    rows = page.get_by_role("row").filter(has=page.get_by_role("cell"))
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("this one")
    with page.expect_response(re.compile("/apcore/leases")):
        visit.go("tasks")
    expect(page.get_by_role("row", name="completed").first).to_be_visible()
    expect(page.get_by_role("columnheader", name="Replica")).to_have_count(0)


def test_skills_are_compared_by_their_runs_errors_and_latencies(visit: Visit) -> None:
    page = visit.go()
    view_link(page, "Performance").click()
    row = page.get_by_role("row").filter(has_text="Broken")
    expect(row).to_contain_text("2 (100 %)")
    expect(row.get_by_role("img", name="Runs of broken: 2 in 60 minutes, 2 failed")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="Mirror")).to_contain_text(re.compile(r"\d ms"))
    page.get_by_role("button", name="Failed").click()
    expect(page.get_by_role("row").nth(1)).to_contain_text("Broken")
    page.get_by_role("button", name="Details of broken").click()
    failures = page.locator("section").filter(has=page.get_by_role("heading", name="Last failures"))
    failures.last.get_by_role("link").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Broken")
    expect(page.get_by_role("main").get_by_role("status").first).to_have_text("failed")


def test_hundreds_of_skills_are_shown_at_once(visit: Visit) -> None:
    figures = {"running": 0, "runs": 1, "p50Seconds": 0.5, "perMinute": [1] * MINUTES}
    skills = [{"id": f"area.skill{number}", **figures} for number in range(300)]
    page = visit.page
    fulfill_route(page, "skills", {"scope": "process", "skills": skills})
    visit.go("performance")
    expect(page.get_by_role("row")).to_have_count(301)
    assert page.evaluate("document.querySelectorAll('*').length") < 9_000


SPANS: list[Json] = [
    {"id": "1", "name": "queue", "kind": "queue", "at": 0, "seconds": 0.5},
    {"id": "3", "name": "lookup", "kind": "call", "at": 4, "seconds": 0.25, "parentId": "2"},
    {"id": "2", "name": "mirror", "kind": "module", "at": 3.5, "seconds": 1, "status": "error"},
    {"id": "4", "name": "approval", "kind": "wait", "at": 0.5, "seconds": 3},
    {"id": "5", "name": "hook", "kind": "webhook", "at": 4.5, "seconds": None},
]


def span(at: float, **members: Any) -> Json:
    """Return a span that begins *at* seconds after the first span of its trace."""
    minute, second = divmod(at, 60)
    start = f"2026-01-01T00:{int(minute):02}:{second:06.3f}Z"
    attributes = {"rules": 3} if members["name"] == "mirror" else {}
    return {
        "status": "ok",
        "parentId": None,
        "startedAt": start,
        "attributes": attributes,
    } | members


def test_the_trace_of_a_task_lists_spans_in_the_order_of_their_start(visit: Visit) -> None:
    with closing(OtherClient(visit.agent)) as other:
        task = other.send({"data": {"n": 1}}, "mirror")
    page = visit.page
    fulfill_route(
        page, r"tasks/[^/]+/trace", {"spans": [span(**members) for members in SPANS], "dropped": 7}
    )
    visit.go(f"tasks/{task['id']}")
    trace = page.get_by_role("region", name="Trace")
    rows = trace.get_by_role("row").filter(has=page.get_by_role("cell"))
    expect(rows).to_contain_text(
        ["queue", "approval", re.compile("mirror.*error.*module.*3.5 s.*1.0 s"), "lookup", "hook"]
    )
    expect(rows.last).to_contain_text("running")
    expect(trace).to_contain_text("7 more spans were not kept.")
    trace.get_by_role("button", name="mirror").click()
    expect(trace.get_by_text("rules: 3")).to_be_visible()
    assert visit.accessibility_violations() == []


def test_a_missing_trace_is_requested_only_once(visit: Visit) -> None:
    with closing(OtherClient(visit.agent)) as other:
        task = other.send({"data": {"n": 1}}, "ask")
    page = visit.page
    fulfill_route(
        page, r"tasks/[^/]+/trace", {"error": {"code": "NOT_FOUND", "message": "No"}}, 404
    )
    page.clock.install()
    visit.go(f"tasks/{task['id']}")
    expect(page.get_by_role("heading", name="History")).to_be_visible()
    page.clock.run_for(30_000)
    assert len([url for url in visit.requests if url.endswith("/trace")]) == 1
    expect(page.get_by_role("alert")).to_have_count(0)


WEBHOOK: Json = {
    "taskId": "task 1",
    "id": "config/1",
    "url": "https://hooks.example.com",
    "state": "failed",
    "reason": "Gone",
    "pending": 2,
    "nextAttemptAt": "2036-01-01T00:00:00Z",
    "attempts": [{"at": "2026-01-01T00:00:00Z", "status": 410, "seconds": 0.2, "result": "failed"}],
}


def test_a_webhook_is_tested_and_its_notifications_are_redelivered(visit: Visit) -> None:
    page = visit.page
    fulfill_route(page, "webhooks", {"webhooks": [WEBHOOK]})
    path = "tasks/task%201/webhooks/config%2F1"
    attempt = {"status": 200, "seconds": 0.1, "result": "delivered"}
    fulfill_route(page, f"{path}/test", {"attempt": attempt})
    fulfill_route(page, f"{path}/redeliver", {"requeued": 1}, 202)
    visit.go()
    view_link(page, "Webhooks").click()
    webhook = page.get_by_role("main").get_by_role("listitem").first
    expect(webhook).to_contain_text("https://hooks.example.com")
    expect(webhook).to_contain_text("2 notifications waiting, next attempt in")
    webhook.get_by_text("1 attempt, newest first").click()
    expect(webhook).to_contain_text("failedHTTP 410200 ms")
    webhook.get_by_role("button", name="Send test").click()
    expect(webhook.get_by_role("status")).to_have_text("Test delivered with status 200")
    webhook.get_by_role("button", name="Redeliver").click()
    expect(webhook.get_by_role("status")).to_have_text("1 notification queued again")
    assert visit.accessibility_violations() == []
    with page.expect_request(re.compile("state=failed&limit=50")):
        page.get_by_role("button", name="Failed").click()


def test_an_operator_learns_that_a_webhook_was_not_removed(
    open_visit: OpenVisit,
) -> None:
    error: Json = {"code": -32001, "message": "Push notification config not found"}
    fake = FakeAgent(GetTask=lambda params: task_of())
    config = {"id": "hook", "taskId": "task-1", "url": "https://hooks.example.com/"}
    fake.replies["ListTaskPushNotificationConfigs"] = lambda params: {"configs": [config]}
    fake.replies["DeleteTaskPushNotificationConfig"] = lambda params: json_response(
        {"jsonrpc": "2.0", "id": 1, "error": error}
    )
    with running(fake.app()) as url:
        visit = open_visit(url)
        fulfill_route(visit.page, "whoami", {"operator": True})
        webhooks = visit.go("tasks/task-1").get_by_role("region", name="Webhooks")
        webhooks.get_by_role("button", name="Remove").click()
        expect(webhooks.get_by_role("alert")).to_contain_text(error["message"])
        expect(webhooks.get_by_label("URL")).to_be_visible()


def fail_late(page: Page, routes: list[Route]) -> None:
    """Answer a held request with an error, and wait until the page has handled it."""
    with page.expect_response(routes[0].request.url):
        routes[0].fulfill(status=404, body="{}")
    page.evaluate(DRAWN)


def hold_route(page: Page, path: str) -> list[Route]:
    """Hold the page's requests to a route under /apcore/; return the list of them."""
    held: list[Route] = []
    page.route(re.compile(rf"/apcore/{path}$"), lambda route: held.append(route))
    return held


def test_a_late_failure_for_another_filter_hides_no_webhooks(open_visit: OpenVisit) -> None:
    with running(FakeAgent().app()) as url:
        visit = open_visit(url)
        page = visit.page
        fulfill_route(page, "webhooks", {"webhooks": [WEBHOOK]})
        held = hold_route(page, r"webhooks\?state=all&limit=50")
        visit.go("webhooks")
        wait_until(lambda: bool(page.title() and held))
        page.get_by_role("button", name="Failed").click()
        expect(page.get_by_text(WEBHOOK["url"])).to_be_visible()
        fail_late(page, held)
        assert page.get_by_text(WEBHOOK["url"]).count() == 1
        assert page.get_by_role("alert").count() == 0


def test_a_late_failure_for_other_tasks_hides_no_replicas(open_visit: OpenVisit) -> None:
    tasks = [task_of("WORKING", id=f"task-{number}") for number in (1, 2)]
    tasks[1]["metadata"] = {"skillId": "other"}
    with running(FakeAgent(ListTasks=lambda params: {"tasks": tasks}).app()) as url:
        visit = open_visit(url)
        page = visit.page
        fulfill_route(page, "whoami", {"operator": True})
        fulfill_route(page, "now", {"status": "healthy", "scope": "store"})
        leases = [{"taskId": "task-1", "replica": "host-1"}]
        fulfill_route(page, "leases", {"shared": True, "leases": leases})
        held = hold_route(page, r"leases\?tasks=task-1,task-2")
        visit.go("tasks")
        wait_until(lambda: bool(page.title() and held))
        visit.go("tasks?skill=work")
        expect(page.get_by_role("row", name="working")).to_contain_text("host-1")
        fail_late(page, held)
        assert page.get_by_role("columnheader", name="Replica").count() == 1


def test_views_without_a_route_are_hidden(open_visit: OpenVisit) -> None:
    with running(FakeAgent().app()) as url:
        page = open_visit(url).go()
        expect(page.get_by_role("heading", level=1)).to_have_text("Fake")
        page.wait_for_load_state("networkidle")
        for name in ("Now", "Performance", "Webhooks"):
            expect(view_link(page, name)).to_have_count(0)
        expect(page.get_by_role("dialog")).to_have_count(0)


def test_only_operators_get_a_link_to_the_figures(open_visit: OpenVisit) -> None:
    keys = APIKeyAuthenticator(
        {"a key of ada": Identity("ada"), "a key of grace": Identity("grace", roles=("operator",))}
    )
    options: dict[str, Any] = {"auth": keys, "operators": "operator", "explorer": True}
    with running(registry_of({"mirror": ActionModule(echo)}), **options) as url:
        for name, count, user in [("ada", 0, "ada"), ("grace", 1, "grace · operator")]:
            page = open_visit(url).go()
            page.get_by_role("button", name="Sign in").click()
            page.get_by_label("API key").fill(f"a key of {name}")
            page.get_by_role("dialog").get_by_role("button", name="Sign in").click()
            expect(page.get_by_role("banner").get_by_text(user, exact=True)).to_be_visible()
            expect(view_link(page, "Now")).to_have_count(count)


def hostile_answers(text: str) -> dict[str, Json]:
    """Return the JSON of each route, with *text* everywhere, by a regex for its path."""
    attempt = {"at": text, "status": text, "seconds": text, "result": text, "reason": text}
    webhook = {**WEBHOOK, "taskId": text, "id": text, "url": text, "state": text, "reason": text}
    span = {"id": text, "name": text, "kind": text, "startedAt": "2026-01-01T00:00:00Z"}
    notable = {"taskId": text, "code": text, "at": text, "state": text, "seconds": text}
    figures = {"id": text, "errors": {text: text}, "slowest": [notable], "failures": [notable]}
    return {
        "whoami": {"authenticated": True, "principal": text, "roles": [text], "operator": True},
        "now": {
            "status": text,
            "scope": text,
            "replicas": [dict.fromkeys(replica(1), text)],
        },
        "leases": {"shared": True, "leases": [{"taskId": "task-1", "replica": text}]},
        "skills": {"scope": text, "skills": [{**figures, "runs": 3, "perMinute": [text, 5, None]}]},
        "webhooks": {"webhooks": [{**webhook, "attempts": [attempt, text]}]},
        r"tasks/[^/]+/trace": {
            "spans": [{**span, "seconds": text, "status": text, "attributes": {text: text}}]
        },
    }


def test_hostile_answers_are_shown_as_text(open_visit: OpenVisit) -> None:
    task = task_of("WORKING", history=[])
    fake = FakeAgent(ListTasks=lambda params: {"tasks": [task]}, GetTask=lambda params: task)
    with running(fake.app()) as url:
        hostile = HostileVisit(open_visit(url))
        page = hostile.page
        for text in CORPUS:
            page.unroute_all()
            for path, document in hostile_answers(text).items():
                fulfill_route(page, path, document)
            page.goto("about:blank")
            hostile.visit.go("now")
            expect(page.get_by_role("heading", name="Now", level=1)).to_be_visible()
            expect(figure(page, "Queued")).to_be_visible()
            assert hostile.harm() == []
            hostile.go("performance")
            page.get_by_role("button", name="Details of").click()
            hostile.open_all()
            assert hostile.harm() == []
            hostile.go("webhooks")
            expect(page.get_by_role("button", name="Redeliver")).to_be_visible()
            hostile.open_all()
            assert hostile.harm() == []
            hostile.go("tasks")
            expect(page.get_by_role("columnheader", name="Replica")).to_be_visible()
            assert hostile.harm() == []
            hostile.go("tasks", "task-1")
            expect(page.get_by_role("region", name="Trace")).to_be_visible()
            assert hostile.harm() == []
