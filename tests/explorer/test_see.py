"""The views of the agent and its skills, made from the card."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from apcore_a2a_auth import APIKeyAuthenticator
from playwright.sync_api import Locator, Page, Route, expect

from tests.serving import running

from . import forms
from .browsing import PHONE, Visit

OpenVisit = Callable[..., Visit]
CARD = "**/.well-known/agent-card.json"


@pytest.fixture(scope="module")
def agent() -> Iterator[str]:
    """Serve an agent with a version, a description and skills of every kind."""
    details: dict[str, Any] = {"version": "4.5.6", "description": "For *tests* only."}
    with running(
        forms.registry(), explorer=True, name="Test agent", push_notifications=True, **details
    ) as url:
        yield url


def fact(page: Page, term: str) -> Locator:
    """Return the definition of *term* in the agent's facts."""
    facts = page.get_by_role("definition")
    return facts.nth(page.get_by_role("term").all_inner_texts().index(term))


def listed_skills(page: Page) -> Locator:
    """Return the skills in the list."""
    return page.get_by_role("navigation", name="Skills").get_by_role("listitem")


def open_details(page: Page, summary: str) -> Locator:
    """Open the details with this summary."""
    details = page.get_by_role("group").filter(has=page.get_by_text(summary, exact=True))
    details.get_by_text(summary, exact=True).click()
    return details


def test_the_agents_card_is_shown(visit: Visit) -> None:
    page = visit.go()
    expect(page).to_have_title("Test agent · A2A explorer")
    expect(page.get_by_role("heading", name="Test agent")).to_be_visible()
    expect(page.get_by_role("emphasis").filter(has_text="tests")).to_be_visible()
    expect(fact(page, "Version")).to_have_text("4.5.6")
    expect(fact(page, "URL")).to_have_text(f"{visit.agent}/")
    interfaces = fact(page, "Interfaces").get_by_role("listitem")
    expect(interfaces).to_have_text(
        ["JSONRPC 1.0", "JSONRPC 0.3", "HTTP+JSON 1.0", "HTTP+JSON 0.3"]
    )
    expect(fact(page, "Capabilities")).to_have_text("streamingpush notificationsno extended card")
    expect(fact(page, "Media types")).to_have_text(
        "Input: text/plain, application/json; output: application/json"
    )
    expect(fact(page, "Authentication")).to_contain_text("declares no security schemes")
    expect(fact(page, "Extensions")).to_contain_text("/extensions/skills/v1")


def test_the_cards_security_schemes_are_shown(open_visit: OpenVisit) -> None:
    keys = APIKeyAuthenticator({"a key of some length": "ada"}, header="X-Pass")
    with running(forms.registry(), explorer=True, auth=keys) as agent:
        page = open_visit(agent).go()
        security = fact_when_shown(page, "Authentication")
        expect(security).to_contain_text("API key (header X-Pass)")
        expect(security).to_contain_text("required")


def fact_when_shown(page: Page, term: str) -> Locator:
    page.get_by_role("term").filter(has_text=term).wait_for()
    return fact(page, term)


def test_the_whole_card_is_shown_as_a_tree(visit: Visit) -> None:
    page = visit.go()
    card = httpx.get(f"{visit.agent}/.well-known/agent-card.json", trust_env=False).json()
    tree = open_details(page, "Agent Card as JSON")
    for name in card:
        expect(tree.get_by_text(f"{name}:", exact=True)).to_be_visible()
    expect(tree.get_by_text('"4.5.6"')).to_be_visible()
    tree.get_by_role("button", name="skills:").click()
    tree.get_by_role("button", name=re.compile("^0:")).click()
    expect(tree.get_by_text(json.dumps(card["skills"][0]["id"]))).to_be_visible()


SEARCHES = {
    "csv.sum": ["csv.summary"],  # its id
    "says FORM": ["form.says"],  # its name
    "whole cents": ["orders.price"],  # its description
    "whole parrots": [],  # no skill has both words
    "parrot": ["form.says"],  # its tag
}


def test_skills_are_searched_by_id_name_description_and_tag(visit: Visit) -> None:
    page = visit.go()
    listed_skills(page).first.wait_for()
    page.keyboard.press("/")
    field = page.get_by_role("searchbox", name="Search skills")
    expect(field).to_be_focused()
    expect(field).to_have_value("")  # without the slash
    for words, matches in SEARCHES.items():
        field.fill(words)
        expect(listed_skills(page)).to_have_count(len(matches))
        for name in matches:
            expect(listed_skills(page).filter(has_text=name)).to_be_visible()
        expect(page.get_by_text("No skills match your search.")).to_be_visible(visible=not matches)
        number = "1 skill" if len(matches) == 1 else f"{len(matches)} skills"
        expect(page.get_by_text(f"{number} found")).to_be_attached()


def test_a_slash_typed_into_a_field_stays_there(visit: Visit) -> None:
    page = visit.go("skills/form.says")
    field = page.get_by_role("textbox", name="Text required")
    field.focus()
    page.keyboard.type("either/or")
    expect(field).to_have_value("either/or")


def test_destructive_skills_stand_out_in_the_list_and_on_their_page(visit: Visit) -> None:
    page = visit.go()
    row = listed_skills(page).filter(has_text="files.delete")
    expect(row.get_by_text("destructive", exact=True)).to_be_visible()
    expect(row.get_by_text("needs approval", exact=True)).to_be_visible()
    harmless = listed_skills(page).filter(has_text="csv.summary")
    expect(harmless).to_contain_text("Csv Summarycsv.summarySummarize a CSV table")
    expect(harmless.get_by_text("read-only")).to_have_count(0)
    colours = {
        badge: colour_of(row.get_by_text(badge, exact=True))
        for badge in ("destructive", "needs approval")
    }
    row.get_by_role("link").click()
    main = page.get_by_role("article")
    expect(main.get_by_role("heading", level=1)).to_have_text("Files Delete")
    for badge, colour in colours.items():
        assert colour_of(main.get_by_text(badge, exact=True).first) == colour
    listed_skills(page).filter(has_text="csv.summary").get_by_role("link").click()
    plain = colour_of(main.get_by_text("read-only", exact=True))
    assert len({plain, *colours.values()}) == 3


def colour_of(badge: Locator) -> str:
    """Return the background colour of a badge."""
    colour: str = badge.evaluate("element => getComputedStyle(element).backgroundColor")
    return colour


def test_a_skill_is_shown_with_its_description_tags_and_annotations(visit: Visit) -> None:
    page = visit.go("skills/form.says")
    main = page.get_by_role("article")
    expect(main.get_by_role("heading", name="Form Says")).to_be_visible()
    expect(main.get_by_text("form.says", exact=True)).to_be_visible()
    expect(main.get_by_text("Repeats its text")).to_be_visible()
    expect(main.get_by_text("parrot", exact=True)).to_be_visible()
    expect(main.get_by_text("Input: application/json, text/plain; output")).to_be_visible()
    for badge in ("open world", "cacheable"):
        expect(main.get_by_text(badge, exact=True)).to_be_visible()
    for badge in ("destructive", "read-only", "streaming"):
        expect(main.get_by_text(badge, exact=True)).to_have_count(0)


def test_a_skills_documentation_is_shown_as_markdown(visit: Visit) -> None:
    main = visit.go("skills/form.says").get_by_role("article")
    expect(main.get_by_role("heading", name="How to speak")).to_be_visible()
    expect(main.get_by_role("strong").filter(has_text="anything")).to_be_visible()


@pytest.mark.parametrize(("title", "member"), [("Input schema", "text"), ("Output schema", "said")])
def test_a_skills_schemas_are_shown_as_a_table_and_as_json(
    visit: Visit, title: str, member: str
) -> None:
    part = open_details(visit.go("skills/form.says"), title)
    cells = part.get_by_role("row", name=member).get_by_role("cell")
    expect(cells).to_have_text(["string", "required", "", "", ""])
    part.get_by_role("button", name="JSON").click()
    shown = json.loads(part.get_by_text('"properties"').inner_text())
    assert shown == forms.schema([member], **{member: {"type": "string", "title": member.title()}})


@pytest.mark.parametrize("options", [{}, {"viewport": PHONE}], ids=["desk", "phone"])
def test_a_schema_has_a_row_for_each_member_with_nested_ones_below(
    open_visit: OpenVisit, agent: str, options: dict[str, Any]
) -> None:
    visit = open_visit(agent, **options)
    part = open_details(visit.go("skills/form.kinds"), "Input schema")
    expect(part.get_by_role("row", name="count")).to_contain_text("integerrequired≥ 1, ≤ 9")
    expect(part.get_by_role("row", name="speed")).to_contain_text('"slow" | "fast""fast"')
    expect(part.get_by_role("row", name="age")).to_contain_text("integer or nullnull")
    assert visit.accessibility_violations() == []
    part = open_details(visit.go("skills/orders.price"), "Input schema")
    names = part.get_by_role("rowheader").all_inner_texts()
    assert names[names.index("lines") :][:3] == ["lines", "[]", "sku"]
    assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_skills_examples_are_shown_with_their_outputs(visit: Visit) -> None:
    part = open_details(visit.go("skills/orders.price"), "Examples")
    expect(part.get_by_role("heading", name="A member orders tea")).to_be_visible()
    expect(part.get_by_text('"tea-green"')).to_have_count(2)
    expect(part.get_by_text('"total_cents": 3132')).to_be_visible()


def test_an_unknown_skill_is_reported_by_name(visit: Visit) -> None:
    page = visit.go("skills/no.such%2Fskill")
    expect(page.get_by_role("heading", name="Skill not found")).to_be_visible()
    expect(page.get_by_text("The Agent Card does not list no.such/skill.")).to_be_visible()
    expect(listed_skills(page).first).to_be_visible()


def test_an_unreachable_agent_is_reported_and_can_be_tried_again(visit: Visit) -> None:
    visit.page.route(CARD, lambda route: route.abort())
    page = visit.go("skills/form.says")
    expect(page.get_by_role("heading", name="The Agent Card can't be loaded")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_text(
        "The agent can't be reached. Check that it is running."
    )
    with page.expect_event("requestfailed"):
        page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.unroute(CARD)
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("heading", name="Form Says")).to_be_visible()


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (503, "away", r"HTTP 503: .+"),
        (200, "<html>", r"The Agent Card is not a JSON object\. .+"),
        (200, "[]", r"The Agent Card is not a JSON object\. .+"),
    ],
)
def test_a_missing_or_invalid_card_is_reported(
    visit: Visit, status: int, body: str, message: str
) -> None:
    def answer(route: Route) -> None:
        route.fulfill(status=status, body=body)

    visit.page.route(CARD, answer)
    expect(visit.go().get_by_role("alert")).to_have_text(re.compile(f"^{message}$"))


def test_the_views_of_agent_and_skill_are_accessible(visit: Visit) -> None:
    visit.go("skills/text.stats").get_by_role("heading", name="Try it").wait_for()
    assert visit.accessibility_violations() == []
    visit.go().get_by_role("heading", name="Test agent").wait_for()
    assert visit.accessibility_violations() == []
