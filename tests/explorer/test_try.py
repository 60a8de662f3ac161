"""Try a skill: a form, its JSON, text or files; and what comes of sending them."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import FilePayload, Locator, Page, Route, expect

from tests.serving import running

from . import forms
from .browsing import Visit
from .posts import Wire

LARGE = 2**53 + 1
BEGUN = re.compile("^(submitted|working)$")
CTRL_ENTER = "Control+Enter"
TOLD = "So large a number is not kept to its last digit"


@pytest.fixture(scope="module")
def agent() -> Iterator[str]:
    """An agent with forms of all kinds."""
    with running(forms.registry(), explorer=True, name="Test agent") as url:
        yield url


class Desk:
    """A skill's view, and the requests that its page sends."""

    def __init__(self, visit: Visit, skill: str) -> None:
        self.wire = Wire(visit.page)
        self.page = visit.go(f"skills/{skill}")
        self.area = self.page.get_by_role("region", name="Try it")
        self.json = self.area.get_by_role("textbox", name="JSON", exact=True)
        self.result = self.page.get_by_role("region", name="Result")
        self.area.wait_for()

    def field(self, label: str, role: Any = "textbox") -> Locator:
        """A field of the form, by its label and the mark of what is required."""
        name = re.compile(f"^{re.escape(label)}( required)?$")
        return self.area.get_by_role(role, name=name)

    def group(self, label: str) -> Locator:
        """What stands together in the form."""
        name = re.compile(f"^{re.escape(label)}( required)?$")
        return self.area.get_by_role("group", name=name)

    def press(self, button: str) -> None:
        self.area.get_by_role("button", name=button, exact=True).click()

    def send(
        self, button: str = "Send and wait", state: str | re.Pattern[str] = "completed"
    ) -> None:
        """Send, and wait for the state that comes of it."""
        self.press(button)
        expect(self.result.get_by_role("status").first).to_have_text(state)

    def shows(self, *leaves: str) -> None:
        """Whether the result has these lines."""
        for leaf in leaves:
            expect(self.result.get_by_text(leaf, exact=True).first).to_be_visible()

    def expect_json(self, data: Any) -> None:
        """What the editor shows when the form has changed."""
        expect(self.json).to_have_value(json.dumps(data, indent=2))


def wrong(field: Locator) -> Locator:
    """What is told at a field."""
    return field.page.locator(f"[id='{field.get_attribute('id')}__error']")


def test_fields_of_every_kind_make_the_input(visit: Visit) -> None:
    desk = Desk(visit, "form.kinds")
    desk.field("Code").fill("ABC")
    desk.field("Count", "spinbutton").fill("3")
    desk.field("Share", "spinbutton").fill("0.25")
    desk.field("Loud", "checkbox").check()
    desk.field("Colour", "combobox").select_option("green")
    desk.field("Day").fill("2024-02-29")
    desk.field("Mail").fill("ada@example.com")
    desk.field("Site").fill("https://example.com/")
    desk.field("Nick").fill("Ada")
    desk.field("Age", "spinbutton").fill("36")
    desk.send()
    desk.shows('"ABC"', '"green"', '"2024-02-29"', "0.25", "true", "36")
    assert desk.wire.data() == {
        **{"code": "ABC", "count": 3, "share": 0.25, "loud": True, "colour": "green"},
        **{"day": "2024-02-29", "mail": "ada@example.com", "site": "https://example.com/"},
        **{"nick": "Ada", "age": 36, "speed": "fast"},
    }


def test_what_is_required_is_marked_and_comes_first_and_defaults_are_there(visit: Visit) -> None:
    desk = Desk(visit, "form.kinds")
    labels = desk.area.get_by_text(re.compile(r"^(Code|Count|Age|Speed)( required)?$"))
    expect(labels).to_have_text(["Code required", "Count required", "Age", "Speed"])
    expect(desk.field("Speed", "combobox")).to_have_value(re.compile("."))
    desk.expect_json({"speed": "fast"})
    desk.press("Send and wait")
    expect(wrong(desk.field("Code"))).to_have_text("This is required.")
    expect(wrong(desk.field("Count", "spinbutton"))).to_have_text("This is required.")
    expect(desk.field("Code")).to_be_focused()
    assert desk.wire.sent() == []


FORBIDDEN = [
    ("Code", "textbox", "abc", "This does not match ^[A-Z]{3}$."),
    ("Count", "spinbutton", "0", "0 is less than 1."),
    ("Count", "spinbutton", "10", "10 is greater than 9."),
    ("Count", "spinbutton", "2.5", "This is no integer."),
    ("Share", "spinbutton", "1", "1 is greater than or equal to 1."),
    ("Mail", "textbox", "ada", 'String does not match format "email".'),
    ("Site", "textbox", "ada", 'String does not match format "uri".'),
    ("Nick", "textbox", "too long", "String is too long (8 > 4)."),
    ("Age", "spinbutton", "0.5", "This is no integer."),
]


def test_what_the_schema_forbids_is_told_at_its_field_before_it_is_sent(visit: Visit) -> None:
    desk = Desk(visit, "form.kinds")
    for label, role, value, told in FORBIDDEN:
        desk.json.fill('{"code": "ABC", "count": 3}')
        field = desk.field(label, role)
        field.fill(value)
        desk.press("Stream")
        expect(wrong(field)).to_have_text(told)
        expect(desk.area.get_by_role("alert")).to_contain_text("Not sent. The skill's schema")
        assert desk.wire.sent() == []
        field.fill({"Code": "XYZ", "Count": "4"}.get(label, ""))
        expect(wrong(field)).to_have_count(0)
    desk.send()


def test_a_member_that_the_form_does_not_have_is_told_of_too(visit: Visit) -> None:
    desk = Desk(visit, "form.kinds")
    desk.json.fill('{"code": "ABC", "count": 3, "bogus": 1}')
    desk.press("Send and wait")
    alert = desk.area.get_by_role("alert")
    expect(alert).to_contain_text("bogus The skill knows no such member.")
    assert desk.wire.sent() == []


def test_what_the_schema_forbids_can_be_sent_all_the_same_in_the_way_that_was_wanted(
    visit: Visit,
) -> None:
    desk = Desk(visit, "form.kinds")
    desk.json.fill('{"code": "abc", "count": 12}')
    desk.press("Send without waiting")
    desk.send("Send it all the same", "refused")
    (params,) = desk.wire.sent()
    assert params["configuration"] == {"returnImmediately": True}
    expect(desk.result.get_by_role("alert")).to_contain_text("The agent refused the input.")
    expect(wrong(desk.field("Code"))).to_have_text("Invalid value (pattern)")
    expect(wrong(desk.field("Count", "spinbutton"))).to_have_text("Invalid value (maximum)")


def test_an_emptied_field_is_not_sent(visit: Visit) -> None:
    desk = Desk(visit, "form.nested")
    desk.press("Two teas")
    zip_code = desk.field("Zip")
    zip_code.fill("N1")
    expect(desk.json).to_have_value(re.compile('"zip": "N1"'))
    zip_code.fill("")
    desk.send()
    assert "zip" not in desk.wire.data()["customer"]["address"]


def test_objects_in_objects_and_arrays_of_them_are_filled_in(visit: Visit) -> None:
    desk = Desk(visit, "form.nested")
    customer = desk.group("Person (customer)")
    customer.get_by_label("Name").fill("Ada")
    customer.get_by_role("group", name="Address").get_by_label("City").fill("London")
    lines, notes = desk.group("Lines"), desk.group("Notes")
    for sku in ("tea", "mug", "jam"):
        lines.get_by_role("button", name="Add").click()
        lines.get_by_label("Sku").last.fill(sku)
    notes.get_by_role("button", name="Add").click()
    notes.get_by_role("textbox").fill("Thanks")
    lines.get_by_role("button", name="Move up").last.click()
    lines.get_by_role("button", name="Remove").first.click()
    lines.get_by_label("Quantity").last.fill("4")
    desk.send()
    desk.shows('"Thanks"')
    assert desk.wire.data() == {
        "customer": {"name": "Ada", "address": {"city": "London"}},
        "lines": [{"sku": "jam"}, {"sku": "mug", "quantity": 4}],
        "notes": ["Thanks"],
    }


def test_what_is_wrong_deep_inside_is_told_there(visit: Visit) -> None:
    desk = Desk(visit, "form.nested")
    desk.press("Two teas")
    desk.group("Lines").get_by_role("button", name="Add").click()
    desk.group("Notes").get_by_role("button", name="Add").click()
    desk.press("Send and wait")
    expect(wrong(desk.group("Lines").get_by_label("Sku").last)).to_have_text("This is required.")
    expect(wrong(desk.group("Notes").get_by_role("textbox"))).to_have_text("This is empty.")
    expect(wrong(desk.group("Lines").get_by_label("Sku").first)).to_have_count(0)
    assert desk.wire.sent() == []


def test_references_that_go_in_circles_unfold_as_far_as_they_are_filled_in(visit: Visit) -> None:
    """The card of an agent that does not resolve references, as ours does."""
    defs = forms.Node.model_json_schema()["$defs"]
    schema = {**forms.schema(tree={"$ref": "#/$defs/Node"}), "$defs": defs}
    with_schema(visit.page, "form.tree", schema)
    desk = Desk(visit, "form.tree")
    desk.area.get_by_label("Label").fill("root")
    add = desk.area.get_by_role("button", name="Add")
    add.click()
    expect(add).to_have_count(2)
    desk.area.get_by_label("Label").last.fill("leaf")
    desk.expect_json({"tree": {"label": "root", "children": [{"label": "leaf"}]}})


def test_two_references_to_one_model_are_told_apart_by_their_names(visit: Visit) -> None:
    place = {"type": "object", "title": "Place", "properties": {"city": {"type": "string"}}}
    ways: Any = {name: {"$ref": "#/$defs/Place"} for name in ("from", "to")}
    with_schema(visit.page, "form.tree", {**forms.schema(**ways), "$defs": {"Place": place}})
    desk = Desk(visit, "form.tree")
    desk.group("to").get_by_label("city").fill("Rome")
    desk.group("from").get_by_label("city").fill("Bonn")
    desk.expect_json({"to": {"city": "Rome"}, "from": {"city": "Bonn"}})


def with_schema(page: Page, skill: str, schema: Any) -> None:
    """Let the agent's card have another schema."""

    def answer(route: Route) -> None:
        card = route.fetch().json()
        for extension in card["capabilities"]["extensions"]:
            extension["params"]["skills"][skill]["inputSchema"] = schema
        route.fulfill(json=card)

    page.route("**/agent-card.json", answer)


def test_a_skill_without_a_schema_is_tried_with_json(visit: Visit) -> None:
    desk = Desk(visit, "form.tree")  # its schema can't be free of references
    expect(desk.area.get_by_role("heading", name="Form")).to_have_count(0)
    desk.json.fill('{"label": "root", "children": [{"label": "leaf"}]}')
    desk.send()
    desk.shows('"root"')
    assert desk.wire.data()["children"] == [{"label": "leaf"}]


def test_one_of_several_kinds_of_value_is_chosen(visit: Visit) -> None:
    desk = Desk(visit, "form.choices")
    desk.field("Payment", "combobox").select_option("By card")
    desk.field("Number").fill("4711")
    desk.field("Size", "combobox").select_option("A name")
    desk.field("A name").fill("large")
    desk.send()
    assert desk.wire.data() == {"payment": {"number": "4711"}, "size": "large"}
    desk.field("Payment", "combobox").select_option("In cash")
    desk.field("Size", "combobox").select_option("A number")
    desk.field("A number", "spinbutton").fill("42")
    desk.press("Send and wait")
    expect(wrong(desk.field("Cash", "spinbutton"))).to_have_text("This is required.")
    desk.field("Cash", "spinbutton").fill("5")
    desk.expect_json({"payment": {"cash": 5}, "size": 42})


def test_the_choice_in_the_form_follows_the_json(visit: Visit) -> None:
    desk = Desk(visit, "form.choices")
    desk.json.fill('{"payment": {"number": "1"}, "size": "small"}')
    expect(desk.field("Number")).to_have_value("1")
    expect(desk.field("A name")).to_have_value("small")


def test_the_form_and_its_json_stay_in_step(visit: Visit) -> None:
    desk = Desk(visit, "form.kinds")
    desk.json.fill('{"code": "ABC", "count": 3, "colour": "green", "loud": true}')
    expect(desk.field("Code")).to_have_value("ABC")
    expect(desk.field("Count", "spinbutton")).to_have_value("3")
    expect(desk.field("Loud", "checkbox")).to_be_checked()
    expect(desk.json).to_have_value('{"code": "ABC", "count": 3, "colour": "green", "loud": true}')
    desk.field("Count", "spinbutton").fill("4")
    desk.expect_json({"code": "ABC", "count": 4, "colour": "green", "loud": True})


def test_broken_json_is_told_of_and_nothing_that_was_typed_is_lost(visit: Visit) -> None:
    desk = Desk(visit, "form.kinds")
    desk.field("Code").fill("XYZ")
    for source in ("", "ABC", '["ABC"]', '{"code": "ABC", '):
        desk.json.fill(source)
        expect(desk.json).to_have_attribute("aria-invalid", "true")
        expect(desk.json).to_have_accessible_description(re.compile("JSON|Input has to be"))
        desk.press("Send and wait")
        expect(desk.json).to_be_focused()
        expect(desk.page.get_by_text("can be copied when the JSON is mended")).to_be_visible()
    desk.page.get_by_role("link", name="Tasks").click()
    desk.page.go_back()
    expect(desk.json).to_have_value(source)
    expect(desk.field("Code")).to_have_value("XYZ")
    assert desk.wire.sent() == []
    desk.json.fill("{}")
    expect(desk.json).not_to_have_attribute("aria-invalid", "true")


def test_examples_fill_in_the_form(visit: Visit) -> None:
    desk = Desk(visit, "form.nested")
    desk.press("Two teas")
    expect(desk.area.get_by_label("Sku")).to_have_value("tea")
    expect(desk.field("Name")).to_have_value("Ada")
    desk.send()
    assert desk.wire.data()["lines"] == [{"sku": "tea", "quantity": 2}]


def test_text_is_sent_as_it_is(visit: Visit) -> None:
    desk = Desk(visit, "form.says")
    desk.press("Text")
    text = "Say \"it\",\nthen — 'ünd' $HOME `ls` \\n"
    desk.field("Text").fill(text)
    desk.send()
    (params,) = desk.wire.sent()
    assert params["message"]["parts"] == [{"text": text}]
    assert params["metadata"] == {"skillId": "form.says"}
    expect(desk.result.get_by_text("then — 'ünd' $HOME")).to_be_visible()


def test_a_file_is_sent_with_its_name_and_type(visit: Visit) -> None:
    desk = Desk(visit, "csv.summary")
    desk.press("Files")
    desk.press("Send and wait")
    expect(desk.area.get_by_text("Choose a file first.")).to_be_visible()
    ages: FilePayload = {
        "name": "ages.csv",
        "mimeType": "text/csv",
        "buffer": b"name,age\nAda,36\n",
    }
    spare: FilePayload = {"name": "spare.csv", "mimeType": "text/csv", "buffer": b"a"}
    desk.area.get_by_label("Files").set_input_files([ages, spare])
    expect(desk.area.get_by_text("ages.csv")).to_be_visible()
    desk.area.get_by_role("listitem").filter(has_text="spare.csv").get_by_role("button").click()
    desk.send()
    desk.shows('"ages.csv"', "rows: 1")
    (params,) = desk.wire.sent()
    (part,) = params["message"]["parts"]
    assert part == {
        "raw": "bmFtZSxhZ2UKQWRhLDM2Cg==",
        "filename": "ages.csv",
        "mediaType": "text/csv",
    }


@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_what_the_module_itself_refuses_is_told_at_the_field(visit: Visit, version: str) -> None:
    desk = Desk(visit, "form.picky")
    desk.page.get_by_label("Protocol version").select_option(f"A2A {version}")
    desk.json.fill('{"who": {"name": "Eve"}}')
    desk.send("Send and wait", "failed")
    name = desk.group("Who").get_by_label("Name")
    expect(wrong(name)).to_have_text("Nobody here is called so")
    expect(name).to_be_focused()
    expect(desk.result.get_by_text("who.name Nobody here is called so")).to_be_visible()
    desk.json.fill('{"who": {"name": "Ada"}, "seats": [12, 13]}')
    desk.send("Stream", "failed")
    expect(wrong(desk.group("Seats").get_by_role("spinbutton").last)).to_have_text(
        "The seat is taken"
    )
    expect(wrong(name)).to_have_count(0)


@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_what_the_agent_refuses_is_told_at_the_field(visit: Visit, version: str) -> None:
    desk = Desk(visit, "form.nested")
    desk.page.get_by_label("Protocol version").select_option(f"A2A {version}")
    desk.press("Two teas")
    desk.group("Lines").get_by_label("Quantity").fill("0")
    desk.press("Send and wait")
    desk.send("Send it all the same", "refused")
    expect(desk.result.get_by_role("alert")).to_contain_text("The agent refused the input.")
    expect(wrong(desk.group("Lines").get_by_label("Quantity"))).to_contain_text("greater than")
    expect(desk.area.get_by_text("Not sent.")).to_have_count(0)


def test_a_refusal_without_fields_is_told_with_its_reason(visit: Visit) -> None:
    desk = Desk(visit, "form.picky")
    desk.json.fill('{"who": {"name": "Mallory"}}')
    desk.send("Send and wait", "failed")
    expect(desk.result.get_by_text("Invalid input: Mallory is not welcome").first).to_be_visible()


def test_send_and_wait_asks_for_the_result_at_once(visit: Visit) -> None:
    desk = Desk(visit, "form.says")
    desk.field("Text").fill("hello")
    desk.send("Send and wait")
    desk.shows('"hello"')
    assert desk.wire.methods()[-1] == "SendMessage"
    assert "configuration" not in desk.wire.sent()[0]
    expect(desk.result.get_by_text("Timeline, 1 event", exact=True)).to_be_visible()


def test_a_stream_shows_each_piece(visit: Visit) -> None:
    desk = Desk(visit, "text.stats")
    desk.press("Two paragraphs")
    desk.send("Stream")
    assert desk.wire.methods()[-1] == "SendStreamingMessage"
    expect(desk.result.get_by_text("3 parts")).to_be_visible()


def test_send_without_waiting_comes_back_before_the_task_has_ended(visit: Visit) -> None:
    desk = Desk(visit, "jobs.countdown")
    desk.json.fill('{"seconds": 0.8, "step": 0.1}')
    desk.send("Send without waiting", BEGUN)
    (params,) = desk.wire.sent()
    assert params["configuration"] == {"returnImmediately": True}
    assert desk.wire.methods()[-1] == "SendMessage"
    expect(desk.result.get_by_text("nobody here watches it")).to_be_visible()
    desk.press("Watch it")
    expect(desk.result.get_by_role("status").first).to_have_text("completed")
    assert desk.wire.methods()[-1] == "SubscribeToTask"


@pytest.mark.parametrize("where", ["Text", "JSON"])
def test_control_and_enter_send(visit: Visit, where: str) -> None:
    desk = Desk(visit, "form.says")
    desk.field("Text").fill("hello")
    desk.field(where).press(CTRL_ENTER)
    desk.shows('"hello"')
    assert desk.wire.methods()[-1] == "SendStreamingMessage"


@pytest.mark.parametrize("button", ["Stream", "Send and wait"])
def test_a_module_that_fails_is_told_of_for_people(visit: Visit, button: str) -> None:
    desk = Desk(visit, "form.fails")
    desk.field("Text").fill("x")
    desk.send(button, "failed")
    expect(desk.result.get_by_text("Internal error").first).to_be_visible()
    expect(desk.page.get_by_text("hunter2")).to_have_count(0)


def test_a_number_in_the_json_that_would_become_another_is_refused(visit: Visit) -> None:
    desk = Desk(visit, "form.counts")
    for number in (LARGE, -LARGE, 10**400):
        desk.json.fill(f'{{"number": {number}}}')
        told = re.compile("^-?[0-9]{16,40}…? is too large a number")
        expect(desk.json).to_have_accessible_description(told)
        desk.press("Send and wait")
        expect(desk.json).to_be_focused()
        expect(desk.json).to_have_value(f'{{"number": {number}}}')
    assert desk.wire.sent() == []


def test_a_number_in_the_form_that_would_become_another_is_not_sent_unseen(visit: Visit) -> None:
    desk = Desk(visit, "form.counts")
    field = desk.field("Number", "spinbutton")
    field.fill(str(LARGE))
    desk.press("Send and wait")
    expect(wrong(field)).to_contain_text(TOLD)
    assert desk.wire.sent() == []
    field.fill(str(2**53 - 1))
    desk.send()
    desk.shows(f'"It is {2**53 - 1}."')
