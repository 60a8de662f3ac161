"""A real shop with nested calls and failing webhooks, as its operator and its callers see it."""

import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from apcore import Identity
from apcore_a2a_auth import APIKeyAuthenticator
from playwright.sync_api import Locator, Page, expect

from tests.push.receiver import OK, Receiver
from tests.server.checking_client import Json
from tests.server.inloop import NEEDS_APPROVAL, ActionModule, echo, registry_of
from tests.server.modules import Inputs
from tests.serving import running

from .browsing import Visit
from .busy import QUICK, busy_shop, fill
from .hostile import CORPUS, HostileVisit
from .other_client import OtherClient

OpenVisit = Callable[..., Visit]
OPERATOR_OPTIONS: dict[str, Any] = {
    "operators": "operator",
    "operators_read": "content",
    "approvers": "operator",
}


def key_of(name: str) -> str:
    return f"a long key of {name}, for tests"


def keys(**roles: str) -> APIKeyAuthenticator:
    """Return an authenticator with a key for each named caller, who has the role given."""
    identities = {key_of(name): Identity(name, roles=(role,)) for name, role in roles.items()}
    return APIKeyAuthenticator(identities)


@contextmanager
def guarded_shop() -> Iterator[tuple[str, Receiver]]:
    """Serve the shop to Ada, to Grace who operates it, and to Bob."""
    auth = keys(ada="clerk", bob="clerk", grace="operator")
    with busy_shop(auth=auth, state_history=True, **OPERATOR_OPTIONS) as (url, receiver):
        yield url, receiver


@pytest.fixture(scope="module")
def shop() -> Iterator[tuple[str, Receiver]]:
    with guarded_shop() as url_and_receiver:
        yield url_and_receiver


@pytest.fixture(scope="module")
def tasks(shop: tuple[str, Receiver]) -> dict[str, Json]:
    """Return Ada's tasks by their skills."""
    return fill(*shop, key_of("ada"))


def sign_in(visit: Visit, name: str) -> Page:
    page = visit.go()
    page.get_by_role("button", name="Sign in").click()
    page.get_by_label("API key").fill(key_of(name))
    page.get_by_role("dialog").get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("banner").get_by_text(name)).to_be_visible()
    return page


def bar_of(trace: Locator, name: str) -> tuple[float, float]:
    """Return where the bar of the first span with a name begins and ends."""
    row = trace.get_by_role("row").filter(has_text=re.compile(rf"^(▸ )?{re.escape(name)}")).first
    box = row.locator(".span").bounding_box()
    assert box is not None
    return box["x"], box["x"] + box["width"]


def name_indents(trace: Locator) -> list[float]:
    """Return how far the names of spans are indented, in pixels."""
    script = "(cells) => cells.map((cell) => parseFloat(getComputedStyle(cell).paddingLeft))"
    indents: list[float] = trace.locator(".span-name").evaluate_all(script)
    return indents


@pytest.mark.parametrize("caller", ["ada", "grace"])
def test_the_bar_of_a_nested_call_lies_within_the_bar_of_its_parent(
    open_visit: OpenVisit, shop: tuple[str, Receiver], tasks: dict[str, Json], caller: str
) -> None:
    visit = open_visit(shop[0])
    sign_in(visit, caller)
    page = visit.go(f"tasks/{tasks['orders.place']['id']}")
    trace = page.get_by_role("region", name="Trace")
    rows = trace.get_by_role("row").filter(has=page.get_by_role("cell"))
    calls = ["orders.place", "stock.reserve", "stock.count", "payments.charge"]
    expect(rows.filter(has_text=re.compile("|".join(map(re.escape, calls))))).to_contain_text(calls)
    for inner, outer in [(1, 0), (2, 1), (3, 0)]:
        start, end = bar_of(trace, calls[inner])
        outer_start, outer_end = bar_of(trace, calls[outer])
        # in pixels: a bar is at least 3 wide, and positions are rounded
        assert outer_start - 4 <= start
        assert end <= outer_end + 4
    assert len(set(name_indents(trace))) >= 3
    assert visit.accessibility_violations() == []


def test_a_wait_for_approval_is_in_the_trace_while_it_lasts(
    open_visit: OpenVisit, shop: tuple[str, Receiver], tasks: dict[str, Json]
) -> None:
    visit = open_visit(shop[0])
    sign_in(visit, "grace")
    page = visit.go(f"tasks/{tasks['orders.purge']['id']}")
    trace = page.get_by_role("region", name="Trace")
    waiting = trace.get_by_role("row").filter(has=page.locator(".span.is-wait"))
    expect(waiting).to_contain_text("running")
    expect(trace.get_by_role("columnheader").last).to_contain_text("so far")


def test_a_caller_sees_nothing_of_the_tasks_of_others(
    open_visit: OpenVisit, shop: tuple[str, Receiver], tasks: dict[str, Json]
) -> None:
    visit = open_visit(shop[0])
    page = sign_in(visit, "bob")
    views = page.get_by_role("navigation", name="Views")
    expect(views.get_by_role("link", name="Now")).to_have_count(0)
    expect(views.get_by_role("link", name="Performance")).to_have_count(0)
    visit.go("tasks")
    expect(page.get_by_text("No tasks yet.")).to_be_visible()
    visit.go("inbox")
    expect(page.get_by_text("No tasks are waiting for your input.")).to_be_visible()
    visit.go(f"tasks/{tasks['orders.place']['id']}")
    expect(page.get_by_role("alert")).to_contain_text("This task doesn't exist, or you can't")
    expect(page.get_by_role("region", name="Trace")).to_have_count(0)
    visit.go("webhooks")
    expect(page.get_by_text("No webhooks", exact=True)).to_be_visible()
    expect(page.get_by_text("4711")).to_have_count(0)


def test_a_failing_webhook_gets_a_test_and_its_notification_again(open_visit: OpenVisit) -> None:
    with guarded_shop() as (url, receiver), closing(OtherClient(url, key_of("ada"))) as ada:
        hook = {"url": receiver.url, "id": "hook"}
        origin = receiver.url.removesuffix("/hook")  # all that operators see of others' URLs
        options = {"configuration": {"taskPushNotificationConfig": hook}}
        message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"data": {"month": 3}}]}
        skill = {"skillId": "reports.monthly"}
        ada.call("SendMessage", message=message, metadata=skill, **options)
        visit = open_visit(url)
        page = sign_in(visit, "grace")
        page.get_by_role("link", name="Webhooks").click()
        webhook = page.get_by_role("main").get_by_role("listitem").first
        expect(webhook).to_contain_text(origin)
        expect(webhook.locator(".state").first).to_have_text("failed")
        webhook.get_by_text("attempts, newest first").click()
        attempts = webhook.locator("details").get_by_role("listitem")
        expect(attempts.first).to_contain_text("HTTP 503")
        expect(attempts).to_contain_text(["failed", "retried", "retried"])
        webhook.get_by_role("button", name="Send test").click()
        expect(webhook.get_by_role("status")).to_contain_text("with status 503")
        assert visit.accessibility_violations() == []
        receiver.answer = lambda delivery: OK
        before = len(receiver)
        webhook.get_by_role("button", name="Redeliver").click()
        expect(webhook.get_by_role("status")).to_contain_text("queued again")
        receiver.wait(before + 1)
        webhook.get_by_role("button", name="Send test").click()
        expect(webhook.get_by_role("status")).to_have_text("Test delivered with status 200")
        expect(attempts.first).to_contain_text("delivered")
        webhook.get_by_role("link", name="Task ").click()
        shown = page.get_by_role("main").get_by_role("listitem").filter(has_text=origin)
        expect(shown.first).to_contain_text("attempts, newest first")


async def refuse(inputs: Inputs, context: Any) -> Inputs:
    raise ValueError(str(inputs))


def test_hostile_texts_of_real_callers_are_shown_as_text(open_visit: OpenVisit) -> None:
    """Names of callers and conversations, arguments, results and ids of webhooks are hostile."""
    texts = [text for text in CORPUS if text.isprintable()]
    people = {key_of(str(number)): Identity(text) for number, text in enumerate(texts)}
    boss = {key_of("grace"): Identity("grace", roles=("operator", *texts[:6]))}
    modules = {
        "mirror": ActionModule(echo, description=" ".join(texts[:12])),
        "ask": ActionModule(echo, annotations=NEEDS_APPROVAL),
        "refuse": ActionModule(refuse),
    }
    options: dict[str, Any] = {"auth": APIKeyAuthenticator({**people, **boss}), **OPERATOR_OPTIONS}
    with running(
        registry_of(modules), explorer=True, push_notifications=QUICK, name=texts[0], **options
    ) as url:
        for number, text in enumerate(texts):
            with closing(OtherClient(url, key_of(str(number)))) as person:
                for skill in modules:
                    data = {text: text, "deep": {text: [text]}}
                    task = person.send({"data": data}, skill, contextId=text[:100])
                config_id = re.sub(r"[^!-~]", "", text)[:200]
                hook = {"url": "http://127.0.0.1:9/", "id": config_id, "token": "t"}
                person.call("CreateTaskPushNotificationConfig", taskId=task["id"], **hook)
        visit = open_visit(url)
        hostile = HostileVisit(visit)
        page = sign_in(visit, "grace")
        assert hostile.harm() == []
        hostile.go("tasks")
        page.get_by_role("row").nth(1).wait_for()
        expect(page.get_by_role("table")).to_contain_text(texts[0])
        assert hostile.harm() == []
        for view in ("inbox", "conversations", "now", "performance", "webhooks", "requests"):
            hostile.go(view)
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            page.wait_for_load_state("networkidle")
            if view == "performance":
                page.get_by_role("button", name="Details of refuse").click()
            hostile.open_all()
            assert (view, hostile.harm()) == (view, [])
        hostile.go("tasks", task["id"])
        expect(page.get_by_role("region", name="Trace")).to_be_visible()
        expect(page.get_by_role("heading", name="Webhooks", exact=True)).to_be_visible()
        hostile.open_all()
        assert hostile.harm() == []
        hostile.go("conversations", texts[0])
        expect(page.get_by_role("button", name="Send")).to_be_visible()
        hostile.open_all()
        assert hostile.harm() == []
