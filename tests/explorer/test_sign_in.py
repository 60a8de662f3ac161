"""Sign in: who one is stays between oneself and the agent."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import Any

import jwt
import pytest
from apcore import ACL, ACLRule, Executor, Identity
from apcore_a2a_auth import APIKeyAuthenticator, ChainAuthenticator, JWTAuthenticator
from playwright.sync_api import Browser, Locator, Page, expect
from starlette.requests import Request
from starlette.responses import Response

from tests.server.inloop import Does, always, give_back, registry_of
from tests.server.modules import Echo
from tests.serving import running

from .agent import registry as examples
from .browsing import Visit, visiting
from .fake import Fake, card_of, refusal

KEY = "ada-key-S3CRET"
SECRET = "a secret that is long enough for HS256"
WHAT_IS_KEPT = """() => JSON.stringify([
    document.documentElement.outerHTML,
    [...document.querySelectorAll("input, textarea")].map((field) => field.value),
    {...localStorage}, document.cookie, location.href, history.state, document.title,
])"""

Begin = Callable[..., Visit]


class Lapsing:
    """Knows tokens until it does not."""

    over = False

    def __init__(self) -> None:
        self.tokens = JWTAuthenticator(key=SECRET)

    async def authenticate(self, headers: Mapping[str, str]) -> Identity | None:
        return None if self.over else await self.tokens.authenticate(headers)

    def security_schemes(self) -> Any:
        return self.tokens.security_schemes()


lapsing = Lapsing()


@pytest.fixture(scope="module")
def agent() -> Iterator[str]:
    """An agent that knows ada, the admin, by a key, and anybody by a token."""
    modules = {"text.echo": Echo(), "ops.restart": always({"restarted": "all"})}
    rules = [
        ACLRule(["@external"], ["text.*"], "allow"),
        ACLRule(["@external"], ["ops.*"], "allow", conditions={"roles": ["admin"]}),
    ]
    keys = APIKeyAuthenticator({KEY: Identity("ada", roles=("admin",))})
    auth = ChainAuthenticator(keys, lapsing)
    acl = ACL(rules, default_effect="deny")
    with (
        closing(Executor(registry_of(modules), acl=acl)) as executor,
        running(executor, explorer=True, auth=auth) as url,
    ):
        yield url


def token(name: str = "bob", *roles: str) -> str:
    claims = {"sub": name, "roles": roles, "exp": time.time() + 3600}
    return jwt.encode(claims, SECRET, "HS256")


def asked(page: Page) -> Locator:
    """The sign-in, once it is there."""
    dialog = page.get_by_role("dialog", name="Sign in")
    expect(dialog).to_be_visible()
    return dialog


def sign_in(page: Page, secret: str, scheme: str = "", label: str = "API key") -> None:
    """Open the sign-in, unless it is there, and fill it in."""
    dialog = page.get_by_role("dialog", name="Sign in")
    if not dialog.is_visible():
        page.get_by_role("button", name="Sign in").first.click()
    if scheme:
        dialog.get_by_label("How").select_option(scheme)
    dialog.get_by_label(label, exact=True).fill(secret)
    dialog.get_by_role("button", name="Sign in").click()


def skill(page: Page, name: str) -> Locator:
    return page.get_by_role("navigation", name="Skills").get_by_role("link", name=name)


def test_the_page_and_the_public_card_are_there_for_strangers(visit: Visit) -> None:
    page = visit.go()
    expect(skill(page, "text.echo")).to_be_visible()
    expect(skill(page, "ops.restart")).to_have_count(0)
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("button", name="Sign in")).to_be_visible()


def test_whoever_asks_for_more_is_asked_who_they_are(visit: Visit) -> None:
    for view in ("tasks", "tasks/x", "inbox", "conversations", "conversations/x"):
        with visit.page.expect_response(lambda answer: answer.status == 401):
            page = visit.go(view)
        dialog = asked(page)
        expect(dialog).to_contain_text("The agent wants to know who you are.")
        expect(dialog.get_by_role("option")).to_have_text(
            ["apiKey: API key in the header X-API-Key", "bearer: HTTP bearer"]
        )
        dialog.get_by_role("button", name="Not now").click()
        expect(dialog).to_have_count(0)
        expect(page.get_by_role("alert")).to_contain_text("Sign in first.")


def test_a_stranger_can_not_send(visit: Visit) -> None:
    page = visit.go("skills/text.echo")
    page.get_by_role("textbox", name="text").fill("hello")
    page.get_by_role("button", name="Stream").click()
    asked(page)
    sign_in(page, KEY)
    page.get_by_role("button", name="Stream").click()
    expect(page.get_by_label("Result").get_by_role("status").first).to_have_text("completed")


def test_wrong_credentials_are_told(visit: Visit) -> None:
    page = visit.go()
    for scheme, label, secret in [("apiKey", "API key", "wrong"), ("bearer", "Token", "a.b.c")]:
        page.get_by_role("button", name="Sign in").or_(page.get_by_role("dialog")).first.wait_for()
        sign_in(page, secret, scheme, label)
        expect(asked(page)).to_contain_text("The agent did not accept these credentials.")
        expect(skill(page, "ops.restart")).to_have_count(0)


def test_credentials_that_no_header_can_hold_are_told(visit: Visit) -> None:
    page = visit.go()
    sign_in(page, "no key, but a snowman: ☃")
    expect(asked(page)).to_contain_text("can't be sent")
    expect(page.get_by_text("can't be reached")).to_have_count(0)


@pytest.mark.parametrize(
    ("scheme", "label", "secret"),
    [("apiKey", "API key", KEY), ("bearer", "Token", token("eve", "admin"))],
)
def test_who_signs_in_sees_what_they_may_call(
    visit: Visit, scheme: str, label: str, secret: str
) -> None:
    page = visit.go()
    sign_in(page, secret, scheme, label)
    expect(skill(page, "ops.restart")).to_be_visible()
    expect(page.get_by_text("This is the extended card")).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_somebody_else_sees_what_they_may_call(visit: Visit) -> None:
    page = visit.go()
    sign_in(page, token("bob"), "bearer", "Token")
    expect(page.get_by_text("This is the extended card")).to_be_visible()
    expect(skill(page, "text.echo")).to_be_visible()
    expect(skill(page, "ops.restart")).to_have_count(0)


def test_a_skill_for_the_known_alone_shows_up_where_one_stands(visit: Visit) -> None:
    page = visit.go("skills/ops.restart")
    expect(page.get_by_text("There is no such skill")).to_be_visible()
    sign_in(page, KEY)
    page.get_by_role("button", name="Stream").click()
    expect(page.get_by_role("region", name="Artifact")).to_contain_text("restarted")


def test_the_secret_is_kept_in_this_tab_alone(
    visit: Visit, browser: Browser, agent: str, open_visit: Begin
) -> None:
    page = visit.go()
    sign_in(page, KEY)
    expect(skill(page, "ops.restart")).to_be_visible()
    page.reload()
    expect(skill(page, "ops.restart")).to_be_visible()
    assert KEY in page.evaluate("JSON.stringify({...sessionStorage})")
    assert KEY not in page.evaluate(WHAT_IS_KEPT)
    assert visit.page.context.cookies() == []
    other = page.context.new_page()
    other.goto(f"{agent}/explorer")
    expect(skill(other, "text.echo")).to_be_visible()
    expect(skill(other, "ops.restart")).to_have_count(0)
    assert other.evaluate("sessionStorage.length") == 0


def test_the_secret_is_in_no_request_that_is_copied(visit: Visit) -> None:
    page = visit.go("skills/ops.restart")
    sign_in(page, KEY)
    page.get_by_role("button", name="Stream").click()
    expect(page.get_by_role("region", name="Artifact")).to_be_visible()
    page.get_by_text("Copy the request that was sent").click()
    copied = page.get_by_label("Result").locator("details.copy")
    for form, has in [("curl", "X-API-Key: $A2A_TOKEN"), ("Python", "A2A_TOKEN"), ("JSON", "id")]:
        copied.get_by_role("button", name=form, exact=True).click()
        expect(copied).to_contain_text(has)
        assert KEY not in page.evaluate(WHAT_IS_KEPT)
    page.get_by_role("link", name="Requests").click()
    expect(page.get_by_text("SendStreamingMessage").first).to_be_visible()
    assert KEY not in page.evaluate(WHAT_IS_KEPT)


def test_who_signs_out_leaves_nothing(visit: Visit) -> None:
    page = visit.go("skills/ops.restart")
    sign_in(page, KEY)
    page.get_by_role("button", name="Stream").click()
    page.get_by_label("Result").get_by_role("link", name="Task").click()
    expect(page.get_by_role("region", name="Artifact")).to_contain_text("restarted")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("button", name="Sign in")).to_be_visible()
    expect(skill(page, "text.echo")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0
    kept = page.evaluate(WHAT_IS_KEPT)
    assert not [each for each in (KEY, "ops.restart", "restarted", "/tasks/") if each in kept]
    page.get_by_role("link", name="Requests").click()
    expect(page.get_by_text("Nothing was asked yet but the card.")).to_be_visible()


def test_a_token_that_runs_out_is_asked_for_again_and_nothing_is_lost(visit: Visit) -> None:
    page = visit.go("skills/text.echo")
    sign_in(page, token("ada", "admin"), "bearer", "Token")
    expect(skill(page, "ops.restart")).to_be_visible()
    field = page.get_by_role("textbox", name="text")
    field.fill("a long thought")
    lapsing.over = True
    try:
        page.get_by_role("button", name="Stream").click()
        expect(asked(page)).to_contain_text("The agent did not accept these credentials.")
    finally:
        lapsing.over = False
    sign_in(page, token("ada", "admin"), "bearer", "Token")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(field).to_have_value("a long thought")
    page.get_by_role("button", name="Stream").click()
    expect(page.get_by_role("region", name="Artifact")).to_contain_text("a long thought")


def test_escape_puts_the_sign_in_off(visit: Visit) -> None:
    page = visit.go()
    page.get_by_role("button", name="Sign in").click()
    expect(asked(page).get_by_label("API key")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("button", name="Sign in")).to_be_focused()


def told(request: Request) -> str:
    """Who somebody says they are."""
    return request.headers.get("authorization", "") + request.query_params.get("api_key", "")


DECLARED = {
    "basic": {"httpAuthSecurityScheme": {"scheme": "Basic", "description": "Your staff account"}},
    "query": {"apiKeySecurityScheme": {"location": "query", "name": "api_key"}},
    "cookie": {"apiKeySecurityScheme": {"location": "cookie", "name": "session"}},
    "badge": {"mtlsSecurityScheme": {}},
}


@pytest.mark.parametrize(
    ("scheme", "label", "secret", "sent"),
    [
        ("basic", "name:password", "ada:wör", "Basic YWRhOnfDtnI="),
        ("query", "API key", "k?&=#ü", "k?&=#ü"),
    ],
)
def test_other_ways_to_sign_in_are_as_the_card_declares_them(
    open_visit: Begin, scheme: str, label: str, secret: str, sent: str
) -> None:
    fake = Fake(card_of(securitySchemes=DECLARED))
    fake.refuses = lambda request: None if told(request) == sent else refusal(401)
    with running(fake.app()) as url:
        visit = open_visit(url)
        page = visit.go("tasks")
        expect(asked(page)).to_contain_text("wants to know")
        sign_in(page, "wrong:er", scheme, label)
        expect(asked(page)).to_contain_text("did not accept")
        sign_in(page, secret, scheme, label)
        expect(page.get_by_text("There are no tasks yet.")).to_be_visible()
        page.get_by_text("Copy this request").click()
        expect(page.get_by_text("curl -s")).to_contain_text("$A2A_TOKEN")
        kept = page.evaluate(WHAT_IS_KEPT)
        assert secret not in kept
        assert sent not in kept


def test_what_a_page_can_not_present_is_told(open_visit: Begin) -> None:
    with running(Fake(card_of(securitySchemes=DECLARED)).app()) as url:
        page = open_visit(url).go()
        page.get_by_role("button", name="Sign in").click()
        dialog = asked(page)
        expect(dialog).to_contain_text("Your staff account")
        for scheme, why in [("cookie", "the agent has to"), ("badge", "no way to present it")]:
            dialog.get_by_label("How").select_option(scheme)
            expect(dialog).to_contain_text(why)
            expect(dialog.get_by_role("button", name="Sign in")).to_be_disabled()


def test_a_card_that_is_refused_asks_for_a_token(open_visit: Begin) -> None:
    with running(Fake(refusal(401)).app()) as url:
        page = open_visit(url).go()
        expect(asked(page).get_by_role("option")).to_have_text("bearer: HTTP bearer")
        asked(page).get_by_role("button", name="Not now").click()
        expect(page.get_by_role("heading")).to_have_text("The agent does not show its card")


REFUSALS = [
    (refusal(403), "You may not do this."),
    (refusal(429, **{"Retry-After": "7"}), "Try again in 7.0 s."),
    (refusal(429), "The agent is busy."),
    (refusal(500), "The agent did not answer as expected."),
    (refusal(503), "The agent is busy."),
]


def test_refusals_are_told_for_people(open_visit: Begin) -> None:
    fake = Fake()
    with running(fake.app()) as url:
        page = open_visit(url).go("tasks")
        for answer, told in REFUSALS:
            fake.refuses = partial(always_refused, answer)
            page.get_by_role("button", name="Refresh").click()
            expect(page.get_by_role("alert")).to_contain_text(told)


def always_refused(answer: Response, request: Request) -> Response:
    return answer


def test_too_much_is_told_with_the_time_to_wait(open_visit: Begin) -> None:
    modules = registry_of({"work": Does(give_back)})
    with running(modules, explorer=True, rate_limit="1/hour") as url:
        page = open_visit(url).go("tasks")
        alert = page.get_by_role("alert")
        expect(alert).to_contain_text("The agent is busy.")
        expect(alert).to_contain_text("Try again in")


def test_without_authentication_there_is_nothing_to_sign_in_to(browser: Browser) -> None:
    with running(examples(), explorer=True) as url, visiting(browser, url) as visit:
        page = visit.go()
        expect(page.get_by_text("Open to everybody")).to_be_visible()
        for view in ("tasks", "inbox", "skills/text.stats"):
            visit.go(view)
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            expect(page.get_by_text("Sign in")).to_have_count(0)
            expect(page.get_by_role("dialog")).to_have_count(0)
