"""Trying a skill with a form, JSON, text or files, and the results on the page."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import FilePayload, Locator, Page, Route, expect

from tests.serving import running

from . import forms
from .browsing import Visit, press_run
from .posted_requests import PostedRequests

BEYOND_DOUBLES = 2**53 + 1
STARTED = re.compile("^(submitted|working)$")
CTRL_ENTER = "Control+Enter"


@pytest.fixture(scope="module")
def agent() -> Iterator[str]:
    """Serve skills with every kind of form."""
    with running(forms.registry(), explorer=True, name="Test agent") as url:
        yield url


class SkillView:
    """The view of a skill, and the requests that its page sends."""

    def __init__(self, visit: Visit, skill: str) -> None:
        self.posted = PostedRequests(visit.page)
        self.page = visit.go(f"skills/{skill}")
        self.area = self.page.get_by_role("region", name="Try it")
        self.json = self.area.get_by_role("textbox", name="JSON", exact=True)
        self.result = self.page.get_by_role("region", name="Result")
        self.area.wait_for()

    def field(self, label: str, role: Any = "textbox") -> Locator:
        """Return the field with this label, required or not."""
        name = re.compile(f"^{re.escape(label)}( required)?$")
        return self.area.get_by_role(role, name=name)

    def group(self, label: str) -> Locator:
        """Return the group of fields with this label."""
        name = re.compile(f"^{re.escape(label)}( required)?$")
        return self.area.get_by_role("group", name=name)

    def press(self, button: str) -> None:
        self.area.get_by_role("button", name=button, exact=True).click()

    def press_run(self, mode: str = "wait") -> None:
        """Choose how to run, and press *Run*."""
        press_run(self.page, mode)

    def send(self, mode: str = "wait", state: str | re.Pattern[str] = "completed") -> None:
        """Run the skill, and wait for a state."""
        self.press_run(mode)
        self.expect_state(state)

    def expect_state(self, state: str | re.Pattern[str]) -> None:
        """Wait for the run to be in a state."""
        expect(self.result.get_by_role("status").first).to_have_text(state)

    def expect_result(self, *lines: str) -> None:
        """Expect these lines in the result."""
        for line in lines:
            expect(self.result.get_by_text(line, exact=True).first).to_be_visible()

    def expect_json(self, data: Any) -> None:
        """Expect *data* in the JSON editor, as the form writes it."""
        expect(self.json).to_have_value(json.dumps(data, indent=2))


def error_at(field: Locator) -> Locator:
    """Return the error shown at a field."""
    return field.page.locator(f"[id='{field.get_attribute('id')}__error']")


def test_fields_of_every_kind_fill_the_input(visit: Visit) -> None:
    view = SkillView(visit, "form.kinds")
    view.field("Code").fill("ABC")
    view.field("Count").fill("3")
    view.field("Share").fill("0.25")
    view.field("Loud", "checkbox").check()
    view.field("Colour", "combobox").select_option("green")
    view.field("Day").fill("2024-02-29")
    view.field("Mail").fill("ada@example.com")
    view.field("Site").fill("https://example.com/")
    view.field("Nick").fill("Ada")
    view.field("Age").fill("36")
    view.send()
    view.expect_result('"ABC"', '"green"', '"2024-02-29"', "0.25", "true", "36")
    assert view.posted.data() == {
        **{"code": "ABC", "count": 3, "share": 0.25, "loud": True, "colour": "green"},
        **{"day": "2024-02-29", "mail": "ada@example.com", "site": "https://example.com/"},
        **{"nick": "Ada", "age": 36},
    }


def test_fields_keep_their_order_with_required_ones_marked_and_defaults_named(visit: Visit) -> None:
    view = SkillView(visit, "form.kinds")
    labels = view.area.get_by_text(re.compile(r"^((Code|Count) required|Age|Speed)$"))
    expect(labels).to_have_text(["Code required", "Count required", "Speed", "Age"])
    speed = view.field("Speed", "combobox")
    expect(speed.locator("option:checked")).to_have_text("fast by default")
    view.expect_json({})
    view.press_run()
    expect(error_at(view.field("Code"))).to_have_text("This is required.")
    expect(error_at(view.field("Count"))).to_have_text("This is required.")
    expect(view.field("Code")).to_be_focused()
    assert view.posted.message_params() == []


FORBIDDEN = [
    ("Code", "textbox", "abc", "This does not match the pattern ^[A-Z]{3}$."),
    ("Count", "textbox", "0", "0 is less than 1."),
    ("Count", "textbox", "10", "10 is greater than 9."),
    ("Count", "textbox", "2.5", "This must be an integer."),
    ("Share", "textbox", "1", "1 is greater than or equal to 1."),
    ("Mail", "textbox", "ada", 'String does not match format "email".'),
    ("Site", "textbox", "ada", 'String does not match format "uri".'),
    ("Nick", "textbox", "too long", "String is too long (8 > 4)."),
    ("Age", "textbox", "0.5", "This must be an integer."),
]


def test_invalid_values_are_reported_at_their_fields_and_not_sent(visit: Visit) -> None:
    view = SkillView(visit, "form.kinds")
    for label, role, value, message in FORBIDDEN:
        view.json.fill('{"code": "ABC", "count": 3}')
        field = view.field(label, role)
        field.fill(value)
        view.press_run("stream")
        expect(error_at(field)).to_have_text(message)
        expect(view.area.get_by_role("alert")).to_contain_text(
            "Not sent. The input does not match the skill's schema"
        )
        assert view.posted.message_params() == []
        field.fill({"Code": "XYZ", "Count": "4"}.get(label, ""))
        expect(error_at(field)).to_have_count(0)
    view.send()


def test_an_unknown_member_is_reported(visit: Visit) -> None:
    view = SkillView(visit, "form.kinds")
    view.json.fill('{"code": "ABC", "count": 3, "bogus": 1}')
    view.press_run()
    alert = view.area.get_by_role("alert")
    expect(alert).to_contain_text("bogus This property is not in the skill's schema.")
    assert view.posted.message_params() == []


def test_invalid_values_can_be_sent_anyway_in_the_chosen_mode(visit: Visit) -> None:
    view = SkillView(visit, "form.kinds")
    view.json.fill('{"code": "abc", "count": 12}')
    view.press_run("later")
    view.press("Send anyway")
    view.expect_state("request failed")
    (params,) = view.posted.message_params()
    assert params["configuration"] == {"returnImmediately": True}
    expect(view.result.get_by_role("alert")).to_contain_text("The agent rejected the input.")
    expect(error_at(view.field("Code"))).to_have_text("Invalid value (pattern)")
    expect(error_at(view.field("Count"))).to_have_text("Invalid value (maximum)")


def test_an_emptied_field_is_not_sent(visit: Visit) -> None:
    view = SkillView(visit, "form.nested")
    view.press("Two teas")
    zip_code = view.field("Zip")
    zip_code.fill("N1")
    expect(view.json).to_have_value(re.compile('"zip": "N1"'))
    zip_code.fill("")
    view.send()
    assert "zip" not in view.posted.data()["customer"]["address"]


def test_nested_objects_and_arrays_are_filled_in(visit: Visit) -> None:
    view = SkillView(visit, "form.nested")
    customer = view.group("Person (customer)")
    customer.get_by_label("Name").fill("Ada")
    customer.get_by_role("group", name="Address").get_by_label("City").fill("London")
    lines, notes = view.group("Lines"), view.group("Notes")
    for sku in ("tea", "mug", "jam"):
        lines.get_by_role("button", name="Add").click()
        lines.get_by_label("Sku").last.fill(sku)
    notes.get_by_role("button", name="Add").click()
    notes.get_by_role("textbox").fill("Thanks")
    lines.get_by_role("button", name="Move up").last.click()
    lines.get_by_role("button", name="Remove").first.click()
    lines.get_by_label("Quantity").last.fill("4")
    view.send()
    view.expect_result('"Thanks"')
    assert view.posted.data() == {
        "customer": {"name": "Ada", "address": {"city": "London"}},
        "lines": [{"sku": "jam"}, {"sku": "mug", "quantity": 4}],
        "notes": ["Thanks"],
    }


def test_errors_in_nested_objects_are_reported_at_their_fields(visit: Visit) -> None:
    view = SkillView(visit, "form.nested")
    view.press("Two teas")
    view.group("Lines").get_by_role("button", name="Add").click()
    view.group("Notes").get_by_role("button", name="Add").click()
    view.press_run()
    expect(error_at(view.group("Lines").get_by_label("Sku").last)).to_have_text("This is required.")
    expect(error_at(view.group("Notes").get_by_role("textbox"))).to_have_text(
        "This must not be empty."
    )
    expect(error_at(view.group("Lines").get_by_label("Sku").first)).to_have_count(0)
    assert view.posted.message_params() == []


def test_recursive_references_expand_as_they_are_filled_in(visit: Visit) -> None:
    defs = forms.Node.model_json_schema()["$defs"]
    schema = {**forms.schema(tree={"$ref": "#/$defs/Node"}), "$defs": defs}
    replace_schema(visit.page, "form.tree", schema)
    view = SkillView(visit, "form.tree")
    view.area.get_by_role("button", name="Add tree").click()
    view.area.get_by_label("Label").fill("root")
    add = view.area.get_by_role("button", name="Add")
    add.click()
    expect(add).to_have_count(2)
    view.area.get_by_label("Label").last.fill("leaf")
    view.expect_json({"tree": {"label": "root", "children": [{"label": "leaf"}]}})


def test_members_that_share_a_definition_are_labelled_by_their_own_names(visit: Visit) -> None:
    definition = {"type": "object", "title": "Place", "properties": {"city": {"type": "string"}}}
    members: Any = {name: {"$ref": "#/$defs/Place"} for name in ("from", "to")}
    replace_schema(
        visit.page, "form.tree", {**forms.schema(**members), "$defs": {"Place": definition}}
    )
    view = SkillView(visit, "form.tree")
    for name in ("to", "from"):
        view.area.get_by_role("button", name=f"Add {name}").click()
    view.group("to").get_by_label("city").fill("Rome")
    view.group("from").get_by_label("city").fill("Bonn")
    view.expect_json({"from": {"city": "Bonn"}, "to": {"city": "Rome"}})


def replace_schema(page: Page, skill: str, schema: Any) -> None:
    """Replace the schema of a skill on the card.

    The server inlines the references of schemas that are not recursive; other agents may not.
    """

    def answer(route: Route) -> None:
        card = route.fetch().json()
        for extension in card["capabilities"]["extensions"]:
            extension["params"]["skills"][skill]["inputSchema"] = schema
        route.fulfill(json=card)

    page.route("**/agent-card.json", answer)


def test_a_skill_with_a_recursive_schema_is_tried_with_json(visit: Visit) -> None:
    view = SkillView(visit, "form.tree")
    expect(view.area.get_by_role("heading", name="Form")).to_be_visible()
    view.json.fill('{"label": "root", "children": [{"label": "leaf"}]}')
    view.send()
    view.expect_result("root")
    assert view.posted.data()["children"] == [{"label": "leaf"}]


def test_one_of_several_types_is_chosen(visit: Visit) -> None:
    view = SkillView(visit, "form.choices")
    view.field("Payment", "combobox").select_option("By card")
    view.field("Number").fill("4711")
    view.field("Size", "combobox").select_option("A name")
    view.field("A name").fill("large")
    view.send()
    assert view.posted.data() == {"payment": {"number": "4711"}, "size": "large"}
    view.field("Payment", "combobox").select_option("In cash")
    view.field("Size", "combobox").select_option("A number")
    view.field("A number").fill("42")
    view.press_run()
    expect(error_at(view.field("Cash"))).to_have_text("This is required.")
    view.field("Cash").fill("5")
    view.expect_json({"payment": {"cash": 5}, "size": 42})


def test_the_choice_in_the_form_follows_the_json(visit: Visit) -> None:
    view = SkillView(visit, "form.choices")
    view.json.fill('{"payment": {"number": "1"}, "size": "small"}')
    expect(view.field("Number")).to_have_value("1")
    expect(view.field("A name")).to_have_value("small")


def test_the_form_and_its_json_stay_in_sync(visit: Visit) -> None:
    view = SkillView(visit, "form.kinds")
    view.json.fill('{"code": "ABC", "count": 3, "colour": "green", "loud": true}')
    expect(view.field("Code")).to_have_value("ABC")
    expect(view.field("Count")).to_have_value("3")
    expect(view.field("Loud", "checkbox")).to_be_checked()
    expect(view.json).to_have_value('{"code": "ABC", "count": 3, "colour": "green", "loud": true}')
    view.field("Count").fill("4")
    view.expect_json({"code": "ABC", "count": 4, "colour": "green", "loud": True})


def test_invalid_json_is_reported_and_no_typed_text_is_lost(visit: Visit) -> None:
    view = SkillView(visit, "form.kinds")
    view.field("Code").fill("XYZ")
    for source in ("", "ABC", '["ABC"]', '{"code": "ABC", '):
        view.json.fill(source)
        expect(view.json).to_have_attribute("aria-invalid", "true")
        expect(view.json).to_have_accessible_description(re.compile("JSON|The input must be"))
        view.press_run()
        expect(view.json).to_be_focused()
        expect(view.page.get_by_text("Fix the JSON to copy the request.")).to_be_visible()
    view.page.get_by_role("link", name="Tasks").click()
    view.page.go_back()
    expect(view.json).to_have_value(source)
    expect(view.field("Code")).to_have_value("XYZ")
    assert view.posted.message_params() == []
    view.json.fill("{}")
    expect(view.json).not_to_have_attribute("aria-invalid", "true")


def test_examples_fill_in_the_form(visit: Visit) -> None:
    view = SkillView(visit, "form.nested")
    view.press("Two teas")
    expect(view.area.get_by_label("Sku")).to_have_value("tea")
    expect(view.field("Name")).to_have_value("Ada")
    view.send()
    assert view.posted.data()["lines"] == [{"sku": "tea", "quantity": 2}]


def test_text_is_sent_unchanged(visit: Visit) -> None:
    view = SkillView(visit, "form.says")
    view.press("Text")
    text = "Say \"it\",\nthen — 'ünd' $HOME `ls` \\n"
    view.field("Text").fill(text)
    view.send()
    (params,) = view.posted.message_params()
    assert params["message"]["parts"] == [{"text": text}]
    assert params["metadata"] == {"skillId": "form.says"}
    expect(view.result.get_by_text("then — 'ünd' $HOME")).to_be_visible()


def test_a_file_is_sent_with_its_name_and_type(visit: Visit) -> None:
    view = SkillView(visit, "csv.summary")
    view.press("Files")
    view.press_run()
    expect(view.area.get_by_text("Choose a file first.")).to_be_visible()
    ages: FilePayload = {
        "name": "ages.csv",
        "mimeType": "text/csv",
        "buffer": b"name,age\nAda,36\n",
    }
    spare: FilePayload = {"name": "spare.csv", "mimeType": "text/csv", "buffer": b"a"}
    view.area.get_by_label("Files").set_input_files([ages, spare])
    expect(view.area.get_by_text("ages.csv", exact=True)).to_be_visible()
    view.area.get_by_role("listitem").filter(has_text="spare.csv").get_by_role("button").click()
    view.send()
    expect(view.result.get_by_role("definition")).to_contain_text(["ages.csv", "1"])
    (params,) = view.posted.message_params()
    (part,) = params["message"]["parts"]
    assert part == {
        "raw": "bmFtZSxhZ2UKQWRhLDM2Cg==",
        "filename": "ages.csv",
        "mediaType": "text/csv",
    }


def test_maps_tuples_optional_objects_unions_and_files_are_filled_in(visit: Visit) -> None:
    view = SkillView(visit, "form.awkward")
    view.field("Anything").fill("[1, null]")
    labels, size = view.group("Labels"), view.group("Size")
    for name, value in {"team": "math", "a.b": "c"}.items():
        labels.get_by_label("New name").fill(name)
        labels.get_by_label("New name").press("Enter")
        labels.get_by_label("Value").last.fill(value)
    first_name = labels.get_by_label("Name", exact=True).first
    first_name.fill("a.b")
    first_name.press("Tab")
    expect(labels.get_by_text("This name is taken.")).to_be_visible()
    first_name.fill("group")
    first_name.press("Tab")
    size.get_by_role("textbox").first.fill("4")
    size.get_by_role("textbox").last.fill("wide")
    view.group("Flags").get_by_label("c", exact=True).check()
    view.field("Pet", "combobox").select_option("Dog")
    expect(view.area.get_by_label("Kind")).to_have_count(0)
    view.area.get_by_label("Name required").fill("Rex")
    amount = view.field("Amount")
    expect(amount).to_have_attribute("placeholder", "20 by default")
    amount.fill("0.1000000000000000000001")
    choose_files(view)
    view.send()
    assert view.posted.data() == {
        **{"anything": [1, None], "labels": {"group": "math", "a.b": "c"}, "size": [4, "wide"]},
        **{"flags": ["c"], "pet": {"kind": "dog", "name": "Rex"}},
        **{"amount": "0.1000000000000000000001", "photo": "YQ==", "pages": ["YQ==", "Yg=="]},
    }
    assert visit.accessibility_violations() == []


def choose_files(view: SkillView) -> None:
    """Choose two files for a field that takes one, and for a list of files."""
    files: list[FilePayload] = [
        {"name": f"{name}.txt", "mimeType": "text/plain", "buffer": name.encode()}
        for name in ("a", "b")
    ]
    photo = view.area.get_by_label("Photo")
    photo.evaluate("(field) => (field.multiple = true)")
    photo.set_input_files(files)
    expect(view.area.get_by_text("Only a.txt is used")).to_be_visible()
    expect(view.area.get_by_text("1 B, 4 B in the request")).to_be_visible()
    view.area.get_by_label("Files for Pages").set_input_files(files)
    expect(view.group("Pages").get_by_text("1 B, 4 B in the request")).to_have_count(0)
    expect(view.group("Pages").get_by_text("4 B in the request")).to_have_count(2)


def test_an_optional_object_is_added_and_removed(visit: Visit) -> None:
    view = SkillView(visit, "form.awkward")
    required = {"anything": 1, "size": [1, "a"], "pet": {"kind": "cat"}}
    view.json.fill(json.dumps(required))
    view.press("Add Address (home)")
    view.press_run()
    city = view.group("Address (home)").get_by_label("City")
    expect(error_at(city)).to_have_text("This is required.")
    expect(view.area.locator("[aria-invalid=true]")).to_have_count(1)
    view.press("Remove Address (home)")
    view.send()
    assert view.posted.data() == required


@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_errors_from_the_module_are_shown_at_their_fields(visit: Visit, version: str) -> None:
    view = SkillView(visit, "form.picky")
    view.page.get_by_label("Protocol version").select_option(f"A2A {version}")
    view.json.fill('{"who": {"name": "Eve"}}')
    view.send("wait", "failed")
    name = view.group("Who").get_by_label("Name")
    expect(error_at(name)).to_have_text("There is no such person")
    expect(name).to_be_focused()
    expect(view.result.get_by_text("who.name There is no such person")).to_be_visible()
    view.json.fill('{"who": {"name": "Ada"}, "seats": [12, 13]}')
    view.send("stream", "failed")
    expect(error_at(view.group("Seats").get_by_role("textbox").last)).to_have_text(
        "The seat is taken"
    )
    expect(error_at(name)).to_have_count(0)


@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_errors_from_the_agents_validation_are_shown_at_their_fields(
    visit: Visit, version: str
) -> None:
    view = SkillView(visit, "form.nested")
    view.page.get_by_label("Protocol version").select_option(f"A2A {version}")
    view.press("Two teas")
    view.group("Lines").get_by_label("Quantity").fill("0")
    view.press_run()
    view.press("Send anyway")
    view.expect_state("request failed")
    expect(view.result.get_by_role("alert")).to_contain_text("The agent rejected the input.")
    expect(error_at(view.group("Lines").get_by_label("Quantity"))).to_contain_text("greater than")
    expect(view.area.get_by_text("Not sent.")).to_have_count(0)


def test_an_error_that_names_no_field_shows_its_reason(visit: Visit) -> None:
    view = SkillView(visit, "form.picky")
    view.json.fill('{"who": {"name": "Mallory"}}')
    view.send("wait", "failed")
    expect(view.result.get_by_text("Invalid input: Mallory is not welcome").first).to_be_visible()


def test_waiting_gets_the_result_in_one_response(visit: Visit) -> None:
    view = SkillView(visit, "form.says")
    view.field("Text").fill("hello")
    view.send("wait")
    view.expect_result('"hello"')
    assert view.posted.methods()[-1] == "SendMessage"
    assert "configuration" not in view.posted.message_params()[0]
    expect(view.result.get_by_text("Timeline, 1 event", exact=True)).to_be_visible()


def test_a_stream_shows_each_chunk(visit: Visit) -> None:
    view = SkillView(visit, "text.stats")
    view.press("Two paragraphs")
    view.send("stream")
    assert view.posted.methods()[-1] == "SendStreamingMessage"
    expect(view.result.get_by_text("3 parts")).to_be_visible()


def test_a_run_in_the_background_returns_before_the_task_ends(visit: Visit) -> None:
    view = SkillView(visit, "jobs.countdown")
    view.json.fill('{"seconds": 0.8, "step": 0.1}')
    view.send("later", STARTED)
    (params,) = view.posted.message_params()
    assert params["configuration"] == {"returnImmediately": True}
    assert view.posted.methods()[-1] == "SendMessage"
    expect(view.result.get_by_text("this page is not following it")).to_be_visible()
    view.press("Follow task")
    expect(view.result.get_by_role("status").first).to_have_text("completed")
    assert view.posted.methods()[-1] == "SubscribeToTask"


@pytest.mark.parametrize("field", ["Text", "JSON"])
def test_control_enter_sends(visit: Visit, field: str) -> None:
    view = SkillView(visit, "form.says")
    view.field("Text").fill("hello")
    view.field(field).press(CTRL_ENTER)
    view.expect_result('"hello"')
    assert view.posted.methods()[-1] == "SendStreamingMessage"


@pytest.mark.parametrize("mode", ["stream", "wait"])
def test_a_failed_module_is_reported_without_its_details(visit: Visit, mode: str) -> None:
    view = SkillView(visit, "form.fails")
    view.field("Text").fill("x")
    view.send(mode, "failed")
    expect(view.result.get_by_text("Internal error").first).to_be_visible()
    expect(view.page.get_by_text("hunter2")).to_have_count(0)


@pytest.mark.parametrize("number", [BEYOND_DOUBLES, -BEYOND_DOUBLES, 10**400 + 1])
def test_integers_beyond_double_precision_are_sent_and_shown_exactly(
    visit: Visit, number: int
) -> None:
    view = SkillView(visit, "form.digits")
    view.json.fill(f'{{"number": {number}}}')
    expect(view.field("Number")).to_have_value(str(number))
    view.send("wait")
    artifact = view.result.get_by_role("region", name="Artifact")
    expect(artifact).to_contain_text(f"It is {number}.")
    view.field("Number").fill(str(number + 2))
    expect(view.json).to_have_value(f'{{\n  "number": {number + 2}\n}}')
    view.send("stream")
    expect(artifact).to_contain_text(f"It is {number + 2}.")
    sent = [params["message"]["parts"][0]["data"] for params in view.posted.message_params()]
    assert sent == [{"number": number}, {"number": number + 2}]


def test_a_float_beyond_the_range_of_doubles_is_refused(visit: Visit) -> None:
    view = SkillView(visit, "form.digits")
    view.json.fill('{"number": 1e400}')
    expect(view.json).to_have_accessible_description("1e400 is too large for a number")
    view.press_run()
    expect(view.json).to_be_focused()
    assert view.posted.message_params() == []
