"""Signing in: credentials reach only the agent."""

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

from tests.server.inloop import ActionModule, always, echo, registry_of
from tests.server.modules import Echo
from tests.serving import running

from .agent import registry as examples
from .browsing import Visit, visiting
from .fake import FakeAgent, card_of, refusal

KEY = "ada-key-S3CRET"
SECRET = "a secret that is long enough for HS256"
EXPOSED_STATE = """() => JSON.stringify([
    [...document.documentElement.querySelectorAll("*:not(script, style)")].map((element) => [
        [...element.attributes].map(({ name, value }) => [name, value]),
        [...element.childNodes].filter(({ nodeType }) => nodeType === 3).map(({ data }) => data),
    ]),
    [...document.querySelectorAll("input, textarea")].map((field) => field.value),
    {...localStorage}, document.cookie, location.href, history.state, document.title,
])"""

OpenVisit = Callable[..., Visit]


class ExpiringAuthenticator:
    """Authenticates by tokens, until a test makes all of them expire."""

    expired = False

    def __init__(self) -> None:
        self.tokens = JWTAuthenticator(key=SECRET)

    async def authenticate(self, headers: Mapping[str, str]) -> Identity | None:
        return None if self.expired else await self.tokens.authenticate(headers)

    def security_schemes(self) -> Any:
        return self.tokens.security_schemes()


expiring = ExpiringAuthenticator()


@pytest.fixture(scope="module")
def agent() -> Iterator[str]:
    """Serve an agent that accepts the key of the admin ada, and any user's token."""
    modules = {"text.echo": Echo(), "ops.restart": always({"restarted": "all"})}
    rules = [
        ACLRule(["@external"], ["text.*"], "allow"),
        ACLRule(["@external"], ["ops.*"], "allow", conditions={"roles": ["admin"]}),
    ]
    keys = APIKeyAuthenticator({KEY: Identity("ada", roles=("admin",))})
    auth = ChainAuthenticator(keys, expiring)
    acl = ACL(rules, default_effect="deny")
    with (
        closing(Executor(registry_of(modules), acl=acl)) as executor,
        running(executor, explorer=True, auth=auth) as url,
    ):
        yield url


def token(name: str = "bob", *roles: str) -> str:
    claims = {"sub": name, "roles": roles, "exp": time.time() + 3600}
    return jwt.encode(claims, SECRET, "HS256")


def sign_in_dialog(page: Page) -> Locator:
    """Wait for the sign-in dialog, and return it."""
    dialog = page.get_by_role("dialog", name="Sign in")
    expect(dialog).to_be_visible()
    return dialog


def sign_in(page: Page, secret: str, scheme: str = "", label: str = "API key") -> None:
    """Open the sign-in dialog unless it is open; fill it in and submit it."""
    dialog = page.get_by_role("dialog", name="Sign in")
    if not dialog.is_visible():
        page.get_by_role("button", name="Sign in").first.click()
    if scheme:
        dialog.get_by_label("Authentication scheme").select_option(scheme)
    dialog.get_by_label(label, exact=True).fill(secret)
    dialog.get_by_role("button", name="Sign in").click()


def skill_link(page: Page, name: str) -> Locator:
    return page.get_by_role("navigation", name="Skills").get_by_role("link", name=name)


def test_anonymous_users_see_the_page_and_the_public_card(visit: Visit) -> None:
    page = visit.go()
    expect(skill_link(page, "text.echo")).to_be_visible()
    expect(skill_link(page, "ops.restart")).to_have_count(0)
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("button", name="Sign in")).to_be_visible()


def test_views_that_need_authentication_ask_to_sign_in(visit: Visit) -> None:
    for view in ("tasks", "tasks/x", "inbox", "conversations", "conversations/x"):
        with visit.page.expect_response(lambda answer: answer.status == 401):
            page = visit.go(view)
        dialog = sign_in_dialog(page)
        expect(dialog).to_contain_text("The agent requires authentication.")
        expect(dialog.get_by_role("option")).to_have_text(
            ["apiKey: API key (header X-API-Key)", "bearer: HTTP bearer"]
        )
        dialog.get_by_role("button", name="Not now").click()
        expect(dialog).to_have_count(0)
        expect(page.get_by_role("alert")).to_contain_text("Sign in to continue.")


def test_sending_asks_anonymous_users_to_sign_in(visit: Visit) -> None:
    page = visit.go("skills/text.echo")
    page.get_by_role("textbox", name="text").fill("hello")
    page.get_by_role("button", name="Run", exact=True).click()
    sign_in_dialog(page)
    sign_in(page, KEY)  # the page then sends the message again
    expect(page.get_by_label("Result").get_by_role("status").first).to_have_text("completed")


def test_wrong_credentials_are_reported(visit: Visit) -> None:
    page = visit.go()
    for scheme, label, secret in [("apiKey", "API key", "wrong"), ("bearer", "Token", "a.b.c")]:
        page.get_by_role("button", name="Sign in").or_(page.get_by_role("dialog")).first.wait_for()
        sign_in(page, secret, scheme, label)
        expect(sign_in_dialog(page)).to_contain_text("The agent rejected these credentials.")
        expect(skill_link(page, "ops.restart")).to_have_count(0)


def test_credentials_that_no_header_can_hold_are_reported(visit: Visit) -> None:
    page = visit.go()
    sign_in(page, "no key, but a snowman: ☃")
    expect(sign_in_dialog(page)).to_contain_text("can't be sent")
    expect(page.get_by_text("can't be reached")).to_have_count(0)


@pytest.mark.parametrize(
    ("scheme", "label", "secret"),
    [("apiKey", "API key", KEY), ("bearer", "Token", token("eve", "admin"))],
)
def test_signed_in_users_see_the_skills_that_they_may_call(
    visit: Visit, scheme: str, label: str, secret: str
) -> None:
    page = visit.go()
    sign_in(page, secret, scheme, label)
    expect(skill_link(page, "ops.restart")).to_be_visible()
    expect(page.get_by_text("This is the extended Agent Card")).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_users_do_not_see_skills_that_they_may_not_call(visit: Visit) -> None:
    page = visit.go()
    sign_in(page, token("bob"), "bearer", "Token")
    expect(page.get_by_text("This is the extended Agent Card")).to_be_visible()
    expect(skill_link(page, "text.echo")).to_be_visible()
    expect(skill_link(page, "ops.restart")).to_have_count(0)


def test_signing_in_on_a_hidden_skills_page_shows_the_skill(visit: Visit) -> None:
    page = visit.go("skills/ops.restart")
    expect(page.get_by_text("Skill not found")).to_be_visible()
    sign_in(page, KEY)
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_role("region", name="Artifact")).to_contain_text("restarted")


def test_credentials_are_kept_in_this_tab_only(visit: Visit, agent: str) -> None:
    page = visit.go()
    sign_in(page, KEY)
    expect(skill_link(page, "ops.restart")).to_be_visible()
    page.reload()
    expect(skill_link(page, "ops.restart")).to_be_visible()
    assert KEY in page.evaluate("JSON.stringify({...sessionStorage})")
    assert KEY not in page.evaluate(EXPOSED_STATE)
    assert visit.page.context.cookies() == []
    other = page.context.new_page()
    other.goto(f"{agent}/explorer")
    expect(skill_link(other, "text.echo")).to_be_visible()
    expect(skill_link(other, "ops.restart")).to_have_count(0)
    assert other.evaluate("sessionStorage.length") == 0


def test_copied_requests_contain_no_credentials(visit: Visit) -> None:
    page = visit.go("skills/ops.restart")
    sign_in(page, KEY)
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_role("region", name="Artifact")).to_be_visible()
    page.get_by_text("Copy the sent request").click()
    copy_box = page.get_by_label("Result").locator("details.copy")
    for form, expected in [
        ("curl", "X-API-Key: $A2A_TOKEN"),
        ("Python", "A2A_TOKEN"),
        ("JSON", "id"),
    ]:
        copy_box.get_by_role("button", name=form, exact=True).click()
        expect(copy_box).to_contain_text(expected)
        assert KEY not in page.evaluate(EXPOSED_STATE)
    page.get_by_role("link", name="Requests").click()
    row = page.get_by_role("listitem").filter(has_text="SendStreamingMessage")
    row.get_by_text("Request and response").click()
    row.get_by_role("button", name="Request", exact=True).click()
    expect(row.locator(".wire")).to_contain_text("X-API-Key: $A2A_TOKEN")
    assert KEY not in page.evaluate(EXPOSED_STATE)


def test_signing_out_removes_credentials_and_results(visit: Visit) -> None:
    page = visit.go("skills/ops.restart")
    sign_in(page, KEY)
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_label("Result").get_by_role("link", name="Task").click()
    expect(page.get_by_role("region", name="Artifact")).to_contain_text("restarted")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("button", name="Sign in")).to_be_visible()
    expect(skill_link(page, "text.echo")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0
    exposed = page.evaluate(EXPOSED_STATE)
    assert not [text for text in (KEY, "ops.restart", "restarted", "/tasks/") if text in exposed]
    page.get_by_role("link", name="Requests").click()
    expect(page.get_by_text("No requests yet, except the one for the Agent Card.")).to_be_visible()


def test_an_expired_token_asks_to_sign_in_and_keeps_the_input(visit: Visit) -> None:
    page = visit.go("skills/text.echo")
    sign_in(page, token("ada", "admin"), "bearer", "Token")
    expect(skill_link(page, "ops.restart")).to_be_visible()
    field = page.get_by_role("textbox", name="text")
    field.fill("a long thought")
    expiring.expired = True
    try:
        page.get_by_role("button", name="Run", exact=True).click()
        expect(sign_in_dialog(page)).to_contain_text("The agent rejected these credentials.")
    finally:
        expiring.expired = False
    sign_in(page, token("ada", "admin"), "bearer", "Token")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(field).to_have_value("a long thought")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_role("region", name="Artifact")).to_contain_text("a long thought")


def test_escape_closes_the_sign_in_dialog(visit: Visit) -> None:
    page = visit.go()
    page.get_by_role("button", name="Sign in").click()
    expect(sign_in_dialog(page).get_by_label("API key")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("button", name="Sign in")).to_be_focused()


def credentials(request: Request) -> str:
    """Return the credentials in a request's header or query."""
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
        ("basic", "Username and password (name:password)", "ada:wör", "Basic YWRhOnfDtnI="),
        ("query", "API key", "k?&=#ü", "k?&=#ü"),
    ],
)
def test_credentials_are_sent_as_the_card_declares(
    open_visit: OpenVisit, scheme: str, label: str, secret: str, sent: str
) -> None:
    fake = FakeAgent(card_of(securitySchemes=DECLARED))
    fake.refuses = lambda request: None if credentials(request) == sent else refusal(401)
    with running(fake.app()) as url:
        visit = open_visit(url)
        page = visit.go("tasks")
        expect(sign_in_dialog(page)).to_contain_text("requires authentication")
        sign_in(page, "wrong:er", scheme, label)
        expect(sign_in_dialog(page)).to_contain_text("rejected these credentials")
        sign_in(page, secret, scheme, label)
        expect(page.get_by_text("No tasks yet.")).to_be_visible()
        page.get_by_text("Copy this request").click()
        expect(page.get_by_text("curl -s")).to_contain_text("$A2A_TOKEN")
        exposed = page.evaluate(EXPOSED_STATE)
        assert secret not in exposed
        assert sent not in exposed


def test_credentials_that_a_page_cannot_send_are_explained(open_visit: OpenVisit) -> None:
    with running(FakeAgent(card_of(securitySchemes=DECLARED)).app()) as url:
        page = open_visit(url).go()
        page.get_by_role("button", name="Sign in").click()
        dialog = sign_in_dialog(page)
        expect(dialog).to_contain_text("Your staff account")
        for scheme, reason in [
            ("cookie", "can't set cookies"),
            ("badge", "install a client certificate"),
        ]:
            dialog.get_by_label("Authentication scheme").select_option(scheme)
            expect(dialog).to_contain_text(reason)
            expect(dialog.get_by_role("button", name="Sign in")).to_be_disabled()


def test_a_refused_card_asks_for_a_token(open_visit: OpenVisit) -> None:
    with running(FakeAgent(refusal(401)).app()) as url:
        page = open_visit(url).go()
        expect(sign_in_dialog(page).get_by_role("option")).to_have_text("bearer: HTTP bearer")
        sign_in_dialog(page).get_by_role("button", name="Not now").click()
        expect(page.get_by_role("heading")).to_have_text("The Agent Card can't be loaded")


REFUSALS = [
    (refusal(403), "You don't have permission to do this."),
    (refusal(429, **{"Retry-After": "7"}), "Try again in 7.0 s."),
    (refusal(429), "The agent is busy."),
    (refusal(429), "Try again later."),
    (refusal(500), "The agent sent an unexpected response."),
    (refusal(503), "The agent is busy."),
]


def test_refusals_are_reported_in_plain_words(open_visit: OpenVisit) -> None:
    fake = FakeAgent()
    with running(fake.app()) as url:
        page = open_visit(url).go("tasks")
        for answer, message in REFUSALS:
            fake.refuses = partial(refuse_with, answer)
            page.get_by_role("button", name="Refresh").click()
            expect(page.get_by_role("alert")).to_contain_text(message)


def refuse_with(answer: Response, request: Request) -> Response:
    return answer


def test_a_rate_limit_is_reported_with_the_time_to_wait(open_visit: OpenVisit) -> None:
    modules = registry_of({"work": ActionModule(echo)})
    with running(modules, explorer=True, rate_limit="1/hour") as url:
        page = open_visit(url).go("tasks")
        alert = page.get_by_role("alert")
        expect(alert).to_contain_text("The agent is busy.")
        expect(alert).to_contain_text("Try again in")


def test_without_authentication_the_page_does_not_offer_to_sign_in(browser: Browser) -> None:
    with running(examples(), explorer=True) as url, visiting(browser, url) as visit:
        page = visit.go()
        expect(page.get_by_text("the Agent Card declares no security schemes")).to_be_visible()
        for view in ("tasks", "inbox", "skills/text.stats"):
            visit.go(view)
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            expect(page.get_by_text("Sign in")).to_have_count(0)
            expect(page.get_by_role("dialog")).to_have_count(0)
