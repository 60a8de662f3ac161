"""How results are shown: texts, tables, pictures and sounds; other values as trees."""

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from apcore import Registry
from playwright.sync_api import Locator, expect

from tests.server.inloop import ActionModule, echo
from tests.serving import running

from .browsing import PHONE, Visit, press_run, wait_until
from .scripted import ScriptedModule
from .test_watch import PNG

OpenVisit = Callable[..., Visit]
SOUND = (
    b"RIFF\x25\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x40\x1f\0\0\x40\x1f\0\0\1\0\x08\0data\1\0\0\0\x80"
)
"""One sample of silence."""
REPORT = "# Sales\n\nUp by **12 %** since May."
RESULT: dict[str, Any] = {
    "total_cents": 3132,
    "report": REPORT,
    "lines": [{"sku": "tea-green", "cents": 980}, {"sku": "mug", "cents": 2152}],
    "chart": {"bytes": b64encode(PNG).decode(), "mimeType": "image/png", "name": "chart.png"},
    "greeting": {"bytes": b64encode(SOUND).decode(), "mimeType": "audio/wav"},
    "scan": b64encode(PNG).decode(),
    "note": "Short, but Markdown",
    "shipping": {"to": {"city": "Oslo"}, "steps": ["packed", "sent"]},
}


OUTPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "note": {"type": "string", "title": "Remark", "contentMediaType": "text/markdown"},
        "total_cents": {"type": "integer"},
        "scan": {
            "type": "string",
            "contentEncoding": "base64",
            "contentMediaType": "image/png",
        },
    },
    "propertyOrder": ["total_cents", "note", "scan"],
}
"""The schema of some members of `RESULT`."""
ANY: dict[str, Any] = {"type": "object"}


@pytest.fixture(scope="module")
def scripted() -> ScriptedModule:
    return ScriptedModule()


@pytest.fixture(scope="module")
def agent(scripted: ScriptedModule) -> Iterator[str]:
    registry = Registry()
    described_module = ActionModule(echo, input_schema=ANY, output_schema=OUTPUT)
    registry.register("report", described_module)
    registry.register("mirror", ActionModule(echo, input_schema=ANY))
    registry.register("scripted", scripted)
    with running(registry, name="Test agent", explorer=True) as url:
        yield url


def result_of(visit: Visit, skill: str, data: dict[str, Any]) -> Locator:
    """Run a skill that returns its input, *data*; return the artifact on the page."""
    page = visit.go(f"skills/{skill}")
    page.get_by_role("textbox", name="JSON", exact=True).fill(json.dumps(data))
    press_run(page, "wait")
    return page.get_by_role("region", name="Artifact result")


def member(artifact: Locator, name: str) -> Locator:
    return artifact.get_by_role("region", name=name, exact=True)


def test_each_member_of_a_result_is_shown_by_its_kind(visit: Visit) -> None:
    artifact = result_of(visit, "report", RESULT)
    expect(artifact.get_by_role("term")).to_have_text(["total_cents"])
    expect(artifact.get_by_role("definition")).to_have_text(["3132"])
    expect(member(artifact, "report").get_by_role("heading", name="Sales")).to_be_visible()
    expect(member(artifact, "lines").get_by_role("columnheader")).to_have_text(["sku", "cents"])
    expect(member(artifact, "lines").get_by_role("row").nth(2)).to_contain_text("2152")
    for name, alt in [("chart", "chart.png"), ("scan", "scan")]:
        picture = member(artifact, name).get_by_role("img", name=alt)
        assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") == 2
    sound = member(artifact, "greeting").locator("audio")
    sound.evaluate("sound => sound.readyState || new Promise(ok => sound.onloadedmetadata = ok)")
    expect(member(artifact, "shipping")).to_contain_text('city: "Oslo"')
    assert visit.accessibility_violations() == []


def test_members_are_in_the_order_of_the_output_schema_and_have_its_titles(visit: Visit) -> None:
    artifact = result_of(visit, "report", RESULT)
    headings = artifact.get_by_role("heading", level=4)
    expect(headings.first).to_have_text("Remark")
    expect(headings.nth(1)).to_have_text("scan")
    kinds = member(artifact, "Remark").get_by_role("button")
    expect(kinds).to_have_text(["Markdown", "Text"])


def test_a_markdown_member_can_be_read_as_plain_text(visit: Visit) -> None:
    report = member(result_of(visit, "mirror", RESULT), "report")
    report.get_by_role("button", name="Text").click()
    expect(report.get_by_text("**12 %**")).to_be_visible()
    expect(report.get_by_role("heading", name="Sales")).to_have_count(0)


def test_a_result_without_a_schema_is_shown_by_the_types_of_its_values(visit: Visit) -> None:
    artifact = result_of(visit, "mirror", RESULT)
    expect(artifact.get_by_role("term")).to_have_text(["total_cents", "scan", "note"])
    expect(member(artifact, "lines").get_by_role("table")).to_be_visible()
    artifact.get_by_role("group", name="Show as").get_by_role("button", name="Tree").first.click()
    expect(artifact.get_by_role("table")).to_have_count(0)
    expect(artifact).to_contain_text("total_cents: 3132")


@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_integers_beyond_double_precision_are_shown_exactly(visit: Visit, version: str) -> None:
    number = 2**80 + 1
    page = visit.go("skills/mirror")
    page.get_by_label("Protocol version").select_option(f"A2A {version}")
    artifact = result_of(visit, "mirror", {"n": number, "rows": [{"m": -number}], "half": 0.5})
    expect(artifact.get_by_role("definition")).to_have_text([str(number), "0.5"])
    expect(artifact.get_by_role("cell")).to_have_text([str(-number)])
    artifact.get_by_role("button", name="Tree", exact=True).click()
    expect(artifact).to_contain_text(f"n: {number}")
    artifact.get_by_role("button", name="JSON", exact=True).click()
    expect(artifact).to_contain_text(f'"m": {-number}')
    page.get_by_role("link", name=re.compile("^Task ")).click()
    expect(page.get_by_role("region", name="Artifact result")).to_contain_text(str(number))
    page.reload()
    expect(page.get_by_role("region", name="Artifact result")).to_contain_text(str(-number))


def test_a_tree_is_searched_by_names_and_values(visit: Visit) -> None:
    shelf = {f"book {n}": {"title": f"Volume {n}", "lent": n == 3} for n in range(30)}
    artifact = result_of(visit, "mirror", {"shelf": shelf})
    search = artifact.get_by_role("searchbox", name="Search names and values")
    search.fill("volume 1")
    expect(artifact.get_by_role("status")).to_have_text("11 found")
    expect(artifact).to_contain_text('title: "Volume 19"')
    expect(artifact).not_to_contain_text("book 3:")
    search.fill("TRUE")
    expect(artifact).to_contain_text("lent: true")
    expect(artifact).to_contain_text("book 3:")
    expect(artifact).not_to_contain_text("book 4:")
    search.fill("book 7")
    artifact.get_by_role("button", name="book 7:").click()
    expect(artifact).to_contain_text('title: "Volume 7"')
    search.fill("")
    expect(artifact).to_contain_text("book 29:")
    expect(artifact).not_to_contain_text("Volume 7")


def test_the_path_and_the_value_of_a_member_are_copied(open_visit: OpenVisit, agent: str) -> None:
    visit = open_visit(agent, permissions=["clipboard-read", "clipboard-write"])
    artifact = result_of(visit, "mirror", {"a b": [{"n": [1]}], "name": "Ada"})
    clipboard = "navigator.clipboard.readText()"
    artifact.get_by_role("button", name='Copy $["a b"]', exact=True).click()
    artifact.get_by_role("button", name="Copy path").click()
    expect(artifact.get_by_text("Copied.")).to_be_visible()
    assert visit.page.evaluate(clipboard) == '$["a b"]'
    artifact.get_by_role("button", name="Copy value").click()
    expect(artifact.get_by_text("Copied.")).to_have_count(2)
    assert visit.page.evaluate(clipboard) == json.dumps([{"n": [1]}], indent=2)
    artifact.get_by_role("button", name="Copy $.name").click()
    artifact.get_by_role("button", name="Copy value").click()
    wait_until(lambda: visit.page.evaluate(clipboard) == "Ada")


def test_words_of_a_stream_are_joined_into_a_text(visit: Visit, scripted: ScriptedModule) -> None:
    page = visit.go("skills/scripted")
    press_run(page)
    stream = scripted.next_stream()
    artifact = page.get_by_role("region", name="Artifact result")
    stream.send({"text": "The sources "}, {"text": "agree"})
    expect(artifact.locator("pre")).to_have_text("The sources agree")
    stream.send({"text": "."})
    stream.end()
    expect(artifact.locator("pre")).to_have_text("The sources agree.")
    artifact.get_by_role("button", name="Table").click()
    expect(artifact.get_by_role("cell")).to_have_text(["The sources ", "agree", "."])


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_results_fit_on_a_phone_and_are_accessible(
    open_visit: OpenVisit, agent: str, colours: str
) -> None:
    options: dict[str, Any] = {"viewport": PHONE, "is_mobile": True, "has_touch": True}
    visit = open_visit(agent, color_scheme=colours, **options)
    artifact = result_of(visit, "report", RESULT)
    expect(member(artifact, "lines")).to_be_visible()
    assert visit.accessibility_violations() == []
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
